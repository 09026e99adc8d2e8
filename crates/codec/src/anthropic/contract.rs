//! What the Messages API refuses, as far as writing a request must heed it.

use throughline_core::{Choice, ForcedTools, Profile};

/// The smallest budget of thinking tokens.
pub(super) const LEAST_BUDGET: u64 = 1024;

/// What must be left of `max_tokens` for the answer itself.
pub(super) const LEAST_ANSWER: u64 = 1024;

/// How a request asks for thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asking {
    /// It does not say.
    Silent,
    /// Switched off.
    Off,
    /// With a budget.
    Manual,
    /// As the model sees fit.
    Adaptive,
}

/// Whether the model refuses to be told which tool to call: "Thinking may not be enabled when `tool_choice` forces
/// tool use."
pub(super) fn refuses_choice(profile: &Profile, asking: Asking, choice: &Choice) -> bool {
    let is_forced = matches!(choice, Choice::Any | Choice::Tool(_));
    let thinks = match asking {
        Asking::Silent => profile.thinks_by_default,
        Asking::Off => false,
        Asking::Manual | Asking::Adaptive => true,
    };
    is_forced
        && match profile.forced_tools {
            ForcedTools::Allowed => false,
            ForcedTools::RefusedWithBudget => asking == Asking::Manual,
            ForcedTools::RefusedWhileThinking => thinks,
            ForcedTools::Refused => true,
        }
}

/// Whether the model refuses a temperature, nucleus or candidate count of the caller's own.
pub(super) fn refuses_sampling(profile: &Profile, asking: Asking) -> bool {
    profile.fixed_sampling || asking == Asking::Manual
}
