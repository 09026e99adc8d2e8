//! Events of a Run: numbered from 1, packed, and followed by whoever wants to.
//!
//! Token deltas are many and small. They are packed into records, and nobody waits for each of them: a pack is written when
//! it is large enough, when it is old enough, or with the next thing that is waited for. Packs that are written together
//! have a name under which that happens once, so that they can be written again whenever it is not known whether they were.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use throughline_core::{
    Append, Batch, Boxed, EventWriter, Fence, LogId, Name, NewRecord, Pack, Receipt, Store,
    StoreError, Tenant,
};
use tokio::task::JoinSet;

use crate::cipher;
use crate::journal::Journal;
use crate::manifest::hex;

/// A pack is written when it has this many bytes.
const PACK: usize = 8 << 10;

/// A pack is written when it is this old.
const AGE: Duration = Duration::from_millis(50);

/// Whoever adds an event waits for the store while so many bytes are still to be written.
const MUCH: usize = 1 << 20;

/// Writes the events of one Run.
pub struct RunEvents {
    run: Arc<Run>,
    flushes: Mutex<JoinSet<()>>,
}

struct Run {
    journal: Journal,
    tenant: Tenant,
    log: LogId,
    fence: Option<Fence>,
    waiting: Mutex<Waiting>,
    /// Whoever writes holds it, so that everything is written in order.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Waiting {
    /// What somebody began to write, and perhaps did: it is written again under the same name until it is known.
    begun: Option<Group>,
    /// In order, after what was begun; the last one still grows.
    packs: VecDeque<Pack>,
    /// How many bytes all of them have.
    bytes: usize,
    /// Whether somebody will come and write them when they are old.
    timed: bool,
    /// Why they could not be written: told to the next who waits.
    failed: Option<StoreError>,
}

/// Packs that are written together, and once.
#[derive(Clone)]
struct Group {
    name: Name,
    records: Vec<NewRecord>,
}

impl Waiting {
    /// Adds an event; whether a pack is full.
    fn push(&mut self, event: &[u8], about: Option<&Name>) -> bool {
        let before = self.packs.len();
        let grows = |pack: &Pack| pack.len() < PACK && pack.is_about() == about;
        if !self.packs.back().is_some_and(grows) {
            self.packs.push_back(Pack::about(about.cloned()));
        }
        if let Some(pack) = self.packs.back_mut() {
            pack.push(event);
        }
        self.bytes += event.len();
        (before > 0 && self.packs.len() > before)
            || self.packs.back().is_some_and(|pack| pack.len() >= PACK)
    }

    /// What is to be written next. It stays here until it is written, whatever becomes of whoever writes it.
    fn begin(&mut self) -> Result<Option<Group>, StoreError> {
        if self.begun.is_none() && !self.packs.is_empty() {
            let name = Name::from(format!("events {}", hex(&cipher::random::<16>()?)));
            let records = std::mem::take(&mut self.packs).iter().map(Pack::record).collect();
            self.begun = Some(Group { name, records });
        }
        Ok(self.begun.clone())
    }

    /// What was begun is written.
    fn wrote(&mut self) {
        self.begun = None;
        self.bytes = self.packs.iter().map(Pack::len).sum();
    }
}

impl RunEvents {
    /// Writes to that log, which exists, by that right.
    pub fn new(journal: Journal, tenant: Tenant, log: LogId, fence: Option<Fence>) -> Self {
        let (waiting, turn) = (Mutex::default(), tokio::sync::Mutex::default());
        let run = Run { journal, tenant, log, fence, waiting, turn };
        Self { run: Arc::new(run), flushes: Mutex::default() }
    }

