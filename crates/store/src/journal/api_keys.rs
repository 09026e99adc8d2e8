//! API keys of tenants. A key is shown only once, when it is created. The store keeps only a keyed
//! hash.
//!
//! Each row has a MAC, which is checked whenever the key is used. Creations and revocations are
//! also recorded in a log of the tenant. The store refuses a key whose row was modified or moved to
//! another tenant. It also refuses a key that the log lists as revoked, although its row is not
//! marked as revoked.

use jiff::Timestamp;
use throughline_core::{
    Append, Batch, BudgetPeriod, Digest, KeyRole, LogId, LogKind, LogOpening, NewRecord,
    StoreError, Tenant, matches_pattern,
};
use throughline_json::{self as json, Json, Name, Node, Tree};

use crate::cipher;
use crate::hex::hex;
use crate::journal::Journal;
use crate::journal::seal::seal_as_operator;
use crate::rejection::{Result, check_name, corrupt, invalid};
use crate::row::ApiKeyRow;
use crate::sealed_batch::KeyChange;
use crate::sql::timestamp;

#[cfg(test)]
#[path = "api_keys_tests.rs"]
mod api_keys_tests;

/// The tenant's log of key creations and revocations. The log is a run without a Thread or a
/// status, so run listings omit it.
pub(super) const KEYS_LOG: &str = "throughline-api-keys";

pub(super) const KEY_RECORD: &str = "api-key";

/// The names of all limits.
const LIMITS: [&str; 8] = [
    "role",
    "models",
    "budget_micro_usd",
    "budget_tokens",
    "budget_period",
    "soft_limit_percent",
    "requests_per_minute",
    "tokens_per_minute",
];

/// Prefix of every API key.
const PREFIX: &str = "tl_";

/// A newly created API key, including its secret.
pub struct NewApiKey {
    /// The id used to revoke the key.
    pub id: Name,
    /// The API key itself, which clients send. The store cannot return it again.
    pub secret: String,
}

impl std::fmt::Debug for NewApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NewApiKey({}, …)", self.id)
    }
}

/// An existing API key, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// The tenant that owns the key.
    pub tenant: Tenant,
    /// The id used to revoke the key.
    pub id: Name,
    /// Label for display, given at creation.
    pub label: Name,
    /// The models that the key may use, its budgets and its request rate.
    pub limits: KeyLimits,
    /// When the key was created.
    pub created: Timestamp,
    /// When the key was revoked; `None` if it is active.
    pub revoked: Option<Timestamp>,
}

/// The result of an API key check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyCheck {
    /// The key exists and is active.
    Valid(ApiKey),
    /// The key does not exist or was revoked.
    Unknown,
    /// The stored row was modified, so the key is refused.
    Tampered {
        /// The tenant named in the modified row.
        tenant: Tenant,
        /// The key id in the modified row.
        id: Name,
        /// The problem, phrased as a predicate that follows the key's name.
        problem: &'static str,
    },
}

/// Limits of an API key. A limit that is `None` or empty does not apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyLimits {
    /// The role of the key; `None` for all permissions except the management of keys. Keys of
    /// earlier versions have no role.
    pub role: Option<KeyRole>,
    /// Patterns of model names, where `*` matches any text. Empty allows every model.
    pub models: Vec<Name>,
    /// Budget in millionths of a US dollar.
    pub budget_micro_usd: Option<u64>,
    /// Budget in tokens, input and output combined.
    pub budget_tokens: Option<u64>,
    /// The period after which the budgets start again; `None` for [`BudgetPeriod::Total`].
    pub budget_period: Option<BudgetPeriod>,
    /// The share of a budget, in percent, at which the gateway sends a warning.
    pub soft_limit_percent: Option<u32>,
    /// Maximum number of requests per minute.
    pub requests_per_minute: Option<u32>,
    /// Maximum number of input and output tokens per minute.
    pub tokens_per_minute: Option<u64>,
}

