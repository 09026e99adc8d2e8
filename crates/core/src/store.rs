//! The port behind which everything durable lies.
//!
//! What happened is kept as [`Record`]s in logs: one log per Thread, one per Run. A log is append-only; its records are
//! numbered from 1 without a gap, and their order is that number and never a time. There is one write, [`Store::commit`]:
//! it takes a [`Batch`], everything that belongs to one decision, and keeps all of it or nothing.
//!
//! Every call names a tenant, and sees only what is that tenant's.

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

pub use crate::store::batch::{
    Append, Asked, Batch, ForkPoint, LogKind, LogOpening, NewRecord, Receipt, Written, kind,
};
pub use crate::store::error::StoreError;
pub use crate::store::events::{EventWriter, Follow, Pack, pack, split, unpack};
pub use crate::store::fold::{Fold, Folded};
pub use crate::store::vault::{Era, Found, NodeId, Sight, VaultKey, VaultNode, VaultTurn};

use crate::fate::Why;
use crate::name::Name;

/// What a port answers, later.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Whose data it is. Nothing of one tenant is ever visible to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tenant(pub Name);

/// The name of a log: a Thread's or a Run's id.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogId(pub Name);

crate::name::text_id!(Tenant, LogId);

/// Everything durable.
pub trait Store: Send + Sync {
    /// Keeps all of the batch or nothing. It is acknowledged when it is durable.
    fn commit(&self, batch: Batch) -> Boxed<'_, Receipt>;

    /// The records of a log after that sequence number, at most `limit` of them. A fork's history is read through it.
    fn read<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        after: u64,
        limit: u32,
    ) -> Boxed<'a, Vec<Record>>;

    /// The sequence number after which the events with a higher number than `event` are read.
    fn place_of_event<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        event: u64,
    ) -> Boxed<'a, u64>;

    /// Waits until the log has a record after that sequence number, whichever process wrote it.
    fn wait<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId, after: u64) -> Boxed<'a, ()>;

    /// What the log is and how far it goes.
    fn log<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId) -> Boxed<'a, Option<LogHead>>;

    /// The last checkpoint that still holds, at or before that sequence number.
    fn checkpoint<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        at_most: u64,
    ) -> Boxed<'a, Option<Record>>;

    /// Takes the log for `owner`, until the time is up. Nobody else can write behind a fence meanwhile.
    fn lease<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        owner: &'a str,
        time: Duration,
    ) -> Boxed<'a, Lease>;

    /// Holds a lease for longer. It is [`StoreError::Fenced`] once the time was up.
    fn renew<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        fence: Fence,
        time: Duration,
    ) -> Boxed<'a, Lease>;

    /// Gives a lease back. One that was lost already is not an error.
    fn release<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId, fence: Fence) -> Boxed<'a, ()>;

    /// The captured turns that these keys name, one answer for each key, and the era in which they stand so.
    fn find<'a>(&'a self, tenant: &'a Tenant, keys: &'a [VaultKey]) -> Boxed<'a, Sight>;

    /// Destroys all that a Run says, for good: nobody reads it any more. That there was a Run stays, and that it was forgotten.
    fn forget_run<'a>(&'a self, tenant: &'a Tenant, run: &'a LogId) -> Boxed<'a, ()>;

    /// Writes the events of a Run, which exists, by that right.
    fn events(&self, tenant: &Tenant, run: &LogId, fence: Option<Fence>) -> Box<dyn EventWriter>;

    /// The Runs of a Thread, the newest first: at most `limit` of them, older than `before`.
    fn runs_of<'a>(
        &'a self,
        tenant: &'a Tenant,
        thread: &'a LogId,
        before: Option<&'a LogId>,
        limit: u32,
    ) -> Boxed<'a, Vec<LogHead>>;

    /// What waits for a person, of one log or of all.
    fn pending<'a>(&'a self, tenant: &'a Tenant, log: Option<&'a LogId>)
    -> Boxed<'a, Vec<Pending>>;

    /// The Runs of all tenants that nobody holds although there is something to do: they stand as [`RUNNING`] and nobody has
    /// written to them for so long, or they wait for somebody whose time was up since. At most `limit` of them, behind the one of that place. It is the one reading that names no tenant: whoever asks goes on
    /// with Runs for all of them.
    fn unattended(&self, idle: Duration, after: u64, limit: u32) -> Boxed<'_, Vec<Unattended>>;

    /// Writes something small that changes nothing, to learn whether writes succeed.
    fn probe(&self) -> Boxed<'_, ()> {
        Box::pin(async {
            let (tenant, log) = (Tenant::from("throughline-probe"), LogId::from("probe"));
            let lease = self.lease(&tenant, &log, "probe", Duration::from_millis(1)).await;
            match lease {
                Ok(_) | Err(StoreError::Held { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        })
    }
}

/// The status of a Run that somebody should be at.
pub const RUNNING: &str = "running";

/// A Run that nobody is at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unattended {
    /// Whose it is.
    pub tenant: Tenant,
    /// The Run.
    pub run: LogId,
    /// Where it stands among those of all tenants.
    pub place: u64,
}

