//! Lets tasks wait for new records in a log. The backend reports the last sequence numbers of the
//! logs that it writes or polls.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use throughline_core::{LogId, StoreError, Tenant};
use tokio::sync::watch;

use crate::rejection::Result;
use crate::sync::lock;

/// Tenant and name of a log.
pub(crate) type LogKey = (Tenant, LogId);

#[derive(Default)]
pub(crate) struct WaitRegistry {
    slots: Mutex<HashMap<LogKey, Arc<WaitSlot>>>,
    closed: watch::Sender<bool>,
}

/// A log that at least one task waits for.
#[derive(Default)]
struct WaitSlot {
    /// The log's id in the database, or 0 until it is known.
    id: AtomicI64,
    last: watch::Sender<u64>,
}

impl WaitRegistry {
    /// Waits until the log has a record after `after`. The log may not exist yet. `read` must read
    /// the log's last sequence number and report it with [`saw`](Self::saw).
    pub(crate) async fn wait(
        &self,
        key: LogKey,
        after: u64,
        read: impl Future<Output = Result<()>>,
    ) -> Result<()> {
        // Register before reading, so that no write is missed.
        let guard = WaitGuard::register(self, key);
        let mut last = guard.slot.last.subscribe();
        let mut closed = self.closed.subscribe();
        read.await?;
        tokio::select! {
            outcome = last.wait_for(|last| *last > after) => {
                outcome.map(drop).map_err(|_| StoreError::Closed)
            }
            _ = closed.wait_for(|closed| *closed) => Err(StoreError::Closed),
        }
    }

    /// Reports a log's id and the sequence number of its last record.
    pub(crate) fn saw(&self, key: &LogKey, id: i64, last: u64) {
        if let Some(slot) = lock(&self.slots).get(key) {
            slot.id.store(id, Ordering::Release);
            slot.last.send_if_modified(|known| {
                let has_grown = *known < last;
                *known = last.max(*known);
                has_grown
            });
        }
    }

    /// Returns the logs that a task waits for and that must be polled. These are the logs whose id
    /// is in `ids` or still unknown. If `ids` is `None`, returns all logs that a task waits for.
    pub(crate) fn waited(&self, ids: Option<&BTreeSet<i64>>) -> Vec<LogKey> {
        let is_wanted = |slot: &WaitSlot| {
            let id = slot.id.load(Ordering::Acquire);
            ids.is_none_or(|ids| id == 0 || ids.contains(&id))
        };
        let slots = lock(&self.slots);
        slots.iter().filter(|(_, slot)| is_wanted(slot)).map(|(key, _)| key.clone()).collect()
    }

    /// Ends all waits with [`StoreError::Closed`].
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }

    pub(crate) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.slots).is_empty()
    }

    #[cfg(test)]
    pub(crate) fn is_waited_for(&self, tenant: &Tenant, log: &LogId) -> bool {
        lock(&self.slots).contains_key(&(tenant.clone(), log.clone()))
    }
}

/// A guard that registers a waiting task until the guard is dropped.
struct WaitGuard<'w> {
    waits: &'w WaitRegistry,
    key: LogKey,
    slot: Arc<WaitSlot>,
}

impl<'w> WaitGuard<'w> {
    fn register(waits: &'w WaitRegistry, key: LogKey) -> Self {
        let slot = lock(&waits.slots).entry(key.clone()).or_default().clone();
        Self { waits, key, slot }
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        let mut slots = lock(&self.waits.slots);
        // The map holds one reference and this guard holds the other, so no other task waits.
        if Arc::strong_count(&self.slot) <= 2 {
            slots.remove(&self.key);
        }
    }
}
