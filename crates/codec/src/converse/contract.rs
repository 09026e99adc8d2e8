//! What Converse refuses: as far as writing a request must heed it, and as rules that a request is audited by. The rules of
//! the Claudes are in [`crate::claude`], which looks at the request through [`view`].

mod own;
mod rules;
mod view;

use throughline_core::{Body, Choice, ForcedTools, Item, Profile, Target, Vendor, Why};

use crate::audit::{Case, Findings};
use crate::claude::{self, Asking, Inspection};
pub(super) use crate::converse::contract::rules::RULES;

/// Looks for what a request's provider would refuse.
pub(super) fn inspect(case: &Case<'_>, findings: &mut Findings<'_>) {
    let view = view::of(case);
    let mut inspection = Inspection::new(&view, &rules::BOOK, case, findings);
    inspection.run();
    own::inspect(&mut inspection);
}

/// Whose words a model family takes in `additionalModelRequestFields`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// `thinking`, `output_config` and `top_k`, as on Anthropic's own wire.
    Claude,
    /// `reasoningConfig`, and `inferenceConfig.topK`.
    Nova,
    /// `reasoning_effort`.
    OpenAi,
    /// Nothing that is known.
    Other,
}

impl Family {
    /// An unlisted model is most often a Claude behind an inference profile of the account's own.
    pub(super) fn of(profile: &Profile) -> Self {
        match (profile.vendor, profile.name.as_str()) {
            (Some(Vendor::Anthropic), _) | (None, "unknown") => Self::Claude,
            (Some(Vendor::OpenAi), _) => Self::OpenAi,
            (None, "nova") => Self::Nova,
            (Some(Vendor::Google | Vendor::Xai) | None, _) => Self::Other,
        }
    }
}

/// Why a thought that this endpoint said without a seal must stay behind. Claude refuses it: "Field required"; every
/// other family's goes to that family only.
pub(super) fn refuses_unsealed(item: &Item, target: &Target) -> Option<Why> {
    let (Body::Thought(_), Some(origin)) = (&item.body, &item.origin) else { return None };
    let reader = &target.origin;
    if origin.provider != reader.provider || origin.endpoint != reader.endpoint {
        return Some(Why::Foreign);
    }
    if claude::is_claude(target) {
        return Some(Why::Unsigned);
    }
    let is_same_model = origin.asked == reader.asked;
    let is_same_family = origin.family == reader.family && &*origin.family != "unknown";
    (!is_same_model && !is_same_family).then_some(Why::OtherModel)
}

/// Whether the model refuses to be told which tool to call.
pub(super) fn refuses_choice(profile: &Profile, asking: Asking, choice: &Choice) -> bool {
    claude::refuses_choice(profile, forced_tools(profile), asking, choice)
}

/// Under which circumstances a forced tool choice is refused. Bedrock is stricter with some models than their maker.
fn forced_tools(profile: &Profile) -> ForcedTools {
    match profile.notes.get("forced-tools-on-bedrock").map(String::as_str) {
        Some("refused-while-thinking") => ForcedTools::RefusedWhileThinking,
        Some(_) | None => profile.forced_tools,
    }
}

/// Whether a text is one that Converse refuses: "The text field in the `ContentBlock` object is blank".
pub(super) fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

#[cfg(test)]
#[path = "contract_tests.rs"]
mod contract_tests;
