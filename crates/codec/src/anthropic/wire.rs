//! Vocabulary of the Messages API: block types, stop reasons, usage, and the members that hold
//! Seals.

use throughline_core::{StopReason, Usage};
use throughline_json::{self as json, Json, Label, Name, Node};

use self::AnthropicBlockKind as Kind;
use crate::Document;
use crate::object::copy_members;

/// JSON pointer to the number of thinking tokens in `usage`.
const THINKING: &str = "/output_tokens_details/thinking_tokens";

/// Classifies a document of this wire; `None` if the document does not belong to this wire.
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
    // `max_tokens` is required on this wire and therefore usually present. The other members never
    // occur in a chat request.
    let is_ours = document.get("anthropic_version").is_some()
        || document.get("system").is_some() && document.get("max_tokens").is_some()
        || document.at("/thinking/budget_tokens").is_some()
        || document.get("output_config").is_some()
        || document.at("/tools/0/input_schema").is_some()
        || messages.elements().any(|message| has_anthropic_block(message.get("content")));
    let is_plain = document.get("max_tokens").is_some()
        && document.text_of("model").is_some_and(|model| model.contains("claude"))
        && !model_is_routed(document);
    (is_ours || is_plain).then_some(Document::Request)
}

fn has_anthropic_block(content: Option<Node<'_>>) -> bool {
    let blocks = content.into_iter().flat_map(Node::elements);
    let mut types = blocks.filter_map(|block| Some((block.text_of("type")?, block)));
    types.any(|(kind, block)| match &*kind {
        "tool_use" | "tool_result" | "redacted_thinking" | "server_tool_use" => true,
        "thinking" => block.get("thinking").is_some_and(Node::is_string),
        _ => false,
    })
}

/// Returns whether the model name has a vendor prefix, as on chat gateways: `anthropic/claude-…`.
fn model_is_routed(document: Node<'_>) -> bool {
    document.text_of("model").is_some_and(|model| model.contains('/'))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnthropicBlockKind {
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

impl AnthropicBlockKind {
    pub(super) fn from_type(kind: &str) -> Self {
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

    pub(super) fn can_hold_seal(self) -> bool {
        !matches!(self, Self::Image | Self::Document | Self::ToolUse | Self::ToolResult)
    }

    /// Returns the Seal format of a member at any depth in this block; `None` if the member holds
    /// no Seal.
    pub(super) fn seal_format(self, key: &str) -> Option<Label> {
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

/// Returns the members of a response block that a request accepts; `None` if the block is sent back
/// whole. For the listed block types, the API rejects all other members.
pub(super) fn input_members(block: Kind) -> Option<&'static [&'static str]> {
    match block {
        Kind::Text => Some(&["type", "text", "citations", "cache_control"]),
        Kind::Thinking => Some(&["type", "thinking", "signature"]),
        Kind::RedactedThinking => Some(&["type", "data"]),
        Kind::ToolUse => Some(&["type", "id", "name", "input", "caller", "cache_control"]),
        _ => None,
    }
}

/// Converts a response block to its request form. `null` members are dropped.
pub(super) fn project(block: &Json) -> Json {
    let tree = block.tree();
    let node = tree.root();
    let kind = Kind::from_type(&node.text_of("type").unwrap_or_default());
    let Some(accepted) = input_members(kind) else { return block.clone() };
    let is_accepted = |(key, value): &(Node<'_>, Node<'_>)| {
        accepted.iter().any(|member| key.is(member)) && !value.is_null()
    };
    if node.members().all(|member| is_accepted(&member)) {
        return block.clone();
    }
    json::object(|o| copy_members(o, node.members().filter(is_accepted)))
}

pub(super) fn stop(reason: Option<&str>, sequence: Option<Name>) -> StopReason {
    match reason {
        Some("end_turn") => StopReason::Done,
        Some("tool_use") => StopReason::Tools,
        Some("max_tokens" | "model_context_window_exceeded") => StopReason::Length,
        Some("stop_sequence") => StopReason::Sequence(sequence),
        Some("pause_turn") => StopReason::Paused,
        Some("refusal") => StopReason::Refused(Name::from("refusal")),
        Some(other) => StopReason::Other(Name::from(other)),
        None => StopReason::Cut,
    }
}

/// Maps a stop reason to the wire's `stop_reason` and `stop_sequence` values.
pub(super) fn stop_reason(stop: &StopReason) -> (Option<&str>, Option<&str>) {
    match stop {
        StopReason::Done => (Some("end_turn"), None),
        StopReason::Tools => (Some("tool_use"), None),
        StopReason::Length => (Some("max_tokens"), None),
        StopReason::Sequence(sequence) => (Some("stop_sequence"), sequence.as_deref()),
        StopReason::Paused => (Some("pause_turn"), None),
        StopReason::Refused(_) => (Some("refusal"), None),
        StopReason::Other(word) => (Some(word), None),
        StopReason::Cut => (None, None),
    }
}

/// Merges a `usage` object into the known usage, because a stream reports usage in two parts.
pub(super) fn usage(node: Node<'_>, known: Usage) -> Usage {
    let count = |key: &str| node.get(key).and_then(Node::u64);
    let fresh = count("input_tokens");
    let cached = count("cache_read_input_tokens").unwrap_or(known.cached);
    let written = count("cache_creation_input_tokens").unwrap_or(known.written);
    let before = known.uncached_input();
    Usage {
        input: fresh.unwrap_or(before).saturating_add(cached).saturating_add(written),
        cached,
        written,
        output: count("output_tokens").unwrap_or(known.output),
        thought: node.at(THINKING).and_then(Node::u64).unwrap_or(known.thought),
    }
}

pub(super) fn usage_json(usage: &Usage) -> Json {
    object! {
        "input_tokens": usage.uncached_input(), "cache_creation_input_tokens": usage.written,
        "cache_read_input_tokens": usage.cached, "output_tokens": usage.output,
        "output_tokens_details": { "thinking_tokens": usage.thought },
    }
}
