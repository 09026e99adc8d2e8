//! Run events: they are numbered from 1 and packed into records, which readers can follow.

use std::future::Future;
use std::pin::Pin;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use throughline_json::Name;

use crate::fate::ElisionReason;
use crate::store::{
    Batch, Content, LogId, NewRecord, Receipt, Record, Store, StoreError, StoreFuture, Tenant, kind,
};

/// Writes one Run's events. Events are small and frequent, so they are packed and written in the
/// background.
pub trait EventWriter: Send + Sync {
    /// Queues an event for writing. Waits only if the queue is full. `about` is the id of the Item
    /// that the event belongs to. Events of different Items are packed separately, so that each
    /// Item's events can be erased.
    fn push<'a>(
        &'a self,
        event: &'a [u8],
        about: Option<&'a Name>,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

    /// Writes the queued events, then the batch. Returns when the events and the batch are durable.
    fn commit(&self, batch: Batch) -> StoreFuture<'_, Receipt>;

    /// Writes the queued events and returns when they are durable.
    fn flush(&self) -> StoreFuture<'_, ()>;
}

/// Packs events into one record; see [`unpack_events`].
pub fn pack_events<'e>(events: impl IntoIterator<Item = &'e [u8]>) -> NewRecord {
    let mut packed = Pack::default();
    for event in events {
        packed.push(event);
    }
    packed.record()
}

/// Returns the events of a record with their numbers. Fails with the erasure reason if the record
/// was erased.
pub fn unpack_events(record: &Record) -> Result<Vec<(u64, Bytes)>, ElisionReason> {
    let Some((first, last)) = record.events else { return Ok(Vec::new()) };
    match &record.content {
        Content::Here(bytes) => Ok((first..=last).zip(split_pack(bytes)).collect()),
        Content::Gone(why) => Err(*why),
    }
}

/// Splits packed bytes into events. A truncated last event is omitted.
pub fn split_pack(packed: &Bytes) -> Vec<Bytes> {
    let mut bytes = packed.clone();
    let mut events = Vec::new();
    while let Some(length) = read_length(&mut bytes).filter(|length| *length <= bytes.len()) {
        events.push(bytes.split_to(length));
    }
    events
}

/// Reads a LEB128 length: seven bits per byte, lowest first.
fn read_length(bytes: &mut Bytes) -> Option<usize> {
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

/// Events to be stored as one record, each preceded by its length.
#[derive(Debug, Default)]
pub struct Pack {
    bytes: BytesMut,
    events: u32,
    about: Option<Name>,
}

impl Pack {
    /// Creates an empty pack. `about` is the id of the Item that all its events belong to, if any.
    pub fn with_subject(about: Option<Name>) -> Self {
        Self { about, ..Self::default() }
    }

    /// Returns the id of the Item that the events belong to, if any.
    pub fn subject(&self) -> Option<&Name> {
        self.about.as_ref()
    }

    /// Returns the size of the packed events in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the pack has no events.
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// Appends an event, preceded by its length.
    pub fn push(&mut self, event: &[u8]) {
        let mut length = event.len();
        while length > 0x7f {
            self.bytes.put_u8(u8::try_from(length & 0x7f).unwrap_or(0) | 0x80);
            length >>= 7;
        }
        self.bytes.put_u8(u8::try_from(length).unwrap_or(0));
        self.bytes.extend_from_slice(event);
        self.events += 1;
    }

    /// Returns the record that stores the events.
    pub fn record(&self) -> NewRecord {
        let Self { bytes, events, about } = self;
        let content = bytes.clone().freeze();
        NewRecord { events: *events, about: about.clone(), ..NewRecord::new(kind::EVENTS, content) }
    }
}

/// Reads a log continuously: first the existing records, then new records from any process.
pub struct LogFollower<'s> {
    store: &'s dyn Store,
    tenant: Tenant,
    log: LogId,
    last: u64,
}

impl<'s> LogFollower<'s> {
    /// Creates a follower that starts after the sequence number `after`.
    pub fn new(store: &'s dyn Store, tenant: Tenant, log: LogId, after: u64) -> Self {
        Self { store, tenant, log, last: after }
    }

    /// Creates a follower that starts with the record containing the first event after
    /// `starting_after`. That record may also contain earlier events.
    pub async fn events(
        store: &'s dyn Store,
        tenant: Tenant,
        log: LogId,
        starting_after: u64,
    ) -> Result<Self, StoreError> {
        let last = store.seq_before_event(&tenant, &log, starting_after).await?;
        Ok(Self { store, tenant, log, last })
    }

    /// Returns the next records, in order. If there are none, waits until a record is written.
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
