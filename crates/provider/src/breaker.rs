//! Circuit breakers: an endpoint or model that keeps failing gets no requests for some time.
//!
//! After a number of consecutive failures the breaker opens, and requests are rejected for a fixed
//! pause. After the pause, one request probes the endpoint. If the probe succeeds, the breaker
//! closes; if the probe fails, the pause starts again.
//!
//! Each model at an endpoint has its own breaker, so a failing model does not block other models.
//! Connection failures do not depend on the model, so they count for the endpoint's breaker.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use throughline_json::Name;
use tokio::time::Instant;

/// When a circuit breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerPolicy {
    /// Number of consecutive failures that opens the breaker; 0 disables the breaker.
    pub failures: u32,
    /// Time until an open breaker allows a probe.
    pub pause: Duration,
}

impl Default for BreakerPolicy {
    fn default() -> Self {
        Self { failures: 10, pause: Duration::from_secs(10) }
    }
}

/// Retry delay that is reported to other requests while a probe is in flight.
const PROBE_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Maximum number of per-model breakers. Clients choose model names, so the number must be bounded.
const MOST_MODELS: usize = 256;

/// Circuit breakers for one endpoint and its models.
#[derive(Debug)]
pub(crate) struct Breakers {
    policy: BreakerPolicy,
    endpoint: Breaker,
    models: Mutex<HashMap<Name, Arc<Breaker>>>,
}

impl Breakers {
    pub(crate) fn new(policy: BreakerPolicy) -> Self {
        Self { policy, endpoint: Breaker::new(policy), models: Mutex::default() }
    }

    /// Returns the endpoint's breaker, which counts connection failures.
    pub(crate) fn endpoint(&self) -> &Breaker {
        &self.endpoint
    }

    /// Returns the breaker of a model. If there are already `MOST_MODELS` breakers with failures,
    /// further models share one breaker.
    pub(crate) fn model(&self, model: Option<&Name>) -> Arc<Breaker> {
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        let mut name = model.cloned().unwrap_or_default();
        if !models.contains_key(&name) && models.len() >= MOST_MODELS {
            models.retain(|_, breaker| breaker.has_failures());
            if models.len() >= MOST_MODELS {
                name = Name::default();
            }
        }
        Arc::clone(models.entry(name).or_insert_with(|| Arc::new(Breaker::new(self.policy))))
    }

    /// Returns the models whose breakers are open; `None` stands for the whole endpoint.
    pub(crate) fn open(&self) -> Vec<Option<Name>> {
        let endpoint = self.endpoint.is_open().then_some(None);
        let models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        let models = models.iter().filter(|(_, breaker)| breaker.is_open());
        let models =
            models.map(|(name, _)| Some(Name::clone(name)).filter(|name| !name.is_empty()));
        endpoint.into_iter().chain(models).collect()
    }
}

#[derive(Debug)]
pub(crate) struct Breaker {
    policy: BreakerPolicy,
    state: Mutex<BreakerState>,
}

#[derive(Debug)]
enum BreakerState {
    /// Requests pass. `failures` counts consecutive failures.
    Closed { failures: u32 },
    /// Requests are rejected until this time.
    Open { until: Instant },
    /// One probe request is in flight.
    Probing,
}

impl Breaker {
    pub(crate) fn new(policy: BreakerPolicy) -> Self {
        Self { policy, state: Mutex::new(BreakerState::Closed { failures: 0 }) }
    }

    /// Returns a permit for one request, or the time to wait before the next attempt.
    pub(crate) fn admit(&self, now: Instant) -> Result<Permit<'_>, Duration> {
        let mut state = self.state();
        match *state {
            BreakerState::Closed { .. } => Ok(Permit { breaker: self, probe: None }),
            BreakerState::Open { until } if now < until => Err(until - now),
            BreakerState::Open { .. } => {
                *state = BreakerState::Probing;
                Ok(Permit { breaker: self, probe: Some(now) })
            }
            BreakerState::Probing => Err(PROBE_RETRY_DELAY),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        !matches!(*self.state(), BreakerState::Closed { .. })
    }

    /// Returns whether the breaker is open or the last request failed.
    fn has_failures(&self) -> bool {
        !matches!(*self.state(), BreakerState::Closed { failures: 0 })
    }

    fn succeeded(&self) {
        *self.state() = BreakerState::Closed { failures: 0 };
    }

    fn failed(&self, probes: bool, now: Instant) {
        let mut state = self.state();
        let open = BreakerState::Open { until: now + self.policy.pause };
        match &mut *state {
            BreakerState::Closed { failures } => {
                *failures = failures.saturating_add(1);
                if *failures == self.policy.failures {
                    *state = open;
                }
            }
            BreakerState::Probing if probes => *state = open,
            // The request started before the pause, so its failure adds no information.
            BreakerState::Probing | BreakerState::Open { .. } => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, BreakerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Permit for one request. If a probe's permit is dropped without a result, the next request
/// becomes the probe.
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    breaker: &'a Breaker,
    /// Start of the probe; `None` if this request is not a probe.
    probe: Option<Instant>,
}

impl Permit<'_> {
    pub(crate) fn settle(mut self, failed: bool, now: Instant) {
        let probes = self.probe.take().is_some();
        if failed {
            self.breaker.failed(probes, now);
        } else {
            self.breaker.succeeded();
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let Some(since) = self.probe else { return };
        let mut state = self.breaker.state();
        if matches!(*state, BreakerState::Probing) {
            *state = BreakerState::Open { until: since };
        }
    }
}

#[cfg(test)]
#[path = "breaker_tests.rs"]
mod breaker_tests;
