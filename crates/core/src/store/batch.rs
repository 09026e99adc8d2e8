//! One decision, and everything that is to be kept of it.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use crate::name::Name;
use crate::store::{Fence, LogId, Tenant, VaultNode};

/// The kinds of records that the store itself knows. Others are their writers' own.
pub mod kind {
    /// An Item of a Thread.
    pub const ITEM: &str = "item";
    /// Events of a Run, packed; see [`NewRecord::events`](super::NewRecord::events).
    pub const EVENTS: &str = "events";
    /// A change of the state, which is a fold of them.
    pub const STATE: &str = "state";
    /// The state so far, so that it need not be folded from the beginning.
    pub const CHECKPOINT: &str = "checkpoint";
    /// What other records of a Thread say, once more; see [`NewRecord::copy`](super::NewRecord::copy).
    pub const COPY: &str = "copy";
    /// History goes on from an earlier place.
    pub const REWIND: &str = "rewind";
    /// Content was destroyed on request.
    pub const FORGOTTEN: &str = "forgotten";
    /// Content was destroyed because its time was up.
    pub const EXPIRED: &str = "expired";
}

/// Everything of one decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Whose it is.
    pub tenant: Tenant,
    /// Names that make it happen once: if a batch with the same names was kept before, nothing happens, and the first
    /// one's receipt is given again.
    pub once: Vec<Name>,
    /// What is added, log by log. Each log stands here once.
    pub appends: Vec<Append>,
    /// Captured turns, whose contents are among the records.
    pub vault: Vec<VaultNode>,
    /// What from now on waits for a person.
    pub asks: Vec<Asked>,
    /// What waited for a person and is decided by this batch. Each can be decided once.
    pub takes: Vec<Name>,
}

impl Batch {
    /// A batch of that tenant, still empty.
    pub fn of(tenant: impl Into<Tenant>) -> Self {
        let (once, appends, vault) = (Vec::new(), Vec::new(), Vec::new());
        let (asks, takes) = (Vec::new(), Vec::new());
        Self { tenant: tenant.into(), once, appends, vault, asks, takes }
    }

    /// The same, with this appended.
    #[must_use]
    pub fn append(mut self, append: Append) -> Self {
        self.appends.push(append);
        self
    }

    /// The same, to happen once under that name.
    #[must_use]
    pub fn once(mut self, name: impl Into<Name>) -> Self {
        self.once.push(name.into());
        self
    }
}

/// What is added to one log.
#[derive(Clone, Debug, PartialEq)]
pub struct Append {
    /// The log.
    pub log: LogId,
    /// What the log is, where this begins it. It must not exist then.
    pub opening: Option<LogOpening>,
    /// The last sequence number that the writer knows of; nothing where it does not matter.
    pub expect: Option<u64>,
    /// The writer's right to write. Whoever has none writes to a log that nobody holds.
    pub fence: Option<Fence>,
    /// What is added, in order.
    pub records: Vec<NewRecord>,
    /// Goes on from that sequence number, before anything is added.
    pub rewind_to: Option<u64>,
    /// A word that says how the log stands, as `running`. It is not content: it is never sealed or forgotten.
    pub status: Option<Name>,
}

impl Append {
    /// Adds to that log.
    pub fn to(log: impl Into<LogId>) -> Self {
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

    /// The same, where the log begins.
    #[must_use]
    pub fn opening(mut self, opening: LogOpening) -> Self {
        self.opening = Some(opening);
        self
    }

    /// The same, only if the log's last sequence number is that.
    #[must_use]
    pub fn expecting(mut self, last: u64) -> Self {
        self.expect = Some(last);
        self
    }

    /// The same, behind that fence.
    #[must_use]
    pub fn behind(mut self, fence: Fence) -> Self {
        self.fence = Some(fence);
        self
    }

    /// The same, with one record more.
    #[must_use]
    pub fn record(mut self, record: NewRecord) -> Self {
        self.records.push(record);
        self
    }

    /// The same, with that status.
    #[must_use]
    pub fn status(mut self, status: impl Into<Name>) -> Self {
        self.status = Some(status.into());
        self
    }
}

/// A log that begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOpening {
    /// A Thread or a Run.
    pub kind: LogKind,
    /// The Thread of a Run.
    pub of: Option<LogId>,
    /// Where it forks off. Its own records go on from there.
    pub fork: Option<ForkPoint>,
}

impl LogOpening {
    /// A Thread of its own.
    pub fn thread() -> Self {
        Self { kind: LogKind::Thread, of: None, fork: None }
    }

    /// A Thread that shares another's history up to `at`.
    pub fn fork(log: impl Into<LogId>, at: u64) -> Self {
        let fork = Some(ForkPoint { log: log.into(), at });
        Self { kind: LogKind::Thread, of: None, fork }
    }

    /// A Run on that Thread.
    pub fn run(of: impl Into<LogId>) -> Self {
        Self { kind: LogKind::Run, of: Some(of.into()), fork: None }
    }
}

/// What a log is the log of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogKind {
    /// One conversation.
    Thread,
    /// One execution of the agent loop, or one call through the gateway.
    Run,
}

impl LogKind {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            LogKind::Thread => "thread",
            LogKind::Run => "run",
        }
    }
}

impl std::fmt::Display for LogKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// Where a Thread forks off another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkPoint {
    /// The Thread whose history is shared.
    pub log: LogId,
    /// The last record that is.
    pub at: u64,
}

/// A record that is to be kept.
#[derive(Clone, PartialEq, Eq)]
pub struct NewRecord {
    /// What it is; see [`kind`].
    pub kind: Name,
    /// What it says.
    pub content: Bytes,
    /// How many events of a Run it holds: they are numbered by the store.
    pub events: u32,
    /// What it is about, as an Item's id: forgetting that forgets this too.
    pub about: Option<Name>,
    /// When it happened, where that is long ago: for imports.
    pub at: Option<Timestamp>,
}

impl NewRecord {
    /// A record of that kind.
    pub fn new(kind: impl Into<Name>, content: impl Into<Bytes>) -> Self {
        Self { kind: kind.into(), content: content.into(), events: 0, about: None, at: None }
    }

    /// A record that repeats what other records of that Thread say: forgetting any of them forgets this too, in whichever log
    /// it is. A captured turn is whole without it.
    pub fn copy(thread: &LogId, content: impl Into<Bytes>) -> Self {
        Self::new(kind::COPY, content).about(format!("{thread}/"))
    }

    /// The same, about something.
    #[must_use]
    pub fn about(mut self, about: impl Into<Name>) -> Self {
        self.about = Some(about.into());
        self
    }
}

impl std::fmt::Debug for NewRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Contents may hold seals, so only their size is told.
        write!(f, "NewRecord({}, {} B)", self.kind, self.content.len())
    }
}

/// Something that from now on waits for a person. What is asked is the last record of `log` in the same batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its id, unique in the tenant.
    pub id: Name,
    /// What it is, as `approval` or `question`.
    pub kind: Name,
    /// The log that waits.
    pub log: LogId,
    /// How long it can be answered; for ever without.
    pub expires_in: Option<Duration>,
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// What was written, in the order of the batch's appends.
    pub written: Vec<Written>,
    /// Whether it had been written before, and nothing happened now.
    pub repeated: bool,
}

/// What was written to one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The log.
    pub log: LogId,
    /// The first sequence number that was added; one more than `last` where none was.
    pub first: u64,
    /// The last sequence number of the log now.
    pub last: u64,
    /// The last event's number now.
    pub events: u64,
}
