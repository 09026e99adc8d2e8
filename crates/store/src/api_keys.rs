//! API keys of tenants. A key is shown once, when it is made; only a keyed hash of it is kept.
//!
//! The row of a key has a MAC, which is checked whenever the key is used. Creations and revocations are also records of a
//! log of the tenant. A row that was changed or moved to another tenant is refused, and so is a key whose revocation
//! was taken back in the table alone.

use jiff::Timestamp;
use throughline_core::{
    Append, Batch, Digest, Json, LogId, LogKind, LogOpening, Name, NewRecord, Node, StoreError,
    Tenant, Tree, fits, json,
};

use crate::backend::{ApiKeyRow, Guard, KeyChange};
use crate::cipher;
use crate::journal::{Journal, seal};
use crate::manifest::hex;
use crate::refusal::check_name;

#[cfg(test)]
#[path = "api_keys_tests.rs"]
mod api_keys_tests;

/// The log of a tenant that says which keys were made and revoked. It is a run of no thread, and has no status: lists of
/// runs leave it out.
pub(crate) const KEYS_LOG: &str = "throughline-api-keys";

/// The kind of its records.
const KEY_RECORD: &str = "api-key";

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

/// What the store knows about a key that was shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyCheck {
    /// It is valid.
    Valid(ApiKey),
    /// There is no such key, or it was revoked.
    Unknown,
    /// Its row is not as it was written, so it is refused.
    Tampered {
        /// The tenant that the row names.
        tenant: Tenant,
        /// The key's id.
        id: Name,
        /// What is wrong, as the end of a sentence.
        problem: &'static str,
    },
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
        let (created, revoked, mac) = (0, None, None);
        let mut row =
            ApiKeyRow { tenant, id: id.clone(), label, limits, hash, created, revoked, mac };
        row.mac = Some(self.keys.api_key_mac().mac(&row));
        let tenant = row.tenant.clone();
        self.change_key(&tenant, key_record("created", &row), None, KeyChange::Add(row)).await?;
        Ok(NewApiKey { id, secret })
    }

    /// The key that this is, unless it was revoked or its row was changed.
    pub async fn api_key(&self, secret: &str) -> Result<Option<ApiKey>, StoreError> {
        match self.check_api_key(secret).await? {
            KeyCheck::Valid(key) => Ok(Some(key)),
            KeyCheck::Unknown | KeyCheck::Tampered { .. } => Ok(None),
        }
    }

    /// The key that this is, or why it is refused.
    pub async fn check_api_key(&self, secret: &str) -> Result<KeyCheck, StoreError> {
        self.check_hash(self.keys.api_key_hash(secret)).await
    }

    /// The tenant's key with that id, or why it is refused. Runs name their key by its id.
    pub async fn check_api_key_id(
        &self,
        tenant: &Tenant,
        id: &str,
    ) -> Result<KeyCheck, StoreError> {
        let mut rows = self.backend.keys(tenant).await?.into_iter();
        match rows.find(|row| *row.id == *id) {
            Some(row) => self.check_hash(row.hash).await,
            None => Ok(KeyCheck::Unknown),
        }
    }

    async fn check_hash(&self, hash: Digest) -> Result<KeyCheck, StoreError> {
        let found = self.backend.key(hash, self.keys.revocation(&hash)).await?;
        let Some((row, is_revoked)) = found else { return Ok(KeyCheck::Unknown) };
        let problem = if row.mac != Some(self.keys.api_key_mac().mac(&row)) {
            "has a row whose MAC does not hold"
        } else if is_revoked {
            "was revoked, and its row does not say so"
        } else {
            return Ok(KeyCheck::Valid(ApiKey::of(row)?));
        };
        Ok(KeyCheck::Tampered { tenant: row.tenant, id: row.id, problem })
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
        let keys = self.backend.keys(tenant).await?.into_iter();
        let Some(row) = keys.into_iter().find(|row| *row.id == *id && row.revoked.is_none()) else {
            return Ok(false);
        };
        let at = self.backend.now().await?;
        let row = ApiKeyRow { revoked: Some(at), ..row };
        let mac = self.keys.api_key_mac().mac(&row);
        let change = KeyChange::Revoke { id: row.id.clone(), at, mac };
        let about = Some(self.keys.revocation(&row.hash));
        match self.change_key(tenant, key_record("revoked", &row), about, change).await {
            Ok(()) => Ok(true),
            // Another process revoked it meanwhile.
            Err(StoreError::NotFound { what: "API key", .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Changes the row of a key, and writes the record of it, in one commit.
    async fn change_key(
        &self,
        tenant: &Tenant,
        record: NewRecord,
        about: Option<i64>,
        change: KeyChange,
    ) -> Result<(), StoreError> {
        let log = LogId::from(KEYS_LOG);
        let is_there = self.backend.log(tenant, &log).await?.is_some();
        let mut append = Append::to(log).record(record);
        if !is_there {
            let opening = LogOpening { kind: LogKind::Run, of: None, fork: None };
            append = append.opening(opening);
        }
        let _sealing = self.keys.sealing().await;
        let seal_as = |append: Append| -> Result<_, StoreError> {
            let mut sealed = seal(&self.keys, Batch::of(tenant.clone()).append(append))?;
            for append in &mut sealed.appends {
                append.guard = Guard::Operator;
                for record in &mut append.records {
                    record.about = about;
                }
            }
            sealed.keys = vec![change.clone()];
            Ok(sealed)
        };
        match self.backend.commit(seal_as(append.clone())?).await {
            // Another process opened the log meanwhile.
            Err(StoreError::Conflict { .. }) if !is_there => {
                append.opening = None;
                self.backend.commit(seal_as(append)?).await.map(drop)
            }
            done => done.map(drop),
        }
    }
}

/// What the journal says about a key.
fn key_record(event: &str, row: &ApiKeyRow) -> NewRecord {
    let content = json::object(|o| {
        o.string("event", event).string("id", &row.id).string("label", &row.label);
        o.string("limits", &row.limits);
    });
    NewRecord::new(KEY_RECORD, content.bytes().clone())
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
