//! Turns that are still being kept while their answers have gone out: what a relaxed capture is. Whoever looks for one of them
//! waits for it, so that nobody sees a conversation without its last turn.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use throughline_core::{Tenant, VaultKey};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// How many KiB of turns may be under way. Whoever comes when there is no more room waits.
const ROOM: u32 = 64 << 10;

/// The turns that are under way.
#[derive(Clone)]
pub(super) struct Behind {
    /// The marks of the keys that they will have, and what ends when they are kept.
    coming: Arc<Mutex<HashMap<Mark, Vec<watch::Receiver<()>>>>>,
    room: Arc<Semaphore>,
    hasher: RandomState,
}

/// What tells a tenant's key from most others. Who waits for another's turn waits a little longer, and no more.
type Mark = u64;

/// A turn that is under way for as long as this is held.
pub(super) struct Coming {
    behind: Behind,
    marks: Vec<Mark>,
    own: watch::Receiver<()>,
    _kept: watch::Sender<()>,
    _room: OwnedSemaphorePermit,
}

impl Default for Behind {
    fn default() -> Self {
        let room = Semaphore::new(usize::try_from(ROOM).unwrap_or(Semaphore::MAX_PERMITS));
        Self { coming: Arc::default(), room: Arc::new(room), hasher: RandomState::new() }
    }
}

impl Behind {
    /// Makes room for so many bytes.
    pub(super) async fn room(&self, bytes: usize) -> OwnedSemaphorePermit {
        let wanted = u32::try_from(bytes >> 10).unwrap_or(ROOM).saturating_add(1).min(ROOM);
        loop {
            // Nobody closes it.
            if let Ok(room) = Arc::clone(&self.room).acquire_many_owned(wanted).await {
                return room;
            }
        }
    }

    /// A turn with these keys is under way.
    pub(super) fn begin(
        &self,
        tenant: &Tenant,
        keys: &[VaultKey],
        room: OwnedSemaphorePermit,
    ) -> Coming {
        let (kept, own) = watch::channel(());
        let marks: Vec<Mark> = keys.iter().map(|key| self.mark(tenant, key)).collect();
        let mut coming = self.coming.lock().unwrap_or_else(PoisonError::into_inner);
        for mark in &marks {
            coming.entry(*mark).or_default().push(own.clone());
        }
        Coming { behind: self.clone(), marks, own, _kept: kept, _room: room }
    }

    /// Waits for the turns that will have one of these keys.
    pub(super) async fn settled(&self, tenant: &Tenant, keys: &[VaultKey]) {
        for key in keys {
            while let Some(mut kept) = self.of(tenant, key) {
                // It never changes: it ends.
                while kept.changed().await.is_ok() {}
            }
        }
    }

    fn of(&self, tenant: &Tenant, key: &VaultKey) -> Option<watch::Receiver<()>> {
        let coming = self.coming.lock().unwrap_or_else(PoisonError::into_inner);
        if coming.is_empty() {
            return None;
        }
        coming.get(&self.mark(tenant, key))?.first().cloned()
    }

    fn mark(&self, tenant: &Tenant, key: &VaultKey) -> Mark {
        self.hasher.hash_one((tenant, key))
    }

    /// Waits for all of them.
    pub(super) async fn all_settled(&self) {
        drop(self.room(usize::MAX).await);
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        let mut coming = self.behind.coming.lock().unwrap_or_else(PoisonError::into_inner);
        for mark in &self.marks {
            let Some(turns) = coming.get_mut(mark) else { continue };
            turns.retain(|kept| !kept.same_channel(&self.own));
            if turns.is_empty() {
                coming.remove(mark);
            }
        }
    }
}
