//! Authenticates gateway requests with the API keys in the store.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use throughline_core::{StoreError, StoreFuture, Tenant};
use throughline_json::{self as json, Name};
use throughline_server::{Admission, Allowance, Keyring, Level, Log};
use throughline_store::{Journal, KeyCheck};

use crate::clock::instant;

/// Interval at which a store without keys is checked for a first key.
const RECHECK: Duration = Duration::from_secs(1);

pub(super) struct StoreKeys {
    journal: Journal,
    known: Mutex<KeyPresence>,
    /// Receives a line for each key that is refused because its stored entry was modified.
    log: Arc<dyn Log>,
}

/// Whether the store had keys at the last check.
#[derive(Clone, Copy, Default)]
enum KeyPresence {
    #[default]
    Unchecked,
    AbsentAt(Instant),
    /// The store has keys. This state is final, because revoked keys also count.
    Present,
}

impl StoreKeys {
    pub(super) fn new(journal: Journal, log: Arc<dyn Log>) -> Self {
        Self { journal, known: Mutex::default(), log }
    }

    /// Returns whether the gateway accepts requests without a key. If a first key is created while
    /// the gateway runs, the key takes effect within a second.
    async fn is_open(&self) -> Result<bool, StoreError> {
        let known = *self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match known {
            KeyPresence::Present => return Ok(false),
            KeyPresence::AbsentAt(time) if time.elapsed() < RECHECK => return Ok(true),
            KeyPresence::AbsentAt(_) | KeyPresence::Unchecked => {}
        }
        let has_keys = self.journal.has_api_keys().await?;
        let known = if has_keys { KeyPresence::Present } else { KeyPresence::AbsentAt(instant()) };
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(!has_keys)
    }

    /// Converts a checked key to an admission. A key whose stored entry was modified is refused and
    /// logged.
    fn admission_of(&self, check: KeyCheck) -> Admission {
        match check {
            KeyCheck::Valid(key) => Admission::Key {
                role: key.limits.role,
                tenant: key.tenant,
                id: key.id,
                models: key.limits.models,
                allowance: Allowance {
                    micro_usd: key.limits.budget_micro_usd,
                    tokens: key.limits.budget_tokens,
                    period: key.limits.budget_period,
                    soft_percent: key.limits.soft_limit_percent,
                    per_minute: key.limits.requests_per_minute,
                    tokens_per_minute: key.limits.tokens_per_minute,
                },
            },
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
