//! What a database must do for us. It sees sealed bytes and digests, and no content.
//!
//! Both backends have the same rooms and the same tables. What they need not know is done once, above them: sealing and
//! opening, reading through forks, forgetting, exporting, proving.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use throughline_core::{
    Asked, Boxed, Digest, Fence, ForkPoint, Lease, LogHead, LogId, LogKind, LogOpening, Name,
    NodeId, Pending, Receipt, Sight, Tenant, Unattended,
};

use crate::backups::file::NewBackup;
use crate::chain::{Head, Header, Link};
use crate::keys::ApiKeyMac;
use crate::manifest::{Manifest, Signer};
use crate::row_mac::{Field, RowKey, RowState};
use crate::verify::RowsRead;

/// A database.
pub(crate) trait Backend: Send + Sync {
    /// Keeps all of the batch or nothing, and answers when it is durable.
    fn commit(&self, batch: SealedBatch) -> Boxed<'_, Receipt>;

    /// Gives the backend the key of row MACs. A store of schema version 1 is brought to version 2, and all its rows are
    /// counted, in one transaction.
    fn protect(&self, protection: Protection) -> Boxed<'_, ()>;

    /// From now on its writer signs a manifest of the heads that moved, at least every second while it writes, and when it
    /// closes.
    fn sign_with(&self, signer: Arc<Signer>);

