//! The keys for the MACs of index rows, and the migration that adds these MACs to older stores.

use bytes::Bytes;
use throughline_core::{Digest, StoreError};

use crate::cipher::Secret;
use crate::rejection::corrupt;
use crate::row::ApiKeyRow;
use crate::row_mac::RowKey;

/// Name of the stored value that holds the store's secret.
pub(crate) const SECRET: &str = "secret";

/// Writer name of the segments that hold a migrated store's initial row sums.
pub(crate) const MIGRATION_WRITER: &str = "first-count";

/// The keys and state that a backend needs to maintain the MACs of index rows.
#[derive(Clone)]
pub(crate) struct Protection {
    pub(crate) key: RowKey,
    pub(crate) api_keys: ApiKeyMac,
    /// Whether the stored secret is marked, which means that the index rows have MACs.
    pub(crate) is_marked: bool,
    /// The store's secret with the mark, to be stored when the MACs are first computed. `None` for
    /// a backup, which keeps its own secret.
    pub(crate) marked: Option<Bytes>,
}

/// The change that a store needs so that its index rows have MACs.
pub(crate) enum Upgrade<'p> {
    None,
    /// Only the stored secret must be replaced with this marked secret.
    Mark(&'p [u8]),
    /// All rows need MACs, and the row sums must be computed.
    AddSums,
}

impl Protection {
    /// Returns the change that a store needs. `has_macs` is whether the schema has MAC columns, and
    /// `is_counted` is whether the row sums are stored.
    pub(crate) fn upgrade(
        &self,
        has_macs: bool,
        is_counted: bool,
    ) -> Result<Upgrade<'_>, StoreError> {
        match (has_macs, is_counted, &self.marked) {
            (false, ..) if self.is_marked => {
                Err(corrupt!("the MACs of the store's rows were removed; restore a backup"))
            }
            // Another process created the store after this process read the secret.
            (true, true, Some(marked)) if !self.is_marked => Ok(Upgrade::Mark(marked)),
            // Missing sums are not recomputed; verification reports them.
            (true, true, _) | (true, false, None) => Ok(Upgrade::None),
            (true, false, Some(_)) if self.is_marked => Ok(Upgrade::None),
            (true, false, Some(_)) | (false, _, _) => Ok(Upgrade::AddSums),
        }
    }
}

/// Derives the row MAC key from the store's secret.
pub(crate) fn row_key(secret: &Secret) -> RowKey {
    RowKey::new(Secret::new(blake3::derive_key("throughline 2026 store row macs", &**secret)))
}

/// Computes the MACs of API key rows. The MAC is checked on every use of an API key, and the MAC
/// key is never sent to a database.
#[derive(Clone)]
pub(crate) struct ApiKeyMac(Secret);

impl ApiKeyMac {
    pub(crate) fn new(secret: &Secret) -> Self {
        Self(Secret::new(blake3::derive_key("throughline 2026 store api key rows", &**secret)))
    }

    /// Returns the MAC of an API key row. The MAC covers all fields except `created` and `mac`.
    pub(crate) fn mac(&self, row: &ApiKeyRow) -> Digest {
        let ApiKeyRow { tenant, id, label, limits, hash, created: _, revoked, mac: _ } = row;
        let revoked = revoked.map(|at| at.to_string()).unwrap_or_default();
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        let texts = [&*tenant.0, &**id, &**label, &**limits, &*revoked].map(str::as_bytes);
        for field in texts.into_iter().chain([hash.as_slice()]) {
            hasher.update(&u64::try_from(field.len()).unwrap_or(u64::MAX).to_be_bytes());
            hasher.update(field);
        }
        *hasher.finalize().as_bytes()
    }
}

/// Prints that a migration from schema version 1 starts, or that it has ended if `records` is
/// `None`.
#[expect(
    clippy::print_stderr,
    reason = "a large store takes minutes, and this crate has no logger"
)]
pub(crate) fn report_migration(store: &str, records: Option<i64>) {
    match records {
        Some(records) => eprintln!("migrating {store} from schema version 1: {records} records"),
        None => eprintln!("migrated {store} from schema version 1"),
    }
}
