//! Writes the events of a run, which are numbered from 1 and packed into records.
//!
//! Token deltas are numerous and small, so callers do not wait for each one. A pack is written when
//! it is large enough, when it is old enough, or with the next awaited commit. Packs that are
//! written together share an idempotency name, so a write with an unknown outcome can be repeated
//! safely.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use throughline_core::{
    Append, Batch, EventWriter, Fence, LogId, NewRecord, Pack, Receipt, Store, StoreError,
    StoreFuture, Tenant,
};
use throughline_json::Name;
use tokio::task::JoinSet;

use crate::cipher;
use crate::hex::hex;
use crate::journal::Journal;
use crate::rejection::Result;
use crate::sync::lock;

/// Size in bytes at which a pack is written.
const PACK_BYTES: usize = 8 << 10;

/// Age at which a pack is written, even if it is not full.
const MAX_PACK_AGE: Duration = Duration::from_millis(50);

/// Number of unwritten bytes above which `push` waits for the store.
const MAX_UNWRITTEN_BYTES: usize = 1 << 20;

/// Packs the events of one run and writes them in the background.
pub struct RunEvents {
    run: Arc<RunWriter>,
    flushes: Mutex<JoinSet<()>>,
}

struct RunWriter {
    journal: Journal,
    tenant: Tenant,
    log: LogId,
    fence: Option<Fence>,
    waiting: Mutex<PendingEvents>,
    /// Held during each write, so that writes stay in order.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct PendingEvents {
    /// The group being written. After a cancelled write its outcome may be unknown. The group is
    /// therefore written again under the same name until a write succeeds.
    in_progress: Option<PackGroup>,
    /// Packs to write after `in_progress`, in order. Events are appended to the last pack.
    packs: VecDeque<Pack>,
    /// Total size of `in_progress` and `packs` in bytes.
    bytes: usize,
    /// Whether a task is scheduled to write the packs at [`MAX_PACK_AGE`].
    timed: bool,
    /// Error of the last background write, returned by the next `commit` or `flush`.
    failed: Option<StoreError>,
}

/// Packs that are written together under one idempotency name.
#[derive(Clone)]
struct PackGroup {
    name: Name,
    records: Vec<NewRecord>,
}

impl PendingEvents {
    /// Adds an event. Returns whether a pack is full and should be written.
    fn push(&mut self, event: &[u8], about: Option<&Name>) -> bool {
        let before = self.packs.len();
        let grows = |pack: &Pack| pack.len() < PACK_BYTES && pack.subject() == about;
        if !self.packs.back().is_some_and(grows) {
            self.packs.push_back(Pack::with_subject(about.cloned()));
        }
        if let Some(pack) = self.packs.back_mut() {
            pack.push(event);
        }
        self.bytes += event.len();
        (before > 0 && self.packs.len() > before)
            || self.packs.back().is_some_and(|pack| pack.len() >= PACK_BYTES)
    }

    /// Returns the next group to write. The group stays in `in_progress` until
    /// [`wrote`](Self::wrote) is called, even if the writing task is cancelled.
    fn next_group(&mut self) -> Result<Option<PackGroup>> {
        if self.in_progress.is_none() && !self.packs.is_empty() {
            let name = Name::from(format!("events {}", hex(&cipher::random::<16>()?)));
            let records = std::mem::take(&mut self.packs).iter().map(Pack::record).collect();
            self.in_progress = Some(PackGroup { name, records });
        }
        Ok(self.in_progress.clone())
    }

    fn wrote(&mut self) {
        self.in_progress = None;
        self.bytes = self.packs.iter().map(Pack::len).sum();
    }
}

impl RunEvents {
    /// Creates a writer for an existing log. If the log has a lease, `fence` must be the fence of
    /// the active lease.
    pub fn new(journal: Journal, tenant: Tenant, log: LogId, fence: Option<Fence>) -> Self {
        let (waiting, turn) = (Mutex::default(), tokio::sync::Mutex::default());
        let run = RunWriter { journal, tenant, log, fence, waiting, turn };
        Self { run: Arc::new(run), flushes: Mutex::default() }
    }

    /// Queues an event for writing. Waits only while more than 1 MB is unwritten. `about` names the
    /// Item that the event belongs to. Events about different Items go into different packs, so
    /// that each Item can be forgotten separately.
    pub async fn push(&self, event: &[u8], about: Option<&Name>) {
        let (full, much) = {
            let mut waiting = lock(&self.run.waiting);
            let full = waiting.push(event, about);
            let starts = !full && !std::mem::replace(&mut waiting.timed, true);
            (
                full.then_some(Duration::ZERO).or(starts.then_some(MAX_PACK_AGE)),
                waiting.bytes > MAX_UNWRITTEN_BYTES,
            )
        };
        if let Some(age) = full {
            let run = Arc::clone(&self.run);
            let mut flushes = lock(&self.flushes);
            while flushes.try_join_next().is_some() {}
            flushes.spawn(async move {
                if age > Duration::ZERO {
                    tokio::time::sleep(age).await;
                    lock(&run.waiting).timed = false;
                }
                run.write().await;
            });
        }
        if much {
            self.run.write().await;
            // Slow the caller down while writes fail, so that unwritten events do not accumulate.
            let fails = lock(&self.run.waiting).failed.is_some();
            if fails {
                tokio::time::sleep(MAX_PACK_AGE).await;
            }
        }
    }

