//! Errors that a store returns.

use std::sync::Arc;

use throughline_json::Name;

use crate::store::{LogId, PendingStatus};

/// An error that a store returns. Unless stated otherwise, nothing was written, and stored data is
/// intact.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Another writer appended to the log first.
    #[error("{log} is at record {found}, expected {expected}: read the new records and retry")]
    Conflict {
        /// The log that was accessed.
        log: LogId,
        /// The last sequence number that the writer had seen.
        expected: u64,
        /// The actual last sequence number.
        found: u64,
    },
    /// The writer's lease has expired, or another owner holds the log.
    #[error("this writer does not hold the lease of {log}: take a lease and read the log again")]
    Fenced {
        /// The log that was accessed.
        log: LogId,
    },
    /// Another owner holds the log.
    #[error("{log} is held by {owner}: retry when its lease expires, in {left_ms} ms")]
    Held {
        /// The log that was accessed.
        log: LogId,
        /// The owner of the lease.
        owner: Name,
        /// The remaining time of the lease in milliseconds.
        left_ms: u64,
    },
    /// The request to a person was already decided, or has expired.
    #[error("{id} is already {status}")]
    Taken {
        /// The id of the request.
        id: Name,
        /// The status of the request.
        status: PendingStatus,
    },
    /// The idempotency keys in a batch belong to different earlier batches.
    #[error("{name} was used in another request: use a new name for each message of a new request")]
    MixedOnce {
        /// A key that another batch has used.
        name: Name,
    },
    /// The tenant has no object of this type with this name.
    #[error("there is no {what} {name}")]
    NotFound {
        /// The type of the object, such as `thread`.
        what: &'static str,
        /// The name of the object.
        name: Name,
    },
    /// The request is invalid, for this reason.
    #[error("{0}")]
    Invalid(Name),
    /// The disk or the database is full.
    #[error("the store is full: free some space; no restart is needed")]
    Full,
    /// The store with this name is read-only.
    #[error("{0} is read-only: change its permissions, or choose another store")]
    ReadOnly(Name),
    /// Another program has locked the database.
    #[error("{0} is locked by another program: close it there, or try again")]
    Locked(Name),
    /// The store was encrypted with a different master key.
    #[error("the master key does not open this store: give the key that it was written with")]
    WrongKey,
    /// The store is encrypted, and no master key was given.
    #[error("this store was written with a master key: give it by file or environment")]
    KeyMissing,
    /// A newer version created the store.
    #[error(
        "the store has schema {found}, and this program supports up to {known}: use a newer version"
    )]
    NewerSchema {
        /// The schema version of the store.
        found: u32,
        /// The latest version that this program supports.
        known: u32,
    },
    /// The stored data is damaged.
    #[error("the store is damaged: {0}")]
    Corrupt(Name),
    /// The database does not respond.
    #[error("{0} cannot be reached: {1}")]
    Unreachable(Name, Name),
    /// The store was closed.
    #[error("the store was closed")]
    Closed,
    /// The database reported another error.
    #[error("the database failed: {0}")]
    Database(#[source] Arc<dyn std::error::Error + Send + Sync>),
}

impl StoreError {
    /// Creates a [`StoreError::Invalid`]; `problem` is the whole message.
    pub fn invalid(problem: impl Into<Name>) -> Self {
        Self::Invalid(problem.into())
    }
}
