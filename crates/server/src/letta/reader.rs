//! The Items of a run, as its events name them.

use std::collections::VecDeque;

use jiff::Timestamp;
use throughline_core::{Body, Item, LogId, Record, Store, StoreError, Tenant, kind, restore_items};

/// How many records are read at a time.
const PAGE: u32 = 128;

/// An Item, with its number in the Thread and the time at which it was kept.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) item: Item,
    pub(crate) seq: u64,
    pub(crate) at: Timestamp,
}

/// Reads a Thread onwards, and gives each Item when it is asked for.
pub(crate) struct Reader<'s> {
    store: &'s dyn Store,
    tenant: Tenant,
    thread: LogId,
    last: u64,
    /// What was read, and not asked for yet.
    waiting: VecDeque<Seen>,
}

impl<'s> Reader<'s> {
    pub(crate) fn new(store: &'s dyn Store, tenant: Tenant, thread: LogId, after: u64) -> Self {
        Self { store, tenant, thread, last: after, waiting: VecDeque::new() }
    }

    /// The next Item of which that is true. Those before it stay.
    pub(crate) async fn next(
        &mut self,
        is_it: impl Fn(&Item) -> bool,
    ) -> Result<Option<Seen>, StoreError> {
        let mut looked = 0;
        loop {
            let found = self.waiting.iter().skip(looked).position(|seen| is_it(&seen.item));
            if let Some(found) = found {
                return Ok(self.waiting.remove(looked + found));
            }
            looked = self.waiting.len();
            if !self.read_on().await? {
                return Ok(None);
            }
        }
    }

    async fn read_on(&mut self) -> Result<bool, StoreError> {
        let records = self.store.read(&self.tenant, &self.thread, self.last, PAGE).await?;
        let Some(last) = records.last() else { return Ok(false) };
        self.last = last.seq;
        self.waiting.extend(seen(&records)?);
        Ok(true)
    }
}

/// The Items of these records. What was forgotten is not among them.
pub(crate) fn seen(records: &[Record]) -> Result<Vec<Seen>, StoreError> {
    let records = || records.iter().filter(|record| &*record.kind == kind::ITEM);
    let items = restore_items(records().map(|record| record.content.bytes().cloned()));
    let items = items.map_err(|error| StoreError::Corrupt(error.to_string().into()))?;
    let there = records().filter(|record| record.content.bytes().is_some());
    Ok(there
        .zip(items)
        .map(|(record, item)| Seen { item, seq: record.seq, at: record.at })
        .collect())
}

/// Whether an Item answers that call.
pub(crate) fn answers(item: &Item, call: &str) -> bool {
    matches!(&item.body, Body::Result(result) if *result.call.0 == *call)
}
