//! A call through the gateway that is over, as those are told who make traces of calls.

use std::time::Duration;

use crate::name::Name;
use crate::reply::Usage;
use crate::trace_parent::TraceParent;

/// A call that is over.
#[derive(Clone, Debug)]
pub struct EndedCall {
    /// Its own place in a trace.
    pub own: TraceParent,
    /// The caller's span, where it came with one.
    pub parent: Option<[u8; 8]>,
    /// How long it took.
    pub took: Duration,
    /// After what time the first byte came from the provider.
    pub first_byte: Option<Duration>,
    /// The gateway's word for it, where its story is kept.
    pub call: Option<Name>,
    /// The caller's dialect.
    pub dialect: Name,
    /// Who was asked.
    pub provider: Option<Name>,
    /// The model.
    pub model: Option<Name>,
    /// The status that was answered; 0 where nobody heard one.
    pub status: u16,
    /// What it used.
    pub usage: Option<Usage>,
    /// How many Items and Seals were kept, restored and elided.
    pub fates: Option<[u64; 3]>,
    /// What the audit said: `accept`, `degrade` or `refuse`.
    pub audit: Option<&'static str>,
    /// What went wrong, in words of our own.
    pub problem: Option<Name>,
}
