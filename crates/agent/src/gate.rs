//! The reliability gate: the reaction to failed model calls and invalid answers.
//!
//! Rules are data and are evaluated in order; the first match decides. A gate is stored with its
//! run, so it decides the same way after a crash.

use serde::{Deserialize, Serialize};
use throughline_core::ModelErrorKind;
use throughline_json::Name;

/// Upper bound of attempts for one answer, regardless of the rules.
pub(crate) const MAX_ATTEMPTS: u64 = 50;

/// Default feedback to a model whose answer is invalid.
pub(crate) const FEEDBACK: &str =
    "Previous output failed validation. Return valid JSON conforming to the schema.";

/// Reaction to failed model calls and invalid answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Gate {
    /// Rules in evaluation order.
    pub rules: Vec<GateRule>,
    /// Fallback models for `retry-other`, tried in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_models: Vec<Name>,
    /// Fixed answer for `fallback`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Name>,
    /// Circuit breaker settings per model.
    pub breaker: BreakerConfig,
}

impl Default for Gate {
    fn default() -> Self {
        let rule = |when: ModelErrorKind, attempts, then| GateRule {
            when: vec![Name::from(when.as_str())],
            attempts_below: Some(attempts),
            same_error_times: None,
            then,
            label: None,
            feedback: None,
        };
        Self {
            rules: vec![
                GateRule {
                    same_error_times: Some(3),
                    label: Some(Name::from("stuck")),
                    attempts_below: None,
                    ..rule(ModelErrorKind::Schema, 0, Decision::FailFast)
                },
                rule(ModelErrorKind::Schema, 4, Decision::Retry),
                rule(ModelErrorKind::Transient, 3, Decision::Retry),
                rule(ModelErrorKind::RateLimit, 3, Decision::Retry),
            ],
            other_models: Vec::new(),
            fallback: None,
            breaker: BreakerConfig::default(),
        }
    }
}

impl Gate {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the decision and the rule that made it. Without a matching rule the run fails.
    pub(crate) fn decide(&self, seen: &GateFacts<'_>) -> (Decision, Option<&GateRule>) {
        let rule = self.rules.iter().find(|rule| rule.matches(seen));
        (rule.map_or(Decision::FailFast, |rule| rule.then), rule)
    }
}

/// One rule of a gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GateRule {
    /// Failure kinds that the rule matches, such as `schema-fail`; empty matches all.
    #[serde(default)]
    pub when: Vec<Name>,
    /// Matches while there were fewer attempts than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts_below: Option<u64>,
    /// Matches when the same error occurred this many times in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_error_times: Option<u64>,
    /// Decision if the rule matches.
    pub then: Decision,
    /// Name of the rule in events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Name>,
    /// Feedback to the model; `{error}` is replaced by the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<Name>,
}

/// Facts that a rule matches against.
pub(crate) struct GateFacts<'a> {
    pub(crate) kind: ModelErrorKind,
    pub(crate) attempts: u64,
    pub(crate) errors: &'a [Name],
}

impl GateRule {
    fn matches(&self, seen: &GateFacts<'_>) -> bool {
        let kind =
            self.when.is_empty() || self.when.iter().any(|word| **word == *seen.kind.as_str());
        let below = self.attempts_below.is_none_or(|below| seen.attempts < below);
        kind && below && self.same_error_times.is_none_or(|times| is_stuck(seen.errors, times))
    }
}

fn is_stuck(errors: &[Name], times: u64) -> bool {
    let last = errors.last();
    let same = errors.iter().rev().take_while(|error| Some(*error) == last).count();
    u64::try_from(same).is_ok_and(|same| same >= times.max(1))
}

/// Decision of a gate rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// Accept the answer unchanged.
    Ok,
    /// Call the same model again.
    Retry,
    /// Call the next fallback model.
    RetryOther,
    /// Answer with the configured fallback text.
    Fallback,
    /// Fail the run.
    FailFast,
}

impl Decision {
    /// Returns the documented name of the decision.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Retry => "retry",
            Self::RetryOther => "retry-other",
            Self::Fallback => "fallback",
            Self::FailFast => "fail-fast",
        }
    }
}

/// Settings of the circuit breaker for a model that keeps failing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BreakerConfig {
    /// Consecutive failures that open the breaker.
    pub failure_threshold: u64,
    /// Time in milliseconds until an open breaker allows another call.
    pub cooldown_ms: u64,
    /// Successes that close a half-open breaker.
    pub half_open_success_threshold: u64,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self { failure_threshold: 5, cooldown_ms: 30_000, half_open_success_threshold: 2 }
    }
}
