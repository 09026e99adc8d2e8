//! A store that exits the process at a given commit, before or right after the write.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use throughline_core::{
    Batch, EventWriter, Fence, Lease, LogHead, LogId, PendingEntry, Receipt, Record, StaleRun,
    Store, StoreFuture, Tenant, VaultKey, VaultLookup, VaultTurn,
};
use throughline_json::Name;
use throughline_store::Journal;

/// Commit at which the process exits, before or after the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CrashPoint {
    Never,
    Before(u64),
    After(u64),
}

/// Wraps a journal, and exits the process at a given commit.
#[derive(Clone)]
pub(crate) struct CrashingStore {
    journal: Journal,
    end: CrashPoint,
    pub(crate) commits: Arc<AtomicU64>,
    lease: Arc<Mutex<Option<(Tenant, LogId, Fence)>>>,
}

impl CrashingStore {
    pub(crate) fn new(journal: Journal, end: CrashPoint) -> Self {
        Self { journal, end, commits: Arc::default(), lease: Arc::default() }
    }

    /// Exits the process. The lease is released first, so that the test need not wait until the
    /// lease expires.
    async fn abort(&self) -> ! {
        let lease = self.lease.lock().unwrap().clone();
        if let Some((tenant, log, fence)) = lease {
            self.journal.release(&tenant, &log, fence).await.unwrap();
        }
        std::process::abort();
    }

    async fn commit_or_crash<T>(&self, commit: impl Future<Output = T>) -> T {
        let number = self.commits.fetch_add(1, Ordering::SeqCst) + 1;
        if self.end == CrashPoint::Before(number) {
            self.abort().await;
        }
        let result = commit.await;
        if self.end == CrashPoint::After(number) {
            self.abort().await;
        }
        result
    }
}

impl Store for CrashingStore {
    fn commit(&self, batch: Batch) -> StoreFuture<'_, Receipt> {
        Box::pin(self.commit_or_crash(self.journal.commit(batch)))
    }

    fn read<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        after: u64,
        limit: u32,
    ) -> StoreFuture<'a, Vec<Record>> {
        self.journal.read(tenant, log, after, limit)
    }

    fn seq_before_event<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        event: u64,
    ) -> StoreFuture<'a, u64> {
        self.journal.seq_before_event(tenant, log, event)
    }

    fn wait<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId, after: u64) -> StoreFuture<'a, ()> {
        self.journal.wait(tenant, log, after)
    }

    fn log<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId) -> StoreFuture<'a, Option<LogHead>> {
        self.journal.log(tenant, log)
    }

    fn checkpoint<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        at_most: u64,
    ) -> StoreFuture<'a, Option<Record>> {
        self.journal.checkpoint(tenant, log, at_most)
    }

    fn lease<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        owner: &'a str,
        time: Duration,
    ) -> StoreFuture<'a, Lease> {
        Box::pin(async move {
            let lease = self.journal.lease(tenant, log, owner, time).await?;
            *self.lease.lock().unwrap() = Some((tenant.clone(), log.clone(), lease.fence));
            Ok(lease)
        })
    }

    fn renew<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        fence: Fence,
        time: Duration,
    ) -> StoreFuture<'a, Lease> {
        self.journal.renew(tenant, log, fence, time)
    }

    fn release<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        fence: Fence,
    ) -> StoreFuture<'a, ()> {
        self.journal.release(tenant, log, fence)
    }

    fn find<'a>(
        &'a self,
        tenant: &'a Tenant,
        keys: &'a [VaultKey],
    ) -> StoreFuture<'a, VaultLookup> {
        self.journal.find(tenant, keys)
    }

    fn find_newest<'a>(
        &'a self,
        tenant: &'a Tenant,
        key: &'a VaultKey,
        limit: u32,
    ) -> StoreFuture<'a, Vec<VaultTurn>> {
        self.journal.find_newest(tenant, key, limit)
    }

    fn forget_run<'a>(&'a self, tenant: &'a Tenant, run: &'a LogId) -> StoreFuture<'a, ()> {
        Store::forget_run(&self.journal, tenant, run)
    }

    fn events(&self, tenant: &Tenant, run: &LogId, fence: Option<Fence>) -> Box<dyn EventWriter> {
        Box::new(CrashingWriter {
            inner: self.journal.events(tenant, run, fence),
            store: self.clone(),
        })
    }

    fn runs_of<'a>(
        &'a self,
        tenant: &'a Tenant,
        thread: &'a LogId,
        before: Option<&'a LogId>,
        limit: u32,
    ) -> StoreFuture<'a, Vec<LogHead>> {
        self.journal.runs_of(tenant, thread, before, limit)
    }

    fn pending<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: Option<&'a LogId>,
    ) -> StoreFuture<'a, Vec<PendingEntry>> {
        self.journal.pending(tenant, log)
    }

    fn stale_runs(&self, idle: Duration, after: u64, limit: u32) -> StoreFuture<'_, Vec<StaleRun>> {
        self.journal.stale_runs(idle, after, limit)
    }
}

struct CrashingWriter {
    inner: Box<dyn EventWriter>,
    store: CrashingStore,
}

impl EventWriter for CrashingWriter {
    fn push<'a>(
        &'a self,
        event: &'a [u8],
        about: Option<&'a Name>,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        self.inner.push(event, about)
    }

    fn commit(&self, batch: Batch) -> StoreFuture<'_, Receipt> {
        Box::pin(self.store.commit_or_crash(self.inner.commit(batch)))
    }

    fn flush(&self) -> StoreFuture<'_, ()> {
        self.inner.flush()
    }
}
