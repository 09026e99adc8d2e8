//! Vocabulary of the chat API: parts, details, stop reasons, usage, the members that hold Seals,
//! and the response parts that a request accepts.

use throughline_core::{ReasoningChannel, StopReason, Target, Usage};
use throughline_json::{self as json, Json, Label, Name, Node};

use crate::Document;
use crate::chat::slot;
use crate::object::copy_members;

/// Classifies a document of this wire; `None` if the document does not belong to this wire.
pub(super) fn recognise(document: Node<'_>) -> Option<Document> {
    if let Some(messages) = document.get("messages").filter(|messages| messages.is_array()) {
        return (!is_request_of_other_wire(document, messages)).then_some(Document::Request);
    }
    let object = document.text_of("object");
    match object.as_deref() {
        Some("chat.completion") => return Some(Document::Response),
        Some("chat.completion.chunk") => return Some(Document::Event),
        Some(_) | None => {}
    }
    if let Some(choices) = document.get("choices").filter(|choices| choices.is_array()) {
        let first = choices.elements().next();
        let is_event = first.is_some_and(|choice| choice.get("delta").is_some());
        return Some(if is_event { Document::Event } else { Document::Response });
    }
    if is_ollama_response(document) {
        let is_last = document.get("done").and_then(Node::bool).unwrap_or(false);
        return Some(if is_last { Document::Response } else { Document::Event });
    }
    let error = document.present("error")?;
    (error.is_string() || error.get("message").is_some() && error.get("status").is_none())
        .then_some(Document::Response)
}

/// Returns whether a request uses blocks or tools of Anthropic or Bedrock, whose requests also have
/// a `messages` member.
fn is_request_of_other_wire(document: Node<'_>, messages: Node<'_>) -> bool {
    let blocks = messages.elements().filter_map(|message| message.get("content"));
    let mut blocks = blocks.flat_map(Node::elements);
    document.get("system").is_some()
        || document.get("inferenceConfig").is_some()
        || document.get("toolConfig").is_some()
        || document.at("/tools/0/input_schema").is_some()
        || blocks.any(|block| {
            let kind = block.text_of("type");
            let is_untyped = block.is_object() && kind.is_none();
            is_untyped || matches!(kind.as_deref(), Some("tool_use" | "tool_result"))
        })
}

/// Returns whether a document is a response in the format of Ollama's native API.
pub(super) fn is_ollama_response(document: Node<'_>) -> bool {
    document.get("message").is_some_and(Node::is_object) && document.get("done").is_some()
}

/// Returns whether requests to this target use the format of Ollama's native API.
pub(super) fn uses_ollama_api(target: &Target) -> bool {
    target.provider.dialect.channel == ReasoningChannel::Thinking
}

/// Returns whether a request sent to `path` uses the format of Ollama's native API.
pub(super) fn is_ollama_path(path: &str) -> bool {
    path.split('?').next().is_some_and(|path| path.ends_with("/api/chat"))
}

/// Maps a member name to its Seal format; `None` for members that hold no Seal in any slot.
pub(super) fn seal_format(key: &str) -> Option<Label> {
    let format = match key {
        "signature" => "openai-chat.signature",
        "data" => "openai-chat.data",
        "encrypted_content" => "openai-chat.encrypted_content",
        "thought_signature" => "openai-chat.thought_signature",
        "thoughtSignature" => "openai-chat.thoughtSignature",
        _ => return None,
    };
    Some(Label::Borrowed(format))
}

/// Returns whether the value at `pointer` inside a slot is a Seal.
pub(super) fn is_sealed(slot: &str, pointer: &str) -> bool {
    let key = pointer.rsplit('/').next().unwrap_or_default();
    let is_shallow = pointer.matches('/').count() == 1;
    match slot::first_member(slot) {
        slot::DETAILS => is_shallow && matches!(key, "signature" | "data" | "encrypted_content"),
        slot::CALLS | slot::FUNCTION_CALL => {
            is_signature(key) && !pointer.starts_with("/function/arguments")
        }
        _ => is_signature(key) || is_shallow && key == "signature",
    }
}

fn is_signature(key: &str) -> bool {
    matches!(key, "thought_signature" | "thoughtSignature")
}

