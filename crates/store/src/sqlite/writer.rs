//! The one thread that writes. It commits whatever queued during the last fsync, and whatever comes while that is being
//! written: no timer, and no writer waits for another's batch to fill up.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use throughline_core::{Boxed, Name, Receipt, StoreError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::backend::{Protection, SealedBatch};
use crate::manifest::{Manifest, Series, Signer};
use crate::options::{Durability, Options};
use crate::row_mac::{RowKey, RowState};
use crate::sqlite::chains::{Chains, write_manifest};
use crate::sqlite::commit::Stop;
use crate::sqlite::hot::{Hot, now};
use crate::sqlite::keep::touch;
use crate::sqlite::reserve;
use crate::sqlite::schema::{failure, instant, wait_for};
use crate::sqlite::wait::Waiters;
use crate::sqlite::{rows, tally};

/// How many batches one transaction takes at most, so that the first need not wait for too many others.
const GROUP: usize = 256;
/// How many bytes one transaction takes, more or less.
const GROUP_BYTES: usize = 16 << 20;
/// How long a relaxed commit may stay in memory.
const RELAXED: Duration = Duration::from_millis(50);
/// How long what did not fit on the disk is not tried again.
const FULL: Duration = Duration::from_millis(100);
/// How long heads may move before a manifest is signed.
const UNSIGNED: Duration = Duration::from_secs(1);

