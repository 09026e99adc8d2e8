//! Events of a Run: numbered from 1, packed, and followed by whoever wants to.
//!
//! Token deltas are many and small. They are packed into records, and nobody waits for each of them: a pack is written when
//! it is large enough, when it is old enough, or with the next thing that is waited for.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use throughline_core::{
    Append, Batch, Content, Fence, LogId, Name, NewRecord, Receipt, Record, Store, StoreError,
    Tenant, Why, kind,
};
use tokio::sync::Mutex;

use crate::journal::Journal;

/// A pack is written when it has this many bytes.
const PACK: usize = 8 << 10;

/// A pack is written when it is this old.
const AGE: Duration = Duration::from_millis(50);

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

    fn record(self) -> NewRecord {
        let Self { bytes, events, about } = self;
        NewRecord { events, about, ..NewRecord::new(kind::EVENTS, bytes.freeze()) }
    }
}

/// Writes the events of one Run.
pub struct RunEvents {
    run: Arc<Run>,
    flushes: Mutex<tokio::task::JoinSet<()>>,
}

struct Run {
    journal: Journal,
    tenant: Tenant,
    log: LogId,
    fence: Option<Fence>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    pack: Pack,
    /// Whether somebody will come and write the pack when it is old.
    timed: bool,
    /// Why events were lost: told to the next who waits.
    failed: Option<StoreError>,
}

impl RunEvents {
    /// Writes to that log, which exists, by that right.
    pub fn new(journal: Journal, tenant: Tenant, log: LogId, fence: Option<Fence>) -> Self {
        let run = Run { journal, tenant, log, fence, waiting: Mutex::default() };
        Self { run: Arc::new(run), flushes: Mutex::default() }
    }

    /// Adds an event, and does not wait until it is written. `about` names the Item that it is a piece of: what is about
    /// different Items is packed apart, so that each can be forgotten.
    pub async fn push(&self, event: &[u8], about: Option<&Name>) {
        let mut waiting = self.run.waiting.lock().await;
        let mut full = None;
        if waiting.pack.events > 0 && waiting.pack.about.as_ref() != about {
            full = Some(std::mem::take(&mut waiting.pack));
        }
        waiting.pack.about = about.cloned();
        waiting.pack.push(event);
        let mut flushes = self.flushes.lock().await;
        while flushes.try_join_next().is_some() {}
        if let Some(pack) = full {
            self.run.write(&mut waiting, pack).await;
        }
        if waiting.pack.bytes.len() >= PACK {
            let pack = std::mem::take(&mut waiting.pack);
            self.run.write(&mut waiting, pack).await;
        } else if !waiting.timed {
            waiting.timed = true;
            let run = Arc::clone(&self.run);
            flushes.spawn(async move {
                tokio::time::sleep(AGE).await;
                let mut waiting = run.waiting.lock().await;
                waiting.timed = false;
                let pack = std::mem::take(&mut waiting.pack);
                run.write(&mut waiting, pack).await;
            });
        }
    }

    /// Writes what waits, and then this: all of it is durable when it returns.
    pub async fn commit(&self, mut batch: Batch) -> Result<Receipt, StoreError> {
        let mut waiting = self.run.waiting.lock().await;
        if let Some(failed) = waiting.failed.take() {
            return Err(failed);
        }
        let pack = std::mem::take(&mut waiting.pack);
        if pack.events > 0 {
            let place = batch.appends.iter_mut().find(|append| append.log == self.run.log);
            match place {
                Some(append) => append.records.insert(0, pack.record()),
                None => batch.appends.push(self.run.append(pack)),
            }
        }
        self.run.journal.commit(batch).await
    }

    /// Writes what waits.
    pub async fn flush(&self) -> Result<(), StoreError> {
        let mut waiting = self.run.waiting.lock().await;
        let pack = std::mem::take(&mut waiting.pack);
        self.run.write(&mut waiting, pack).await;
        waiting.failed.take().map_or(Ok(()), Err)
    }
}

impl Run {
    fn append(&self, pack: Pack) -> Append {
        let mut append = Append::to(self.log.0.to_string()).record(pack.record());
        append.fence = self.fence;
        append
    }

    async fn write(&self, waiting: &mut Waiting, pack: Pack) {
        if pack.events == 0 {
            return;
        }
        let batch = Batch::of(self.tenant.clone()).append(self.append(pack));
        if let Err(error) = self.journal.commit(batch).await {
            waiting.failed = Some(error);
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
