//! Simulates Chat Completions in all dialects. The row's `channel` determines where reasoning is
//! placed and which checks apply.
//!
//! Reasoning in requests, and requests that are rejected, per row:
//!
//! - `openai-chat`: no reasoning in messages. Rejects efforts, sampling and `max_tokens` that a
//!   model does not support.
//! - `deepseek`, `moonshot`: `reasoning_content`. Reject a message with calls that lacks it, while
//!   the model thinks.
//! - `mistral`: `thinking` chunks. Rejects keys outside its schema, and call ids that are not nine
//!   letters and digits.
//! - `openrouter`, `vercel`: `reasoning_details`. Reject what the upstream rejects, where the
//!   router is known to relay it, wrapped in the router's error.
//! - All others: a text under the row's key, or tags. Reject calls without results.

mod details;
mod read;
mod respond;

use serde_json::{Value, json};
use throughline_codec::Codec;
use throughline_core::{Provider, ReasoningChannel};
use throughline_json::Json;

use crate::cache::PromptCache;
use crate::digest::Digest;
use crate::state::SimState;
use crate::turn::{Refusal, ReplyPlan, Turn};
use crate::wires::openai;
use crate::wires::{Endpoint, Exchange};

pub(crate) struct Chat;

impl Endpoint for Chat {
    fn codec(&self) -> &'static dyn Codec {
        &throughline_codec::OpenAiChat
    }

    fn read(&self, exchange: Exchange<'_>) -> Result<Turn, Refusal> {
        read::read(exchange)
    }

    fn respond(&self, exchange: Exchange<'_>, turn: &Turn, plan: &ReplyPlan) -> Json {
        respond::respond(exchange, turn, plan)
    }

    fn count(&self, turn: &Turn) -> Json {
        openai::json(&json!({"input_tokens": PromptCache::count(&turn.elements)}))
    }

    fn refuse(&self, row: &Provider, refusal: &Refusal, request_id: &str) -> Json {
        match row.dialect.channel {
            ReasoningChannel::Details => openai::json(&routed(refusal, request_id)),
            ReasoningChannel::Chunks => openai::json(&mistral(refusal)),
            ReasoningChannel::AsEmitted
            | ReasoningChannel::None
            | ReasoningChannel::ReasoningContent
            | ReasoningChannel::Reasoning
            | ReasoningChannel::Thinking
            | ReasoningChannel::Tags => openai::refusal(row, refusal),
        }
    }

    fn models(&self, _: &SimState, model: Option<&str>) -> Option<Json> {
        openai::models(model)
    }

    fn request_id(&self, nonce: Digest) -> (&'static str, String) {
        ("x-request-id", nonce.id("req_", 32))
    }
}

/// Returns the message member that contains reasoning as text, if the channel uses one.
fn text_key(channel: ReasoningChannel) -> Option<&'static str> {
    match channel {
        ReasoningChannel::AsEmitted | ReasoningChannel::ReasoningContent => {
            Some("reasoning_content")
        }
        ReasoningChannel::Reasoning => Some("reasoning"),
        ReasoningChannel::Thinking => Some("thinking"),
        ReasoningChannel::None
        | ReasoningChannel::Details
        | ReasoningChannel::Chunks
        | ReasoningChannel::Tags => None,
    }
}

/// Builds a router's error: its own, or a wrapped upstream error. The refusal's kind names the
/// upstream.
fn routed(refusal: &Refusal, request_id: &str) -> Value {
    if refusal.kind.is_empty() {
        return json!({"error": {"message": refusal.message, "code": refusal.status}});
    }
    let upstream = match refusal.kind.as_str() {
        details::ANTHROPIC => json!({
            "type": "error",
            "error": {"type": "invalid_request_error", "message": refusal.message},
            "request_id": request_id,
        }),
        details::GOOGLE => json!({"error": {
            "code": refusal.status,
            "message": refusal.message,
            "status": "INVALID_ARGUMENT",
        }}),
        _ => json!({"error": {
            "message": refusal.message,
            "type": "invalid_request_error",
            "param": refusal.param,
            "code": refusal.code,
        }}),
    };
    json!({"error": {
        "message": "Provider returned error",
        "code": refusal.status,
        "metadata": {"raw": upstream.to_string(), "provider_name": refusal.kind},
    }})
}

/// Builds Mistral's error: a schema violation in its validator's format, or a plain message.
fn mistral(refusal: &Refusal) -> Value {
    let message = match (&refusal.param, refusal.status) {
        (Some(param), 422) => {
            let place = |piece: &str| match piece.parse::<u64>() {
                Ok(number) => json!(number),
                Err(_) => json!(piece),
            };
            let at: Vec<Value> = ["body"].into_iter().chain(param.split('.')).map(place).collect();
            json!({"detail": [{"type": refusal.kind, "loc": at, "msg": refusal.message}]})
        }
        (Some(_) | None, _) => json!(refusal.message),
    };
    let kind = match refusal.status {
        422 => "invalid_request_error",
        429 => "rate_limited",
        status if status >= 500 => "internal_server_error",
        _ => "invalid_request_message_order",
    };
    json!({
        "object": "error",
        "message": message,
        "type": kind,
        "param": null,
        "code": refusal.code,
        "raw_status_code": refusal.status,
    })
}
