//! Batches: sets of writes that a store applies atomically.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use throughline_json::{Name, words};

use crate::store::{Fence, LogId, NewVaultTurn, Tenant};

/// The record kinds that the store interprets. Writers may define other kinds.
pub mod kind {
    /// An Item of a Thread.
    pub const ITEM: &str = "item";
    /// Packed events of a Run; see [`NewRecord::events`](super::NewRecord::events).
    pub const EVENTS: &str = "events";
    /// A state change. The state is computed by folding these records.
    pub const STATE: &str = "state";
    /// A snapshot of the folded state, so that folding can start at the snapshot instead of the
    /// first record.
    pub const CHECKPOINT: &str = "checkpoint";
    /// A copy of content from other records of a Thread; see
    /// [`NewRecord::copy`](super::NewRecord::copy).
    pub const COPY: &str = "copy";
    /// A rewind: history continues from an earlier record.
    pub const REWIND: &str = "rewind";
    /// Content was erased on request.
    pub const FORGOTTEN: &str = "forgotten";
    /// Content was erased because its retention period ended.
    pub const EXPIRED: &str = "expired";
}

/// A set of writes that a store applies atomically.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The tenant that owns the data.
    pub tenant: Tenant,
    /// Idempotency keys. If a batch with the same keys was stored before, the store writes nothing
    /// and returns the receipt of the first batch.
    pub once: Vec<Name>,
    /// The additions to logs, at most one per log.
    pub appends: Vec<Append>,
    /// Captured turns to store. Their content is in the records of this batch.
    pub vault: Vec<NewVaultTurn>,
    /// Requests to people that this batch creates.
    pub asks: Vec<PendingRequest>,
    /// Ids of the requests to people that this batch decides. A request can be decided only once.
    pub takes: Vec<Name>,
}

impl Batch {
    /// Creates a batch without writes.
    pub fn new(tenant: impl Into<Tenant>) -> Self {
        let (once, appends, vault) = (Vec::new(), Vec::new(), Vec::new());
        let (asks, takes) = (Vec::new(), Vec::new());
        Self { tenant: tenant.into(), once, appends, vault, asks, takes }
    }

    /// Adds an append, which contains the records and changes for one log.
    #[must_use]
    pub fn append(mut self, append: Append) -> Self {
        self.appends.push(append);
        self
    }

    /// Adds an idempotency key; see [`Batch::once`].
    #[must_use]
    pub fn with_idempotency_key(mut self, name: impl Into<Name>) -> Self {
        self.once.push(name.into());
        self
    }
}

/// The records and changes to append to one log.
#[derive(Clone, Debug, PartialEq)]
pub struct Append {
    /// The log to append to.
    pub log: LogId,
    /// The properties of the new log, if this append creates the log. The commit then fails if the
    /// log exists.
    pub opening: Option<LogOpening>,
    /// The log's last sequence number as the writer knows it; the commit fails if it differs.
    /// `None` disables the check.
    pub expect: Option<u64>,
    /// The fence of the writer's lease. Without a fence, the commit fails if the log is leased.
    pub fence: Option<Fence>,
    /// The new records, in order.
    pub records: Vec<NewRecord>,
    /// The sequence number to which the log is rewound before the records are added; `None` for no
    /// rewind.
    pub rewind_to: Option<u64>,
    /// The new status of the log, such as `running`. The status is not content: it is never
    /// encrypted or erased.
    pub status: Option<Name>,
}

impl Append {
    /// Creates an append without records, checks or a new status.
    pub fn new(log: impl Into<LogId>) -> Self {
        Self {
            log: log.into(),
            opening: None,
            expect: None,
            fence: None,
            records: Vec::new(),
            rewind_to: None,
            status: None,
        }
    }

    /// Makes the append create the log with these properties. The commit fails if the log exists.
    #[must_use]
    pub fn opening(mut self, opening: LogOpening) -> Self {
        self.opening = Some(opening);
        self
    }

    /// Makes the commit fail unless the log's last sequence number is `last`.
    #[must_use]
    pub fn expect_last(mut self, last: u64) -> Self {
        self.expect = Some(last);
        self
    }

    /// Sets the fence of the writer's lease.
    #[must_use]
    pub fn with_fence(mut self, fence: Fence) -> Self {
        self.fence = Some(fence);
        self
    }

