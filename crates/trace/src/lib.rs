//! Traces: what runs and calls did, told to the tools that operators already have.
//!
//! A run's trace is a view of its own log, so nothing has to be remembered while it goes on, and a trace can be made again at any
//! time. Each turn tells what is new in it and nothing that an earlier one told: a trace grows as its run does.
//!
//! | file | holds |
//! |---|---|
//! | `span.rs` | what is told of one thing that took time: a run, a turn, a tool, a plan, a wait |
//! | `fold.rs`, `fold/` | spans from a run's events, as they are read |
//! | `session.rs` | a trace as one JSON document |
//! | `otlp.rs`, `otlp/` | the same as OpenTelemetry has it, written as protobuf |
//! | `sink.rs`, `sink/` | where traces go: files, HTTP endpoints, OpenTelemetry collectors, and sinks of one's own |
//! | `deliver.rs` | a parcel is handed to all sinks, with patience; who failed makes the trace partial |
//! | `tracer.rs` | runs are followed while they go on, and told |
//! | `calls.rs` | calls of the gateway are told, from a queue that has an end |

mod calls;
mod deliver;
mod fold;
mod otlp;
mod session;
mod sink;
mod span;
mod tracer;

pub use crate::calls::CallTracer;
pub use crate::deliver::{Delivered, Status, send};
pub use crate::fold::{Fold, Telling};
pub use crate::otlp::spans as otlp_spans;
pub use crate::session::{Parcel, Phase, Session};
pub use crate::sink::{
    Again, FileSink, HttpSink, InvalidSink, OtlpSink, Sink, SinkError, SinkKind, SinkOptions,
    Taking,
};
pub use crate::span::{Span, SpanKind, Value};
pub use crate::tracer::{Following, Mode, Tracer, TracerOptions, session_of};
