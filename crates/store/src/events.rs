//! Events of a Run: numbered from 1, packed, and followed by whoever wants to.
//!
//! Token deltas are many and small. They are packed into records, and nobody waits for each of them: a pack is written when
//! it is large enough, when it is old enough, or with the next thing that is waited for. Packs that are written together
//! have a name under which that happens once, so that they can be written again whenever it is not known whether they were.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use throughline_core::{
    Append, Batch, Content, Fence, LogId, Name, NewRecord, Receipt, Record, Store, StoreError,
    Tenant, Why, kind,
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

/// Packs events into the content of one record.
pub fn pack<'e>(events: impl IntoIterator<Item = &'e [u8]>) -> NewRecord {
    let mut packed = Pack::default();
    for event in events {
        packed.push(event);
    }
    packed.record()
}

/// The events of a record, each with its number. Where the content is no more, why.
pub fn unpack(record: &Record) -> Result<Vec<(u64, Bytes)>, Why> {
    let Some((first, last)) = record.events else { return Ok(Vec::new()) };
    match &record.content {
        Content::Here(bytes) => Ok((first..=last).zip(split(bytes)).collect()),
        Content::Gone(why) => Err(*why),
    }
}

/// The events of a pack.
pub(crate) fn split(packed: &Bytes) -> Vec<Bytes> {
    let mut bytes = packed.clone();
    let mut events = Vec::new();
    while let Some(length) = length(&mut bytes).filter(|length| *length <= bytes.len()) {
        events.push(bytes.split_to(length));
    }
    events
}

/// A length as seven bits per byte, the lowest first.
fn length(bytes: &mut Bytes) -> Option<usize> {
    let mut length = 0_usize;
    for shift in (0..usize::BITS).step_by(7) {
        if !bytes.has_remaining() {
            return None;
        }
        let byte = bytes.get_u8();
        length |= usize::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(length);
        }
    }
    None
}

#[derive(Default)]
struct Pack {
    bytes: BytesMut,
    events: u32,
    about: Option<Name>,
}

impl Pack {
    fn push(&mut self, event: &[u8]) {
        let mut length = event.len();
        while length > 0x7f {
            self.bytes.put_u8(u8::try_from(length & 0x7f).unwrap_or(0) | 0x80);
            length >>= 7;
        }
        self.bytes.put_u8(u8::try_from(length).unwrap_or(0));
        self.bytes.extend_from_slice(event);
        self.events += 1;
    }

    fn is_full(&self) -> bool {
        self.bytes.len() >= PACK
    }

    fn record(&self) -> NewRecord {
        let Self { bytes, events, about } = self;
        let content = bytes.clone().freeze();
        NewRecord { events: *events, about: about.clone(), ..NewRecord::new(kind::EVENTS, content) }
    }
}

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
        let grows = |pack: &Pack| pack.bytes.len() < PACK && pack.about.as_ref() == about;
        if !self.packs.back().is_some_and(grows) {
            self.packs.push_back(Pack { about: about.cloned(), ..Pack::default() });
        }
        if let Some(pack) = self.packs.back_mut() {
            pack.push(event);
        }
        self.bytes += event.len();
        (before > 0 && self.packs.len() > before) || self.packs.back().is_some_and(Pack::is_full)
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
        self.bytes = self.packs.iter().map(|pack| pack.bytes.len()).sum();
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

/// Follows a log: what is there, and then what is added, by whichever process.
pub struct Follow<'s> {
    store: &'s dyn Store,
    tenant: Tenant,
    log: LogId,
    last: u64,
}

impl<'s> Follow<'s> {
    /// Follows the records after that one.
    pub fn new(store: &'s dyn Store, tenant: Tenant, log: LogId, after: u64) -> Self {
        Self { store, tenant, log, last: after }
    }

    /// Follows the events after that one. The first record may hold earlier ones too.
    pub async fn events(
        store: &'s dyn Store,
        tenant: Tenant,
        log: LogId,
        starting_after: u64,
    ) -> Result<Self, StoreError> {
        let last = store.place_of_event(&tenant, &log, starting_after).await?;
        Ok(Self { store, tenant, log, last })
    }

    /// The next records; waits until there are some.
    pub async fn next(&mut self) -> Result<Vec<Record>, StoreError> {
        const PAGE: u32 = 256;
        loop {
            let records = self.store.read(&self.tenant, &self.log, self.last, PAGE).await?;
            if let Some(last) = records.last() {
                self.last = last.seq;
                return Ok(records);
            }
            self.store.wait(&self.tenant, &self.log, self.last).await?;
        }
    }
}
