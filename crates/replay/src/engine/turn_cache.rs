//! Caches captured turns. An entry is valid only in the epoch when it was stored or confirmed.
//! Every search reads the current epoch from the store, so erased turns are never served.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use throughline_core::{ErasureEpoch, Item, Tenant, TurnId, VaultTurn};
use throughline_json::Name;

use crate::byte_lru::ByteLru;
use crate::engine::chain::VisibleDigests;

/// The content of a captured turn.
#[derive(Debug)]
pub(super) struct Captured {
    pub(super) end_user: Option<Name>,
    /// The number of visible turns before this turn.
    pub(super) number: usize,
    pub(super) items: Vec<Item>,
    pub(super) visible: VisibleDigests,
    /// The size of the turn's records in bytes.
    pub(super) size: usize,
}

type TurnKey = (Tenant, TurnId);

/// Caches captured turns by tenant and turn id.
pub(super) struct TurnCache(Mutex<ByteLru<TurnKey, CachedTurn>>);

/// A turn and the last epoch in which it was known to be valid.
struct CachedTurn {
    turn: VaultTurn,
    era: ErasureEpoch,
    captured: Arc<Captured>,
}

impl TurnCache {
    /// Creates an empty cache with a size limit in bytes.
    pub(super) fn new(most: usize) -> Self {
        Self(Mutex::new(ByteLru::new(most)))
    }

    fn recent(&self) -> MutexGuard<'_, ByteLru<TurnKey, CachedTurn>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, tenant: &Tenant, node: &TurnId) -> Option<Arc<Captured>> {
        let recent = self.recent();
        let known = recent.get(&(tenant.clone(), node.clone()));
        known.map(|known| Arc::clone(&known.captured))
    }

    /// Returns the cached turn if it is valid in this epoch.
    pub(super) fn get_valid(
        &self,
        tenant: &Tenant,
        node: &TurnId,
        era: ErasureEpoch,
    ) -> Option<VaultTurn> {
        let recent = self.recent();
        let known = recent.get(&(tenant.clone(), node.clone()));
        known.filter(|known| known.era == era).map(|known| known.turn.clone())
    }

    /// Marks the cached turns among `turns` as valid in this epoch.
    pub(super) fn mark_valid<'t>(
        &self,
        tenant: &Tenant,
        turns: impl Iterator<Item = &'t VaultTurn>,
        era: ErasureEpoch,
    ) {
        let mut recent = self.recent();
        for turn in turns {
            if let Some(known) = recent.get_mut(&(tenant.clone(), turn.id.clone())) {
                known.era = era;
            }
        }
    }

    /// Caches a turn that was valid in this epoch.
    pub(super) fn insert(
        &self,
        tenant: &Tenant,
        turn: &VaultTurn,
        captured: &Arc<Captured>,
        era: ErasureEpoch,
    ) {
        let known = CachedTurn { turn: turn.clone(), era, captured: Arc::clone(captured) };
        self.recent().put((tenant.clone(), turn.id.clone()), known, captured.size);
    }

    pub(super) fn drop(&self, tenant: &Tenant, node: &TurnId) {
        drop(self.recent().take(&(tenant.clone(), node.clone())));
    }

    /// Returns the cached ancestors of a turn, nearest first.
    pub(super) fn ancestors(&self, tenant: &Tenant, node: &TurnId) -> Vec<TurnId> {
        let recent = self.recent();
        let mut key = (tenant.clone(), node.clone());
        let mut ancestors = Vec::new();
        while let Some(parent) = recent.get(&key).and_then(|known| known.turn.parent.clone()) {
            if ancestors.len() > recent.len() {
                break;
            }
            ancestors.push(parent.clone());
            key.1 = parent;
        }
        ancestors
    }
}
