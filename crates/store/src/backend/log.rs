//! Logs, their records, and the requests that wait in them.

use bytes::Bytes;
use throughline_core::{Digest, LogHead, LogId, PendingEntry, Receipt, StoreFuture, Tenant};

use crate::query::{Listing, Span};
use crate::row::Row;
use crate::sealed_batch::SealedBatch;

/// Writes batches and reads logs and records.
pub(crate) trait LogBackend: Send + Sync {
    /// Commits the whole batch or nothing, and returns once the batch is durable.
    fn commit(&self, batch: SealedBatch) -> StoreFuture<'_, Receipt>;

    /// Returns the row of a log.
    fn log<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId) -> StoreFuture<'a, Option<LogHead>>;

    /// Returns the rows of the logs that match `listing`.
    fn logs<'a>(&'a self, tenant: &'a Tenant, listing: Listing) -> StoreFuture<'a, Vec<LogHead>>;

    /// Returns the log's own records in `span`, in order.
    fn rows<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        span: Span,
    ) -> StoreFuture<'a, Vec<Row>>;

    /// Returns the sequence number of the last own record that contains no event after `event`.
    fn place_of_event<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        event: u64,
    ) -> StoreFuture<'a, u64>;

    /// Returns the last own checkpoint at or before `at_most` whose content was not destroyed.
    fn checkpoint<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        at_most: u64,
    ) -> StoreFuture<'a, Option<Row>>;

    /// Returns the positions of all records with this `about` hash, in any log.
    fn about<'a>(&'a self, tenant: &'a Tenant, about: i64) -> StoreFuture<'a, Vec<(LogId, u64)>>;

    /// Returns a sealed large content and the keyed hash of its plain content.
    fn blob<'a>(
        &'a self,
        tenant: &'a Tenant,
        blob: i64,
    ) -> StoreFuture<'a, Option<(Digest, Bytes)>>;

    /// Waits until the log's last sequence number exceeds `after`, regardless of which process
    /// wrote it.
    fn wait<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId, after: u64) -> StoreFuture<'a, ()>;

    /// Lists requests that wait for a person.
    fn pending<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: Option<&'a LogId>,
    ) -> StoreFuture<'a, Vec<PendingEntry>>;
}
