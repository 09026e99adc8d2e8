//! The span of one attempt at a turn. The span omits content that an earlier span contains.

use jiff::Timestamp;
use throughline_core::gen_ai;
use throughline_json::{self as json, Json, Name, Number};
use throughline_spec::{Attempt, AttemptEnd, ReflectionUsage, ReplayEvent, RunEvent, ThoughtPhase};

use crate::fold::TraceOptions;
use crate::span::{Span, UNKNOWN_PROVIDER, Value};

#[derive(Debug)]
pub(super) struct OpenTurn {
    pub(super) attempt: Attempt,
    /// Time of the attempt's latest event.
    pub(super) last_event: Timestamp,
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
            last_event: attempt.start,
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

    /// Updates the attempt with one of its events.
    pub(super) fn record_event(&mut self, at: Timestamp, event: &RunEvent) {
        self.last_event = at;
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

    /// Sets the attributes of the attempt's span from the attempt's recorded events.
    pub(super) fn close(
        self,
        end: AttemptEnd,
        reason: Option<&Name>,
        options: &TraceOptions,
        messages: &[(Name, Name)],
        span: &mut Span,
    ) {
        span.add("gen_ai.operation.name", "chat");
        span.add("gen_ai.provider.name", provider_of(self.model()));
        span.add("gen_ai.request.model", self.model());
        span.add("throughline.turn", self.attempt.turn);
        if !self.attempt.is_side_call() {
            span.add("throughline.attempt", self.attempt.number);
        }
        span.add_if_some("throughline.purpose", self.attempt.purpose.as_ref());
        match end {
            AttemptEnd::Discarded => {
                let reason = reason.map_or("discarded", |reason| &**reason);
                span.problem = Some(options.redact(reason).into());
            }
            AttemptEnd::Left if self.usage.is_none() => {
                span.problem = Some("the model did not answer".into());
            }
            AttemptEnd::Accepted | AttemptEnd::Left => {
                let reasons = reason.map(|reason| Value::Texts(vec![reason.clone()]));
                span.add_if_some("gen_ai.response.finish_reasons", reasons);
            }
        }
        put_usage(self.usage.as_ref(), self.cost, span);
        put_replay(self.replay.as_ref(), span);
        span.add("throughline.thoughts", self.thoughts.len() as u64);
        span.add("throughline.seals.bytes", self.sealed);
        if options.log_data {
            self.put_content(options, messages, reason, span);
        }
    }

    /// Adds messages and Thoughts that no earlier span contains.
    fn put_content(
        &self,
        options: &TraceOptions,
        messages: &[(Name, Name)],
        reason: Option<&Name>,
        span: &mut Span,
    ) {
        if !messages.is_empty() {
            span.add("gen_ai.input.messages", messages_json(messages, None, options).as_str());
        }
        let redact = |thought: &Name| Name::from(options.redaction.redact_thought(thought));
        let thoughts = self.thoughts.iter().filter(|thought| !thought.is_empty()).map(redact);
        span.add_texts("throughline.thinking", thoughts.collect());
        if !self.text.is_empty() {
            let answer = [(Name::from("assistant"), Name::from(self.text.as_str()))];
            let reason = Some(reason.map_or("stop", |reason| &**reason));
            span.add("gen_ai.output.messages", messages_json(&answer, reason, options).as_str());
        }
    }
}

/// Returns the provider that the agent named in front of the model, as in `anthropic/MODEL`.
fn provider_of(model: &str) -> &str {
    model.split_once('/').map_or(UNKNOWN_PROVIDER, |(provider, _)| gen_ai::provider_name(provider))
}

/// Formats messages according to OpenTelemetry's conventions for generative AI. Output messages
/// have a finish reason.
fn messages_json(
    messages: &[(Name, Name)],
    finish_reason: Option<&str>,
    options: &TraceOptions,
) -> Json {
    json::array(|list| {
        for (role, content) in messages {
            list.object(|o| {
                o.string("role", role).array("parts", |parts| {
                    parts.object(|o| {
                        o.string("type", "text").string("content", &options.redact(content));
                    });
                });
                o.maybe_string("finish_reason", finish_reason);
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
    span.add_if_some("throughline.cost_usd", cost.map(Value::Decimal));
}

/// Adds the number of replayed Thoughts and Seals per Fate.
fn put_replay(replay: Option<&ReplayEvent>, span: &mut Span) {
    let Some(replay) = replay else { return };
    span.add_if_some("throughline.fates.kept", replay.kept);
    span.add_if_some("throughline.fates.restored", replay.restored);
    span.add_if_some("throughline.fates.reshaped", replay.reshaped);
    span.add_if_some("throughline.fates.elided", replay.elided);
    for (fate, count) in replay.seals.iter().flatten() {
        let key = match &**fate {
            "kept" => "throughline.seals.kept",
            "restored" => "throughline.seals.restored",
            "elided" => "throughline.seals.elided",
            "reshaped" => "throughline.seals.reshaped",
            _ => continue,
        };
        span.add_if_some(key, count.tree().root().u64());
    }
    let reasons = replay.why.iter().flatten().map(|(reason, _)| reason.clone());
    span.add_texts("throughline.fates.why", reasons.collect());
}