    /// The log's row.
    fn log<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId) -> Boxed<'a, Option<LogHead>>;

    /// The rows of several logs.
    fn logs<'a>(&'a self, tenant: &'a Tenant, listing: Listing) -> Boxed<'a, Vec<LogHead>>;

    /// The log's own records in that span, in order.
    fn rows<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId, span: Span) -> Boxed<'a, Vec<Row>>;

    /// The sequence number of the last own record that holds no event above `event`.
    fn place_of_event<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        event: u64,
    ) -> Boxed<'a, u64>;

    /// The last own checkpoint at or before that sequence number whose content is still there.
    fn checkpoint<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        at_most: u64,
    ) -> Boxed<'a, Option<Row>>;

    /// All records about something, in any log.
    fn about<'a>(&'a self, tenant: &'a Tenant, about: i64) -> Boxed<'a, Vec<(LogId, u64)>>;

    /// A sealed large content, and the keyed hash of what it says.
    fn blob<'a>(&'a self, tenant: &'a Tenant, blob: i64) -> Boxed<'a, Option<(Digest, Bytes)>>;

    /// Waits until the log's last sequence number is above `after`, whichever process wrote it.
    fn wait<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId, after: u64) -> Boxed<'a, ()>;

    /// Takes the log for `owner`, if nobody else holds it. Each taking has a higher fence, also when an owner takes again.
    fn lease<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        owner: &'a str,
        time: Duration,
    ) -> Boxed<'a, Lease>;

    /// Holds a lease for longer, if it still runs.
    fn renew<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        fence: Fence,
        time: Duration,
    ) -> Boxed<'a, Lease>;

    /// Gives a lease back.
    fn release<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId, fence: Fence) -> Boxed<'a, ()>;

    /// The captured turns with these keys, one answer for each, and the era: all as of one moment.
    fn find<'a>(&'a self, tenant: &'a Tenant, keys: &'a [SealedKey]) -> Boxed<'a, Sight>;

    /// What waits for a person.
    fn pending<'a>(&'a self, tenant: &'a Tenant, log: Option<&'a LogId>)
    -> Boxed<'a, Vec<Pending>>;

    /// The runs of all tenants that stand as running, are held by nobody, and were not written to for so long.
    fn unattended(&self, idle: Duration, after: u64, limit: u32) -> Boxed<'_, Vec<Unattended>>;

    /// The number of the last record of all tenants. Of those before it none is still being written.
    fn last_record(&self) -> Boxed<'_, i64>;

    /// The records of all tenants in the order in which they were written, after `after` and up to `up_to`, which is no later
    /// than [`last_record`](Self::last_record). With a tenant, only its records.
    fn chain<'a>(
        &'a self,
        of: Option<&'a Tenant>,
        after: i64,
        up_to: i64,
        limit: u32,
    ) -> Boxed<'a, Vec<ChainRow>>;

    /// Where every segment of every chain ends. With a tenant, only the segments of its chains.
    fn heads<'a>(&'a self, of: Option<&'a Tenant>) -> Boxed<'a, Vec<Head>>;

    /// The MACs of all index rows added up, and the sums that the store has of them, as of one moment. With a tenant, only
    /// its rows and sums, and nothing about the tables that belong to the whole store.
    fn read_rows<'a>(&'a self, key: RowKey, of: Option<&'a Tenant>) -> Boxed<'a, RowsRead>;

    /// Where the sums of index rows stand, for a manifest.
    fn row_states(&self) -> Boxed<'_, Vec<RowState>>;

    /// The database's time, in milliseconds.
    fn now(&self) -> Boxed<'_, i64>;

    /// The signed manifests after that one, in the order in which they were written.
    fn manifests(&self, after: i64, limit: u32) -> Boxed<'_, Vec<(i64, Manifest)>>;

    /// Who has something here.
    fn tenants(&self) -> Boxed<'_, Vec<Tenant>>;

    /// How much there is.
    fn stats(&self) -> Boxed<'_, Stats>;

    /// Salts that are wrapped under another epoch of the master key than `epoch`, of the records after `after` and up to
    /// `up_to`, in their order.
    fn salts_not_of(
        &self,
        epoch: u32,
        after: i64,
        up_to: i64,
        limit: u32,
    ) -> Boxed<'_, Vec<SaltRow>>;

    /// The records after `after` and up to `up_to` that have a salt.
    fn salted(&self, after: i64, up_to: i64) -> Boxed<'_, Vec<i64>>;

    /// Wraps salts anew. A salt that is gone meanwhile stays gone.
    fn rewrap(&self, salts: Vec<SaltRow>) -> Boxed<'_, ()>;

    /// Keeps a small value of the store's own under that name, unless there is one; gives the one that is kept.
    fn keep<'a>(&'a self, name: &'a str, value: Bytes) -> Boxed<'a, Bytes>;

    /// Replaces a small value of the store's own.
    fn replace<'a>(&'a self, name: &'a str, value: Bytes) -> Boxed<'a, ()>;

    /// Keeps that value no longer, if there is one.
    fn discard<'a>(&'a self, name: &'a str) -> Boxed<'a, ()>;

    /// The small values of the store's own whose names begin like that.
    fn kept<'a>(&'a self, begins: &'a str) -> Boxed<'a, Vec<(String, Bytes)>>;

    /// The API key with that keyed hash, unless its row is revoked; and whether the journal has a record about
    /// `revocation` all the same.
    fn key(&self, hash: Digest, revocation: i64) -> Boxed<'_, Option<(ApiKeyRow, bool)>>;

    /// All API keys of the tenant.
    fn keys<'a>(&'a self, tenant: &'a Tenant) -> Boxed<'a, Vec<ApiKeyRow>>;

    /// Sees to it that no file of the database holds what was deleted.
    fn scrub(&self) -> Boxed<'_, ()>;

    /// Gives back the space that is held in reserve for a full disk.
    fn make_room(&self) -> Boxed<'_, ()>;

    /// Holds space in reserve for a full disk, as far as there is some.
    fn keep_reserve(&self) -> Boxed<'_, ()>;

    /// Copies everything to an SQLite file and its key file, while others read and write. `progress` receives the share that is
    /// done.
    fn backup<'a>(&'a self, plan: NewBackup, progress: Progress<'a>) -> Boxed<'a, ()>;

    /// The version of its schema.
    fn version(&self) -> Boxed<'_, u32>;

    /// Whether reads see one state: the rows do not change, or are read in snapshots. A file that is opened for reading has
    /// no snapshots, and a writer may have opened it since.
    fn is_stable(&self) -> bool;

    /// Whether the database's own structure is sound; each problem as a sentence.
    fn check(&self) -> Boxed<'_, Vec<String>>;

    /// Writes what is still to be written, and closes.
    fn close(&self) -> Boxed<'_, ()>;
}

/// Hears how much of long work is done, from 0 to 1.
pub type Progress<'a> = &'a (dyn Fn(f64) + Send + Sync);

/// A batch whose contents are sealed.
#[derive(Clone, Debug)]
pub(crate) struct SealedBatch {
    pub(crate) tenant: Tenant,
    /// Keyed hashes of the names under which it happens once, with the names themselves for messages.
    pub(crate) once: Vec<(Hash16, Name)>,
    pub(crate) appends: Vec<SealedAppend>,
    pub(crate) vault: Vec<SealedNode>,
    pub(crate) asks: Vec<Asked>,
    pub(crate) takes: Vec<Name>,
    /// Contents that are destroyed with it, after everything else.
    pub(crate) erases: Vec<Erase>,
    /// API keys that are added or revoked with it.
    pub(crate) keys: Vec<KeyChange>,
}

