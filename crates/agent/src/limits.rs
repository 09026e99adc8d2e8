//! How much a run may use, and the profiles that say so where nobody else does.

use serde::{Deserialize, Serialize};

/// How much a run may use. What is not set comes from the profile; what the profile does not set is not limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AgentLimits {
    /// Tool calls of the whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tool_calls: Option<u64>,
    /// Tools that run at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_parallel_tools: Option<u64>,
    /// Tokens of the conversation that the model is shown, roughly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_context_tokens: Option<u64>,
    /// Tokens that the models write in the whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_total_output_tokens: Option<u64>,
    /// What the run may cost, in US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<f64>,
    /// How long the run may take, in milliseconds, not counting the time in which it waits for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_wall_clock_ms: Option<u64>,
}

impl AgentLimits {
    /// Whether none is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The most turns of a run that may call that many tools: enough for every one of them alone and for what needs none of
    /// them, as plans, handoffs and mistakes. So a model that goes round in circles comes to an end.
    pub(crate) fn max_turns(&self) -> Option<u64> {
        self.max_tool_calls.map(|calls| calls.saturating_mul(3).saturating_add(10).max(40))
    }

    /// These limits, with what is not set taken from the profile. Zero tool calls are a limit; zero of anything else is none.
    #[must_use]
    pub fn over(&self, profile: RuntimeProfile) -> Self {
        let preset = profile.preset();
        let some = |own: Option<u64>, preset: u64| own.or(Some(preset)).filter(|limit| *limit > 0);
        Self {
            max_tool_calls: self.max_tool_calls.or(Some(preset.tool_calls)),
            max_parallel_tools: some(self.max_parallel_tools, preset.parallel_tools),
            max_context_tokens: some(self.max_context_tokens, preset.context_tokens),
            max_total_output_tokens: self.max_total_output_tokens.filter(|limit| *limit > 0),
            max_cost_usd: self.max_cost_usd.filter(|limit| *limit > 0.0),
            max_wall_clock_ms: self.max_wall_clock_ms.filter(|limit| *limit > 0),
        }
    }
}

/// A set of limits with a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeProfile {
    /// A quick answer.
    Fast,
    /// Everyday work.
    #[default]
    Balanced,
    /// Hard work.
    Deep,
    /// Long work.
    Research,
    /// One's own limits, over those of `balanced`.
    Custom,
}

/// What a profile sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Preset {
    pub(crate) tool_calls: u64,
    pub(crate) parallel_tools: u64,
    pub(crate) context_tokens: u64,
    /// From how many tokens on what is old is summarised.
    pub(crate) trigger_tokens: u64,
    /// How many of the latest exchanges stay as they are.
    pub(crate) keep_turns: u64,
}

impl RuntimeProfile {
    pub(crate) fn preset(self) -> Preset {
        let of = |tool_calls, parallel_tools, context_tokens, trigger_tokens, keep_turns| Preset {
            tool_calls,
            parallel_tools,
            context_tokens,
            trigger_tokens,
            keep_turns,
        };
        match self {
            Self::Fast => of(8, 3, 32_000, 24_000, 8),
            Self::Balanced | Self::Custom => of(20, 5, 96_000, 72_000, 16),
            Self::Deep => of(40, 8, 200_000, 150_000, 30),
            Self::Research => of(80, 10, 400_000, 300_000, 60),
        }
    }
}
