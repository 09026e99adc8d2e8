//! Traces of runs and gateway calls, for existing observability tools.
//!
//! A run's trace is a view of its log, so the trace needs no state of its own and can be rebuilt at
//! any time. Each turn adds only new content, so a trace grows linearly with its run.
//!
//! | file | content |
//! |---|---|
//! | `span.rs` | spans of runs, turns, tools, plans and waits |
//! | `fold.rs`, `fold/` | spans from a run's events |
//! | `session.rs` | a trace as one JSON document |
//! | `otlp.rs`, `otlp/` | OpenTelemetry's protobuf and JSON formats |
//! | `resource.rs`, `sampler.rs` | OpenTelemetry's resource and samplers |
//! | `sink.rs`, `sink/` | files, HTTP endpoints, OpenTelemetry collectors and custom sinks |
//! | `deliver.rs` | delivery to all sinks with retries; failures make a trace partial |
//! | `tracer.rs` | following and delivering runs |
//! | `calls.rs` | gateway calls from a bounded queue |
//! | `webhook.rs` | other messages to an HTTP endpoint |

mod calls;
#[cfg(test)]
mod convention_tests;
mod deliver;
mod fold;
mod otlp;
mod resource;
mod sampler;
mod session;
mod sink;
mod span;
mod tracer;
mod webhook;

pub use crate::calls::CallTracer;
pub use crate::deliver::{DeliveryReport, send};
pub use crate::fold::{Fold, TraceOptions};
pub use crate::otlp::spans as otlp_spans;
pub use crate::resource::Resource;
pub use crate::sampler::Sampler;
pub use crate::session::{BatchPhase, Mode, Session, Status, TraceBatch};
pub use crate::sink::{
    COGNIPEER_URL, FileSink, HttpSink, InvalidSink, OtlpEncoding, OtlpOptions, OtlpSink, Retry,
    SendFuture, Sink, SinkError, SinkKind, SinkOptions, StoredSession, bearer,
};
pub use crate::span::{Span, SpanKind, Value};
pub use crate::tracer::{
    FollowGuard, Tracer, TracerOptions, load_session, run_trace_id, run_tracing,
};
pub use crate::webhook::Webhook;
