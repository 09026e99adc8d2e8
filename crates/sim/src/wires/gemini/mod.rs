//! Gemini's generateContent, at the Gemini API and at Vertex.
//!
//! - A signature sits on the part that it signs: the first `functionCall` of a step, or the text that ends it. In a stream
//!   a text's signature comes last, on a part whose text is empty.
//! - Gemini 3 refuses a step of the current turn whose first call lost its signature; Gemini 2.5 does not mind. The two
//!   documented stand-ins are taken for one.
//! - A signature is good at the endpoint and for the account that it was issued to, in either alphabet of base64.
//! - Budgets and levels are what the model's row says.

pub(crate) mod read;
mod say;

use serde_json::{Value, json};
use throughline_codec::{Codec, Frame, Framing};
use throughline_core::{Json, Node, Provider};

use crate::cache::Cache;
use crate::digest::Mark;
use crate::ledger::Record;
use crate::turn::{Asking, Plan, Refusal, Turn};
use crate::wires::Endpoint;
use crate::wires::openai;
use crate::world::World;

pub(crate) struct Gemini;

impl Endpoint for Gemini {
    fn codec(&self) -> &'static dyn Codec {
        &throughline_codec::Gemini
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
        let details = json!([{"modality": "TEXT", "tokenCount": tokens}]);
        openai::json(&json!({"totalTokens": tokens, "promptTokensDetails": details}))
    }

    fn refuse(&self, _: &Provider, refusal: &Refusal, _: &str) -> Json {
        let usual = match refusal.status {
            401 => "UNAUTHENTICATED",
            403 => "PERMISSION_DENIED",
            404 | 405 => "NOT_FOUND",
            429 => "RESOURCE_EXHAUSTED",
            500 => "INTERNAL",
            status if status > 500 => "UNAVAILABLE",
            _ => "INVALID_ARGUMENT",
        };
        let kind = if refusal.kind.is_empty() { usual } else { refusal.kind.as_str() };
        openai::json(&json!({"error": {
            "code": refusal.status,
            "message": refusal.message,
            "status": kind,
        }}))
    }

    fn models(&self, _: &World, model: Option<&str>) -> Option<Json> {
        const MODELS: [&str; 5] = [
            "gemini-2.5-flash",
            "gemini-2.5-flash-lite",
            "gemini-2.5-pro",
            "gemini-3-flash-preview",
            "gemini-3-pro-preview",
        ];
        let entry = |name: &&str| {
            json!({
                "name": format!("models/{name}"),
                "version": "001",
                "displayName": name,
                "inputTokenLimit": 1_048_576,
                "outputTokenLimit": 65_536,
                "supportedGenerationMethods": ["generateContent", "countTokens"],
                "thinking": true,
            })
        };
        match model {
            Some(model) => {
                MODELS.iter().find(|name| **name == model).map(entry).as_ref().map(openai::json)
            }
            None => {
                let models: Vec<Value> = MODELS.iter().map(entry).collect();
                Some(openai::json(&json!({"models": models})))
            }
        }
    }

    fn request_id(&self, nonce: Mark) -> (&'static str, String) {
        ("x-request-id", nonce.id("", 22))
    }

    fn framing(&self, asking: &Asking) -> Framing {
        let is_sse = asking.query.split('&').any(|pair| pair == "alt=sse");
        if is_sse { Framing::Sse } else { Framing::JsonArray }
    }

    /// Moves the signature of a text to an empty part behind it, as it comes in real streams.
    fn dress(&self, frames: Vec<Frame>, _: &Json) -> Vec<Frame> {
        frames.into_iter().map(dressed).collect()
    }
}

fn dressed(frame: Frame) -> Frame {
    let Ok(mut chunk) = serde_json::from_slice::<Value>(&frame.data) else { return frame };
    let parts = chunk.pointer_mut("/candidates/0/content/parts").and_then(Value::as_array_mut);
    let Some(parts) = parts else { return frame };
    let mut spread = Vec::with_capacity(parts.len() + 1);
    for mut part in parts.drain(..) {
        let says_something =
            part.get("text").and_then(Value::as_str).is_some_and(|t| !t.is_empty());
        let signature = match part.as_object_mut() {
            Some(members) if says_something => members.remove("thoughtSignature"),
            Some(_) | None => None,
        };
        spread.push(part);
        spread
            .extend(signature.map(|signature| json!({"text": "", "thoughtSignature": signature})));
    }
    *parts = spread;
    Frame { data: chunk.to_string().into(), ..frame }
}

/// A member under its name in either of the two spellings that Google takes.
fn get<'t>(node: Node<'t>, camel: &str) -> Option<Node<'t>> {
    node.present(camel).or_else(|| {
        let mut snake = String::with_capacity(camel.len() + 4);
        for letter in camel.chars() {
            if letter.is_ascii_uppercase() {
                snake.push('_');
            }
            snake.push(letter.to_ascii_lowercase());
        }
        node.present(&snake)
    })
}
