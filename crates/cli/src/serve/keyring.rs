//! The keys of the store, as the gateway asks for them.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use throughline_core::{Boxed, Name, StoreError, Tenant};
use throughline_server::{Admission, Allowance, Keyring};
use throughline_store::{ApiKey, Journal};

/// How often it is looked whether somebody has made the first key.
const LOOK: Duration = Duration::from_secs(1);

/// The keys of a store.
pub(super) struct StoreKeys {
    journal: Journal,
    known: Mutex<Known>,
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
    pub(super) fn new(journal: Journal) -> Self {
        Self { journal, known: Mutex::new(Known::None(None)) }
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

impl Keyring for StoreKeys {
    fn admit<'a>(&'a self, key: Option<&'a str>) -> Boxed<'a, Admission> {
        Box::pin(async move {
            let Some(key) = key else {
                let is_open = self.is_open().await?;
                return Ok(if is_open { Admission::Open } else { Admission::Refused });
            };
            let known = self.journal.api_key(key).await?;
            Ok(known.map_or(Admission::Refused, admission))
        })
    }

    fn admit_id<'a>(&'a self, tenant: &'a Tenant, id: &'a Name) -> Boxed<'a, Admission> {
        Box::pin(async move {
            let mut keys = self.journal.api_keys(tenant).await?.into_iter();
            let known = keys.find(|key| key.id == *id && key.revoked.is_none());
            Ok(known.map_or(Admission::Refused, admission))
        })
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
