//! The `replayCompatibility` tags of the built-in wires.
//!
//! A tag names the wire format of a Thought's payload. The set of tags is open: a caller may use
//! any other name and declare it in [`ReplayPolicy::takes`](crate::ReplayPolicy::takes).

use crate::name::Wire;

/// An Anthropic `thinking` or `redacted_thinking` block.
pub const ANTHROPIC_MESSAGES_THINKING: &str = "anthropic-messages-thinking-v1";
/// An OpenAI Responses reasoning item.
pub const OPENAI_RESPONSES_REASONING_ITEM: &str = "openai-responses-reasoning-item-v1";
/// The reasoning of an OpenAI chat message, in the dialect of the endpoint that sent it.
pub const OPENAI_CHAT_REASONING: &str = "openai-chat-reasoning-v1";
/// A Gemini thought part.
pub const GEMINI_THOUGHT_PART: &str = "gemini-thought-part-v1";
/// A Bedrock Converse `reasoningContent` block.
pub const BEDROCK_CONVERSE_REASONING: &str = "bedrock-converse-reasoning-v1";

/// A `ThinkingBlock` of an `LLMMessage` whose provider is unknown.
pub const THINKING_BLOCK: &str = "llm-message-thinking-block-v1";
/// A Letta reasoning message whose provider is unknown.
pub const LETTA_REASONING: &str = "letta-reasoning-message-v1";
/// The readable text of a provider's Thought that cannot be replayed, because the Thought was
/// truncated or its native part is missing. Callers should not declare this tag.
pub const NOT_REPLAYABLE: &str = "not-replayable";

/// The built-in wires with the tags of their Thoughts.
pub const WIRE_TAGS: [(Wire, &str); 5] = [
    (Wire::ANTHROPIC_MESSAGES, ANTHROPIC_MESSAGES_THINKING),
    (Wire::OPENAI_RESPONSES, OPENAI_RESPONSES_REASONING_ITEM),
    (Wire::OPENAI_CHAT, OPENAI_CHAT_REASONING),
    (Wire::GEMINI, GEMINI_THOUGHT_PART),
    (Wire::BEDROCK_CONVERSE, BEDROCK_CONVERSE_REASONING),
];

/// Returns the tag for a wire's Thoughts; `None` if the wire is not built in.
pub fn tag_of(wire: &Wire) -> Option<&'static str> {
    WIRE_TAGS.iter().find(|(ours, _)| ours == wire).map(|(_, tag)| *tag)
}

/// Returns the wire whose Thoughts have this tag; `None` if the tag is not built in.
pub fn wire_of(tag: &str) -> Option<Wire> {
    WIRE_TAGS.into_iter().find(|(_, ours)| *ours == tag).map(|(wire, _)| wire)
}
