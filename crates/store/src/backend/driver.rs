//! The operations that each database implements itself.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use throughline_core::{
    Fence, Lease, LogId, Receipt, StoreError, StoreFuture, Tenant, VaultLookup, VaultTurn,
};

use crate::manifest::Signer;
use crate::protection::Protection;
use crate::row::SaltRow;
use crate::sealed_batch::{SealedBatch, SealedKey};
use crate::sql::{SqlRow, SqlValue, Transaction};

/// SQL fragments that differ between the databases.
pub(crate) struct Dialect {
    /// Expression for the database's time in milliseconds since 1970.
    pub(crate) now: &'static str,
    pub(crate) version: &'static str,
    /// Condition that holds if the lease in row `h` of `leases` is active. The row may be missing.
    pub(crate) lease_is_active: &'static str,
    /// Number of packed records before record `r`.
    pub(crate) span: &'static str,
    /// Two columns of record `r`: the number of packed records before it, and the salts of a pack.
    pub(crate) pack_columns: &'static str,
    /// The sort columns of log listings: the columns of an index, followed by the id.
    pub(crate) log_order: &'static [&'static str],
}

/// Blocking work that reads from one snapshot.
pub(crate) type SnapshotWork = Box<dyn FnOnce(&dyn Transaction) -> Result<(), StoreError> + Send>;

/// The operations that each database implements itself.
pub(crate) trait Driver: Send + Sync {
    fn dialect(&self) -> &'static Dialect;

    /// Returns how many steps the database executed for all reads so far, if it counts them.
    fn read_steps(&self) -> Option<u64> {
        None
    }

    /// Runs a read-only query.
    fn query(&self, sql: &str, values: &[SqlValue]) -> StoreFuture<'_, Vec<SqlRow>>;

    /// Runs blocking work in one snapshot. A database server returns `page` rows at a time.
    fn snapshot(&self, page: i32, work: SnapshotWork) -> StoreFuture<'_, ()>;

    /// Commits the whole batch or nothing, and returns once the batch is durable.
    fn commit(&self, batch: SealedBatch) -> StoreFuture<'_, Receipt>;

    /// Waits until the log's last sequence number exceeds `after`, regardless of which process
    /// writes.
    fn wait(&self, tenant: &Tenant, log: &LogId, after: u64) -> StoreFuture<'_, ()>;

    /// Looks up captured turns by key. Returns one result per key and the erasure epoch, all from
    /// one snapshot.
    fn find(&self, tenant: &Tenant, keys: &[SealedKey]) -> StoreFuture<'_, VaultLookup>;

    /// Returns the newest captured turns with a key, newest first and at most `limit`.
    fn find_newest(
        &self,
        tenant: &Tenant,
        key: SealedKey,
        limit: u32,
    ) -> StoreFuture<'_, Vec<VaultTurn>>;

    /// Leases the log to `owner`, unless another owner holds an active lease. Every new lease has a
    /// higher fence than the previous one, even for the same owner.
    fn lease(
        &self,
        tenant: &Tenant,
        log: &LogId,
        owner: &str,
        time: Duration,
    ) -> StoreFuture<'_, Lease>;

    /// Extends the lease with this fence. Fails if the lease has expired.
    fn renew(
        &self,
        tenant: &Tenant,
        log: &LogId,
        fence: Fence,
        time: Duration,
    ) -> StoreFuture<'_, Lease>;

    /// Releases the lease with this fence, so that another owner can take a lease immediately.
    fn release(&self, tenant: &Tenant, log: &LogId, fence: Fence) -> StoreFuture<'_, ()>;

    /// Sets the key for row MACs. Migrates a store of schema version 1 to version 2 and computes
    /// the MACs of all its rows, in one transaction.
    fn protect(&self, protection: Protection) -> StoreFuture<'_, ()>;

    /// Starts signing manifests of changed chain heads: at least once per second while the backend
    /// writes, and when the backend closes.
    fn sign_with(&self, signer: Arc<Signer>);

    /// Returns the highest id in the table for which all rows up to that id are committed.
    fn last_id(&self, table: &'static str) -> StoreFuture<'_, i64>;

    /// Returns whether all reads see one consistent state: either the rows are immutable, or reads
    /// use snapshots. A file that is opened read-only has no snapshots, and another process may
    /// open it for writing.
    fn is_stable(&self) -> bool;

    /// Checks the database files and returns one sentence per problem.
    fn check_files(&self) -> StoreFuture<'_, Vec<String>>;

    /// Stores an internal value under `name` unless one exists, and returns the stored value.
    fn keep(&self, name: &str, value: Bytes) -> StoreFuture<'_, Bytes>;

    /// Replaces an internal value, or deletes it if `value` is `None`.
    fn set_value(&self, name: &str, value: Option<Bytes>) -> StoreFuture<'_, ()>;

    /// Replaces wrapped salts with re-wrapped ones. A salt that was deleted in the meantime stays
    /// deleted.
    fn rewrap(&self, salts: Vec<SaltRow>) -> StoreFuture<'_, ()>;

    /// Returns the size of the database on disk, in bytes.
    fn disk_bytes(&self) -> StoreFuture<'_, u64>;

    /// Removes deleted data from all database files.
    fn scrub(&self) -> StoreFuture<'_, ()>;

    /// Frees the disk space that is reserved for erasures on a full disk. A database server has no
    /// reserve, because its operator manages the disk.
    fn make_room(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Reserves disk space for erasures on a full disk, if enough space is available.
    fn keep_reserve(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Writes all queued batches and closes the database.
    fn close(&self) -> StoreFuture<'_, ()>;
}
