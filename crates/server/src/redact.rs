//! Applies the redaction policy to responses. Stored and replayed content is not changed.

use throughline_json::Json;
use throughline_spec::{RedactionPolicy, ThoughtRedaction};

use crate::response::{GatewayResponse, ResponseBody};

/// Redacts a complete response. Streamed responses are redacted frame by frame by the handlers that
/// produce the frames.
pub(crate) fn redact_response(
    policy: &RedactionPolicy,
    response: GatewayResponse,
) -> GatewayResponse {
    let ResponseBody::Whole(body) = &response.body else { return response };
    let Ok(document) = Json::parse(body.clone()) else { return response };
    let body = ResponseBody::Whole(redact_json(policy, &document).bytes().clone());
    GatewayResponse { body, ..response }
}

pub(crate) fn redact_json(policy: &RedactionPolicy, document: &Json) -> Json {
    policy.redact_json(document, ThoughtRedaction::Redact).into_owned()
}
