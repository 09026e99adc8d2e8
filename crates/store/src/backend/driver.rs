//! The interface that each database implements.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use throughline_core::{
    Fence, Lease, LogId, Receipt, StoreError, StoreFuture, Tenant, VaultLookup,
};

use crate::manifest::Signer;
use crate::protection::Protection;
use crate::row::SaltRow;
use crate::sealed_batch::{SealedBatch, SealedKey};
use crate::sql::{SqlRow, SqlValue, Transaction};

/// The parts of SQL in which the databases differ.
pub(crate) struct Dialect {
    /// The database's time in milliseconds.
    pub(crate) now: &'static str,
    pub(crate) version: &'static str,
    /// Whether the lease in row `h` of `leases`, which may be missing, is active.
    pub(crate) lease_is_active: &'static str,
    /// The columns by which logs are ordered: those of an index, and then the id.
    pub(crate) log_order: &'static [&'static str],
}

/// Work that blocks its thread and reads from one snapshot.
pub(crate) type SnapshotWork = Box<dyn FnOnce(&dyn Transaction) -> Result<(), StoreError> + Send>;

/// The operations that each database implements itself.
pub(crate) trait Driver: Send + Sync {
    fn dialect(&self) -> &'static Dialect;

    /// Runs a query that reads.
    fn query(&self, sql: &str, values: &[SqlValue]) -> StoreFuture<'_, Vec<SqlRow>>;

    /// Runs blocking work in one snapshot. A server sends `page` rows at a time.
    fn snapshot(&self, page: i32, work: SnapshotWork) -> StoreFuture<'_, ()>;

    /// Commits the whole batch or nothing, and returns once the batch is durable.
    fn commit(&self, batch: SealedBatch) -> StoreFuture<'_, Receipt>;

    /// Waits until the log's last sequence number exceeds `after`, regardless of which process
    /// wrote it.
    fn wait(&self, tenant: &Tenant, log: &LogId, after: u64) -> StoreFuture<'_, ()>;

    /// Looks up captured turns by key. Returns one result per key and the erasure epoch, all from
    /// one snapshot.
    fn find(&self, tenant: &Tenant, keys: &[SealedKey]) -> StoreFuture<'_, VaultLookup>;

    /// Leases the log to `owner`, unless another owner holds the lease. Every new lease has a
    /// higher fence than the one before, even if the same owner takes it again.
    fn lease(
        &self,
        tenant: &Tenant,
        log: &LogId,
        owner: &str,
        time: Duration,
    ) -> StoreFuture<'_, Lease>;

    /// Extends a lease that has not expired.
    fn renew(
        &self,
        tenant: &Tenant,
        log: &LogId,
        fence: Fence,
        time: Duration,
    ) -> StoreFuture<'_, Lease>;

    /// Releases a lease.
    fn release(&self, tenant: &Tenant, log: &LogId, fence: Fence) -> StoreFuture<'_, ()>;

    /// Sets the key of row MACs. Migrates a store of schema version 1 to version 2 and computes the
    /// MACs of all its rows, in one transaction.
    fn protect(&self, protection: Protection) -> StoreFuture<'_, ()>;

    /// Starts signing manifests of the heads that moved: at least once per second while the backend
    /// writes, and when it closes.
    fn sign_with(&self, signer: Arc<Signer>);

    /// Returns the highest number in a table below which all rows are committed.
    fn last_id(&self, table: &'static str) -> StoreFuture<'_, i64>;

    /// Returns whether reads see one state: the rows cannot change, or reads use snapshots. A file
    /// that is opened read-only has no snapshots, and a writer may have opened it since.
    fn is_stable(&self) -> bool;

    /// Checks the files of the database and returns one sentence per problem.
    fn check_files(&self) -> StoreFuture<'_, Vec<String>>;

    /// Stores a small internal value under `name` unless one exists, and returns the stored value.
    fn keep(&self, name: &str, value: Bytes) -> StoreFuture<'_, Bytes>;

    /// Replaces a small internal value, or deletes it.
    fn set_value(&self, name: &str, value: Option<Bytes>) -> StoreFuture<'_, ()>;

    /// Replaces wrapped salts. A salt that was deleted in the meantime stays deleted.
    fn rewrap(&self, salts: Vec<SaltRow>) -> StoreFuture<'_, ()>;

    /// Returns the size of the database on disk.
    fn disk_bytes(&self) -> StoreFuture<'_, u64>;

    /// Removes deleted data from all files of the database.
    fn scrub(&self) -> StoreFuture<'_, ()>;

    /// Frees the disk space that is reserved for a full disk. The operator of a server manages its
    /// disk, so a server has no reserve.
    fn make_room(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Reserves disk space for a full disk, as far as space is available.
    fn keep_reserve(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Writes all queued batches and closes.
    fn close(&self) -> StoreFuture<'_, ()>;
}