/// One entry of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its number in the log, from 1, without a gap.
    pub seq: u64,
    /// What it is; see [`kind`].
    pub kind: Name,
    /// When the database took it. For people: order is by `seq`.
    pub at: Timestamp,
    /// The numbers of the events that it holds: the first and the last.
    pub events: Option<(u64, u64)>,
    /// What it says.
    pub content: Content,
}

/// What a record says, if it can still be said.
#[derive(Clone, PartialEq, Eq)]
pub enum Content {
    /// The bytes, exactly as they were given.
    Here(Bytes),
    /// They are no more: [`Why::Forgotten`] or [`Why::Expired`].
    Gone(Why),
}

impl Content {
    /// The bytes, if they are there.
    pub fn bytes(&self) -> Option<&Bytes> {
        match self {
            Content::Here(bytes) => Some(bytes),
            Content::Gone(_) => None,
        }
    }
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Contents may hold seals, so only their size is told.
        match self {
            Content::Here(bytes) => write!(f, "Here({} B)", bytes.len()),
            Content::Gone(why) => write!(f, "Gone({why})"),
        }
    }
}

/// What a log is and how far it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogHead {
    /// Its name.
    pub log: LogId,
    /// A Thread or a Run.
    pub kind: LogKind,
    /// The Thread of a Run.
    pub of: Option<LogId>,
    /// Where it was forked off.
    pub fork: Option<ForkPoint>,
    /// The rewinds, oldest first: the record that rewound, and to where.
    pub rewinds: Vec<Rewind>,
    /// A word that its writers keep up to date, as `running`.
    pub status: Option<Name>,
    /// The last sequence number.
    pub last: u64,
    /// The last event's number.
    pub events: u64,
    /// How many bytes its own records have, before sealing.
    pub bytes: u64,
    /// When it began.
    pub created: Timestamp,
    /// When it was last written to.
    pub updated: Timestamp,
    /// Whether its content is no more, and why.
    pub gone: Option<Why>,
}

impl LogHead {
    /// The spans of sequence numbers that hold when the log is read up to `last`: what was rewound is not among them.
    pub fn spans(&self, last: u64) -> Vec<std::ops::RangeInclusive<u64>> {
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

/// A rewind: history goes on from an earlier place, and nothing is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewind {
    /// The record that says so.
    pub at: u64,
    /// The last record before it that still holds.
    pub to: u64,
}

/// The right to write to a log, as a number that only ever grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub NonZeroU64);

/// A log that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// What each write must show.
    pub fence: Fence,
    /// Until when, by the database's clock.
    pub until: Timestamp,
}

/// Something that waits for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Its id, unique in the tenant.
    pub id: Name,
    /// What it is, as `approval` or `question`.
    pub kind: Name,
    /// The log that waits.
    pub log: LogId,
    /// The record that says what is asked.
    pub seq: u64,
    /// When it was asked.
    pub opened: Timestamp,
    /// When it is too late to answer.
    pub expires: Option<Timestamp>,
    /// What became of it.
    pub status: PendingStatus,
}

/// What became of something that waited for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PendingStatus {
    /// It waits.
    Open,
    /// It was decided, once.
    Taken,
    /// Nobody decided in time.
    Expired,
}

impl PendingStatus {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            PendingStatus::Open => "open",
            PendingStatus::Taken => "taken",
            PendingStatus::Expired => "expired",
        }
    }
}

impl std::fmt::Display for PendingStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
#[path = "store/store_tests.rs"]
mod store_tests;
