//! One attempt of a turn: a model call as a span, with only the content that no earlier span has.

use jiff::Timestamp;
use throughline_json::{self as json, Json, Name, Number};
use throughline_spec::{Attempt, AttemptEnd, ReflectionUsage, ReplayEvent, RunEvent, ThoughtPhase};

use crate::fold::{TraceOptions, UsageTotal};
use crate::span::{Span, Value};

/// An attempt in progress.
#[derive(Debug)]
pub(super) struct OpenTurn {
    pub(super) attempt: Attempt,
    /// Time of the last event.
    pub(super) heard: Timestamp,
    thoughts: Vec<Name>,
    sealed: u64,
    text: String,
    usage: Option<ReflectionUsage>,
    cost: Option<f64>,
    replay: Option<ReplayEvent>,
}

impl OpenTurn {
    pub(super) fn new(attempt: &Attempt) -> Self {
        Self {
            attempt: attempt.clone(),
            heard: attempt.start,
            thoughts: Vec::new(),
            sealed: 0,
            text: String::new(),
            usage: None,
            cost: None,
            replay: None,
        }
    }

    pub(super) fn name(&self) -> String {
        format!("chat {}", self.model())
    }

    fn model(&self) -> &str {
        self.attempt.model.as_deref().unwrap_or_default()
    }

    /// Records an event of the attempt.
    pub(super) fn record_event(&mut self, at: Timestamp, event: &RunEvent) {
        self.heard = at;
        match event {
            RunEvent::Thought(thought) if thought.phase == ThoughtPhase::End => {
                self.thoughts.push(thought.text.clone().unwrap_or_default());
                self.sealed += thought.sealed_bytes.unwrap_or(0);
            }
            RunEvent::Stream(piece) => self.text.push_str(&piece.text),
            RunEvent::Usage(usage) => {
                self.usage.clone_from(&usage.usage);
                self.cost = usage.cost_usd.as_ref().map(Number::value);
            }
            RunEvent::Replay(replay) => self.replay = Some(replay.clone()),
            _ => {}
        }
    }

    /// Adds everything known about the attempt to its span.
    pub(super) fn close(
        self,
        end: AttemptEnd,
        reason: Option<&Name>,
        telling: &TraceOptions,
        said: &[(Name, Name)],
        span: &mut Span,
    ) {
        span.add("gen_ai.operation.name", "chat");
        span.add("gen_ai.request.model", self.model());
        span.add("throughline.turn", self.attempt.turn);
        if !self.attempt.is_side_call() {
            span.add("throughline.attempt", self.attempt.number);
        }
        span.add_if_some("throughline.purpose", self.attempt.purpose.as_ref());
        match end {
            AttemptEnd::Discarded => {
                let reason = reason.map_or("discarded", |reason| &**reason);
                span.problem = Some(Name::from(telling.redact(reason)));
            }
            AttemptEnd::Left if self.usage.is_none() => {
                span.problem = Some("the model did not answer".into());
            }
            AttemptEnd::Accepted | AttemptEnd::Left => {
                let reasons = reason.map(|reason| Value::Texts(vec![reason.clone()]));
                let named = reasons.map(|reasons| ("gen_ai.response.finish_reasons", reasons));
                span.attributes.extend(named);
            }
        }
        put_usage(self.usage.as_ref(), self.cost, span);
        put_replay(self.replay.as_ref(), span);
        span.add("throughline.thoughts", self.thoughts.len() as u64);
        span.add("throughline.seals.bytes", self.sealed);
        if telling.log_data {
            self.put_content(telling, said, span);
        }
    }

    /// Adds messages and Thoughts that no earlier turn contained.
    fn put_content(&self, telling: &TraceOptions, said: &[(Name, Name)], span: &mut Span) {
        if !said.is_empty() {
            span.add("gen_ai.input.messages", messages(said, telling).as_str());
        }
        let thoughts = self.thoughts.iter().filter(|thought| !thought.is_empty());
        let thoughts: Vec<Name> =
            thoughts.map(|thought| Name::from(telling.redaction.redact_thought(thought))).collect();
        if !thoughts.is_empty() {
            span.attributes.push(("throughline.thinking", Value::Texts(thoughts)));
        }
        if !self.text.is_empty() {
            let said = [(Name::from("assistant"), Name::from(self.text.as_str()))];
            span.add("gen_ai.output.messages", messages(&said, telling).as_str());
        }
    }
}

/// Formats messages by OpenTelemetry's conventions.
fn messages(said: &[(Name, Name)], telling: &TraceOptions) -> Json {
    json::array(|list| {
        for (role, content) in said {
            list.object(|o| {
                o.string("role", role).array("parts", |parts| {
                    parts.object(|o| {
                        o.string("type", "text").string("content", &telling.redact(content));
                    });
                });
            });
        }
    })
}

fn put_usage(usage: Option<&ReflectionUsage>, cost: Option<f64>, span: &mut Span) {
    if let Some(usage) = usage {
        span.add_if_some("gen_ai.usage.input_tokens", usage.input_tokens);
        span.add_if_some("gen_ai.usage.output_tokens", usage.output_tokens);
        span.add_if_some("gen_ai.usage.cache_read.input_tokens", usage.cached_input_tokens);
        span.add_if_some("gen_ai.usage.reasoning.output_tokens", usage.reasoning_tokens);
    }
    if let Some(cost) = cost {
        span.attributes.push(("throughline.cost_usd", Value::Decimal(cost)));
    }
}

/// Adds the counts of replayed Thoughts and Seals.
fn put_replay(replay: Option<&ReplayEvent>, span: &mut Span) {
    let Some(replay) = replay else { return };
    span.add_if_some("throughline.fates.kept", replay.kept);
    span.add_if_some("throughline.fates.restored", replay.restored);
    span.add_if_some("throughline.fates.reshaped", replay.reshaped);
    span.add_if_some("throughline.fates.elided", replay.elided);
    for (what, count) in replay.seals.iter().flatten() {
        let key = match &**what {
            "kept" => "throughline.seals.kept",
            "restored" => "throughline.seals.restored",
            "elided" => "throughline.seals.elided",
            "reshaped" => "throughline.seals.reshaped",
            _ => continue,
        };
        span.add_if_some(key, count.tree().root().u64());
    }
    let why: Vec<Name> = replay.why.iter().flatten().map(|(why, _)| why.clone()).collect();
    if !why.is_empty() {
        span.attributes.push(("throughline.fates.why", Value::Texts(why)));
    }
}

impl UsageTotal {
    /// Adds the tokens and the cost of a usage event, inside or outside an attempt.
    pub(super) fn add(&mut self, event: &RunEvent) {
        let RunEvent::Usage(event) = event else { return };
        if let Some(usage) = &event.usage {
            self.input += usage.input_tokens.unwrap_or(0);
            self.output += usage.output_tokens.unwrap_or(0);
            self.cached += usage.cached_input_tokens.unwrap_or(0);
            self.thought += usage.reasoning_tokens.unwrap_or(0);
        }
        self.cost_usd += event.cost_usd.as_ref().map_or(0.0, Number::value);
    }
}
