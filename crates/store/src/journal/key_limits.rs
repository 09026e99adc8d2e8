//! Changed limits of API keys.
//!
//! The row of a key contains the limits that the key was created with. A change of the limits is a
//! record in the tenant's log of keys, and the last record applies. A process reads the log of a
//! tenant at most once a second, so a change takes effect after about a second.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use throughline_core::{Append, Batch, LogId, LogKind, LogOpening, Store as _, StoreError, Tenant};
use throughline_json::{Name, Node, Tree};
use tokio::time::Instant;

use crate::journal::Journal;
use crate::journal::api_keys::{ApiKey, KEY_RECORD, KEYS_LOG, KeyLimits, key_record};
use crate::rejection::{Result, check_name, corrupt};

/// Interval at which the changes of a tenant's keys are read.
const RECHECK: Duration = Duration::from_secs(1);
/// Number of records that are read at a time.
const PAGE: u32 = 500;

/// Maximum number of repetitions of a change, because other processes change keys at the same time.
const MOST_RETRIES: u32 = 100;

/// The event in the record of a change.
const CHANGED: &str = "limits";

/// The changed limits of all tenants whose keys this process has checked.
#[derive(Default)]
pub(super) struct LimitChanges(Mutex<HashMap<Tenant, TenantChanges>>);

#[derive(Clone, Default)]
struct TenantChanges {
    /// When the log was last read; `None` if it was never read.
    read: Option<Instant>,
    /// The last record that was read.
    seen: u64,
    /// Shared, because every check of a key reads it.
    limits: Arc<HashMap<Name, KeyLimits>>,
}

impl LimitChanges {
    fn lock(&self) -> MutexGuard<'_, HashMap<Tenant, TenantChanges>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Journal {
    /// Replaces the limits of a key. Returns whether an active key with this id exists.
    pub async fn change_api_key_limits(
        &self,
        tenant: &Tenant,
        id: &str,
        limits: &KeyLimits,
    ) -> Result<bool> {
        let changed = self.update_api_key_limits(tenant, id, |_| Ok(limits.clone())).await?;
        Ok(changed.is_some())
    }

    /// Replaces the limits of a key with the result of `change`, which receives the current limits.
    /// If another process changes a key at the same time, `change` is called again with the new
    /// limits. Returns the new limits; `None` if no active key with this id exists.
    pub async fn update_api_key_limits(
        &self,
        tenant: &Tenant,
        id: &str,
        change: impl Fn(KeyLimits) -> Result<KeyLimits> + Send,
    ) -> Result<Option<KeyLimits>> {
        let log = LogId::from(KEYS_LOG);
        let mut attempts = 0;
        loop {
            let rows = self.backend.keys(tenant).await?.into_iter();
            let mut active = rows.filter(|row| row.revoked.is_none());
            let Some(mut row) = active.find(|row| *row.id == *id) else { return Ok(None) };
            let known = self.limits.lock().get(tenant).cloned().unwrap_or_default();
            let known = self.read_changes(tenant, known).await?;
            let limits = match known.limits.get(&row.id) {
                Some(limits) => limits.clone(),
                None => ApiKey::from_row(row.clone())?.limits,
            };
            let limits = change(limits)?;
            limits.models.iter().try_for_each(|pattern| check_name(pattern))?;
            row.limits = Name::from(limits.json().as_str());
            let append = Append::new(log.clone()).record(key_record(CHANGED, &row));
            let append = match self.backend.log(tenant, &log).await? {
                Some(_) => append.expect_last(known.seen),
                // Stores of earlier versions contain keys, but no log of their changes.
                None => append.opening(LogOpening { kind: LogKind::Run, of: None, fork: None }),
            };
            let batch = Batch::new(tenant.clone()).append(append);
            match self.commit_as_operator(batch, Vec::new()).await {
                Err(StoreError::Conflict { .. }) if attempts < MOST_RETRIES => attempts += 1,
                committed => {
                    committed?;
                    if let Some(known) = self.limits.lock().get_mut(tenant) {
                        known.read = None;
                    }
                    return Ok(Some(limits));
                }
            }
        }
    }

    /// Replaces the limits of these keys of a tenant with their changed limits.
    pub(super) async fn with_changed_limits(
        &self,
        tenant: &Tenant,
        mut keys: Vec<ApiKey>,
    ) -> Result<Vec<ApiKey>> {
        let known = self.limits.lock().get(tenant).cloned().unwrap_or_default();
        let is_current = known.read.is_some_and(|read| read.elapsed() < RECHECK);
        let known = if is_current { known } else { self.read_changes(tenant, known).await? };
        for key in &mut keys {
            if let Some(limits) = known.limits.get(&key.id) {
                key.limits = limits.clone();
            }
        }
        Ok(keys)
    }

    async fn read_changes(
        &self,
        tenant: &Tenant,
        mut known: TenantChanges,
    ) -> Result<TenantChanges> {
        let log = LogId::from(KEYS_LOG);
        known.read = Some(Instant::now());
        loop {
            let records = match self.read(tenant, &log, known.seen, PAGE).await {
                Err(StoreError::NotFound { .. }) => break,
                records => records?,
            };
            let Some(last) = records.last() else { break };
            known.seen = last.seq;
            let changes = records.iter().filter(|record| &*record.kind == KEY_RECORD);
            for content in changes.filter_map(|record| record.content.bytes()) {
                let tree = Tree::parse(content.clone());
                let tree = tree.map_err(|_| corrupt!("a record about an API key is not JSON"))?;
                let root = tree.root();
                if root.get("event").and_then(Node::text).as_deref() != Some(CHANGED) {
                    continue;
                }
                let (id, limits) = (root.name_of("id"), root.get("limits").and_then(Node::text));
                let change = id.zip(limits.and_then(|limits| KeyLimits::read(&limits)));
                let (id, limits) = change
                    .ok_or_else(|| corrupt!("the changed limits of an API key are invalid"))?;
                Arc::make_mut(&mut known.limits).insert(id, limits);
            }
        }
        let mut all = self.limits.lock();
        let newest = all.entry(tenant.clone()).or_default();
        if newest.seen <= known.seen {
            *newest = known.clone();
        }
        Ok(known)
    }
}
