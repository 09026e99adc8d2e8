//! The keys of the store, as the gateway asks for them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use throughline_core::{Boxed, Name, StoreError, Tenant, json};
use throughline_server::{Admission, Allowance, Keyring, Level, Log};
use throughline_store::{ApiKey, Journal, KeyCheck};

/// How often it is looked whether somebody has made the first key.
const LOOK: Duration = Duration::from_secs(1);

/// The keys of a store.
pub(super) struct StoreKeys {
    journal: Journal,
    known: Mutex<Known>,
    /// Receives a line for each key that is refused because its row was changed.
    log: Arc<dyn Log>,
}

/// Whether there are keys.
#[derive(Clone, Copy)]
enum Known {
    /// There were none then.
    None(Option<Instant>),
    /// There are, and that stays so: revoked ones count.
    Some,
}

impl StoreKeys {
    pub(super) fn new(journal: Journal, log: Arc<dyn Log>) -> Self {
        Self { journal, known: Mutex::new(Known::None(None)), log }
    }

    /// Whether there is any key. Whoever makes the first one while the gateway runs closes it within a second.
    async fn is_open(&self) -> Result<bool, StoreError> {
        let known = *self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match known {
            Known::Some => return Ok(false),
            Known::None(Some(looked)) if looked.elapsed() < LOOK => return Ok(true),
            Known::None(_) => {}
        }
        let has_keys = self.journal.has_api_keys().await?;
        let known = if has_keys { Known::Some } else { Known::None(Some(instant())) };
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(!has_keys)
    }
}

impl StoreKeys {
    /// What a checked key admits to. A key whose row was changed is refused and logged.
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
    fn admit<'a>(&'a self, key: Option<&'a str>) -> Boxed<'a, Admission> {
        Box::pin(async move {
            let Some(key) = key else {
                let is_open = self.is_open().await?;
                return Ok(if is_open { Admission::Open } else { Admission::Refused });
            };
            Ok(self.admission_of(self.journal.check_api_key(key).await?))
        })
    }

    fn admit_id<'a>(&'a self, tenant: &'a Tenant, id: &'a Name) -> Boxed<'a, Admission> {
        Box::pin(
            async move { Ok(self.admission_of(self.journal.check_api_key_id(tenant, id).await?)) },
        )
    }
}

/// What a key admits to.
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

#[expect(clippy::disallowed_methods, reason = "how long ago something was is no time of day")]
fn instant() -> Instant {
    Instant::now()
}
