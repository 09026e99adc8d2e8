//! Destinations for traces.

mod file;
mod http;
mod otlp;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use throughline_core::Credential;
use throughline_json::{Name, words};

pub use crate::sink::file::{FileSink, StoredSession};
pub use crate::sink::http::HttpSink;
pub(crate) use crate::sink::http::PostTarget;
pub use crate::sink::otlp::{OtlpEncoding, OtlpOptions, OtlpSink};

use crate::session::TraceBatch;
use crate::span::Span;

/// Future returned by [`Sink::send`] and [`Sink::send_calls`].
pub type SendFuture<'a> = Pin<Box<dyn Future<Output = Result<(), SinkError>> + Send + 'a>>;

/// A destination for traces. Custom sinks can do everything that the built-in sinks do.
pub trait Sink: Send + Sync {
    /// Returns the sink's name for errors and reports. It must not contain secrets.
    fn name(&self) -> &str;

    /// Accepts one batch of a run's trace. If a delivery is retried, the same batch may arrive
    /// twice, with the same key.
    fn send<'a>(&'a self, batch: &'a TraceBatch) -> SendFuture<'a>;

    /// Accepts spans of gateway calls. The default implementation ignores them.
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
    /// Whether and when to retry the delivery.
    pub again: Retry,
}

/// Whether and when to retry a failed delivery.
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
    /// Creates an error that is not retried.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self { message: message.into(), again: Retry::Never }
    }

    /// Creates an error that is retried with backoff.
    pub fn temporary(message: impl Into<String>) -> Self {
        Self { message: message.into(), again: Retry::Soon }
    }
}

words! {
    /// Kind of a sink. Each string is the kind's name in the configuration.
    SinkKind {
        /// A folder with one subfolder per session; see [`FileSink`].
        File = "file",
        /// An HTTP endpoint that accepts sessions as JSON.
        Http = "http",
        /// Like `Http`, for Cognipeer's console, which has a default URL and requires an API key.
        Cognipeer = "cognipeer",
        /// An OpenTelemetry collector; see [`OtlpSink`].
        Otlp = "otlp",
    }
}

impl SinkKind {
    /// All kinds, each with its name in the configuration.
    pub const ALL: &'static [(&'static str, Self)] = &[
        ("file", Self::File),
        ("http", Self::Http),
        ("cognipeer", Self::Cognipeer),
        ("otlp", Self::Otlp),
    ];
}

/// Configuration of one sink.
#[derive(Clone, Debug)]
pub struct SinkOptions {
    /// Protocol of the sink.
    pub kind: SinkKind,
    /// Name of the sink in reports; defaults to its kind.
    pub name: Option<Name>,
    /// URL of the destination, or the path of the folder for a file sink.
    pub to: String,
    /// Headers sent with every request. Their values are secret.
    pub headers: Vec<(Name, Credential)>,
    /// Further options of an OpenTelemetry collector.
    pub otlp: OtlpOptions,
}

/// Address of Cognipeer's hosted console.
pub const COGNIPEER_URL: &str = "https://api.cognipeer.com/v1/client/tracing/sessions";

/// Error for an invalid sink configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSink(pub String);

impl SinkOptions {
    /// Creates the options of a sink for Cognipeer's console with this API key. Set `to` for a
    /// console at another address.
    pub fn cognipeer(api_key: &Credential) -> Self {
        let (to, headers) = (COGNIPEER_URL.to_owned(), vec![bearer(api_key)]);
        let otlp = OtlpOptions::default();
        Self { kind: SinkKind::Cognipeer, name: None, to, headers, otlp }
    }

    /// Checks the options and creates the sink.
    pub fn open(&self) -> Result<Box<dyn Sink>, InvalidSink> {
        let name = self.name.clone().unwrap_or_else(|| Name::from(self.kind.as_str()));
        Ok(match self.kind {
            SinkKind::File => Box::new(FileSink::new(name, &self.to)),
            SinkKind::Cognipeer if self.to == COGNIPEER_URL && self.headers.is_empty() => {
                let problem = "Cognipeer's hosted console needs an API key";
                return Err(InvalidSink(problem.to_owned()));
            }
            SinkKind::Http | SinkKind::Cognipeer => {
                Box::new(HttpSink::new(name, &self.to, &self.headers)?)
            }
            SinkKind::Otlp => {
                Box::new(OtlpSink::new(name, &self.to, &self.headers, self.otlp.clone())?)
            }
        })
    }
}

/// Returns the header that authenticates with an API key.
pub fn bearer(api_key: &Credential) -> (Name, Credential) {
    (Name::from("authorization"), Credential::new(format!("Bearer {}", api_key.reveal())))
}
