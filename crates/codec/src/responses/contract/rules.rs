//! Declares the rules of the Responses API.

use throughline_core::{Target, Wire};

use crate::audit::rule_book::declare_rules;

declare_rules! {
    Wire::OPENAI_RESPONSES, "responses.toml";
    REASONING_WITHOUT_FOLLOWING_ITEM = "openai/reasoning-without-following-item" if pairs_by_id;
    ITEM_WITHOUT_ITS_REASONING = "openai/item-without-its-reasoning" if pairs_by_id, prior 1 2;
    ITEM_DUPLICATED = "openai/item-duplicated" if pairs_by_id;
    ITEM_NOT_FOUND = "openai/item-not-found" if stores_responses, prior 1 2;
    ENCRYPTED_CONTENT_INVALID = "openai/encrypted-content-invalid" if seals_reasoning, prior 1 2;
    REASONING_NEEDS_SUMMARY = "openai/reasoning-needs-summary";
    PREVIOUS_RESPONSE_AND_CONVERSATION = "openai/previous-response-and-conversation";
    PREVIOUS_RESPONSE_NOT_FOUND = "openai/previous-response-not-found", prior 1 2;
    REASONING_RESENT = "openai/reasoning-resent" if stores_responses;
    REASONING_DROPPED = "openai/reasoning-dropped", prior 1 2;
    REASONING_MOVED = "openai/reasoning-moved", prior 1 2;
    EFFORT_NOT_SUPPORTED = "openai/effort-not-supported";
    SAMPLING_FIXED = "openai/sampling-fixed";
    TOOL_CALL_UNANSWERED = "openai/tool-call-unanswered";
    CALLS_INTERRUPTED = "deepseek/calls-interrupted" if groups_calls;
    PHASE_DROPPED = "openai/phase-dropped", prior 1 2;
    THOUGHT_AS_TEXT = "openai/thought-as-text", prior 1 2;
    CACHE_PREFIX_BROKEN = "openai/cache-prefix-broken", prior 1;
}

/// Returns whether the endpoint pairs stored items by id.
fn pairs_by_id(target: &Target) -> bool {
    target.provider.dialect.pairs
}

/// Returns whether the endpoint stores responses, so that requests can refer to their ids.
fn stores_responses(target: &Target) -> bool {
    target.provider.dialect.stores
}

/// Returns whether the model seals its reasoning and verifies the Seals.
fn seals_reasoning(target: &Target) -> bool {
    target.profile.bound.model
}

/// Returns whether the endpoint requires parallel calls to be consecutive.
fn groups_calls(target: &Target) -> bool {
    target.provider.dialect.calls_together
}
