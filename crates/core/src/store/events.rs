//! Events of a Run: numbered from 1, packed into records, and followed by whoever wants to.

use std::future::Future;
use std::pin::Pin;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::fate::Why;
use crate::name::Name;
use crate::store::{
    Batch, Boxed, Content, LogId, NewRecord, Receipt, Record, Store, StoreError, Tenant, kind,
};

/// Writes the events of one Run: many and small, packed, and not waited for one by one.
pub trait EventWriter: Send + Sync {
    /// Adds an event, and does not wait until it is written, unless very many are still to be written. `about` names the
    /// Item that it is a piece of: what is about different Items is packed apart, so that each can be forgotten.
    fn push<'a>(
        &'a self,
        event: &'a [u8],
        about: Option<&'a Name>,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

    /// Writes what waits, and then this: all of it is durable when it returns.
    fn commit(&self, batch: Batch) -> Boxed<'_, Receipt>;

    /// Writes what waits.
    fn flush(&self) -> Boxed<'_, ()>;
}

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
pub fn split(packed: &Bytes) -> Vec<Bytes> {
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

/// Events that become one record.
#[derive(Debug, Default)]
pub struct Pack {
    bytes: BytesMut,
    events: u32,
    about: Option<Name>,
}

impl Pack {
    /// Events about that Item, or about none.
    pub fn about(about: Option<Name>) -> Self {
        Self { about, ..Self::default() }
    }

    /// What its events are about.
    pub fn is_about(&self) -> Option<&Name> {
        self.about.as_ref()
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has no event.
    pub fn is_empty(&self) -> bool {
        self.events == 0
    }

    /// Adds an event.
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

    /// The record that keeps them.
    pub fn record(&self) -> NewRecord {
        let Self { bytes, events, about } = self;
        let content = bytes.clone().freeze();
        NewRecord { events: *events, about: about.clone(), ..NewRecord::new(kind::EVENTS, content) }
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
