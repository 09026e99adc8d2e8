//! Simulates Anthropic's Messages API, and compatible APIs whose models issue no signatures.

mod compaction;
mod models;
mod read;
mod respond;

use serde_json::{Value, json};
use throughline_codec::{AnthropicMessages, Framing};
use throughline_core::Provider;

use crate::turn::Refusal;
use crate::wires::Endpoint;

pub(crate) static ENDPOINT: Endpoint = Endpoint {
    codec: &AnthropicMessages,
    read: read::read,
    respond: respond::respond,
    count: |tokens| json!({"input_tokens": tokens}),
    refuse,
    models: models::models,
    request_id: |nonce| ("request-id", nonce.and("request").id("req_011", 21)),
    framing: |_| Framing::Sse,
    error_header: |_| None,
    decorate: respond::decorate,
};

fn refuse(_: &Provider, refusal: &Refusal, request_id: &str) -> Value {
    let kind = refusal.kind_or(match refusal.status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    });
    json!({
        "type": "error",
        "error": {"type": kind, "message": refusal.message},
        "request_id": request_id,
    })
}
