//! The port behind which the providers' endpoints lie: a request goes out, and a status, headers and bytes come back.
//!
//! Nothing is read or changed on the way. What is asked and answered is the codecs' affair; credentials, retries and
//! connections are the affair of whoever implements [`Upstream`].

mod error;

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use futures_core::Stream;
use zeroize::Zeroizing;

pub use crate::upstream::error::{UpstreamError, Waiting};

use crate::name::Name;

/// An answer, once its first byte has come.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<Answer, UpstreamError>> + Send + 'a>>;

/// The bytes of an answer, as they come.
pub type Chunks = Pin<Box<dyn Stream<Item = Result<Bytes, UpstreamError>> + Send>>;

/// The providers' endpoints.
pub trait Upstream: Send + Sync {
    /// Sends a request, and waits for the first byte of the answer. A refusal by the provider is an answer like any other.
    fn send(&self, outgoing: Outgoing) -> Answering<'_>;

    /// How many requests were sent again so far.
    fn retries(&self) -> u64 {
        0
    }
}

/// A request on its way out.
#[derive(Clone)]
pub struct Outgoing {
    /// The configured endpoint that it goes to.
    pub endpoint: Name,
    /// The model that it asks, if it asks one. Failures count for this model, not for the whole endpoint.
    pub model: Option<Name>,
    /// The method, as `POST`.
    pub method: Name,
    /// The path behind the endpoint's base address, with its query.
    pub path: Name,
    /// The headers. Credentials among them are not sent: they go as `credential`.
    pub headers: Vec<(Name, Name)>,
    /// The body.
    pub body: Bytes,
    /// The caller's own key, which is used only where the endpoint has none.
    pub credential: Option<Credential>,
}

impl std::fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Queries and headers may hold keys, so only names are told.
        f.debug_struct("Outgoing")
            .field("endpoint", &self.endpoint)
            .field("model", &self.model)
            .field("method", &self.method)
            .field("path", &self.path.split('?').next().unwrap_or_default())
            .field("headers", &names(&self.headers))
            .field("body", &format_args!("{} B", self.body.len()))
            .field("credential", &self.credential)
            .finish()
    }
}

/// What came back.
pub struct Answer {
    /// The status, as 200.
    pub status: u16,
    /// The headers, but for those that speak of the connection only.
    pub headers: Vec<(Name, Name)>,
    /// The body exactly as it came, compressed or not. Dropping it ends the request at the provider.
    pub body: Chunks,
}

impl Answer {
    /// The value of a header, whatever the case of its name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| &**value)
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer")
            .field("status", &self.status)
            .field("headers", &names(&self.headers))
            .finish_non_exhaustive()
    }
}

/// A key. It is never printed, and its memory is wiped when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential(Zeroizing<String>);

impl Credential {
    /// A key of that text.
    pub fn new(key: impl Into<String>) -> Self {
        Self(Zeroizing::new(key.into()))
    }

    /// The key itself, for the request that carries it and for nothing else.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credential(…)")
    }
}

fn names(headers: &[(Name, Name)]) -> Vec<&str> {
    headers.iter().map(|(name, _)| &**name).collect()
}

#[cfg(test)]
#[path = "upstream/upstream_tests.rs"]
mod upstream_tests;
