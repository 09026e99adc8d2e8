//! What the gateway does while its store cannot be read or written.
//!
//! The keys that callers showed lately are remembered, so that a short outage does not stop their traffic. Each answer of the
//! store replaces what is remembered, so a revoked key is refused at once while the store answers, and after
//! [`StorePolicy::key_grace`] at the latest while it does not. Whether the last write succeeded decides whether the gateway is
//! ready.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use throughline_core::StoreError;
use tokio::time::{Instant, timeout};

use crate::access::{Admission, Keyring};
use crate::exchange::Problem;
use crate::operations::{Level, Operations, usage_log};

/// How many keys are remembered at most.
const MOST_KEYS: usize = 10_000;
/// How long the store may take to say who has a key.
const KEY_LOOKUP: Duration = Duration::from_secs(5);
/// How long a store that failed to answer is not read where that can be avoided.
const REST: Duration = Duration::from_secs(1);
/// How long one request may try whether the store answers again, while the others do not wait for it.
const TRIAL: Duration = Duration::from_secs(10);
/// When a caller that needs the store may try again.
pub(crate) const RETRY_STORE: Duration = Duration::from_secs(5);

/// What is done with requests while the store fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreFailure {
    /// Requests that need no stored state are forwarded, without being captured.
    #[default]
    Pass,
    /// Every request for a model is refused.
    Refuse,
}

/// What is done while the store fails, and for how long keys are believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorePolicy {
    /// What is done with requests.
    pub on_failure: OnStoreFailure,
    /// How long after the store last confirmed a key it is admitted without the store.
    pub key_grace: Duration,
}

impl Default for StorePolicy {
    fn default() -> Self {
        Self { on_failure: OnStoreFailure::Pass, key_grace: Duration::from_mins(5) }
    }
}

/// What is known of the store's health.
#[derive(Default)]
pub(super) struct StoreHealth {
    state: Mutex<State>,
    keys: Mutex<HashMap<KeyHash, Remembered>>,
}

/// The hash of a key; nothing for callers without one.
type KeyHash = Option<[u8; 32]>;

#[derive(Default)]
struct State {
    /// When the last read failed, unless one succeeded since.
    read: Option<Failed>,
    /// When a request began to try whether reads succeed again.
    tried: Option<Instant>,
    /// The same of writes.
    write: Option<Failed>,
    /// When it was last tried whether writes succeed again.
    probed: Option<Instant>,
}

#[derive(Clone, Copy)]
struct Failed {
    at: Instant,
    reason: &'static str,
}

struct Remembered {
    admission: Admission,
    confirmed: Instant,
}

impl StoreHealth {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<KeyHash, Remembered>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the store said of the key, if that is no longer than `grace` before `now`.
    fn remembered(&self, key: KeyHash, grace: Duration, now: Instant) -> Option<Admission> {
        let keys = self.keys();
        let known = keys.get(&key)?;
        (now.duration_since(known.confirmed) <= grace).then(|| known.admission.clone())
    }

    /// Remembers what the store says of a key. A key that it refuses is forgotten.
    fn remember(&self, key: KeyHash, admission: &Admission, now: Instant) {
        let mut keys = self.keys();
        if *admission == Admission::Refused {
            keys.remove(&key);
            return;
        }
        if keys.len() >= MOST_KEYS && !keys.contains_key(&key) {
            let oldest = keys.iter().min_by_key(|(_, known)| known.confirmed).map(|(key, _)| *key);
            oldest.map(|oldest| keys.remove(&oldest));
        }
        keys.insert(key, Remembered { admission: admission.clone(), confirmed: now });
    }
}

