//! The `replayCompatibility` tags of our own wires, in one place.
//!
//! A tag says which wire shape a thought's payload has. Tags are free names: a caller may use any other, and
//! declare it in [`ReplayPolicy::takes`](crate::ReplayPolicy::takes).

use crate::name::Wire;

/// A payload that is an Anthropic `thinking` or `redacted_thinking` block.
pub const ANTHROPIC_MESSAGES_THINKING: &str = "anthropic-messages-thinking-v1";
/// A payload that is an OpenAI Responses reasoning item.
pub const OPENAI_RESPONSES_REASONING_ITEM: &str = "openai-responses-reasoning-item-v1";
/// A payload that is the reasoning of an OpenAI chat message, in its endpoint's dialect.
pub const OPENAI_CHAT_REASONING: &str = "openai-chat-reasoning-v1";
/// A payload that is a Gemini thought part.
pub const GEMINI_THOUGHT_PART: &str = "gemini-thought-part-v1";
/// A payload that is a Bedrock Converse `reasoningContent` block.
pub const BEDROCK_CONVERSE_REASONING: &str = "bedrock-converse-reasoning-v1";

/// A payload that is a `ThinkingBlock` of an `LLMMessage`, whose provider is not known.
pub const THINKING_BLOCK: &str = "llm-message-thinking-block-v1";
/// A payload that is one of Letta's reasoning messages, whose provider is not known.
pub const LETTA_REASONING: &str = "letta-reasoning-message-v1";
/// The readable rest of a thought that a provider issued and that cannot be replayed: it was cut off, or what
/// the wire said is gone. Nobody should declare it.
pub const NOT_REPLAYABLE: &str = "not-replayable";

/// Each of our wires with the tag of its thoughts.
pub const WIRE_TAGS: [(Wire, &str); 5] = [
    (Wire::ANTHROPIC_MESSAGES, ANTHROPIC_MESSAGES_THINKING),
    (Wire::OPENAI_RESPONSES, OPENAI_RESPONSES_REASONING_ITEM),
    (Wire::OPENAI_CHAT, OPENAI_CHAT_REASONING),
    (Wire::GEMINI, GEMINI_THOUGHT_PART),
    (Wire::BEDROCK_CONVERSE, BEDROCK_CONVERSE_REASONING),
];

/// The tag of a wire's thoughts; nothing for a wire that is not ours.
pub fn tag_of(wire: &Wire) -> Option<&'static str> {
    WIRE_TAGS.iter().find(|(ours, _)| ours == wire).map(|(_, tag)| *tag)
}

/// The wire whose thoughts have that tag.
pub fn wire_of(tag: &str) -> Option<Wire> {
    WIRE_TAGS.into_iter().find(|(_, ours)| *ours == tag).map(|(wire, _)| wire)
}
