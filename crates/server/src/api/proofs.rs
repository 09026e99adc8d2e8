//! Limits how many Journal verifications run at once.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use throughline_core::Tenant;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::sync::lock;

/// Verifications in progress: at most one per tenant, and few in total. Waiting tenants are served
/// in the order of their requests.
pub(crate) struct Verifications {
    tenants: Arc<Mutex<HashSet<Tenant>>>,
    slots: Semaphore,
}

impl Default for Verifications {
    fn default() -> Self {
        const AT_ONCE: usize = 2;
        Self { tenants: Arc::default(), slots: Semaphore::new(AT_ONCE) }
    }
}

pub(crate) struct VerificationPermit<'p> {
    tenants: Arc<Mutex<HashSet<Tenant>>>,
    tenant: Tenant,
    /// The slot of the verification; `None` while the verification waits for a slot.
    slot: Option<SemaphorePermit<'p>>,
}

impl Verifications {
    /// Waits for a slot; `None` if the tenant already has a verification in progress.
    pub(crate) async fn acquire(&self, tenant: &Tenant) -> Option<VerificationPermit<'_>> {
        if !lock(&self.tenants).insert(tenant.clone()) {
            return None;
        }
        let (tenants, tenant) = (Arc::clone(&self.tenants), tenant.clone());
        // If the caller disconnects while it waits, dropping the permit removes the tenant as well.
        let mut turn = VerificationPermit { tenants, tenant, slot: None };
        turn.slot = self.slots.acquire().await.ok();
        turn.slot.is_some().then_some(turn)
    }
}

impl Drop for VerificationPermit<'_> {
    fn drop(&mut self) {
        lock(&self.tenants).remove(&self.tenant);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

    use super::*;
    use futures_util::FutureExt as _;

    #[tokio::test]
    async fn verifications_of_tenants_do_not_block_each_other() {
        let proofs = Verifications::default();
        let tenants = ["a", "b", "c"].map(Tenant::from);
        let first = proofs.acquire(&tenants[0]).await.unwrap();
        assert!(proofs.acquire(&tenants[0]).await.is_none(), "one at a time for each tenant");
        let second = proofs.acquire(&tenants[1]).now_or_never().unwrap().unwrap();
        // Two are in progress, so the third waits. A caller that disconnects no longer waits.
        assert!(proofs.acquire(&tenants[2]).now_or_never().is_none());
        drop(first);
        let third = proofs.acquire(&tenants[2]).now_or_never().unwrap().unwrap();
        drop((second, third));
        assert!(proofs.acquire(&tenants[0]).now_or_never().unwrap().is_some());
    }
}
