//! The reliability gate: what is done when an answer does not come, or is not what it had to be.
//!
//! Rules are data, looked at in their order; the first that fits decides. So a gate can be kept with a run, and decides the
//! same after a crash.

use serde::{Deserialize, Serialize};
use throughline_core::{Name, Trouble};

/// The most often that a model is asked for one answer, whatever the rules say.
pub(crate) const MOST_ATTEMPTS: u64 = 50;

/// What is said to a model whose answer was not what it had to be, where no rule says it better.
pub(crate) const FEEDBACK: &str =
    "Previous output failed validation. Return valid JSON conforming to the schema.";

/// What is done when an answer does not come, or is not what it had to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Gate {
    /// The rules, in the order in which they are looked at.
    pub rules: Vec<GateRule>,
    /// The models that are asked instead, one after another, by rules that say `retry-other`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_models: Vec<Name>,
    /// What is answered instead, by rules that say `fallback`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Name>,
    /// When a model is left alone for a while.
    pub breaker: BreakerConfig,
}

impl Default for Gate {
    fn default() -> Self {
        let rule = |when: Trouble, attempts, then| GateRule {
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
                    ..rule(Trouble::Schema, 0, Decision::FailFast)
                },
                rule(Trouble::Schema, 4, Decision::Retry),
                rule(Trouble::Transient, 3, Decision::Retry),
                rule(Trouble::RateLimit, 3, Decision::Retry),
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

    /// What is done, and the rule that says so. Without a rule it ends here.
    pub(crate) fn decide(&self, seen: &Seen<'_>) -> (Decision, Option<&GateRule>) {
        let rule = self.rules.iter().find(|rule| rule.fits(seen));
        (rule.map_or(Decision::FailFast, |rule| rule.then), rule)
    }
}

/// One rule of a gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GateRule {
    /// The kinds of failure that it is for, as `schema-fail`; empty is all of them.
    #[serde(default)]
    pub when: Vec<Name>,
    /// It fits while the model was asked fewer times than that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts_below: Option<u64>,
    /// It fits when the same error came that many times in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_error_times: Option<u64>,
    /// What is done.
    pub then: Decision,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Name>,
    /// What the model is told; `{error}` stands for what was wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<Name>,
}

/// What a rule looks at.
pub(crate) struct Seen<'a> {
    pub(crate) kind: Trouble,
    /// How often the model was asked.
    pub(crate) attempts: u64,
    /// What was wrong each time.
    pub(crate) errors: &'a [Name],
}

impl GateRule {
    fn fits(&self, seen: &Seen<'_>) -> bool {
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

/// What a rule says is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// The answer is taken as it is.
    Ok,
    /// The same model is asked again.
    Retry,
    /// The next of the other models is asked.
    RetryOther,
    /// What was set as a fallback is the answer.
    Fallback,
    /// The run fails.
    FailFast,
}

impl Decision {
    /// The documented word.
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

/// When a model that fails again and again is left alone for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BreakerConfig {
    /// After how many failures in a row.
    pub failure_threshold: u64,
    /// For how long, in milliseconds.
    pub cooldown_ms: u64,
    /// After how many answers it counts as well again.
    pub half_open_success_threshold: u64,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self { failure_threshold: 5, cooldown_ms: 30_000, half_open_success_threshold: 2 }
    }
}
