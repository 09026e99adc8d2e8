//! API keys of tenants. A key is shown once, when it is made; only a keyed hash of it is kept.

use jiff::Timestamp;
use throughline_core::{Json, Name, Node, StoreError, Tenant, Tree, fits, json};

use crate::backend::ApiKeyRow;
use crate::cipher;
use crate::journal::Journal;
use crate::manifest::hex;
use crate::refusal::check_name;

#[cfg(test)]
#[path = "api_keys_tests.rs"]
mod api_keys_tests;

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
    /// What it may ask for.
    pub limits: KeyLimits,
    /// When it was made.
    pub created: Timestamp,
    /// When it was revoked.
    pub revoked: Option<Timestamp>,
}

/// What a key may ask for, and how much of it. What is not limited is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyLimits {
    /// Patterns of model names, where `*` stands for anything; none where every model is allowed.
    pub models: Vec<Name>,
    /// What it may spend, in millionths of a dollar.
    pub budget_micro_usd: Option<u64>,
    /// How many tokens it may use, those asked and those answered together.
    pub budget_tokens: Option<u64>,
    /// How many requests it may make in a minute.
    pub requests_per_minute: Option<u32>,
}

impl KeyLimits {
    /// Whether the model may be asked.
    pub fn allows(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|pattern| fits(pattern, model))
    }

    /// As it is kept, and as programs are told.
    pub fn json(&self) -> Json {
        json::object(|o| {
            if !self.models.is_empty() {
                o.array("models", |a| {
                    for pattern in &self.models {
                        a.string(pattern);
                    }
                });
            }
            let numbers = [
                ("budget_micro_usd", self.budget_micro_usd),
                ("budget_tokens", self.budget_tokens),
                ("requests_per_minute", self.requests_per_minute.map(u64::from)),
            ];
            for (name, number) in numbers {
                if let Some(number) = number {
                    o.number(name, number);
                }
            }
        })
    }

    /// What was kept. A limit that nobody knows is not passed over: the key would be worth more than it was given.
    fn read(text: &str) -> Option<Self> {
        let tree = Tree::parse(text.to_owned()).ok().filter(|tree| tree.root().is_object())?;
        let mut limits = Self::default();
        for (name, value) in tree.root().all_members() {
            match &*name.text()? {
                "models" if value.is_array() => {
                    limits.models = value.elements().map(Node::name).collect::<Option<_>>()?;
                }
                "budget_micro_usd" => limits.budget_micro_usd = Some(value.u64()?),
                "budget_tokens" => limits.budget_tokens = Some(value.u64()?),
                "requests_per_minute" => {
                    limits.requests_per_minute = Some(u32::try_from(value.u64()?).ok()?);
                }
                _ => return None,
            }
        }
        Some(limits)
    }
}

impl Journal {
    /// Makes a key for the tenant.
    pub async fn create_api_key(
        &self,
        tenant: &Tenant,
        label: &str,
        limits: &KeyLimits,
    ) -> Result<NewApiKey, StoreError> {
        check_name(&tenant.0)?;
        check_name(label)?;
        limits.models.iter().try_for_each(|pattern| check_name(pattern))?;
        let secret = format!("{PREFIX}{}", hex(&cipher::random::<24>()?));
        let id = Name::from(format!("key_{}", hex(&cipher::random::<6>()?)));
        let hash = self.keys.api_key_hash(&secret);
        let (tenant, label) = (tenant.clone(), Name::from(label));
        let limits = Name::from(limits.json().as_str());
        let (id_kept, created, revoked) = (id.clone(), 0, None);
        let row = ApiKeyRow { tenant, id: id_kept, label, limits, hash, created, revoked };
        self.backend.add_key(row).await?;
        Ok(NewApiKey { id, secret })
    }

    /// The key that this is, unless it was revoked.
    pub async fn api_key(&self, secret: &str) -> Result<Option<ApiKey>, StoreError> {
        let found = self.backend.key(self.keys.api_key_hash(secret)).await?;
        found.map(ApiKey::of).transpose()
    }

    /// The tenant's keys.
    pub async fn api_keys(&self, tenant: &Tenant) -> Result<Vec<ApiKey>, StoreError> {
        self.backend.keys(tenant).await?.into_iter().map(ApiKey::of).collect()
    }

    /// Whether a key was ever made, for whichever tenant. One that was revoked counts: who revokes the last one does not
    /// mean to let everybody in.
    pub async fn has_api_keys(&self) -> Result<bool, StoreError> {
        for tenant in self.tenants().await? {
            if !self.backend.keys(&tenant).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Revokes a key; whether there was one.
    pub async fn revoke_api_key(&self, tenant: &Tenant, id: &str) -> Result<bool, StoreError> {
        self.backend.revoke_key(tenant, id).await
    }
}

impl ApiKey {
    fn of(row: ApiKeyRow) -> Result<Self, StoreError> {
        let instant = |at| Timestamp::from_millisecond(at).unwrap_or(Timestamp::MIN);
        let limits = KeyLimits::read(&row.limits).ok_or_else(|| {
            StoreError::Corrupt(format!("the limits of the key {} cannot be read", row.id).into())
        })?;
        Ok(Self {
            tenant: row.tenant,
            id: row.id,
            label: row.label,
            limits,
            created: instant(row.created),
            revoked: row.revoked.map(instant),
        })
    }
}