/// Sends work to the thread.
pub(super) struct WriterHandle {
    jobs: mpsc::Sender<Job>,
    room: Arc<Semaphore>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

enum Job {
    Commit(Waiting),
    Act(Box<dyn FnOnce(&mut Writer<'_>) + Send>),
    Sign(Arc<Signer>),
    Close(Reply<()>),
}

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// A batch, and who waits for it.
struct Waiting {
    batch: SealedBatch,
    reply: Reply<Receipt>,
    room: OwnedSemaphorePermit,
}

/// The work that waits, in the order in which it came.
struct Queue {
    jobs: mpsc::Receiver<Job>,
    /// What was taken out and is not done yet.
    next: Option<Job>,
    no_room: Option<NoRoom>,
}

/// The smallest batch that lately did not fit on the disk.
struct NoRoom {
    bytes: usize,
    since: Instant,
}

impl Queue {
    fn new(jobs: mpsc::Receiver<Job>) -> Self {
        Self { jobs, next: None, no_room: None }
    }

    /// The next job, once there is one. Without a time it waits for as long as it takes.
    fn job(&mut self, patience: Option<Duration>) -> Result<Job, RecvTimeoutError> {
        match (self.next.take(), patience) {
            (Some(job), _) => Ok(job),
            (None, None) => self.jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
            (None, Some(time)) => self.jobs.recv_timeout(time),
        }
    }

    /// The batch that is waiting, if nothing else comes before it.
    fn batch(&mut self) -> Option<Waiting> {
        loop {
            match self.next.take().or_else(|| self.jobs.try_recv().ok())? {
                Job::Commit(waiting) => {
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

    /// Lets a batch in, unless it is refused.
    fn admit(&self, waiting: Waiting) -> Option<Waiting> {
        if self.refuses(&waiting.batch) {
            // Whoever asked may have gone meanwhile.
            drop(waiting.reply.send(Err(StoreError::Full)));
            return None;
        }
        Some(waiting)
    }

    /// Whether a batch that is no larger did not fit a moment ago: trying would only keep a full disk busy. What makes room is
    /// always tried.
    fn refuses(&self, batch: &SealedBatch) -> bool {
        batch.erases.is_empty() && self.no_room().is_some_and(|bytes| weight(batch) >= bytes)
    }

    /// How many bytes did not fit a moment ago.
    fn no_room(&self) -> Option<usize> {
        let no_room = self.no_room.as_ref()?;
        let is_fresh = instant().saturating_duration_since(no_room.since) < FULL;
        is_fresh.then_some(no_room.bytes)
    }

    /// Learns from what became of a batch how much room there is.
    fn learn(&mut self, batch: &SealedBatch, result: &Result<Receipt, StoreError>) {
        let bytes = weight(batch);
        match result {
            // What destroys something writes more than it weighs.
            Err(StoreError::Full) if batch.erases.is_empty() => {
                if self.no_room().is_none_or(|known| bytes < known) {
                    self.no_room = Some(NoRoom { bytes, since: instant() });
                }
            }
            Ok(receipt) if !receipt.repeated => {
                self.no_room = self.no_room.take().filter(|known| bytes < known.bytes);
            }
            Ok(_) | Err(_) => {}
        }
    }
}

/// The batches of one transaction.
trait Batches {
    /// The batch at that place, if there is one.
    fn get(&mut self, place: usize) -> Option<&SealedBatch>;
}

impl Batches for &SealedBatch {
    fn get(&mut self, place: usize) -> Option<&SealedBatch> {
        (place == 0).then_some(*self)
    }
}

/// Batches of many callers. It takes in whatever comes while the others are being written.
struct Group<'q> {
    batches: Vec<Waiting>,
    bytes: usize,
    queue: &'q mut Queue,
}

impl<'q> Group<'q> {
    fn of(first: Waiting, queue: &'q mut Queue) -> Self {
        Self { bytes: weight(&first.batch), batches: vec![first], queue }
    }
}

impl Batches for Group<'_> {
    fn get(&mut self, place: usize) -> Option<&SealedBatch> {
        let has_room = self.batches.len() < GROUP && self.bytes < GROUP_BYTES;
        if place == self.batches.len()
            && has_room
            && let Some(waiting) = self.queue.batch()
        {
            self.bytes += weight(&waiting.batch);
            self.batches.push(waiting);
        }
        self.batches.get(place).map(|waiting| &waiting.batch)
    }
}

impl WriterHandle {
    pub(super) fn start(
        db: Connection,
        path: &Path,
        options: &Options,
        name: Name,
        waiters: Arc<Waiters>,
    ) -> Result<Self, StoreError> {
        let (jobs, queue) = mpsc::channel();
        let mut queue = Queue::new(queue);
        let (path, chains) = (path.to_owned(), Chains::new(name));
        let (durability, patience) = (options.durability, options.patience);
        let thread = std::thread::Builder::new().name("throughline-writer".into());
        let thread = thread.spawn(move || {
            wait_for(patience);
            let mut writer = Writer {
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
            };
            writer.run(&mut queue);
        });
        let thread = thread.map_err(|error| {
            StoreError::invalid(format!("the system has no thread for the writer: {error}"))
        })?;
        let room = Arc::new(Semaphore::new(options.queue.max(1)));
        Ok(Self { jobs, room, thread: Mutex::new(Some(thread)) })
    }

    pub(super) async fn commit(&self, batch: SealedBatch) -> Result<Receipt, StoreError> {
        let room = self.room.clone().acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let (reply, receipt) = oneshot::channel();
        self.jobs
            .send(Job::Commit(Waiting { batch, reply, room }))
            .map_err(|_| StoreError::Closed)?;
        receipt.await.map_err(|_| StoreError::Closed)?
    }

    /// Gives the writer the key of row MACs, and the store its sums where it has none.
    pub(super) fn protect(&self, protection: Protection) -> Boxed<'_, ()> {
        self.run(move |writer| {
            writer.act(|db, _| rows::protect(db, &protection))?;
            writer.chains.key = Some(protection.key);
            Ok(())
        })
    }

    /// Does something on the writer's connection, in a transaction of its own.
    pub(super) fn act<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Connection, Option<&RowKey>) -> Result<T, Stop> + Send + 'static,
    ) -> Boxed<'_, T> {
        self.run(move |writer| writer.act(act))
    }

    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Writer<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Boxed<'_, T> {
        let (reply, answer) = oneshot::channel();
        let job = Job::Act(Box::new(move |writer: &mut Writer<'_>| {
            // Whoever asked may have gone meanwhile.
            drop(reply.send(work(writer)));
        }));
        let sent = self.jobs.send(job).map_err(|_| StoreError::Closed);
        Box::pin(async move {
            sent?;
            answer.await.map_err(|_| StoreError::Closed)?
        })
    }

    pub(super) fn sign_with(&self, signer: Arc<Signer>) {
        // A thread that has ended signs nothing.
        drop(self.jobs.send(Job::Sign(signer)));
    }

    pub(super) async fn close(&self) -> Result<(), StoreError> {
        let (reply, closed) = oneshot::channel();
        if self.jobs.send(Job::Close(reply)).is_err() {
            return Ok(());
        }
        // Whoever is not answered came while somebody else closed it.
        let settled = closed.await.unwrap_or(Ok(()));
        self.room.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let joined = tokio::task::spawn_blocking(move || thread.join()).await;
            joined.map_err(|_| StoreError::Closed)?.map_err(|_| StoreError::Closed)?;
        }
        settled
    }
}

/// What the thread has.
pub(super) struct Writer<'db> {
    db: &'db Connection,
    /// From its first commit on.
    hot: Option<Hot<'db>>,
    path: PathBuf,
    chains: Chains,
    series: Option<Series>,
    durability: Durability,
    /// Whether a commit is on the disk when it is done.
    is_synchronous: bool,
    /// Since when there is something that a loss of power would take.
    unflushed: Option<Instant>,
    /// Since when there is something that no manifest names.
    unsigned: Option<Instant>,
    waiters: Arc<Waiters>,
}

