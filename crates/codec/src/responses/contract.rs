//! What the Responses API refuses, as far as writing a request must heed it.

use throughline_core::{Choice, ForcedTools, Profile};

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
