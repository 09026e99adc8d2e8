//! Settings of a Claude request, and their checks: thinking mode, effort, sampling and tools.

use throughline_core::{ForcedTools, Mode, Profile};
use throughline_json::Node;

use crate::digest::{Digest, canonical_bytes};
use crate::turn::{Refusal, ToolChoice, ensure};

/// Beta that lets a request choose the policy for thoughts bound to another prefix.
pub(crate) const BINDING_BETA: &str = "thinking-binding-controls-2026-08-01";

/// Beta that allows a thinking budget above `max_tokens` for requests with tools.
const INTERLEAVED_BETA: &str = "interleaved-thinking-2025-05-14";

/// Settings of a request, read from any wire that serves Claude.
#[derive(Debug, Default)]
pub(crate) struct Settings<'t> {
    pub(crate) thinking: Option<Node<'t>>,
    pub(crate) effort: Option<String>,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) temperature: Option<Node<'t>>,
    pub(crate) top_p: Option<Node<'t>>,
    pub(crate) top_k: Option<Node<'t>>,
    pub(crate) choice: ToolChoice,
    pub(crate) has_tools: bool,
    pub(crate) betas: Vec<String>,
    /// Efforts set by mid-conversation system messages.
    pub(crate) message_efforts: Vec<String>,
    /// Whether the request asks for a compaction of the conversation.
    pub(crate) compacts: bool,
}

/// Policy for thoughts that are bound to another prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MismatchPolicy {
    /// Reject the request with an error.
    Error,
    /// Drop the thoughts that are bound to another prefix, and report them in a notice.
    Drop,
}

impl Settings<'_> {
    /// Returns the requested thinking mode; `None` if the mode is missing or unknown. [`check`]
    /// rejects unknown modes.
    pub(crate) fn mode(&self) -> Option<Mode> {
        match &*self.thinking?.text_of("type")? {
            "enabled" => Some(Mode::Enabled),
            "adaptive" => Some(Mode::Adaptive),
            "disabled" => Some(Mode::Disabled),
            "between_tools" => Some(Mode::BetweenTools),
            _ => None,
        }
    }

    /// Returns the requested policy for thoughts bound to another prefix, if any.
    pub(crate) fn mismatch(&self) -> Option<MismatchPolicy> {
        match &*self.thinking?.at("/block_binding/prefix_mismatch_behavior")?.text()? {
            "error" => Some(MismatchPolicy::Error),
            "drop_block" => Some(MismatchPolicy::Drop),
            _ => None,
        }
    }

    pub(crate) fn has_beta(&self, beta: &str) -> bool {
        self.betas.iter().any(|name| name == beta)
    }

    /// Returns whether the model thinks. `is_in_loop` is true if the last message contains tool
    /// results.
    pub(crate) fn thinks(&self, profile: &Profile, is_in_loop: bool) -> bool {
        if profile.always_thinks {
            return true;
        }
        match self.mode() {
            None => profile.thinks_by_default,
            Some(Mode::Enabled | Mode::Adaptive) => true,
            Some(Mode::Disabled) => false,
            Some(Mode::BetweenTools) => is_in_loop,
        }
    }

    /// Returns whether the reply contains the text of thoughts.
    pub(crate) fn shows(&self, profile: &Profile) -> bool {
        let display = self.thinking.and_then(|thinking| thinking.text_of("display"));
        match display.as_deref() {
            Some("omitted") => false,
            Some(_) => true,
            None => profile.notes.get("display").is_none_or(|display| display != "omitted"),
        }
    }

    /// Returns the digest of the thinking configuration, which must stay constant within a turn.
    pub(crate) fn config(&self) -> Digest {
        let member = |key: &str| self.thinking.and_then(|thinking| thinking.present(key));
        let [kind, budget] = ["type", "budget_tokens"].map(|key| member(key).map(canonical_bytes));
        Digest::new("throughline-sim config", kind.unwrap_or_default())
            .and(budget.unwrap_or_default())
    }

    /// Returns a string that represents the thinking and tool settings in the prompt, for the
    /// cache.
    pub(crate) fn rendered(&self) -> String {
        let thinking = self.thinking.map(canonical_bytes).unwrap_or_default();
        format!("{} {:?}", String::from_utf8_lossy(&thinking), self.choice)
    }
}

/// Checks the settings as Anthropic does. `forced_tools` is the provider's rule for forced tools.
pub(crate) fn check(
    settings: &Settings<'_>,
    profile: &Profile,
    forced_tools: ForcedTools,
) -> Result<(), Refusal> {
    check_mode(settings, profile)?;
    check_budget(settings, profile)?;
    check_binding(settings)?;
    if let Some(effort) = &settings.effort {
        check_effort(effort, profile)?;
    }
    check_sampling(settings, profile)?;
    check_choice(settings, profile, forced_tools)?;
    settings.message_efforts.iter().try_for_each(|effort| check_effort(effort, profile))?;
    check_message_efforts(settings, profile)
}

/// Checks that no message changes the effort while the model thinks only between tools.
fn check_message_efforts(settings: &Settings<'_>, profile: &Profile) -> Result<(), Refusal> {
    let base = settings.effort.as_ref().or(profile.notes.get("default-effort"));
    let is_changed =
        settings.message_efforts.iter().any(|effort| base.is_some_and(|b| b != effort));
    ensure!(
        settings.mode() != Some(Mode::BetweenTools) || !is_changed,
        "output_config.effort: the effort cannot change within a conversation when \
         \"thinking.type\" is \"between_tools\"."
    );
    Ok(())
}

