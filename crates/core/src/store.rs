//! Port to durable storage.
//!
//! Everything is stored as [`Record`]s in append-only logs: one log per Thread and one per Run. In
//! each log, records are numbered from 1 without gaps; that number, not the time, defines their
//! order. [`Store::commit`] stores a [`Batch`] atomically.
//!
//! Except for [`Store::stale_runs`], every read and write is limited to one tenant's data.

mod batch;
mod error;
mod events;
mod fold;
mod vault;

use std::future::Future;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use throughline_json::{Name, words};

pub use crate::store::batch::{
    Append, Batch, ForkPoint, LogKind, LogOpening, NewRecord, PendingRequest, Receipt,
    WrittenRange, kind,
};
pub use crate::store::error::StoreError;
pub use crate::store::events::{
    EventWriter, LogFollower, Pack, pack_events, split_pack, unpack_events,
};
pub use crate::store::fold::{Fold, FoldedLog};
pub use crate::store::vault::{
    ErasureEpoch, NewVaultTurn, TurnId, VaultKey, VaultLookup, VaultMatch, VaultTurn,
};

use crate::fate::ElisionReason;

/// The future returned by [`Store`] methods. It completes when the database responds.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// The name of a tenant. A tenant's data is never visible to another tenant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tenant(pub Name);

/// The id of a log: a Thread id or a Run id.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogId(pub Name);

crate::name::text_id!(Tenant, LogId);

/// Durable storage for Threads, Runs and captured turns.
pub trait Store: Send + Sync {
    /// Stores a batch atomically. Returns when the batch is durable.
    fn commit(&self, batch: Batch) -> StoreFuture<'_, Receipt>;

    /// Reads at most `limit` records with sequence numbers above `after`. For a fork, the result
    /// includes the source log's records up to the fork point.
    fn read<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        after: u64,
        limit: u32,
    ) -> StoreFuture<'a, Vec<Record>>;

    /// Returns a value for `after` in [`Store::read`]: all events numbered above `event` are in
    /// records after this sequence number.
    fn seq_before_event<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        event: u64,
    ) -> StoreFuture<'a, u64>;

    /// Waits until the log contains a record with a sequence number above `after`, written by any
    /// process.
    fn wait<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId, after: u64) -> StoreFuture<'a, ()>;

    /// Returns a log's metadata; `None` if the tenant has no such log.
    fn log<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId) -> StoreFuture<'a, Option<LogHead>>;

    /// Returns the last checkpoint that was not rewound and whose sequence number is at most
    /// `at_most`.
    fn checkpoint<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        at_most: u64,
    ) -> StoreFuture<'a, Option<Record>>;

    /// Leases the log to `owner` for the duration `time`. Until the lease expires, only writes with
    /// the lease's fence succeed.
    fn lease<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        owner: &'a str,
        time: Duration,
    ) -> StoreFuture<'a, Lease>;

    /// Extends a lease. Fails with [`StoreError::Fenced`] if the lease has expired.
    fn renew<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        fence: Fence,
        time: Duration,
    ) -> StoreFuture<'a, Lease>;

    /// Releases a lease. Succeeds even if the lease has already expired or been taken over.
    fn release<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        fence: Fence,
    ) -> StoreFuture<'a, ()>;

    /// Finds captured turns by key. Returns one result per key and the erasure epoch at the time of
    /// the lookup.
    fn find<'a>(&'a self, tenant: &'a Tenant, keys: &'a [VaultKey])
    -> StoreFuture<'a, VaultLookup>;

    /// Returns the newest captured turns with a key, newest first and at most `limit`. Unlike
    /// [`Store::find`], this returns turns whose id or Claim is not unique.
    fn find_newest<'a>(
        &'a self,
        tenant: &'a Tenant,
        key: &'a VaultKey,
        limit: u32,
    ) -> StoreFuture<'a, Vec<VaultTurn>>;

    /// Irreversibly erases the content of a Run. The store keeps a record that the Run existed and
    /// was erased.
    fn forget_run<'a>(&'a self, tenant: &'a Tenant, run: &'a LogId) -> StoreFuture<'a, ()>;

    /// Returns a writer for the events of an existing Run. If the Run is leased, `fence` must be
    /// the lease's fence.
    fn events(&self, tenant: &Tenant, run: &LogId, fence: Option<Fence>) -> Box<dyn EventWriter>;

    /// Lists at most `limit` Runs of a Thread that are older than `before`, newest first.
    fn runs_of<'a>(
        &'a self,
        tenant: &'a Tenant,
        thread: &'a LogId,
        before: Option<&'a LogId>,
        limit: u32,
    ) -> StoreFuture<'a, Vec<LogHead>>;

    /// Lists the pending approvals and questions of one log, or of all the tenant's logs. The
    /// requests of erased logs are not listed.
    fn pending<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: Option<&'a LogId>,
    ) -> StoreFuture<'a, Vec<PendingEntry>>;

    /// Lists Runs of all tenants that a process should resume. These are Runs marked [`RUNNING`]
    /// with no lease and no writes for `idle`, and Runs with an expired pending request. Returns at
    /// most `limit` Runs after the position `after`. This is the only read across tenants, because
    /// one process resumes the Runs of all tenants.
    fn stale_runs(&self, idle: Duration, after: u64, limit: u32) -> StoreFuture<'_, Vec<StaleRun>>;

    /// Tests whether writes succeed by taking a short lease on a log that is used for nothing else.
    fn probe(&self) -> StoreFuture<'_, ()> {
        Box::pin(async {
            let (tenant, log) = (Tenant::from("throughline-probe"), LogId::from("probe"));
            match self.lease(&tenant, &log, "probe", Duration::from_millis(1)).await {
                Ok(_) | Err(StoreError::Held { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        })
    }
}

/// The status of a Run that a process should be executing.
pub const RUNNING: &str = "running";

/// A Run that needs a process to resume it; see [`Store::stale_runs`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleRun {
    /// The tenant that owns the Run.
    pub tenant: Tenant,
    /// The id of the Run's log.
    pub run: LogId,
    /// The Run's position in the list. Pass it as `after` to [`Store::stale_runs`] for the next
    /// page.
    pub place: u64,
}