/// What becomes of an API key.
#[derive(Clone, Debug)]
pub(crate) enum KeyChange {
    /// It is added. The database says when.
    Add(ApiKeyRow),
    /// It is revoked; one that was revoked meanwhile is a conflict.
    Revoke { id: Name, at: i64, mac: Digest },
}

/// What a backend needs to keep the MACs of index rows.
#[derive(Clone)]
pub(crate) struct Protection {
    pub(crate) key: RowKey,
    pub(crate) api_keys: ApiKeyMac,
    /// Whether the store's secret says that its rows were counted before.
    pub(crate) is_marked: bool,
    /// The store's secret with that mark, which is kept with the first count; nothing for a backup, which keeps its own.
    pub(crate) marked: Option<Bytes>,
}

/// What is added to one log.
#[derive(Clone, Debug)]
pub(crate) struct SealedAppend {
    pub(crate) log: LogId,
    pub(crate) opening: Option<LogOpening>,
    pub(crate) expect: Option<u64>,
    /// Whether the writer must show a fence where the log is held. Acts of the operator need none.
    pub(crate) guard: Guard,
    pub(crate) records: Vec<SealedRecord>,
    /// The first record is a rewind to there.
    pub(crate) rewind_to: Option<u64>,
    pub(crate) status: Option<Name>,
}

/// By what right a batch writes to a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// Nobody may hold the log.
    Free,
    /// This lease must still run.
    Behind(Fence),
    /// It is an act of the operator: forgetting and expiring do not wait for a lease.
    Operator,
}

/// A record that is to be kept.
#[derive(Clone, Debug)]
pub(crate) struct SealedRecord {
    pub(crate) kind: Name,
    /// Milliseconds; the database's clock without.
    pub(crate) at: Option<i64>,
    pub(crate) events: u32,
    /// A keyed hash of what it is about.
    pub(crate) about: Option<i64>,
    /// How many bytes the content has, unsealed.
    pub(crate) size: u64,
    pub(crate) commitment: Digest,
    /// The sealed content; of a large one, the sealed key of the blob.
    pub(crate) content: Bytes,
    pub(crate) salt: Salt,
    pub(crate) blob: Option<SealedBlob>,
}

/// A salt as it is kept: wrapped under an epoch of the master key, or plain in epoch 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Salt {
    pub(crate) epoch: u32,
    pub(crate) bytes: Bytes,
}

/// A large content that is to be kept once.
#[derive(Clone, Debug)]
pub(crate) struct SealedBlob {
    /// A keyed hash of the content.
    pub(crate) id: Digest,
    pub(crate) content: Bytes,
}

/// A keyed hash of a name.
pub(crate) type Hash16 = [u8; 16];

/// A captured turn that is to be kept.
#[derive(Clone, Debug)]
pub(crate) struct SealedNode {
    pub(crate) id: NodeId,
    pub(crate) parent: Option<NodeId>,
    pub(crate) keys: Vec<SealedKey>,
    pub(crate) log: LogId,
    pub(crate) prefix: Option<Digest>,
}

/// The keyed hash of a key of a captured turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SealedKey {
    pub(crate) kind: KeyKind,
    pub(crate) hash: Hash16,
}

/// What a captured turn can be found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum KeyKind {
    Claim,
    Id,
    Chain,
}

impl KeyKind {
    /// As it is kept.
    pub(crate) fn number(self) -> i16 {
        match self {
            KeyKind::Claim => 1,
            KeyKind::Id => 2,
            KeyKind::Chain => 3,
        }
    }
}

/// Contents that are destroyed: their salts, their sealed bytes, and the blobs that nothing else refers to.
#[derive(Clone, Debug)]
pub(crate) struct Erase {
    pub(crate) log: LogId,
    /// These records; all own ones without.
    pub(crate) seqs: Option<Vec<u64>>,
    /// And all own checkpoints, those included that were written after somebody looked.
    pub(crate) checkpoints: bool,
    /// As which the log and its turns are marked.
    pub(crate) why: Erased,
    /// How many runs and forks it must have: who has begun one since is a conflict.
    pub(crate) kin: Option<u64>,
    /// A small value of the store's own that is kept with it: what is left to do afterwards.
    pub(crate) note: Option<(String, Bytes)>,
}

impl Erase {
    /// All own records.
    pub(crate) fn all(log: LogId, why: Erased) -> Self {
        Self { log, seqs: None, checkpoints: false, why, kin: None, note: None }
    }

    /// These records.
    pub(crate) fn records(log: LogId, seqs: Vec<u64>, why: Erased) -> Self {
        Self { log, seqs: Some(seqs), checkpoints: false, why, kin: None, note: None }
    }
}

