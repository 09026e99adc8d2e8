//! Thinking settings and rules of the Claude models, shared by all wires that serve Claude models.
//!
//! Anthropic's own wire has `thinking` and `output_config.effort` at the top level of the body.
//! Bedrock has the same members among the model-specific request fields. Values, limits and
//! rejections are identical. The submodules inspect a request through a common
//! [`ClaudeRequest`](view::ClaudeRequest) and report findings under the rules of the request's
//! wire.

mod blocks;
#[cfg(test)]
pub(crate) mod claude_tests;
mod fixes;
mod inspect;
mod replay;
mod settings;
mod tool_pairs;
pub(crate) mod view;

use throughline_core::{ForcedTools, Mode, NativeReasoning, Profile, Target, ToolChoice, Vendor};
use throughline_json::{self as json, Json, Node, Tree};

pub(crate) use crate::claude::inspect::{ClaudeRules, Inspection};

use crate::draft::Draft;
use crate::effort;

/// The minimum thinking budget in tokens.
pub(crate) const MIN_BUDGET: u64 = 1024;

/// The number of output tokens to reserve for the answer in addition to the thinking budget.
pub(crate) const MIN_ANSWER_TOKENS: u64 = 1024;

/// The minimum `max_tokens` that is sent with a thinking budget if the Call does not set
/// `max_tokens`.
const MIN_MAX_TOKENS: u64 = 4096;

/// The thinking mode that a request selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThinkingMode {
    /// The request has no thinking setting.
    Silent,
    /// Thinking is disabled.
    Off,
    /// Thinking with a token budget.
    Manual,
    /// The model decides how much to think.
    Adaptive,
}

impl ThinkingMode {
    /// Returns the mode of a `thinking` object.
    pub(crate) fn from_json(thinking: Option<&Json>) -> Self {
        let tree = thinking.map(Json::tree);
        Self::from_node(tree.as_ref().map(Tree::root))
    }

    /// Returns the mode that a `thinking` node selects. `None` means that the request does not set
    /// `thinking`.
    pub(crate) fn from_node(thinking: Option<Node<'_>>) -> Self {
        match thinking.and_then(|thinking| thinking.text_of("type")).as_deref() {
            Some("enabled") => Self::Manual,
            Some("disabled") => Self::Off,
            Some(_) => Self::Adaptive,
            None => Self::Silent,
        }
    }

    /// Returns whether the model thinks in this mode. Without a setting, the model's default
    /// applies.
    pub(crate) fn thinks(self, profile: &Profile) -> bool {
        match self {
            Self::Silent => profile.thinks_by_default,
            Self::Off => false,
            Self::Manual | Self::Adaptive => true,
        }
    }
}

/// Returns whether the target is a Claude model: an Anthropic family that signs its thinking. Other
/// vendors that implement this wire do not sign.
pub(crate) fn is_claude(target: &Target) -> bool {
    target.profile.seal_vendor() == Some(Vendor::Anthropic)
}

/// Returns whether the target is a Claude model whose signatures are bound to the prefix.
pub(crate) fn is_bound_claude(target: &Target) -> bool {
    is_claude(target) && target.profile.bound.prefix
}

/// The thinking settings to write into a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ThinkingSettings {
    pub(crate) mode: ThinkingMode,
    /// The `thinking` object; `None` to omit it.
    pub(crate) thinking: Option<Json>,
    /// The `effort` value; `None` to omit it.
    pub(crate) effort: Option<Json>,
    /// The minimum `max_tokens` that leaves room for an answer in addition to the budget.
    pub(crate) room: Option<u64>,
}

impl ThinkingSettings {
    /// Returns settings that omit all thinking members.
    pub(crate) fn unset() -> Self {
        Self { mode: ThinkingMode::Silent, thinking: None, effort: None, room: None }
    }
}

