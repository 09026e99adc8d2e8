//! Chains, manifests and row MACs: the data that verification reads.

use std::sync::Arc;

use throughline_core::{StoreFuture, Tenant};

use crate::chain::Head;
use crate::manifest::{Manifest, Signer};
use crate::protection::Protection;
use crate::row::ChainRow;
use crate::row_mac::{RowKey, RowSnapshot, RowState};

/// Maintains chains, manifests and row MACs, and reads them for verification.
pub(crate) trait ProofBackend: Send + Sync {
    /// Sets the key of row MACs. Migrates a store of schema version 1 to version 2 and computes the
    /// MACs of all its rows, in one transaction.
    fn protect(&self, protection: Protection) -> StoreFuture<'_, ()>;

    /// Starts signing manifests of the heads that moved: at least once per second while the backend
    /// writes, and when it closes.
    fn sign_with(&self, signer: Arc<Signer>);

    /// Returns the number of the last record of all tenants. All records up to it are committed.
    fn last_record(&self) -> StoreFuture<'_, i64>;

    /// Returns the records of all tenants, or of one tenant, in commit order: those after `after`
    /// and up to `up_to`. `up_to` must not exceed [`last_record`](Self::last_record).
    fn chain(
        &self,
        of: Option<&Tenant>,
        after: i64,
        up_to: i64,
        limit: u32,
    ) -> StoreFuture<'_, Vec<ChainRow>>;

    /// Returns the head of every chain segment, for all tenants or for one.
    fn heads(&self, of: Option<&Tenant>) -> StoreFuture<'_, Vec<Head>>;

    /// Returns the signed manifests after `after`, in the order in which they were written.
    fn manifests(&self, after: i64, limit: u32) -> StoreFuture<'_, Vec<(i64, Manifest)>>;

    /// Computes the MAC sums of all index rows and reads the stored sums, in one snapshot. With a
    /// tenant, covers only that tenant's rows and no store-wide tables.
    fn read_rows(&self, key: RowKey, of: Option<&Tenant>) -> StoreFuture<'_, RowSnapshot>;

    /// Returns the current sums of index rows, for a manifest.
    fn row_states(&self) -> StoreFuture<'_, Vec<RowState>>;

    /// Returns whether reads see one state: the rows cannot change, or reads use snapshots. A file
    /// that is opened read-only has no snapshots, and a writer may have opened it since.
    fn is_stable(&self) -> bool;

    /// Checks the database's internal structure and returns one sentence per problem.
    fn check(&self) -> StoreFuture<'_, Vec<String>>;
}
