//! The Responses API, at OpenAI, Azure, Bedrock's Mantle, xAI and DeepSeek.
//!
//! - What was answered under `store: true` is kept, and found again by its ids. OpenAI, Azure and Mantle check them in
//!   pairs: a reasoning item needs what followed it, and what followed it needs the reasoning item. xAI keeps and pairs
//!   nothing; DeepSeek keeps nothing and ignores what it did not write as text.
//! - `encrypted_content` is bound to the endpoint and, where the family says so, to the account. In a stream
//!   `output_item.added` carries another ciphertext than `output_item.done`; only the latter is good.
//! - A call needs its output, and an output its call.

mod input;
mod read;
mod say;
mod stored;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use serde_json::{Value, json};
use throughline_codec::{Codec, Frame};
use throughline_core::{Json, Provider};

pub(crate) use self::stored::Stored;
use crate::cache::Cache;
use crate::digest::Mark;
use crate::ledger::Record;
use crate::turn::{Asking, Plan, Refusal, Turn};
use crate::wires::Endpoint;
use crate::wires::openai;
use crate::world::World;

pub(crate) struct Responses;

/// What an endpoint does with what it answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum House {
    /// It keeps items, and wants reasoning and what it led to together.
    Pairs,
    /// It keeps items, and checks no pairs.
    Keeps,
    /// It keeps nothing, and seals nothing.
    Forgets,
}

impl House {
    fn of(row: &Provider) -> Self {
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
        let tokens = Cache::count(&turn.elements);
        openai::json(&json!({"object": "response.input_tokens", "input_tokens": tokens}))
    }

    fn refuse(&self, row: &Provider, refusal: &Refusal, _: &str) -> Json {
        openai::refusal(row, refusal)
    }

    fn models(&self, _: &World, model: Option<&str>) -> Option<Json> {
        openai::models(model)
    }

    fn request_id(&self, nonce: Mark) -> (&'static str, String) {
        ("x-request-id", nonce.id("req_", 32))
    }

    /// Says more of the response while it is under way, tells early what a message is for, and gives the beginning of a
    /// reasoning item the ciphertext that is never the last word.
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
            openai::put(&mut response, "status", json!("in_progress"));
            openai::put(&mut response, "output", json!([]));
            openai::put(&mut response, "usage", Value::Null);
            openai::put(&mut event, "response", response);
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
                    openai::put(begun, "phase", phase.clone());
                }
                if let Some(sealed) = sealed.and_then(Value::as_str) {
                    openai::put(begun, "encrypted_content", json!(early(sealed)));
                }
            }
        }
        _ => return frame,
    }
    Frame { data: event.to_string().into(), ..frame }
}

/// The ciphertext with which a reasoning item begins: of the same form as the one with which it ends, and good for nothing.
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
