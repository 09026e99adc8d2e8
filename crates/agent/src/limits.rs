//! Limits of a run, and the profiles that provide their defaults.

use serde::{Deserialize, Serialize};

/// Limits of a run. Unset limits come from the profile. If the profile does not set a limit either,
/// that limit is off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AgentLimits {
    /// Maximum number of tool calls in the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tool_calls: Option<u64>,
    /// Maximum number of tools that run at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_parallel_tools: Option<u64>,
    /// Maximum estimated number of tokens in the conversation that the model sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_context_tokens: Option<u64>,
    /// Maximum number of output tokens in the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_total_output_tokens: Option<u64>,
    /// Maximum cost in US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<f64>,
    /// Maximum duration in milliseconds, excluding time spent waiting for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_wall_clock_ms: Option<u64>,
}

impl AgentLimits {
    /// Returns the maximum number of turns, which stops models that loop. The maximum leaves room
    /// to call every tool separately, plan, hand over and repair mistakes.
    pub(crate) fn max_turns(&self) -> Option<u64> {
        self.max_tool_calls.map(|calls| calls.saturating_mul(3).saturating_add(10).max(40))
    }

    /// Fills unset limits from the profile. A tool-call limit of 0 allows no calls. Any other limit
    /// of 0 means unlimited.
    #[must_use]
    pub fn with_defaults_from(&self, profile: RuntimeProfile) -> Self {
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

/// A named preset of limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeProfile {
    /// Low limits for quick answers.
    Fast,
    /// Medium limits for everyday tasks.
    #[default]
    Balanced,
    /// High limits for hard tasks.
    Deep,
    /// The highest limits, for long research.
    Research,
    /// The limits of `balanced`, intended as a base for custom limits.
    Custom,
}

/// Default limits and compaction settings of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Preset {
    pub(crate) tool_calls: u64,
    pub(crate) parallel_tools: u64,
    pub(crate) context_tokens: u64,
    /// Conversation size, in tokens, that triggers a summary.
    pub(crate) trigger_tokens: u64,
    /// Number of exchanges before the current exchange that are not summarised, as long as they fit
    /// in half of the trigger size.
    pub(crate) keep_turns: u64,
}

impl RuntimeProfile {
    pub(crate) fn preset(self) -> Preset {
        let (tool_calls, parallel_tools, context_tokens, trigger_tokens, keep_turns) = match self {
            Self::Fast => (8, 3, 32_000, 24_000, 8),
            Self::Balanced | Self::Custom => (20, 5, 96_000, 72_000, 16),
            Self::Deep => (40, 8, 200_000, 150_000, 30),
            Self::Research => (80, 10, 400_000, 300_000, 60),
        };
        Preset { tool_calls, parallel_tools, context_tokens, trigger_tokens, keep_turns }
    }
}
