//! Records which tenant received each object that providers store, and checks a tenant's access to
//! such objects.

use std::collections::HashSet;

use throughline_core::{
    Append, Batch, Digest, LogId, LogOpening, NewRecord, NewVaultTurn, StoreError, Tenant,
    VaultKey, VaultTurn, kind, restore_items,
};
use throughline_json as json;

use crate::claim::Claims;
use crate::engine::Replay;
use crate::objects::{LOG, OBJECT, ObjectId, ObjectKind, account_of, owner_key};
use crate::turn::read_range;

impl Replay {
    /// Returns, for each object, whether the tenant received it from `account`.
    pub async fn owns(
        &self,
        tenant: &Tenant,
        account: &str,
        objects: &[&ObjectId],
    ) -> Result<Vec<bool>, StoreError> {
        let keys: Vec<Digest> = objects.iter().map(|object| owner_key(account, object)).collect();
        let mut owned: Vec<bool> = keys.iter().map(|key| self.owned.has(tenant, key)).collect();
        let unknown: Vec<usize> =
            owned.iter().enumerate().filter(|(_, owned)| !**owned).map(|(at, _)| at).collect();
        if unknown.is_empty() {
            return Ok(owned);
        }
        let lookup_keys = unknown.iter().filter_map(|at| keys.get(*at));
        let lookup_keys: Vec<VaultKey> = lookup_keys.map(|key| VaultKey::Chain(*key)).collect();
        let found = self.find(tenant, &lookup_keys).await?.found;
        let mut older = Vec::new();
        for (at, found) in unknown.into_iter().zip(found) {
            match found {
                Some(_) => self.mark_owned(tenant, &keys, at, &mut owned),
                None => older.push(at),
            }
        }
        for at in self.find_captured(tenant, account, objects, &older).await? {
            self.mark_owned(tenant, &keys, at, &mut owned);
        }
        Ok(owned)
    }

    fn mark_owned(&self, tenant: &Tenant, keys: &[Digest], at: usize, owned: &mut [bool]) {
        if let (Some(key), Some(slot)) = (keys.get(at), owned.get_mut(at)) {
            *slot = true;
            self.owned.add(tenant, *key);
        }
    }

    /// Searches turns captured by earlier versions, which wrote no owner keys. Returns the indexes
    /// of the objects found in such turns.
    async fn find_captured(
        &self,
        tenant: &Tenant,
        account: &str,
        objects: &[&ObjectId],
        indexes: &[usize],
    ) -> Result<Vec<usize>, StoreError> {
        let candidates = indexes.iter().filter_map(|at| Some((*at, *objects.get(*at)?)));
        let is_captured = |kind| matches!(kind, ObjectKind::Response | ObjectKind::Item);
        let candidates: Vec<_> =
            candidates.filter(|(_, object)| is_captured(object.kind)).collect();
        if candidates.is_empty() {
            return Ok(Vec::new());
        }
        let keys = candidates.iter().map(|(_, object)| VaultKey::Id(object.id.clone()));
        let found = self.find(tenant, &keys.collect::<Vec<_>>()).await?.found;
        let mut captured = Vec::new();
        for ((at, _), found) in candidates.into_iter().zip(found) {
            if let Some(found) = found
                && found.turn.gone.is_none()
                && self.was_returned_by(tenant, &found.turn, account).await?
            {
                captured.push(at);
            }
        }
        Ok(captured)
    }

    /// Whether a captured turn's reply came from that account.
    async fn was_returned_by(
        &self,
        tenant: &Tenant,
        turn: &VaultTurn,
        account: &str,
    ) -> Result<bool, StoreError> {
        let records = read_range(self.store(), tenant, &turn.log, turn.first..=turn.last).await?;
        let items = records.iter().filter(|record| *record.kind == *kind::ITEM);
        let texts = items.map(|record| record.content.bytes().cloned());
        let Ok(items) = restore_items(texts) else { return Ok(false) };
        let mut origins = items.iter().filter_map(|item| item.origin.as_ref());
        Ok(origins.any(|origin| account_of(origin) == account))
    }

    /// Records in memory that the tenant received these objects, because the store cannot record
    /// them. This process accepts the ids until the process restarts or clears the cache.
    pub fn cache_unrecorded(&self, tenant: &Tenant, account: &str, objects: &[ObjectId]) {
        self.cache_owned(tenant, account, objects);
    }

    fn cache_owned<'o>(
        &self,
        tenant: &Tenant,
        account: &str,
        objects: impl IntoIterator<Item = &'o ObjectId>,
    ) {
        for object in objects {
            self.owned.add(tenant, owner_key(account, object));
        }
    }

    /// Records in the store that the tenant received these objects from the given account. Skips
    /// objects that are already recorded.
    pub async fn record_objects(
        &self,
        tenant: &Tenant,
        account: &str,
        objects: &[ObjectId],
    ) -> Result<(), StoreError> {
        let all: Vec<&ObjectId> = objects.iter().collect();
        let owned = self.owns(tenant, account, &all).await?;
        let mut seen = HashSet::new();
        let fresh = all.into_iter().zip(owned);
        let fresh = fresh.filter(|(object, owned)| !owned && seen.insert(*object));
        let fresh: Vec<&ObjectId> = fresh.map(|(object, _)| object).collect();
        if fresh.is_empty() {
            return Ok(());
        }
        let node = Claims::new_turn_id().map_err(|error| StoreError::invalid(error.to_string()))?;
        let batch = |log: &LogId, opening: Option<LogOpening>| {
            let mut append = Append::new(log.clone());
            append.opening = opening;
            for object in &fresh {
                let content = json::object(|out| {
                    out.number("v", 1).string("account", account);
                    out.string("kind", object.kind.as_str()).string("id", &object.id);
                });
                append = append.record(NewRecord::new(OBJECT, content.bytes().clone()));
            }
            let mut batch = Batch::new(tenant.clone()).append(append);
            let keys = fresh.iter().map(|object| VaultKey::Chain(owner_key(account, object)));
            batch.vault.push(NewVaultTurn {
                id: node.clone(),
                parent: None,
                keys: keys.collect(),
                log: log.clone(),
                prefix: None,
            });
            batch
        };
        let shared = LogId::from(LOG);
        // Another process may create the log first, and an operator may have erased it.
        let own = LogId::from(format!("{LOG}-{node}"));
        let attempts = [
            (&shared, None),
            (&shared, Some(LogOpening::thread())),
            (&shared, None),
            (&own, Some(LogOpening::thread())),
        ];
        let mut failed = StoreError::Closed;
        for (log, opening) in attempts {
            match self.store().commit(batch(log, opening)).await {
                Ok(_) => {
                    self.cache_owned(tenant, account, fresh);
                    return Ok(());
                }
                Err(
                    error @ (StoreError::NotFound { .. }
                    | StoreError::Conflict { .. }
                    | StoreError::Invalid(_)),
                ) => failed = error,
                Err(error) => return Err(error),
            }
        }
        Err(failed)
    }
}
