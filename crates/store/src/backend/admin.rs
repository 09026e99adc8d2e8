//! Operations on the whole database.

use throughline_core::{StoreFuture, Tenant};

use crate::backup_files::NewBackup;
use crate::query::{Progress, Stats};

/// Operates on the whole database.
pub(crate) trait AdminBackend: Send + Sync {
    /// Returns the database's time in milliseconds.
    fn now(&self) -> StoreFuture<'_, i64>;

    /// Lists all tenants.
    fn tenants(&self) -> StoreFuture<'_, Vec<Tenant>>;

    /// Counts rows and bytes.
    fn stats(&self) -> StoreFuture<'_, Stats>;

    /// Returns the schema version.
    fn version(&self) -> StoreFuture<'_, u32>;

    /// Removes deleted data from all files of the database.
    fn scrub(&self) -> StoreFuture<'_, ()>;

    /// Frees the disk space that is reserved for a full disk.
    fn make_room(&self) -> StoreFuture<'_, ()>;

    /// Reserves disk space for a full disk, as far as space is available.
    fn keep_reserve(&self) -> StoreFuture<'_, ()>;

    /// Copies everything to an SQLite file and its key file, while other processes read and write.
    /// `progress` receives the completed share.
    fn backup<'a>(&'a self, plan: NewBackup, progress: Progress<'a>) -> StoreFuture<'a, ()>;

    /// Writes all queued batches and closes.
    fn close(&self) -> StoreFuture<'_, ()>;
}
