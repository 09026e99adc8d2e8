//! Adds calls to distributed traces. The gateway reads the client's span from the `traceparent`
//! header and sends its own span to the provider.

use std::time::Duration;

use throughline_codec::Verdict;
use throughline_core::{CompletedCall, TraceParent};
use throughline_json::Name;
use throughline_replay::CallRecord;

/// Exports calls as spans of traces.
pub trait CallTraces: Send + Sync {
    /// Receives a call that has ended. Implementations must not block.
    fn call_ended(&self, call: CompletedCall);
}

/// The span of a call, and the parent span.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TraceContext {
    own: TraceParent,
    parent: Option<[u8; 8]>,
}

impl TraceContext {
    /// Creates a child of the span in the `traceparent` header and replaces the header with the
    /// child. Returns `None` if the random number generator fails.
    pub(super) fn new(headers: &mut Vec<(Name, Name)>) -> Option<Self> {
        let is_it = |(name, _): &(Name, Name)| name.eq_ignore_ascii_case(TraceParent::HEADER);
        let received = headers.iter().find(|header| is_it(header));
        let received = received.and_then(|(_, value)| TraceParent::parse(value));
        let mut fresh = [0; 24];
        getrandom::fill(&mut fresh).ok()?;
        let (trace, span) = fresh.split_first_chunk::<16>()?;
        let (span, _) = span.split_first_chunk::<8>()?;
        let own = received
            .map_or(TraceParent { trace: *trace, span: *span, is_sampled: true }, |received| {
                received.with_span(*span)
            });
        headers.retain(|header| !is_it(header));
        headers.push((Name::from(TraceParent::HEADER), Name::from(own.to_string())));
        Some(Self { own, parent: received.map(|received| received.span) })
    }

    /// Builds the report of a call; `None` if the call reached neither a model nor a provider.
    pub(super) fn report(self, record: &CallRecord, took: Duration) -> Option<CompletedCall> {
        record.model.as_ref().or(record.provider.as_ref())?;
        Some(CompletedCall {
            own: self.own,
            parent: self.parent,
            took,
            first_byte: record.time_to_first_byte(),
            call: record.node.as_ref().map(|node| node.0.clone()),
            dialect: Name::from(record.dialect.as_str()),
            provider: record.provider.clone(),
            model: record.model.clone(),
            status: record.status.unwrap_or_default(),
            usage: record.usage,
            fates: record.fates.map(|fates| [fates.kept, fates.restored, fates.elided]),
            audit: record.sent_verdict().map(Verdict::as_str),
            problem: record.problem.as_deref().map(Name::from),
        })
    }
}
