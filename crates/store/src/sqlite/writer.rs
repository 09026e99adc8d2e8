//! The writer thread. Each transaction contains all batches that were queued during the last fsync,
//! and those that arrive while the transaction is written. Under load, relaxed batches also wait a
//! millisecond for further batches. A durable batch never waits for later batches.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use throughline_core::{Receipt, Stage, StoreError, StoreFuture};
use throughline_json::Name;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::manifest::{Manifest, Series, Signer};
use crate::options::{Durability, Options};
use crate::protection::Protection;
use crate::rejection::{Result, invalid};
use crate::row_mac::{RowKey, RowState};
use crate::sealed_batch::{SealedBatch, SealedRecord};
use crate::sqlite::chains::{Chains, write_manifest};
use crate::sqlite::commit::CommitError;
use crate::sqlite::reserve;
use crate::sqlite::schema::{instant, runtime_failure, touch, wait_for};
use crate::sqlite::statements::{Statements, now};
use crate::sqlite::turn_index::RecentTurns;
use crate::sqlite::wait::Waiters;
use crate::sqlite::{protect, tally, turn_index};
use crate::sync::lock;

/// Maximum number of batches per transaction, which limits how long the first batch waits.
const GROUP: usize = 256;
/// Approximate maximum number of content bytes per transaction.
const MAX_GROUP_BYTES: usize = 16 << 20;
/// How long a relaxed batch waits for further batches, if the last transaction had several. Batches
/// share many of the pages that they change, and a transaction writes each page to the WAL once. A
/// longer wait would delay the next requests of the same conversations.
const GROUP_WAIT: Duration = Duration::from_millis(1);
/// Maximum time until a relaxed commit is synced to disk.
const MAX_UNFLUSHED: Duration = Duration::from_millis(50);
/// After a batch did not fit on the disk, how long batches of its size or larger are rejected.
const FULL: Duration = Duration::from_millis(100);
/// Delay before turns are indexed again after a failure, for example on a full disk.
const INDEX_RETRY: Duration = Duration::from_secs(1);
/// Maximum time until a manifest covers a commit.
const MAX_UNSIGNED: Duration = Duration::from_secs(1);

/// Sends jobs to the writer thread.
pub(super) struct WriterHandle {
    jobs: mpsc::Sender<SqliteJob>,
    permits: Arc<Semaphore>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

enum SqliteJob {
    Commit(QueuedBatch),
    Act(Box<dyn FnOnce(&mut SqliteWriter<'_>) + Send>),
    Close(Reply<()>),
}

type Reply<T> = oneshot::Sender<Result<T>>;

/// A batch, and the channel for its result.
struct QueuedBatch {
    batch: SealedBatch,
    reply: Reply<Receipt>,
    permit: OwnedSemaphorePermit,
}

/// The jobs to run, in order of arrival.
struct Queue {
    jobs: mpsc::Receiver<SqliteJob>,
    /// A job that has been received but has not run yet.
    next: Option<SqliteJob>,
    disk_full: Option<RecentDiskFull>,
}

/// Size of the smallest batch that recently did not fit on the disk.
struct RecentDiskFull {
    bytes: usize,
    since: Instant,
}

impl Queue {
    fn new(jobs: mpsc::Receiver<SqliteJob>) -> Self {
        Self { jobs, next: None, disk_full: None }
    }

    /// Waits for the next job. If `patience` is set, waits for at most that time.
    fn job(&mut self, patience: Option<Duration>) -> Result<SqliteJob, RecvTimeoutError> {
        match (self.next.take(), patience) {
            (Some(job), _) => Ok(job),
            (None, None) => self.jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            (None, Some(time)) => self.jobs.recv_timeout(time),
        }
    }

    /// Returns whether no job is queued.
    fn is_empty(&mut self) -> bool {
        self.next = self.next.take().or_else(|| self.jobs.try_recv().ok());
        self.next.is_none()
    }

    /// Returns the next queued batch, or `None` if the queue is empty or another kind of job is
    /// next.
    fn batch(&mut self) -> Option<QueuedBatch> {
        loop {
            match self.next.take().or_else(|| self.jobs.try_recv().ok())? {
                SqliteJob::Commit(waiting) => {
                    if let Some(waiting) = self.admit(waiting) {
                        return Some(waiting);
                    }
                }
                other => {
                    self.next = Some(other);
                    return None;
                }
            }
        }
    }

    /// Returns the batch. If the batch is too large for the disk, returns `None` and sends
    /// [`StoreError::Full`] to its caller.
    fn admit(&self, waiting: QueuedBatch) -> Option<QueuedBatch> {
        if self.refuses(&waiting.batch) {
            // Sending fails only if the caller was cancelled.
            drop(waiting.reply.send(Err(StoreError::Full)));
            return None;
        }
        Some(waiting)
    }

    /// Returns whether to reject the batch, because a batch of its size or smaller recently did not
    /// fit on the disk. Another attempt would only add load. Batches that free space are never
    /// rejected.
    fn refuses(&self, batch: &SealedBatch) -> bool {
        batch.erases.is_empty()
            && self.disk_full_bytes().is_some_and(|bytes| weight(batch) >= bytes)
    }

    /// Returns the size in bytes of the smallest batch that recently did not fit.
    fn disk_full_bytes(&self) -> Option<usize> {
        let disk_full = self.disk_full.as_ref()?;
        let is_fresh = instant().saturating_duration_since(disk_full.since) < FULL;
        is_fresh.then_some(disk_full.bytes)
    }

    /// Updates the estimate of the available disk space with the result of a batch.
    fn learn(&mut self, batch: &SealedBatch, result: &Result<Receipt>) {
        let bytes = weight(batch);
        match result {
            // The failure of an erasing batch is ignored, because it writes more than its size.
            Err(StoreError::Full) if batch.erases.is_empty() => {
                if self.disk_full_bytes().is_none_or(|known| bytes < known) {
                    self.disk_full = Some(RecentDiskFull { bytes, since: instant() });
                }
            }
            Ok(receipt) if !receipt.repeated => {
                self.disk_full = self.disk_full.take().filter(|known| bytes < known.bytes);
            }
            Ok(_) | Err(_) => {}
        }
    }
}

/// The batches of one transaction. The group grows while its earlier batches are written.
struct BatchGroup<'q> {
    batches: Vec<QueuedBatch>,
    bytes: usize,
    queue: &'q mut Queue,
}

impl<'q> BatchGroup<'q> {
    fn new(first: QueuedBatch, queue: &'q mut Queue) -> Self {
        Self { bytes: weight(&first.batch), batches: vec![first], queue }
    }

