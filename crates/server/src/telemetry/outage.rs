//! Handles requests while the store cannot be read or written.
//!
//! Recently used keys are cached, so that a short outage does not interrupt their traffic. Each
//! response from the store replaces the cached entry. A revoked key is therefore rejected
//! immediately while the store is reachable, and otherwise after [`StorePolicy::key_grace`] at the
//! latest. The gateway is ready if it can read and write the store; `/readyz` tests both, and tests
//! writes at most once per second.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use throughline_core::StoreError;
use tokio::time::{Instant, timeout};

use crate::access::{Admission, Keyring};
use crate::error::{GatewayError, GatewayResult, RETRY_STORE};
use crate::sync::lock;
use crate::telemetry::{Level, Telemetry, usage_log};

const MAX_CACHED_KEYS: usize = 10_000;
/// Timeout for looking up a key in the store.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long requests skip the store after a failed read, if they can be handled without the store.
const REST: Duration = Duration::from_secs(1);
/// Time limit for the one request that tests whether the store has recovered. During this time,
/// other requests do not wait for the store.
const TEST_TIMEOUT: Duration = Duration::from_secs(10);

/// How requests are handled while the store fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreFailure {
    /// Forward requests that need no stored state, without capturing them.
    #[default]
    Pass,
    /// Refuse every model call.
    Refuse,
}

/// Configures the gateway's behaviour while the store fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorePolicy {
    /// How requests are handled while the store fails.
    pub on_failure: OnStoreFailure,
    /// How long a key remains valid without the store, from the start of the last lookup that
    /// confirmed the key. A revoked key is accepted for at most this time.
    pub key_grace: Duration,
}

impl Default for StorePolicy {
    fn default() -> Self {
        Self { on_failure: OnStoreFailure::Pass, key_grace: Duration::from_mins(5) }
    }
}

/// The observed health of the store, and the cached keys.
#[derive(Default)]
pub(super) struct StoreHealth {
    state: Mutex<HealthState>,
    keys: Mutex<HashMap<KeyHash, CachedAdmission>>,
}

/// The hash of a key; `None` for callers without a key.
type KeyHash = Option<[u8; 32]>;

#[derive(Default)]
struct HealthState {
    /// The last failed read; `None` if a later read succeeded.
    read: Option<StoreFailure>,
    /// When the latest request started to test whether reads succeed again.
    tried: Option<Instant>,
    /// The last failed write; `None` if a later write succeeded.
    write: Option<StoreFailure>,
    /// When a write was last tested.
    probed: Option<Instant>,
}

#[derive(Clone, Copy)]
struct StoreFailure {
    at: Instant,
    reason: &'static str,
}

struct CachedAdmission {
    admission: Admission,
    confirmed: Instant,
}

impl StoreHealth {
    fn keys(&self) -> MutexGuard<'_, HashMap<KeyHash, CachedAdmission>> {
        lock(&self.keys)
    }

    /// Returns the cached admission of a key, if the store confirmed the key within `grace` before
    /// `now`.
    fn cached_admission(&self, key: KeyHash, grace: Duration, now: Instant) -> Option<Admission> {
        let keys = self.keys();
        let known = keys.get(&key)?;
        (now.duration_since(known.confirmed) <= grace).then(|| known.admission.clone())
    }

    /// Caches the admission of a key, or removes the key from the cache if the store refused the
    /// key. `asked` is the time at which the lookup started.
    fn cache_admission(&self, key: KeyHash, admission: &Admission, asked: Instant) {
        let mut keys = self.keys();
        if *admission == Admission::Refused {
            keys.remove(&key);
            return;
        }
        if keys.len() >= MAX_CACHED_KEYS && !keys.contains_key(&key) {
            let oldest = keys.iter().min_by_key(|(_, known)| known.confirmed).map(|(key, _)| *key);
            oldest.map(|oldest| keys.remove(&oldest));
        }
        keys.insert(key, CachedAdmission { admission: admission.clone(), confirmed: asked });
    }
}

