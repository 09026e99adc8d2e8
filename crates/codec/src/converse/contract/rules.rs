//! The rules of Converse, and the names of the Claude rules on this wire.

mod blocks;
mod order;
mod replay;
mod settings;

use throughline_core::{Json, Node, json};

use crate::audit::Rule;
use crate::claude::ClaudeRules;
use crate::claude::view::ClaudeBlock;
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

/// The Claude rules with the names and errors of this wire.
pub(super) static BOOK: ClaudeRules = ClaudeRules {
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
    wraps: wrap_error,
    unanswered: unanswered_error,
    unasked: unmatched_result_error,
    forced_tools,
    free_choice: unforced_choice,
    project: wire::project,
};

/// Bedrock adds its own prefix to the model's error text.
fn wrap_error(words: &str) -> String {
    format!("The model returned the following errors: {words}")
}

/// Bedrock checks the tool results itself, before the model does.
fn unanswered_error(message: usize, ids: &str) -> String {
    let next = message + 1;
    format!("Expected toolResult blocks at messages.{next}.content for the following Ids: {ids}")
}

fn unmatched_result_error(block: &ClaudeBlock<'_>, _: &str) -> String {
    let message = block.message;
    format!(
        "The number of toolResult blocks at messages.{message}.content exceeds the number of toolUse blocks of \
         previous turn."
    )
}

fn unforced_choice(_: Node<'_>) -> Json {
    json::object(|o| {
        o.object("auto", |_| {});
    })
}