    /// Returns the batch at index `place`. If the index is just past the end and the group has
    /// room, first adds another batch from the queue.
    fn get(&mut self, index: usize) -> Option<&SealedBatch> {
        let has_room = self.batches.len() < GROUP && self.bytes < MAX_GROUP_BYTES;
        if index == self.batches.len()
            && has_room
            && let Some(waiting) = self.queue.batch()
        {
            self.bytes += weight(&waiting.batch);
            self.batches.push(waiting);
        }
        self.batches.get(index).map(|waiting| &waiting.batch)
    }
}

impl WriterHandle {
    pub(super) fn start(
        db: Connection,
        path: &Path,
        options: &Options,
        name: Name,
        (waiters, recent): (Arc<Waiters>, Arc<RecentTurns>),
    ) -> Result<Self> {
        let (jobs, queue) = mpsc::channel();
        let mut queue = Queue::new(queue);
        let (path, chains) = (path.to_owned(), Chains::new(name));
        let (durability, patience) = (options.durability, options.patience);
        let permits = Arc::new(Semaphore::new(options.queue.max(1)));
        let thread = std::thread::Builder::new().name("throughline-writer".into());
        let thread = thread.spawn(move || {
            wait_for(patience);
            let mut writer = SqliteWriter {
                db: &db,
                hot: None,
                path,
                chains,
                series: None,
                durability,
                is_synchronous: true,
                unflushed: None,
                unsigned: None,
                waiters,
                recent,
                index_retry: None,
                last_group: 0,
            };
            writer.run(&mut queue);
        });
        let thread = thread.map_err(|error| invalid!("cannot start the writer thread: {error}"))?;
        Ok(Self { jobs, permits, thread: Mutex::new(Some(thread)) })
    }

    pub(super) async fn commit(&self, batch: SealedBatch) -> Result<Receipt> {
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let (reply, receipt) = oneshot::channel();
        let job = SqliteJob::Commit(QueuedBatch { batch, reply, permit });
        self.jobs.send(job).map_err(|_| StoreError::Closed)?;
        receipt.await.map_err(|_| StoreError::Closed)?
    }

    /// Sets the key for row MACs, and adds MACs and sums to the store if it has none.
    pub(super) fn protect(&self, protection: Protection) -> StoreFuture<'_, ()> {
        self.run(move |writer| {
            writer.act(|db, _| protect::protect(db, &protection))?;
            writer.chains.key = Some(protection.key);
            Ok(())
        })
    }

