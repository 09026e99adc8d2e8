//! Declares the rules of the Messages API, including the Claude rules under their names on this
//! wire.

use throughline_core::{Mode, Target, Wire};
use throughline_json::{Json, Node};

use crate::anthropic::wire;
use crate::audit::rule_book::declare_rules;
use crate::claude::view::ClaudeBlock;
use crate::claude::{ClaudeRules, is_bound_claude, is_claude};

declare_rules! {
    Wire::ANTHROPIC_MESSAGES, "anthropic.toml";
    TOOL_LOOP_NEEDS_THINKING = "anthropic/tool-loop-needs-thinking" if is_claude;
    SIGNATURE_MISSING = "anthropic/signature-missing" if is_claude;
    THINKING_EMPTY = "anthropic/thinking-empty" if is_claude;
    SIGNATURE_INVALID = "anthropic/signature-invalid" if is_claude;
    THINKING_MODIFIED = "anthropic/thinking-modified" if is_claude, prior 1 2;
    THINKING_DROPPED = "anthropic/thinking-dropped" if is_claude, prior 1 2;
    PREFIX_CHANGED = "anthropic/prefix-changed" if is_bound_claude, prior 1 2;
    EARLIER_THINKING_MISSING = "anthropic/earlier-thinking-missing"
        if is_bound_claude, prior 1 2 3 4;
    BINDING_NEEDS_BETA = "anthropic/binding-needs-beta" if is_claude;
    MODE_NOT_SUPPORTED = "anthropic/mode-not-supported" if is_claude;
    BETWEEN_TOOLS_EFFORT = "anthropic/between-tools-effort" if has_between_tools;
    BUDGET_TOO_SMALL = "anthropic/budget-too-small" if is_claude;
    BUDGET_NOT_BELOW_MAX_TOKENS = "anthropic/budget-not-below-max-tokens" if is_claude;
    FORCED_TOOL_CHOICE = "anthropic/forced-tool-choice" if is_claude;
    EFFORT_NOT_SUPPORTED = "anthropic/effort-not-supported" if is_claude;
    SAMPLING_FIXED = "anthropic/sampling-fixed" if is_claude;
    PREFILL_REFUSED = "anthropic/prefill-refused" if is_claude;
    ENDS_IN_THINKING = "anthropic/ends-in-thinking" if is_claude;
    BLOCK_UNREADABLE = "anthropic/block-unreadable" if is_claude, prior 1 2;
    THOUGHT_AS_TEXT = "anthropic/thought-as-text" if is_claude;
    CONFIG_CHANGED_IN_LOOP = "anthropic/config-changed-in-loop" if is_claude, prior 1 2;
    COMPACTION_BLOCK_EMPTY = "anthropic/compaction-block-empty" if is_claude;
    COMPACTION_EXCLUSIVE = "anthropic/compaction-exclusive" if is_claude;
    SEALED_CONTENT_CHANGED = "anthropic/sealed-content-changed" if is_claude, prior 1 2;
    FALLBACK_MOVED = "anthropic/fallback-moved" if is_claude, prior 1 2;
    SYSTEM_MESSAGE_ORDER = "anthropic/system-message-order" if is_claude;
    TOOL_CALL_UNANSWERED = "anthropic/tool-call-unanswered" if is_claude;
    CACHE_PREFIX_BROKEN = "anthropic/cache-prefix-broken" if is_cached, prior 1 2;
}

/// The Claude rules with this wire's names and errors. Anthropic returns the model's error text
/// unchanged.
pub(super) static BOOK: ClaudeRules = ClaudeRules {
    wire: Wire::ANTHROPIC_MESSAGES,
    rules: &RULES,
    error_prefix: "",
    unanswered: unanswered_error,
    unasked: unmatched_result_error,
    repeated: repeated_result_error,
    forced_tools: |profile| profile.forced_tools,
    free_choice: unforced_choice,
    project: wire::project,
};

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

fn repeated_result_error(block: &ClaudeBlock<'_>, id: &str) -> String {
    format!(
        "{}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {id}",
        block.path()
    )
}

fn unforced_choice(choice: Node<'_>) -> Json {
    let parallel = choice.get("disable_parallel_tool_use");
    object! { "type": "auto", "disable_parallel_tool_use": parallel }
}

fn has_between_tools(target: &Target) -> bool {
    is_claude(target) && target.profile.supports_mode(Mode::BetweenTools)
}

/// Returns whether the endpoint has a prompt cache that compares prefixes byte by byte.
fn is_cached(target: &Target) -> bool {
    is_claude(target) || target.provider.name.starts_with("deepseek")
}