/// Why contents are destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Erased {
    Forgotten,
    Expired,
}

impl Erased {
    /// As it is kept.
    pub(crate) fn number(self) -> i16 {
        match self {
            Erased::Forgotten => 1,
            Erased::Expired => 2,
        }
    }

    pub(crate) fn of(number: Option<i16>) -> Option<Self> {
        match number {
            Some(1) => Some(Erased::Forgotten),
            Some(2) => Some(Erased::Expired),
            Some(_) | None => None,
        }
    }

    /// As a Fate says it.
    pub(crate) fn why(self) -> throughline_core::Why {
        match self {
            Erased::Forgotten => throughline_core::Why::Forgotten,
            Erased::Expired => throughline_core::Why::Expired,
        }
    }
}

/// Which records of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) after: u64,
    pub(crate) up_to: u64,
    pub(crate) limit: u32,
}

impl Span {
    /// What follows these rows of it: nothing, where they are fewer than it asks for. Who looked until nothing came would run
    /// after whoever writes.
    pub(crate) fn following(self, rows: &[Row]) -> Option<Self> {
        let is_full = usize::try_from(self.limit).is_ok_and(|limit| rows.len() >= limit);
        rows.last().filter(|_| is_full).map(|last| Self { after: last.seq, ..self })
    }
}

/// Which logs.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    pub(crate) kind: Option<LogKind>,
    /// Runs of that Thread.
    pub(crate) of: Option<LogId>,
    /// Forks of that Thread.
    pub(crate) forks_of: Option<LogId>,
    pub(crate) order: Order,
    /// Goes on after that log, in the same order.
    pub(crate) after: Option<LogId>,
    pub(crate) limit: u32,
}

/// In which order logs are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The one that was written to last comes first.
    Newest,
    /// The one that was not written to for longest comes first.
    Oldest,
}

/// A record as it is kept.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) seq: u64,
    pub(crate) kind: Name,
    pub(crate) at: i64,
    /// How many events it holds, and the last one's number.
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
    pub(crate) erased: Option<Erased>,
}

impl Row {
    /// What it says about itself in its chain.
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

/// A record in its chain.
#[derive(Clone, Debug)]
pub(crate) struct ChainRow {
    /// Grows in the order in which records were written.
    pub(crate) id: i64,
    pub(crate) tenant: Tenant,
    pub(crate) log: LogId,
    pub(crate) row: Row,
}

/// A salt, and the record that it belongs to.
#[derive(Clone, Debug)]
pub(crate) struct SaltRow {
    pub(crate) record: i64,
    pub(crate) salt: Salt,
}

/// An API key, of which only a keyed hash is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiKeyRow {
    pub(crate) tenant: Tenant,
    pub(crate) id: Name,
    pub(crate) label: Name,
    /// As JSON.
    pub(crate) limits: Name,
    pub(crate) hash: Digest,
    pub(crate) created: i64,
    pub(crate) revoked: Option<i64>,
    /// Over all but `created`.
    pub(crate) mac: Option<Digest>,
}

impl ApiKeyRow {
    /// The row, as its MAC among the index rows covers it.
    pub(crate) fn fields(&self, tenant: i64) -> [Field<'_>; 7] {
        [
            tenant.into(),
            (&*self.id).into(),
            (&*self.label).into(),
            (&*self.limits).into(),
            self.hash.as_slice().into(),
            self.revoked.into(),
            self.mac.as_ref().map(<[u8; 32]>::as_slice).into(),
        ]
    }
}

/// How much there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Tenants.
    pub tenants: u64,
    /// Threads of all tenants.
    pub threads: u64,
    /// Runs of all tenants: the logs of threads that say how they stand.
    pub runs: u64,
    /// Records of all logs.
    pub records: u64,
    /// Bytes of their contents, before sealing.
    pub content_bytes: u64,
    /// Large contents, kept once.
    pub blobs: u64,
    /// Bytes of large contents.
    pub blob_bytes: u64,
    /// Captured turns.
    pub turns: u64,
    /// What waits for a person.
    pub pending: u64,
    /// Segments of the chains.
    pub segments: u64,
    /// Signed manifests.
    pub manifests: u64,
    /// Bytes on the disk.
    pub disk_bytes: u64,
}

/// Where a fork's history lies.
pub(crate) fn fork_of(log: Option<LogId>, at: Option<u64>) -> Option<ForkPoint> {
    Some(ForkPoint { log: log?, at: at? })
}
