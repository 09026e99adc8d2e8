//! Simulates `generateContent` of the Gemini API and Vertex AI.
//!
//! - A signature is attached to the part that it signs: the first `functionCall` of a step, or the
//!   step's final text. In a stream, the signature of a text comes last, on a part with an empty
//!   text.
//! - Gemini 3 rejects a step of the current turn if the step's first call has no signature; Gemini
//!   2.5 does not. The two documented placeholder values count as signatures.
//! - A signature is valid only at the endpoint that issued it and, for some families, for the
//!   account that received it. Both base64 alphabets are accepted.
//! - The model's entry in the catalog defines the allowed budgets and levels.
//! - A scripted reply can end with `CONTINUATION`. Its token continues the reply in a request with
//!   the same contents.

mod continuation;
pub(crate) mod read;
mod respond;

use serde_json::{Value, json};
use throughline_codec::{Frame, Framing};
use throughline_core::Provider;
use throughline_json::Node;

use crate::turn::Refusal;
use crate::wires::{Endpoint, edit_frame};

pub(crate) static ENDPOINT: Endpoint = Endpoint {
    codec: &throughline_codec::Gemini,
    read: read::read,
    respond: respond::respond,
    count: |tokens| {
        let details = json!([{"modality": "TEXT", "tokenCount": tokens}]);
        json!({"totalTokens": tokens, "promptTokensDetails": details})
    },
    refuse,
    models: |_, model| models(model),
    request_id: |nonce| ("x-request-id", nonce.id("", 22)),
    framing: |request| {
        let is_sse = request.query.split('&').any(|pair| pair == "alt=sse");
        if is_sse { Framing::Sse } else { Framing::JsonArray }
    },
    error_header: |_| None,
    decorate: |frames, _| frames.into_iter().map(move_signatures).collect(),
};

fn refuse(_: &Provider, refusal: &Refusal, _: &str) -> Value {
    let kind = refusal.kind_or(match refusal.status {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 | 405 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        500 => "INTERNAL",
        501.. => "UNAVAILABLE",
        _ => "INVALID_ARGUMENT",
    });
    json!({"error": {"code": refusal.status, "message": refusal.message, "status": kind}})
}

fn models(model: Option<&str>) -> Option<Value> {
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
        Some(model) => MODELS.iter().find(|name| **name == model).map(entry),
        None => Some(json!({"models": MODELS.iter().map(entry).collect::<Vec<_>>()})),
    }
}

/// Moves the signature of a text to a separate part with an empty text, as in real streams.
fn move_signatures(frame: Frame) -> Frame {
    edit_frame(frame, |chunk| {
        let parts = chunk.pointer_mut("/candidates/0/content/parts")?.as_array_mut()?;
        let mut spread = Vec::with_capacity(parts.len() + 1);
        for mut part in parts.drain(..) {
            let text = part.get("text").and_then(Value::as_str);
            let has_text = text.is_some_and(|text| !text.is_empty());
            let members = part.as_object_mut().filter(|_| has_text);
            let signature = members.and_then(|members| members.remove("thoughtSignature"));
            spread.push(part);
            let moved = |signature| json!({"text": "", "thoughtSignature": signature});
            spread.extend(signature.map(moved));
        }
        *parts = spread;
        Some(())
    })
}

/// Returns a member by its camel-case or snake-case name. Google accepts both.
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
