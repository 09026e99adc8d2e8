//! The rules of the Messages API, and the names of the Claude rules on this wire.

mod blocks;
mod order;
mod replay;
mod settings;

use throughline_core::{ForcedTools, Json, Node, Profile, json};

pub(super) use crate::anthropic::contract::rules::blocks::COMPACTION_BLOCK_EMPTY;
pub(super) use crate::anthropic::contract::rules::replay::CACHE_PREFIX_BROKEN;
pub(super) use crate::anthropic::contract::rules::settings::{
    BINDING_NEEDS_BETA, COMPACTION_EXCLUSIVE, CONFIG_CHANGED_IN_LOOP,
};
use crate::anthropic::wire;
use crate::audit::Rule;
use crate::claude::ClaudeRules;
use crate::claude::view::ClaudeBlock;

/// The rules of this wire.
pub(crate) static RULES: &[&Rule] = &[
    &order::TOOL_LOOP_NEEDS_THINKING,
    &blocks::SIGNATURE_MISSING,
    &blocks::SIGNATURE_INVALID,
    &replay::THINKING_MODIFIED,
    &replay::THINKING_DROPPED,
    &replay::PREFIX_CHANGED,
    &settings::BINDING_NEEDS_BETA,
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
    &settings::CONFIG_CHANGED_IN_LOOP,
    &blocks::COMPACTION_BLOCK_EMPTY,
    &settings::COMPACTION_EXCLUSIVE,
    &replay::SEALED_CONTENT_CHANGED,
    &order::TOOL_CALL_UNANSWERED,
    &replay::CACHE_PREFIX_BROKEN,
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
    sealed_content_changed: Some(&replay::SEALED_CONTENT_CHANGED),
    wraps: wrap_error,
    unanswered: unanswered_error,
    unasked: unmatched_result_error,
    forced_tools,
    free_choice: unforced_choice,
    project: wire::project,
};

/// Anthropic returns the model's error text unchanged.
fn wrap_error(words: &str) -> String {
    words.to_owned()
}

fn unanswered_error(message: usize, ids: &str) -> String {
    format!(
        "messages.{message}: `tool_use` ids were found without `tool_result` blocks immediately after: {ids}. Each \
         `tool_use` block must have a corresponding `tool_result` block in the next message."
    )
}

fn unmatched_result_error(block: &ClaudeBlock<'_>, id: &str) -> String {
    format!(
        "{}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must have a \
         corresponding `tool_use` block in the previous message.",
        block.path()
    )
}

fn forced_tools(profile: &Profile) -> ForcedTools {
    profile.forced_tools
}

fn unforced_choice(choice: Node<'_>) -> Json {
    json::object(|o| {
        o.string("type", "auto");
        if let Some(parallel) = choice.get("disable_parallel_tool_use") {
            o.node("disable_parallel_tool_use", parallel);
        }
    })
}
