//! Answers, written: a message in its row's dialect, with the seals of the model's vendor.

use serde_json::{Map, Value, json};
use throughline_core::{CallIds, Channel, Json, Stop};

use crate::digest::Mark;
use crate::keys::Claims;
use crate::ledger::Record;
use crate::turn::{Asking, Part, Plan, Telling, Turn};
use crate::wires::chat::details::Vendor;
use crate::wires::chat::text_key;
use crate::wires::claude::seals::{self, Sealed};
use crate::wires::claude::{Block, is_claude};
use crate::wires::openai;
use crate::world::World;

/// Writes a whole answer.
pub(super) fn say(
    asking: &Asking,
    turn: &Turn,
    plan: &Plan,
    world: &World,
    record: &mut Record,
) -> Json {
    let writer = Writer { asking, turn, plan, world };
    let channel = asking.row.dialect.channel;
    let is_router = channel == Channel::Details;
    let message = writer.message(record);
    let finish = match &plan.stop {
        Stop::Tools => "tool_calls",
        Stop::Length => "length",
        Stop::Refused(_) => "content_filter",
        Stop::Done | Stop::Sequence(_) | Stop::Paused | Stop::Cut | Stop::Other(_) => "stop",
    };
    let mut choice =
        json!({"index": 0, "message": message, "logprobs": null, "finish_reason": finish});
    let mut whole = json!({
        "id": asking.id(if is_router { "gen-" } else { "chatcmpl-" }, "reply", 29),
        "object": "chat.completion",
        "created": openai::CREATED,
        "model": asking.model,
    });
    if is_router {
        let vendor = Vendor::of(&turn.target.profile);
        openai::put(&mut choice, "native_finish_reason", json!(native_finish(&plan.stop, vendor)));
        openai::put(&mut whole, "provider", json!(vendor.name()));
    }
    openai::put(&mut whole, "choices", json!([choice]));
    openai::put(&mut whole, "usage", writer.usage());
    openai::put(&mut whole, "system_fingerprint", Value::Null);
    openai::json(&whole)
}

fn native_finish(stop: &Stop, vendor: Vendor) -> &'static str {
    match (stop, vendor) {
        (Stop::Refused(_), Vendor::Claude) => "refusal",
        (Stop::Tools, Vendor::Claude) => "tool_use",
        (_, Vendor::Claude) => "end_turn",
        (_, Vendor::Gemini) => "STOP",
        (_, Vendor::OpenAi | Vendor::Xai) => "completed",
        (Stop::Tools, Vendor::Other) => "tool_calls",
        (_, Vendor::Other) => "stop",
    }
}

struct Writer<'a> {
    asking: &'a Asking,
    turn: &'a Turn,
    plan: &'a Plan,
    world: &'a World,
}