    /// Writes the queued packs and then `batch`; all of them are durable on return. If `batch`
    /// fails, the packs are written later. Cancelling this call neither loses nor duplicates queued
    /// packs.
    pub async fn commit(&self, mut batch: Batch) -> Result<Receipt> {
        let _turn = self.run.turn.lock().await;
        if let Some(failed) = lock(&self.run.waiting).failed.take() {
            return Err(failed);
        }
        // A batch with its own idempotency names keeps them, and a group in `in_progress` is
        // written unchanged, so write the packs before the batch.
        let in_progress = lock(&self.run.waiting).in_progress.is_some();
        if in_progress || !batch.once.is_empty() {
            self.run.write_all().await?;
        }
        let added: Vec<u64> = batch.appends.iter().map(records_of).collect();
        let group =
            if batch.once.is_empty() { lock(&self.run.waiting).next_group()? } else { None };
        if let Some(PackGroup { name, records }) = &group {
            batch.once.push(name.clone());
            match batch.appends.iter_mut().find(|append| append.log == self.run.log) {
                Some(append) => {
                    append.records.splice(0..0, records.iter().cloned());
                }
                None => batch.appends.push(self.run.append(records.clone())),
            }
        }
        let mut receipt = self.run.journal.commit(batch).await?;
        if group.is_some() {
            lock(&self.run.waiting).wrote();
        }
        // The receipt must cover only the caller's records, not the packs.
        receipt.written.truncate(added.len());
        if !receipt.repeated {
            for (written, records) in receipt.written.iter_mut().zip(added) {
                written.first = (written.last + 1).saturating_sub(records);
            }
        }
        Ok(receipt)
    }

    /// Writes the queued packs. Returns an error if the write fails.
    pub async fn flush(&self) -> Result<()> {
        self.run.write().await;
        lock(&self.run.waiting).failed.take().map_or(Ok(()), Err)
    }

    /// Writes the queued packs and closes the writer.
    pub async fn close(self) -> Result<()> {
        self.flush().await
    }
}

impl EventWriter for RunEvents {
    fn push<'a>(
        &'a self,
        event: &'a [u8],
        about: Option<&'a Name>,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(RunEvents::push(self, event, about))
    }

    fn commit(&self, batch: Batch) -> StoreFuture<'_, Receipt> {
        Box::pin(RunEvents::commit(self, batch))
    }

    fn flush(&self) -> StoreFuture<'_, ()> {
        Box::pin(RunEvents::flush(self))
    }
}

impl Drop for RunEvents {
    /// Starts a background task that writes the queued packs.
    fn drop(&mut self) {
        lock(&self.flushes).detach_all();
        let waits = {
            let waiting = lock(&self.run.waiting);
            waiting.in_progress.is_some() || !waiting.packs.is_empty()
        };
        if let (true, Ok(runtime)) = (waits, tokio::runtime::Handle::try_current()) {
            let run = Arc::clone(&self.run);
            runtime.spawn(async move { run.write().await });
        }
    }
}

/// Returns the number of records that an append adds. A rewind adds one more record.
fn records_of(append: &Append) -> u64 {
    let records = u64::try_from(append.records.len()).unwrap_or(u64::MAX);
    records + u64::from(append.rewind_to.is_some())
}

impl RunWriter {
    fn append(&self, records: Vec<NewRecord>) -> Append {
        Append { fence: self.fence, records, ..Append::new(self.log.clone()) }
    }

    /// Writes the queued packs. After a failure the packs stay queued, and the next `commit` or
    /// `flush` returns the error.
    async fn write(&self) {
        let _turn = self.turn.lock().await;
        // A successful write clears an earlier error.
        let failed = self.write_all().await.err();
        lock(&self.waiting).failed = failed;
    }

    /// Writes the group in `in_progress` and then the queued packs. The caller must hold `turn`.
    async fn write_all(&self) -> Result<()> {
        let in_progress = lock(&self.waiting).in_progress.is_some();
        for _ in 0..=u32::from(in_progress) {
            let group = lock(&self.waiting).next_group()?;
            let Some(PackGroup { name, records }) = group else { break };
            let batch = Batch::new(self.tenant.clone())
                .append(self.append(records))
                .with_idempotency_key(name);
            self.journal.commit(batch).await?;
            lock(&self.waiting).wrote();
        }
        Ok(())
    }
}
