//! Requirements of `generateContent`: predicates for the encoder, and rules for audits.
//!
//! `rules.rs` declares the rules, and `view.rs` parses the request once. The other modules check
//! signatures, calls and responses, and thinking settings.

mod function_responses;
mod rules;
mod signatures;
mod thinking;
mod view;

use throughline_core::{Direction, Item, Profile, Target, TokenBudget, Wire};

use crate::draft::is_same_endpoint;
pub(super) use crate::gemini::contract::rules::RULES;
use crate::gemini::contract::view::GeminiRequest;
use crate::{AuditContext, Findings};

/// Reports where a request violates the Gemini rules.
pub(super) fn inspect(case: &AuditContext<'_>, findings: &mut Findings<'_>) {
    let view = GeminiRequest::new(case);
    view.check_signatures(findings);
    function_responses::check(&view, findings);
    thinking::check(&view, findings);
}

/// Returns the stand-in signature for a call if the model rejects unsigned calls: "Function call is
/// missing a `thought_signature` in functionCall parts."
///
/// Returns `None` for calls that the client already sent unsigned to this model; those parts stay
/// unchanged.
pub(super) fn stand_in<'t>(target: &'t Target, call: &Item) -> Option<&'t str> {
    let is_as_sent = call.native_on(&Wire::GEMINI).is_some_and(|n| n.side == Direction::Request)
        && call.origin.as_ref().is_some_and(|origin| {
            is_same_endpoint(origin, &target.origin) && origin.asked == target.origin.asked
        });
    target.profile.stand_in.as_deref().filter(|_| !is_as_sent)
}

/// Returns the nearest budget that the model accepts. The provider rejects other budgets: "The
/// thinking budget (52428) is invalid."
pub(super) fn nearest_budget(requested: u64, budget: Option<&TokenBudget>) -> u64 {
    match budget {
        Some(budget) if requested == 0 && budget.zero => 0,
        Some(budget) => requested.clamp(budget.min, budget.max.max(budget.min)),
        None => requested,
    }
}

/// Returns whether a function response may contain media. Models before Gemini 3 require media in
/// separate parts.
pub(super) fn supports_media_in_responses(profile: &Profile) -> bool {
    !profile.levels.is_empty()
}
