//! Small internal values: the store's secret, key epochs, registrations of backups, and notes.

use bytes::Bytes;
use throughline_core::StoreFuture;

/// Stores small internal values by name.
pub(crate) trait ValueBackend: Send + Sync {
    /// Stores a small internal value under `name` unless one exists, and returns the stored value.
    fn keep(&self, name: &str, value: Bytes) -> StoreFuture<'_, Bytes>;

    /// Replaces a small internal value.
    fn replace(&self, name: &str, value: Bytes) -> StoreFuture<'_, ()>;

    /// Deletes a small internal value, if it exists.
    fn discard(&self, name: &str) -> StoreFuture<'_, ()>;

    /// Returns the small internal values whose names start with `prefix`.
    fn values(&self, prefix: &str) -> StoreFuture<'_, Vec<(String, Bytes)>>;
}
