//! Assembles a streamed response into the form of a complete response, as the vendors' official
//! clients do.

use serde_json::{Value, json};
use throughline_codec::{Frame, Framer, Framing};

use super::dialect::Dialect;

/// Parses the body of a successful response. The content type states whether the body is a stream.
pub(super) fn parse_response(
    dialect: Dialect,
    content_type: &str,
    body: &[u8],
) -> Result<Value, String> {
    let framing = Framing::from_content_type(content_type);
    if !matches!(framing, Some(Framing::Sse | Framing::EventStream)) {
        return serde_json::from_slice(body)
            .map_err(|error| format!("the response is not valid JSON: {error}"));
    }
    let mut splitter = Framer::new(framing.unwrap_or(Framing::Sse));
    let mut frames = Vec::new();
    let result = splitter.push(body, &mut frames).and_then(|()| splitter.finish(&mut frames));
    result.map_err(|error| format!("the stream is invalid: {error}"))?;
    let events = events(&frames)?;
    match dialect {
        Dialect::Messages => message(events),
        Dialect::Responses => response(&events),
        Dialect::Chat => completion(&events),
        Dialect::Gemini => candidate(&events),
        Dialect::Converse => converse_message(&events),
    }
}

/// An event of a stream: its name and its data.
struct StreamEvent {
    name: String,
    data: Value,
}

fn events(frames: &[Frame]) -> Result<Vec<StreamEvent>, String> {
    let mut events = Vec::new();
    for frame in frames {
        if frame.data.as_ref() == b"[DONE]" || frame.data.is_empty() {
            continue;
        }
        let data: Value = serde_json::from_slice(&frame.data)
            .map_err(|error| format!("an event of the stream is not valid JSON: {error}"))?;
        let name = data.get("type").and_then(Value::as_str).or(frame.event.as_deref());
        let name = name.unwrap_or_default().to_owned();
        let is_error = frame.exception || data.get("error").is_some_and(|error| !error.is_null());
        if is_error || name == "error" || name == "response.failed" {
            return Err(format!("the stream reports an error: {data}"));
        }
        events.push(StreamEvent { name, data });
    }
    Ok(events)
}

/// Assembles a stream of the Messages API.
fn message(events: Vec<StreamEvent>) -> Result<Value, String> {
    let mut content: Vec<Value> = Vec::new();
    let mut inputs: Vec<String> = Vec::new();
    for StreamEvent { name, data } in events {
        let index = data.get("index").and_then(Value::as_u64).unwrap_or_default();
        let index = usize::try_from(index).unwrap_or_default();
        match name.as_str() {
            "content_block_start" => {
                content.push(data.get("content_block").cloned().unwrap_or_default());
                inputs.push(String::new());
            }
            "content_block_delta" => {
                let delta = data.get("delta").and_then(Value::as_object);
                let (Some(delta), Some(block), Some(input)) =
                    (delta, content.get_mut(index), inputs.get_mut(index))
                else {
                    return Err("a delta of the stream belongs to no block".to_owned());
                };
                for (member, value) in delta.iter().filter(|(member, _)| *member != "type") {
                    match (member.as_str(), value.as_str()) {
                        ("partial_json", Some(text)) => input.push_str(text),
                        ("signature", Some(_)) | (_, None) => set(block, member, value.clone()),
                        (_, Some(text)) => append(block, member, text),
                    }
                }
            }
            _ => {}
        }
    }
    for (block, input) in content.iter_mut().zip(&inputs).filter(|(_, input)| !input.is_empty()) {
        set(block, "input", arguments(input)?);
    }
    if content.is_empty() {
        return Err("the stream contains no content".to_owned());
    }
    Ok(json!({"content": content}))
}

/// Assembles a stream of the Responses API, whose last event contains the complete response.
fn response(events: &[StreamEvent]) -> Result<Value, String> {
    let is_last = |event: &&StreamEvent| {
        ["response.completed", "response.incomplete"].contains(&event.name.as_str())
    };
    let last = events.iter().rfind(is_last).and_then(|event| event.data.get("response"));
    let last = last.ok_or_else(|| "the stream ended without response.completed".to_owned())?;
    let output = last.get("output").and_then(Value::as_array);
    if output.is_some_and(|output| !output.is_empty()) {
        return Ok(last.clone());
    }
    let is_done = |event: &&StreamEvent| event.name == "response.output_item.done";
    let items = events.iter().filter(is_done).filter_map(|event| event.data.get("item"));
    Ok(json!({"output": items.collect::<Vec<_>>()}))
}

