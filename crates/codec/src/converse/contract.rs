//! Requirements of Converse: predicates for the encoder, and rules for audits. The Claude rules are
//! in [`crate::claude`], which inspects the request through [`view`].

mod rules;
mod view;
mod wire_rules;

use throughline_core::{
    Body, ElisionReason, ForcedTools, Item, Profile, Target, ToolChoice, Vendor,
};

use crate::audit::{AuditContext, Findings};
use crate::claude::{self, Inspection, ThinkingMode};
pub(super) use crate::converse::contract::rules::RULES;
use crate::draft::is_same_endpoint;

/// Reports where a request violates the Converse rules or the Claude rules.
pub(super) fn inspect(case: &AuditContext<'_>, findings: &mut Findings<'_>) {
    let view = view::build(case);
    let mut inspection = Inspection::new(&view, &rules::BOOK, case, findings);
    inspection.run();
    wire_rules::inspect(&mut inspection);
}

/// The format that a model family expects in `additionalModelRequestFields`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldFormat {
    /// `thinking`, `output_config` and `top_k`, as on Anthropic's own wire.
    Claude,
    /// `reasoningConfig`, and `inferenceConfig.topK`.
    Nova,
    /// `reasoning_effort`.
    OpenAi,
    /// The format is unknown.
    Other,
}

impl FieldFormat {
    /// Returns the format for a model. An unlisted model is usually a Claude model with an
    /// account-specific inference profile.
    pub(super) fn from_profile(profile: &Profile) -> Self {
        match (profile.vendor, profile.name.as_str()) {
            (Some(Vendor::Anthropic), _) | (None, "unknown") => Self::Claude,
            (Some(Vendor::OpenAi), _) => Self::OpenAi,
            (None, "nova") => Self::Nova,
            (Some(Vendor::Google | Vendor::Xai) | None, _) => Self::Other,
        }
    }
}

/// Returns why an unsealed thought must be omitted; `None` if the thought can be sent. Claude
/// rejects unsealed thoughts with "Field required". Other model families receive only thoughts of
/// the same family.
pub(super) fn unsealed_elision(item: &Item, target: &Target) -> Option<ElisionReason> {
    let (Body::Thought(_), Some(origin)) = (&item.body, &item.origin) else { return None };
    let reader = &target.origin;
    if !is_same_endpoint(origin, reader) {
        return Some(ElisionReason::Foreign);
    }
    if claude::is_claude(target) {
        return Some(ElisionReason::Unsigned);
    }
    let is_same_model = origin.asked == reader.asked;
    let is_same_family = origin.family == reader.family && &*origin.family != "unknown";
    (!is_same_model && !is_same_family).then_some(ElisionReason::OtherModel)
}

pub(super) fn rejects_tool_choice(
    profile: &Profile,
    mode: ThinkingMode,
    choice: &ToolChoice,
) -> bool {
    claude::rejects_tool_choice(profile, forced_tools(profile), mode, choice)
}

/// Returns the condition under which a forced tool choice is rejected. For some models, Bedrock is
/// stricter than the model's vendor.
fn forced_tools(profile: &Profile) -> ForcedTools {
    match profile.notes.get("forced-tools-on-bedrock").map(String::as_str) {
        Some("refused-while-thinking") => ForcedTools::RefusedWhileThinking,
        Some(_) | None => profile.forced_tools,
    }
}

/// Returns whether Converse rejects a text as blank: "The text field in the `ContentBlock` object
/// is blank".
pub(super) fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

#[cfg(test)]
#[path = "contract_tests.rs"]
mod contract_tests;
