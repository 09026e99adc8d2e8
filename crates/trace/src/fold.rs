//! Builds spans from a run's events. Each span is emitted once, when it ends, with only the new
//! content.

mod turn;

#[cfg(test)]
#[path = "fold_tests.rs"]
mod fold_tests;

use jiff::Timestamp;
use throughline_core::{ElisionReason, LogId, Record, Tenant, kind, unpack_events};
use throughline_json::Name;
use throughline_spec::{
    AttemptEnd, PlanEvent, RedactionPolicy, RunEvent, RunFold, RunStatusEvent, ToolApprovalEvent,
    ToolApprovalEventStatus, ToolCallEvent, ToolCallPhase, UserQuestionEvent,
    UserQuestionEventStatus,
};

use crate::fold::turn::OpenTurn;
use crate::session::id_scope;
use crate::span::{Span, SpanKind, Value, derive_id};

/// Content settings of traces.
#[derive(Clone, Debug, Default)]
pub struct TraceOptions {
    /// Conversation id to report instead of the Thread id.
    pub thread_id: Option<Name>,
    /// Whether spans contain the content of messages, Thoughts and tool calls.
    pub log_data: bool,
    /// Redaction of that content.
    pub redaction: RedactionPolicy,
}

/// Builds spans from the records of a run.
#[derive(Debug)]
pub struct Fold {
    telling: TraceOptions,
    /// Name from which span ids are derived.
    scope: String,
    trace: [u8; 16],
    root: [u8; 8],
    /// Span of the run itself, open until the run ends.
    agent: Option<Span>,
    /// Counts attempts and Thoughts the way the console does.
    counted: RunFold,
    turn: Option<OpenTurn>,
    /// Messages since the last model call.
    said: Vec<(Name, Name)>,
    tools: Vec<(Name, Timestamp)>,
    waits: Vec<(Name, Timestamp)>,
    /// Number of spans so far, from which span ids are derived.
    made: u64,
    total: UsageTotal,
    seen: u64,
    ended: Option<Name>,
}

/// Tokens and cost of the whole run.
#[derive(Debug, Default)]
pub(crate) struct UsageTotal {
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) cached: u64,
    pub(crate) thought: u64,
    pub(crate) cost_usd: f64,
}

impl Fold {
    /// Creates a fold for a tenant's run on this Thread.
    pub fn new(tenant: &Tenant, run: &LogId, thread: &LogId, telling: TraceOptions) -> Self {
        let scope = id_scope(tenant, run);
        let trace = derive_id::<16>(&scope);
        let root = derive_id::<8>(&format!("{scope} run"));
        let mut agent =
            Span::new(trace, SpanKind::Agent, "invoke_agent".to_owned(), Timestamp::UNIX_EPOCH);
        agent.id = root;
        agent.add("gen_ai.operation.name", "invoke_agent");
        let conversation = telling.thread_id.as_ref().unwrap_or(&thread.0);
        agent.add("gen_ai.conversation.id", conversation);
        agent.add("throughline.run", &run.0);
        Self {
            telling,
            scope,
            trace,
            root,
            agent: Some(agent),
            counted: RunFold::default(),
            turn: None,
            said: Vec::new(),
            tools: Vec::new(),
            waits: Vec::new(),
            made: 0,
            total: UsageTotal::default(),
            seen: 0,
            ended: None,
        }
    }

    /// Returns the trace id.
    pub fn trace(&self) -> [u8; 16] {
        self.trace
    }

    /// Returns the id of the run's own span.
    pub fn root(&self) -> [u8; 8] {
        self.root
    }

    /// Returns the sequence number of the last record.
    pub fn last_seq(&self) -> u64 {
        self.seen
    }

    /// Returns the final status of the run: `completed`, `failed` or `cancelled`.
    pub fn ended(&self) -> Option<&Name> {
        self.ended.as_ref()
    }

    /// Returns the spans that end with this record.
    pub fn record(&mut self, record: &Record) -> Vec<Span> {
        self.seen = record.seq;
        if &*record.kind != kind::EVENTS {
            return Vec::new();
        }
        let mut spans = Vec::new();
        let events = match unpack_events(record) {
            Ok(events) => events,
            Err(why) => return vec![self.erased_span(record, why)],
        };
        for (_, event) in events {
            let event = throughline_json::Json::parse(event).ok();
            if let Some(event) = event.and_then(|event| RunEvent::parse(&event).ok()) {
                self.event(record.at, &event, &mut spans);
            }
        }
        spans
    }

