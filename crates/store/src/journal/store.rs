//! Implements the port [`Store`] for the Journal.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use throughline_core::{
    Batch, EventWriter, Fence, Lease, LogHead, LogId, PendingEntry, Receipt, Record, Stage,
    StaleRun, Store, StoreFuture, Tenant, VaultKey, VaultLookup, VaultTurn,
};

use crate::journal::Journal;
use crate::journal::events::RunEvents;
use crate::journal::listing::Page;
use crate::journal::seal::seal;
use crate::query::{Order, Span};
use crate::rejection;
use crate::sync::blocking;

/// Batches with more content bytes than this are sealed on a blocking thread.
const BLOCKING_SEAL_BYTES: usize = 256 << 10;

impl Store for Journal {
    fn commit(&self, batch: Batch) -> StoreFuture<'_, Receipt> {
        Box::pin(async move {
            let records = batch.appends.iter().flat_map(|append| &append.records);
            let size: usize = records.map(|record| record.content.len()).sum();
            let _sealing = self.keys.sealing().await;
            let sealed = if size > BLOCKING_SEAL_BYTES {
                let keys = Arc::clone(&self.keys);
                blocking(move || seal(&keys, batch)).await?
            } else {
                seal(&self.keys, batch)?
            };
            Stage::Store.run_async(self.backend.commit(sealed)).await
        })
    }

    fn read<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        after: u64,
        limit: u32,
    ) -> StoreFuture<'a, Vec<Record>> {
        Box::pin(async move {
            let span = Span { after, up_to: u64::MAX, limit };
            let rows = self.rows(tenant, log, span).await?;
            let mut records = Vec::with_capacity(rows.len());
            for row in &rows {
                records.push(self.open_row(tenant, log, row).await?);
            }
            Ok(records)
        })
    }

    fn seq_before_event<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        event: u64,
    ) -> StoreFuture<'a, u64> {
        self.backend.place_of_event(tenant, log, event)
    }

    fn wait<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId, after: u64) -> StoreFuture<'a, ()> {
        self.backend.wait(tenant, log, after)
    }

    fn log<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId) -> StoreFuture<'a, Option<LogHead>> {
        self.backend.log(tenant, log)
    }

    fn checkpoint<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        at_most: u64,
    ) -> StoreFuture<'a, Option<Record>> {
        Box::pin(async move {
            let Some(head) = self.backend.log(tenant, log).await? else { return Ok(None) };
            for span in head.valid_ranges(at_most.min(head.last)).into_iter().rev() {
                for (ancestor, end) in self.lineage(tenant, log, span.start() - 1).await? {
                    // Records that a parent wrote after the fork do not belong to this log.
                    let end = end.min(*span.end());
                    let row = self.backend.checkpoint(tenant, &ancestor, end).await?;
                    if let Some(row) = row.filter(|row| span.contains(&row.seq)) {
                        return self.open_row(tenant, &ancestor, &row).await.map(Some);
                    }
                }
            }
            Ok(None)
        })
    }

    fn lease<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        owner: &'a str,
        time: Duration,
    ) -> StoreFuture<'a, Lease> {
        Box::pin(async move {
            [&*tenant.0, &*log.0, owner].into_iter().try_for_each(rejection::check_name)?;
            self.backend.lease(tenant, log, owner, time).await
        })
    }

    fn renew<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        fence: Fence,
        time: Duration,
    ) -> StoreFuture<'a, Lease> {
        self.backend.renew(tenant, log, fence, time)
    }

    fn release<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        fence: Fence,
    ) -> StoreFuture<'a, ()> {
        self.backend.release(tenant, log, fence)
    }

    fn find<'a>(
        &'a self,
        tenant: &'a Tenant,
        keys: &'a [VaultKey],
    ) -> StoreFuture<'a, VaultLookup> {
        Box::pin(async move {
            let keys: Vec<_> = keys.iter().map(|key| self.keys.vault(tenant, key)).collect();
            Stage::Store.run_async(self.backend.find(tenant, &keys)).await
        })
    }

    fn find_newest<'a>(
        &'a self,
        tenant: &'a Tenant,
        key: &'a VaultKey,
        limit: u32,
    ) -> StoreFuture<'a, Vec<VaultTurn>> {
        Box::pin(async move {
            let key = self.keys.vault(tenant, key);
            Stage::Store.run_async(self.backend.find_newest(tenant, key, limit)).await
        })
    }

    fn forget_run<'a>(&'a self, tenant: &'a Tenant, run: &'a LogId) -> StoreFuture<'a, ()> {
        Box::pin(Journal::forget_run(self, tenant, run))
    }

    fn events(&self, tenant: &Tenant, run: &LogId, fence: Option<Fence>) -> Box<dyn EventWriter> {
        Box::new(RunEvents::new(self.clone(), tenant.clone(), run.clone(), fence))
    }

    fn stale_runs(&self, idle: Duration, after: u64, limit: u32) -> StoreFuture<'_, Vec<StaleRun>> {
        self.backend.unattended(idle, after, limit)
    }

    fn runs_of<'a>(
        &'a self,
        tenant: &'a Tenant,
        thread: &'a LogId,
        before: Option<&'a LogId>,
        limit: u32,
    ) -> StoreFuture<'a, Vec<LogHead>> {
        let page = Page { after: before.cloned(), limit, order: Order::Newest };
        Box::pin(Journal::runs(self, tenant, Some(thread), page))
    }

    fn pending<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: Option<&'a LogId>,
    ) -> StoreFuture<'a, Vec<PendingEntry>> {
        self.backend.pending(tenant, log)
    }

    fn probe(&self) -> StoreFuture<'_, ()> {
        // A batch of a few bytes may still fit on a disk that is too full for most replies, so
        // write more.
        const PROBE: usize = 64 << 10;
        Box::pin(async {
            self.backend.replace("probe", Bytes::from(vec![0; PROBE])).await?;
            self.backend.discard("probe").await
        })
    }
}
