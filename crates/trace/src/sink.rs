//! Where traces go.

mod file;
mod http;
mod otlp;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use throughline_core::{Credential, Name};

pub use crate::sink::file::FileSink;
pub use crate::sink::http::HttpSink;
pub use crate::sink::otlp::OtlpSink;

use crate::session::Parcel;
use crate::span::Span;

/// A parcel that is being taken.
pub type Taking<'a> = Pin<Box<dyn Future<Output = Result<(), SinkError>> + Send + 'a>>;

/// Where traces go. One of your own is a peer of the built-in ones.
pub trait Sink: Send + Sync {
    /// What it is called in what is told of it. It holds no secret.
    fn name(&self) -> &str;

    /// Takes a piece of a run's trace, or all of it. The same parcel may come twice, under the same key.
    fn take<'a>(&'a self, parcel: &'a Parcel) -> Taking<'a>;

    /// Takes calls of the gateway. Who has no use for them takes nothing.
    fn take_calls<'a>(&'a self, _calls: &'a [Span]) -> Taking<'a> {
        Box::pin(async { Ok(()) })
    }
}

/// Why a parcel was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SinkError {
    /// What went wrong, without secrets.
    pub message: String,
    /// Whether it may be taken later, and after which wait if the sink said so.
    pub again: Again,
}

/// Whether something is worth another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// It would fail again.
    Never,
    /// It may not.
    Soon,
    /// It may not, after that time.
    After(Duration),
}

impl SinkError {
    /// A failure that would come again.
    pub fn lasting(message: impl Into<String>) -> Self {
        Self { message: message.into(), again: Again::Never }
    }

    /// A failure that may pass.
    pub fn passing(message: impl Into<String>) -> Self {
        Self { message: message.into(), again: Again::Soon }
    }
}

/// A kind of sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SinkKind {
    /// A folder of files.
    File,
    /// An HTTP endpoint that takes the session's JSON.
    Http,
    /// The same for Cognipeer's console, by its own header.
    Cognipeer,
    /// An OpenTelemetry collector.
    Otlp,
}

impl SinkKind {
    /// All of them, by their words.
    pub const ALL: &'static [(&'static str, Self)] = &[
        ("file", Self::File),
        ("http", Self::Http),
        ("cognipeer", Self::Cognipeer),
        ("otlp", Self::Otlp),
    ];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Http => "http",
            Self::Cognipeer => "cognipeer",
            Self::Otlp => "otlp",
        }
    }
}

/// A sink, as it is configured.
#[derive(Clone, Debug)]
pub struct SinkOptions {
    /// What it is.
    pub kind: SinkKind,
    /// What it is called; its kind without it.
    pub name: Option<Name>,
    /// The address, or the folder of a file sink.
    pub to: String,
    /// Headers that go along. They are never told.
    pub headers: Vec<(Name, Credential)>,
}

/// Why there can be no such sink.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSink(pub String);

impl SinkOptions {
    /// The sink itself.
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
