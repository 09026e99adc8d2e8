//! Leases of logs, and running logs without a lease.

use std::time::Duration;

use throughline_core::{Fence, Lease, LogId, StaleRun, StoreFuture, Tenant};

/// Leases each log to one owner at a time, and finds runs that lost theirs.
pub(crate) trait LeaseBackend: Send + Sync {
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

    /// Lists runs of all tenants that are marked running, have no lease, and were not written to
    /// for `idle`.
    fn unattended(&self, idle: Duration, after: u64, limit: u32) -> StoreFuture<'_, Vec<StaleRun>>;
}
