//! Ports for stored data: lists, verification, exports and API keys.
//!
//! Runs and the gateway access data through [`Store`](throughline_core::Store). The console and
//! administrators use the ports in this module.

use bytes::Bytes;
use jiff::Timestamp;
use throughline_core::{LogHead, LogId, LogKind, StoreFuture, Tenant};
use throughline_json::{Json, Name};

use crate::redaction::RedactionPolicy;

/// Read-only access to stored data for the console, administrators and exports.
pub trait Archive: Send + Sync {
    /// Lists at most `limit` of the tenant's logs of one kind, newest first. The list starts after
    /// the log `after`.
    fn logs<'a>(
        &'a self,
        tenant: &'a Tenant,
        kind: LogKind,
        after: Option<&'a LogId>,
        limit: u32,
    ) -> StoreFuture<'a, Vec<LogHead>>;

    /// Lists at most `limit` forks of a log, newest first.
    fn forks<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        limit: u32,
    ) -> StoreFuture<'a, Vec<LogHead>>;

    /// Returns the public key for verifying Journal signatures, as hexadecimal digits.
    fn public_key(&self) -> String;

    /// Verifies every hash link, content digest and signature in the chains of one tenant or of all
    /// tenants.
    fn verify<'a>(&'a self, tenant: Option<&'a Tenant>) -> StoreFuture<'a, VerifySummary>;

    /// Returns a signed manifest of the tenant's chains. Keep the manifest outside the store as
    /// proof of the current state.
    fn manifest<'a>(&'a self, tenant: &'a Tenant) -> StoreFuture<'a, Json>;

    /// Exports the listed Threads and their Runs as redacted JSON lines. An empty list exports all
    /// of the tenant's Threads. Reads the next page from the store only when `out` accepts more
    /// chunks. An error from `out` ends the export.
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

/// Manages the API keys of tenants.
pub trait KeyManager: Send + Sync {
    /// Creates a key. `limits` contains the role of the key and its limits, with the members of
    /// [`KeyHead::limits`].
    fn create<'a>(
        &'a self,
        tenant: &'a Tenant,
        label: &'a str,
        limits: &'a Json,
    ) -> StoreFuture<'a, CreatedKey>;

    /// Changes the limits that `changes` contains. A limit that is null is removed. Returns the new
    /// limits; `None` if the tenant has no active key with this id.
    fn change_limits<'a>(
        &'a self,
        tenant: &'a Tenant,
        id: &'a str,
        changes: &'a Json,
    ) -> StoreFuture<'a, Option<Json>>;

    /// Revokes a key. Returns whether the tenant had an active key with this id.
    fn revoke<'a>(&'a self, tenant: &'a Tenant, id: &'a str) -> StoreFuture<'a, bool>;
}

/// A new API key.
pub struct CreatedKey {
    /// The key's id, which is not secret.
    pub id: Name,
    /// The key itself. The store cannot return it again.
    pub secret: String,
    /// The key's permissions and quotas, as JSON.
    pub limits: Json,
}

impl std::fmt::Debug for CreatedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CreatedKey({}, …)", self.id)
    }
}

/// Receives an export chunk by chunk.
pub trait ExportSink: Send {
    /// Accepts the next chunk. Returns once the sink can accept another chunk, and fails if the
    /// reader has disconnected.
    fn write(&mut self, chunk: Bytes) -> StoreFuture<'_, ()>;
}

/// The result of verifying the Journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifySummary {
    /// Number of records whose hash links are valid.
    pub records: u64,
    /// Number of valid records whose content was erased, if the log also contains a record of the
    /// erasure.
    pub gone: u64,
    /// Number of verified chain segments.
    pub segments: u64,
    /// Number of manifests with a valid signature.
    pub manifests: u64,
    /// The first failure; `None` if everything is valid.
    pub broken: Option<Fault>,
}

/// A part of the Journal that failed verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The log, record or manifest that failed.
    pub place: String,
    /// A description of the failure, worded to follow `place` in a sentence.
    pub problem: String,
}

/// Metadata of an API key, as shown to the tenant that owns the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyHead {
    /// The key's id, which is not secret.
    pub id: Name,
    /// The label given when the key was created.
    pub label: Name,
    /// The key's permissions and quotas, as JSON.
    pub limits: Json,
    /// When the key was created.
    pub created: Timestamp,
    /// When the key was revoked; `None` if the key is active.
    pub revoked: Option<Timestamp>,
}
