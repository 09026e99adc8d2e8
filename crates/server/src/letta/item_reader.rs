//! Finds the Items that a run's events refer to.

use std::collections::VecDeque;

use crate::records::StoreResult;
use jiff::Timestamp;
use throughline_core::{Item, LogId, Record, Store, StoreError, Tenant, kind, restore_items};

/// Number of records per store read.
const PAGE: u32 = 128;

/// An Item with its sequence number in the Thread and the time when it was stored.
#[derive(Clone, Debug)]
pub(crate) struct StoredItem {
    pub(crate) item: Item,
    pub(crate) seq: u64,
    pub(crate) at: Timestamp,
}

/// Reads a Thread from start to end, and buffers each Item until it is requested.
pub(crate) struct ItemReader<'s> {
    store: &'s dyn Store,
    tenant: Tenant,
    thread: LogId,
    last: u64,
    /// Items that were read but not yet requested.
    waiting: VecDeque<StoredItem>,
}

impl<'s> ItemReader<'s> {
    pub(crate) fn new(store: &'s dyn Store, tenant: Tenant, thread: LogId, after: u64) -> Self {
        Self { store, tenant, thread, last: after, waiting: VecDeque::new() }
    }

    /// Removes and returns the next Item that matches. Skipped Items stay in the buffer.
    pub(crate) async fn next(
        &mut self,
        is_it: impl Fn(&Item) -> bool,
    ) -> StoreResult<Option<StoredItem>> {
        let mut looked = 0;
        loop {
            let found = self.waiting.iter().skip(looked).position(|stored| is_it(&stored.item));
            if let Some(found) = found {
                return Ok(self.waiting.remove(looked + found));
            }
            looked = self.waiting.len();
            if !self.read_page().await? {
                return Ok(None);
            }
        }
    }

    async fn read_page(&mut self) -> StoreResult<bool> {
        let records = self.store.read(&self.tenant, &self.thread, self.last, PAGE).await?;
        let Some(last) = records.last() else { return Ok(false) };
        self.last = last.seq;
        self.waiting.extend(stored_items(&records)?);
        Ok(true)
    }
}

/// Decodes the Items of these records. Forgotten Items are left out.
pub(crate) fn stored_items(records: &[Record]) -> StoreResult<Vec<StoredItem>> {
    let records = || records.iter().filter(|record| &*record.kind == kind::ITEM);
    let items = restore_items(records().map(|record| record.content.bytes().cloned()));
    let items = items.map_err(|error| StoreError::Corrupt(error.to_string().into()))?;
    let there = records().filter(|record| record.content.bytes().is_some());
    Ok(there
        .zip(items)
        .map(|(record, item)| StoredItem { item, seq: record.seq, at: record.at })
        .collect())
}