/// Assembles a stream of Chat Completions.
fn completion(events: &[StreamEvent]) -> Result<Value, String> {
    let mut message = json!({"role": "assistant", "content": null});
    let mut has_delta = false;
    for event in events {
        let delta = event.data.pointer("/choices/0/delta").and_then(Value::as_object);
        for (member, value) in delta.into_iter().flatten() {
            has_delta = true;
            match (member.as_str(), value) {
                ("role", _) | (_, Value::Null) => {}
                (member, Value::String(text)) => append(&mut message, member, text),
                (member, Value::Array(parts)) => merge_list(&mut message, member, parts),
                (member, value) => set(&mut message, member, value.clone()),
            }
        }
    }
    if !has_delta {
        return Err("the stream contains no content".to_owned());
    }
    flatten_content_blocks(&mut message);
    let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
    for call in calls.into_iter().flatten().filter_map(Value::as_object_mut) {
        call.shift_remove("index");
    }
    Ok(json!({"choices": [{"message": message}]}))
}

/// Converts the `content_blocks` that Portkey streams, `{index, delta}` without a type, to the
/// blocks that Portkey accepts in requests.
fn flatten_content_blocks(message: &mut Value) {
    let blocks = message.get_mut("content_blocks").and_then(Value::as_array_mut);
    for block in blocks.into_iter().flatten() {
        let Some(delta) = block.get_mut("delta").map(Value::take) else { continue };
        let kinds = [("thinking", "thinking"), ("data", "redacted_thinking"), ("text", "text")];
        let kind = kinds.iter().find(|(member, _)| delta.get(member).is_some());
        let mut flat = json!({"type": kind.map_or("thinking", |(_, kind)| kind)});
        merge_part(&mut flat, &delta);
        *block = flat;
    }
}

/// Merges the parts of a streamed list, such as `tool_calls` or `reasoning_details`. Parts with the
/// same index belong together.
fn merge_list(message: &mut Value, member: &str, parts: &[Value]) {
    let Some(members) = message.as_object_mut() else { return };
    let list = members.entry(member).or_insert_with(|| json!([]));
    let Some(list) = list.as_array_mut() else { return };
    for part in parts {
        let known = match part.get("index") {
            Some(index) => list.iter_mut().find(|known| {
                known.get("index") == Some(index) && known.get("type") == part.get("type")
                    || member == "tool_calls" && known.get("index") == Some(index)
            }),
            // LiteLLM streams a thinking block in parts without an index. The part with the
            // signature is the last one.
            None => list.last_mut().filter(|known| {
                let is_open = |block: &Value| {
                    block.get("signature").and_then(Value::as_str).is_none_or(str::is_empty)
                };
                member == "thinking_blocks" && is_open(known)
            }),
        };
        match known {
            Some(known) => merge_part(known, part),
            None => list.push(part.clone()),
        }
    }
}

/// Merges a streamed part: texts are appended, other values replaced.
fn merge_part(known: &mut Value, part: &Value) {
    const TEXTS: [&str; 5] = ["text", "summary", "thinking", "arguments", "data"];
    for (member, value) in part.as_object().into_iter().flatten() {
        match value {
            Value::Null => {}
            Value::String(text) if TEXTS.contains(&member.as_str()) => append(known, member, text),
            Value::String(text) if text.is_empty() => {}
            Value::Object(_) if member == "delta" => match known.get_mut("delta") {
                Some(delta) => merge_block_delta(delta, value),
                None => set(known, "delta", value.clone()),
            },
            Value::Object(_) if member == "function" => {
                let function = known.get_mut("function").filter(|function| function.is_object());
                match function {
                    Some(function) => {
                        for (name, text) in value.as_object().into_iter().flatten() {
                            match (name.as_str(), text.as_str()) {
                                ("arguments", Some(text)) => append(function, "arguments", text),
                                (_, Some("") | None) => {}
                                (name, Some(text)) => set(function, name, text.into()),
                            }
                        }
                    }
                    None => set(known, "function", value.clone()),
                }
            }
            value => set(known, member, value.clone()),
        }
    }
}

/// Merges a delta of a content block, whose members are texts.
fn merge_block_delta(known: &mut Value, delta: &Value) {
    for (member, value) in delta.as_object().into_iter().flatten() {
        match value {
            Value::String(text) => append(known, member, text),
            value => set(known, member, value.clone()),
        }
    }
}