fn check_mode(settings: &Settings<'_>, profile: &Profile) -> Result<(), Refusal> {
    let Some(thinking) = settings.thinking else { return Ok(()) };
    let Some(kind) = thinking.text_of("type") else {
        return Err(Refusal::invalid("thinking.type: Field required"));
    };
    let Some(mode) = settings.mode() else {
        return Err(Refusal::invalid(format!(
            "thinking: Input tag '{kind}' found using 'type' does not match any of the expected \
             tags: 'adaptive', 'between_tools', 'disabled', 'enabled'"
        )));
    };
    ensure!(
        profile.supports_mode(mode),
        "\"thinking.type.{kind}\" is not supported for this model. Use \"thinking.type.adaptive\" \
         and \"output_config.effort\" to control thinking behavior."
    );
    let limit = match mode {
        Mode::Disabled => profile.notes.get("disabled-up-to"),
        Mode::BetweenTools => profile.notes.get("between-tools-up-to"),
        Mode::Enabled | Mode::Adaptive => None,
    };
    let effort = settings.effort.as_ref().or(profile.notes.get("default-effort"));
    if let (Some(limit), Some(effort)) = (limit, effort)
        && is_above(effort, limit, profile)
    {
        return Err(Refusal::invalid(format!(
            "\"thinking.type.{kind}\" is not supported for this model when \
             \"output_config.effort\" is '{effort}'. Use \"thinking.type.adaptive\", or an effort \
             of '{limit}' or lower."
        )));
    }
    Ok(())
}

/// Returns whether `effort` is higher than `limit`. The profile lists efforts in ascending order.
fn is_above(effort: &str, limit: &str, profile: &Profile) -> bool {
    let rank = |level: &str| profile.efforts.iter().position(|known| known == level);
    matches!((rank(effort), rank(limit)), (Some(effort), Some(limit)) if effort > limit)
}

fn check_budget(settings: &Settings<'_>, profile: &Profile) -> Result<(), Refusal> {
    let Some(thinking) = settings.thinking else { return Ok(()) };
    if settings.mode() != Some(Mode::Enabled) {
        return Ok(());
    }
    let budget = thinking.present("budget_tokens");
    ensure!(budget.is_some(), "thinking.enabled.budget_tokens: Field required");
    let least = profile.budget.map_or(1024, |budget| budget.min);
    let budget = budget.and_then(Node::u64).unwrap_or_default();
    ensure!(
        budget >= least,
        "thinking.enabled.budget_tokens: Input should be greater than or equal to {least}"
    );
    let is_interleaved = settings.has_tools && settings.has_beta(INTERLEAVED_BETA);
    ensure!(
        is_interleaved || settings.max_tokens.is_none_or(|most| budget < most),
        "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our \
         documentation at https://docs.claude.com/en/docs/build-with-claude/extended-thinking\
         #max-tokens-and-context-window-size"
    );
    Ok(())
}

fn check_binding(settings: &Settings<'_>) -> Result<(), Refusal> {
    let Some(thinking) = settings.thinking else { return Ok(()) };
    let kind = thinking.text_of("type").unwrap_or_default();
    ensure!(
        thinking.present("block_binding").is_none() || settings.has_beta(BINDING_BETA),
        "thinking.{kind}.block_binding: Extra inputs are not permitted"
    );
    Ok(())
}

/// Checks that the model supports an effort. Called for each place in a request that can set the
/// effort.
pub(crate) fn check_effort(effort: &str, profile: &Profile) -> Result<(), Refusal> {
    if profile.efforts.iter().any(|level| level == effort) {
        return Ok(());
    }
    ensure!(!profile.efforts.is_empty(), "This model does not support the effort parameter.");
    let mut levels: Vec<&str> = profile.efforts.iter().map(String::as_str).collect();
    levels.sort_unstable();
    Err(Refusal::invalid(format!(
        "This model does not support effort level '{effort}'. Supported levels: {}.",
        levels.join(", ")
    )))
}

fn check_sampling(settings: &Settings<'_>, profile: &Profile) -> Result<(), Refusal> {
    let is_other = |value: Option<Node<'_>>| {
        let number = value.and_then(Node::number).and_then(|number| number.parse::<f64>().ok());
        number.is_some_and(|number| (number - 1.0).abs() > f64::EPSILON)
    };
    if profile.fixed_sampling {
        ensure!(!is_other(settings.temperature), "`temperature` is deprecated for this model.");
        ensure!(!is_other(settings.top_p), "`top_p` is deprecated for this model.");
        ensure!(settings.top_k.is_none(), "`top_k` is deprecated for this model.");
        return Ok(());
    }
    let while_thinking = match settings.mode() {
        Some(Mode::Enabled) => "enabled",
        Some(Mode::Adaptive) => "enabled or in adaptive mode",
        Some(Mode::Disabled | Mode::BetweenTools) | None => return Ok(()),
    };
    ensure!(
        !is_other(settings.temperature),
        "`temperature` may only be set to 1 when thinking is {while_thinking}."
    );
    Ok(())
}

fn check_choice(
    settings: &Settings<'_>,
    profile: &Profile,
    rule: ForcedTools,
) -> Result<(), Refusal> {
    if !settings.choice.is_forced() {
        return Ok(());
    }
    ensure!(
        rule != ForcedTools::Refused,
        "tool_choice: type \"tool\" and \"any\" are not supported for this model."
    );
    let is_refused = match rule {
        ForcedTools::Refused | ForcedTools::Allowed => false,
        ForcedTools::RefusedWithBudget => settings.mode() == Some(Mode::Enabled),
        ForcedTools::RefusedWhileThinking => settings.thinks(profile, false),
    };
    ensure!(!is_refused, "Thinking may not be enabled when tool_choice forces tool use.");
    Ok(())
}
