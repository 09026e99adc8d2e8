//! A batch in the form that a backend receives: sealed content, keyed hashes, and erasures.

use std::hash::{Hash, Hasher};

use bytes::Bytes;
use jiff::Timestamp;
use throughline_core::{Digest, Fence, LogId, LogOpening, PendingRequest, Tenant, TurnId};
use throughline_json::Name;

use crate::row::{ApiKeyRow, ErasureReason, Salt};

/// A batch whose record content is sealed.
#[derive(Clone, Debug)]
pub(crate) struct SealedBatch {
    pub(crate) tenant: Tenant,
    /// The idempotency names, each as a keyed hash and as plain text for error messages.
    pub(crate) once: Vec<(Hash16, Name)>,
    pub(crate) appends: Vec<SealedAppend>,
    pub(crate) vault: Vec<SealedTurn>,
    pub(crate) asks: Vec<PendingRequest>,
    pub(crate) takes: Vec<Name>,
    /// Content to destroy after everything else in the batch is written.
    pub(crate) erases: Vec<Erasure>,
    /// API keys to add or revoke.
    pub(crate) keys: Vec<KeyChange>,
}

#[derive(Clone, Debug)]
pub(crate) enum KeyChange {
    /// Adds a key. The database sets the creation time.
    Add(ApiKeyRow),
    /// Revokes a key. Fails with a conflict if the key was already revoked.
    Revoke { id: Name, at: i64, mac: Digest },
}

/// An append of sealed records to one log.
#[derive(Clone, Debug)]
pub(crate) struct SealedAppend {
    pub(crate) log: LogId,
    pub(crate) opening: Option<LogOpening>,
    pub(crate) expect: Option<u64>,
    /// The condition that the log's lease must satisfy.
    pub(crate) guard: Guard,
    pub(crate) records: Vec<SealedRecord>,
    /// The sequence number to rewind the log to before the first record is appended.
    pub(crate) rewind_to: Option<u64>,
    pub(crate) status: Option<Name>,
}

/// The condition that the log's lease must satisfy before a batch may write to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// No lease may be active on the log.
    Free,
    /// The lease with this fence must be active.
    Behind(Fence),
    /// The batch is an operator command, such as forgetting, and ignores leases.
    Operator,
}

#[derive(Clone, Debug)]
pub(crate) struct SealedRecord {
    pub(crate) kind: Name,
    /// Time of the record in milliseconds since 1970; `None` uses the database's clock.
    pub(crate) at: Option<i64>,
    pub(crate) events: u32,
    /// Keyed hash of the record's subject.
    pub(crate) about: Option<i64>,
    /// Length of the plain content in bytes.
    pub(crate) size: u64,
    pub(crate) commitment: Digest,
    /// The sealed content or, if `blob` is set, the sealed key of the blob.
    pub(crate) content: Bytes,
    pub(crate) salt: Salt,
    pub(crate) blob: Option<SealedBlob>,
}

/// Content of a large record, stored once per tenant.
#[derive(Clone, Debug)]
pub(crate) struct SealedBlob {
    /// Keyed hash of the plain content.
    pub(crate) id: Digest,
    pub(crate) content: Bytes,
}

/// A keyed hash, truncated to 16 bytes.
pub(crate) type Hash16 = [u8; 16];

#[derive(Clone, Debug)]
pub(crate) struct SealedTurn {
    pub(crate) id: TurnId,
    pub(crate) parent: Option<TurnId>,
    pub(crate) keys: Vec<SealedKey>,
    pub(crate) log: LogId,
    pub(crate) prefix: Option<Digest>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SealedKey {
    pub(crate) kind: KeyKind,
    pub(crate) hash: Hash16,
}

/// Uses only the first half of the keyed hash, which distinguishes nearly all keys.
impl Hash for SealedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let half = self.hash.first_chunk().copied().unwrap_or_default();
        state.write_u64(u64::from_ne_bytes(half));
    }
}

/// The kind of key that identifies a captured turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i16)]
pub(crate) enum KeyKind {
    Claim = 1,
    Id = 2,
    Chain = 3,
}

impl KeyKind {
    const ALL: [Self; 3] = [KeyKind::Claim, KeyKind::Id, KeyKind::Chain];

    pub(crate) fn number(self) -> i16 {
        self as i16
    }

    /// Returns the number as a byte, for keys in a turn's row.
    pub(crate) fn byte(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.byte() == byte)
    }
}

/// Content to destroy in one log: salts, sealed bytes, and blobs that no other record references.
#[derive(Clone, Debug)]
pub(crate) struct Erasure {
    pub(crate) log: LogId,
    /// Sequence numbers of the records to destroy. `None` destroys all records of the log, but not
    /// those that a fork shares with its parent.
    pub(crate) seqs: Option<Vec<u64>>,
    /// Whether all checkpoints in the log are destroyed too, even those written after the caller's
    /// last read.
    pub(crate) checkpoints: bool,
    /// The reason recorded for the log and its turns.
    pub(crate) reason: ErasureReason,
    /// The number of runs and forks that the caller expects the log to have. The batch fails with a
    /// conflict if the number differs, because a run or fork was started since the caller's last
    /// read.
    pub(crate) child_count: Option<u64>,
    /// Name and content of an internal value that lists the remaining cleanup. The value is stored
    /// in the transaction that destroys the content.
    pub(crate) note: Option<(String, Bytes)>,
    /// The time of the erasure record in the log; `None` uses the current time.
    pub(crate) noted_at: Option<Timestamp>,
}

impl Erasure {
    pub(crate) fn all(log: LogId, reason: ErasureReason) -> Self {
        Self {
            log,
            seqs: None,
            checkpoints: false,
            reason,
            child_count: None,
            note: None,
            noted_at: None,
        }
    }

    pub(crate) fn records(log: LogId, seqs: Vec<u64>, reason: ErasureReason) -> Self {
        Self { seqs: Some(seqs), ..Self::all(log, reason) }
    }
}