impl KeyLimits {
    /// Returns whether the model name matches a pattern in `models`. An empty list allows every
    /// model.
    pub fn allows(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|pattern| matches_pattern(pattern, model))
    }

    /// Returns the limits as JSON, in the form that is stored and shown to operators. Absent limits
    /// are omitted.
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
                ("tokens_per_minute", self.tokens_per_minute),
                ("soft_limit_percent", self.soft_limit_percent.map(u64::from)),
            ];
            for (name, number) in numbers {
                if let Some(number) = number {
                    o.number(name, number);
                }
            }
            o.maybe_string("budget_period", self.budget_period.map(BudgetPeriod::as_str));
            o.maybe_string("role", self.role.map(KeyRole::as_str));
        })
    }

    /// Parses stored limits. Returns `None` if a limit is unknown, because ignoring the limit would
    /// extend the key's permissions.
    pub(super) fn read(text: &str) -> Option<Self> {
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
                "tokens_per_minute" => limits.tokens_per_minute = Some(value.u64()?),
                "soft_limit_percent" => {
                    limits.soft_limit_percent = Some(u32::try_from(value.u64()?).ok()?);
                }
                "budget_period" => {
                    let period = BudgetPeriod::parse(&value.text()?)?;
                    limits.budget_period =
                        Some(period).filter(|period| *period != BudgetPeriod::Minute);
                    limits.budget_period?;
                }
                "role" => {
                    limits.role = KeyRole::parse(&value.text()?);
                    limits.role?;
                }
                _ => return None,
            }
        }
        Some(limits)
    }

    /// Returns the limits with these changes. A member that is null removes its limit. Fails if a
    /// member is unknown or invalid.
    pub fn changed(&self, changes: &Json) -> Result<Self> {
        let (known, changes) = (self.json().tree(), changes.tree());
        if !changes.root().is_object() {
            return Err(invalid!("the limits of an API key must be an object"));
        }
        for (name, value) in changes.root().members() {
            let name = name.text().unwrap_or_default();
            let alone = json::object(|o| _ = o.node(&name, value));
            let is_valid = if value.is_null() {
                LIMITS.contains(&&*name)
            } else {
                Self::read(alone.as_str()).is_some()
            };
            if !LIMITS.contains(&&*name) {
                let known = LIMITS.join(", ");
                return Err(invalid!(
                    "`{name}` is not a limit of an API key; the limits are {known}"
                ));
            }
            if !is_valid || value.u64() == Some(0) {
                return Err(invalid!("`{name}` must be {}", expected_value(&name)));
            }
        }
        let merged = json::object(|o| {
            for name in LIMITS {
                let value = changes.root().get(name).or_else(|| known.root().get(name));
                if let Some(value) = value.filter(|value| !value.is_null()) {
                    o.node(name, value);
                }
            }
        });
        let mut limits = Self::read(merged.as_str())
            .ok_or_else(|| invalid!("the limits of the API key are invalid"))?;
        // A total budget has no stored period, so that earlier versions can read the limits.
        limits.budget_period = limits.budget_period.filter(|period| *period != BudgetPeriod::Total);
        if limits.soft_limit_percent.is_some_and(|percent| percent > 100) {
            return Err(invalid!("`soft_limit_percent` must be between 1 and 100"));
        }
        if limits.budget_micro_usd.is_none() && limits.budget_tokens.is_none() {
            self.check_budget_settings(&limits)?;
            (limits.budget_period, limits.soft_limit_percent) = (None, None);
        }
        Ok(limits)
    }

    /// Fails if limits without a budget set a new period or soft limit, which would have no effect.
    fn check_budget_settings(&self, new: &Self) -> Result<()> {
        let settings = [
            ("budget_period", new.budget_period.is_some_and(|it| self.budget_period != Some(it))),
            (
                "soft_limit_percent",
                new.soft_limit_percent.is_some_and(|it| self.soft_limit_percent != Some(it)),
            ),
        ];
        let changed = settings.iter().find(|(_, is_changed)| *is_changed);
        changed.map_or(Ok(()), |(name, _)| {
            Err(invalid!("`{name}` needs a budget: also set `budget_micro_usd` or `budget_tokens`"))
        })
    }
}

/// Returns what the value of a limit must be.
fn expected_value(limit: &str) -> &'static str {
    match limit {
        "models" => "a list of model names, which may contain `*`",
        "role" => "`operator`, `app` or `viewer`",
        "budget_period" => "`day`, `week`, `month` or `total`",
        "soft_limit_percent" => "a whole number from 1 to 100",
        _ => "a whole number of at least 1",
    }
}