/// The members of a call that a request accepts. Other members are dropped unless they contain a
/// Seal.
const CALL_MEMBERS: [&str; 4] = ["id", "type", "function", slot::EXTRA_CONTENT];
const FUNCTION_MEMBERS: [&str; 2] = ["name", "arguments"];

/// Converts a response part to the form that a request accepts. Reasoning and content are
/// unchanged. A call loses its index and endpoint-specific members; audio keeps only its id.
pub(super) fn to_request_part(slot_name: &str, part: &Json) -> Json {
    let tree = part.tree();
    let node = tree.root();
    match slot::first_member(slot_name) {
        slot::CALLS => json::object(|o| {
            let is_custom = node.get("type").is_some_and(|kind| kind.is("custom"));
            for (key, value) in node.members().filter(|(_, value)| !value.is_null()) {
                let name = key.text().unwrap_or_default();
                if &*name == "function" && !is_custom {
                    let is_taken = |(key, _): &(Node<'_>, Node<'_>)| {
                        let name = key.text().unwrap_or_default();
                        FUNCTION_MEMBERS.contains(&&*name) || is_signature(&name)
                    };
                    o.object("function", |o| copy_members(o, value.members().filter(is_taken)));
                } else if CALL_MEMBERS.contains(&&*name) && &*name != "function"
                    || is_custom && &*name == "custom"
                    || is_signature(&name)
                {
                    o.node(&name, value);
                }
            }
        }),
        slot::AUDIO => object! { "id": node.get("id") },
        _ => part.clone(),
    }
}

/// Maps a `finish_reason` to a stop reason. After tool calls, `stop` or a missing reason means that
/// the model waits for results.
pub(super) fn decode_stop(
    reason: Option<&str>,
    sequence: Option<Name>,
    has_calls: bool,
) -> StopReason {
    match reason {
        Some("tool_calls" | "function_call") => StopReason::Tools,
        Some("stop" | "") | None if has_calls => StopReason::Tools,
        Some("stop") if sequence.is_some() => StopReason::Sequence(sequence),
        Some("stop" | "") | None => StopReason::Done,
        Some("length" | "model_length") => StopReason::Length,
        Some("content_filter") => StopReason::Refused(Name::from("content_filter")),
        Some(other) => StopReason::Other(Name::from(other)),
    }
}

/// Maps a stop reason to a `finish_reason`; `None` if the response was cut.
pub(super) fn finish_reason(stop: &StopReason) -> Option<&str> {
    match stop {
        StopReason::Done | StopReason::Sequence(_) | StopReason::Paused => Some("stop"),
        StopReason::Tools => Some("tool_calls"),
        StopReason::Length => Some("length"),
        StopReason::Refused(_) => Some("content_filter"),
        StopReason::Other(word) => Some(word),
        StopReason::Cut => None,
    }
}

/// Reads a `usage` object, or the counts of Ollama's native response.
pub(super) fn usage(node: Node<'_>) -> Usage {
    let count = |pointer: &str| node.at(pointer).and_then(Node::u64);
    let first = |pointers: &[&str]| pointers.iter().find_map(|at| count(at)).unwrap_or(0);
    let input = first(&["/prompt_tokens", "/prompt_eval_count"]);
    let completion = first(&["/completion_tokens", "/eval_count"]);
    let thought = first(&["/completion_tokens_details/reasoning_tokens", "/reasoning_tokens"]);
    // xAI excludes reasoning tokens from the completion count; the total reveals which way they
    // were counted.
    let all = completion.saturating_add(thought);
    let is_apart = count("/total_tokens") == Some(input.saturating_add(all));
    Usage {
        input,
        cached: first(&[
            "/prompt_tokens_details/cached_tokens",
            "/prompt_cache_hit_tokens",
            "/cached_tokens",
        ]),
        written: first(&[
            "/prompt_tokens_details/cache_write_tokens",
            "/cache_creation_input_tokens",
        ]),
        output: if is_apart { all } else { completion },
        thought,
    }
}

pub(super) fn usage_json(usage: &Usage) -> Json {
    object! {
        "prompt_tokens": usage.input, "completion_tokens": usage.output,
        "total_tokens": usage.total(),
        "prompt_tokens_details": {
            "cached_tokens": usage.cached, "cache_write_tokens": usage.written,
        },
        "completion_tokens_details": { "reasoning_tokens": usage.thought },
    }
}