impl Operations {
    /// Asks the store who has that key. While it does not answer, what it said last counts for a while.
    pub(crate) async fn admit(
        &self,
        keyring: &dyn Keyring,
        key: Option<&str>,
    ) -> Result<Admission, Problem> {
        let StorePolicy { on_failure, key_grace } = self.policy;
        let name = key.map(|key| *blake3::hash(key.as_bytes()).as_bytes());
        let remembered = || match on_failure {
            OnStoreFailure::Pass => self.health.remembered(name, key_grace, Instant::now()),
            OnStoreFailure::Refuse => None,
        };
        if let Some(admission) = remembered().filter(|_| self.is_read_failing()) {
            return Ok(admission);
        }
        let asked = timeout(KEY_LOOKUP, keyring.admit(key)).await;
        let asked = asked.unwrap_or_else(|_| Err(too_slow()));
        self.note_read(asked.as_ref().err());
        match asked {
            Ok(admission) => {
                self.health.remember(name, &admission, Instant::now());
                Ok(admission)
            }
            Err(error) => remembered().ok_or_else(|| {
                let message = format!("the keys cannot be read: {error}");
                Problem::new(503, message).after(RETRY_STORE)
            }),
        }
    }

    /// Whether reads of the store fail. Now and then one request gets `false` meanwhile, and tries whether the store answers
    /// again, so that a store that hangs delays no other request.
    pub(crate) fn is_read_failing(&self) -> bool {
        let mut state = self.health.state();
        let Some(failed) = state.read else { return false };
        let is_tried = state.tried.is_some_and(|tried| tried.elapsed() < TRIAL);
        if failed.at.elapsed() < REST || is_tried {
            return true;
        }
        state.tried = Some(Instant::now());
        false
    }

    /// Whether a request may go on without stored state that could not be read.
    pub(crate) fn passes_without_store(&self) -> bool {
        self.policy.on_failure == OnStoreFailure::Pass
    }

    /// Whether what a key with a budget has used can be relied on.
    pub(super) fn check_budget(&self, admission: &Admission) -> Result<(), Problem> {
        let is_failing = || {
            let state = self.health.state();
            state.read.is_some() || state.write.is_some()
        };
        if !admission.has_budget() || !is_failing() {
            return Ok(());
        }
        let message = "this key has a budget, and the store that counts it does not answer";
        Err(Problem::new(503, message).after(RETRY_STORE))
    }

    /// Refuses a request for a model while answers cannot be kept, where that is the policy.
    pub(crate) async fn check_writes(&self) -> Result<(), Problem> {
        if self.policy.on_failure == OnStoreFailure::Pass {
            return Ok(());
        }
        self.probe().await.map_err(|reason| {
            let message = format!("answers cannot be kept, since {reason}: try again later");
            Problem::new(503, message).after(RETRY_STORE)
        })
    }

    /// Whether the store answers and took the last write; else the reason, which names no place.
    pub(crate) async fn is_ready(&self) -> Result<(), &'static str> {
        let (tenant, log) = usage_log();
        let read = timeout(KEY_LOOKUP, self.store.log(&tenant, &log)).await;
        let read = read.unwrap_or_else(|_| Err(too_slow()));
        self.note_read(read.as_ref().err());
        read.map_err(|error| reason(&error))?;
        self.probe().await
    }

    /// Tries whether writes succeed again, if the last one failed.
    pub(super) async fn probe(&self) -> Result<(), &'static str> {
        {
            let mut state = self.health.state();
            let Some(failed) = state.write else { return Ok(()) };
            if state.probed.is_some_and(|probed| probed.elapsed() < REST) {
                return Err(failed.reason);
            }
            state.probed = Some(Instant::now());
        }
        let probed = timeout(KEY_LOOKUP, self.store.probe()).await;
        let probed = probed.unwrap_or_else(|_| Err(too_slow()));
        self.note_write(probed.as_ref().err());
        probed.map_err(|error| reason(&error))
    }

    /// Notes what became of a read, and logs when that changes.
    pub(crate) fn note_read(&self, error: Option<&StoreError>) {
        if error.is_none_or(is_outage) {
            let before = {
                let mut state = self.health.state();
                state.tried = None;
                std::mem::replace(&mut state.read, error.map(failed_now)).is_some()
            };
            self.log_change("read", before, error);
        }
    }

    /// The same of a write.
    pub(crate) fn note_write(&self, error: Option<&StoreError>) {
        if error.is_none_or(is_outage) {
            let before = {
                let mut state = self.health.state();
                std::mem::replace(&mut state.write, error.map(failed_now)).is_some()
            };
            self.log_change("write", before, error);
        }
    }

    fn log_change(&self, what: &str, was_failing: bool, error: Option<&StoreError>) {
        match (was_failing, error) {
            (false, Some(error)) => self.tell(Level::Warn, |o| {
                o.string("event", "store").string("status", &format!("{what} failed"));
                o.string("problem", &error.to_string());
            }),
            (true, None) => self.tell(Level::Warn, |o| {
                o.string("event", "store").string("status", &format!("{what} works again"));
            }),
            (false, None) | (true, Some(_)) => {}
        }
    }
}