/// One entry of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The sequence number in the log, from 1, without gaps.
    pub seq: u64,
    /// The kind of record; see [`kind`].
    pub kind: Name,
    /// When the database stored the record. For display only; `seq` defines the order.
    pub at: Timestamp,
    /// The numbers of the first and last event in the record; `None` if the record contains no
    /// events.
    pub events: Option<(u64, u64)>,
    /// The content, or the reason why the content was erased.
    pub content: Content,
}

/// The content of a record, or the reason why it was erased.
#[derive(Clone, PartialEq, Eq)]
pub enum Content {
    /// The bytes, exactly as they were written.
    Here(Bytes),
    /// The content was erased: [`ElisionReason::Forgotten`] or [`ElisionReason::Expired`].
    Gone(ElisionReason),
}

impl Content {
    /// Returns the bytes; `None` if the content was erased.
    pub fn bytes(&self) -> Option<&Bytes> {
        match self {
            Content::Here(bytes) => Some(bytes),
            Content::Gone(_) => None,
        }
    }
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The content may include Seals, so only its size is printed.
        match self {
            Content::Here(bytes) => write!(f, "Here({} B)", bytes.len()),
            Content::Gone(why) => write!(f, "Gone({why})"),
        }
    }
}

/// A log's metadata, as returned by [`Store::log`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogHead {
    /// The id of the Thread or Run.
    pub log: LogId,
    /// Whether the log belongs to a Thread or a Run.
    pub kind: LogKind,
    /// The Thread that the Run belongs to; `None` if the log belongs to a Thread.
    pub of: Option<LogId>,
    /// The fork point, if the log is a fork.
    pub fork: Option<ForkPoint>,
    /// The rewinds, oldest first.
    pub rewinds: Vec<Rewind>,
    /// The log's status, such as `running`. Writers set it; see [`Append::status`].
    pub status: Option<Name>,
    /// The sequence number of the last record.
    pub last: u64,
    /// The number of the last event.
    pub events: u64,
    /// The size in bytes of the log's own records before encryption, without records shared through
    /// a fork.
    pub bytes: u64,
    /// When the log was created.
    pub created: Timestamp,
    /// When the log was last written.
    pub updated: Timestamp,
    /// Why the log's content was erased; `None` if it was not erased.
    pub gone: Option<ElisionReason>,
}

impl LogHead {
    /// Returns the sequence numbers up to `last` as ranges, without the records that a rewind
    /// discarded.
    pub fn valid_ranges(&self, last: u64) -> Vec<std::ops::RangeInclusive<u64>> {
        let mut spans: Vec<std::ops::RangeInclusive<u64>> = Vec::new();
        let mut from = 1;
        for rewind in self.rewinds.iter().filter(|rewind| rewind.at <= last) {
            spans.push(from..=rewind.at.saturating_sub(1));
            spans.retain(|span| *span.start() <= rewind.to);
            if let Some(end) = spans.last_mut() {
                *end = *end.start()..=rewind.to.min(*end.end());
            }
            from = rewind.at;
        }
        spans.push(from..=last);
        spans.retain(|span| !span.is_empty());
        spans
    }
}

/// A rewind: history continues from an earlier record. The records in between become invalid but
/// are not deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewind {
    /// The sequence number of the rewind record.
    pub at: u64,
    /// The record to which the log was rewound. It is the last valid record before `at`.
    pub to: u64,
}

/// The number of a lease. Each new lease on a log gets a higher number, so that the store can
/// reject writes by an earlier lease holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub NonZeroU64);

/// An exclusive right to write to a log for a limited time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The fence that each write must include.
    pub fence: Fence,
    /// When the lease expires, by the database's clock.
    pub until: Timestamp,
}

/// A stored request to a person, with its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingEntry {
    /// The id of the request, unique within the tenant.
    pub id: Name,
    /// The kind of request, such as `approval` or `question`.
    pub kind: Name,
    /// The log that waits for the answer.
    pub log: LogId,
    /// The sequence number of the record that contains the request.
    pub seq: u64,
    /// When the request was created.
    pub opened: Timestamp,
    /// When the request expires; `None` if it never expires.
    pub expires: Option<Timestamp>,
    /// The status of the request.
    pub status: PendingStatus,
}

words! {
    /// The status of a request to a person.
    PendingStatus {
        /// The request waits for an answer.
        Open = "open",
        /// The request was decided. A request can be decided only once.
        Taken = "taken",
        /// The request expired without a decision.
        Expired = "expired",
    }
}

#[cfg(test)]
#[path = "store/store_tests.rs"]
mod store_tests;