impl Telemetry {
    /// Authenticates a key with the store. While the store does not respond, the key's cached
    /// admission is used for a limited time.
    pub(crate) async fn admit(
        &self,
        keyring: &dyn Keyring,
        key: Option<&str>,
    ) -> GatewayResult<Admission> {
        let StorePolicy { on_failure, key_grace } = self.policy;
        let name = key.map(|key| *blake3::hash(key.as_bytes()).as_bytes());
        let remembered = || match on_failure {
            OnStoreFailure::Pass => self.health.cached_admission(name, key_grace, Instant::now()),
            OnStoreFailure::Refuse => None,
        };
        if let Some(admission) = remembered().filter(|_| self.is_read_failing()) {
            return Ok(admission);
        }
        // A revocation after this time may be missing from the result, so the grace starts here.
        let asked = Instant::now();
        let admission = timeout(LOOKUP_TIMEOUT, keyring.admit(key)).await;
        let admission = admission.unwrap_or_else(|_| Err(store_timeout()));
        self.record_read(admission.as_ref().err());
        match admission {
            Ok(admission) => {
                self.health.cache_admission(name, &admission, asked);
                Ok(admission)
            }
            Err(error) => remembered().ok_or_else(|| {
                let message = format!("cannot read the API keys: {error}");
                GatewayError::new(503, message).after(RETRY_STORE)
            }),
        }
    }

    /// Returns whether reads from the store fail. While they fail, one request after each pause of
    /// [`REST`] gets `false` and tests the store. A hanging store thus delays only that request.
    pub(crate) fn is_read_failing(&self) -> bool {
        let mut state = lock(&self.health.state);
        let Some(failed) = state.read else { return false };
        let is_tried = state.tried.is_some_and(|tried| tried.elapsed() < TEST_TIMEOUT);
        if failed.at.elapsed() < REST || is_tried {
            return true;
        }
        state.tried = Some(Instant::now());
        false
    }

    /// Returns whether a request may continue if its stored state could not be read.
    pub(crate) fn passes_without_store(&self) -> bool {
        self.policy.on_failure == OnStoreFailure::Pass
    }

    /// Refuses a key with a budget while the store cannot record the key's usage.
    pub(super) fn check_budget(&self, admission: &Admission) -> GatewayResult<()> {
        let is_failing = || {
            let state = lock(&self.health.state);
            state.read.is_some() || state.write.is_some()
        };
        if !admission.has_budget() || !is_failing() {
            return Ok(());
        }
        let message =
            "this key has a budget, but the store that records its usage does not respond";
        Err(GatewayError::new(503, message).after(RETRY_STORE))
    }

    /// Refuses a model call while replies cannot be stored, unless the policy allows forwarding.
    pub(crate) async fn check_writes(&self) -> GatewayResult<()> {
        if self.policy.on_failure == OnStoreFailure::Pass {
            return Ok(());
        }
        self.test_writes().await.map_err(|reason| {
            let message = format!("cannot store responses because {reason}; try again later");
            GatewayError::new(503, message).after(RETRY_STORE)
        })
    }