/// Assembles a stream of the Gemini API. Consecutive text parts of the same kind are joined, as in
/// Gemini CLI; a part with a signature ends a text.
fn candidate(events: &[StreamEvent]) -> Result<Value, String> {
    let mut parts: Vec<Value> = Vec::new();
    let chunks = events.iter().filter_map(|event| {
        event.data.pointer("/candidates/0/content/parts").and_then(Value::as_array)
    });
    for part in chunks.flatten() {
        let is_text =
            |part: &Value| part.get("text").is_some() && part.get("thoughtSignature").is_none();
        let text = part.get("text").and_then(Value::as_str).filter(|_| is_text(part));
        let previous = parts
            .last_mut()
            .filter(|previous| is_text(previous) && previous.get("thought") == part.get("thought"));
        match (text, previous) {
            (Some(text), Some(previous)) => append(previous, "text", text),
            (_, _) => parts.push(part.clone()),
        }
    }
    if parts.is_empty() {
        return Err("the stream contains no content".to_owned());
    }
    Ok(json!({"candidates": [{"content": {"role": "model", "parts": parts}}]}))
}

/// Assembles a stream of the Converse API.
fn converse_message(events: &[StreamEvent]) -> Result<Value, String> {
    let mut blocks: Vec<Value> = Vec::new();
    let mut inputs: Vec<String> = Vec::new();
    for StreamEvent { name, data } in events {
        let index = data.get("contentBlockIndex").and_then(Value::as_u64).unwrap_or_default();
        let index = usize::try_from(index).unwrap_or_default();
        if !["contentBlockStart", "contentBlockDelta"].contains(&name.as_str()) {
            continue;
        }
        if index > blocks.len() {
            return Err("the stream skips a block".to_owned());
        }
        if index == blocks.len() {
            blocks.push(json!({}));
            inputs.push(String::new());
        }
        let (Some(block), Some(input)) = (blocks.get_mut(index), inputs.get_mut(index)) else {
            continue;
        };
        if let Some(call) = data.pointer("/start/toolUse") {
            set(block, "toolUse", call.clone());
        }
        let Some(delta) = data.get("delta") else { continue };
        if let Some(text) = delta.get("text").and_then(Value::as_str) {
            append(block, "text", text);
        }
        if let Some(text) = delta.pointer("/toolUse/input").and_then(Value::as_str) {
            input.push_str(text);
        }
        let reasoning = delta.get("reasoningContent").and_then(Value::as_object);
        for (member, value) in reasoning.into_iter().flatten() {
            merge_reasoning(block, member, value);
        }
    }
    for (block, input) in blocks.iter_mut().zip(&inputs) {
        if let Some(call) = block.get_mut("toolUse") {
            let text = if input.is_empty() { "{}" } else { input };
            set(call, "input", arguments(text)?);
        }
    }
    if blocks.is_empty() {
        return Err("the stream contains no content".to_owned());
    }
    Ok(json!({"output": {"message": {"role": "assistant", "content": blocks}}}))
}

/// Adds a streamed part of reasoning to a block of the Converse API.
fn merge_reasoning(block: &mut Value, member: &str, value: &Value) {
    let Some(members) = block.as_object_mut() else { return };
    let reasoning = members.entry("reasoningContent").or_insert_with(|| json!({}));
    if member == "redactedContent" {
        set(reasoning, member, value.clone());
        return;
    }
    let Some(reasoning) = reasoning.as_object_mut() else { return };
    let text = reasoning.entry("reasoningText").or_insert_with(|| json!({"text": ""}));
    match value.as_str() {
        Some(part) => append(text, member, part),
        None => set(text, member, value.clone()),
    }
}

fn arguments(text: &str) -> Result<Value, String> {
    serde_json::from_str(text)
        .map_err(|error| format!("the arguments of a streamed call are not valid JSON: {error}"))
}

fn set(object: &mut Value, member: &str, value: Value) {
    if let Some(members) = object.as_object_mut() {
        members.insert(member.to_owned(), value);
    }
}

fn append(object: &mut Value, member: &str, text: &str) {
    let Some(members) = object.as_object_mut() else { return };
    match members.get_mut(member) {
        Some(Value::String(known)) => known.push_str(text),
        Some(_) | None => drop(members.insert(member.to_owned(), text.into())),
    }
}

#[cfg(test)]
#[path = "assembly_tests.rs"]
mod assembly_tests;
