//! A completed gateway call, as passed to trace exporters.

use std::time::Duration;

use throughline_json::Name;

use crate::reply::Usage;
use crate::trace_parent::TraceParent;

/// A completed gateway call.
#[derive(Clone, Debug)]
pub struct CompletedCall {
    /// The span of the call itself.
    pub own: TraceParent,
    /// The caller's span id, if the request had a `traceparent`.
    pub parent: Option<[u8; 8]>,
    /// Total duration.
    pub took: Duration,
    /// Time until the provider's first byte.
    pub first_byte: Option<Duration>,
    /// The gateway's call id, if the call was recorded.
    pub call: Option<Name>,
    /// The API dialect of the caller.
    pub dialect: Name,
    /// The provider that was called.
    pub provider: Option<Name>,
    /// The requested model.
    pub model: Option<Name>,
    /// The HTTP status that was returned; 0 if the client received none.
    pub status: u16,
    /// Token usage.
    pub usage: Option<Usage>,
    /// The numbers of Items and Seals that were kept, restored and elided.
    pub fates: Option<[u64; 3]>,
    /// The audit verdict: `accept`, `degrade` or `refuse`.
    pub audit: Option<&'static str>,
    /// The error message, in Throughline's wording.
    pub problem: Option<Name>,
}
