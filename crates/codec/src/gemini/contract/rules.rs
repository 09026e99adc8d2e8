//! Declares the rules of the Gemini API.

use throughline_core::{Contract, Target, Wire};

use crate::audit::rule_book::declare_rules;

declare_rules! {
    Wire::GEMINI, "gemini.toml";
    FIRST_CALL_NEEDS_SIGNATURE = "gemini/first-call-needs-signature" if signs_calls, prior 1 2;
    SIGNATURE_CORRUPTED = "gemini/signature-corrupted" if is_signing_model, prior 1 2;
    SIGNATURE_DROPPED = "gemini/signature-dropped" if is_signing_model, prior 1 2;
    SIGNATURE_MOVED = "gemini/signature-moved" if is_signing_model, prior 1 2;
    SIGNED_TEXT_EDITED = "gemini/signed-text-edited" if is_signing_model, prior 1 2;
    STAND_IN_USED = "gemini/stand-in-used" if is_signing_model, prior 1 2;
    LEVEL_NOT_SUPPORTED = "gemini/level-not-supported" if is_known;
    BUDGET_OUT_OF_RANGE = "gemini/budget-out-of-range" if is_known;
    THOUGHTS_WITHOUT_THINKING = "gemini/thoughts-without-thinking" if is_known;
    ANSWERS_DO_NOT_MATCH = "gemini/answers-do-not-match";
    THOUGHT_AS_TEXT = "gemini/thought-as-text", prior 1 2;
    CACHE_PREFIX_BROKEN = "gemini/cache-prefix-broken", prior 1;
}

/// Returns whether the model requires signatures on function calls.
fn signs_calls(target: &Target) -> bool {
    target.profile.contract == Contract::RequiredWithTools
}

/// Returns whether the model has a known profile.
fn is_known(target: &Target) -> bool {
    target.profile.name != "unknown"
}

/// Returns whether the model signs its parts.
fn is_signing_model(target: &Target) -> bool {
    target.profile.bound.model
}
