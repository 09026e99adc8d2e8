//! Writes responses: a message in the row's dialect, with the Seals of the model's vendor.

use serde_json::{Map, Value, json};
use throughline_core::{CallIds, ReasoningChannel, StopReason};
use throughline_json::Json;

use crate::digest::Digest;
use crate::keys::SealClaims;
use crate::ledger::EntryBuilder;
use crate::state::SimState;
use crate::turn::{ReplyPart, ReplyPlan, SimRequest, ThoughtDisplay, Turn};
use crate::wires::Exchange;
use crate::wires::chat::details::Vendor;
use crate::wires::chat::text_key;
use crate::wires::claude::seals::{self, SealedThought};
use crate::wires::claude::{Block, is_claude};
use crate::wires::openai;

/// Writes a whole response.
pub(super) fn respond(exchange: Exchange<'_>, turn: &Turn, plan: &ReplyPlan) -> Json {
    let Exchange { asking, world, record } = exchange;
    let writer = MessageWriter { asking, turn, plan, world };
    let channel = asking.row.dialect.channel;
    let is_router = channel == ReasoningChannel::Details;
    let message = writer.message(record);
    let finish = match &plan.stop {
        StopReason::Tools => "tool_calls",
        StopReason::Length => "length",
        StopReason::Refused(_) => "content_filter",
        StopReason::Done
        | StopReason::Sequence(_)
        | StopReason::Paused
        | StopReason::Cut
        | StopReason::Other(_) => "stop",
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
        let vendor = Vendor::from_profile(&turn.target.profile);
        openai::set_member(
            &mut choice,
            "native_finish_reason",
            json!(native_finish(&plan.stop, vendor)),
        );
        openai::set_member(&mut whole, "provider", json!(vendor.name()));
    }
    openai::set_member(&mut whole, "choices", json!([choice]));
    openai::set_member(&mut whole, "usage", writer.usage());
    openai::set_member(&mut whole, "system_fingerprint", Value::Null);
    openai::json(&whole)
}

fn native_finish(stop: &StopReason, vendor: Vendor) -> &'static str {
    match (stop, vendor) {
        (StopReason::Refused(_), Vendor::Claude) => "refusal",
        (StopReason::Tools, Vendor::Claude) => "tool_use",
        (_, Vendor::Claude) => "end_turn",
        (_, Vendor::Gemini) => "STOP",
        (_, Vendor::OpenAi | Vendor::Xai) => "completed",
        (StopReason::Tools, Vendor::Other) => "tool_calls",
        (_, Vendor::Other) => "stop",
    }
}

struct MessageWriter<'a> {
    asking: &'a SimRequest,
    turn: &'a Turn,
    plan: &'a ReplyPlan,
    world: &'a SimState,
}

