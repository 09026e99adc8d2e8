//! Builds parts for Items from other wires or from the caller.

use throughline_core::{Media, Outcome, ToolCall};
use throughline_json::{self as json, Json};

pub(in crate::gemini) fn text_part(text: &str) -> Json {
    object! { "text": text }
}

pub(super) fn call_part(call: &ToolCall, id: &str, stand_in: Option<&str>) -> Json {
    object! {
        "functionCall": { "name": call.name, "args": arguments(call), "id": id },
        "thoughtSignature": stand_in,
    }
}

/// Returns the arguments as an object, the only form that this wire accepts. Free text and invalid
/// JSON are wrapped as `input`.
pub(in crate::gemini) fn arguments(call: &ToolCall) -> Json {
    if call.args.bytes().first() == Some(&b'{') {
        return call.args.clone();
    }
    if matches!(call.args.as_str(), "null" | "\"\"") && !call.custom {
        // Some models emit an empty string instead of an empty object.
        return json::object(|_| {});
    }
    object! { "input": call.args }
}

pub(super) fn media_part(media: &Media) -> Option<Json> {
    match media {
        Media::Inline { mime, base64 } => {
            let data = std::str::from_utf8(base64).ok()?;
            Some(object! { "inlineData": { "mimeType": mime, "data": data } })
        }
        Media::Remote { mime, uri, .. } => Some(object! {
            "fileData": { "mimeType": mime.as_deref(), "fileUri": uri },
        }),
    }
}

/// Builds the `response` object of a tool result. An object is sent unchanged; other values are
/// wrapped in `output` or `error`.
pub(super) fn response(outcome: Outcome, values: &[Json]) -> Json {
    let key = match outcome {
        Outcome::Ok => "output",
        Outcome::Error | Outcome::Unknown | Outcome::Denied => "error",
    };
    match values {
        [value] if outcome == Outcome::Ok && value.bytes().first() == Some(&b'{') => value.clone(),
        [value] => object! { (key): value },
        [] => object! { (key): "" },
        several => object! { (key): json::array_of(several) },
    }
}
