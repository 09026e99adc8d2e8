//! What is sent again, how often, and after which wait.
//!
//! Only what the provider has not begun to answer is sent again: a connection that did not come about, and a status that
//! says "later". Providers know no idempotency, so a request whose connection broke on the way may have been paid for
//! already; it is sent again only if the policy says so.

use std::time::Duration;

use jiff::Timestamp;
use throughline_core::{Answer, UpstreamError, Waiting};

/// How often a request is sent again, and after which wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// How many times it is sent again.
    pub retries: u32,
    /// The wait before the first time, where the provider asks for none. It doubles each time.
    pub first_wait: Duration,
    /// The longest such wait.
    pub longest_wait: Duration,
    /// The longest that all waits may take together. A provider that asks for more gets its answer passed on.
    pub total_wait: Duration,
    /// Whether a request is sent again whose connection broke before anything of an answer came.
    pub resend_when_cut: bool,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            retries: 2,
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(8),
            total_wait: Duration::from_secs(20),
            resend_when_cut: false,
        }
    }
}

/// The statuses that mean "later". 529 is Anthropic's word for being overloaded.
const LATER: [u16; 7] = [408, 429, 500, 502, 503, 504, 529];

/// How often one request was sent again, and how long that took.
#[derive(Debug)]
pub(crate) struct Tries {
    policy: RetryPolicy,
    made: u32,
    waited: Duration,
}

impl Tries {
    pub(crate) fn new(policy: RetryPolicy) -> Self {
        Self { policy, made: 0, waited: Duration::ZERO }
    }

    /// How long to wait before the request is sent again; nothing if this outcome is the last.
    pub(crate) fn wait_after(
        &mut self,
        outcome: &Result<Answer, UpstreamError>,
        now: Timestamp,
    ) -> Option<Duration> {
        if self.made >= self.policy.retries || !self.is_worth_it(outcome) {
            return None;
        }
        let asked = outcome.as_ref().ok().and_then(|answer| asked_wait(answer, now));
        let wait = match asked {
            // A little later than asked, so that not all come back at the same moment.
            Some(asked) => asked + asked.mul_f64(0.1 * chance()),
            None => self.own_wait(),
        };
        let waited = self.waited + wait;
        if waited > self.policy.total_wait {
            return None;
        }
        self.made += 1;
        self.waited = waited;
        Some(wait)
    }

    fn is_worth_it(&self, outcome: &Result<Answer, UpstreamError>) -> bool {
        match outcome {
            Ok(answer) => {
                LATER.contains(&answer.status) && answer.header("x-should-retry") != Some("false")
            }
            Err(UpstreamError::Unreachable { .. }) => true,
            Err(UpstreamError::TimedOut { waiting, .. }) => *waiting == Waiting::Connecting,
            Err(UpstreamError::Cut { .. }) => self.policy.resend_when_cut,
            Err(
                UpstreamError::UnknownEndpoint { .. }
                | UpstreamError::NoCredential { .. }
                | UpstreamError::Refused { .. }
                | UpstreamError::Invalid { .. }
                | UpstreamError::Resting { .. }
                | UpstreamError::TooLarge { .. },
            ) => false,
        }
    }

    /// Twice as long each time, and between half of it and all of it by chance.
    fn own_wait(&self) -> Duration {
        let doubled = self.policy.first_wait.saturating_mul(2_u32.saturating_pow(self.made));
        doubled.min(self.policy.longest_wait).mul_f64(0.5 + 0.5 * chance())
    }
}

/// How long the provider asks to wait: in milliseconds, in seconds, or until a date.
fn asked_wait(answer: &Answer, now: Timestamp) -> Option<Duration> {
    let seconds = |text: &str, unit: f64| {
        let number: f64 = text.trim().parse().ok()?;
        Duration::try_from_secs_f64(number * unit).ok()
    };
    if let Some(wait) = answer.header("retry-after-ms").and_then(|text| seconds(text, 0.001)) {
        return Some(wait);
    }
    let asked = answer.header("retry-after")?;
    seconds(asked, 1.0).or_else(|| {
        // The date is by the provider's clock, so it is compared with that clock where it is told.
        let now = answer.header("date").and_then(date).unwrap_or(now);
        Some(Duration::try_from(date(asked)?.duration_since(now)).unwrap_or_default())
    })
}

/// A date as HTTP writes it: `Sun, 06 Nov 1994 08:49:37 GMT`.
fn date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::parse(text.trim()).ok().map(|date| date.timestamp())
}

/// A number between 0 and 1. Without a source of chance, the middle.
fn chance() -> f64 {
    getrandom::u32().map_or(0.5, |number| f64::from(number) / f64::from(u32::MAX))
}

#[cfg(test)]
#[path = "retry_tests.rs"]
mod retry_tests;
