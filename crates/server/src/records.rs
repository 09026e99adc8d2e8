//! Reads the records and the events of a log.

use bytes::Bytes;
use throughline_core::{
    Append, Batch, LogId, LogOpening, Receipt, Record, Store, StoreError, Tenant, unpack_events,
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
