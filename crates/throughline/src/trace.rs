//! Traces of runs and calls for common observability tools, and the trait for custom sinks.

use std::sync::Arc;
use std::time::Duration;

use throughline_agent::{Runner, Watcher};
use throughline_core::{LogId, Tenant};

pub use throughline_core::{CompletedCall, TraceParent};
pub use throughline_spec::{TraceSinkConfig, TraceSinkType, TracingConfig, TracingMode};
pub use throughline_trace::Mode as DeliveryMode;
pub use throughline_trace::{
    BatchPhase, COGNIPEER_URL, CallTracer, DeliveryReport, FileSink, FollowGuard, HttpSink,
    InvalidSink, OtlpEncoding, OtlpOptions, OtlpSink, Resource, Retry, Sampler, SendFuture,
    Session, Sink, SinkError, SinkKind, SinkOptions, Span, SpanKind, Status, TraceBatch,
    TraceOptions, Tracer, TracerOptions, Value, bearer, load_session, otlp_spans, run_trace_id,
    run_tracing, send,
};

/// Traces all runs that the runner drives from now on. Call [`Tracer::finish`] before the process
/// ends, so that the last batches are delivered.
///
/// `examples/custom_sink.rs` uses this function. To give single agents their own sinks, use
/// [`attach_tracer`] and [`TracerOptions::named_sinks`].
pub fn attach(
    runner: &mut Runner,
    mode: DeliveryMode,
    content: TraceOptions,
    sinks: Vec<Arc<dyn Sink>>,
) -> Tracer {
    let tracer = Tracer::new(TracerOptions {
        store: Arc::clone(&runner.store),
        clock: Arc::clone(&runner.clock),
        mode,
        content,
        sinks,
        named_sinks: Vec::new(),
        accepts_agent_sinks: true,
        patience: Duration::from_secs(20),
    });
    attach_tracer(runner, &tracer);
    tracer
}

/// Makes the tracer follow all runs that the runner drives from now on. Agents and runs with a
/// [`TracingConfig`] change the tracer's settings for their own traces.
pub fn attach_tracer(runner: &mut Runner, tracer: &Tracer) {
    runner.watcher = Some(Arc::new(RunTraces(tracer.clone())));
}

/// Makes the tracer follow each run that the runner drives.
struct RunTraces(Tracer);

impl Watcher for RunTraces {
    fn on_drive(&self, tenant: &Tenant, run: &LogId, records: u64) -> Box<dyn Send> {
        Box::new(self.0.follow(tenant, run, records))
    }
}
