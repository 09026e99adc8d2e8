//! Parameters for reads, and the counts that a backend returns.

use throughline_core::{LogId, LogKind, RUNNING, kind};

use crate::row::Row;

/// A page of records in a log: at most `limit` records, numbered above `after` and up to `up_to`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) after: u64,
    pub(crate) up_to: u64,
    pub(crate) limit: u32,
}

impl Span {
    /// Returns the span of the next page, or `None` if `rows` has fewer rows than the limit.
    /// Reading until a page is empty might never end, because other processes may keep appending.
    pub(crate) fn following(self, rows: &[Row]) -> Option<Self> {
        let is_full = usize::try_from(self.limit).is_ok_and(|limit| rows.len() >= limit);
        rows.last().filter(|_| is_full).map(|last| Self { after: last.seq, ..self })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Listing {
    pub(crate) kind: Option<LogKind>,
    /// Selects only runs of this Thread.
    pub(crate) of: Option<LogId>,
    /// Selects only forks of this Thread.
    pub(crate) forks_of: Option<LogId>,
    pub(crate) order: Order,
    /// The last log of the previous page.
    pub(crate) after: Option<LogId>,
    pub(crate) limit: u32,
    /// Selects only logs that can expire.
    pub(crate) idle: Option<IdleLogs>,
}

/// Selects logs that were not erased and not written to after a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdleLogs {
    /// The time of the last write, in milliseconds since 1970.
    pub(crate) until: i64,
    pub(crate) content: LogContent,
}

/// Selects logs by their content.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LogContent {
    Any,
    /// Logs whose last record is not an erasure record. If it is one, all copies in the log were
    /// erased before.
    NotEmptied,
    /// Runs with a status that have ended.
    EndedRun,
}

impl LogContent {
    /// Returns the SQL condition on the log `l`.
    pub(crate) fn sql(self) -> String {
        match self {
            Self::Any => "TRUE".to_owned(),
            Self::NotEmptied => format!(
                "EXISTS (SELECT 1 FROM records r WHERE r.tenant = l.tenant AND r.log = l.id \
                 AND r.seq = l.last AND r.kind NOT IN ('{}', '{}'))",
                kind::FORGOTTEN,
                kind::EXPIRED
            ),
            Self::EndedRun => format!("l.status NOT IN ('{RUNNING}', 'waiting')"),
        }
    }
}

/// The sort order of log listings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Most recently written logs first.
    Newest,
    /// Least recently written logs first.
    Oldest,
}

impl Order {
    /// Returns the SQL comparison operator for paging past the previous page's last log, and the
    /// SQL sort direction.
    pub(crate) fn sql(self) -> (&'static str, &'static str) {
        match self {
            Order::Newest => ("<", "DESC"),
            Order::Oldest => (">", "ASC"),
        }
    }
}

/// Number and size of the rows in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of tenants that have a log or an API key.
    pub tenants: u64,
    /// Number of Threads, across all tenants.
    pub threads: u64,
    /// Number of runs that have a status, across all tenants.
    pub runs: u64,
    /// Number of records, across all logs.
    pub records: u64,
    /// Total size of record content in bytes, before sealing.
    pub content_bytes: u64,
    /// Number of blobs: large content, stored once per tenant.
    pub blobs: u64,
    /// Total size of all sealed blobs, in bytes.
    pub blob_bytes: u64,
    /// Number of captured turns in the Vault.
    pub turns: u64,
    /// Number of unexpired requests that wait for a person's decision. Requests of erased logs are
    /// not counted.
    pub pending: u64,
    /// Number of chain segments: one per tenant and writer.
    pub segments: u64,
    /// Number of signed manifests that are stored.
    pub manifests: u64,
    /// Size of the database on disk, in bytes.
    pub disk_bytes: u64,
}

/// A callback that receives the completed fraction of a long operation, from 0 to 1.
pub type Progress<'a> = &'a (dyn Fn(f64) + Send + Sync);

/// Returns the completed fraction of a long operation, from 0 to 1.
#[expect(clippy::cast_precision_loss, reason = "an approximate share for a progress bar")]
pub(crate) fn share(done: u64, total: u64) -> f64 {
    (done as f64 / total.max(1) as f64).min(1.0)
}
