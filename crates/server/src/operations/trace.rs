//! The place of a call in a trace. Callers say theirs in the header `traceparent`, and the provider is told ours.

use std::time::Duration;

use throughline_core::{EndedCall, Name, TraceParent};

use crate::operations::ticket::Facts;

/// Who is told of each call when it is over.
pub trait Traces: Send + Sync {
    /// A call is over. Nothing waits for this, so it must not wait either.
    fn ended(&self, call: EndedCall);
}

/// A place in a trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    own: TraceParent,
    parent: Option<[u8; 8]>,
}

impl Placed {
    /// A place behind the one that the headers name, which then name this one. Nothing where there is no randomness.
    pub(super) fn of(headers: &mut Vec<(Name, Name)>) -> Option<Self> {
        let is_it = |(name, _): &(Name, Name)| name.eq_ignore_ascii_case(TraceParent::HEADER);
        let came = headers.iter().find(|header| is_it(header));
        let came = came.and_then(|(_, value)| TraceParent::parse(value));
        let mut fresh = [0; 24];
        getrandom::fill(&mut fresh).ok()?;
        let (trace, span) = fresh.split_first_chunk::<16>()?;
        let (span, _) = span.split_first_chunk::<8>()?;
        let own = came
            .map_or(TraceParent { trace: *trace, span: *span, is_sampled: true }, |came| {
                came.at(*span)
            });
        headers.retain(|header| !is_it(header));
        headers.push((Name::from(TraceParent::HEADER), Name::from(own.to_string())));
        Some(Self { own, parent: came.map(|came| came.span) })
    }
}

impl Facts {
    /// What is told of a call that has a place in a trace, and asked somebody something.
    pub(super) fn ended(&self, took: Duration) -> Option<EndedCall> {
        let Placed { own, parent } = self.trace?;
        self.model.as_ref().or(self.provider.as_ref())?;
        Some(EndedCall {
            own,
            parent,
            took,
            first_byte: self.first_byte,
            call: self.call.clone(),
            dialect: Name::from(self.dialect.as_str()),
            provider: self.provider.clone(),
            model: self.model.clone(),
            status: self.status,
            usage: self.usage,
            fates: self.fates.map(|fates| [fates.kept, fates.restored, fates.elided]),
            audit: self.verdict.map(throughline_codec::Verdict::as_str),
            problem: self.problem.as_deref().map(Name::from),
        })
    }
}
