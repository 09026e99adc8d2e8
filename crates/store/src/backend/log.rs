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
    fn log(&self, tenant: &Tenant, log: &LogId) -> StoreFuture<'_, Option<LogHead>>;

    /// Returns the rows of the logs that match `listing`.
    fn logs(&self, tenant: &Tenant, listing: Listing) -> StoreFuture<'_, Vec<LogHead>>;

    /// Returns the log's own records in `span`, in order.
    fn rows(&self, tenant: &Tenant, log: &LogId, span: Span) -> StoreFuture<'_, Vec<Row>>;

    /// Returns the sequence number of the last own record that contains no event after `event`.
    fn place_of_event(&self, tenant: &Tenant, log: &LogId, event: u64) -> StoreFuture<'_, u64>;

    /// Returns the last own checkpoint at or before `at_most` whose content was not destroyed.
    fn checkpoint(
        &self,
        tenant: &Tenant,
        log: &LogId,
        at_most: u64,
    ) -> StoreFuture<'_, Option<Row>>;

    /// Returns the positions of all records with this `about` hash, in any log.
    fn about(&self, tenant: &Tenant, about: i64) -> StoreFuture<'_, Vec<(LogId, u64)>>;

    /// Returns a sealed large content and the keyed hash of its plain content.
    fn blob(&self, tenant: &Tenant, blob: i64) -> StoreFuture<'_, Option<(Digest, Bytes)>>;

    /// Waits until the log's last sequence number exceeds `after`, regardless of which process
    /// wrote it.
    fn wait(&self, tenant: &Tenant, log: &LogId, after: u64) -> StoreFuture<'_, ()>;

    /// Lists requests that wait for a person.
    fn pending(&self, tenant: &Tenant, log: Option<&LogId>) -> StoreFuture<'_, Vec<PendingEntry>>;
}
