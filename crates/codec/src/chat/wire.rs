//! The chat wire's own words: parts, details, stop reasons, usage, which fields hold Seals, and what of a response a
//! request takes.

use throughline_core::{Channel, Json, Label, Name, Node, Stop, Target, Usage, json};

use crate::Document;
use crate::chat::slot;

/// Whether a document is one of this wire's.
pub(super) fn recognise(document: Node<'_>) -> Option<Document> {
    if let Some(messages) = document.get("messages").filter(|messages| messages.is_array()) {
        return (!is_anothers_request(document, messages)).then_some(Document::Request);
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
    if is_native_answer(document) {
        let is_last = document.get("done").and_then(Node::bool).unwrap_or(false);
        return Some(if is_last { Document::Response } else { Document::Event });
    }
    let error = document.present("error")?;
    (error.is_string() || error.get("message").is_some() && error.get("status").is_none())
        .then_some(Document::Response)
}

/// Whether a request has what only the other wires with `messages` have: Anthropic's and Bedrock's blocks and tools.
fn is_anothers_request(document: Node<'_>, messages: Node<'_>) -> bool {
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

/// Whether a document is an answer of Ollama's native API.
pub(super) fn is_native_answer(document: Node<'_>) -> bool {
    document.get("message").is_some_and(Node::is_object) && document.get("done").is_some()
}

/// Whether requests to this target are in the shape of Ollama's native API.
pub(super) fn speaks_native(target: &Target) -> bool {
    target.provider.dialect.channel == Channel::Thinking
}

/// Whether a request that went there has the shape of Ollama's native API.
pub(super) fn is_native_path(path: &str) -> bool {
    path.split('?').next().is_some_and(|path| path.ends_with("/api/chat"))
}

/// What a Seal is, by the name of the member that holds it; nothing for members that hold none in any slot.
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

/// Whether what `pointer` points to inside a slot is a Seal.
pub(super) fn is_sealed(slot: &str, pointer: &str) -> bool {
    let key = pointer.rsplit('/').next().unwrap_or_default();
    let is_shallow = pointer.matches('/').count() == 1;
    match slot::member(slot) {
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

/// The members of a call that a request takes. Others are left out, unless a Seal is in them.
const CALL_MEMBERS: [&str; 4] = ["id", "type", "function", slot::EXTRA_CONTENT];
const FUNCTION_MEMBERS: [&str; 2] = ["name", "arguments"];

/// A part of a response as a request would say it. Reasoning and content go back whole; a call loses its number and
/// what its endpoint added, a sound all but its id.
pub(super) fn project(slot_name: &str, part: &Json) -> Json {
    let tree = part.tree();
    let node = tree.root();
    match slot::member(slot_name) {
        slot::CALLS => json::object(|o| {
            let is_custom = node.get("type").is_some_and(|kind| kind.is("custom"));
            for (key, value) in node.members().filter(|(_, value)| !value.is_null()) {
                let name = key.text().unwrap_or_default();
                if &*name == "function" && !is_custom {
                    o.object("function", |o| {
                        for (key, value) in value.members() {
                            let name = key.text().unwrap_or_default();
                            if FUNCTION_MEMBERS.contains(&&*name) || is_signature(&name) {
                                o.node(&name, value);
                            }
                        }
                    });
                } else if CALL_MEMBERS.contains(&&*name) && &*name != "function"
                    || is_custom && &*name == "custom"
                    || is_signature(&name)
                {
                    o.node(&name, value);
                }
            }
        }),
        slot::AUDIO => json::object(|o| {
            if let Some(id) = node.get("id") {
                o.node("id", id);
            }
        }),
        _ => part.clone(),
    }
}

/// Why an answer ended. An endpoint that says `stop`, or nothing, after calling tools waits for them.
pub(super) fn stop(reason: Option<&str>, sequence: Option<Name>, has_calls: bool) -> Stop {
    match reason {
        Some("tool_calls" | "function_call") => Stop::Tools,
        Some("stop" | "") | None if has_calls => Stop::Tools,
        Some("stop") if sequence.is_some() => Stop::Sequence(sequence),
        Some("stop" | "") | None => Stop::Done,
        Some("length" | "model_length") => Stop::Length,
        Some("content_filter") => Stop::Refused(Name::from("content_filter")),
        Some(other) => Stop::Other(Name::from(other)),
    }
}

/// The word for why an answer ended.
pub(super) fn stop_word(stop: &Stop) -> Option<&str> {
    match stop {
        Stop::Done | Stop::Sequence(_) | Stop::Paused => Some("stop"),
        Stop::Tools => Some("tool_calls"),
        Stop::Length => Some("length"),
        Stop::Refused(_) => Some("content_filter"),
        Stop::Other(word) => Some(word),
        Stop::Cut => None,
    }
}

/// Reads a `usage` object, or the counts of Ollama's native answer.
pub(super) fn usage(node: Node<'_>) -> Usage {
    let count = |pointer: &str| node.at(pointer).and_then(Node::u64);
    let first = |pointers: &[&str]| pointers.iter().find_map(|at| count(at)).unwrap_or(0);
    let input = first(&["/prompt_tokens", "/prompt_eval_count"]);
    let completion = first(&["/completion_tokens", "/eval_count"]);
    let thought = first(&["/completion_tokens_details/reasoning_tokens", "/reasoning_tokens"]);
    // xAI does not count thoughts as completion; only the total tells.
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

/// Writes a `usage` object.
pub(super) fn usage_json(usage: &Usage) -> Json {
    json::object(|o| {
        o.number("prompt_tokens", usage.input).number("completion_tokens", usage.output);
        o.number("total_tokens", usage.total());
        o.object("prompt_tokens_details", |o| {
            o.number("cached_tokens", usage.cached).number("cache_write_tokens", usage.written);
        });
        o.object("completion_tokens_details", |o| {
            o.number("reasoning_tokens", usage.thought);
        });
    })
}
