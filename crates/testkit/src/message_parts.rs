//! Reads and edits the parts of messages on all wires.

use serde_json::Value;

/// JSON pointers to the text of a part. Each wire uses one of them.
pub(crate) const TEXTS: [&str; 4] =
    ["/thinking", "/text", "/reasoningContent/reasoningText/text", "/summary/0/text"];

pub(crate) fn text_of(part: &Value) -> Option<String> {
    TEXTS.iter().find_map(|pointer| part.pointer(pointer)?.as_str().map(str::to_owned))
}

pub(crate) fn is_call(part: &Value) -> bool {
    part.get("functionCall").or_else(|| part.get("function_call")).is_some()
        || part.get("toolUse").is_some()
        || part["type"] == "tool_use"
        || part["type"] == "function_call"
}

/// Returns the parts of a message's content.
pub(crate) fn parts(message: &Value) -> impl Iterator<Item = &Value> {
    message["content"].as_array().into_iter().flatten()
}

/// Returns whether a part is a thought of a Claude model.
pub(crate) fn is_thinking(part: &Value) -> bool {
    matches!(part["type"].as_str(), Some("thinking" | "redacted_thinking"))
        || part.get("reasoningContent").is_some()
}

/// Returns whether a message or item contains tool results.
pub fn is_result(message: &Value) -> bool {
    let first = message.pointer("/content/0").or_else(|| message.pointer("/parts/0"));
    message["type"] == "function_call_output"
        || message["role"] == "tool"
        || first.is_some_and(|first| {
            first["type"] == "tool_result"
                || first.get("toolResult").is_some()
                || first.get("functionResponse").is_some()
                || first.get("function_response").is_some()
        })
}

pub(crate) fn object(value: &mut Value) -> &mut serde_json::Map<String, Value> {
    match value {
        Value::Object(members) => members,
        other => panic!("an object was expected, not {other}"),
    }
}
