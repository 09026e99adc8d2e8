//! How a Claude is asked to think, whichever wire carries the request.
//!
//! Anthropic's own wire has `thinking` and `output_config.effort` at the top of the body, Bedrock among the model's own
//! fields. What stands there is the same, and so are the limits. So is what is refused: the rooms below this one look at
//! a request through one [`View`](view::View), and report under the rules of the wire that it came on.

mod blocks;
#[cfg(test)]
pub(crate) mod claude_tests;
mod inspect;
mod knobs;
pub(crate) mod lore;
mod mending;
mod pairs;
mod replayed;
pub(crate) mod view;

use throughline_core::{
    Choice, ForcedTools, Json, Mode, NativeReasoning, Node, Profile, Target, Tree, Vendor, json,
};

pub(crate) use crate::claude::inspect::{Book, Inspection};

use crate::draft::Draft;
use crate::effort;

/// The smallest budget of thinking tokens.
pub(crate) const LEAST_BUDGET: u64 = 1024;

/// What must be left of the answer's tokens for the answer itself.
pub(crate) const LEAST_ANSWER: u64 = 1024;

/// The fewest tokens that are asked for beside a budget when the Call does not say.
const LEAST_MAX_TOKENS: u64 = 4096;

/// How a request asks for thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asking {
    /// It does not say.
    Silent,
    /// Switched off.
    Off,
    /// With a budget.
    Manual,
    /// As the model sees fit.
    Adaptive,
}

impl Asking {
    /// How a `thinking` object asks.
    pub(crate) fn of(thinking: Option<&Json>) -> Self {
        let tree = thinking.map(Json::tree);
        Self::at(tree.as_ref().map(Tree::root))
    }

    /// How the `thinking` object of a request asks.
    pub(crate) fn at(thinking: Option<Node<'_>>) -> Self {
        match thinking.and_then(|thinking| thinking.text_of("type")).as_deref() {
            Some("enabled") => Self::Manual,
            Some("disabled") => Self::Off,
            Some(_) => Self::Adaptive,
            None => Self::Silent,
        }
    }

    /// Whether the model thinks when it is asked so.
    pub(crate) fn thinks(self, profile: &Profile) -> bool {
        match self {
            Self::Silent => profile.thinks_by_default,
            Self::Off => false,
            Self::Manual | Self::Adaptive => true,
        }
    }
}

/// Whether a request goes to a Claude: to a family of Anthropic's that signs what it thinks. The clones of its wire sign
/// nothing.
pub(crate) fn is_claude(target: &Target) -> bool {
    target.profile.seals_as() == Some(Vendor::Anthropic)
}

/// Whether it is a Claude that no row of its own describes: nothing is held against it.
pub(crate) fn is_unlisted(profile: &Profile) -> bool {
    profile.name == "claude"
}

/// Whether it goes to a Claude whose signatures are bound to what stood before them.
pub(crate) fn is_bound_claude(target: &Target) -> bool {
    is_claude(target) && target.profile.bound.prefix
}

/// What a request should say of thinking.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decision {
    /// How it asks then.
    pub(crate) asking: Asking,
    /// The `thinking` object; nothing where there should be none.
    pub(crate) thinking: Option<Json>,
    /// The effort; nothing where there should be none.
    pub(crate) effort: Option<Json>,
    /// The fewest tokens that leave room for an answer beside the budget.
    pub(crate) room: Option<u64>,
}

impl Decision {
    /// A request that says nothing of thinking.
    pub(crate) fn silent() -> Self {
        Self { asking: Asking::Silent, thinking: None, effort: None, room: None }
    }
}

