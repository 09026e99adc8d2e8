//! Records the facts of one call, and reports them once when the call ends.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use throughline_codec::Verdict;
use throughline_core::{Disposition, Fate, Json, Name, StoreError, Tenant, Usage, Wire, json};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use crate::access::Admission;
use crate::access::Caller;
use crate::error::GatewayError;
use crate::telemetry::fair_pool::PoolPermit;
use crate::telemetry::memory::MemoryReservation;
use crate::telemetry::trace::TraceContext;
use crate::telemetry::usage::{UsageAmount, UsageKey};
use crate::telemetry::{Telemetry, log};

/// Bytes of text per token, used if the provider counted none.
const BYTES_OF_A_TOKEN: u64 = 4;

/// Accompanies one call. Every task of the call holds a reference and [ends](Self::end) it; the
/// last one reports the call. If the tasks are cancelled, the telemetry task reports the call.
pub(crate) struct RequestScope {
    operations: Arc<Telemetry>,
    reports: UnboundedSender<CallReport>,
    started: Instant,
    facts: Mutex<RequestFacts>,
    /// The slot of the call; `None` once the call is reported.
    slot: Option<PoolPermit>,
    /// The memory reserved for the request.
    room: Mutex<Option<MemoryReservation>>,
}

/// A call that has ended. It holds its slot until it is written, so that a shutdown waits for it.
pub(super) struct CallReport {
    telemetry: Arc<Telemetry>,
    facts: RequestFacts,
    took: Duration,
    slot: PoolPermit,
}

/// The facts of one call.
#[derive(Default)]
pub(crate) struct RequestFacts {
    pub(crate) call: Option<Name>,
    pub(crate) tenant: Option<Tenant>,
    /// The id of the gateway key.
    pub(crate) key: Option<Name>,
    pub(crate) dialect: Dialect,
    pub(crate) provider: Option<Name>,
    pub(crate) model: Option<Name>,
    pub(crate) status: u16,
    pub(crate) is_stream: bool,
    /// The time until the provider's first byte.
    pub(crate) first_byte: Option<Duration>,
    pub(crate) usage: Option<Usage>,
    /// Whether the response is complete, so that the provider reported its usage.
    pub(crate) is_whole: bool,
    /// Bytes sent and received, used if the provider counted no tokens.
    pub(crate) sent: u64,
    pub(crate) heard: u64,
    pub(crate) fates: Option<FateCounts>,
    pub(crate) verdict: Option<Verdict>,
    /// How many targets were tried before this one.
    pub(crate) fallbacks: u64,
    pub(crate) capture: Capture,
    /// The failure in the gateway or at the provider, in the gateway's wording.
    pub(crate) problem: Option<String>,
    /// The span of the call in a trace, and its parent.
    pub(crate) trace: Option<TraceContext>,
}

pub(crate) struct Dialect(Wire);

impl Default for Dialect {
    fn default() -> Self {
        Self(Wire::OPENAI_CHAT)
    }
}

impl Dialect {
    pub(crate) fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

/// The outcome of capturing the reply.
#[derive(Default)]
pub(crate) enum Capture {
    /// There was nothing to capture.
    #[default]
    None,
    Kept,
    /// The reply could not be captured.
    Lost(String),
}

/// Counts of the Fates of a call's Items and Seals.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FateCounts {
    pub(crate) kept: u64,
    pub(crate) restored: u64,
    pub(crate) elided: u64,
}

impl FateCounts {
    pub(crate) fn of(fates: &[Fate]) -> Self {
        let mut counted = Self::default();
        for did in fates.iter().flat_map(|fate| fate.seals.iter().chain([&fate.visible])) {
            match did {
                Disposition::Kept => counted.kept += 1,
                Disposition::Restored(_) => counted.restored += 1,
                Disposition::Elided(_) => counted.elided += 1,
                Disposition::Reshaped(_) => {}
            }
        }
        counted
    }
}

impl std::fmt::Display for FateCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kept, restored, elided } = self;
        write!(f, "kept={kept} restored={restored} elided={elided}")
    }
}

impl RequestScope {
    pub(super) fn new(
        operations: Arc<Telemetry>,
        reports: UnboundedSender<CallReport>,
        caller: &Caller,
        dialect: &Wire,
        slot: PoolPermit,
    ) -> Arc<Self> {
        let key = match &caller.admission {
            Admission::Key { id, .. } => Some(id.clone()),
            Admission::Open | Admission::Refused => None,
        };
        let facts = RequestFacts {
            tenant: Some(caller.tenant.clone()),
            key,
            dialect: Dialect(dialect.clone()),
            ..RequestFacts::default()
        };
        let facts = Mutex::new(facts);
        let (started, slot, room) = (Instant::now(), Some(slot), Mutex::new(None));
        Arc::new(Self { operations, reports, started, facts, slot, room })
    }

    /// Ends one task of the call. The last task to end reports the call.
    pub(crate) fn end(self: Arc<Self>) {
        let report = Arc::into_inner(self).and_then(|mut scope| scope.take_report());
        if let Some(report) = report {
            report.write();
        }
    }

    /// Ends the task that relays a stream at the end of the stream.
    pub(crate) fn end_after<S: Stream>(self: Arc<Self>, stream: S) -> impl Stream<Item = S::Item> {
        let mut scope = Some(self);
        stream.chain(stream::poll_fn(move |_| {
            scope.take().map(Self::end);
            Poll::Ready(None)
        }))
    }

