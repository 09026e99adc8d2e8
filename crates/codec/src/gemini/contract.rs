//! What `generateContent` refuses, rule by rule; and what of it writing a request must heed.
//!
//! `rules.rs` says what each rule is. The request is looked at once (`view.rs`); then each of the other rooms looks for its own
//! rules: signatures, calls and their answers, and how to think.

mod answers;
mod rules;
mod signatures;
mod thinking;
mod view;

use throughline_core::{Budget, Item, Profile, Side, Target, Wire};

pub(super) use crate::gemini::contract::rules::RULES;
use crate::gemini::contract::view::View;
use crate::{Case, Findings};

/// Reports what the provider would refuse in a request.
pub(super) fn inspect(case: &Case<'_>, findings: &mut Findings<'_>) {
    let view = View::of(case);
    let reported = signatures::look(case, &view, findings);
    signatures::compare(case, &view, &reported, findings);
    answers::look(&view, findings);
    thinking::look(case, &view, findings);
}

/// Whether the model refuses a step whose first call is unsigned, and what is then written in place of a signature:
/// "Function call is missing a `thought_signature` in functionCall parts."
///
/// What this very model was sent before is left as it was sent: whoever wrote it answers for it.
pub(super) fn stand_in<'t>(target: &'t Target, call: &Item) -> Option<&'t str> {
    let is_as_sent = call.native_on(&Wire::GEMINI).is_some_and(|n| n.side == Side::Request)
        && call.origin.as_ref().is_some_and(|origin| {
            let to = &target.origin;
            origin.provider == to.provider
                && origin.endpoint == to.endpoint
                && origin.asked == to.asked
        });
    target.profile.stand_in.as_deref().filter(|_| !is_as_sent)
}

/// The nearest budget that the model takes: "The thinking budget (52428) is invalid."
pub(super) fn fitting_budget(wanted: u64, budget: Option<&Budget>) -> u64 {
    match budget {
        Some(budget) if wanted == 0 && budget.zero => 0,
        Some(budget) => wanted.clamp(budget.min, budget.max.max(budget.min)),
        None => wanted,
    }
}

/// Whether a tool's answer may hold pictures and documents itself; before Gemini 3 they stand beside it.
pub(super) fn takes_media_in_answers(profile: &Profile) -> bool {
    !profile.levels.is_empty()
}
