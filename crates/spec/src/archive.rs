//! Port for reading stored data: lists, verification, exports and keys of one tenant.
//!
//! Programs continue their work through [`Store`](throughline_core::Store). Consoles and
//! administrators inspect stored data through this port.

use bytes::Bytes;
use jiff::Timestamp;
use throughline_core::{LogHead, LogId, LogKind, StoreFuture, Tenant};
use throughline_json::{Json, Name};

use crate::redaction::RedactionPolicy;

/// Read access to stored data for people and exports.
pub trait Archive: Send + Sync {
    /// Lists the tenant's logs of one kind, newest first: at most `limit` of them, starting after
    /// `after`.
    fn logs<'a>(
        &'a self,
        tenant: &'a Tenant,
        kind: LogKind,
        after: Option<&'a LogId>,
        limit: u32,
    ) -> StoreFuture<'a, Vec<LogHead>>;

    /// Returns the public key that signs the Journal, as hexadecimal digits.
    fn public_key(&self) -> String;

    /// Verifies every hash link, content digest and signature of one tenant's chains, or of all
    /// tenants.
    fn verify<'a>(&'a self, tenant: Option<&'a Tenant>) -> StoreFuture<'a, VerifySummary>;

    /// Returns a signed statement about the tenant's chains, to be stored elsewhere.
    fn manifest<'a>(&'a self, tenant: &'a Tenant) -> StoreFuture<'a, Json>;

    /// Exports the listed Threads of a tenant, or all of them, with their runs as redacted JSON
    /// lines. Pages are read from the store as `out` accepts chunks; an error of `out` ends the
    /// export.
    fn export<'a>(
        &'a self,
        tenant: &'a Tenant,
        threads: &'a [LogId],
        policy: &'a RedactionPolicy,
        out: &'a mut dyn ExportSink,
    ) -> StoreFuture<'a, ()>;

    /// Lists the tenant's API keys without their secrets.
    fn keys<'a>(&'a self, tenant: &'a Tenant) -> StoreFuture<'a, Vec<KeyHead>>;
}

/// Receives an export chunk by chunk.
pub trait ExportSink: Send {
    /// Accepts the next chunk. Returns when there is room for more, and fails when the reader has
    /// disconnected.
    fn write(&mut self, chunk: Bytes) -> StoreFuture<'_, ()>;
}

/// The result of verifying the Journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifySummary {
    /// Number of records whose hash links are valid.
    pub records: u64,
    /// Number of these records whose content was erased, with the erasure recorded in the log.
    pub gone: u64,
    /// Number of chain segments.
    pub segments: u64,
    /// Number of manifests with a valid signature.
    pub manifests: u64,
    /// The first failure, if there is one.
    pub broken: Option<Fault>,
}

/// A place in the Journal that differs from what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The log, record or manifest that failed.
    pub place: String,
    /// A description of the failure, worded as the end of a sentence.
    pub problem: String,
}

/// Metadata of an API key, as shown to its tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyHead {
    /// The key's public id.
    pub id: Name,
    /// The label given when the key was created.
    pub label: Name,
    /// The permissions and quotas of the key.
    pub limits: Json,
    /// When the key was created.
    pub created: Timestamp,
    /// When the key was revoked.
    pub revoked: Option<Timestamp>,
}
