//! Caches Threads, so that the next run on a Thread does not have to read the store.
//!
//! Correctness does not depend on the cache. An entry is dropped if the Thread has newer records,
//! or if the tenant's [`ErasureEpoch`] changed because data was erased.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use throughline_core::{ErasureEpoch, LogHead, LogId, Tenant, TokenCounter};

use crate::run::load::OpenThread;

/// Maximum number of cached Threads.
const MOST: usize = 256;
/// Approximate maximum size of all entries together, in bytes.
const MOST_BYTES: u64 = 64 << 20;

/// LRU cache of Threads, shared by all tenants.
#[derive(Clone, Default)]
pub(crate) struct ThreadCache(Arc<Mutex<CacheContents>>);

#[derive(Default)]
struct CacheContents {
    /// Cached Threads, ordered by last use. The most recently used Thread is last.
    threads: VecDeque<CachedThread>,
    bytes: u64,
}

struct CachedThread {
    tenant: Tenant,
    thread: OpenThread,
    /// Token counter that produced the window's token estimates.
    counter: Arc<dyn TokenCounter>,
    bytes: u64,
}

impl ThreadCache {
    /// Removes a Thread from the cache. Returns the Thread if the cached state is still current.
    pub(crate) fn take(
        &self,
        tenant: &Tenant,
        head: &LogHead,
        era: ErasureEpoch,
        counter: &Arc<dyn TokenCounter>,
    ) -> Option<OpenThread> {
        let CachedThread { thread, counter: counted_by, .. } = self.remove(tenant, &head.log)?;
        let is_current = thread.folded.last == head.last && thread.era == era;
        let is_sound = head.gone.is_none() && !thread.folded.stale;
        (is_current && is_sound && Arc::ptr_eq(&counted_by, counter)).then_some(thread)
    }

    /// Adds a Thread, then evicts the least recently used Threads until the limits are met.
    pub(crate) fn put(&self, tenant: Tenant, thread: OpenThread, counter: Arc<dyn TokenCounter>) {
        let bytes = thread.bytes();
        drop(self.remove(&tenant, &thread.log));
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cache.bytes += bytes;
        cache.threads.push_back(CachedThread { tenant, thread, counter, bytes });
        while cache.threads.len() > MOST || cache.bytes > MOST_BYTES {
            let Some(oldest) = cache.threads.pop_front() else { break };
            cache.bytes -= oldest.bytes;
        }
    }

    fn remove(&self, tenant: &Tenant, log: &LogId) -> Option<CachedThread> {
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same_thread =
            |entry: &CachedThread| entry.thread.log == *log && entry.tenant == *tenant;
        let index = cache.threads.iter().rposition(is_same_thread)?;
        let entry = cache.threads.remove(index)?;
        cache.bytes -= entry.bytes;
        Some(entry)
    }
}
