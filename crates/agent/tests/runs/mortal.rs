//! A store whose process ends at a given commit: before it is written, or right after.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use throughline_core::{
    Batch, Boxed, EventWriter, Fence, Lease, LogHead, LogId, Name, Pending, Receipt, Record, Sight,
    Store, Tenant, Unattended, VaultKey,
};
use throughline_store::Journal;

/// When the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Never,
    Before(u64),
    After(u64),
}

/// A store whose process ends at a given commit.
#[derive(Clone)]
pub(crate) struct Mortal {
    journal: Journal,
    end: End,
    pub(crate) commits: Arc<AtomicU64>,
    lease: Arc<Mutex<Option<(Tenant, LogId, Fence)>>>,
}

impl Mortal {
    pub(crate) fn new(journal: Journal, end: End) -> Self {
        Self { journal, end, commits: Arc::default(), lease: Arc::default() }
    }

    /// The process is no more. Its leases run out, which here takes no time.
    async fn die(&self) -> ! {
        let lease = self.lease.lock().unwrap().clone();
        if let Some((tenant, log, fence)) = lease {
            self.journal.release(&tenant, &log, fence).await.unwrap();
        }
        std::process::abort();
    }

    async fn around<T>(&self, commit: impl Future<Output = T>) -> T {
        let number = self.commits.fetch_add(1, Ordering::SeqCst) + 1;
        if self.end == End::Before(number) {
            self.die().await;
        }
        let done = commit.await;
        if self.end == End::After(number) {
            self.die().await;
        }
        done
    }
}

impl Store for Mortal {
    fn commit(&self, batch: Batch) -> Boxed<'_, Receipt> {
        Box::pin(self.around(self.journal.commit(batch)))
    }

    fn read<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        after: u64,
        limit: u32,
    ) -> Boxed<'a, Vec<Record>> {
        self.journal.read(tenant, log, after, limit)
    }

    fn place_of_event<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        event: u64,
    ) -> Boxed<'a, u64> {
        self.journal.place_of_event(tenant, log, event)
    }

    fn wait<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId, after: u64) -> Boxed<'a, ()> {
        self.journal.wait(tenant, log, after)
    }

    fn log<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId) -> Boxed<'a, Option<LogHead>> {
        self.journal.log(tenant, log)
    }

    fn checkpoint<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        at_most: u64,
    ) -> Boxed<'a, Option<Record>> {
        self.journal.checkpoint(tenant, log, at_most)
    }

    fn lease<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        owner: &'a str,
        time: Duration,
    ) -> Boxed<'a, Lease> {
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
    ) -> Boxed<'a, Lease> {
        self.journal.renew(tenant, log, fence, time)
    }

    fn release<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId, fence: Fence) -> Boxed<'a, ()> {
        self.journal.release(tenant, log, fence)
    }

    fn find<'a>(&'a self, tenant: &'a Tenant, keys: &'a [VaultKey]) -> Boxed<'a, Sight> {
        self.journal.find(tenant, keys)
    }

    fn forget_run<'a>(&'a self, tenant: &'a Tenant, run: &'a LogId) -> Boxed<'a, ()> {
        Store::forget_run(&self.journal, tenant, run)
    }

    fn events(&self, tenant: &Tenant, run: &LogId, fence: Option<Fence>) -> Box<dyn EventWriter> {
        Box::new(MortalWriter {
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
    ) -> Boxed<'a, Vec<LogHead>> {
        self.journal.runs_of(tenant, thread, before, limit)
    }

    fn pending<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: Option<&'a LogId>,
    ) -> Boxed<'a, Vec<Pending>> {
        self.journal.pending(tenant, log)
    }

    fn unattended(&self, idle: Duration, after: u64, limit: u32) -> Boxed<'_, Vec<Unattended>> {
        self.journal.unattended(idle, after, limit)
    }
}

struct MortalWriter {
    inner: Box<dyn EventWriter>,
    store: Mortal,
}

impl EventWriter for MortalWriter {
    fn push<'a>(
        &'a self,
        event: &'a [u8],
        about: Option<&'a Name>,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        self.inner.push(event, about)
    }

    fn commit(&self, batch: Batch) -> Boxed<'_, Receipt> {
        Box::pin(self.store.around(self.inner.commit(batch)))
    }

    fn flush(&self) -> Boxed<'_, ()> {
        self.inner.flush()
    }
}
