//! Events of a Run: numbered from 1, packed, and followed by whoever wants to.
//!
//! Token deltas are many and small. They are packed into records, and nobody waits for each of them: a pack is written when
//! it is large enough, when it is old enough, or with the next thing that is waited for.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use throughline_core::{
    Append, Batch, Content, Fence, LogId, Name, NewRecord, Receipt, Record, Store, StoreError,
    Tenant, Why, kind,
};
use tokio::task::JoinSet;

use crate::journal::Journal;

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
    /// In order; the last one still grows.
    packs: VecDeque<Pack>,
    /// How many bytes they have.
    bytes: usize,
    /// Whether somebody will come and write them when they are old.
    timed: bool,
    /// Why they could not be written: told to the next who waits.
    failed: Option<StoreError>,
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

    fn take(&mut self) -> VecDeque<Pack> {
        self.bytes = 0;
        std::mem::take(&mut self.packs)
    }

    /// Puts back what could not be written, before what came meanwhile.
    fn put_back(&mut self, mut packs: VecDeque<Pack>) {
        self.bytes += packs.iter().map(|pack| pack.bytes.len()).sum::<usize>();
        packs.append(&mut self.packs);
        self.packs = packs;
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
        }
    }

    /// Writes what waits, and then this: all of it is durable when it returns. If this cannot be written, what waits is
    /// written later.
    pub async fn commit(&self, mut batch: Batch) -> Result<Receipt, StoreError> {
        let _turn = self.run.turn.lock().await;
        let packs = {
            let mut waiting = lock(&self.run.waiting);
            if let Some(failed) = waiting.failed.take() {
                return Err(failed);
            }
            waiting.take()
        };
        let asked: Vec<u64> = batch.appends.iter().map(records_of).collect();
        let place = batch.appends.iter_mut().find(|append| append.log == self.run.log);
        match place {
            _ if packs.is_empty() => {}
            Some(append) => {
                append.records.splice(0..0, packs.iter().map(Pack::record));
            }
            None => batch.appends.push(self.run.append(&packs)),
        }
        let outcome = self.run.journal.commit(batch).await;
        if outcome.as_ref().map_or(true, |receipt| receipt.repeated) {
            lock(&self.run.waiting).put_back(packs);
        }
        outcome.map(|mut receipt| {
            // The packs are nothing that the caller asked for.
            receipt.written.truncate(asked.len());
            for (written, records) in receipt.written.iter_mut().zip(asked) {
                written.first = (written.last + 1).saturating_sub(records);
            }
            receipt
        })
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

/// How many records an append adds.
fn records_of(append: &Append) -> u64 {
    let records = u64::try_from(append.records.len()).unwrap_or(u64::MAX);
    records + u64::from(append.rewind_to.is_some())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Run {
    fn append(&self, packs: &VecDeque<Pack>) -> Append {
        let mut append = Append::to(self.log.clone());
        append.records = packs.iter().map(Pack::record).collect();
        append.fence = self.fence;
        append
    }

    /// Writes what waits. If it cannot be written it waits on, and the next who waits is told.
    async fn write(&self) {
        let _turn = self.turn.lock().await;
        let packs = lock(&self.waiting).take();
        if packs.is_empty() {
            return;
        }
        let batch = Batch::of(self.tenant.clone()).append(self.append(&packs));
        if let Err(error) = self.journal.commit(batch).await {
            let mut waiting = lock(&self.waiting);
            waiting.failed = Some(error);
            waiting.put_back(packs);
        }
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
