//! Requirements of the Responses API: predicates for the encoder, and rules for audits.
//!
//! `rules.rs` declares the rules, `view.rs` parses the request once, and `replay_history.rs`
//! indexes the earlier exchanges. The other modules check id pairs, calls and outputs, settings,
//! and reasoning items.

mod calls;
mod pairing;
mod replay_history;
mod rules;
mod seals;
mod settings;
mod view;

use throughline_core::{ForcedTools, Profile, ToolChoice};

pub(super) use crate::responses::contract::rules::RULES;
use crate::responses::contract::view::ResponsesRequest;
use crate::{AuditContext, Findings};

/// Reports where a request violates the Responses rules.
pub(super) fn inspect(case: &AuditContext<'_>, findings: &mut Findings<'_>) {
    let view = ResponsesRequest::new(case);
    view.check_seals(findings);
    view.check_pairs(findings);
    view.check_calls(findings);
    view.check_settings(findings);
    view.report_changes(findings);
}

/// The minimum `max_output_tokens` that the API accepts.
pub(super) const MIN_OUTPUT_TOKENS: u64 = 16;

/// Returns whether the model rejects `temperature` and `top_p`. Some models reject them only while
/// reasoning.
pub(super) fn rejects_sampling(profile: &Profile, effort: Option<&str>) -> bool {
    let only_without_reasoning = profile.unsampled_while_reasoning;
    let default = profile.notes.get("default-effort").map(String::as_str);
    profile.fixed_sampling
        || only_without_reasoning && effort.or(default).is_some_and(|effort| effort != "none")
}

/// Returns whether the model rejects a forced tool choice: "Thinking mode does not support this
/// `tool_choice`".
pub(super) fn rejects_tool_choice(
    profile: &Profile,
    effort: Option<&str>,
    choice: &ToolChoice,
) -> bool {
    let is_forced = matches!(choice, ToolChoice::Any | ToolChoice::Tool(_));
    let thinks = effort.map_or(profile.thinks_by_default, |effort| effort != "none");
    is_forced
        && match profile.forced_tools {
            ForcedTools::Allowed => false,
            ForcedTools::RefusedWithBudget | ForcedTools::RefusedWhileThinking => thinks,
            ForcedTools::Refused => true,
        }
}

/// Returns whether a hosted step of this type must be sent with its id. Without its paired
/// reasoning, such a step cannot be sent.
pub(super) fn requires_id(kind: &str) -> bool {
    !matches!(
        kind,
        "web_search_call" | "tool_search_call" | "tool_search_output" | "local_shell_call"
    )
}
