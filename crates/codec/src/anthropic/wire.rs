//! The Messages API's own words: block types, stop reasons, usage, and which fields of a block hold Seals.

use throughline_core::{Json, Label, Name, Node, Stop, Usage, json};

use crate::Document;

/// The member of `usage` that counts thinking.
const THINKING: &str = "/output_tokens_details/thinking_tokens";

/// Whether a document is one of this wire's.
pub(super) fn recognise(document: Node<'_>) -> Option<Document> {
    let kind = document.text_of("type");
    match kind.as_deref() {
        Some("message") if document.get("content").is_some() => return Some(Document::Response),
        Some(
            "message_start"
            | "message_delta"
            | "message_stop"
            | "content_block_start"
            | "content_block_delta"
            | "content_block_stop"
            | "ping",
        ) => return Some(Document::Event),
        Some("error") if document.at("/error/type").is_some() => return Some(Document::Response),
        Some(_) | None => {}
    }
    let messages = document.get("messages").filter(|messages| messages.is_array())?;
    // `max_tokens` is required here and so is usually there; the rest never stands in a chat request.
    let is_ours = document.get("anthropic_version").is_some()
        || document.get("system").is_some() && document.get("max_tokens").is_some()
        || document.at("/thinking/budget_tokens").is_some()
        || document.get("output_config").is_some()
        || document.at("/tools/0/input_schema").is_some()
        || messages.elements().any(|message| has_own_block(message.get("content")));
    let is_plain = document.get("max_tokens").is_some()
        && document.text_of("model").is_some_and(|model| model.contains("claude"))
        && !model_is_routed(document);
    (is_ours || is_plain).then_some(Document::Request)
}

fn has_own_block(content: Option<Node<'_>>) -> bool {
    let blocks = content.into_iter().flat_map(Node::elements);
    let mut types = blocks.filter_map(|block| Some((block.text_of("type")?, block)));
    types.any(|(kind, block)| match &*kind {
        "tool_use" | "tool_result" | "redacted_thinking" | "server_tool_use" => true,
        "thinking" => block.get("thinking").is_some_and(Node::is_string),
        _ => false,
    })
}

/// Chat gateways write the maker before the model: `anthropic/claude-…`.
fn model_is_routed(document: Node<'_>) -> bool {
    document.text_of("model").is_some_and(|model| model.contains('/'))
}

/// What a content block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Block {
    Text,
    Thinking,
    RedactedThinking,
    Image,
    Document,
    ToolUse,
    ToolResult,
    HostedCall,
    HostedResult,
    Compaction,
    Unknown,
}

impl Block {
    pub(super) fn of(kind: &str) -> Self {
        match kind {
            "text" => Self::Text,
            "thinking" => Self::Thinking,
            "redacted_thinking" => Self::RedactedThinking,
            "image" => Self::Image,
            "document" => Self::Document,
            "tool_use" => Self::ToolUse,
            "tool_result" => Self::ToolResult,
            "server_tool_use" | "mcp_tool_use" => Self::HostedCall,
            "compaction" => Self::Compaction,
            other if other.ends_with("_tool_result") => Self::HostedResult,
            _ => Self::Unknown,
        }
    }

    /// Whether a block of this kind can hold a Seal at all.
    pub(super) fn may_seal(self) -> bool {
        !matches!(self, Self::Image | Self::Document | Self::ToolUse | Self::ToolResult)
    }

    /// Whether a member of this block, at any depth, holds a Seal.
    pub(super) fn seals(self, key: &str) -> Option<Label> {
        let is_sealed = match self {
            Self::Thinking => key == "signature",
            Self::RedactedThinking => key == "data",
            Self::Text => key == "encrypted_index",
            Self::Compaction => key == "encrypted_content" || key == "signature",
            Self::HostedCall | Self::HostedResult | Self::Unknown => key.starts_with("encrypted_"),
            Self::Image | Self::Document | Self::ToolUse | Self::ToolResult => false,
        };
        is_sealed.then(|| Label::Owned(format!("anthropic.{key}")))
    }
}

