//! The port through which people look at what is kept: lists, proofs, exports and keys of one tenant.
//!
//! [`Store`](crate::Store) is what a program needs to go on with its work. This is what a page needs to show it.

use bytes::Bytes;
use jiff::Timestamp;

use crate::json::Json;
use crate::name::Name;
use crate::redaction::RedactionPolicy;
use crate::store::{Boxed, LogHead, LogId, LogKind, Tenant};

/// What is kept, for people to look at.
pub trait Archive: Send + Sync {
    /// The tenant's logs of that kind, the newest first: at most `limit` of them, behind `after`.
    fn logs<'a>(
        &'a self,
        tenant: &'a Tenant,
        kind: LogKind,
        after: Option<&'a LogId>,
        limit: u32,
    ) -> Boxed<'a, Vec<LogHead>>;

    /// The public key that signs it all, in hexadecimal digits.
    fn public_key(&self) -> String;

    /// Proves every link, content and signature: of that tenant's chains, or of all tenants.
    fn prove<'a>(&'a self, tenant: Option<&'a Tenant>) -> Boxed<'a, Proven>;

    /// A signed statement about the tenant's chains, to be kept elsewhere.
    fn manifest<'a>(&'a self, tenant: &'a Tenant) -> Boxed<'a, Json>;

    /// Writes the named threads of a tenant, or all of them, with their runs, as redacted lines of JSON. The store is read
    /// in pages as `out` takes the chunks; an error of `out` ends the export.
    fn export<'a>(
        &'a self,
        tenant: &'a Tenant,
        threads: &'a [LogId],
        policy: &'a RedactionPolicy,
        out: &'a mut dyn ExportSink,
    ) -> Boxed<'a, ()>;

    /// The tenant's keys, without what they open.
    fn keys<'a>(&'a self, tenant: &'a Tenant) -> Boxed<'a, Vec<KeyHead>>;
}

/// Receives an export chunk by chunk.
pub trait ExportSink: Send {
    /// Takes the next chunk: it returns when there is room for more, and fails when the reader is gone.
    fn write(&mut self, chunk: Bytes) -> Boxed<'_, ()>;
}

/// What was proven.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proven {
    /// Records whose links hold.
    pub records: u64,
    /// Of these, records whose content is no more, and whose log says so.
    pub gone: u64,
    /// Segments of chains.
    pub segments: u64,
    /// Manifests whose signatures hold.
    pub manifests: u64,
    /// The first thing that is wrong, if anything is.
    pub broken: Option<Fault>,
}

/// Something that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub place: String,
    /// What is wrong there, as the end of a sentence.
    pub problem: String,
}

/// A key, as its tenant may see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyHead {
    /// Its id.
    pub id: Name,
    /// What its maker called it.
    pub label: Name,
    /// What it may ask for, and how much of it.
    pub limits: Json,
    /// When it was made.
    pub created: Timestamp,
    /// When it was revoked.
    pub revoked: Option<Timestamp>,
}
