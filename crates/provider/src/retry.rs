//! Decides whether a failed request is retried, how often, and after what delay.
//!
//! A request is retried only if the provider has not started a reply: the connection failed, or the
//! status signals a temporary failure. Provider APIs have no idempotency keys, so the provider may
//! charge for a request even if its connection broke. Such a request is repeated only if the policy
//! allows it.

use std::time::Duration;

use jiff::Timestamp;
use throughline_core::{TimeoutPhase, UpstreamError, UpstreamResponse};

/// Policy for repeating failed requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Maximum number of retries per request.
    pub retries: u32,
    /// Delay before the first retry, doubled for each further retry. A delay requested by the
    /// provider takes precedence.
    pub first_wait: Duration,
    /// Maximum backoff delay. A delay requested by the provider may be longer.
    pub longest_wait: Duration,
    /// Maximum total delay per request. If the next delay would exceed this limit, the last outcome
    /// is returned instead.
    pub total_wait: Duration,
    /// Whether to repeat a request whose connection broke before any part of a response arrived.
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

/// Statuses that allow a retry. 529 is Anthropic's status for overload.
const RETRYABLE: [u16; 7] = [408, 429, 500, 502, 503, 504, 529];

/// Counts the retries and delays of one request.
#[derive(Debug)]
pub(crate) struct RetryState {
    policy: RetryPolicy,
    retries: u32,
    waited: Duration,
}

impl RetryState {
    pub(crate) fn new(policy: RetryPolicy) -> Self {
        Self { policy, retries: 0, waited: Duration::ZERO }
    }

    /// Returns the delay before the next retry; `None` if the request must not be retried.
    pub(crate) fn wait_after(
        &mut self,
        outcome: &Result<UpstreamResponse, UpstreamError>,
        now: Timestamp,
    ) -> Option<Duration> {
        if self.retries >= self.policy.retries || !self.is_retryable(outcome) {
            return None;
        }
        let requested = outcome.as_ref().ok().and_then(|response| response.retry_after(Some(now)));
        let wait = match requested {
            // Add jitter to the requested delay, so that clients do not retry simultaneously.
            Some(requested) => requested + requested.mul_f64(0.1 * random_fraction()),
            None => self.backoff(),
        };
        let waited = self.waited + wait;
        if waited > self.policy.total_wait {
            return None;
        }
        self.retries += 1;
        self.waited = waited;
        Some(wait)
    }

    fn is_retryable(&self, outcome: &Result<UpstreamResponse, UpstreamError>) -> bool {
        match outcome {
            Ok(response) => {
                RETRYABLE.contains(&response.status)
                    && response.header("x-should-retry") != Some("false")
            }
            Err(UpstreamError::Unreachable { .. }) => true,
            Err(UpstreamError::TimedOut { waiting, .. }) => *waiting == TimeoutPhase::Connecting,
            Err(UpstreamError::Cut { .. }) => self.policy.resend_when_cut,
            Err(_) => false,
        }
    }

    /// Returns an exponential backoff delay with jitter: a random value between half the delay and
    /// the full delay.
    fn backoff(&self) -> Duration {
        let doubled = self.policy.first_wait.saturating_mul(2_u32.saturating_pow(self.retries));
        doubled.min(self.policy.longest_wait).mul_f64(0.5 + 0.5 * random_fraction())
    }
}

/// Returns a random number between 0 and 1; 0.5 if the system provides no randomness.
fn random_fraction() -> f64 {
    getrandom::u32().map_or(0.5, |number| f64::from(number) / f64::from(u32::MAX))
}

#[cfg(test)]
#[path = "retry_tests.rs"]
mod retry_tests;