/// The members of a response block that a request takes too. Everything else that a response may add to a block of
/// a known type is refused as an extra input; blocks of other types go back whole.
pub(super) fn input_members(block: Block) -> Option<&'static [&'static str]> {
    match block {
        Block::Text => Some(&["type", "text", "citations", "cache_control"]),
        Block::Thinking => Some(&["type", "thinking", "signature"]),
        Block::RedactedThinking => Some(&["type", "data"]),
        Block::ToolUse => Some(&["type", "id", "name", "input", "caller", "cache_control"]),
        Block::Image
        | Block::Document
        | Block::ToolResult
        | Block::HostedCall
        | Block::HostedResult
        | Block::Compaction
        | Block::Unknown => None,
    }
}

/// A response block as a request would say it. Members that are `null` were never there.
pub(super) fn project(block: &Json) -> Json {
    let tree = block.tree();
    let node = tree.root();
    let kind = Block::of(&node.text_of("type").unwrap_or_default());
    let Some(taken) = input_members(kind) else { return block.clone() };
    let is_taken = |(key, value): &(Node<'_>, Node<'_>)| {
        taken.iter().any(|member| key.is(member)) && !value.is_null()
    };
    if node.members().all(|member| is_taken(&member)) {
        return block.clone();
    }
    json::object(|o| {
        for (key, value) in node.members().filter(is_taken) {
            o.node(&key.text().unwrap_or_default(), value);
        }
    })
}

/// Why a message ended.
pub(super) fn stop(reason: Option<&str>, sequence: Option<Name>) -> Stop {
    match reason {
        Some("end_turn") => Stop::Done,
        Some("tool_use") => Stop::Tools,
        Some("max_tokens" | "model_context_window_exceeded") => Stop::Length,
        Some("stop_sequence") => Stop::Sequence(sequence),
        Some("pause_turn") => Stop::Paused,
        Some("refusal") => Stop::Refused(Name::from("refusal")),
        Some(other) => Stop::Other(Name::from(other)),
        None => Stop::Cut,
    }
}

/// The words for why a message ended: reason and stop sequence.
pub(super) fn stop_words(stop: &Stop) -> (Option<&str>, Option<&str>) {
    match stop {
        Stop::Done => (Some("end_turn"), None),
        Stop::Tools => (Some("tool_use"), None),
        Stop::Length => (Some("max_tokens"), None),
        Stop::Sequence(sequence) => (Some("stop_sequence"), sequence.as_deref()),
        Stop::Paused => (Some("pause_turn"), None),
        Stop::Refused(_) => (Some("refusal"), None),
        Stop::Other(word) => (Some(word), None),
        Stop::Cut => (None, None),
    }
}

/// Reads a `usage` object over what is known already: a stream tells it in two pieces.
pub(super) fn usage(node: Node<'_>, known: Usage) -> Usage {
    let count = |key: &str| node.get(key).and_then(Node::u64);
    let fresh = count("input_tokens");
    let cached = count("cache_read_input_tokens").unwrap_or(known.cached);
    let written = count("cache_creation_input_tokens").unwrap_or(known.written);
    let before = known.fresh();
    Usage {
        input: fresh.unwrap_or(before).saturating_add(cached).saturating_add(written),
        cached,
        written,
        output: count("output_tokens").unwrap_or(known.output),
        thought: node.at(THINKING).and_then(Node::u64).unwrap_or(known.thought),
    }
}

/// Writes a `usage` object.
pub(super) fn usage_json(usage: &Usage) -> Json {
    json::object(|o| {
        o.number("input_tokens", usage.fresh());
        o.number("cache_creation_input_tokens", usage.written);
        o.number("cache_read_input_tokens", usage.cached);
        o.number("output_tokens", usage.output);
        o.object("output_tokens_details", |o| {
            o.number("thinking_tokens", usage.thought);
        });
    })
}
