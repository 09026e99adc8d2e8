//! Port to the providers' endpoints: sends a request and returns the status, headers and body of
//! the response.
//!
//! Implementations of [`Upstream`] handle credentials, retries and connections, and pass content
//! through unchanged. Codecs interpret the content.

mod error;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use jiff::Timestamp;
use throughline_json::Name;
use zeroize::Zeroizing;

pub use crate::upstream::error::{TimeoutPhase, UpstreamError};

/// A pending response. The future completes when the first byte of the response arrives.
pub type UpstreamFuture<'a> =
    Pin<Box<dyn Future<Output = Result<UpstreamResponse, UpstreamError>> + Send + 'a>>;

/// A response body as a stream, which yields each chunk when it arrives.
pub type BodyStream = Pin<Box<dyn Stream<Item = Result<Bytes, UpstreamError>> + Send>>;

/// Sends requests to the providers' endpoints.
pub trait Upstream: Send + Sync {
    /// Sends a request and waits for the first byte of the response. An error status from the
    /// provider is returned as a normal response.
    fn send(&self, outgoing: UpstreamRequest) -> UpstreamFuture<'_>;

    /// Returns the total number of retries over all requests; 0 for implementations that never
    /// retry.
    fn retries(&self) -> u64 {
        0
    }

    /// Returns the endpoints whose requests failed repeatedly, so that new requests are rejected
    /// for a while. The default implementation returns none.
    fn resting(&self) -> Vec<RestingEndpoint> {
        Vec::new()
    }
}

/// An endpoint that rejects requests because earlier requests failed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RestingEndpoint {
    /// The endpoint's name in the configuration.
    pub endpoint: Name,
    /// The model whose requests are rejected; `None` if all requests are rejected.
    pub model: Option<Name>,
}

/// A request to an endpoint.
#[derive(Clone)]
pub struct UpstreamRequest {
    /// The endpoint's name in the configuration.
    pub endpoint: Name,
    /// The requested model, if the request names one. Failures then count for this model, not for
    /// the whole endpoint.
    pub model: Option<Name>,
    /// The HTTP method, such as `POST`.
    pub method: Name,
    /// The path to append to the endpoint's base URL, including the query.
    pub path: Name,
    /// The headers. Credentials in these headers are not sent; use `credential` instead.
    pub headers: Vec<(Name, Name)>,
    /// The request body, sent unchanged.
    pub body: Bytes,
    /// The caller's API key. It is used only if the endpoint has no key of its own.
    pub credential: Option<Credential>,
}

impl std::fmt::Debug for UpstreamRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Queries and header values may contain keys, so only the path and header names are
        // printed.
        f.debug_struct("UpstreamRequest")
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

/// A response from an endpoint.
pub struct UpstreamResponse {
    /// The HTTP status, which may be an error.
    pub status: u16,
    /// The headers, without hop-by-hop headers.
    pub headers: Vec<(Name, Name)>,
    /// The body as received, with its content encoding. Dropping the body cancels the request at
    /// the provider.
    pub body: BodyStream,
}

impl UpstreamResponse {
    /// Returns the value of a header; the name is case-insensitive.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| &**value)
    }

    /// Returns the delay after which the provider accepts the request again, from `retry-after-ms`
    /// or `retry-after`. A date is compared with the response's own `date`, otherwise with `now`.
    pub fn retry_after(&self, now: Option<Timestamp>) -> Option<Duration> {
        let seconds = |text: &str, unit: f64| {
            let number: f64 = text.trim().parse().ok()?;
            Duration::try_from_secs_f64(number * unit).ok()
        };
        if let Some(wait) = self.header("retry-after-ms").and_then(|text| seconds(text, 0.001)) {
            return Some(wait);
        }
        let retry_after = self.header("retry-after")?;
        seconds(retry_after, 1.0).or_else(|| {
            let now = self.header("date").and_then(parse_http_date).or(now)?;
            let wait = parse_http_date(retry_after)?.duration_since(now);
            Some(Duration::try_from(wait).unwrap_or_default())
        })
    }
}

/// Parses an HTTP date such as `Sun, 06 Nov 1994 08:49:37 GMT`.
fn parse_http_date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::parse(text.trim()).ok().map(|date| date.timestamp())
}

impl std::fmt::Debug for UpstreamResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UpstreamResponse")
            .field("status", &self.status)
            .field("headers", &names(&self.headers))
            .finish_non_exhaustive()
    }
}

/// An API key. The `Debug` output omits the key, and its memory is zeroed on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential(Zeroizing<String>);

impl Credential {
    /// Wraps an API key without validating it.
    pub fn new(key: impl Into<String>) -> Self {
        Self(Zeroizing::new(key.into()))
    }

    /// Returns the key in plain text. Use the text only to set the credential of a request.
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
