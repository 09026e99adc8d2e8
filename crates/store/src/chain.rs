//! The chain: each link is the hash of the link before it, of a commitment to the content, and of everything else that a
//! record says about itself.
//!
//! A chain runs per tenant and writer. A writer is one opening of the store by one process, so no two processes share a
//! row that each commit must change. Links are SHA-256 because PostgreSQL can compute that itself, in the same
//! transaction that numbers the records.

use sha2::{Digest as _, Sha256};
use throughline_core::{Digest, ForkPoint, LogId, LogKind, Name, Tenant, json};

/// The hash that ends a chain so far.
pub(crate) type Link = Digest;

/// What stands before the first link.
pub(crate) const GENESIS: Link = [0; 32];

/// Where a segment of a chain ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Whose chain it is.
    pub tenant: Tenant,
    /// Who writes it.
    pub writer: Name,
    /// How many records it has.
    pub position: u64,
    /// The last link.
    pub link: Link,
}

/// What a record says about itself, besides its content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header<'r> {
    pub(crate) tenant: &'r Tenant,
    pub(crate) log: &'r LogId,
    /// What the log is; see [`nature`].
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
    /// The link that this record makes. PostgreSQL computes the same: see `postgres/functions_2.sql`.
    pub(crate) fn link(&self, previous: &Link, commitment: &Digest) -> Link {
        let mut header = Lines(Vec::with_capacity(256));
        header.text("throughline record 1");
        for text in [&self.tenant.0, &self.log.0, self.nature] {
            header.line(text);
        }
        header.number(Some(self.seq));
        header.line(self.kind);
        header.signed(Some(self.at));
        header.number(Some(self.events.into()));
        header.number(self.last_event);
        header.signed(self.about);
        header.number(Some(self.size));
        header.line(self.writer);
        header.number(Some(self.position));
        let hash = Sha256::new().chain_update(previous).chain_update(commitment);
        hash.chain_update(header.0).finalize().into()
    }
}

/// Lines that are hashed. Each record makes some, so they take one piece of memory.
struct Lines(Vec<u8>);

impl Lines {
    fn text(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    fn line(&mut self, text: &str) {
        self.text("\n");
        self.text(text);
    }

    /// A line with a number, or an empty one.
    fn number(&mut self, number: Option<u64>) {
        self.text("\n");
        if let Some(number) = number {
            json::push_number(&mut self.0, number);
        }
    }

    fn signed(&mut self, number: Option<i64>) {
        self.text(if number.is_some_and(i64::is_negative) { "\n-" } else { "\n" });
        if let Some(number) = number {
            json::push_number(&mut self.0, number.unsigned_abs());
        }
    }
}

/// What a log is, as four lines: its kind, the thread of a run, the thread that it was forked off, and where. Every record of
/// the log proves it, so that nobody can give a thread another past.
pub(crate) fn nature(kind: LogKind, of: Option<&LogId>, fork: Option<&ForkPoint>) -> String {
    let (of, parent) = (of.map_or("", |of| &*of.0), fork.map_or("", |fork| &*fork.log.0));
    let at = fork.map(|fork| fork.at.to_string()).unwrap_or_default();
    [kind.as_str(), of, parent, &at].join("\n")
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod chain_tests;