impl Writer<'_> {
    fn usage(&self) -> Value {
        let usage = &self.plan.usage;
        let mut told = json!({
            "prompt_tokens": usage.input,
            "completion_tokens": usage.output,
            "total_tokens": usage.total(),
            "prompt_tokens_details": {"cached_tokens": usage.cached},
            "completion_tokens_details": {"reasoning_tokens": usage.thought},
        });
        match &*self.asking.row.name {
            "deepseek" => {
                openai::put(&mut told, "prompt_cache_hit_tokens", json!(usage.cached));
                openai::put(
                    &mut told,
                    "prompt_cache_miss_tokens",
                    json!(usage.input - usage.cached),
                );
            }
            "openrouter" => {
                let details =
                    json!({"cached_tokens": usage.cached, "cache_write_tokens": usage.written});
                openai::put(&mut told, "prompt_tokens_details", details);
                openai::put(&mut told, "cost", json!(0));
            }
            _ => {}
        }
        told
    }

    fn message(&self, record: &mut Record) -> Value {
        let calls: Vec<Value> = self.calls(record);
        let mut message = Map::new();
        message.insert("role".into(), json!("assistant"));
        message.insert("content".into(), self.content(record));
        let channel = self.asking.row.dialect.channel;
        if let Some(key) = text_key(channel) {
            if let Some(text) = self.thought(record) {
                message.insert(key.into(), json!(text));
            }
        } else if channel == Channel::Details {
            message.insert("refusal".into(), Value::Null);
            let first = calls.first().and_then(|call| call.get("id")).and_then(Value::as_str);
            let details = self.details(first, &calls, record);
            let readable: Vec<&str> = details
                .iter()
                .filter_map(|detail| detail.get("text").or(detail.get("summary")))
                .filter_map(Value::as_str)
                .collect();
            let readable = readable.join("\n");
            let reasoning = Some(readable).filter(|text| !text.is_empty());
            message.insert("reasoning".into(), json!(reasoning));
            if !details.is_empty() {
                message.insert("reasoning_details".into(), json!(details));
            }
        } else if channel == Channel::None {
            let is_refused = matches!(self.plan.stop, Stop::Refused(_));
            let refusal = is_refused.then_some("I'm sorry, but I can't help with that.");
            message.insert("refusal".into(), json!(refusal));
        }
        if !calls.is_empty() {
            message.insert("tool_calls".into(), json!(calls));
        }
        Value::Object(message)
    }

    /// The text, and the thoughts where they are part of it.
    fn content(&self, record: &mut Record) -> Value {
        let texts = self.plan.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Thought { .. } | Part::Call { .. } => None,
        });
        let text = texts.collect::<Vec<_>>().join("\n");
        let has_text = !text.is_empty();
        if has_text {
            record.say(&text);
        }
        match self.asking.row.dialect.channel {
            Channel::Chunks => {
                let Some(thought) = self.thought(record) else { return json!(text) };
                let thinking = json!([{"type": "text", "text": thought}]);
                let mut chunks = vec![json!({"type": "thinking", "thinking": thinking})];
                if has_text {
                    chunks.push(json!({"type": "text", "text": text}));
                }
                json!(chunks)
            }
            Channel::Tags => match self.thought(record) {
                Some(thought) => json!(format!("<think>\n{thought}\n</think>\n\n{text}")),
                None => json!(text),
            },
            Channel::AsEmitted
            | Channel::None
            | Channel::Details
            | Channel::ReasoningContent
            | Channel::Reasoning
            | Channel::Thinking => {
                if has_text {
                    json!(text)
                } else {
                    Value::Null
                }
            }
        }
    }

    /// What was thought, as one text. It is its own seal: there is nothing else to know it by.
    fn thought(&self, record: &mut Record) -> Option<String> {
        let thoughts = self.plan.parts.iter().filter_map(|part| match part {
            Part::Thought { text, telling: Telling::AsAsked } if self.turn.shows => Some(&**text),
            Part::Thought { .. } | Part::Text(_) | Part::Call { .. } => None,
        });
        let text = thoughts.collect::<Vec<_>>().join("\n");
        if text.is_empty() {
            return None;
        }
        record.think(&text);
        record.issue(&text, "reasoning");
        Some(text)
    }

    fn calls(&self, record: &mut Record) -> Vec<Value> {
        let calls = self.plan.parts.iter().enumerate().filter_map(|(at, part)| match part {
            Part::Call { name, arguments } => Some((at, name, arguments)),
            Part::Thought { .. } | Part::Text(_) => None,
        });
        let written = calls.map(|(at, name, arguments)| {
            let id = self.call_id(at, name);
            record.call(&id);
            match arguments {
                Value::String(input) => {
                    json!({"id": id, "type": "custom", "custom": {"name": name, "input": input}})
                }
                arguments => json!({
                    "id": id,
                    "type": "function",
                    "function": {"name": name, "arguments": arguments.to_string()},
                }),
            }
        });
        written.collect()
    }

    fn call_id(&self, at: usize, name: &str) -> String {
        let label = format!("call {at}");
        if self.asking.row.dialect.call_ids == CallIds::Nine {
            return self.asking.id("", &label, 9);
        }
        if self.asking.row.dialect.channel != Channel::Details {
            return self.asking.id("call_", &label, 24);
        }
        match Vendor::of(&self.turn.target.profile) {
            Vendor::Claude => self.asking.id("toolu_", &label, 24),
            Vendor::Gemini => self.asking.id(&format!("tool_{name}_"), &label, 20),
            Vendor::OpenAi | Vendor::Xai | Vendor::Other => self.asking.id("call_", &label, 24),
        }
    }

    /// The details that a router makes of what the vendor said.
    fn details(&self, first: Option<&str>, calls: &[Value], record: &mut Record) -> Vec<Value> {
        if !self.turn.shows {
            return Vec::new();
        }
        let vendor = Vendor::of(&self.turn.target.profile);
        let mut details = match vendor {
            Vendor::Claude if is_claude(&self.turn.target.profile) => self.claudes(calls, record),
            Vendor::Gemini => self.geminis(first, record),
            Vendor::OpenAi => self.openais(record),
            Vendor::Claude | Vendor::Xai | Vendor::Other => self.plain(vendor, record),
        };
        for (number, detail) in details.iter_mut().enumerate() {
            openai::put(detail, "format", json!(vendor.format()));
            openai::put(detail, "index", json!(number));
        }
        details
    }

    fn shown<'p>(&self, text: &'p str, telling: Telling) -> Option<&'p str> {
        (self.turn.shows && telling == Telling::AsAsked).then_some(text)
    }

    fn claudes(&self, calls: &[Value], record: &mut Record) -> Vec<Value> {
        let mut ids = calls.iter().filter_map(|call| call.get("id")).filter_map(Value::as_str);
        let blocks: Vec<Option<Block>> = self
            .plan
            .parts
            .iter()
            .map(|part| match part {
                Part::Thought { .. } => None,
                Part::Text(text) => Some(Block::Text(text.clone())),
                Part::Call { name, .. } => {
                    let id = ids.next().unwrap_or_default().to_owned();
                    Some(Block::Call { id, name: name.clone(), said: Vec::new() })
                }
            })
            .collect();
        let (parts, turn) = (&self.plan.parts, self.turn);
        let sealed = seals::seal(parts, &blocks, self.asking, turn, self.world, record);
        let details = sealed.into_iter().map(|sealed| match sealed {
            Sealed::Thinking { text, signature } => {
                json!({"type": "reasoning.text", "text": text, "signature": signature})
            }
            Sealed::Redacted { data } => json!({"type": "reasoning.encrypted", "data": data}),
        });
        details.collect()
    }

    /// Gemini signs the first call of a step, or the text that ends it.
    fn geminis(&self, first: Option<&str>, record: &mut Record) -> Vec<Value> {
        let mut details = self.plain(Vendor::Gemini, record);
        if !self.turn.thinks {
            return details;
        }
        let sealed = self.seal(Vendor::Gemini, 0, "", record);
        let mut detail = json!({"type": "reasoning.encrypted", "data": sealed});
        if let Some(id) = first {
            openai::put(&mut detail, "id", json!(id));
        }
        details.push(detail);
        details
    }

    fn openais(&self, record: &mut Record) -> Vec<Value> {
        let mut details = Vec::new();
        for (at, part) in self.plan.parts.iter().enumerate() {
            let Part::Thought { text, telling } = part else { continue };
            if let Some(summary) = self.shown(text, *telling) {
                record.think(summary);
                details.push(json!({"type": "reasoning.summary", "summary": summary}));
            }
            let id = self.asking.id("rs_", &format!("reasoning {at}"), 48);
            let sealed = self.seal(Vendor::OpenAi, at, text, record);
            details.push(json!({"type": "reasoning.encrypted", "data": sealed, "id": id}));
        }
        details
    }

    fn plain(&self, vendor: Vendor, record: &mut Record) -> Vec<Value> {
        let mut details = Vec::new();
        for part in &self.plan.parts {
            let Part::Thought { text, telling } = part else { continue };
            let Some(text) = self.shown(text, *telling) else { continue };
            record.think(text);
            details.push(match vendor {
                Vendor::Xai => json!({"type": "reasoning.summary", "summary": text}),
                Vendor::Claude | Vendor::Gemini | Vendor::OpenAi | Vendor::Other => {
                    json!({"type": "reasoning.text", "text": text})
                }
            });
        }
        details
    }

    fn seal(&self, vendor: Vendor, at: usize, text: &str, record: &mut Record) -> String {
        let claims = Claims {
            kind: "reasoning.encrypted".to_owned(),
            row: self.asking.row.name.to_string(),
            family: self.turn.target.profile.name.clone(),
            account: self.asking.account,
            reply: self.asking.nonce,
            ordinal: u32::try_from(at).unwrap_or(u32::MAX),
            count: 1,
            text: Mark::of("throughline-sim reasoning", text),
            hidden: true,
            beside: None,
            is_behind: false,
            prefix: None,
        };
        let signer = vendor.signer(self.asking);
        let sealed = self.world.keys.seal(signer, vendor.form(), &claims);
        record.issue(&sealed, "reasoning.encrypted");
        sealed
    }
}