impl Writer<'_> {
    fn run(&mut self, queue: &mut Queue) {
        loop {
            let patience = self.patience();
            if patience.is_some_and(|time| time.is_zero()) {
                self.settle(UNSIGNED);
            }
            match queue.job(patience) {
                Ok(Job::Commit(first)) => {
                    if let Some(first) = queue.admit(first) {
                        self.commit(Group::of(first, queue));
                    }
                }
                Ok(Job::Act(act)) => act(self),
                Ok(Job::Sign(signer)) => {
                    self.series = Some(Series::new(signer, self.chains.writer.clone()));
                }
                Ok(Job::Close(reply)) => {
                    let settled = self.try_settle(Duration::ZERO);
                    let settled = settled.map_err(|error| failure(error, &self.path));
                    // A closed file needs no WAL beside it; whoever still reads keeps it.
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

    /// How long the thread may wait for work before it has work of its own.
    fn patience(&self) -> Option<Duration> {
        let left = |since: Option<Instant>, time: Duration| {
            since.map(|since| time.saturating_sub(instant().saturating_duration_since(since)))
        };
        let flush = left(self.unflushed, RELAXED);
        let sign = left(self.unsigned, UNSIGNED);
        flush.into_iter().chain(sign).min()
    }

    /// Commits the group in one transaction. If the database fails, nothing of it was written, and each batch is
    /// tried alone: so one that cannot be written does not take the others with it.
    fn commit(&mut self, mut group: Group<'_>) {
        let results = self.transaction(&mut group);
        let Group { batches, queue, .. } = group;
        // A file that is locked or damaged is so for all of them.
        let is_one_batchs = matches!(results, Err(StoreError::Full | StoreError::Database(_)));
        let results = match results {
            Err(_) if is_one_batchs && batches.len() > 1 => {
                batches.iter().map(|Waiting { batch, .. }| self.alone(batch, queue)).collect()
            }
            results => {
                let results = results.unwrap_or_else(|error| vec![Err(error); batches.len()]);
                for (Waiting { batch, .. }, result) in batches.iter().zip(&results) {
                    queue.learn(batch, result);
                }
                results
            }
        };
        for (Waiting { batch, reply, room }, result) in batches.into_iter().zip(results) {
            let has_written = matches!(&result, Ok(receipt) if !receipt.repeated);
            // Whoever asked may have gone meanwhile.
            drop(reply.send(result));
            drop(room);
            if has_written {
                let logs = batch.appends.iter().map(|append| &append.log);
                self.waiters.wake(&batch.tenant, logs);
            }
        }
    }

    /// Commits a batch in a transaction of its own, unless one that is no larger did not fit a moment ago.
    fn alone(&mut self, batch: &SealedBatch, queue: &mut Queue) -> Result<Receipt, StoreError> {
        if queue.refuses(batch) {
            return Err(StoreError::Full);
        }
        let done = self.transaction(&mut &*batch);
        let result = done.and_then(|mut done| done.pop().unwrap_or(Err(StoreError::Closed)));
        queue.learn(batch, &result);
        result
    }

    /// Writes one batch after another, as long as there is a next one.
    fn transaction(
        &mut self,
        batches: &mut impl Batches,
    ) -> Result<Vec<Result<Receipt, StoreError>>, StoreError> {
        let outcome = self.try_transaction(batches);
        outcome.map_err(|error| {
            self.chains.roll_back();
            // Where the database gave up, it may have rolled back already.
            drop(self.db.execute_batch("ROLLBACK"));
            failure(error, &self.path)
        })
    }

    fn try_transaction(
        &mut self,
        batches: &mut impl Batches,
    ) -> Result<Vec<Result<Receipt, StoreError>>, rusqlite::Error> {
        self.set_synchronous(self.durability == Durability::Durable)?;
        let hot = match &mut self.hot {
            Some(hot) => hot,
            none => none.insert(Hot::of(self.db)?),
        };
        hot.begin.execute([])?;
        let now = hot.now()?;
        self.chains.known.begin(hot)?;
        let mut results = Vec::new();
        while let Some(batch) = batches.get(results.len()) {
            results.push(match self.chains.apply(hot, batch, now) {
                Ok(receipt) => Ok(receipt),
                Err(Stop::Rejected(error)) => Err(error),
                Err(Stop::Failed(error)) => return Err(error),
            });
        }
        let key = self.chains.key.clone();
        if let Some(key) = &key {
            self.chains.write_heads(hot, key)?;
        }
        let manifest = match (&self.series, &key) {
            (Some(series), Some(key)) if self.chains.is_manifest_due(now) => {
                sign(self.db, key, series, &self.chains, now)?
            }
            (_, _) => None,
        };
        hot.commit.execute([])?;
        self.chains.committed();
        if let (Some(manifest), Some(series)) = (manifest, &mut self.series) {
            series.wrote(&manifest);
            self.chains.signed(now);
        }
        let is_unsigned = self.series.is_some() && self.chains.have_moved();
        self.unsigned = is_unsigned.then(|| self.unsigned.unwrap_or_else(instant));
        if self.durability == Durability::Relaxed {
            self.unflushed.get_or_insert_with(instant);
        }
        Ok(results)
    }

    /// Signs what was not signed for so long, and flushes what was not flushed.
    fn settle(&mut self, unsigned: Duration) {
        if self.try_settle(unsigned).is_err() {
            // It is tried again after as long as before, at the next write, and at the end.
            let now = instant();
            self.unflushed = self.unflushed.map(|_| now);
            self.unsigned = self.unsigned.map(|_| now);
        } else {
            reserve::ensure(&self.path);
        }
    }

    fn try_settle(&mut self, unsigned: Duration) -> Result<(), rusqlite::Error> {
        let is_due = |since| instant().saturating_duration_since(since) >= unsigned;
        let wanted =
            self.series.is_some() && self.chains.have_moved() && self.unsigned.is_none_or(is_due);
        if !wanted && self.unflushed.is_none() {
            return Ok(());
        }
        self.set_synchronous(true)?;
        let signed = self.in_transaction_or(
            |error| error,
            |writer| {
                let now = now(writer.db)?;
                let (series, key) = (writer.series.as_ref(), writer.chains.key.as_ref());
                let (Some(series), Some(key), true) = (series, key, wanted) else {
                    // Any commit takes with it what earlier ones left in memory.
                    touch(writer.db)?;
                    return Ok(None);
                };
                let manifest = sign(writer.db, key, series, &writer.chains, now)?;
                Ok(manifest.map(|manifest| (now, manifest)))
            },
        )?;
        // What a manifest says counts once it is kept.
        if let (Some((now, manifest)), Some(series)) = (signed, &mut self.series) {
            series.wrote(&manifest);
            self.chains.signed(now);
            self.unsigned = None;
        }
        self.unflushed = None;
        Ok(())
    }

    fn act<T>(
        &mut self,
        act: impl FnOnce(&Connection, Option<&RowKey>) -> Result<T, Stop>,
    ) -> Result<T, StoreError> {
        let work = |writer: &mut Self| act(writer.db, writer.chains.key.as_ref());
        let done = self
            .set_synchronous(true)
            .map_err(Stop::Failed)
            .and_then(|()| self.in_transaction_or(Stop::Failed, work));
        // It may have changed whatever is known of the logs.
        self.chains.known.clear();
        if done.is_ok() {
            // It took with it what earlier commits left in memory.
            self.unflushed = None;
        }
        done.map_err(|stop| match stop {
            Stop::Rejected(error) => error,
            Stop::Failed(error) => failure(error, &self.path),
        })
    }

    fn in_transaction_or<T, E>(
        &mut self,
        wrap: impl Fn(rusqlite::Error) -> E,
        work: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        self.db.execute_batch("BEGIN IMMEDIATE").map_err(&wrap)?;
        let done = work(self)
            .and_then(|done| self.db.execute_batch("COMMIT").map_err(&wrap).map(|()| done));
        if done.is_err() {
            // Where the database gave up, it may have rolled back already.
            drop(self.db.execute_batch("ROLLBACK"));
        }
        done
    }

    fn set_synchronous(&mut self, full: bool) -> Result<(), rusqlite::Error> {
        if self.is_synchronous == full {
            return Ok(());
        }
        self.db.pragma_update(None, "synchronous", if full { "FULL" } else { "NORMAL" })?;
        self.is_synchronous = full;
        Ok(())
    }
}

/// Signs and writes a manifest of what moved, if anything did.
fn sign(
    db: &Connection,
    key: &RowKey,
    series: &Series,
    chains: &Chains,
    now: i64,
) -> Result<Option<Manifest>, rusqlite::Error> {
    let (heads, mut rows) = chains.moved();
    if rows.is_empty() {
        return Ok(None);
    }
    rows.extend(tally::stored(db)?.and_then(|stored| RowState::of_store(&stored)));
    let manifest = series.next(now, heads, rows);
    write_manifest(db, key, &manifest)?;
    Ok(Some(manifest))
}

fn weight(batch: &SealedBatch) -> usize {
    let records = batch.appends.iter().flat_map(|append| &append.records);
    records
        .map(|record| {
            record.content.len() + record.blob.as_ref().map_or(0, |blob| blob.content.len())
        })
        .sum()
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod writer_tests;
