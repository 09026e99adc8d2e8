//! Adds calls to distributed traces. The gateway reads the client's span from the `traceparent`
//! header and sends its own span to the provider.

use std::time::Duration;

use throughline_codec::Verdict;
use throughline_core::{CompletedCall, RequestParameters, TraceParent, gen_ai};
use throughline_json::Name;
use throughline_replay::CallRecord;

use crate::telemetry::request_parameters::read_parameters;

/// Exports calls as spans of traces.
pub trait CallTraces: Send + Sync {
    /// Receives a call that has ended. Implementations must not block.
    fn call_ended(&self, call: CompletedCall);

    /// Returns whether a new span is sampled. `parent` is the caller's decision, if the request had
    /// a `traceparent` header. By default, the gateway follows the caller and samples new traces.
    fn is_sampled(&self, _trace: &[u8; 16], parent: Option<bool>) -> bool {
        parent.unwrap_or(true)
    }
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
    pub(super) fn new(headers: &mut Vec<(Name, Name)>, traces: &dyn CallTraces) -> Option<Self> {
        let is_it = |(name, _): &(Name, Name)| name.eq_ignore_ascii_case(TraceParent::HEADER);
        let received = headers.iter().find(|header| is_it(header));
        let received = received.and_then(|(_, value)| TraceParent::parse(value));
        let mut fresh = [0; 24];
        getrandom::fill(&mut fresh).ok()?;
        let (trace, span) = fresh.split_first_chunk::<16>()?;
        let (span, _) = span.split_first_chunk::<8>()?;
        let mut own = received
            .map_or(TraceParent { trace: *trace, span: *span, is_sampled: true }, |received| {
                received.with_span(*span)
            });
        own.is_sampled =
            traces.is_sampled(&own.trace, received.map(|received| received.is_sampled));
        headers.retain(|header| !is_it(header));
        headers.push((Name::from(TraceParent::HEADER), Name::from(own.to_string())));
        Some(Self { own, parent: received.map(|received| received.span) })
    }

    /// Returns the call's own span, if it is sampled.
    pub(super) fn sampled_span(&self) -> Option<TraceParent> {
        Some(self.own).filter(|own| own.is_sampled)
    }

    /// Builds the report of a call; `None` if the call reached neither a model nor a provider.
    pub(super) fn report(self, record: &CallRecord, took: Duration) -> Option<CompletedCall> {
        record.model.as_ref().or(record.provider.as_ref())?;
        let call = record.provider_call();
        let wire = call.map_or(&record.dialect, |call| &call.origin.wire);
        Some(CompletedCall {
            own: self.own,
            parent: self.parent,
            took,
            first_byte: call.and_then(|call| call.first_byte),
            call: record.node.as_ref().map(|node| node.0.clone()),
            dialect: Name::from(record.dialect.as_str()),
            provider: record.provider.clone(),
            system: call.map(|call| call.origin.provider.clone()),
            operation: gen_ai::operation_name(wire),
            endpoint: call.map(|call| call.origin.endpoint.clone()),
            model: record.model.clone(),
            parameters: if self.own.is_sampled {
                read_parameters(&record.texts.sent)
            } else {
                RequestParameters::default()
            },
            answered: call.and_then(|call| call.answered).cloned(),
            response: call.and_then(|call| call.id).cloned(),
            finish_reason: call.and_then(|call| call.finish_reason).map(Name::from),
            is_stream: record.is_stream,
            error_type: record.error_type(),
            status: record.status.unwrap_or_default(),
            usage: record.usage,
            fates: record.fates.map(|fates| [fates.kept, fates.restored, fates.elided]),
            audit: record.sent_verdict().map(Verdict::as_str),
            problem: record.problem.as_deref().map(Name::from),
        })
    }
}
