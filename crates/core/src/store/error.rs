//! What can go wrong with a store.

use std::sync::Arc;

use crate::name::Name;
use crate::store::{LogId, PendingStatus};

/// What can go wrong with a store. Nothing was written, unless it says otherwise; nothing that was written is lost.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Somebody else wrote first.
    #[error("{log} stands at {found} and not at {expected}: read what was added and decide again")]
    Conflict {
        /// The log.
        log: LogId,
        /// The last sequence number that the writer knew of.
        expected: u64,
        /// The last sequence number that there is.
        found: u64,
    },
    /// The writer's lease is over, or somebody else holds the log.
    #[error("{log} is not held by this writer (any more): take a lease and read it again")]
    Fenced {
        /// The log.
        log: LogId,
    },
    /// Somebody else holds the log.
    #[error("{log} is held by {owner}: try again after its lease, in {left_ms} ms")]
    Held {
        /// The log.
        log: LogId,
        /// Who holds it.
        owner: Name,
        /// How long its lease still runs.
        left_ms: u64,
    },
    /// What waited for a person was decided before, or its time was up.
    #[error("{id} was {status} already")]
    Taken {
        /// Its id.
        id: Name,
        /// What became of it.
        status: PendingStatus,
    },
    /// The names under which a batch happens once belong to different earlier batches.
    #[error("{name} was used in another request: give each message of a new request its own name")]
    MixedOnce {
        /// The name that was used.
        name: Name,
    },
    /// There is no such thing in this tenant.
    #[error("there is no {what} {name}")]
    NotFound {
        /// What was looked for, as `thread`.
        what: &'static str,
        /// Its name.
        name: Name,
    },
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(Name),
    /// The disk or the database is full.
    #[error("the store is full: free some space, and it goes on without a restart")]
    Full,
    /// The store cannot be written to.
    #[error("{0} is read-only: change its permissions, or choose another store")]
    ReadOnly(Name),
    /// Another program holds the database.
    #[error("{0} is locked by another program: close it there, or try again")]
    Locked(Name),
    /// The master key is not the one that the store was written with.
    #[error("the master key does not open this store: give the key that it was written with")]
    WrongKey,
    /// The store was written with a master key and none was given.
    #[error("this store was written with a master key: give it by file or environment")]
    KeyMissing,
    /// A later version wrote the store.
    #[error(
        "the store has schema {found}, and this program knows {known} at most: use a newer version"
    )]
    NewerSchema {
        /// The schema's version.
        found: u32,
        /// The latest version that this program knows.
        known: u32,
    },
    /// What is there is damaged.
    #[error("the store is damaged: {0}")]
    Corrupt(Name),
    /// The database does not answer.
    #[error("{0} cannot be reached: {1}")]
    Unreachable(Name, Name),
    /// The store was closed.
    #[error("the store was closed")]
    Closed,
    /// Anything else that the database says.
    #[error("the database failed: {0}")]
    Database(#[source] Arc<dyn std::error::Error + Send + Sync>),
}

impl StoreError {
    /// A request that makes no sense.
    pub fn invalid(problem: impl Into<Name>) -> Self {
        Self::Invalid(problem.into())
    }
}