fn failed_now(error: &StoreError) -> Failed {
    Failed { at: Instant::now(), reason: reason(error) }
}

pub(crate) fn too_slow() -> StoreError {
    StoreError::Unreachable("the store".into(), "it took too long".into())
}

/// Whether the store failed, and not what was asked of it.
fn is_outage(error: &StoreError) -> bool {
    match error {
        StoreError::Full
        | StoreError::ReadOnly(_)
        | StoreError::Locked(_)
        | StoreError::Unreachable(_, _)
        | StoreError::Closed
        | StoreError::Corrupt(_)
        | StoreError::Database(_) => true,
        StoreError::Conflict { .. }
        | StoreError::Fenced { .. }
        | StoreError::Held { .. }
        | StoreError::Taken { .. }
        | StoreError::MixedOnce { .. }
        | StoreError::NotFound { .. }
        | StoreError::Invalid(_)
        | StoreError::WrongKey
        | StoreError::KeyMissing
        | StoreError::NewerSchema { .. } => false,
    }
}

/// Why the store fails, for callers who have shown no key.
fn reason(error: &StoreError) -> &'static str {
    match error {
        StoreError::Full => "the store is full",
        StoreError::ReadOnly(_) => "the store is read-only",
        StoreError::Locked(_) => "the store is locked by another program",
        StoreError::Corrupt(_) => "the store is damaged",
        _ => "the store does not answer",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::unnecessary_wraps, reason = "a caller without a key has no hash")]
    fn key(number: u32) -> KeyHash {
        Some(*blake3::hash(&number.to_be_bytes()).as_bytes())
    }

    fn admission() -> Admission {
        let (tenant, id) = (throughline_core::Tenant::from("acme"), "key_1".into());
        let allowance = crate::operations::Allowance::default();
        Admission::Key { tenant, id, models: Vec::new(), allowance }
    }

    #[test]
    fn remembered_key_expires_after_the_grace() {
        let (health, grace) = (StoreHealth::default(), Duration::from_mins(5));
        let now = Instant::now();
        health.remember(key(1), &admission(), now);
        health.remember(None, &Admission::Open, now);
        for (seconds, is_known) in [(0, true), (299, true), (300, true), (301, false)] {
            let later = now + Duration::from_secs(seconds);
            assert_eq!(health.remembered(key(1), grace, later).is_some(), is_known, "{seconds}");
            assert_eq!(health.remembered(None, grace, later).is_some(), is_known, "{seconds}");
            assert_eq!(health.remembered(key(2), grace, later), None);
        }
        // The store confirms it again.
        let later = now + Duration::from_mins(10);
        health.remember(key(1), &admission(), later);
        assert_eq!(health.remembered(key(1), grace, later), Some(admission()));
    }

    #[test]
    fn refused_key_is_forgotten_at_once() {
        let (health, now) = (StoreHealth::default(), Instant::now());
        health.remember(key(1), &admission(), now);
        health.remember(key(1), &Admission::Refused, now);
        assert_eq!(health.remembered(key(1), Duration::from_mins(5), now), None);
    }

    #[test]
    fn number_of_remembered_keys_is_bounded() {
        let (health, now) = (StoreHealth::default(), Instant::now());
        for number in 0..12_000 {
            let at = now + Duration::from_micros(u64::from(number));
            health.remember(key(number), &admission(), at);
        }
        let (grace, later) = (Duration::from_mins(5), now + Duration::from_secs(1));
        assert_eq!(health.keys().len(), MOST_KEYS);
        assert_eq!(health.remembered(key(0), grace, later), None);
        assert!(health.remembered(key(11_999), grace, later).is_some());
    }
}