    /// Runs a closure on the writer thread and returns its result.
    pub(super) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut SqliteWriter<'_>) -> Result<T> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        let (reply, answer) = oneshot::channel();
        let job = SqliteJob::Act(Box::new(move |writer: &mut SqliteWriter<'_>| {
            // Sending fails only if the caller was cancelled.
            drop(reply.send(work(writer)));
        }));
        let sent = self.jobs.send(job).map_err(|_| StoreError::Closed);
        Box::pin(async move {
            sent?;
            answer.await.map_err(|_| StoreError::Closed)?
        })
    }

    pub(super) fn sign_with(&self, signer: Arc<Signer>) {
        let sign = move |writer: &mut SqliteWriter<'_>| {
            writer.series = Some(Series::new(signer, writer.chains.writer.clone()));
        };
        // Sending fails only if the thread has ended, and then there is nothing to sign.
        drop(self.jobs.send(SqliteJob::Act(Box::new(sign))));
    }

    pub(super) async fn close(&self) -> Result<()> {
        let (reply, closed) = oneshot::channel();
        if self.jobs.send(SqliteJob::Close(reply)).is_err() {
            return Ok(());
        }
        // If there is no reply, another caller closed the writer concurrently.
        let settled = closed.await.unwrap_or(Ok(()));
        self.permits.close();
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            let joined = tokio::task::spawn_blocking(move || thread.join()).await;
            joined.map_err(|_| StoreError::Closed)?.map_err(|_| StoreError::Closed)?;
        }
        settled
    }
}

/// The state of the writer thread.
pub(super) struct SqliteWriter<'db> {
    db: &'db Connection,
    /// The prepared statements; `None` until the first commit.
    hot: Option<Statements<'db>>,
    path: PathBuf,
    chains: Chains,
    series: Option<Series>,
    durability: Durability,
    /// Whether commits are synced to disk.
    is_synchronous: bool,
    /// Time of the first commit that is not yet synced to disk.
    unflushed: Option<Instant>,
    /// Time of the first commit that no manifest covers yet.
    unsigned: Option<Instant>,
    waiters: Arc<Waiters>,
    recent: Arc<RecentTurns>,
    /// Time of the last failed attempt to index turns.
    index_retry: Option<Instant>,
    /// Number of batches in the last group.
    last_group: usize,
}

