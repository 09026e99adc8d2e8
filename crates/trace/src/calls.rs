//! Traces gateway calls through a bounded queue. Calls that do not fit into the queue are dropped
//! and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use throughline_core::{CompletedCall, RequestParameters, gen_ai};
use throughline_json::Name;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::deliver::with_retries;
use crate::sink::Sink;
use crate::span::{Span, SpanKind, UNKNOWN_PROVIDER, Value};

/// Maximum number of calls in the queue.
const AHEAD: usize = 1024;
/// Maximum number of calls per batch.
const TOGETHER: usize = 64;

/// Sends gateway calls to trace sinks.
pub struct CallTracer {
    queue: Sender<QueueEntry>,
    dropped: Arc<AtomicU64>,
}

enum QueueEntry {
    /// A finished call and its end time.
    Call(Box<CompletedCall>, Timestamp),
    /// Marker that is acknowledged once all calls before it are delivered.
    End(oneshot::Sender<()>),
}

impl CallTracer {
    /// Creates a tracer and spawns its delivery task. Must be called in a Tokio runtime.
    pub fn new(sinks: Vec<Arc<dyn Sink>>) -> Self {
        let (queue, receiver) = channel(AHEAD);
        let dropped = Arc::new(AtomicU64::new(0));
        tokio::spawn(forward_calls(receiver, sinks, Arc::clone(&dropped)));
        Self { queue, dropped }
    }

    /// Queues a finished call without blocking. Drops the call if the queue is full.
    pub fn call(&self, call: CompletedCall, end: Timestamp) {
        if self.queue.try_send(QueueEntry::Call(Box::new(call), end)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of calls that did not fit into the queue or were not delivered. A call
    /// that several sinks did not accept counts once per sink.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits until all queued calls are delivered, but no longer than `patience`.
    pub async fn finish(&self, patience: Duration) {
        let (ack, acknowledged) = oneshot::channel();
        let drained = async {
            if self.queue.send(QueueEntry::End(ack)).await.is_ok() {
                acknowledged.await.ok();
            }
        };
        timeout(patience, drained).await.ok();
    }
}

async fn forward_calls(
    mut receiver: Receiver<QueueEntry>,
    sinks: Vec<Arc<dyn Sink>>,
    dropped: Arc<AtomicU64>,
) {
    let mut entries = Vec::new();
    while receiver.recv_many(&mut entries, TOGETHER).await > 0 {
        let (mut spans, mut acks) = (Vec::new(), Vec::new());
        for entry in entries.drain(..) {
            match entry {
                QueueEntry::Call(call, end) => spans.push(span(&call, end)),
                QueueEntry::End(ack) => acks.push(ack),
            }
        }
        if !spans.is_empty() {
            for sink in &sinks {
                if with_retries(|| sink.send_calls(&spans)).await.is_err() {
                    dropped.fetch_add(spans.len() as u64, Ordering::Relaxed);
                }
            }
        }
        for ack in acks {
            // The receiver is gone if its wait timed out.
            ack.send(()).ok();
        }
    }
}

pub(crate) fn span(call: &CompletedCall, end: Timestamp) -> Span {
    let model = call.model.as_deref().unwrap_or("unknown");
    let took = jiff::SignedDuration::try_from(call.took).unwrap_or_default();
    let start = end.checked_sub(took).unwrap_or(end);
    let name = format!("{} {model}", call.operation);
    let mut span = Span::new(call.own.trace, SpanKind::Call, name, start);
    (span.id, span.parent, span.end) = (call.own.span, call.parent, end);
    span.add("gen_ai.operation.name", call.operation);
    let system = call.system.as_ref().or(call.provider.as_ref());
    let system = system.map_or(UNKNOWN_PROVIDER, |system| gen_ai::provider_name(system));
    span.add("gen_ai.provider.name", system);
    span.add_if_some("gen_ai.request.model", call.model.as_ref());
    if call.is_stream {
        span.add("gen_ai.request.stream", Value::Flag(true));
    }
    add_parameters(&mut span, &call.parameters);
    span.add_if_some("gen_ai.response.id", call.response.as_ref());
    span.add_if_some("gen_ai.response.model", call.answered.as_ref());
    span.add_texts("gen_ai.response.finish_reasons", call.finish_reason.iter().cloned().collect());
    let server = call.endpoint.as_deref().and_then(gen_ai::server_address);
    if let Some((address, port)) = server {
        span.add("server.address", address);
        span.add("server.port", u64::from(port));
    }
    span.add("http.response.status_code", u64::from(call.status));
    span.add_if_some("throughline.provider", call.provider.as_ref());
    span.add("throughline.dialect", &call.dialect);
    span.add_if_some("throughline.call", call.call.as_ref());
    span.add_if_some("throughline.audit", call.audit);
    if let Some(usage) = &call.usage {
        span.add("gen_ai.usage.input_tokens", usage.input);
        span.add("gen_ai.usage.output_tokens", usage.output);
        span.add("gen_ai.usage.cache_read.input_tokens", usage.cached);
        span.add("gen_ai.usage.cache_creation.input_tokens", usage.written);
        span.add("gen_ai.usage.reasoning.output_tokens", usage.thought);
    }
    if let Some([kept, restored, elided]) = call.fates {
        span.add("throughline.fates.kept", kept);
        span.add("throughline.fates.restored", restored);
        span.add("throughline.fates.elided", elided);
    }
    let first_byte = call.first_byte.filter(|_| call.is_stream);
    let first_byte = first_byte.map(|first| Value::Decimal(first.as_secs_f64()));
    span.add_if_some("gen_ai.response.time_to_first_chunk", first_byte);
    let failed = call.status >= 400 || call.status == 0;
    let problem = || failed.then(|| Name::from(format!("HTTP {}", call.status)));
    span.problem = call.problem.clone().or_else(problem);
    if span.problem.is_some() {
        span.add_if_some("error.type", call.error_type.as_ref());
    }
    span
}

fn add_parameters(span: &mut Span, parameters: &RequestParameters) {
    let RequestParameters { max_tokens, choices, seed, stop_sequences, output_type, .. } =
        parameters;
    span.add_if_some("gen_ai.request.max_tokens", *max_tokens);
    // The conventions omit the usual number.
    span.add_if_some("gen_ai.request.choice.count", choices.filter(|choices| *choices != 1));
    span.add_if_some("gen_ai.request.seed", *seed);
    for (key, value) in [
        ("gen_ai.request.temperature", parameters.temperature),
        ("gen_ai.request.top_p", parameters.top_p),
        ("gen_ai.request.top_k", parameters.top_k),
        ("gen_ai.request.frequency_penalty", parameters.frequency_penalty),
        ("gen_ai.request.presence_penalty", parameters.presence_penalty),
    ] {
        span.add_if_some(key, value.map(Value::Decimal));
    }
    span.add_texts("gen_ai.request.stop_sequences", stop_sequences.clone());
    span.add_if_some("gen_ai.output.type", *output_type);
}
