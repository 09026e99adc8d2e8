//! API keys of tenants. A key is shown once, when it is made; only a keyed hash of it is kept.

use jiff::Timestamp;
use throughline_core::{Name, StoreError, Tenant};

use crate::backend::ApiKeyRow;
use crate::cipher;
use crate::journal::Journal;
use crate::manifest::hex;
use crate::refusal::check_name;

/// What begins every key.
const PREFIX: &str = "tl_";

/// A key that was just made.
pub struct NewApiKey {
    /// Its id, by which it can be revoked.
    pub id: Name,
    /// The key itself: it is told now, and never again.
    pub secret: String,
}

impl std::fmt::Debug for NewApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NewApiKey({}, …)", self.id)
    }
}

/// A key that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// Whose it is.
    pub tenant: Tenant,
    /// Its id.
    pub id: Name,
    /// What its maker called it.
    pub label: Name,
    /// When it was made.
    pub created: Timestamp,
    /// When it was revoked.
    pub revoked: Option<Timestamp>,
}

impl Journal {
    /// Makes a key for the tenant.
    pub async fn create_api_key(
        &self,
        tenant: &Tenant,
        label: &str,
    ) -> Result<NewApiKey, StoreError> {
        check_name(&tenant.0)?;
        check_name(label)?;
        let secret = format!("{PREFIX}{}", hex(&cipher::random::<24>()?));
        let id = Name::from(format!("key_{}", hex(&cipher::random::<6>()?)));
        let hash = self.keys.api_key_hash(&secret);
        let (tenant, label) = (tenant.clone(), Name::from(label));
        let row = ApiKeyRow { tenant, id: id.clone(), label, hash, created: 0, revoked: None };
        self.backend.add_key(row).await?;
        Ok(NewApiKey { id, secret })
    }

    /// The key that this is, unless it was revoked.
    pub async fn api_key(&self, secret: &str) -> Result<Option<ApiKey>, StoreError> {
        let found = self.backend.key(self.keys.api_key_hash(secret)).await?;
        Ok(found.map(ApiKey::of))
    }

    /// The tenant's keys.
    pub async fn api_keys(&self, tenant: &Tenant) -> Result<Vec<ApiKey>, StoreError> {
        Ok(self.backend.keys(tenant).await?.into_iter().map(ApiKey::of).collect())
    }

    /// Revokes a key; whether there was one.
    pub async fn revoke_api_key(&self, tenant: &Tenant, id: &str) -> Result<bool, StoreError> {
        self.backend.revoke_key(tenant, id).await
    }
}

impl ApiKey {
    fn of(row: ApiKeyRow) -> Self {
        let instant = |at| Timestamp::from_millisecond(at).unwrap_or(Timestamp::MIN);
        Self {
            tenant: row.tenant,
            id: row.id,
            label: row.label,
            created: instant(row.created),
            revoked: row.revoked.map(instant),
        }
    }
}
