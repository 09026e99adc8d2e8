//! Builds spans from a run's events. Each span is emitted once, when it ends, and omits content
//! that an earlier span contains.

mod turn;

#[cfg(test)]
#[path = "fold_tests.rs"]
mod fold_tests;

use std::collections::HashMap;

use jiff::Timestamp;
use throughline_core::{ElisionReason, LogId, Record, Tenant, Usage, kind, unpack_events};
use throughline_json::{Json, Name, Number};
use throughline_spec::{
    AttemptEnd, PlanEvent, RedactionPolicy, RunEvent, RunFold, RunStatusEvent, ToolCallEvent,
    ToolCallPhase, TracingConfig,
};

use crate::fold::turn::OpenTurn;
use crate::session::{Mode, Session, id_scope, session_id};
use crate::span::{Span, SpanKind, Value, derive_id};

/// Settings for the content of spans.
#[derive(Clone, Debug, Default)]
pub struct TraceOptions {
    /// Conversation id to report; defaults to the Thread id.
    pub thread_id: Option<Name>,
    /// Whether spans contain the text of messages, Thoughts and tool calls.
    pub log_data: bool,
    /// Redaction policy applied to the text.
    pub redaction: RedactionPolicy,
}

impl TraceOptions {
    /// Applies the settings that are stored with a run. A run can leave content out of its trace,
    /// but cannot add content that the process leaves out.
    #[must_use]
    pub fn with_run_settings(mut self, config: &TracingConfig) -> Self {
        self.log_data &= config.log_data != Some(false);
        self.thread_id = config.thread_id.clone().or(self.thread_id);
        self
    }
}

/// Builds the spans of one run from the records of its log.
#[derive(Debug)]
pub struct Fold {
    options: TraceOptions,
    session: Session,
    /// Seed for the span ids.
    scope: String,
    /// Span of the whole run, open until the run ends.
    agent: Span,
    /// Counts attempts and Thoughts in the same way as the console.
    counted: RunFold,
    turn: Option<OpenTurn>,
    /// Role and text of each message since the last model call.
    messages: Vec<(Name, Name)>,
    /// Start times of open tool calls, by call id.
    tools: HashMap<Name, Timestamp>,
    waits: HashMap<Name, Timestamp>,
    /// Number of spans created so far, used to derive the next span id.
    span_count: u64,
    /// Input and output tokens of the whole run.
    usage: Usage,
    cost_usd: f64,
    last_seq: u64,
    final_status: Option<Name>,
}

impl Fold {
    /// Creates a fold for one run of a tenant. `thread` is the run's Thread.
    pub fn new(tenant: &Tenant, run: &LogId, thread: &LogId, options: TraceOptions) -> Self {
        let scope = id_scope(tenant, run);
        let session = Session {
            id: session_id(tenant, run),
            trace: derive_id::<16>(&scope),
            root: derive_id::<8>(&format!("{scope} run")),
            thread: options.thread_id.clone().unwrap_or_else(|| thread.0.clone()),
            log_data: options.log_data,
            mode: Mode::Batched,
            sinks: Vec::new(),
        };
        let (name, start) = ("invoke_agent".to_owned(), Timestamp::UNIX_EPOCH);
        let mut agent = Span::new(session.trace, SpanKind::Agent, name, start);
        agent.id = session.root;
        agent.add("gen_ai.operation.name", "invoke_agent");
        agent.add("gen_ai.conversation.id", &session.thread);
        agent.add("throughline.run", &run.0);
        Self {
            options,
            session,
            scope,
            agent,
            counted: RunFold::default(),
            turn: None,
            messages: Vec::new(),
            tools: HashMap::new(),
            waits: HashMap::new(),
            span_count: 0,
            usage: Usage::default(),
            cost_usd: 0.0,
            last_seq: 0,
            final_status: None,
        }
    }

    /// Returns the trace id, a BLAKE3 digest of the tenant and the run id. The tenant `default` is
    /// left out. Every process derives the same id for a run.
    pub fn trace(&self) -> [u8; 16] {
        self.session.trace
    }

    /// Returns the id of the run's own span. It is derived in the same way as the trace id.
    pub fn root(&self) -> [u8; 8] {
        self.session.root
    }

    /// Returns a session without sinks, for a trace that is delivered as a whole.
    pub(crate) fn session(&self) -> Session {
        self.session.clone()
    }

    /// Returns the sequence number of the last record passed to [`Fold::record`].
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Returns the final status of the run (`completed`, `failed` or `cancelled`); `None` before
    /// its end.
    pub fn ended(&self) -> Option<&Name> {
        self.final_status.as_ref()
    }