impl MessageWriter<'_> {
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
                openai::set_member(&mut told, "prompt_cache_hit_tokens", json!(usage.cached));
                openai::set_member(
                    &mut told,
                    "prompt_cache_miss_tokens",
                    json!(usage.input - usage.cached),
                );
            }
            "openrouter" => {
                let details =
                    json!({"cached_tokens": usage.cached, "cache_write_tokens": usage.written});
                openai::set_member(&mut told, "prompt_tokens_details", details);
                openai::set_member(&mut told, "cost", json!(0));
            }
            _ => {}
        }
        told
    }

    fn message(&self, record: &mut EntryBuilder) -> Value {
        let calls: Vec<Value> = self.calls(record);
        let mut message = Map::new();
        message.insert("role".into(), json!("assistant"));
        message.insert("content".into(), self.content(record));
        let channel = self.asking.row.dialect.channel;
        if let Some(key) = text_key(channel) {
            if let Some(text) = self.thought(record) {
                message.insert(key.into(), json!(text));
            }
        } else if channel == ReasoningChannel::Details {
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
        } else if channel == ReasoningChannel::None {
            let is_refused = matches!(self.plan.stop, StopReason::Refused(_));
            let refusal = is_refused.then_some("I'm sorry, but I can't help with that.");
            message.insert("refusal".into(), json!(refusal));
        }
        if !calls.is_empty() {
            message.insert("tool_calls".into(), json!(calls));
        }
        Value::Object(message)
    }

    /// Returns the text, including thoughts where the dialect embeds them.
    fn content(&self, record: &mut EntryBuilder) -> Value {
        let texts = self.plan.parts.iter().filter_map(|part| match part {
            ReplyPart::Text(text) => Some(text.as_str()),
            ReplyPart::Thought { .. } | ReplyPart::Call { .. } => None,
        });
        let text = texts.collect::<Vec<_>>().join("\n");
        let has_text = !text.is_empty();
        if has_text {
            record.record_text(&text);
        }
        match self.asking.row.dialect.channel {
            ReasoningChannel::Chunks => {
                let Some(thought) = self.thought(record) else { return json!(text) };
                let thinking = json!([{"type": "text", "text": thought}]);
                let mut chunks = vec![json!({"type": "thinking", "thinking": thinking})];
                if has_text {
                    chunks.push(json!({"type": "text", "text": text}));
                }
                json!(chunks)
            }
            ReasoningChannel::Tags => match self.thought(record) {
                Some(thought) => json!(format!("<think>\n{thought}\n</think>\n\n{text}")),
                None => json!(text),
            },
            ReasoningChannel::AsEmitted
            | ReasoningChannel::None
            | ReasoningChannel::Details
            | ReasoningChannel::ReasoningContent
            | ReasoningChannel::Reasoning
            | ReasoningChannel::Thinking => {
                if has_text {
                    json!(text)
                } else {
                    Value::Null
                }
            }
        }
    }

    /// Returns the thoughts as one text. The text itself acts as the Seal, because there is no
    /// other value.
    fn thought(&self, record: &mut EntryBuilder) -> Option<String> {
        let thoughts = self.plan.parts.iter().filter_map(|part| match part {
            ReplyPart::Thought { text, telling: ThoughtDisplay::AsAsked } if self.turn.shows => {
                Some(&**text)
            }
            ReplyPart::Thought { .. } | ReplyPart::Text(_) | ReplyPart::Call { .. } => None,
        });
        let text = thoughts.collect::<Vec<_>>().join("\n");
        if text.is_empty() {
            return None;
        }
        record.think(&text);
        record.issue(&text, "reasoning");
        Some(text)
    }

    fn calls(&self, record: &mut EntryBuilder) -> Vec<Value> {
        let calls = self.plan.parts.iter().enumerate().filter_map(|(at, part)| match part {
            ReplyPart::Call { name, arguments } => Some((at, name, arguments)),
            ReplyPart::Thought { .. } | ReplyPart::Text(_) => None,
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
        if self.asking.row.dialect.channel != ReasoningChannel::Details {
            return self.asking.id("call_", &label, 24);
        }
        match Vendor::from_profile(&self.turn.target.profile) {
            Vendor::Claude => self.asking.id("toolu_", &label, 24),
            Vendor::Gemini => self.asking.id(&format!("tool_{name}_"), &label, 20),
            Vendor::OpenAi | Vendor::Xai | Vendor::Other => self.asking.id("call_", &label, 24),
        }
    }

    /// Returns the router's details of the vendor's reasoning.
    fn details(
        &self,
        first: Option<&str>,
        calls: &[Value],
        record: &mut EntryBuilder,
    ) -> Vec<Value> {
        if !self.turn.shows {
            return Vec::new();
        }
        let vendor = Vendor::from_profile(&self.turn.target.profile);
        let mut details = match vendor {
            Vendor::Claude if is_claude(&self.turn.target.profile) => self.claudes(calls, record),
            Vendor::Gemini => self.geminis(first, record),
            Vendor::OpenAi => self.openais(record),
            Vendor::Claude | Vendor::Xai | Vendor::Other => self.plain(vendor, record),
        };
        for (number, detail) in details.iter_mut().enumerate() {
            openai::set_member(detail, "format", json!(vendor.format()));
            openai::set_member(detail, "index", json!(number));
        }
        details
    }

    fn shown<'p>(&self, text: &'p str, telling: ThoughtDisplay) -> Option<&'p str> {
        (self.turn.shows && telling == ThoughtDisplay::AsAsked).then_some(text)
    }

    fn claudes(&self, calls: &[Value], record: &mut EntryBuilder) -> Vec<Value> {
        let mut ids = calls.iter().filter_map(|call| call.get("id")).filter_map(Value::as_str);
        let blocks: Vec<Option<Block>> = self
            .plan
            .parts
            .iter()
            .map(|part| match part {
                ReplyPart::Thought { .. } => None,
                ReplyPart::Text(text) => Some(Block::Text(text.clone())),
                ReplyPart::Call { name, .. } => {
                    let id = ids.next().unwrap_or_default().to_owned();
                    Some(Block::Call { id, name: name.clone(), said: Vec::new() })
                }
            })
            .collect();
        let (parts, turn) = (&self.plan.parts, self.turn);
        let sealed = seals::seal(parts, &blocks, self.asking, turn, self.world, record);
        let details = sealed.into_iter().map(|sealed| match sealed {
            SealedThought::Thinking { text, signature } => {
                json!({"type": "reasoning.text", "text": text, "signature": signature})
            }
            SealedThought::Redacted { data } => {
                json!({"type": "reasoning.encrypted", "data": data})
            }
        });
        details.collect()
    }

    /// Gemini signs the first call of a step, or its final text.
    fn geminis(&self, first: Option<&str>, record: &mut EntryBuilder) -> Vec<Value> {
        let mut details = self.plain(Vendor::Gemini, record);
        if !self.turn.thinks {
            return details;
        }
        let sealed = self.seal(Vendor::Gemini, 0, "", record);
        let mut detail = json!({"type": "reasoning.encrypted", "data": sealed});
        if let Some(id) = first {
            openai::set_member(&mut detail, "id", json!(id));
        }
        details.push(detail);
        details
    }

    fn openais(&self, record: &mut EntryBuilder) -> Vec<Value> {
        let mut details = Vec::new();
        for (at, part) in self.plan.parts.iter().enumerate() {
            let ReplyPart::Thought { text, telling } = part else { continue };
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

    fn plain(&self, vendor: Vendor, record: &mut EntryBuilder) -> Vec<Value> {
        let mut details = Vec::new();
        for part in &self.plan.parts {
            let ReplyPart::Thought { text, telling } = part else { continue };
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

    fn seal(&self, vendor: Vendor, at: usize, text: &str, record: &mut EntryBuilder) -> String {
        let claims = SealClaims {
            kind: "reasoning.encrypted".to_owned(),
            row: self.asking.row.name.to_string(),
            family: self.turn.target.profile.name.clone(),
            account: self.asking.account,
            reply: self.asking.nonce,
            ordinal: u32::try_from(at).unwrap_or(u32::MAX),
            count: 1,
            text: Digest::new("throughline-sim reasoning", text),
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
