//! Records the facts of one request, and reports them once when the request ends.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::Poll;

use futures_util::{Stream, StreamExt as _, stream};
use throughline_core::{Usage, Wire};
use throughline_json::{Json, Name};
use throughline_replay::{CallRecord, CaptureOutcome};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use crate::access::Caller;
use crate::account_pool::OpenRequest;
use crate::error::GatewayError;
use crate::object::object;
use crate::records::StoreResult;
use crate::sync::lock;
use crate::telemetry::budget::BudgetReservation;
use crate::telemetry::estimate::BYTES_OF_A_TOKEN;
use crate::telemetry::fair_pool::PoolPermit;
use crate::telemetry::memory::MemoryReservation;
use crate::telemetry::metrics::CallFacts;
use crate::telemetry::trace::TraceContext;
use crate::telemetry::usage::{UsageAmount, UsageKey};
use crate::telemetry::{Telemetry, log};

/// Collects the facts of one request. Every task of the request holds a reference and
/// [ends](Self::end) that reference. The last task to end reports the request; if the tasks are
/// cancelled, the telemetry task reports it.
pub(crate) struct RequestScope {
    telemetry: Arc<Telemetry>,
    reports: UnboundedSender<CallReport>,
    record: Arc<Mutex<CallRecord>>,
    /// The span of the call in its trace, and the parent span.
    trace: OnceLock<TraceContext>,
    /// The concurrency slot of the request; `None` once the request is reported.
    slot: Option<PoolPermit>,
    /// The memory reserved for the request.
    room: Mutex<Option<MemoryReservation>>,
    /// Counts the request as open at its account.
    account: Mutex<Option<OpenRequest>>,
    /// What the call has reserved from the limits of its key.
    budget: Mutex<Option<BudgetReservation>>,
}

/// The report of a request that has ended. The request keeps its slot until the report is written,
/// so that a shutdown waits for the report.
pub(super) struct CallReport {
    telemetry: Arc<Telemetry>,
    record: Arc<Mutex<CallRecord>>,
    trace: Option<TraceContext>,
    end: Instant,
    slot: PoolPermit,
    budget: Option<BudgetReservation>,
}

impl RequestScope {
    pub(super) fn new(
        telemetry: Arc<Telemetry>,
        reports: UnboundedSender<CallReport>,
        caller: &Caller,
        dialect: &Wire,
        slot: PoolPermit,
    ) -> Arc<Self> {
        let key = caller.admission.key_id().cloned();
        let record = CallRecord::new(caller.tenant.clone(), key, dialect.clone());
        let record = Arc::new(Mutex::new(record));
        let (trace, slot) = (OnceLock::new(), Some(slot));
        let (room, account, budget) = (Mutex::new(None), Mutex::new(None), Mutex::new(None));
        Arc::new(Self { telemetry, reports, record, trace, slot, room, account, budget })
    }

    /// Ends the reference of one task. The last task to end reports the call.
    pub(crate) fn end(self: Arc<Self>) {
        let report = Arc::into_inner(self).and_then(|mut scope| scope.take_report());
        if let Some(report) = report {
            report.write();
        }
    }

    /// Wraps a stream, and ends this task's reference when the stream ends.
    pub(crate) fn end_after<S: Stream>(self: Arc<Self>, stream: S) -> impl Stream<Item = S::Item> {
        let mut scope = Some(self);
        stream.chain(stream::poll_fn(move |_| {
            if let Some(scope) = scope.take() {
                scope.end();
            }
            Poll::Ready(None)
        }))
    }

    fn take_report(&mut self) -> Option<CallReport> {
        Some(CallReport {
            slot: self.slot.take()?,
            telemetry: Arc::clone(&self.telemetry),
            record: Arc::clone(&self.record),
            trace: self.trace.take(),
            end: Instant::now(),
            budget: lock(&self.budget).take(),
        })
    }

    /// Holds the memory reservation until the call ends.
    pub(crate) fn hold_memory(&self, room: MemoryReservation) {
        *lock(&self.room) = Some(room);
    }

    /// Counts the request as open at an account until the call ends or uses another account.
    pub(crate) fn hold_account(&self, open: Option<OpenRequest>) {
        *lock(&self.account) = open;
    }

    /// Returns the reservation of an earlier attempt. Returns whether there was one.
    pub(crate) fn release_budget(&self) -> bool {
        lock(&self.budget).take().is_some()
    }

    /// Holds what the call has reserved until the call ends.
    pub(crate) fn hold_budget(&self, reservation: Option<BudgetReservation>) {
        *lock(&self.budget) = reservation;
    }

    /// Releases the memory that was needed only to decode and prepare the request. The received and
    /// the sent text stay reserved until the call ends.
    pub(crate) fn release_preparation_memory(&self) {
        if let Some(room) = &mut *lock(&self.room) {
            room.release_decoded();
        }
    }

