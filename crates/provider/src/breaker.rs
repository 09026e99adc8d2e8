//! Circuit breakers: an endpoint or a model that keeps failing gets no requests for a while.
//!
//! After a number of failures in a row nothing is sent until a pause is over. Then one request is let through as a probe:
//! if it succeeds, all requests are; if it fails, the pause begins again.
//!
//! Each model of an endpoint has a breaker of its own, so a model that fails does not stop the others. Failures to connect
//! say nothing about a model: they count for the endpoint.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use throughline_core::Name;
use tokio::time::Instant;

/// When an endpoint is left alone, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerPolicy {
    /// How many failures in a row it takes; 0 means that it is never left alone.
    pub failures: u32,
    /// How long the pause is.
    pub pause: Duration,
}

impl Default for BreakerPolicy {
    fn default() -> Self {
        Self { failures: 10, pause: Duration::from_secs(10) }
    }
}

/// What to tell others while one request finds out whether the endpoint is back.
const WHILE_PROBED: Duration = Duration::from_secs(1);

/// The most models of one endpoint that have a breaker. Callers choose the names of models, so the number is bounded.
const MOST_MODELS: usize = 256;

/// The breakers of one endpoint.
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

    /// The breaker of the endpoint, for failures to connect.
    pub(crate) fn endpoint(&self) -> &Breaker {
        &self.endpoint
    }

    /// The breaker of a model; one that all others share where there are too many models.
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
}

#[derive(Debug)]
pub(crate) struct Breaker {
    policy: BreakerPolicy,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// Requests go through; so many of the last ones failed.
    Closed { failures: u32 },
    /// Requests are held back until then.
    Open { until: Instant },
    /// One request is on its way to see.
    Probing,
}

impl Breaker {
    pub(crate) fn new(policy: BreakerPolicy) -> Self {
        Self { policy, state: Mutex::new(State::Closed { failures: 0 }) }
    }

    /// The permission to send one request, or how long to wait for it.
    pub(crate) fn admit(&self, now: Instant) -> Result<Permit<'_>, Duration> {
        let mut state = self.state();
        match *state {
            State::Closed { .. } => Ok(Permit { breaker: self, probe: None }),
            State::Open { until } if now < until => Err(until - now),
            State::Open { .. } => {
                *state = State::Probing;
                Ok(Permit { breaker: self, probe: Some(now) })
            }
            State::Probing => Err(WHILE_PROBED),
        }
    }

    /// Whether requests are held back.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(*self.state(), State::Closed { .. })
    }

    /// Whether requests are held back, or the last one failed.
    fn has_failures(&self) -> bool {
        !matches!(*self.state(), State::Closed { failures: 0 })
    }

    fn succeeded(&self) {
        *self.state() = State::Closed { failures: 0 };
    }

    fn failed(&self, probes: bool, now: Instant) {
        let mut state = self.state();
        let open = State::Open { until: now + self.policy.pause };
        match &mut *state {
            State::Closed { failures } => {
                *failures = failures.saturating_add(1);
                if *failures == self.policy.failures {
                    *state = open;
                }
            }
            State::Probing if probes => *state = open,
            // A request from before the pause; what it says is known.
            State::Probing | State::Open { .. } => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The permission to send one request. Whoever gives up before its end lets the next one see.
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    breaker: &'a Breaker,
    /// When it was let through to see, if it was.
    probe: Option<Instant>,
}

impl Permit<'_> {
    /// Says how it went.
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
        if matches!(*state, State::Probing) {
            *state = State::Open { until: since };
        }
    }
}

#[cfg(test)]
#[path = "breaker_tests.rs"]
mod breaker_tests;
