//! The reliability gate decides how to react to failed model calls and invalid answers.
//!
//! Rules are plain data. They are evaluated in order, and the first matching rule decides. The gate
//! is stored with its run, so decisions do not change after a crash.

use serde::{Deserialize, Serialize};
use throughline_core::ModelErrorKind;
use throughline_json::{Name, words};

use crate::progress::GateAttempts;

/// Maximum number of attempts per answer, regardless of the rules.
pub(crate) const MAX_ATTEMPTS: u64 = 50;

/// Default feedback to the model after an invalid answer.
pub(crate) const FEEDBACK: &str =
    "Previous output failed validation. Return valid JSON conforming to the schema.";

/// Rules, fallbacks and circuit breaker for failed model calls and invalid answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Gate {
    /// Rules in evaluation order.
    pub rules: Vec<GateRule>,
    /// Fallback models for `retry-other`, tried in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_models: Vec<Name>,
    /// Fixed final answer for the decision `fallback`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Name>,
    /// Circuit breaker settings. Each model has its own breaker.
    pub breaker: BreakerConfig,
}

impl Default for Gate {
    fn default() -> Self {
        let names = |kind: ModelErrorKind| vec![Name::from(kind.as_str())];
        let retry = |when: ModelErrorKind, attempts| GateRule {
            when: names(when),
            attempts_below: Some(attempts),
            then: Decision::Retry,
            ..GateRule::default()
        };
        let stuck = GateRule {
            when: names(ModelErrorKind::Schema),
            same_error_times: Some(3),
            label: Some(Name::from("stuck")),
            ..GateRule::default()
        };
        Self {
            rules: vec![
                stuck,
                retry(ModelErrorKind::Schema, 4),
                retry(ModelErrorKind::Transient, 3),
                retry(ModelErrorKind::RateLimit, 3),
            ],
            other_models: Vec::new(),
            fallback: None,
            breaker: BreakerConfig::default(),
        }
    }
}

impl Gate {
    /// Returns the first rule that matches, or the default rule, which fails the run.
    pub(crate) fn decide(&self, kind: ModelErrorKind, trial: &GateAttempts) -> GateRule {
        let rule = self.rules.iter().find(|rule| rule.matches(kind, trial));
        rule.cloned().unwrap_or_default()
    }
}

/// One rule of a gate. The default rule matches every failure and fails the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GateRule {
    /// Failure kinds that the rule matches, such as `schema-fail`; an empty list matches all kinds.
    #[serde(default)]
    pub when: Vec<Name>,
    /// The rule matches only while fewer than this many attempts have failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts_below: Option<u64>,
    /// The rule matches only after this many identical errors in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_error_times: Option<u64>,
    /// Decision to apply when the rule matches.
    pub then: Decision,
    /// Name of the rule, as reported in events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Name>,
    /// Feedback sent to the model; `{error}` is replaced with the error message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<Name>,
}

impl GateRule {
    fn matches(&self, kind: ModelErrorKind, trial: &GateAttempts) -> bool {
        let kind = self.when.is_empty() || self.when.iter().any(|name| **name == *kind.as_str());
        let below = self.attempts_below.is_none_or(|below| trial.attempts < below);
        kind && below && self.same_error_times.is_none_or(|times| is_stuck(&trial.errors, times))
    }
}

fn is_stuck(errors: &[Name], times: u64) -> bool {
    let last = errors.last();
    let same = errors.iter().rev().take_while(|error| Some(*error) == last).count();
    u64::try_from(same).is_ok_and(|same| same >= times.max(1))
}

words! {
    /// Reaction of the gate to a failed call or an invalid answer.
    #[derive(Default, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    Decision {
        /// Accept the answer unchanged.
        Ok = "ok",
        /// Call the same model again.
        Retry = "retry",
        /// Call the next fallback model.
        RetryOther = "retry-other",
        /// Answer with the configured fallback text.
        Fallback = "fallback",
        /// Fail the run.
        #[default]
        FailFast = "fail-fast",
    }
}

/// Settings for the circuit breaker, which pauses calls to a model that keeps failing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BreakerConfig {
    /// Number of consecutive failures that opens the breaker.
    pub failure_threshold: u64,
    /// Time in milliseconds until an open breaker allows another call.
    pub cooldown_ms: u64,
    /// Number of successes that closes a half-open breaker.
    pub half_open_success_threshold: u64,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self { failure_threshold: 5, cooldown_ms: 30_000, half_open_success_threshold: 2 }
    }
}
