//! The rules of Converse, and the names of the Claude rules on this wire.

use std::sync::LazyLock;

use throughline_core::{Target, Wire};
use throughline_json::{self as json, Json, Node};

use crate::audit::rule_book::declare_rules;
use crate::claude::view::ClaudeBlock;
use crate::claude::{ClaudeRules, is_bound_claude, is_claude};
use crate::converse::contract::forced_tools;
use crate::converse::wire;

declare_rules! {
    Wire::BEDROCK_CONVERSE, "bedrock.toml";
    TOOL_LOOP_NEEDS_THINKING = "bedrock/tool-loop-needs-thinking" if is_claude;
    SIGNATURE_MISSING = "bedrock/signature-missing" if is_claude;
    SIGNATURE_INVALID = "bedrock/signature-invalid" if is_claude;
    THINKING_MODIFIED = "bedrock/thinking-modified" if is_claude, prior 1 2;
    THINKING_DROPPED = "bedrock/thinking-dropped" if is_claude, prior 1 2;
    PREFIX_CHANGED = "bedrock/prefix-changed" if is_bound_claude, prior 1 2;
    MODE_NOT_SUPPORTED = "bedrock/mode-not-supported" if is_claude;
    BUDGET_TOO_SMALL = "bedrock/budget-too-small" if is_claude;
    BUDGET_NOT_BELOW_MAX_TOKENS = "bedrock/budget-not-below-max-tokens" if is_claude;
    FORCED_TOOL_CHOICE = "bedrock/forced-tool-choice" if is_claude;
    EFFORT_NOT_SUPPORTED = "bedrock/effort-not-supported" if is_claude;
    SAMPLING_FIXED = "bedrock/sampling-fixed" if is_claude;
    PREFILL_REFUSED = "bedrock/prefill-refused" if is_claude;
    ENDS_IN_THINKING = "bedrock/ends-in-thinking" if is_claude;
    BLOCK_UNREADABLE = "bedrock/block-unreadable" if is_claude, prior 1 2;
    THOUGHT_AS_TEXT = "bedrock/thought-as-text" if is_claude;
    TOOL_CALL_UNANSWERED = "bedrock/tool-call-unanswered";
    BLANK_TEXT = "bedrock/blank-text";
    EMPTY_SIGNATURE = "bedrock/empty-signature" if rejects_empty_signature;
}

/// The Claude rules with the names and errors of this wire.
pub(super) static BOOK: LazyLock<ClaudeRules> = LazyLock::new(|| ClaudeRules {
    tool_loop_needs_thinking: &TOOL_LOOP_NEEDS_THINKING,
    signature_missing: &SIGNATURE_MISSING,
    signature_invalid: &SIGNATURE_INVALID,
    thinking_modified: &THINKING_MODIFIED,
    thinking_dropped: &THINKING_DROPPED,
    prefix_changed: &PREFIX_CHANGED,
    mode_not_supported: &MODE_NOT_SUPPORTED,
    budget_too_small: &BUDGET_TOO_SMALL,
    budget_not_below_max_tokens: &BUDGET_NOT_BELOW_MAX_TOKENS,
    forced_tool_choice: &FORCED_TOOL_CHOICE,
    effort_not_supported: &EFFORT_NOT_SUPPORTED,
    sampling_fixed: &SAMPLING_FIXED,
    prefill_refused: &PREFILL_REFUSED,
    ends_in_thinking: &ENDS_IN_THINKING,
    block_unreadable: &BLOCK_UNREADABLE,
    thought_as_text: &THOUGHT_AS_TEXT,
    tool_call_unanswered: &TOOL_CALL_UNANSWERED,
    sealed_content_changed: None,
    wraps: wrap_error,
    unanswered: unanswered_error,
    unasked: unmatched_result_error,
    forced_tools,
    free_choice: unforced_choice,
    project: wire::project,
});

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

/// Returns whether the model has no signatures and rejects an empty one.
fn rejects_empty_signature(target: &Target) -> bool {
    let note = target.profile.notes.get("empty-signature");
    note.is_some_and(|note| note == "refused")
}
