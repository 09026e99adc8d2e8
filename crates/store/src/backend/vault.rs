//! The Vault: lookups of captured turns.

use throughline_core::{StoreFuture, Tenant, VaultLookup};

use crate::sealed_batch::SealedKey;

/// Finds captured turns by their keys.
pub(crate) trait VaultBackend: Send + Sync {
    /// Looks up captured turns by key. Returns one result per key and the erasure epoch, all from
    /// one snapshot.
    fn find(&self, tenant: &Tenant, keys: &[SealedKey]) -> StoreFuture<'_, VaultLookup>;
}
