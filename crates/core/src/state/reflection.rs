//! Reflections: short notes between tool calls that are no turns of the conversation.

use crate::document::record;
use crate::name::Name;
use crate::number::Number;
use crate::reasoning::Cadence;

record! {
    /// What a reflection cost.
    #[derive(Default)]
    ReflectionUsage {
        /// Tokens that the model read.
        "inputTokens" => input_tokens?: u64,
        /// Tokens that it wrote.
        "outputTokens" => output_tokens?: u64,
        /// Tokens that it found in its cache.
        "cachedInputTokens" => cached_input_tokens?: u64,
        /// All of them.
        "totalTokens" => total_tokens?: u64,
        /// Tokens that it thought with.
        "reasoningTokens" => reasoning_tokens?: u64,
    }
}

record! {
    /// One reflection, for keeping, timelines and review.
    ReflectionRecord {
        /// Its id.
        "id" => id: Name,
        /// The turn after which it was made.
        "turn" => turn: u64,
        /// What the agent noted.
        "text" => text: Name,
        /// When.
        "createdAt" => created_at: Name,
        /// How long it took, in milliseconds.
        "durationMs" => duration_ms?: Number,
        /// The message that it belongs behind.
        "anchorMessageIndex" => anchor_message_index?: u64,
        /// Which cadence called for it.
        "trigger" => trigger?: Cadence,
        /// What it cost.
        "usage" => usage?: ReflectionUsage,
        /// The tool calls that it is about.
        "toolCallIds" => tool_call_ids?: Vec<Name>,
    }
}
