//! Write-behind for captured turns: replies are sent before their turns are stored. A lookup waits
//! for pending turns with the same keys, so no request misses the last turn of its conversation.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use throughline_core::{Tenant, VaultKey};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Maximum total size of pending turns in KiB. Further captures wait until turns are stored.
const MAX_PENDING_KIB: u32 = 64 << 10;

/// Tracks the turns that are not stored yet.
#[derive(Clone)]
pub(super) struct PendingWrites {
    /// For each key hash, one channel per pending turn. The channel closes when its turn is stored.
    pending_turns: Arc<Mutex<HashMap<PendingKey, Vec<watch::Receiver<()>>>>>,
    permits: Arc<Semaphore>,
    hasher: RandomState,
}

/// The hash of a tenant and a Vault key. A collision only causes a lookup to wait unnecessarily.
type PendingKey = u64;

/// A pending turn. When this value is dropped, lookups no longer wait for the turn.
pub(super) struct PendingWrite {
    pending: PendingWrites,
    marks: Vec<PendingKey>,
    own: watch::Receiver<()>,
    _stored: watch::Sender<()>,
    _permit: OwnedSemaphorePermit,
}

impl Default for PendingWrites {
    fn default() -> Self {
        let permits =
            Semaphore::new(usize::try_from(MAX_PENDING_KIB).unwrap_or(Semaphore::MAX_PERMITS));
        Self {
            pending_turns: Arc::default(),
            permits: Arc::new(permits),
            hasher: RandomState::new(),
        }
    }
}

impl PendingWrites {
    /// Waits until a turn of this size in bytes may become pending.
    pub(super) async fn reserve(&self, bytes: usize) -> OwnedSemaphorePermit {
        let kib = u32::try_from(bytes >> 10).unwrap_or(MAX_PENDING_KIB);
        let kib = kib.saturating_add(1).min(MAX_PENDING_KIB);
        loop {
            // The semaphore is never closed.
            if let Ok(permit) = Arc::clone(&self.permits).acquire_many_owned(kib).await {
                return permit;
            }
        }
    }

    /// Registers a turn as pending, so that lookups with these keys wait for it.
    pub(super) fn register(
        &self,
        tenant: &Tenant,
        keys: &[VaultKey],
        permit: OwnedSemaphorePermit,
    ) -> PendingWrite {
        let (stored, own) = watch::channel(());
        let marks: Vec<PendingKey> = keys.iter().map(|key| self.mark(tenant, key)).collect();
        let mut pending_turns = self.pending_turns.lock().unwrap_or_else(PoisonError::into_inner);
        for mark in &marks {
            pending_turns.entry(*mark).or_default().push(own.clone());
        }
        PendingWrite { pending: self.clone(), marks, own, _stored: stored, _permit: permit }
    }

    /// Waits for pending turns with any of these keys.
    pub(super) async fn settled(&self, tenant: &Tenant, keys: &[VaultKey]) {
        for key in keys {
            while let Some(mut stored) = self.pending_turn(tenant, key) {
                // No value is ever sent, so this loop ends when the channel closes.
                while stored.changed().await.is_ok() {}
            }
        }
    }

    fn pending_turn(&self, tenant: &Tenant, key: &VaultKey) -> Option<watch::Receiver<()>> {
        let pending_turns = self.pending_turns.lock().unwrap_or_else(PoisonError::into_inner);
        if pending_turns.is_empty() {
            return None;
        }
        let turns = pending_turns.get(&self.mark(tenant, key))?;
        // If the task that stores a turn panics, the turn's channel is closed but stays in the map.
        turns.iter().find(|stored| stored.has_changed().is_ok()).cloned()
    }

    fn mark(&self, tenant: &Tenant, key: &VaultKey) -> PendingKey {
        self.hasher.hash_one((tenant, key))
    }

    /// Waits for all pending turns.
    pub(super) async fn all_settled(&self) {
        drop(self.reserve(usize::MAX).await);
    }
}

impl PendingWrite {
    /// Removes the turn from the map, so that lookups no longer wait for it.
    pub(super) fn complete(self) {
        let mut pending_turns =
            self.pending.pending_turns.lock().unwrap_or_else(PoisonError::into_inner);
        for mark in &self.marks {
            let Some(turns) = pending_turns.get_mut(mark) else { continue };
            turns.retain(|stored| !stored.same_channel(&self.own));
            if turns.is_empty() {
                pending_turns.remove(mark);
            }
        }
    }
}
