//! Turns that are still being kept while their answers have gone out: what a relaxed capture is. Whoever looks for one of them
//! waits for it, so that nobody sees a conversation without its last turn.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use throughline_core::{Tenant, VaultKey};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// How many KiB of turns may be under way. Whoever comes when there is no more room waits.
const ROOM: u32 = 64 << 10;

/// The turns that are under way.
#[derive(Clone)]
pub(super) struct Behind {
    /// The keys that they will have, and what ends when they are kept.
    coming: Arc<Mutex<HashMap<Key, Vec<watch::Receiver<()>>>>>,
    room: Arc<Semaphore>,
}

type Key = (Tenant, VaultKey);

/// A turn that is under way for as long as this is held.
pub(super) struct Coming {
    behind: Behind,
    keys: Vec<Key>,
    own: watch::Receiver<()>,
    _kept: watch::Sender<()>,
    _room: OwnedSemaphorePermit,
}

impl Default for Behind {
    fn default() -> Self {
        let room = Semaphore::new(usize::try_from(ROOM).unwrap_or(Semaphore::MAX_PERMITS));
        Self { coming: Arc::default(), room: Arc::new(room) }
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
        let keys: Vec<Key> = keys.iter().map(|key| (tenant.clone(), key.clone())).collect();
        let mut coming = self.coming.lock().unwrap_or_else(PoisonError::into_inner);
        for key in &keys {
            coming.entry(key.clone()).or_default().push(own.clone());
        }
        Coming { behind: self.clone(), keys, own, _kept: kept, _room: room }
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
        coming.get(&(tenant.clone(), key.clone()))?.first().cloned()
    }

    /// Waits for all of them.
    pub(super) async fn all_settled(&self) {
        drop(self.room(usize::MAX).await);
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        let mut coming = self.behind.coming.lock().unwrap_or_else(PoisonError::into_inner);
        for key in &self.keys {
            let Some(turns) = coming.get_mut(key) else { continue };
            turns.retain(|kept| !kept.same_channel(&self.own));
            if turns.is_empty() {
                coming.remove(key);
            }
        }
    }
}
