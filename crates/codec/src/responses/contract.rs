//! What the Responses API refuses, rule by rule; and what of it writing a request must heed.
//!
//! `rules.rs` says what each rule is. The request is looked at once (`view.rs`), beside what was said before (`past.rs`); then
//! each of the other rooms looks for its own rules: pairs of ids, calls and outputs, settings, and the reasoning itself.

mod calls;
mod pairing;
mod past;
mod rules;
mod seals;
mod settings;
mod view;

use throughline_core::{Choice, ForcedTools, Profile};

use crate::responses::contract::past::Past;
pub(super) use crate::responses::contract::rules::RULES;
use crate::responses::contract::view::View;
use crate::{Case, Findings};

/// Reports what the provider would refuse in a request.
pub(super) fn inspect(case: &Case<'_>, findings: &mut Findings<'_>) {
    let view = View::of(case);
    let past = (!case.prior().is_empty()).then(|| Past::of(case));
    seals::look(case, &view, past.as_ref(), findings);
    pairing::look(&view, past.as_ref(), findings);
    calls::look(case, &view, past.as_ref(), findings);
    settings::look(case, &view, past.as_ref(), findings);
    if let Some(past) = &past {
        seals::compare(case, &view, past, findings);
    }
}

/// The smallest `max_output_tokens`.
pub(super) const LEAST_OUTPUT: u64 = 16;

/// Whether the model refuses a temperature or nucleus of the caller's own. Some take them while they do not reason.
pub(super) fn refuses_sampling(profile: &Profile, effort: Option<&str>) -> bool {
    let only_without_reasoning = profile.unsampled_while_reasoning;
    let default = profile.notes.get("default-effort").map(String::as_str);
    profile.fixed_sampling
        || only_without_reasoning && effort.or(default).is_some_and(|effort| effort != "none")
}

/// Whether the model refuses to be told which tool to call: "Thinking mode does not support this `tool_choice`".
pub(super) fn refuses_choice(profile: &Profile, effort: Option<&str>, choice: &Choice) -> bool {
    let is_forced = matches!(choice, Choice::Any | Choice::Tool(_));
    let thinks = effort.map_or(profile.thinks_by_default, |effort| effort != "none");
    is_forced
        && match profile.forced_tools {
            ForcedTools::Allowed => false,
            ForcedTools::RefusedWithBudget | ForcedTools::RefusedWhileThinking => thinks,
            ForcedTools::Refused => true,
        }
}

/// Whether a hosted step is nothing without its id: it cannot be sent once what it pairs with is gone.
pub(super) fn needs_id(kind: &str) -> bool {
    !matches!(
        kind,
        "web_search_call" | "tool_search_call" | "tool_search_output" | "local_shell_call"
    )
}