    fn take_report(&mut self) -> Option<CallReport> {
        let slot = self.slot.take()?;
        let telemetry = Arc::clone(&self.operations);
        let facts = self.facts.get_mut().unwrap_or_else(PoisonError::into_inner);
        Some(CallReport {
            telemetry,
            facts: std::mem::take(facts),
            took: self.started.elapsed(),
            slot,
        })
    }

    /// Holds the memory of the request for as long as the call lasts.
    pub(crate) fn hold_memory(&self, room: MemoryReservation) {
        *self.room.lock().unwrap_or_else(PoisonError::into_inner) = Some(room);
    }

    /// Releases the memory that only decoding and preparing needed. The texts are held to the end.
    pub(crate) fn release_preparation_memory(&self) {
        if let Some(room) = &mut *self.room.lock().unwrap_or_else(PoisonError::into_inner) {
            room.release_decoded();
        }
    }

    /// Changes the facts.
    pub(crate) fn note(&self, note: impl FnOnce(&mut RequestFacts)) {
        note(&mut self.facts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Records why a call failed, with the message if the gateway is unavailable.
    pub(crate) fn record_error(&self, problem: &GatewayError) {
        self.note(|facts| {
            facts.status = problem.status;
            if problem.status == 503 && facts.problem.is_none() {
                facts.problem = Some(problem.message.clone());
            }
        });
    }

    /// Records the outcome of capturing the reply.
    pub(crate) fn record_capture<T>(&self, kept: &Result<Option<T>, StoreError>) {
        match kept {
            Ok(Some(_)) => self.operations.record_write(None),
            Ok(None) => {}
            Err(error) => self.operations.record_write(Some(error)),
        }
        let capture = match kept {
            Ok(Some(_)) => Capture::Kept,
            Ok(None) => Capture::None,
            Err(error) => Capture::Lost(error.to_string()),
        };
        self.note(|facts| facts.capture = capture);
    }

    /// Starts a span in the caller's trace, or in a new trace, if traces are enabled. The headers
    /// for the provider then name this span.
    pub(crate) fn start_span(&self, headers: &mut Vec<(Name, Name)>) {
        if self.operations.traces.is_some() {
            let placed = TraceContext::of(headers);
            self.note(|facts| facts.trace = placed);
        }
    }

    /// Records that the provider has begun to respond.
    pub(crate) fn record_first_byte(&self) {
        let after = self.started.elapsed();
        self.note(|facts| facts.first_byte = Some(after));
    }

    /// The cost of that usage as stored in a call record: dollars and the price table. `None` if
    /// the price is unknown.
    pub(crate) fn cost(&self, usage: &Usage) -> Option<Json> {
        let facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        let meter = &self.operations.meter;
        let price = meter.price(facts.provider.as_ref()?, facts.model.as_ref()?)?;
        let used = UsageAmount::for_one_call(*usage, Some(price));
        Some(json::object(|o| {
            o.number("micro_usd", used.micro_usd()).string("prices", meter.prices());
        }))
    }

    /// Records that the response is a stream, which is open from now on.
    pub(crate) fn record_stream(&self) {
        self.note(|facts| facts.is_stream = true);
        self.operations.metrics.stream_opened();
    }
}

impl RequestFacts {
    /// The tokens used, as the provider counted them or estimated from the bytes sent and received.
    fn used_tokens(&self) -> Option<Usage> {
        // A caller that disconnects before the first byte is still charged, because the provider
        // processes the request.
        let is_under_way = self.status == 0 && self.sent > 0;
        let has_answered =
            (is_under_way || (200..300).contains(&self.status)) && self.model.is_some();
        let told = self.usage.unwrap_or_default();
        if !has_answered || self.is_whole && told.total() > 0 {
            return self.usage.filter(|_| has_answered);
        }
        let input = if told.input > 0 { told.input } else { self.sent / BYTES_OF_A_TOKEN };
        Some(Usage { input, output: told.output.max(self.heard / BYTES_OF_A_TOKEN), ..told })
    }
}

impl CallReport {
    /// Charges the usage, counts the call, ends its span and logs it. Then the slot of the call is
    /// free.
    pub(super) fn write(self) {
        let Self { telemetry, mut facts, took, slot } = self;
        facts.usage = facts.used_tokens();
        let mut used = UsageAmount::default();
        if let (Some(usage), Some(tenant), Some(provider), Some(model)) =
            (facts.usage, &facts.tenant, &facts.provider, &facts.model)
        {
            used = UsageAmount::for_one_call(usage, telemetry.meter.price(provider, model));
            let (tenant, key) = (tenant.clone(), facts.key.clone());
            let (provider, model) = (provider.clone(), model.clone());
            telemetry.meter.charge(UsageKey { tenant, key, provider, model }, &used);
        }
        telemetry.metrics.count(&facts, &used, took);
        if let Some(traces) = &telemetry.traces
            && let Some(ended) = facts.to_ended_call(took)
        {
            traces.call_ended(ended);
        }
        let level = log::call_level(&facts);
        if telemetry.log.wants(level) {
            let milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            let line = log::line(&facts, milliseconds, used.micro_usd());
            telemetry.log.write(level, &line);
        }
        drop(slot);
    }
}

impl Drop for RequestScope {
    fn drop(&mut self) {
        if let Some(report) = self.take_report() {
            // The queue is closed only when the runtime shuts down.
            self.reports.send(report).ok();
        }
    }
}
