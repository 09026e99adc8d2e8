//! Declares the rules of Converse, including the Claude rules under their names on this wire.

use throughline_core::{Target, Wire};

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
    EARLIER_THINKING_MISSING = "bedrock/earlier-thinking-missing"
        if is_bound_claude, prior 1 2 3 4;
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

/// The Claude rules with this wire's names and errors. Bedrock adds a prefix to the model's error
/// text.
pub(super) static BOOK: ClaudeRules = ClaudeRules {
    wire: Wire::BEDROCK_CONVERSE,
    rules: &RULES,
    error_prefix: "The model returned the following errors: ",
    unanswered: unanswered_error,
    unasked: unmatched_result_error,
    repeated: unmatched_result_error,
    forced_tools,
    free_choice: |_| object! { "auto": {} },
    project: wire::project,
};

/// Returns Bedrock's own error, because Bedrock checks tool results before the model does.
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

/// Returns whether the model does not sign reasoning and rejects an empty signature.
fn rejects_empty_signature(target: &Target) -> bool {
    let note = target.profile.notes.get("empty-signature");
    note.is_some_and(|note| note == "refused")
}
