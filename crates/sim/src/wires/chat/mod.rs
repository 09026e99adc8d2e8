//! Chat Completions, in all its dialects: what a row's `channel` says decides where reasoning sits and who checks it.
//!
//! | row | what comes back | what is refused |
//! |---|---|---|
//! | `openai-chat` | nothing: reasoning is not part of a message | efforts, sampling and `max_tokens` that a model does not take |
//! | `deepseek`, `moonshot` | `reasoning_content` | a message with calls that lacks it, while the model thinks |
//! | `mistral` | `thinking` chunks | keys that its schema does not know; ids of calls that are not nine letters and digits |
//! | `openrouter`, `vercel` | `reasoning_details` | what the upstream refuses, where the router is known to hand it on, wrapped in an error of its own |
//! | all others | a text under the row's key, or tags | calls without answers |

mod details;
mod read;
mod say;

use serde_json::{Value, json};
use throughline_codec::Codec;
use throughline_core::{Channel, Json, Provider};

use crate::cache::Cache;
use crate::digest::Mark;
use crate::ledger::Record;
use crate::turn::{Asking, Plan, Refusal, Turn};
use crate::wires::Endpoint;
use crate::wires::openai;
use crate::world::World;

pub(crate) struct Chat;

impl Endpoint for Chat {
    fn codec(&self) -> &'static dyn Codec {
        &throughline_codec::OpenAiChat
    }

    fn read(&self, asking: &Asking, world: &World, record: &mut Record) -> Result<Turn, Refusal> {
        read::read(asking, world, record)
    }

    fn say(
        &self,
        asking: &Asking,
        turn: &Turn,
        plan: &Plan,
        world: &World,
        record: &mut Record,
    ) -> Json {
        say::say(asking, turn, plan, world, record)
    }

    fn count(&self, turn: &Turn) -> Json {
        openai::json(&json!({"input_tokens": Cache::count(&turn.elements)}))
    }

    fn refuse(&self, row: &Provider, refusal: &Refusal, request_id: &str) -> Json {
        match row.dialect.channel {
            Channel::Details => openai::json(&routed(refusal, request_id)),
            Channel::Chunks => openai::json(&mistral(refusal)),
            Channel::AsEmitted
            | Channel::None
            | Channel::ReasoningContent
            | Channel::Reasoning
            | Channel::Thinking
            | Channel::Tags => openai::refusal(row, refusal),
        }
    }

    fn models(&self, _: &World, model: Option<&str>) -> Option<Json> {
        openai::models(model)
    }

    fn request_id(&self, nonce: Mark) -> (&'static str, String) {
        ("x-request-id", nonce.id("req_", 32))
    }
}

/// The member of a message that holds reasoning as a text, where the channel is one.
fn text_key(channel: Channel) -> Option<&'static str> {
    match channel {
        Channel::AsEmitted | Channel::ReasoningContent => Some("reasoning_content"),
        Channel::Reasoning => Some("reasoning"),
        Channel::Thinking => Some("thinking"),
        Channel::None | Channel::Details | Channel::Chunks | Channel::Tags => None,
    }
}

/// An error of a router: its own, or an upstream's wrapped in one. The refusal's kind names the upstream.
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

/// An error of Mistral: about the schema, in the words of the library that checks it, or a sentence.
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
