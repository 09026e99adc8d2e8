//! The hash chain over records: each link hashes the previous link, a commitment to the content,
//! and all metadata of a record.
//!
//! There is one chain per tenant and writer. Each time a process opens the store, it registers as a
//! new writer, so commits from different processes never contend for the same row. Links use
//! SHA-256 because PostgreSQL can compute it in the same transaction that numbers the records.

use throughline_core::{Digest, ForkPoint, LogId, LogKind, Tenant};
use throughline_json::Name;

use crate::sha256::sha256;

/// The SHA-256 hash of a record in a chain. It covers all earlier records of the chain.
pub(crate) type Link = Digest;

/// The value used as the previous link of a chain's first record.
pub(crate) const GENESIS: Link = [0; 32];

/// Position and hash of the last record in a chain segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The tenant that owns the chain.
    pub tenant: Tenant,
    /// The writer that appended the segment.
    pub writer: Name,
    /// Number of records in the segment.
    pub position: u64,
    /// Hash of the last record.
    pub link: Link,
}

/// The record metadata that a link covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header<'r> {
    pub(crate) tenant: &'r Tenant,
    pub(crate) log: &'r LogId,
    /// The log's kind, Thread and fork point; see [`nature`].
    pub(crate) nature: &'r str,
    pub(crate) seq: u64,
    pub(crate) kind: &'r str,
    pub(crate) at: i64,
    pub(crate) events: u32,
    pub(crate) last_event: Option<u64>,
    pub(crate) about: Option<i64>,
    pub(crate) size: u64,
    pub(crate) writer: &'r str,
    pub(crate) position: u64,
}

impl Header<'_> {
    /// Computes this record's link. `postgres/functions_3.sql` computes the same value.
    pub(crate) fn link(&self, previous: &Link, commitment: &Digest) -> Link {
        let Header { tenant, log, nature, seq, kind, at, events, size, writer, position, .. } =
            self;
        let (mut digits, mut header) = (itoa::Buffer::new(), Vec::with_capacity(512));
        let mut line = |text: &str| {
            header.push(b'\n');
            header.extend_from_slice(text.as_bytes());
        };
        [&*tenant.0, &*log.0, nature].into_iter().for_each(&mut line);
        line(digits.format(*seq));
        line(kind);
        line(digits.format(*at));
        line(digits.format(*events));
        line(self.last_event.map_or("", |number| digits.format(number)));
        line(self.about.map_or("", |hash| digits.format(hash)));
        line(digits.format(*size));
        line(writer);
        line(digits.format(*position));
        sha256(&[previous, commitment, b"throughline record 1", &header])
    }
}

/// Returns a log's kind and lineage as four lines: the kind, the Thread of a run, and the parent
/// and fork point of a fork. Every record's link covers these lines, so a changed lineage breaks
/// the chain.
pub(crate) fn nature(kind: LogKind, of: Option<&LogId>, fork: Option<&ForkPoint>) -> String {
    let (of, parent) = (of.map_or("", |of| &*of.0), fork.map_or("", |fork| &*fork.log.0));
    let at = fork.map(|fork| fork.at.to_string()).unwrap_or_default();
    [kind.as_str(), of, parent, &at].join("\n")
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod chain_tests;
