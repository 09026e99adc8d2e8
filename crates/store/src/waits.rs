//! Tasks that wait for new records of a log. The database reports the ends of the logs that it
//! writes or polls.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use throughline_core::{LogId, StoreError, Tenant};
use tokio::sync::watch;

use crate::rejection::Result;
use crate::sync::lock;

/// A log of a tenant.
pub(crate) type LogKey = (Tenant, LogId);

#[derive(Default)]
pub(crate) struct WaitRegistry {
    slots: Mutex<HashMap<LogKey, Arc<WaitSlot>>>,
    closed: watch::Sender<bool>,
}

/// A log that a task waits for.
#[derive(Default)]
struct WaitSlot {
    /// The log's number, or 0 until it is known.
    id: AtomicI64,
    last: watch::Sender<u64>,
}

impl WaitRegistry {
    /// Waits until the log has a record after `after`. The log need not exist yet. `read` reads the
    /// end of the log and reports it with [`saw`](Self::saw).
    pub(crate) async fn wait(
        &self,
        key: LogKey,
        after: u64,
        read: impl Future<Output = Result<()>>,
    ) -> Result<()> {
        // The slot is registered before the log is read, so that no write is missed.
        let place = WaitGuard::register(self, key);
        let mut last = place.slot.last.subscribe();
        let mut closed = self.closed.subscribe();
        read.await?;
        tokio::select! {
            seen = last.wait_for(|last| *last > after) => {
                seen.map(drop).map_err(|_| StoreError::Closed)
            }
            _ = closed.wait_for(|closed| *closed) => Err(StoreError::Closed),
        }
    }

    /// Reports the number and the end of a log.
    pub(crate) fn saw(&self, key: &LogKey, id: i64, last: u64) {
        if let Some(slot) = lock(&self.slots).get(key) {
            slot.id.store(id, Ordering::Release);
            slot.last.send_if_modified(|known| {
                let moved = *known < last;
                *known = last.max(*known);
                moved
            });
        }
    }

    /// Returns the logs to poll: those with these numbers or without a known number. `None` returns
    /// all.
    pub(crate) fn waited(&self, ids: Option<&BTreeSet<i64>>) -> Vec<LogKey> {
        let is_wanted = |slot: &WaitSlot| {
            let id = slot.id.load(Ordering::Acquire);
            ids.is_none_or(|ids| id == 0 || ids.contains(&id))
        };
        let slots = lock(&self.slots);
        slots.iter().filter(|(_, slot)| is_wanted(slot)).map(|(key, _)| key.clone()).collect()
    }

    /// Ends all waiting tasks, because the store was closed.
    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }

    pub(crate) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.slots).is_empty()
    }

    /// Returns whether a task waits for the log.
    #[cfg(test)]
    pub(crate) fn is_waited_for(&self, tenant: &Tenant, log: &LogId) -> bool {
        lock(&self.slots).contains_key(&(tenant.clone(), log.clone()))
    }
}

/// The registration of a waiting task, removed on drop.
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
        // One reference is the map's, the other is this one.
        if Arc::strong_count(&self.slot) <= 2 {
            slots.remove(&self.key);
        }
    }
}
