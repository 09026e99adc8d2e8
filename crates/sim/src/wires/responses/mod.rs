//! Simulates the Responses API of OpenAI, Azure, Bedrock Mantle, xAI and DeepSeek.
//!
//! - Endpoints store responses with `store: true` and resolve their ids later. OpenAI, Azure and
//!   Mantle check pairs: a reasoning item requires the item that followed it, and vice versa. xAI
//!   checks no pairs. DeepSeek stores nothing and ignores reasoning that it did not return as text.
//! - `encrypted_content` is bound to the endpoint and, for some families, to the account. In a
//!   stream `output_item.added` contains another ciphertext than `output_item.done`; only the
//!   latter is valid.
//! - A call requires an output, and an output requires a call.

mod input;
mod read;
mod respond;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use serde_json::{Value, json};
use throughline_codec::{Codec, Frame};
use throughline_core::Provider;
use throughline_json::Json;

use crate::cache::PromptCache;
use crate::digest::Digest;
use crate::state::SimState;
use crate::turn::{Refusal, ReplyPlan, Turn};
use crate::wires::openai;
use crate::wires::{Endpoint, Exchange};

pub(crate) struct Responses;

/// How an endpoint stores its responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StorageMode {
    /// Stores items, and requires a reasoning item and the item it led to together.
    Pairs,
    /// Stores items without checking pairs.
    Keeps,
    /// Stores nothing and issues no Seals.
    Forgets,
}

impl StorageMode {
    fn from_provider(row: &Provider) -> Self {
        match (row.dialect.stores, row.dialect.pairs) {
            (true, true) => Self::Pairs,
            (true, false) => Self::Keeps,
            (false, _) => Self::Forgets,
        }
    }
}

impl Endpoint for Responses {
    fn codec(&self) -> &'static dyn Codec {
        &throughline_codec::OpenAiResponses
    }

    fn read(&self, exchange: Exchange<'_>) -> Result<Turn, Refusal> {
        read::read(exchange)
    }

    fn respond(&self, exchange: Exchange<'_>, turn: &Turn, plan: &ReplyPlan) -> Json {
        respond::respond(exchange, turn, plan)
    }

    fn count(&self, turn: &Turn) -> Json {
        let tokens = PromptCache::count(&turn.elements);
        openai::json(&json!({"object": "response.input_tokens", "input_tokens": tokens}))
    }

    fn refuse(&self, row: &Provider, refusal: &Refusal, _: &str) -> Json {
        openai::refusal(row, refusal)
    }

    fn models(&self, _: &SimState, model: Option<&str>) -> Option<Json> {
        openai::models(model)
    }

    fn request_id(&self, nonce: Digest) -> (&'static str, String) {
        ("x-request-id", nonce.id("req_", 32))
    }

    /// Adds the response to its early events, the phase to a new message, and an invalid ciphertext
    /// to a new reasoning item.
    fn dress(&self, frames: Vec<Frame>, whole: &Json) -> Vec<Frame> {
        let whole: Value = serde_json::from_str(whole.as_str()).unwrap_or_default();
        frames.into_iter().map(|frame| dressed(frame, &whole)).collect()
    }
}

fn dressed(frame: Frame, whole: &Value) -> Frame {
    let Ok(mut event) = serde_json::from_slice::<Value>(&frame.data) else { return frame };
    match event.get("type").and_then(Value::as_str) {
        Some("response.created" | "response.in_progress") => {
            let mut response = whole.clone();
            openai::set_member(&mut response, "status", json!("in_progress"));
            openai::set_member(&mut response, "output", json!([]));
            openai::set_member(&mut response, "usage", Value::Null);
            openai::set_member(&mut event, "response", response);
        }
        Some("response.output_item.added") => {
            let outputs = whole.get("output").and_then(Value::as_array);
            let same = |item: &&Value| item.get("id") == event.pointer("/item/id");
            let Some(item) = outputs.and_then(|items| items.iter().find(same)) else {
                return frame;
            };
            let (phase, sealed) = (item.get("phase"), item.get("encrypted_content"));
            if let Some(begun) = event.get_mut("item") {
                if let Some(phase) = phase {
                    openai::set_member(begun, "phase", phase.clone());
                }
                if let Some(sealed) = sealed.and_then(Value::as_str) {
                    openai::set_member(begun, "encrypted_content", json!(early(sealed)));
                }
            }
        }
        _ => return frame,
    }
    Frame { data: event.to_string().into(), ..frame }
}

/// Returns the ciphertext of a new reasoning item: of the same format as the final one, but
/// invalid.
fn early(sealed: &str) -> String {
    let mut bytes = vec![0x80, 0, 0, 0, 0, 0x69];
    let mut noise = vec![0; sealed.len() / 3 + 32];
    blake3::Hasher::new_derive_key("throughline-sim early ciphertext")
        .update(sealed.as_bytes())
        .finalize_xof()
        .fill(&mut noise);
    bytes.append(&mut noise);
    URL_SAFE.encode(bytes)
}
