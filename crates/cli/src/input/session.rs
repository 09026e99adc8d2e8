//! Converts a file with one message or item per line to a request.
//!
//! Each message keeps its line number, so a finding's line number in the request is also the line
//! number in the file.

use bytes::Bytes;
use throughline_codec::{Codec, codec};
use throughline_core::Wire;
use throughline_json::{self as json, Json, Node, Tree};

use crate::input::{Input, conversation_of};
use crate::print::failure::{Failure, Result};
use crate::print::text::compact;

/// Returns the codec for the specified wire, or else for the wire that the lines identify.
pub(crate) fn detect_codec(lines: &Input, wire: Option<&Wire>) -> Result<&'static dyn Codec> {
    let messages = messages(lines)?;
    let detect = || messages.iter().find_map(|(_, message)| wire_of_message(message.tree().root()));
    let wire = wire.cloned().or_else(detect);
    wire.as_ref().and_then(codec).ok_or_else(|| {
        let advice = "specify it with --wire";
        Failure::BadData(format!("cannot determine the wire of {}; {advice}", lines.name))
    })
}

/// Returns the wire that a message or item identifies; `None` if several wires are possible.
fn wire_of_message(message: Node<'_>) -> Option<Wire> {
    if message.get("parts").is_some() {
        return Some(Wire::GEMINI);
    }
    let is_chats = ["tool_calls", "tool_call_id", "reasoning_content", "reasoning_details"];
    if is_chats.iter().any(|name| message.get(name).is_some()) {
        return Some(Wire::OPENAI_CHAT);
    }
    if message.get("type").is_some() {
        return Some(Wire::OPENAI_RESPONSES);
    }
    let blocks = message.get("content").into_iter().flat_map(Node::elements);
    let mut kinds = blocks.map(|block| block.text_of("type"));
    kinds.find_map(|kind| match kind.as_deref() {
        None => Some(Wire::BEDROCK_CONVERSE),
        Some("thinking" | "redacted_thinking" | "tool_use" | "tool_result") => {
            Some(Wire::ANTHROPIC_MESSAGES)
        }
        Some("input_text" | "output_text" | "input_image") => Some(Wire::OPENAI_RESPONSES),
        Some("image_url" | "input_audio") => Some(Wire::OPENAI_CHAT),
        Some(_) => None,
    })
}

/// Builds a request from the lines. Takes the settings from the `earlier` request, if any.
pub(crate) fn wrap(
    lines: &Input,
    codec: &dyn Codec,
    model: Option<&str>,
    earlier: Option<&Bytes>,
) -> Result<Bytes> {
    let messages = messages(lines)?;
    let mut body = b"{".to_vec();
    json::push_string(&mut body, conversation_of(codec));
    body.extend_from_slice(b":[");
    let (mut number, mut is_first) = (1, true);
    for (line, message) in &messages {
        if !std::mem::take(&mut is_first) {
            body.push(b',');
        }
        body.resize(body.len() + line - number, b'\n');
        number = *line;
        body.extend_from_slice(message.bytes());
    }
    body.push(b']');
    let earlier = earlier.and_then(|body| Tree::parse(body.clone()).ok());
    for (name, value) in earlier.iter().flat_map(|tree| tree.root().members()) {
        let is_replaced = name.is(conversation_of(codec)) || (name.is("model") && model.is_some());
        if !is_replaced {
            body.push(b',');
            body.extend_from_slice(name.raw());
            body.push(b':');
            body.extend_from_slice(value.raw());
        }
    }
    // On these wires the model is part of the path, so the body does not repeat it.
    let is_in_path = [Wire::GEMINI, Wire::BEDROCK_CONVERSE].contains(&codec.wire());
    if let Some(model) = model.filter(|_| !is_in_path) {
        body.extend_from_slice(b",\"model\":");
        json::push_string(&mut body, model);
    }
    body.push(b'}');
    Ok(Bytes::from(body))
}

/// Extracts the lines from a repaired request that was built from `lines`. Unchanged messages keep
/// their exact bytes.
pub(crate) fn unwrap(lines: &Input, codec: &dyn Codec, body: &Bytes) -> Result<Vec<u8>> {
    let was = messages(lines)?;
    let texts: Vec<&[u8]> = lines.bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let tree = Tree::parse(body.clone()).map_err(|error| lines.bad_data(error.into()))?;
    let mut known = was.iter();
    let mut out = Vec::with_capacity(lines.bytes.len());
    for element in tree.root().get(conversation_of(codec)).into_iter().flat_map(Node::elements) {
        let mut later = known.clone();
        match later.find(|(_, message)| message.bytes() == element.raw()) {
            Some((line, _)) => {
                out.extend_from_slice(texts.get(line - 1).copied().unwrap_or_default());
                known = later;
            }
            None => out.extend_from_slice(compact(element.json().as_str()).as_bytes()),
        }
        if !out.ends_with(b"\n") {
            out.push(b'\n');
        }
    }
    // If the file has no final line feed, omit it.
    if !lines.bytes.ends_with(b"\n") && out.ends_with(b"\n") {
        out.pop();
    }
    Ok(out)
}

/// Returns each message with its line number, starting at 1.
fn messages(lines: &Input) -> Result<Vec<(usize, Json)>> {
    let mut start = 0;
    let mut messages = Vec::new();
    for (index, text) in lines.bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = lines.bytes.slice(start..start + text.len());
        start += text.len() + 1;
        if line.trim_ascii().is_empty() {
            continue;
        }
        let message = Json::parse(line).map_err(|error| {
            let (name, column, what) = (&lines.name, error.column, error.what);
            Failure::BadData(format!("{name}:{}:{column}: not JSON: {what}", index + 1))
        })?;
        messages.push((index + 1, message));
    }
    Ok(messages)
}