impl Journal {
    /// Creates a key for the tenant and records its creation in the Journal.
    pub async fn create_api_key(
        &self,
        tenant: &Tenant,
        label: &str,
        limits: &KeyLimits,
    ) -> Result<NewApiKey> {
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

    /// Returns the key with this secret, or `None` if the key is unknown, was revoked or has a
    /// modified row.
    pub async fn api_key(&self, secret: &str) -> Result<Option<ApiKey>> {
        match self.check_api_key(secret).await? {
            KeyCheck::Valid(key) => Ok(Some(key)),
            KeyCheck::Unknown | KeyCheck::Tampered { .. } => Ok(None),
        }
    }

    /// Looks up a key by its secret and reports why an invalid key is refused.
    pub async fn check_api_key(&self, secret: &str) -> Result<KeyCheck> {
        self.check_hash(self.keys.api_key_hash(secret)).await
    }

    /// Looks up a tenant's key by its id and reports why an invalid key is refused. Runs refer to
    /// their key by id.
    pub async fn check_api_key_id(&self, tenant: &Tenant, id: &str) -> Result<KeyCheck> {
        let mut rows = self.backend.keys(tenant).await?.into_iter();
        match rows.find(|row| *row.id == *id) {
            Some(row) => self.check_hash(row.hash).await,
            None => Ok(KeyCheck::Unknown),
        }
    }

    async fn check_hash(&self, hash: Digest) -> Result<KeyCheck> {
        let found = self.backend.key(hash, self.keys.revocation(&hash)).await?;
        let Some((row, is_revoked)) = found else { return Ok(KeyCheck::Unknown) };
        let problem = if row.mac != Some(self.keys.api_key_mac().mac(&row)) {
            "has a row whose MAC does not match"
        } else if is_revoked {
            "was revoked, but its row is not marked as revoked"
        } else {
            let tenant = row.tenant.clone();
            let key = self.with_changed_limits(&tenant, vec![ApiKey::from_row(row)?]).await?;
            return Ok(key.into_iter().next().map_or(KeyCheck::Unknown, KeyCheck::Valid));
        };
        Ok(KeyCheck::Tampered { tenant: row.tenant, id: row.id, problem })
    }

    /// Returns all keys of the tenant, including revoked keys.
    pub async fn api_keys(&self, tenant: &Tenant) -> Result<Vec<ApiKey>> {
        let keys = self.backend.keys(tenant).await?.into_iter().map(ApiKey::from_row);
        self.with_changed_limits(tenant, keys.collect::<Result<_>>()?).await
    }

    /// Returns whether any tenant ever had a key. Revoked keys count, because revoking the last key
    /// must not open the server to everyone.
    pub async fn has_api_keys(&self) -> Result<bool> {
        for tenant in self.tenants().await? {
            if !self.backend.keys(&tenant).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Revokes a key. Returns whether an active key with this id existed.
    pub async fn revoke_api_key(&self, tenant: &Tenant, id: &str) -> Result<bool> {
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
            // Another process revoked the key after it was read.
            Err(StoreError::NotFound { what: "API key", .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Changes a key's row and appends the matching record in one commit.
    async fn change_key(
        &self,
        tenant: &Tenant,
        record: NewRecord,
        about: Option<i64>,
        change: KeyChange,
    ) -> Result<()> {
        let log = LogId::from(KEYS_LOG);
        let is_there = self.backend.log(tenant, &log).await?.is_some();
        let mut append = Append::new(log).record(record);
        if !is_there {
            let opening = LogOpening { kind: LogKind::Run, of: None, fork: None };
            append = append.opening(opening);
        }
        let _sealing = self.keys.sealing().await;
        let seal_as = |append: Append| -> Result<_> {
            let batch = Batch::new(tenant.clone()).append(append);
            let mut sealed = seal_as_operator(&self.keys, batch, Vec::new())?;
            for record in sealed.appends.iter_mut().flat_map(|append| &mut append.records) {
                record.about = about;
            }
            sealed.keys = vec![change.clone()];
            Ok(sealed)
        };
        match self.backend.commit(seal_as(append.clone())?).await {
            // Another process opened the log after this one checked for it.
            Err(StoreError::Conflict { .. }) if !is_there => {
                append.opening = None;
                self.backend.commit(seal_as(append)?).await.map(drop)
            }
            done => done.map(drop),
        }
    }
}

pub(super) fn key_record(event: &str, row: &ApiKeyRow) -> NewRecord {
    let content = json::object(|o| {
        o.string("event", event).string("id", &row.id).string("label", &row.label);
        o.string("limits", &row.limits);
    });
    NewRecord::new(KEY_RECORD, content.bytes().clone())
}

impl ApiKey {
    pub(super) fn from_row(row: ApiKeyRow) -> Result<Self> {
        let limits = KeyLimits::read(&row.limits)
            .ok_or_else(|| corrupt!("the stored limits of API key {} are invalid", row.id))?;
        let ApiKeyRow { tenant, id, label, created, revoked, .. } = row;
        let (created, revoked) = (timestamp(created), revoked.map(timestamp));
        Ok(Self { tenant, id, label, limits, created, revoked })
    }
}