    /// Returns the current state of the run's own span, which is delivered last.
    pub fn agent(&self, now: Timestamp) -> Option<Span> {
        let mut agent = self.agent.clone()?;
        agent.end = agent.end.max(now).max(agent.start);
        let (total, counts) = (&self.total, self.counted.counts());
        for (key, value) in [
            ("gen_ai.usage.input_tokens", total.input),
            ("gen_ai.usage.output_tokens", total.output),
            ("gen_ai.usage.cache_read.input_tokens", total.cached),
            ("gen_ai.usage.reasoning.output_tokens", total.thought),
            ("throughline.turns", counts.turns),
            ("throughline.attempts", counts.attempts),
            ("throughline.attempts.discarded", counts.discarded),
            ("throughline.tools", counts.tools),
            ("throughline.thoughts", counts.thoughts),
            ("throughline.fates.kept", counts.kept),
            ("throughline.fates.restored", counts.restored),
            ("throughline.fates.reshaped", counts.reshaped),
            ("throughline.fates.elided", counts.elided),
        ] {
            agent.add(key, value);
        }
        if total.cost_usd > 0.0 {
            agent.attributes.push(("throughline.cost_usd", Value::Decimal(total.cost_usd)));
        }
        Some(agent)
    }

    fn event(&mut self, at: Timestamp, event: &RunEvent, spans: &mut Vec<Span>) {
        let change = self.counted.push(at, event);
        if change.left.is_some() {
            spans.extend(self.close_open_turn());
        }
        if let Some(attempt) = &change.opened {
            self.turn = Some(OpenTurn::new(attempt));
        }
        match event {
            RunEvent::Run(event) => self.status(at, event),
            RunEvent::Message(event) => {
                self.said.push((event.role.clone(), event.content.clone()));
            }
            RunEvent::Turn(event) => {
                let ended = change.ended.and_then(|(_, end)| Some((self.turn.take()?, end)));
                if let Some((turn, end)) = ended {
                    spans.push(self.inference(turn, at, end, event.reason.as_ref()));
                }
            }
            RunEvent::Thought(_)
            | RunEvent::Stream(_)
            | RunEvent::Usage(_)
            | RunEvent::Replay(_) => {
                self.total.add(event);
                if let Some(turn) = &mut self.turn {
                    turn.record_event(at, event);
                }
            }
            RunEvent::ToolCall(event) => spans.extend(self.tool(at, event)),
            RunEvent::Plan(event) => spans.push(self.plan(at, event)),
            RunEvent::UserQuestion(event) => spans.extend(self.question(at, event)),
            RunEvent::ToolApproval(event) => spans.extend(self.approval(at, event)),
            RunEvent::FinalAnswer(_) | RunEvent::Metadata(_) | RunEvent::Progress(_) => {}
            RunEvent::Summarization(_)
            | RunEvent::Reflection(_)
            | RunEvent::Handoff(_)
            | RunEvent::Guardrail(_)
            | RunEvent::Cancelled(_)
            | RunEvent::Subagent(_)
            | RunEvent::Limit(_)
            | RunEvent::Gate(_)
            | RunEvent::Unknown(_) => spans.push(self.event_span(at, event)),
        }
    }

    /// Closes an attempt whose end is not in the Journal, at its last event.
    fn close_open_turn(&mut self) -> Option<Span> {
        let turn = self.turn.take()?;
        let heard = turn.heard;
        Some(self.inference(turn, heard, AttemptEnd::Left, None))
    }

    /// Builds the span of one attempt, up to `at`.
    fn inference(
        &mut self,
        turn: OpenTurn,
        at: Timestamp,
        end: AttemptEnd,
        reason: Option<&Name>,
    ) -> Span {
        let mut span = self.child_span(SpanKind::Inference, turn.name(), turn.attempt.start);
        span.end = at;
        let said = std::mem::take(&mut self.said);
        turn.close(end, reason, &self.telling, &said, &mut span);
        span
    }

    /// Starts a child span of the run.
    fn child_span(&mut self, kind: SpanKind, name: String, at: Timestamp) -> Span {
        self.made += 1;
        let mut span = Span::new(self.trace, kind, name, at);
        span.id = derive_id::<8>(&format!("{} {}", self.scope, self.made));
        span.parent = Some(self.root);
        span
    }

    fn status(&mut self, at: Timestamp, event: &RunStatusEvent) {
        let is_over = matches!(&*event.status, "completed" | "failed" | "cancelled");
        self.ended = is_over.then(|| event.status.clone());
        let Some(agent) = &mut self.agent else { return };
        if agent.start == Timestamp::UNIX_EPOCH {
            agent.start = at;
            if let Some(name) = &event.agent {
                agent.name = format!("invoke_agent {name}");
                agent.add("gen_ai.agent.name", name);
            }
        }
        agent.end = at;
        if &*event.status == "failed" {
            let reason = event.reason.as_ref().unwrap_or(&event.status);
            agent.problem = Some(Name::from(self.telling.redact(reason)));
        }
    }

