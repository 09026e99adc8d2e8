//! Simulates Gemini's generateContent, in the Gemini API and in Vertex AI.
//!
//! - A signature is attached to the part that it signs: the first `functionCall` of a step, or its
//!   final text. In a stream the signature of a text comes last, on a part with an empty text.
//! - Gemini 3 rejects a step of the current turn if its first call lacks the signature; Gemini 2.5
//!   does not. The two documented placeholder values count as signatures.
//! - A signature is valid for the endpoint and account that received it, in either base64 alphabet.
//! - The model's row specifies the allowed budgets and levels.

pub(crate) mod read;
mod respond;

use serde_json::{Value, json};
use throughline_codec::{Codec, Frame, Framing};
use throughline_core::Provider;
use throughline_json::{Json, Node};

use crate::cache::PromptCache;
use crate::digest::Digest;
use crate::state::SimState;
use crate::turn::{Refusal, ReplyPlan, SimRequest, Turn};
use crate::wires::openai;
use crate::wires::{Endpoint, Exchange};

pub(crate) struct Gemini;

impl Endpoint for Gemini {
    fn codec(&self) -> &'static dyn Codec {
        &throughline_codec::Gemini
    }

    fn read(&self, exchange: Exchange<'_>) -> Result<Turn, Refusal> {
        read::read(exchange)
    }

    fn respond(&self, exchange: Exchange<'_>, turn: &Turn, plan: &ReplyPlan) -> Json {
        respond::respond(exchange, turn, plan)
    }

    fn count(&self, turn: &Turn) -> Json {
        let tokens = PromptCache::count(&turn.elements);
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

    fn models(&self, _: &SimState, model: Option<&str>) -> Option<Json> {
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

    fn request_id(&self, nonce: Digest) -> (&'static str, String) {
        ("x-request-id", nonce.id("", 22))
    }

    fn framing(&self, asking: &SimRequest) -> Framing {
        let is_sse = asking.query.split('&').any(|pair| pair == "alt=sse");
        if is_sse { Framing::Sse } else { Framing::JsonArray }
    }

    /// Moves the signature of a text to an empty part after it, as in real streams.
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

/// Returns a member by its name in camel case or snake case; Google accepts both.
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