/// Decides how to ask for `reasoning`. `is_loop_unsigned` says that the last assistant message is in a tool loop and
/// does not begin with thinking, with which a manual budget is refused.
pub(crate) fn decide(
    draft: &mut Draft<'_>,
    reasoning: &NativeReasoning,
    profile: &Profile,
    is_loop_unsigned: bool,
) -> Decision {
    if reasoning.is_off() {
        return off(draft, profile);
    }
    let is_shown = profile.thinks_by_default && reasoning.include_thoughts.is_some();
    let asks = is_shown
        || reasoning.enabled.is_some()
        || reasoning.effort.is_some()
        || reasoning.budget_tokens.is_some();
    if !asks {
        return Decision::silent();
    }
    if !profile.takes(Mode::Adaptive) && !profile.takes(Mode::Enabled) {
        let message = format!("{} does not reason; the setting was left out", profile.name);
        draft.warn("reasoning", message);
        return Decision::silent();
    }
    let display =
        reasoning.include_thoughts.map(|shown| if shown { "summarized" } else { "omitted" });
    let has_budget = reasoning.budget_tokens.is_some();
    let is_manual = !profile.takes(Mode::Adaptive) || (has_budget && profile.takes(Mode::Enabled));
    if is_manual && is_loop_unsigned {
        let message =
            "the open tool loop began without this model's thinking; it was left off until it ends";
        draft.warn("reasoning", message);
        return Decision::silent();
    }
    // Where the effort has become the budget, it must not be told a second time.
    let tells_effort = !is_manual || (has_budget && !profile.efforts.is_empty());
    let effort = reasoning.effort.as_deref().filter(|_| tells_effort);
    let effort = effort.and_then(|effort| effort::fitting(draft, effort, profile));
    let effort = effort.map(|effort| json::string(&effort));
    if is_manual {
        let budget = budget(draft, reasoning);
        let thinking = json::object(|o| {
            o.string("type", "enabled").number("budget_tokens", budget);
            // The older models show their thoughts unasked and do not know the word.
            if profile.takes(Mode::Adaptive) {
                o.maybe_string("display", display);
            }
        });
        let room = Some(budget + LEAST_ANSWER);
        return Decision { asking: Asking::Manual, thinking: Some(thinking), effort, room };
    }
    if let Some(budget) = reasoning.budget_tokens {
        let message = format!("{} takes no budget; {budget} was left out", profile.name);
        draft.warn("reasoning.budget_tokens", message);
    }
    let thinking = json::object(|o| {
        o.string("type", "adaptive").maybe_string("display", display);
    });
    Decision { asking: Asking::Adaptive, thinking: Some(thinking), effort, room: None }
}

fn off(draft: &mut Draft<'_>, profile: &Profile) -> Decision {
    let word = |kind: &str| {
        json::object(|o| {
            o.string("type", kind);
        })
    };
    let silent = Decision::silent();
    if profile.takes(Mode::Disabled) {
        return Decision { asking: Asking::Off, thinking: Some(word("disabled")), ..silent };
    }
    if profile.takes(Mode::BetweenTools) {
        let message =
            format!("{} cannot stop thinking; it was asked to between tools only", profile.name);
        draft.warn("reasoning", message);
        let thinking = Some(word("between_tools"));
        return Decision { asking: Asking::Adaptive, thinking, ..silent };
    }
    if profile.thinks_by_default || profile.always_thinks {
        draft.warn("reasoning", format!("{} cannot stop thinking", profile.name));
        return silent;
    }
    Decision { asking: Asking::Off, ..silent }
}

fn budget(draft: &mut Draft<'_>, reasoning: &NativeReasoning) -> u64 {
    let wanted = reasoning.budget_tokens.unwrap_or(effort::budget(reasoning.effort.as_deref()));
    let budget = wanted.max(LEAST_BUDGET);
    if budget != wanted {
        let message = format!("{wanted} is too few; {budget} was asked for");
        draft.warn("reasoning.budget_tokens", message);
    }
    budget
}

/// The tokens to answer with: enough beside a budget, whatever the Call says or leaves unsaid.
pub(crate) fn with_room(
    draft: &mut Draft<'_>,
    max_tokens: Option<u64>,
    decision: &Decision,
) -> Option<u64> {
    let Some(room) = decision.room else { return max_tokens };
    let Some(given) = max_tokens else { return Some(room.max(LEAST_MAX_TOKENS)) };
    let budget = room.saturating_sub(LEAST_ANSWER);
    if given > budget {
        return max_tokens;
    }
    let message =
        format!("{given} leaves no room beside {budget} thinking tokens; raised to {room}");
    draft.warn("max_tokens", message);
    Some(room)
}

/// Whether the model refuses to be told which tool to call: "Thinking may not be enabled when `tool_choice` forces
/// tool use."
pub(crate) fn refuses_choice(
    profile: &Profile,
    rule: ForcedTools,
    asking: Asking,
    choice: &Choice,
) -> bool {
    let is_forced = matches!(choice, Choice::Any | Choice::Tool(_));
    is_forced
        && match rule {
            ForcedTools::Allowed => false,
            ForcedTools::RefusedWithBudget => asking == Asking::Manual,
            ForcedTools::RefusedWhileThinking => asking.thinks(profile),
            ForcedTools::Refused => true,
        }
}

/// Whether the model refuses a temperature, nucleus or candidate count of the caller's own.
pub(crate) fn refuses_sampling(profile: &Profile, asking: Asking) -> bool {
    profile.fixed_sampling || asking == Asking::Manual
}
