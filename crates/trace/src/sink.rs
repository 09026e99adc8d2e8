//! Destinations of traces.

mod file;
mod http;
mod otlp;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use throughline_core::Credential;
use throughline_json::{Name, words};

pub use crate::sink::file::FileSink;
pub use crate::sink::http::HttpSink;
pub use crate::sink::otlp::OtlpSink;

use crate::session::TraceBatch;
use crate::span::Span;

/// Future of a delivery to one sink.
pub type SendFuture<'a> = Pin<Box<dyn Future<Output = Result<(), SinkError>> + Send + 'a>>;

/// Destination of traces. Custom sinks have the same capabilities as the built-in ones.
pub trait Sink: Send + Sync {
    /// Returns the name of the sink in errors and reports, without secrets.
    fn name(&self) -> &str;

    /// Accepts a batch of a run's trace. The same batch may arrive twice, with the same key.
    fn send<'a>(&'a self, parcel: &'a TraceBatch) -> SendFuture<'a>;

    /// Accepts gateway calls; ignores them by default.
    fn send_calls<'a>(&'a self, _calls: &'a [Span]) -> SendFuture<'a> {
        Box::pin(async { Ok(()) })
    }
}

/// Reason why a sink did not accept a batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SinkError {
    /// Description of the failure, without secrets.
    pub message: String,
    /// Whether and when to retry.
    pub again: Retry,
}

/// Retry advice of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Do not retry.
    Never,
    /// Retry with backoff.
    Soon,
    /// Retry after this delay.
    After(Duration),
}

impl SinkError {
    /// Creates a permanent failure.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self { message: message.into(), again: Retry::Never }
    }

    /// Creates a temporary failure.
    pub fn temporary(message: impl Into<String>) -> Self {
        Self { message: message.into(), again: Retry::Soon }
    }
}

words! {
    /// Kind of a sink, with its configured name.
    SinkKind {
        /// A folder with one subfolder per session.
        File = "file",
        /// An HTTP endpoint that accepts the session as JSON.
        Http = "http",
        /// The same for the Cognipeer console, with its own header.
        Cognipeer = "cognipeer",
        /// An OpenTelemetry collector.
        Otlp = "otlp",
    }
}

impl SinkKind {
    /// All kinds with their configured names.
    pub const ALL: &'static [(&'static str, Self)] = &[
        ("file", Self::File),
        ("http", Self::Http),
        ("cognipeer", Self::Cognipeer),
        ("otlp", Self::Otlp),
    ];
}

/// Declares a sink.
#[derive(Clone, Debug)]
pub struct SinkOptions {
    /// Protocol and destination of the sink.
    pub kind: SinkKind,
    /// Name of the sink; defaults to its kind.
    pub name: Option<Name>,
    /// URL, or the folder of a file sink.
    pub to: String,
    /// Headers of every request. They are secret.
    pub headers: Vec<(Name, Credential)>,
}

/// Reason why a sink configuration is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSink(pub String);

impl SinkOptions {
    /// Checks the options and creates the sink.
    pub fn open(&self) -> Result<Box<dyn Sink>, InvalidSink> {
        let name = self.name.clone().unwrap_or_else(|| Name::from(self.kind.as_str()));
        Ok(match self.kind {
            SinkKind::File => Box::new(FileSink::new(name, &self.to)),
            SinkKind::Http | SinkKind::Cognipeer => {
                Box::new(HttpSink::new(name, &self.to, &self.headers)?)
            }
            SinkKind::Otlp => Box::new(OtlpSink::new(name, &self.to, &self.headers)?),
        })
    }
}
