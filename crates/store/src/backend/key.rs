//! API keys and the salts of contents.

use throughline_core::{Digest, StoreFuture, Tenant};

use crate::row::{ApiKeyRow, SaltRow};

/// Reads API keys, and reads and replaces wrapped salts.
pub(crate) trait KeyBackend: Send + Sync {
    /// Returns the API key with this keyed hash unless its row is marked revoked. The flag states
    /// whether the Journal contains the record `revocation` nevertheless.
    fn key(&self, hash: Digest, revocation: i64) -> StoreFuture<'_, Option<(ApiKeyRow, bool)>>;

    /// Returns all API keys of a tenant.
    fn keys(&self, tenant: &Tenant) -> StoreFuture<'_, Vec<ApiKeyRow>>;

    /// Returns the salts of records after `after` and up to `up_to`, in order, that are wrapped
    /// under a master key epoch other than `epoch`.
    fn salts_not_of(
        &self,
        epoch: u32,
        after: i64,
        up_to: i64,
        limit: u32,
    ) -> StoreFuture<'_, Vec<SaltRow>>;

    /// Returns the records after `after` and up to `up_to` that have a salt.
    fn salted(&self, after: i64, up_to: i64) -> StoreFuture<'_, Vec<i64>>;

    /// Replaces wrapped salts. A salt that was deleted in the meantime stays deleted.
    fn rewrap(&self, salts: Vec<SaltRow>) -> StoreFuture<'_, ()>;
}