    /// Adds a record after the records added so far.
    #[must_use]
    pub fn record(mut self, record: NewRecord) -> Self {
        self.records.push(record);
        self
    }

    /// Sets the new status of the log, such as `running`.
    #[must_use]
    pub fn status(mut self, status: impl Into<Name>) -> Self {
        self.status = Some(status.into());
        self
    }
}

/// The properties of a new log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOpening {
    /// Whether the log belongs to a Thread or a Run.
    pub kind: LogKind,
    /// The Thread that the Run belongs to; `None` if the log belongs to a Thread.
    pub of: Option<LogId>,
    /// The fork point, if the log is a fork. The log's own records follow the shared records.
    pub fork: Option<ForkPoint>,
}

impl LogOpening {
    /// Describes a new Thread without history.
    pub fn thread() -> Self {
        Self { kind: LogKind::Thread, of: None, fork: None }
    }

    /// Describes a Thread that shares the history of the Thread `log` up to record `at`.
    pub fn fork(log: impl Into<LogId>, at: u64) -> Self {
        let fork = Some(ForkPoint { log: log.into(), at });
        Self { kind: LogKind::Thread, of: None, fork }
    }

    /// Describes a Run on a Thread.
    pub fn run(of: impl Into<LogId>) -> Self {
        Self { kind: LogKind::Run, of: Some(of.into()), fork: None }
    }
}

words! {
    /// The kind of a log.
    LogKind {
        /// The history of one conversation.
        Thread = "thread",
        /// An execution of the agent loop, or a gateway call.
        Run = "run",
    }
}

/// The point in a Thread's history where another Thread was forked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkPoint {
    /// The Thread whose history is shared.
    pub log: LogId,
    /// The sequence number of the last shared record.
    pub at: u64,
}

/// A record to append to a log.
#[derive(Clone, PartialEq, Eq)]
pub struct NewRecord {
    /// The kind of record; see [`kind`].
    pub kind: Name,
    /// The bytes to store.
    pub content: Bytes,
    /// The number of events that the record contains; 0 if it contains none. The store assigns the
    /// event numbers.
    pub events: u32,
    /// The subject, such as an Item id; erasing the subject erases this record.
    pub about: Option<Name>,
    /// The time of the record, for imports of older data; `None` uses the current time.
    pub at: Option<Timestamp>,
}

impl NewRecord {
    /// Creates a record without events or a subject.
    pub fn new(kind: impl Into<Name>, content: impl Into<Bytes>) -> Self {
        Self { kind: kind.into(), content: content.into(), events: 0, about: None, at: None }
    }

    /// Creates a record that repeats content from other records of the Thread `thread`. Erasing an
    /// Item of that Thread also erases this record, even if the record is in another log. Captured
    /// turns do not need this record.
    pub fn copy(thread: &LogId, content: impl Into<Bytes>) -> Self {
        Self::new(kind::COPY, content).about(format!("{thread}/"))
    }

    /// Sets the subject, such as an Item id. Erasing the subject erases the record.
    #[must_use]
    pub fn about(mut self, about: impl Into<Name>) -> Self {
        self.about = Some(about.into());
        self
    }
}

impl std::fmt::Debug for NewRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The content may include Seals, so only its size is printed.
        write!(f, "NewRecord({}, {} B)", self.kind, self.content.len())
    }
}

/// A new request to a person. The last record that the same batch adds to `log` contains the
/// question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRequest {
    /// The id, unique within the tenant.
    pub id: Name,
    /// The kind of request, such as `approval` or `question`.
    pub kind: Name,
    /// The log that waits for the answer.
    pub log: LogId,
    /// The time after which the request expires; `None` if it never expires.
    pub expires_in: Option<Duration>,
}

/// The result of [`Store::commit`](crate::Store::commit).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The ranges of written records, one per append of the batch and in the same order.
    pub written: Vec<WrittenRange>,
    /// Whether the store wrote nothing because a batch with the same idempotency keys was stored
    /// before.
    pub repeated: bool,
}

/// The range of records written to one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenRange {
    /// The log that received the records.
    pub log: LogId,
    /// The sequence number of the first new record; `last + 1` if no record was added.
    pub first: u64,
    /// The log's last sequence number after the commit.
    pub last: u64,
    /// The number of the log's last event after the commit.
    pub events: u64,
}
