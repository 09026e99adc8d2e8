//! Writes Chat Completions responses in the provider's dialect, with the Seals of the model's
//! vendor.

use serde_json::{Value, json};
use throughline_core::{CallIds, ReasoningChannel as Channel, StopReason};

use crate::digest::Digest;
use crate::keys::SealClaims;
use crate::turn::{ReplyPart, ReplyPlan, ThoughtDisplay, Turn};
use crate::wires::chat::details::Vendor;
use crate::wires::chat::text_key;
use crate::wires::claude::seals::{self, SealedThought};
use crate::wires::claude::{Block, is_claude};
use crate::wires::{Exchange, openai, set};

pub(super) fn respond(exchange: &mut Exchange<'_>, turn: &Turn, plan: &ReplyPlan) -> Value {
    use StopReason::{Cut, Done, Other, Paused, Sequence};
    let request = exchange.request;
    let is_router = request.row.dialect.channel == Channel::Details;
    let vendor = Vendor::from_profile(&turn.target.profile);
    let mut writer = MessageWriter { exchange, turn, plan, vendor };
    let finish = match &plan.stop {
        StopReason::Tools => "tool_calls",
        StopReason::Length => "length",
        StopReason::Refused(_) => "content_filter",
        Done | Sequence(_) | Paused | Cut | Other(_) => "stop",
    };
    let message = writer.message();
    let mut choice =
        json!({"index": 0, "message": message, "logprobs": null, "finish_reason": finish});
    let mut body = json!({
        "id": request.id(if is_router { "gen-" } else { "chatcmpl-" }, "reply", 29),
        "object": "chat.completion",
        "created": openai::CREATED,
        "model": request.model,
    });
    if is_router {
        set(&mut choice, "native_finish_reason", native_finish(&plan.stop, vendor));
        set(&mut body, "provider", vendor.names().0);
    }
    set(&mut body, "choices", json!([choice]));
    set(&mut body, "usage", writer.usage());
    set(&mut body, "system_fingerprint", Value::Null);
    body
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

struct MessageWriter<'a, 'e> {
    exchange: &'a mut Exchange<'e>,
    turn: &'a Turn,
    plan: &'a ReplyPlan,
    vendor: Vendor,
}

impl<'a> MessageWriter<'a, '_> {
    fn usage(&self) -> Value {
        let usage = &self.plan.usage;
        let mut counts = json!({
            "prompt_tokens": usage.input,
            "completion_tokens": usage.output,
            "total_tokens": usage.total(),
            "prompt_tokens_details": {"cached_tokens": usage.cached},
            "completion_tokens_details": {"reasoning_tokens": usage.thought},
        });
        match &*self.exchange.request.row.name {
            "deepseek" => {
                set(&mut counts, "prompt_cache_hit_tokens", usage.cached);
                set(&mut counts, "prompt_cache_miss_tokens", usage.input - usage.cached);
            }
            "openrouter" => {
                let details =
                    json!({"cached_tokens": usage.cached, "cache_write_tokens": usage.written});
                set(&mut counts, "prompt_tokens_details", details);
                set(&mut counts, "cost", 0);
            }
            _ => {}
        }
        counts
    }

    fn message(&mut self) -> Value {
        let calls = self.calls();
        let mut message = json!({"role": "assistant", "content": self.content()});
        let channel = self.exchange.request.row.dialect.channel;
        if let Some(key) = text_key(channel) {
            if let Some(text) = self.thought() {
                set(&mut message, key, text);
            }
        } else if channel == Channel::Details {
            set(&mut message, "refusal", Value::Null);
            let details = self.details(&calls);
            let readable = details.iter().filter_map(|one| one.get("text").or(one.get("summary")));
            let readable = readable.filter_map(Value::as_str).collect::<Vec<_>>().join("\n");
            set(&mut message, "reasoning", Some(readable).filter(|text| !text.is_empty()));
            if !details.is_empty() {
                set(&mut message, "reasoning_details", details);
            }
        } else if channel == Channel::None {
            let is_refused = matches!(self.plan.stop, StopReason::Refused(_));
            let refusal = is_refused.then_some("I'm sorry, but I can't help with that.");
            set(&mut message, "refusal", refusal);
        }
        if !calls.is_empty() {
            set(&mut message, "tool_calls", calls);
        }
        message
    }

    /// Returns the visible text. If the dialect embeds thoughts in the text, the text includes the
    /// thoughts.
    fn content(&mut self) -> Value {
        let texts = self.plan.parts.iter().filter_map(ReplyPart::text);
        let text = texts.collect::<Vec<_>>().join("\n");
        if !text.is_empty() {
            self.exchange.record.record_text(&text);
        }
        let channel = self.exchange.request.row.dialect.channel;
        if !matches!(channel, Channel::Chunks | Channel::Tags) {
            return json!(Some(text).filter(|text| !text.is_empty()));
        }
        let Some(thought) = self.thought() else { return json!(text) };
        if channel == Channel::Tags {
            return json!(format!("<think>\n{thought}\n</think>\n\n{text}"));
        }
        let thinking = json!([{"type": "text", "text": thought}]);
        let mut chunks = vec![json!({"type": "thinking", "thinking": thinking})];
        if !text.is_empty() {
            chunks.push(json!({"type": "text", "text": text}));
        }
        json!(chunks)
    }

    /// Iterates over the thoughts. Yields the position, the text, and the text shown to the client,
    /// which is `None` if the request or the plan hides the thought.
    fn thoughts(&self) -> impl Iterator<Item = (usize, &'a str, Option<&'a str>)> + use<'a> {
        let (plan, shows) = (self.plan, self.turn.shows);
        plan.parts.iter().enumerate().filter_map(move |(at, part)| {
            let ReplyPart::Thought { text, display } = part else { return None };
            let is_shown = shows && *display == ThoughtDisplay::AsAsked;
            Some((at, text.as_str(), is_shown.then_some(text.as_str())))
        })
    }

    /// Returns the text of all thoughts. The ledger records this text in place of a Seal, because
    /// providers that return reasoning as text issue no opaque values.
    fn thought(&mut self) -> Option<String> {
        let text =
            self.thoughts().filter_map(|(.., visible)| visible).collect::<Vec<_>>().join("\n");
        if text.is_empty() {
            return None;
        }
        self.exchange.record.record_thought(&text);
        self.exchange.record.issue(&text, "reasoning");
        Some(text)
    }

    fn calls(&mut self) -> Vec<Value> {
        let mut calls = Vec::new();
        for (at, part) in self.plan.parts.iter().enumerate() {
            let ReplyPart::Call { name, arguments } = part else { continue };
            let id = self.call_id(at, name);
            self.exchange.record.call(&id);
            calls.push(match arguments {
                Value::String(input) => {
                    json!({"id": id, "type": "custom", "custom": {"name": name, "input": input}})
                }
                arguments => json!({
                    "id": id,
                    "type": "function",
                    "function": {"name": name, "arguments": arguments.to_string()},
                }),
            });
        }
        calls
    }

    fn call_id(&self, at: usize, name: &str) -> String {
        let (request, label) = (self.exchange.request, format!("call {at}"));
        let is_router = request.row.dialect.channel == Channel::Details;
        match self.vendor {
            _ if request.row.dialect.call_ids == CallIds::Nine => request.id("", &label, 9),
            Vendor::Claude if is_router => request.id("toolu_", &label, 24),
            Vendor::Gemini if is_router => request.id(&format!("tool_{name}_"), &label, 20),
            Vendor::Claude | Vendor::Gemini | Vendor::OpenAi | Vendor::Xai | Vendor::Other => {
                request.id("call_", &label, 24)
            }
        }
    }

    /// Builds the `reasoning_details` in which a router returns the vendor's reasoning.
    fn details(&mut self, calls: &[Value]) -> Vec<Value> {
        if !self.turn.shows {
            return Vec::new();
        }
        let mut details = match self.vendor {
            Vendor::Claude if is_claude(&self.turn.target.profile) => self.claude_details(calls),
            Vendor::Gemini => self.gemini_details(calls),
            Vendor::OpenAi => self.openai_details(),
            Vendor::Claude | Vendor::Xai | Vendor::Other => self.readable_details(),
        };
        for (number, detail) in details.iter_mut().enumerate() {
            set(detail, "format", self.vendor.names().1);
            set(detail, "index", number);
        }
        details
    }

    fn claude_details(&mut self, calls: &[Value]) -> Vec<Value> {
        let mut ids = calls.iter().filter_map(|call| call.get("id")).filter_map(Value::as_str);
        let blocks = self.plan.parts.iter().map(|part| match part {
            ReplyPart::Thought { .. } => None,
            ReplyPart::Text(text) => Some(Block::Text(text.clone())),
            ReplyPart::Call { name, .. } => {
                let id = ids.next().unwrap_or_default().to_owned();
                Some(Block::Call { id, name: name.clone(), content: Vec::new() })
            }
        });
        let blocks: Vec<Option<Block>> = blocks.collect();
        let sealed = seals::seal(self.exchange, self.turn, &self.plan.parts, &blocks);
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

    /// Builds Gemini's details. Gemini signs the first call of a step, or the final text.
    fn gemini_details(&mut self, calls: &[Value]) -> Vec<Value> {
        let mut details = self.readable_details();
        if self.turn.thinks {
            let sealed = self.seal(0, "");
            let mut detail = json!({"type": "reasoning.encrypted", "data": sealed});
            if let Some(id) = calls.first().and_then(|call| call.get("id")) {
                set(&mut detail, "id", id.clone());
            }
            details.push(detail);
        }
        details
    }

    fn openai_details(&mut self) -> Vec<Value> {
        let mut details = Vec::new();
        for (at, text, visible) in self.thoughts() {
            if let Some(summary) = visible {
                self.exchange.record.record_thought(summary);
                details.push(json!({"type": "reasoning.summary", "summary": summary}));
            }
            let id = self.exchange.request.id("rs_", &format!("reasoning {at}"), 48);
            let sealed = self.seal(at, text);
            details.push(json!({"type": "reasoning.encrypted", "data": sealed, "id": id}));
        }
        details
    }

    fn readable_details(&mut self) -> Vec<Value> {
        let mut details = Vec::new();
        for text in self.thoughts().filter_map(|(.., visible)| visible) {
            self.exchange.record.record_thought(text);
            details.push(if self.vendor == Vendor::Xai {
                json!({"type": "reasoning.summary", "summary": text})
            } else {
                json!({"type": "reasoning.text", "text": text})
            });
        }
        details
    }

    fn seal(&mut self, at: usize, text: &str) -> String {
        let claims = SealClaims {
            ordinal: u32::try_from(at).unwrap_or(u32::MAX),
            text: Digest::new("throughline-sim reasoning", text),
            hidden: true,
            ..self.exchange.claims(self.turn, "reasoning.encrypted")
        };
        let (signer, format) = self.vendor.signer(self.exchange.request);
        self.exchange.seal(signer, format, &claims)
    }
}