    /// Locks the facts recorded so far.
    pub(crate) fn record(&self) -> MutexGuard<'_, CallRecord> {
        lock(&self.record)
    }

    /// Records the status of a failed request. The error message is recorded if the gateway denied
    /// access, or if the status is 503.
    pub(crate) fn record_error(&self, problem: &GatewayError) {
        let mut record = self.record();
        record.set_refusal(problem.status, &problem.message);
        if problem.status == 503 && record.problem.is_none() {
            record.problem = Some(problem.message.clone());
        }
    }

    /// Records the outcome of capturing the reply.
    pub(crate) fn record_capture<T>(&self, captured: &StoreResult<Option<T>>) {
        let outcome = match captured {
            Ok(Some(_)) => CaptureOutcome::Kept,
            Ok(None) => CaptureOutcome::None,
            Err(error) => CaptureOutcome::Lost(error.to_string()),
        };
        if !matches!(captured, Ok(None)) {
            self.telemetry.record_write(captured.as_ref().err());
        }
        self.record().capture = outcome;
    }

    pub(crate) fn record_lost_capture(&self, reason: &str) {
        self.record().capture = CaptureOutcome::Lost(reason.to_owned());
    }

    /// Starts a span if tracing is enabled, in the caller's trace or in a new trace. The span is
    /// then named in the request headers for the provider.
    pub(crate) fn start_span(&self, headers: &mut Vec<(Name, Name)>) {
        if let Some(traces) = &self.telemetry.traces
            && let Some(trace) = TraceContext::new(headers, &**traces)
        {
            self.trace.get_or_init(|| trace);
        }
    }

    /// Records that the provider has begun to respond.
    pub(crate) fn record_first_byte(&self) {
        self.record().first_byte = Some(Instant::now());
    }

    /// Returns the cost of this usage in millionths of a dollar, and the version of the price
    /// table. Returns `None` if the price is unknown.
    pub(crate) fn cost(&self, usage: &Usage) -> Option<Json> {
        let record = self.record();
        let meter = &self.telemetry.meter;
        let price = meter.price(record.provider.as_ref()?, record.model.as_ref()?)?;
        let used = UsageAmount::for_one_call(*usage, Some(price));
        Some(object! { "micro_usd": used.micro_usd(), "prices": meter.prices() })
    }

    /// Records that the response is a stream, and counts the stream as open.
    pub(crate) fn record_stream(&self) {
        self.record().is_stream = true;
        self.telemetry.metrics.stream_opened();
    }
}

/// Returns the tokens to charge: the provider's count, or an estimate from the bytes sent and
/// received.
fn used_tokens(record: &CallRecord) -> Option<Usage> {
    // A caller that disconnects before the first byte is still charged, because the provider
    // processes the request.
    let sent = record.texts.sent.len() as u64;
    let is_charged = match record.status {
        Some(status) => (200..300).contains(&status) || record.may_be_charged,
        None => sent > 0,
    };
    let has_answered = is_charged && record.model.is_some();
    let counted = record.usage.unwrap_or_default();
    if !has_answered || record.is_whole && counted.total() > 0 {
        return record.usage.filter(|_| has_answered);
    }
    let input = if counted.input > 0 { counted.input } else { sent / BYTES_OF_A_TOKEN };
    let output = counted.output.max(record.received / BYTES_OF_A_TOKEN);
    Some(Usage { input, output, ..counted })
}

impl CallReport {
    /// Charges the usage, counts the call, ends the call's span, logs the call, and frees its slot.
    pub(super) fn write(self) {
        let Self { telemetry, record, trace, end, slot, budget } = self;
        let mut record = lock(&record);
        // Estimated usage is charged, but not reported as the provider's.
        let reported = record.usage.filter(|usage| record.is_whole && usage.total() > 0);
        record.usage = used_tokens(&record);
        let mut used = UsageAmount::default();
        if let (Some(usage), Some(provider), Some(model)) =
            (record.usage, &record.provider, &record.model)
        {
            used = UsageAmount::for_one_call(usage, telemetry.meter.price(provider, model));
            let (tenant, key) = (record.tenant.clone(), record.key.clone());
            let (provider, model) = (provider.clone(), model.clone());
            telemetry.meter.charge(UsageKey { tenant, key, provider, model }, &used);
        }
        if let Some(budget) = budget {
            budget.settle(&used);
        }
        let took = end.duration_since(record.arrived);
        let span = trace.as_ref().and_then(TraceContext::sampled_span);
        let facts = CallFacts { used: &used, reported, took, end, span };
        telemetry.metrics.count(&record, &facts);
        if let Some(traces) = &telemetry.traces
            && let Some(ended) = trace.and_then(|trace| trace.report(&record, took))
        {
            traces.call_ended(ended);
        }
        let level = log::call_level(&record);
        if telemetry.log.wants(level) {
            telemetry.log.write(level, &log::line(&record, took, used.micro_usd()));
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
