//! Errors that a store returns.

use std::sync::Arc;

use throughline_json::Name;

use crate::store::{LogId, PendingStatus};

/// An error that a store returns. Unless a variant states otherwise, nothing was written and the
/// stored data is intact.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Another writer appended to the log first.
    #[error("{log} is at record {found}, not {expected}; read the new records and retry")]
    Conflict {
        /// The log that was accessed.
        log: LogId,
        /// The last sequence number that the writer had seen.
        expected: u64,
        /// The actual last sequence number.
        found: u64,
    },
    /// The writer's lease has expired, or another owner holds the lease on the log.
    #[error("this writer does not hold the lease on {log}; acquire a lease and read the log again")]
    Fenced {
        /// The log that was accessed.
        log: LogId,
    },
    /// Another owner holds the lease on the log.
    #[error("{log} is leased to {owner}; retry when the lease expires, in {left_ms} ms")]
    Held {
        /// The log that was accessed.
        log: LogId,
        /// The owner of the lease.
        owner: Name,
        /// The remaining time of the lease in milliseconds.
        left_ms: u64,
    },
    /// The request to a person was already decided, or has expired.
    #[error("request {id} is not open; its status is {status}")]
    Taken {
        /// The id of the request.
        id: Name,
        /// The status of the request.
        status: PendingStatus,
    },
    /// The idempotency keys in a batch belong to different earlier batches.
    #[error("idempotency key {name} was used in another request; use new keys in each new request")]
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
    /// The request is invalid. Contains the whole error message.
    #[error("{0}")]
    Invalid(Name),
    /// The disk or the database is full.
    #[error("the store is full; free some disk space (no restart is needed)")]
    Full,
    /// The store with this name is read-only.
    #[error("{0} is read-only; change its permissions or choose another store")]
    ReadOnly(Name),
    /// Another program has locked the database.
    #[error("{0} is locked by another program; close that program or try again")]
    Locked(Name),
    /// The master key is not the one that encrypted the store.
    #[error("the master key does not match this store; use the key that encrypted the store")]
    WrongKey,
    /// The store is encrypted, and no master key was given.
    #[error("this store is encrypted; provide its master key in a file or an environment variable")]
    KeyMissing,
    /// A newer version of Throughline created the store.
    #[error(
        "the store has schema version {found}, but this program supports versions up to {known}; \
         upgrade Throughline"
    )]
    NewerSchema {
        /// The schema version of the store.
        found: u32,
        /// The latest schema version that this program supports.
        known: u32,
    },
    /// The stored data is damaged.
    #[error("the store is damaged: {0}")]
    Corrupt(Name),
    /// The database does not respond.
    #[error("cannot reach {0}: {1}")]
    Unreachable(Name, Name),
    /// The store was closed.
    #[error("the store was closed")]
    Closed,
    /// The database reported another error.
    #[error("the database reported an error: {0}")]
    Database(#[source] Arc<dyn std::error::Error + Send + Sync>),
}

impl StoreError {
    /// Creates a [`StoreError::Invalid`]; `problem` is the whole message.
    pub fn invalid(problem: impl Into<Name>) -> Self {
        Self::Invalid(problem.into())
    }
}
