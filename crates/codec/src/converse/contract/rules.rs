//! What Converse refuses, rule by rule, and what the rules of the Claudes are called here.

mod blocks;
mod order;
mod replay;
mod settings;

use throughline_core::{Json, Node, json};

use crate::audit::Rule;
use crate::claude::Book;
use crate::claude::view::Block;
use crate::converse::contract::forced_tools;
pub(super) use crate::converse::contract::rules::blocks::{BLANK_TEXT, EMPTY_SIGNATURE};
use crate::converse::wire;

/// The rules of this wire.
pub(crate) static RULES: &[&Rule] = &[
    &order::TOOL_LOOP_NEEDS_THINKING,
    &blocks::SIGNATURE_MISSING,
    &blocks::SIGNATURE_INVALID,
    &replay::THINKING_MODIFIED,
    &replay::THINKING_DROPPED,
    &replay::PREFIX_CHANGED,
    &settings::MODE_NOT_SUPPORTED,
    &settings::BUDGET_TOO_SMALL,
    &settings::BUDGET_NOT_BELOW_MAX_TOKENS,
    &settings::FORCED_TOOL_CHOICE,
    &settings::EFFORT_NOT_SUPPORTED,
    &settings::SAMPLING_FIXED,
    &order::PREFILL_REFUSED,
    &order::ENDS_IN_THINKING,
    &replay::BLOCK_UNREADABLE,
    &blocks::THOUGHT_AS_TEXT,
    &order::TOOL_CALL_UNANSWERED,
    &blocks::BLANK_TEXT,
    &blocks::EMPTY_SIGNATURE,
];

/// The rules of the Claudes as this wire calls and words them.
pub(super) static BOOK: Book = Book {
    tool_loop_needs_thinking: &order::TOOL_LOOP_NEEDS_THINKING,
    signature_missing: &blocks::SIGNATURE_MISSING,
    signature_invalid: &blocks::SIGNATURE_INVALID,
    thinking_modified: &replay::THINKING_MODIFIED,
    thinking_dropped: &replay::THINKING_DROPPED,
    prefix_changed: &replay::PREFIX_CHANGED,
    mode_not_supported: &settings::MODE_NOT_SUPPORTED,
    budget_too_small: &settings::BUDGET_TOO_SMALL,
    budget_not_below_max_tokens: &settings::BUDGET_NOT_BELOW_MAX_TOKENS,
    forced_tool_choice: &settings::FORCED_TOOL_CHOICE,
    effort_not_supported: &settings::EFFORT_NOT_SUPPORTED,
    sampling_fixed: &settings::SAMPLING_FIXED,
    prefill_refused: &order::PREFILL_REFUSED,
    ends_in_thinking: &order::ENDS_IN_THINKING,
    block_unreadable: &replay::BLOCK_UNREADABLE,
    thought_as_text: &blocks::THOUGHT_AS_TEXT,
    tool_call_unanswered: &order::TOOL_CALL_UNANSWERED,
    sealed_content_changed: None,
    wraps,
    unanswered,
    unasked,
    forced_tools,
    free_choice,
    project: wire::project,
};

/// Bedrock passes the model's words on behind its own.
fn wraps(words: &str) -> String {
    format!("The model returned the following errors: {words}")
}

/// Bedrock looks for the results itself, before the model does.
fn unanswered(message: usize, ids: &str) -> String {
    let next = message + 1;
    format!("Expected toolResult blocks at messages.{next}.content for the following Ids: {ids}")
}

fn unasked(block: &Block<'_>, _: &str) -> String {
    let message = block.message;
    format!(
        "The number of toolResult blocks at messages.{message}.content exceeds the number of toolUse blocks of \
         previous turn."
    )
}

fn free_choice(_: Node<'_>) -> Json {
    json::object(|o| {
        o.object("auto", |_| {});
    })
}