    /// Returns whether the gateway accepts requests, and the store responds and accepts writes. The
    /// error states the reason and contains no file paths.
    pub(crate) async fn check_ready(&self) -> Result<(), &'static str> {
        if self.sockets.is_draining() {
            return Err("the gateway is shutting down");
        }
        let (tenant, log) = usage_log();
        let read = timeout(LOOKUP_TIMEOUT, self.store.log(&tenant, &log)).await;
        let read = read.unwrap_or_else(|_| Err(store_timeout()));
        self.record_read(read.as_ref().err());
        read.map_err(|error| reason(&error))?;
        self.probe_writes().await
    }

    /// Tests whether writes succeed again, if the last write failed.
    pub(super) async fn test_writes(&self) -> Result<(), &'static str> {
        if lock(&self.health.state).write.is_none() {
            return Ok(());
        }
        self.probe_writes().await
    }

    /// Tests whether writes succeed. Within [`REST`] after a test, returns the last known result.
    async fn probe_writes(&self) -> Result<(), &'static str> {
        {
            let mut state = lock(&self.health.state);
            if state.probed.is_some_and(|probed| probed.elapsed() < REST) {
                return state.write.map_or(Ok(()), |failed| Err(failed.reason));
            }
            state.probed = Some(Instant::now());
        }
        let probed = timeout(LOOKUP_TIMEOUT, self.store.probe()).await;
        let probed = probed.unwrap_or_else(|_| Err(store_timeout()));
        self.record_write(probed.as_ref().err());
        probed.map_err(|error| reason(&error))
    }

    /// Records the result of a read, and logs when reads start to fail or succeed again.
    pub(crate) fn record_read(&self, error: Option<&StoreError>) {
        self.record_result("read", error, |state| {
            state.tried = None;
            &mut state.read
        });
    }

    /// Records the result of a read that caches may have answered. A success therefore does not
    /// prove that the store responds, and the next request may test the store.
    pub(crate) fn record_cached_read(&self, error: Option<&StoreError>) {
        match error {
            Some(_) => self.record_read(error),
            None => lock(&self.health.state).tried = None,
        }
    }

    /// Records the result of a write, and logs when writes start to fail or succeed again.
    pub(crate) fn record_write(&self, error: Option<&StoreError>) {
        self.record_result("write", error, |state| &mut state.write);
    }

    fn record_result(
        &self,
        operation: &str,
        error: Option<&StoreError>,
        last_failure: impl FnOnce(&mut HealthState) -> &mut Option<StoreFailure>,
    ) {
        if !error.is_none_or(is_outage) {
            return;
        }
        let failure = error.map(|error| StoreFailure { at: Instant::now(), reason: reason(error) });
        let was_failing =
            std::mem::replace(last_failure(&mut lock(&self.health.state)), failure).is_some();
        let status = match (was_failing, error) {
            (false, Some(_)) => format!("{operation} failed"),
            (true, None) => format!("{operation} works again"),
            (false, None) | (true, Some(_)) => return,
        };
        self.write_log(Level::Warn, |o| {
            o.string("event", "store").string("status", &status);
            o.maybe_string("problem", error.map(ToString::to_string).as_deref());
        });
    }
}

pub(crate) fn store_timeout() -> StoreError {
    StoreError::Unreachable("the store".into(), "the operation timed out".into())
}

/// Returns whether an error means that the store failed. Other errors mean that the operation was
/// invalid.
fn is_outage(error: &StoreError) -> bool {
    use StoreError::{Closed, Corrupt, Database, Full, Locked, ReadOnly, Unreachable};
    matches!(
        error,
        Full | ReadOnly(_) | Locked(_) | Unreachable(..) | Closed | Corrupt(_) | Database(_)
    )
}