    /// Processes the next record of the log and returns the spans that end with it.
    pub fn record(&mut self, record: &Record) -> Vec<Span> {
        self.last_seq = record.seq;
        if &*record.kind != kind::EVENTS {
            return Vec::new();
        }
        let mut spans = Vec::new();
        let events = match unpack_events(record) {
            Ok(events) => events,
            Err(reason) => return vec![self.erased_span(record, reason)],
        };
        for (_, event) in events {
            let event = Json::parse(event).ok();
            if let Some(event) = event.and_then(|event| RunEvent::parse(&event).ok()) {
                self.event(record.at, &event, &mut spans);
            }
        }
        spans
    }

    /// Returns the run's own span, up to `now`. This span is delivered last.
    pub fn agent(&self, now: Timestamp) -> Option<Span> {
        let mut agent = self.agent.clone();
        agent.end = agent.end.max(now).max(agent.start);
        let (usage, counts) = (&self.usage, self.counted.counts());
        for (key, value) in [
            ("gen_ai.usage.input_tokens", usage.input),
            ("gen_ai.usage.output_tokens", usage.output),
            ("gen_ai.usage.cache_read.input_tokens", usage.cached),
            ("gen_ai.usage.reasoning.output_tokens", usage.thought),
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
        if self.cost_usd > 0.0 {
            agent.add("throughline.cost_usd", Value::Decimal(self.cost_usd));
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
                self.messages.push((event.role.clone(), event.content.clone()));
            }
            RunEvent::Turn(event) => {
                let closed = change.ended.and_then(|(_, end)| Some((self.turn.take()?, end)));
                if let Some((turn, end)) = closed {
                    spans.push(self.inference(turn, at, end, event.reason.as_ref()));
                }
            }
            RunEvent::Thought(_)
            | RunEvent::Stream(_)
            | RunEvent::Usage(_)
            | RunEvent::Replay(_) => {
                self.add_usage(event);
                if let Some(turn) = &mut self.turn {
                    turn.record_event(at, event);
                }
            }
            RunEvent::ToolCall(event) => spans.extend(self.tool(at, event)),
            RunEvent::Plan(event) => spans.push(self.plan(at, event)),
            RunEvent::UserQuestion(event) => {
                let (status, by) = (event.status.as_str(), event.answered_by.as_ref());
                spans.extend(self.wait(at, &event.id, "question", None, status, by));
            }
            RunEvent::ToolApproval(event) => {
                let (status, by) = (event.status.as_str(), event.decided_by.as_ref());
                let tool = Some(&event.tool_name);
                spans.extend(self.wait(at, &event.id, "approval", tool, status, by));
            }
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

    /// Closes the open attempt if the Journal has no end event for it. The attempt's span ends at
    /// the time of its last event.
    fn close_open_turn(&mut self) -> Option<Span> {
        let turn = self.turn.take()?;
        let end = turn.last_event;
        Some(self.inference(turn, end, AttemptEnd::Left, None))
    }

    /// Builds the span of one attempt. The span ends at `at`.
    fn inference(
        &mut self,
        turn: OpenTurn,
        at: Timestamp,
        end: AttemptEnd,
        reason: Option<&Name>,
    ) -> Span {
        let mut span = self.child_span(SpanKind::Inference, turn.name(), turn.attempt.start);
        span.end = at;
        let messages = std::mem::take(&mut self.messages);
        turn.close(end, reason, &self.options, &messages, &mut span);
        span
    }

    fn child_span(&mut self, kind: SpanKind, name: String, at: Timestamp) -> Span {
        self.span_count += 1;
        let mut span = Span::new(self.session.trace, kind, name, at);
        span.id = derive_id::<8>(&format!("{} {}", self.scope, self.span_count));
        span.parent = Some(self.session.root);
        span
    }

    fn status(&mut self, at: Timestamp, event: &RunStatusEvent) {
        let is_over = matches!(&*event.status, "completed" | "failed" | "cancelled");
        self.final_status = is_over.then(|| event.status.clone());
        let is_first = self.extend_agent(at);
        if let Some(name) = event.agent.as_ref().filter(|_| is_first) {
            self.agent.name = format!("invoke_agent {name}");
            self.agent.add("gen_ai.agent.name", name);
        }
        if &*event.status == "failed" {
            let reason = event.reason.as_ref().unwrap_or(&event.status);
            self.agent.problem = Some(self.options.redact(reason).into());
        }
    }

    /// Extends the run's own span to `at`. Returns whether `at` became the start of the span.
    fn extend_agent(&mut self, at: Timestamp) -> bool {
        let is_first = self.agent.start == Timestamp::UNIX_EPOCH;
        if is_first {
            self.agent.start = at;
        }
        self.agent.end = at;
        is_first
    }

    /// Adds the tokens and cost of a usage event to the totals of the run.
    fn add_usage(&mut self, event: &RunEvent) {
        let RunEvent::Usage(event) = event else { return };
        if let Some(usage) = &event.usage {
            self.usage.input += usage.input_tokens.unwrap_or(0);
            self.usage.output += usage.output_tokens.unwrap_or(0);
            self.usage.cached += usage.cached_input_tokens.unwrap_or(0);
            self.usage.thought += usage.reasoning_tokens.unwrap_or(0);
        }
        self.cost_usd += event.cost_usd.as_ref().map_or(0.0, Number::value);
    }

    fn tool(&mut self, at: Timestamp, event: &ToolCallEvent) -> Option<Span> {
        let id = event.id.clone().unwrap_or_default();
        match event.phase {
            ToolCallPhase::Start => {
                self.tools.entry(id).or_insert(at);
                return None;
            }
            ToolCallPhase::Progress => return None,
            ToolCallPhase::Success | ToolCallPhase::Error | ToolCallPhase::Skipped => {}
        }
        let began = self.tools.remove(&id).unwrap_or(at);
        let name = format!("execute_tool {}", event.name);
        let mut span = self.child_span(SpanKind::Tool, name, began);
        span.end = at;
        span.add("gen_ai.operation.name", "execute_tool");
        span.add("gen_ai.tool.name", &event.name);
        span.add("gen_ai.tool.type", "function");
        span.add("gen_ai.tool.call.id", &id);
        span.add("throughline.tool.outcome", event.phase.as_str());
        if self.options.log_data {
            let redact = |json: &Json| self.options.redact(json.as_str());
            span.add_if_some("gen_ai.tool.call.arguments", event.args.as_ref().map(redact));
            span.add_if_some("gen_ai.tool.call.result", event.result.as_ref().map(redact));
        }
        let error = event.error.as_ref();
        span.problem = error.map(|error| self.options.redact(&error.message).into());
        Some(span)
    }

    fn plan(&mut self, at: Timestamp, event: &PlanEvent) -> Span {
        let mut span = self.child_span(SpanKind::Plan, "plan".to_owned(), at);
        span.add("gen_ai.operation.name", "plan");
        span.add_if_some("throughline.plan.version", event.version);
        let steps = event.todo_list.as_deref().unwrap_or_default();
        let completed = steps.iter().filter(|step| step.status.as_str() == "completed").count();
        span.add("throughline.plan.steps", steps.len() as u64);
        span.add("throughline.plan.completed", completed as u64);
        if self.options.log_data {
            let steps = steps.iter().map(|step| {
                Name::from(format!("[{}] {}", step.status, self.options.redact(&step.step)))
            });
            span.add("throughline.plan", Value::Texts(steps.collect()));
        }
        span
    }

    /// Records the start of a wait for a person, or builds the wait's span when it ends.
    fn wait(
        &mut self,
        at: Timestamp,
        id: &Name,
        kind: &str,
        tool: Option<&Name>,
        status: &str,
        by: Option<&Name>,
    ) -> Option<Span> {
        if status == "pending" {
            self.waits.entry(id.clone()).or_insert(at);
            return None;
        }
        let since = self.waits.remove(id).unwrap_or(at);
        let mut span = self.child_span(SpanKind::Wait, format!("wait {kind}"), since);
        span.end = at;
        span.add("throughline.wait", kind);
        span.add_if_some("gen_ai.tool.name", tool);
        span.add("throughline.wait.outcome", status);
        span.add_if_some("throughline.wait.by", by);
        Some(span)
    }

    /// Builds a span that represents erased events. The span records the number of events and the
    /// reason for the erasure.
    fn erased_span(&mut self, record: &Record, reason: ElisionReason) -> Span {
        self.turn = None;
        self.counted.skip_erased();
        self.extend_agent(record.at);
        let mut span = self.child_span(SpanKind::Note, "forgotten".to_owned(), record.at);
        let count = record.events.map_or(0, |(first, last)| last - first + 1);
        span.add("throughline.forgotten.events", count);
        span.add("throughline.forgotten.why", reason.to_string());
        span
    }

    /// Builds a span without duration for an event.
    fn event_span(&mut self, at: Timestamp, event: &RunEvent) -> Span {
        let name = event.name();
        let mut span = self.child_span(SpanKind::Note, name.to_string(), at);
        if self.options.log_data {
            let document = event.json();
            let redacted = self.options.redaction.redact_event(&name, &document);
            span.add("throughline.event", redacted.as_str());
        }
        span
    }
}

impl TraceOptions {
    pub(crate) fn redact(&self, text: &str) -> String {
        self.redaction.redact_text(text).into_owned()
    }
}