    fn tool(&mut self, at: Timestamp, event: &ToolCallEvent) -> Option<Span> {
        let id = event.id.clone().unwrap_or_default();
        match event.phase {
            ToolCallPhase::Start => {
                self.tools.push((id, at));
                return None;
            }
            ToolCallPhase::Progress => return None,
            ToolCallPhase::Success | ToolCallPhase::Error | ToolCallPhase::Skipped => {}
        }
        let began = self.tools.iter().position(|(known, _)| *known == id);
        let began = began.map_or(at, |place| self.tools.swap_remove(place).1);
        let mut span =
            self.child_span(SpanKind::Tool, format!("execute_tool {}", event.name), began);
        span.end = at;
        span.add("gen_ai.operation.name", "execute_tool");
        span.add("gen_ai.tool.name", &event.name);
        span.add("gen_ai.tool.type", "function");
        span.add("gen_ai.tool.call.id", &id);
        span.add("throughline.tool.outcome", event.phase.as_str());
        if self.telling.log_data {
            let told = |json: &throughline_json::Json| self.telling.redact(json.as_str());
            span.add_if_some("gen_ai.tool.call.arguments", event.args.as_ref().map(told));
            span.add_if_some("gen_ai.tool.call.result", event.result.as_ref().map(told));
        }
        span.problem =
            event.error.as_ref().map(|error| Name::from(self.telling.redact(&error.message)));
        Some(span)
    }

    fn plan(&mut self, at: Timestamp, event: &PlanEvent) -> Span {
        let mut span = self.child_span(SpanKind::Plan, "plan".to_owned(), at);
        span.add("gen_ai.operation.name", "plan");
        span.add_if_some("throughline.plan.version", event.version);
        let steps = event.todo_list.as_deref().unwrap_or_default();
        let done = steps.iter().filter(|step| step.status.as_str() == "completed").count();
        span.add("throughline.plan.steps", steps.len() as u64);
        span.add("throughline.plan.completed", done as u64);
        if self.telling.log_data {
            let steps = steps.iter().map(|step| {
                Name::from(format!(
                    "[{}] {}",
                    step.status.as_str(),
                    self.telling.redact(&step.step)
                ))
            });
            span.attributes.push(("throughline.plan", Value::Texts(steps.collect())));
        }
        span
    }

    fn question(&mut self, at: Timestamp, event: &UserQuestionEvent) -> Option<Span> {
        if event.status == UserQuestionEventStatus::Pending {
            self.waits.push((event.id.clone(), at));
            return None;
        }
        let mut span = self.wait_span(at, &event.id, "question");
        span.add("throughline.wait.outcome", event.status.as_str());
        span.add_if_some("throughline.wait.by", event.answered_by.as_ref());
        Some(span)
    }

    fn approval(&mut self, at: Timestamp, event: &ToolApprovalEvent) -> Option<Span> {
        if event.status == ToolApprovalEventStatus::Pending {
            self.waits.push((event.id.clone(), at));
            return None;
        }
        let mut span = self.wait_span(at, &event.id, "approval");
        span.add("gen_ai.tool.name", &event.tool_name);
        span.add("throughline.wait.outcome", event.status.as_str());
        span.add_if_some("throughline.wait.by", event.decided_by.as_ref());
        Some(span)
    }

    fn wait_span(&mut self, at: Timestamp, id: &Name, what: &str) -> Span {
        let since = self.waits.iter().position(|(known, _)| known == id);
        let since = since.map_or(at, |place| self.waits.swap_remove(place).1);
        let mut span = self.child_span(SpanKind::Wait, format!("wait {what}"), since);
        span.end = at;
        span.add("throughline.wait", what);
        span
    }

    /// Builds a span for erased events, with their number and the reason.
    fn erased_span(&mut self, record: &Record, why: ElisionReason) -> Span {
        self.turn = None;
        self.counted.skip_erased();
        if let Some(agent) = &mut self.agent {
            if agent.start == Timestamp::UNIX_EPOCH {
                agent.start = record.at;
            }
            agent.end = record.at;
        }
        let mut span = self.child_span(SpanKind::Note, "forgotten".to_owned(), record.at);
        let count = record.events.map_or(0, |(first, last)| last - first + 1);
        span.add("throughline.forgotten.events", count);
        span.add("throughline.forgotten.why", why.to_string());
        span
    }

    /// Builds a span for an instantaneous event.
    fn event_span(&mut self, at: Timestamp, event: &RunEvent) -> Span {
        let name = event.name();
        let mut span = self.child_span(SpanKind::Note, name.to_string(), at);
        if self.telling.log_data {
            let document = event.json();
            let told = self.telling.redaction.redact_event(&name, &document);
            span.add("throughline.event", told.as_str());
        }
        span
    }
}

impl TraceOptions {
    /// Redacts a text.
    pub(crate) fn redact(&self, text: &str) -> String {
        self.redaction.redact_text(text).into_owned()
    }
}
