//! Reflections: short notes that the agent makes between tool calls. They are not part of the
//! conversation.

use throughline_json::{Name, Number, record};

use crate::reasoning::Cadence;

record! {
    /// The token usage of a reflection.
    #[derive(Default)]
    ReflectionUsage {
        /// Input tokens.
        "inputTokens" => input_tokens?: u64,
        /// Output tokens.
        "outputTokens" => output_tokens?: u64,
        /// Input tokens read from the cache.
        "cachedInputTokens" => cached_input_tokens?: u64,
        /// Total tokens.
        "totalTokens" => total_tokens?: u64,
        /// Reasoning tokens.
        "reasoningTokens" => reasoning_tokens?: u64,
    }

    /// One reflection, for storage, timelines and review.
    ReflectionRecord {
        /// The id of the reflection.
        "id" => id: Name,
        /// The turn after which the reflection was made.
        "turn" => turn: u64,
        /// The text of the reflection.
        "text" => text: Name,
        /// When the reflection was made.
        "createdAt" => created_at: Name,
        /// The duration in milliseconds.
        "durationMs" => duration_ms?: Number,
        /// The index of the message that precedes the reflection.
        "anchorMessageIndex" => anchor_message_index?: u64,
        /// The cadence that triggered the reflection.
        "trigger" => trigger?: Cadence,
        /// The token usage.
        "usage" => usage?: ReflectionUsage,
        /// The tool calls that the reflection covers.
        "toolCallIds" => tool_call_ids?: Vec<Name>,
    }
}
