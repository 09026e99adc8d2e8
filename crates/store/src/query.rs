//! Parameters of reads, and the counts that a backend returns.

use throughline_core::{LogId, LogKind};

use crate::row::Row;

/// A range of records of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) after: u64,
    pub(crate) up_to: u64,
    pub(crate) limit: u32,
}

impl Span {
    /// Returns the span after these rows, or `None` if there were fewer rows than the limit.
    /// Reading until a page is empty could follow a fast writer forever.
    pub(crate) fn following(self, rows: &[Row]) -> Option<Self> {
        let is_full = usize::try_from(self.limit).is_ok_and(|limit| rows.len() >= limit);
        rows.last().filter(|_| is_full).map(|last| Self { after: last.seq, ..self })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Listing {
    pub(crate) kind: Option<LogKind>,
    /// Selects runs of this Thread.
    pub(crate) of: Option<LogId>,
    /// Selects forks of this Thread.
    pub(crate) forks_of: Option<LogId>,
    pub(crate) order: Order,
    /// Continues after this log, in the same order.
    pub(crate) after: Option<LogId>,
    pub(crate) limit: u32,
}

/// The order in which logs are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Most recently written first.
    Newest,
    /// Least recently written first.
    Oldest,
}

impl Order {
    /// Returns the comparison with the last log of a page, and the direction, in SQL.
    pub(crate) fn sql(self) -> (&'static str, &'static str) {
        match self {
            Order::Newest => ("<", "DESC"),
            Order::Oldest => (">", "ASC"),
        }
    }
}

/// Row counts and sizes of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of tenants.
    pub tenants: u64,
    /// Number of Threads of all tenants.
    pub threads: u64,
    /// Number of runs of all tenants: logs of Threads that have a status.
    pub runs: u64,
    /// Number of records in all logs.
    pub records: u64,
    /// Bytes of record contents before sealing.
    pub content_bytes: u64,
    /// Number of large contents, each stored once.
    pub blobs: u64,
    /// Bytes of large contents.
    pub blob_bytes: u64,
    /// Number of captured turns.
    pub turns: u64,
    /// Number of requests that wait for a person.
    pub pending: u64,
    /// Number of chain segments.
    pub segments: u64,
    /// Number of signed manifests.
    pub manifests: u64,
    /// Bytes on disk.
    pub disk_bytes: u64,
}

/// A callback that receives the completed share of a long operation, from 0 to 1.
pub type Progress<'a> = &'a (dyn Fn(f64) + Send + Sync);

/// Returns the completed share of a long operation, at most 1.
#[expect(clippy::cast_precision_loss, reason = "an approximate share for a progress bar")]
pub(crate) fn share(done: u64, total: u64) -> f64 {
    (done as f64 / total.max(1) as f64).min(1.0)
}
