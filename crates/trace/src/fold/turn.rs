//! One turn: a model was asked, and what is new in it is told.

use jiff::Timestamp;
use throughline_core::{
    Json, Name, Number, ReflectionUsage, ReplayEvent, RunEvent, ThoughtPhase, TurnEvent, TurnPhase,
    json,
};

use crate::fold::{Telling, Total};
use crate::span::{Span, Value};

/// A turn that is under way.
#[derive(Debug)]
pub(super) struct OpenTurn {
    pub(super) start: Timestamp,
    /// When it was last heard of.
    pub(super) heard: Timestamp,
    turn: u64,
    model: Name,
    purpose: Option<Name>,
    thoughts: Vec<Name>,
    sealed: u64,
    text: String,
    usage: Option<ReflectionUsage>,
    cost: Option<f64>,
    replay: Option<ReplayEvent>,
}

impl OpenTurn {
    pub(super) fn new(at: Timestamp, event: &TurnEvent) -> Self {
        Self {
            start: at,
            heard: at,
            turn: event.turn,
            model: event.model.clone().unwrap_or_default(),
            purpose: event.purpose.clone(),
            thoughts: Vec::new(),
            sealed: 0,
            text: String::new(),
            usage: None,
            cost: None,
            replay: None,
        }
    }

    pub(super) fn name(&self) -> String {
        format!("chat {}", self.model)
    }

    /// Whether it is no turn of the conversation, and so nobody tells that it ended: a note or a summary comes of it.
    pub(super) fn is_aside(&self) -> bool {
        self.purpose.as_deref().is_some_and(|purpose| matches!(purpose, "reflection" | "summary"))
    }

    /// Notes what is told of it while it goes on.
    pub(super) fn hear(&mut self, at: Timestamp, event: &RunEvent) {
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

    /// Tells all that is known of it, and how it ended, where somebody said so.
    pub(super) fn close(
        self,
        event: Option<&TurnEvent>,
        telling: &Telling,
        said: &[(Name, Name)],
        total: &mut Total,
        span: &mut Span,
    ) {
        total.turns += u64::from(!self.is_aside());
        total.add(self.usage.as_ref(), self.cost);
        span.add("gen_ai.operation.name", "chat");
        span.add("gen_ai.request.model", &self.model);
        span.add("throughline.turn", self.turn);
        span.maybe("throughline.purpose", self.purpose.as_ref());
        let reason = event.and_then(|event| event.reason.clone());
        match event.map(|event| event.phase) {
            Some(TurnPhase::Discarded) => {
                span.problem = Some(reason.unwrap_or_else(|| "discarded".into()));
            }
            None if self.usage.is_none() => span.problem = Some("it was not answered".into()),
            Some(TurnPhase::Start | TurnPhase::End) | None => {
                let reasons = reason.map(|reason| Value::Texts(vec![reason]));
                let named = reasons.map(|reasons| ("gen_ai.response.finish_reasons", reasons));
                span.attributes.extend(named);
            }
        }
        put_usage(self.usage.as_ref(), self.cost, span);
        put_replay(self.replay.as_ref(), total, span);
        span.add("throughline.thoughts", self.thoughts.len() as u64);
        span.add("throughline.seals.bytes", self.sealed);
        if telling.log_data {
            self.put_content(telling, said, span);
        }
    }

    /// What was said and thought: only what no earlier turn told.
    fn put_content(&self, telling: &Telling, said: &[(Name, Name)], span: &mut Span) {
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

/// Messages as OpenTelemetry's conventions write them.
fn messages(said: &[(Name, Name)], telling: &Telling) -> Json {
    json::array(|list| {
        for (role, content) in said {
            list.object(|o| {
                o.string("role", role).array("parts", |parts| {
                    parts.object(|o| {
                        o.string("type", "text").string("content", &telling.text(content));
                    });
                });
            });
        }
    })
}

fn put_usage(usage: Option<&ReflectionUsage>, cost: Option<f64>, span: &mut Span) {
    if let Some(usage) = usage {
        span.maybe("gen_ai.usage.input_tokens", usage.input_tokens);
        span.maybe("gen_ai.usage.output_tokens", usage.output_tokens);
        span.maybe("gen_ai.usage.cache_read.input_tokens", usage.cached_input_tokens);
        span.maybe("gen_ai.usage.reasoning.output_tokens", usage.reasoning_tokens);
    }
    if let Some(cost) = cost {
        span.attributes.push(("throughline.cost_usd", Value::Decimal(cost)));
    }
}

/// What became of the thoughts and seals that went along.
fn put_replay(replay: Option<&ReplayEvent>, total: &mut Total, span: &mut Span) {
    let Some(replay) = replay else { return };
    let counts = [
        ("throughline.fates.kept", replay.kept, &mut total.kept),
        ("throughline.fates.restored", replay.restored, &mut total.restored),
        ("throughline.fates.elided", replay.elided, &mut total.elided),
    ];
    for (key, count, sum) in counts {
        if let Some(count) = count {
            *sum += count;
            span.add(key, count);
        }
    }
    for (what, count) in replay.seals.iter().flatten() {
        let key = match &**what {
            "kept" => "throughline.seals.kept",
            "restored" => "throughline.seals.restored",
            "elided" => "throughline.seals.elided",
            "reshaped" => "throughline.seals.reshaped",
            _ => continue,
        };
        span.maybe(key, count.tree().root().u64());
    }
    let why: Vec<Name> = replay.why.iter().flatten().map(|(why, _)| why.clone()).collect();
    if !why.is_empty() {
        span.attributes.push(("throughline.fates.why", Value::Texts(why)));
    }
}

impl Total {
    /// What was used outside a turn counts, too.
    pub(super) fn usage_of(&mut self, event: &RunEvent) {
        if let RunEvent::Usage(usage) = event {
            self.add(usage.usage.as_ref(), usage.cost_usd.as_ref().map(Number::value));
        }
    }

    fn add(&mut self, usage: Option<&ReflectionUsage>, cost: Option<f64>) {
        if let Some(usage) = usage {
            self.input += usage.input_tokens.unwrap_or(0);
            self.output += usage.output_tokens.unwrap_or(0);
            self.cached += usage.cached_input_tokens.unwrap_or(0);
            self.thought += usage.reasoning_tokens.unwrap_or(0);
        }
        self.cost_usd += cost.unwrap_or(0.0);
    }
}
