//! Records, salts and API keys as the database stores them.

use bytes::Bytes;
use throughline_core::{Digest, ElisionReason, ForkPoint, LogId, Tenant, WrittenRange, kind};
use throughline_json::Name;

use crate::chain::{Header, Link};
use crate::row_mac::{Field, fields};

#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) seq: u64,
    pub(crate) kind: Name,
    pub(crate) at: i64,
    /// Number of events in the record. `last_event` is the number of its last event.
    pub(crate) events: u32,
    pub(crate) last_event: Option<u64>,
    pub(crate) about: Option<i64>,
    pub(crate) size: u64,
    pub(crate) commitment: Digest,
    pub(crate) link: Link,
    pub(crate) writer: Name,
    pub(crate) position: u64,
    pub(crate) blob: Option<i64>,
    pub(crate) content: Option<Bytes>,
    pub(crate) salt: Option<Salt>,
    pub(crate) erased: Option<ErasureReason>,
}

impl Row {
    /// Returns the metadata that the record's link covers.
    pub(crate) fn header<'r>(
        &'r self,
        tenant: &'r Tenant,
        log: &'r LogId,
        nature: &'r str,
    ) -> Header<'r> {
        Header {
            tenant,
            log,
            nature,
            seq: self.seq,
            kind: &self.kind,
            at: self.at,
            events: self.events,
            last_event: self.last_event,
            about: self.about,
            size: self.size,
            writer: &self.writer,
            position: self.position,
        }
    }
}

/// A record with its id, tenant and log, for verification in commit order.
#[derive(Clone, Debug)]
pub(crate) struct ChainRow {
    pub(crate) id: i64,
    pub(crate) tenant: Tenant,
    pub(crate) log: LogId,
    pub(crate) row: Row,
}

/// A salt and the id of its record.
#[derive(Clone, Debug)]
pub(crate) struct SaltRow {
    pub(crate) record: i64,
    pub(crate) salt: Salt,
}

/// A stored API key. The store keeps only a keyed hash of the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiKeyRow {
    pub(crate) tenant: Tenant,
    pub(crate) id: Name,
    pub(crate) label: Name,
    pub(crate) limits: Name,
    pub(crate) hash: Digest,
    pub(crate) created: i64,
    pub(crate) revoked: Option<i64>,
    /// MAC over all other fields except `created`; see `ApiKeyMac` in `protection`.
    pub(crate) mac: Option<Digest>,
}

impl ApiKeyRow {
    /// Returns the fields that the index row's MAC covers.
    pub(crate) fn fields(&self, tenant: i64) -> [Field<'_>; 7] {
        let Self { id, label, limits, hash, revoked, mac, .. } = self;
        fields![tenant, &**id, &**label, &**limits, hash, *revoked, mac.as_ref()]
    }
}

/// A stored salt: wrapped under a master key epoch, or plain in epoch 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Salt {
    pub(crate) epoch: u32,
    pub(crate) bytes: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i16)]
pub(crate) enum ErasureReason {
    Forgotten = 1,
    Expired = 2,
}

impl ErasureReason {
    pub(crate) const ALL: [Self; 2] = [ErasureReason::Forgotten, ErasureReason::Expired];

    pub(crate) fn number(self) -> i16 {
        self as i16
    }

    /// Returns the number as a byte, for packs.
    pub(crate) fn byte(self) -> u8 {
        match self {
            ErasureReason::Forgotten => 1,
            ErasureReason::Expired => 2,
        }
    }

    pub(crate) fn from_number(number: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.number() == number)
    }

    /// Returns the kind of the erasure records that are written for this reason.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            ErasureReason::Forgotten => kind::FORGOTTEN,
            ErasureReason::Expired => kind::EXPIRED,
        }
    }

    pub(crate) fn from_kind(kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.kind() == kind)
    }

    /// Returns the reason in the form used in Fates.
    pub(crate) fn to_elision_reason(self) -> ElisionReason {
        match self {
            ErasureReason::Forgotten => ElisionReason::Forgotten,
            ErasureReason::Expired => ElisionReason::Expired,
        }
    }
}

/// Builds a log's fork point from its parent and position columns. Returns `None` if the log is not
/// a fork.
pub(crate) fn fork_of(log: Option<LogId>, at: Option<u64>) -> Option<ForkPoint> {
    Some(ForkPoint { log: log?, at: at? })
}

/// Parses a line of a stored receipt: `log first last events`, separated by tabs.
pub(crate) fn parse_written(line: &str) -> Option<WrittenRange> {
    let mut fields = line.rsplitn(4, '\t');
    let mut number = || fields.next()?.parse().ok();
    let (events, last, first) = (number()?, number()?, number()?);
    Some(WrittenRange { log: LogId::from(fields.next()?), first, last, events })
}
