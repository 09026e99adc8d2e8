//! Reads the records and the events of a log.

use bytes::Bytes;
use jiff::Timestamp;
use throughline_core::{
    Append, Batch, LogHead, LogId, LogOpening, Receipt, Record, Store, StoreError, Tenant,
    unpack_events,
};
use throughline_json::Json;
use throughline_spec::RunEvent;

pub(crate) type StoreResult<T> = Result<T, StoreError>;

/// Reads the records of a log page by page.
pub(crate) struct RecordPages<'s> {
    store: &'s dyn Store,
    tenant: &'s Tenant,
    log: &'s LogId,
    /// Sequence number of the last record read.
    pub(crate) after: u64,
}

impl<'s> RecordPages<'s> {
    pub(crate) fn new(
        store: &'s dyn Store,
        tenant: &'s Tenant,
        log: &'s LogId,
        after: u64,
    ) -> Self {
        Self { store, tenant, log, after }
    }

    /// Returns the next page; `None` at the end of the log.
    pub(crate) async fn next(&mut self) -> StoreResult<Option<Vec<Record>>> {
        const PAGE: u32 = 512;
        let records = self.store.read(self.tenant, self.log, self.after, PAGE).await?;
        let Some(last) = records.last() else { return Ok(None) };
        self.after = last.seq;
        Ok(Some(records))
    }
}

/// Returns the sequence number of the last record before a time; 0 if there is none. The search
/// reads one record per step and about 20 records of a log with a million records.
pub(crate) async fn seq_before_time(
    store: &dyn Store,
    tenant: &Tenant,
    head: &LogHead,
    time: Timestamp,
) -> StoreResult<u64> {
    // All records up to `low` are before the time, and all records after `high` are not.
    let (mut low, mut high) = (0, head.last);
    while low < high {
        let middle = low + (high - low) / 2;
        let next = store.read(tenant, &head.log, middle, 1).await?;
        match next.first() {
            Some(record) if record.at < time => low = record.seq,
            Some(_) | None => high = middle,
        }
    }
    Ok(low)
}

/// Commits a batch together with an entry for a shared log, and creates that log if it is missing.
pub(crate) async fn commit_with_entry(
    store: &dyn Store,
    batch: &Batch,
    entry: &Append,
) -> StoreResult<Receipt> {
    let commit = |entry: Append| store.commit(batch.clone().append(entry));
    let mut done = commit(entry.clone()).await;
    if let Err(StoreError::NotFound { .. }) = done {
        done = commit(entry.clone().opening(LogOpening::thread())).await;
        if let Err(StoreError::Conflict { .. } | StoreError::Invalid(_)) = done {
            // Another process created the log at the same time.
            done = commit(entry.clone()).await;
        }
    }
    done
}

/// Decodes a record's events, each with its number; empty if the record was erased.
pub(crate) fn run_events(record: &Record) -> impl Iterator<Item = (u64, RunEvent)> {
    let events = unpack_events(record).unwrap_or_default().into_iter();
    events.filter_map(|(number, event)| Some((number, parse_event(event)?)))
}

pub(crate) fn parse_event(event: Bytes) -> Option<RunEvent> {
    RunEvent::parse(&Json::parse(event).ok()?).ok()
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod records_tests;
