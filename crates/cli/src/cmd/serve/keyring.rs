//! API keys of the store, for the gateway.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use throughline_core::{StoreError, StoreFuture, Tenant};
use throughline_json::{self as json, Name};
use throughline_server::{Admission, Allowance, Keyring, Level, Log};
use throughline_store::{ApiKey, Journal, KeyCheck};

/// Interval for checking whether a first key was created.
const LOOK: Duration = Duration::from_secs(1);

/// The API keys of a store.
pub(super) struct StoreKeys {
    journal: Journal,
    known: Mutex<KeyPresence>,
    /// Receives a line for each key that is refused because its row was changed.
    log: Arc<dyn Log>,
}

/// Whether the store has keys.
#[derive(Clone, Copy)]
enum KeyPresence {
    /// There were none at that time.
    None(Option<Instant>),
    /// There are keys. This never reverts, because revoked keys count.
    Some,
}

impl StoreKeys {
    pub(super) fn new(journal: Journal, log: Arc<dyn Log>) -> Self {
        Self { journal, known: Mutex::new(KeyPresence::None(None)), log }
    }

    /// Returns whether the gateway accepts requests without a key. A first key that is created
    /// while the gateway runs takes effect within a second.
    async fn is_open(&self) -> Result<bool, StoreError> {
        let known = *self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match known {
            KeyPresence::Some => return Ok(false),
            KeyPresence::None(Some(looked)) if looked.elapsed() < LOOK => return Ok(true),
            KeyPresence::None(_) => {}
        }
        let has_keys = self.journal.has_api_keys().await?;
        let known = if has_keys { KeyPresence::Some } else { KeyPresence::None(Some(instant())) };
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(!has_keys)
    }
}

impl StoreKeys {
    /// Maps a checked key to an admission. A key whose row was changed is refused and logged.
    fn admission_of(&self, check: KeyCheck) -> Admission {
        match check {
            KeyCheck::Valid(key) => admission(key),
            KeyCheck::Unknown => Admission::Refused,
            KeyCheck::Tampered { tenant, id, problem } => {
                let line = json::object(|o| {
                    o.string("event", "api_key_refused").string("tenant", &tenant.0);
                    o.string("key", &id).string("reason", problem);
                });
                self.log.write(Level::Error, &line);
                Admission::Refused
            }
        }
    }
}

impl Keyring for StoreKeys {
    fn admit<'a>(&'a self, key: Option<&'a str>) -> StoreFuture<'a, Admission> {
        Box::pin(async move {
            let Some(key) = key else {
                let is_open = self.is_open().await?;
                return Ok(if is_open { Admission::Open } else { Admission::Refused });
            };
            Ok(self.admission_of(self.journal.check_api_key(key).await?))
        })
    }

    fn admit_id<'a>(&'a self, tenant: &'a Tenant, id: &'a Name) -> StoreFuture<'a, Admission> {
        Box::pin(
            async move { Ok(self.admission_of(self.journal.check_api_key_id(tenant, id).await?)) },
        )
    }
}

/// Returns the admission of a valid key.
fn admission(key: ApiKey) -> Admission {
    Admission::Key {
        tenant: key.tenant,
        id: key.id,
        models: key.limits.models,
        allowance: Allowance {
            micro_usd: key.limits.budget_micro_usd,
            tokens: key.limits.budget_tokens,
            per_minute: key.limits.requests_per_minute,
        },
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a monotonic clock for intervals, not the time of day"
)]
fn instant() -> Instant {
    Instant::now()
}
