//! Applies the redaction policy to responses. Stored and replayed content is not changed.

use throughline_json::Json;
use throughline_spec::{RedactionPolicy, ThoughtRedaction};

use crate::response::{GatewayResponse, ResponseBody};

/// Redacts a whole response. Streams are redacted frame by frame where they are produced.
pub(crate) fn answered(policy: &RedactionPolicy, told: GatewayResponse) -> GatewayResponse {
    let ResponseBody::Whole(body) = &told.body else { return told };
    let Ok(said) = Json::parse(body.clone()) else { return told };
    let body = ResponseBody::Whole(shown(Some(policy), said).bytes().clone());
    GatewayResponse { body, ..told }
}

/// Redacts a document, if there is a policy.
pub(crate) fn shown(policy: Option<&RedactionPolicy>, said: Json) -> Json {
    match policy {
        Some(policy) => policy.redact_json(&said, ThoughtRedaction::Redact).into_owned(),
        None => said,
    }
}