impl SqliteWriter<'_> {
    fn run(&mut self, queue: &mut Queue) {
        loop {
            let patience = self.patience();
            if patience.is_some_and(|time| time.is_zero()) {
                self.settle(MAX_UNSIGNED);
            }
            match queue.job(patience) {
                Ok(SqliteJob::Commit(first)) => {
                    if let Some(first) = queue.admit(first) {
                        if self.durability == Durability::Relaxed && self.last_group > 1 {
                            std::thread::sleep(GROUP_WAIT);
                        }
                        Stage::Store.run(|| {
                            self.commit(BatchGroup::new(first, queue));
                            // Callers do not wait for the index while batches are queued, unless
                            // the index is far behind.
                            if queue.is_empty() || self.recent.is_overdue() {
                                self.index_turns();
                            }
                        });
                    }
                }
                Ok(SqliteJob::Act(act)) => act(self),
                Ok(SqliteJob::Close(reply)) => {
                    let settled = self.try_sign_and_flush(Duration::ZERO);
                    let settled = settled.map_err(|error| runtime_failure(error, &self.path));
                    // Truncate the WAL, which a closed file does not need. Active readers prevent
                    // this.
                    wait_for(Duration::ZERO);
                    let truncate = "PRAGMA wal_checkpoint(TRUNCATE)";
                    drop(self.db.query_row(truncate, [], |_| Ok(())));
                    reply.send(settled).ok();
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.settle(Duration::ZERO);
                    return;
                }
            }
        }
    }

    /// Returns how long the thread may wait for a job before it must flush or sign.
    fn patience(&self) -> Option<Duration> {
        let left = |since: Option<Instant>, time: Duration| {
            since.map(|since| time.saturating_sub(instant().saturating_duration_since(since)))
        };
        let flush = left(self.unflushed, MAX_UNFLUSHED);
        let sign = left(self.unsigned, MAX_UNSIGNED);
        flush.into_iter().chain(sign).min()
    }

    /// Commits the group in one transaction. If the transaction fails, each batch is retried alone,
    /// so that one failing batch does not affect the others.
    fn commit(&mut self, mut group: BatchGroup<'_>) {
        let results = self.transaction(&mut group);
        let BatchGroup { batches, queue, .. } = group;
        self.last_group = batches.len();
        match results {
            // Other errors, such as a locked or damaged file, would affect every batch.
            Err(StoreError::Full | StoreError::Database(_)) if batches.len() > 1 => {
                for waiting in batches {
                    // An earlier retry may have shown that batches of this size do not fit.
                    let Some(waiting) = queue.admit(waiting) else { continue };
                    // Mark the group as full, so that it takes no further batches.
                    let bytes = MAX_GROUP_BYTES;
                    let batches = vec![waiting];
                    let mut alone = BatchGroup { batches, bytes, queue: &mut *queue };
                    let results = self.transaction(&mut alone);
                    self.reply(alone.batches, results, queue);
                }
            }
            results => self.reply(batches, results, queue),
        }
    }

    /// Sends the results to the callers, and wakes the tasks that wait for the written logs.
    fn reply(
        &mut self,
        batches: Vec<QueuedBatch>,
        results: Result<Vec<Result<Receipt>>>,
        queue: &mut Queue,
    ) {
        let results = results.unwrap_or_else(|error| vec![Err(error); batches.len()]);
        for (QueuedBatch { batch, reply, permit }, result) in batches.into_iter().zip(results) {
            queue.learn(&batch, &result);
            if let Ok(receipt) = &result {
                self.waiters.wrote(&batch.tenant, receipt);
            }
            // Sending fails only if the caller was cancelled.
            drop(reply.send(result));
            drop(permit);
        }
    }

    /// Writes the group in one transaction. Rolls back on a database error.
    fn transaction(&mut self, batches: &mut BatchGroup<'_>) -> Result<Vec<Result<Receipt>>> {
        let outcome = self.try_transaction(batches);
        outcome.map_err(|error| {
            self.chains.roll_back();
            // Ignore errors, because the database may already have rolled back.
            drop(self.db.execute_batch("ROLLBACK"));
            runtime_failure(error, &self.path)
        })
    }

    fn try_transaction(
        &mut self,
        batches: &mut BatchGroup<'_>,
    ) -> rusqlite::Result<Vec<Result<Receipt>>> {
        self.set_synchronous(self.durability == Durability::Durable)?;
        let mut hot = self.hot.take().map_or_else(|| Statements::prepare(self.db), Ok)?;
        let outcome = self.write_group(&mut hot, batches);
        // Preparing the statements again would cost more than a small group, for example while
        // each group fails on a full disk.
        self.hot = Some(hot);
        outcome
    }

    fn write_group(
        &mut self,
        hot: &mut Statements<'_>,
        batches: &mut BatchGroup<'_>,
    ) -> rusqlite::Result<Vec<Result<Receipt>>> {
        hot.begin.execute([])?;
        let now = hot.now()?;
        self.chains.known.begin(hot)?;
        let mut results = Vec::new();
        while let Some(batch) = batches.get(results.len()) {
            results.push(match self.chains.apply(hot, batch, now) {
                Ok(receipt) => Ok(receipt),
                Err(CommitError::Rejected(error)) => Err(error),
                Err(CommitError::Failed(error)) => return Err(error),
            });
        }
        self.chains.write_heads(hot)?;
        let manifest = if self.chains.is_manifest_due(now) { self.sign(now)? } else { None };
        hot.commit.execute([])?;
        self.chains.committed();
        // The callers look up their turns as soon as they get their receipts.
        self.recent.publish(self.chains.captured.drain(..));
        if let Some(manifest) = manifest {
            self.signed(&manifest, now);
        }
        let is_unsigned = self.series.is_some() && self.chains.have_moved();
        self.unsigned = is_unsigned.then(|| self.unsigned.unwrap_or_else(instant));
        if self.durability == Durability::Relaxed {
            self.unflushed.get_or_insert_with(instant);
        }
        Ok(results)
    }

    /// Adds the keys of recent turns to the table `turn_keys`, once there are enough of them. A
    /// failed attempt is repeated later, because lookups also find keys that are not in the table.
    fn index_turns(&mut self) {
        let is_soon = |since| instant().saturating_duration_since(since) < INDEX_RETRY;
        if !self.recent.is_full() || self.index_retry.is_some_and(is_soon) {
            return;
        }
        let Some(key) = self.chains.key.clone() else { return };
        let indexed = self.in_transaction(|writer| turn_index::index_turns(writer.db, &key));
        self.index_retry = indexed.is_err().then(instant);
        if let Ok(watermark) = indexed {
            self.recent.remove_indexed(watermark);
        }
    }

    /// Signs the unsigned changes if the oldest is at least as old as `unsigned`, and syncs relaxed
    /// commits to disk.
    fn settle(&mut self, unsigned: Duration) {
        if self.try_sign_and_flush(unsigned).is_err() {
            // Retry after the same interval, at the next write, and on close.
            let now = instant();
            self.unflushed = self.unflushed.map(|_| now);
            self.unsigned = self.unsigned.map(|_| now);
        } else {
            reserve::ensure(&self.path);
        }
    }

    fn try_sign_and_flush(&mut self, unsigned: Duration) -> rusqlite::Result<()> {
        let is_due = |since| instant().saturating_duration_since(since) >= unsigned;
        let must_sign =
            self.series.is_some() && self.chains.have_moved() && self.unsigned.is_none_or(is_due);
        if !must_sign && self.unflushed.is_none() {
            return Ok(());
        }
        self.set_synchronous(true)?;
        let signed = self.in_transaction(|writer| {
            let now = now(writer.db)?;
            let manifest = if must_sign { writer.sign(now)? } else { None };
            if manifest.is_none() {
                // A synchronous commit also flushes all earlier commits.
                touch(writer.db)?;
            }
            Ok::<_, rusqlite::Error>(manifest.map(|manifest| (now, manifest)))
        })?;
        if let Some((now, manifest)) = signed {
            self.signed(&manifest, now);
            self.unsigned = None;
        }
        self.unflushed = None;
        Ok(())
    }

    /// Signs and stores a manifest of the changes since the last manifest. Does nothing if there
    /// are no changes.
    fn sign(&self, now: i64) -> rusqlite::Result<Option<Manifest>> {
        let (Some(series), Some(key)) = (&self.series, &self.chains.key) else { return Ok(None) };
        let (heads, mut rows) = self.chains.moved();
        if rows.is_empty() {
            return Ok(None);
        }
        rows.extend(tally::stored(self.db)?.and_then(|stored| RowState::of_store(&stored)));
        let manifest = series.next(now, heads, rows);
        write_manifest(self.db, key, &manifest)?;
        Ok(Some(manifest))
    }

    /// Advances the manifest series after `manifest` was stored.
    fn signed(&mut self, manifest: &Manifest, now: i64) {
        if let Some(series) = &mut self.series {
            series.wrote(manifest);
        }
        self.chains.signed(now);
    }

    /// Runs a closure on the writer's connection, in its own transaction.
    pub(super) fn act<T>(
        &mut self,
        act: impl FnOnce(&Connection, Option<&RowKey>) -> Result<T, CommitError>,
    ) -> Result<T> {
        let work = |writer: &mut Self| act(writer.db, writer.chains.key.as_ref());
        let ready = self.set_synchronous(true).map_err(CommitError::Failed);
        let outcome = ready.and_then(|()| self.in_transaction(work));
        // The closure may have changed logs that are cached.
        self.chains.known.clear();
        if outcome.is_ok() {
            // This commit also flushed all earlier commits.
            self.unflushed = None;
        }
        outcome.map_err(|stop| match stop {
            CommitError::Rejected(error) => error,
            CommitError::Failed(error) => runtime_failure(error, &self.path),
        })
    }

    fn in_transaction<T, E: From<rusqlite::Error>>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        self.db.execute_batch("BEGIN IMMEDIATE")?;
        let outcome = work(self).and_then(|value| {
            self.db.execute_batch("COMMIT")?;
            Ok(value)
        });
        if outcome.is_err() {
            // Ignore errors, because the database may already have rolled back.
            drop(self.db.execute_batch("ROLLBACK"));
        }
        outcome
    }

    fn set_synchronous(&mut self, full: bool) -> rusqlite::Result<()> {
        if self.is_synchronous == full {
            return Ok(());
        }
        self.db.pragma_update(None, "synchronous", if full { "FULL" } else { "NORMAL" })?;
        self.is_synchronous = full;
        Ok(())
    }
}

fn weight(batch: &SealedBatch) -> usize {
    let records = batch.appends.iter().flat_map(|append| &append.records);
    let blob = |record: &SealedRecord| record.blob.as_ref().map_or(0, |blob| blob.content.len());
    records.map(|record| record.content.len() + blob(record)).sum()
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod writer_tests;
