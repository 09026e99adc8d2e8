//! Small internal values: the store's secret, key epochs, registrations of backups, and notes.

use bytes::Bytes;
use throughline_core::StoreFuture;

/// Stores small internal values by name.
pub(crate) trait ValueBackend: Send + Sync {
    /// Stores a small internal value under `name` unless one exists, and returns the stored value.
    fn keep<'a>(&'a self, name: &'a str, value: Bytes) -> StoreFuture<'a, Bytes>;

    /// Replaces a small internal value.
    fn replace<'a>(&'a self, name: &'a str, value: Bytes) -> StoreFuture<'a, ()>;

    /// Deletes a small internal value, if it exists.
    fn discard<'a>(&'a self, name: &'a str) -> StoreFuture<'a, ()>;

    /// Returns the small internal values whose names start with `begins`.
    fn kept<'a>(&'a self, begins: &'a str) -> StoreFuture<'a, Vec<(String, Bytes)>>;
}