/// Decides which thinking settings to send for `reasoning`. `is_loop_unsigned` means that the last
/// assistant message is in a tool loop and does not begin with thinking. The provider rejects a
/// manual budget for such a message.
pub(crate) fn decide_thinking(
    draft: &mut Draft<'_>,
    reasoning: &NativeReasoning,
    profile: &Profile,
    is_loop_unsigned: bool,
) -> ThinkingSettings {
    let unset = ThinkingSettings::unset();
    if reasoning.is_off() {
        return disabled_thinking(draft, profile);
    }
    let is_shown = profile.thinks_by_default && reasoning.include_thoughts.is_some();
    let is_requested = is_shown
        || reasoning.enabled.is_some()
        || reasoning.effort.is_some()
        || reasoning.budget_tokens.is_some();
    if !is_requested {
        return unset;
    }
    if !profile.supports_mode(Mode::Adaptive) && !profile.supports_mode(Mode::Enabled) {
        let message = format!("{} does not reason; the setting was omitted", profile.name);
        draft.warn("reasoning", message);
        return unset;
    }
    let display =
        reasoning.include_thoughts.map(|shown| if shown { "summarized" } else { "omitted" });
    let has_budget = reasoning.budget_tokens.is_some();
    let is_manual = !profile.supports_mode(Mode::Adaptive)
        || (has_budget && profile.supports_mode(Mode::Enabled));
    if is_manual && is_loop_unsigned {
        let message = "the open tool loop began without this model's thinking; thinking is disabled until it ends";
        draft.warn("reasoning", message);
        return unset;
    }
    // If the effort was converted to the budget, do not send it a second time.
    let sends_effort = !is_manual || (has_budget && !profile.efforts.is_empty());
    let effort = reasoning.effort.as_deref().filter(|_| sends_effort);
    let effort = effort.and_then(|effort| effort::supported_effort(draft, effort, profile));
    let effort = effort.map(|effort| json::string(&effort));
    let adaptive = ThinkingSettings { mode: ThinkingMode::Adaptive, effort, ..unset };
    if is_manual {
        let budget = accepted_budget(draft, reasoning);
        // Older models show their thinking by default and reject `display`.
        let display = display.filter(|_| profile.supports_mode(Mode::Adaptive));
        let thinking =
            Some(object! { "type": "enabled", "budget_tokens": budget, "display": display });
        let room = Some(budget + MIN_ANSWER_TOKENS);
        return ThinkingSettings { mode: ThinkingMode::Manual, thinking, room, ..adaptive };
    }
    if let Some(budget) = reasoning.budget_tokens {
        let message = format!("{} accepts no thinking budget; {budget} was omitted", profile.name);
        draft.warn("reasoning.budget_tokens", message);
    }
    ThinkingSettings {
        thinking: Some(object! { "type": "adaptive", "display": display }),
        ..adaptive
    }
}

fn disabled_thinking(draft: &mut Draft<'_>, profile: &Profile) -> ThinkingSettings {
    let unset = ThinkingSettings::unset();
    let name = &profile.name;
    if profile.supports_mode(Mode::Disabled) {
        let thinking = Some(fixes::thinking_object("disabled"));
        ThinkingSettings { mode: ThinkingMode::Off, thinking, ..unset }
    } else if profile.supports_mode(Mode::BetweenTools) {
        let message = format!("{name} cannot disable thinking; `between_tools` was sent instead");
        draft.warn("reasoning", message);
        let thinking = Some(fixes::thinking_object("between_tools"));
        ThinkingSettings { mode: ThinkingMode::Adaptive, thinking, ..unset }
    } else if profile.thinks_by_default || profile.always_thinks {
        draft.warn("reasoning", format!("{name} cannot disable thinking"));
        unset
    } else {
        ThinkingSettings { mode: ThinkingMode::Off, ..unset }
    }
}

fn accepted_budget(draft: &mut Draft<'_>, reasoning: &NativeReasoning) -> u64 {
    let requested = reasoning.budget_tokens.unwrap_or(effort::budget(reasoning.effort.as_deref()));
    let budget = requested.max(MIN_BUDGET);
    if budget != requested {
        let message =
            format!("a budget of {requested} tokens is too small; {budget} was sent instead");
        draft.warn("reasoning.budget_tokens", message);
    }
    budget
}

/// Returns the `max_tokens` to send, raised if a budget would leave no room for the answer.
pub(crate) fn raise_max_tokens(
    draft: &mut Draft<'_>,
    max_tokens: Option<u64>,
    decision: &ThinkingSettings,
) -> Option<u64> {
    let Some(room) = decision.room else { return max_tokens };
    let Some(requested) = max_tokens else { return Some(room.max(MIN_MAX_TOKENS)) };
    let budget = room.saturating_sub(MIN_ANSWER_TOKENS);
    if requested > budget {
        return max_tokens;
    }
    let message = format!(
        "{requested} leaves no room for an answer with {budget} thinking tokens; raised to {room}"
    );
    draft.warn("max_tokens", message);
    Some(room)
}

/// Returns whether the model rejects a forced tool choice: "Thinking may not be enabled when
/// `tool_choice` forces tool use."
pub(crate) fn rejects_tool_choice(
    profile: &Profile,
    rule: ForcedTools,
    mode: ThinkingMode,
    choice: &ToolChoice,
) -> bool {
    let is_forced = matches!(choice, ToolChoice::Any | ToolChoice::Tool(_));
    is_forced
        && match rule {
            ForcedTools::Allowed => false,
            ForcedTools::RefusedWithBudget => mode == ThinkingMode::Manual,
            ForcedTools::RefusedWhileThinking => mode.thinks(profile),
            ForcedTools::Refused => true,
        }
}

/// Returns whether the model rejects `temperature`, `top_p` and `top_k`.
pub(crate) fn rejects_sampling(profile: &Profile, mode: ThinkingMode) -> bool {
    profile.fixed_sampling || mode == ThinkingMode::Manual
}
