//! Simulates Chat Completions in all dialects. The provider's `channel` determines which part of a
//! message contains reasoning, and which checks apply.
//!
//! Part of a message that contains reasoning, and requests that are rejected, by provider:
//!
//! - `openai-chat`: no reasoning in messages. Rejects reasoning efforts, sampling parameters and
//!   `max_tokens` if the model does not support them.
//! - `deepseek`, `moonshot`: `reasoning_content`. If thinking is enabled, both providers reject a
//!   message that has calls but no `reasoning_content`.
//! - `mistral`: `thinking` chunks. Rejects message members outside Mistral's schema, and call ids
//!   other than nine letters and digits.
//! - `openrouter`, `vercel`: `reasoning_details`. If the router is known to relay upstream errors,
//!   the upstream error is wrapped in the router's own error.
//! - All others: text in a provider-specific message member, or in tags. They reject calls without
//!   results.

mod details;
mod read;
mod respond;

use serde_json::{Value, json};
use throughline_codec::{Framing, OpenAiChat};
use throughline_core::{Provider, ReasoningChannel as Channel};

use crate::turn::Refusal;
use crate::wires::{Endpoint, openai};

pub(crate) static ENDPOINT: Endpoint = Endpoint {
    codec: &OpenAiChat,
    read: read::read,
    respond: respond::respond,
    count: |tokens| json!({"input_tokens": tokens}),
    refuse,
    models: |_, model| openai::models(model),
    request_id: |nonce| ("x-request-id", nonce.id("req_", 32)),
    framing: |_| Framing::Sse,
    error_header: |_| None,
    decorate: |frames, _| frames,
};

fn refuse(row: &Provider, refusal: &Refusal, request_id: &str) -> Value {
    if row.dialect.channel == Channel::Details {
        routed(refusal, request_id)
    } else if row.dialect.channel == Channel::Chunks {
        mistral(refusal)
    } else {
        openai::refuse(row, refusal, request_id)
    }
}

/// Returns the message member that contains reasoning as text; `None` if the channel has no such
/// member.
fn text_key(channel: Channel) -> Option<&'static str> {
    match channel {
        Channel::AsEmitted | Channel::ReasoningContent => Some("reasoning_content"),
        Channel::Reasoning => Some("reasoning"),
        Channel::Thinking => Some("thinking"),
        Channel::None | Channel::Details | Channel::Chunks | Channel::Tags => None,
    }
}

/// Builds a router's error response, which wraps the upstream error if `refusal.kind` names an
/// upstream provider.
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

/// Builds Mistral's error: a schema violation in the format of its validator, or a plain message.
fn mistral(refusal: &Refusal) -> Value {
    let message = match (&refusal.param, refusal.status) {
        (Some(param), 422) => {
            let segment = |piece: &str| match piece.parse::<u64>() {
                Ok(number) => json!(number),
                Err(_) => json!(piece),
            };
            let at: Vec<Value> =
                ["body"].into_iter().chain(param.split('.')).map(segment).collect();
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