    /// Adds an event, and does not wait until it is written, unless very many are still to be written. `about` names the
    /// Item that it is a piece of: what is about different Items is packed apart, so that each can be forgotten.
    pub async fn push(&self, event: &[u8], about: Option<&Name>) {
        let (full, much) = {
            let mut waiting = lock(&self.run.waiting);
            let full = waiting.push(event, about);
            let starts = !full && !std::mem::replace(&mut waiting.timed, true);
            (full.then_some(Duration::ZERO).or(starts.then_some(AGE)), waiting.bytes > MUCH)
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
            // Whoever goes on while nothing can be written is slowed down, so that little piles up.
            let fails = lock(&self.run.waiting).failed.is_some();
            if fails {
                tokio::time::sleep(AGE).await;
            }
        }
    }

    /// Writes what waits, and then this: all of it is durable when it returns. If this cannot be written, what waits is
    /// written later. Nothing that waits is lost or written twice if the caller does not wait for the answer.
    pub async fn commit(&self, mut batch: Batch) -> Result<Receipt, StoreError> {
        let _turn = self.run.turn.lock().await;
        if let Some(failed) = lock(&self.run.waiting).failed.take() {
            return Err(failed);
        }
        // A batch with names of its own keeps those; and what was begun is written as it was.
        let begun = lock(&self.run.waiting).begun.is_some();
        if begun || !batch.once.is_empty() {
            self.run.write_all().await?;
        }
        let asked: Vec<u64> = batch.appends.iter().map(records_of).collect();
        let group = if batch.once.is_empty() { lock(&self.run.waiting).begin()? } else { None };
        if let Some(Group { name, records }) = &group {
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
        // The packs are nothing that the caller asked for.
        receipt.written.truncate(asked.len());
        if !receipt.repeated {
            for (written, records) in receipt.written.iter_mut().zip(asked) {
                written.first = (written.last + 1).saturating_sub(records);
            }
        }
        Ok(receipt)
    }

    /// Writes what waits.
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.run.write().await;
        lock(&self.run.waiting).failed.take().map_or(Ok(()), Err)
    }

    /// Writes what waits, and ends.
    pub async fn close(self) -> Result<(), StoreError> {
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

    fn commit(&self, batch: Batch) -> Boxed<'_, Receipt> {
        Box::pin(RunEvents::commit(self, batch))
    }

    fn flush(&self) -> Boxed<'_, ()> {
        Box::pin(RunEvents::flush(self))
    }
}

impl Drop for RunEvents {
    /// Whoever leaves without a word leaves the rest to be written.
    fn drop(&mut self) {
        lock(&self.flushes).detach_all();
        let waits = {
            let waiting = lock(&self.run.waiting);
            waiting.begun.is_some() || !waiting.packs.is_empty()
        };
        if let (true, Ok(runtime)) = (waits, tokio::runtime::Handle::try_current()) {
            let run = Arc::clone(&self.run);
            runtime.spawn(async move { run.write().await });
        }
    }
}

/// How many records an append adds.
fn records_of(append: &Append) -> u64 {
    let records = u64::try_from(append.records.len()).unwrap_or(u64::MAX);
    records + u64::from(append.rewind_to.is_some())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Run {
    fn append(&self, records: Vec<NewRecord>) -> Append {
        Append { fence: self.fence, records, ..Append::to(self.log.clone()) }
    }

    /// Writes what waits. If it cannot be written it waits on, and the next who waits is told.
    async fn write(&self) {
        let _turn = self.turn.lock().await;
        // What could not be written and now is needs no telling.
        let failed = self.write_all().await.err();
        lock(&self.waiting).failed = failed;
    }

    /// Writes what was begun, and then what waits. Whoever calls it has the turn.
    async fn write_all(&self) -> Result<(), StoreError> {
        let begun = lock(&self.waiting).begun.is_some();
        for _ in 0..=u32::from(begun) {
            let group = lock(&self.waiting).begin()?;
            let Some(Group { name, records }) = group else { break };
            let batch = Batch::of(self.tenant.clone()).append(self.append(records)).once(name);
            self.journal.commit(batch).await?;
            lock(&self.waiting).wrote();
        }
        Ok(())
    }
}