/// Returns the reason for a failure in a form that is safe to show to unauthenticated callers.
fn reason(error: &StoreError) -> &'static str {
    match error {
        StoreError::Full => "the store is full",
        StoreError::ReadOnly(_) => "the store is read-only",
        StoreError::Locked(_) => "the store is locked by another program",
        StoreError::Corrupt(_) => "the store is damaged",
        _ => "the store does not respond",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use throughline_agent::Ports;
    use throughline_core::StoreFuture;
    use throughline_testkit::Folder;

    use super::*;
    use crate::telemetry::{Limits, NoPrices, NullLog};

    /// Confirms every key after this delay, or fails while the store is down.
    struct SlowKeys {
        delay: Duration,
        is_down: AtomicBool,
    }

    impl Keyring for SlowKeys {
        fn admit<'a>(&'a self, _: Option<&'a str>) -> StoreFuture<'a, Admission> {
            Box::pin(async move {
                if self.is_down.load(Ordering::SeqCst) {
                    return Err(store_timeout());
                }
                tokio::time::sleep(self.delay).await;
                Ok(admission())
            })
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "a caller without a key has no hash")]
    fn key(number: u32) -> KeyHash {
        Some(*blake3::hash(&number.to_be_bytes()).as_bytes())
    }

    fn admission() -> Admission {
        let (tenant, id) = (throughline_core::Tenant::from("acme"), "key_1".into());
        let allowance = crate::access::Allowance::default();
        Admission::Key { role: None, tenant, id, models: Vec::new(), allowance }
    }

    #[test]
    fn cached_key_expires_after_the_grace() {
        let (health, grace) = (StoreHealth::default(), Duration::from_mins(5));
        let now = Instant::now();
        health.cache_admission(key(1), &admission(), now);
        health.cache_admission(None, &Admission::Open, now);
        for (seconds, is_known) in [(0, true), (299, true), (300, true), (301, false)] {
            let later = now + Duration::from_secs(seconds);
            assert_eq!(
                health.cached_admission(key(1), grace, later).is_some(),
                is_known,
                "{seconds}"
            );
            assert_eq!(
                health.cached_admission(None, grace, later).is_some(),
                is_known,
                "{seconds}"
            );
            assert_eq!(health.cached_admission(key(2), grace, later), None);
        }
        // The store confirms the key again.
        let later = now + Duration::from_mins(10);
        health.cache_admission(key(1), &admission(), later);
        assert_eq!(health.cached_admission(key(1), grace, later), Some(admission()));
    }

    /// A key may be revoked while its lookup is in progress. The time of the lookup does not extend
    /// the time for which the gateway accepts the key.
    #[tokio::test]
    async fn grace_of_a_key_starts_with_its_lookup() {
        let (folder, delay) = (Folder::new("grace"), Duration::from_secs(4));
        let url = format!("sqlite://{}", folder.join("store.db").display());
        let journal = throughline_store::open(&url, &throughline_store::Options::default()).await;
        let clock = Ports::with_system_clock([0; 32]).clock;
        let (prices, log) = (Arc::new(NoPrices), Arc::new(NullLog));
        let store = Arc::new(journal.unwrap());
        let telemetry = Telemetry::new(store, prices, clock, log, Limits::default()).unwrap();
        let telemetry = telemetry.with_store_policy(StorePolicy {
            key_grace: Duration::from_secs(5),
            ..StorePolicy::default()
        });
        tokio::time::pause();
        let keys = SlowKeys { delay, is_down: AtomicBool::new(false) };
        assert_eq!(telemetry.admit(&keys, Some("tl_one")).await.unwrap(), admission());
        keys.is_down.store(true, Ordering::SeqCst);
        assert_eq!(telemetry.admit(&keys, Some("tl_one")).await.unwrap(), admission());
        // Six seconds after the start of the lookup, and two seconds after its end.
        tokio::time::advance(Duration::from_secs(2)).await;
        let refused = telemetry.admit(&keys, Some("tl_one")).await.unwrap_err();
        assert_eq!((refused.status, refused.retry_after), (503, Some(RETRY_STORE)));
    }

    #[test]
    fn refused_key_is_removed_from_the_cache() {
        let (health, now) = (StoreHealth::default(), Instant::now());
        health.cache_admission(key(1), &admission(), now);
        health.cache_admission(key(1), &Admission::Refused, now);
        assert_eq!(health.cached_admission(key(1), Duration::from_mins(5), now), None);
    }

    #[test]
    fn number_of_cached_keys_is_bounded() {
        let (health, now) = (StoreHealth::default(), Instant::now());
        for number in 0..12_000 {
            let at = now + Duration::from_micros(u64::from(number));
            health.cache_admission(key(number), &admission(), at);
        }
        let (grace, later) = (Duration::from_mins(5), now + Duration::from_secs(1));
        assert_eq!(health.keys().len(), MAX_CACHED_KEYS);
        assert_eq!(health.cached_admission(key(0), grace, later), None);
        assert!(health.cached_admission(key(11_999), grace, later).is_some());
    }
}
