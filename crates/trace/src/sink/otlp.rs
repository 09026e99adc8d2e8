//! Sends traces to an OpenTelemetry collector over HTTP, as protobuf or JSON.

use std::time::Duration;

use throughline_core::Credential;
use throughline_json::Name;

use crate::otlp;
use crate::resource::Resource;
use crate::session::TraceBatch;
use crate::sink::http::PostTarget;
use crate::sink::{InvalidSink, SendFuture, Sink};
use crate::span::Span;

/// URL path of the collector's trace endpoint.
const PATH: &str = "/v1/traces";

/// Sends spans to an OpenTelemetry collector.
pub struct OtlpSink {
    name: Name,
    post: PostTarget,
    options: OtlpOptions,
}

/// Further options of an [`OtlpSink`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtlpOptions {
    /// Attributes of this process.
    pub resource: Resource,
    /// Format of the requests.
    pub encoding: OtlpEncoding,
    /// Whether the URL is complete. Otherwise `/v1/traces` is appended unless the URL already ends
    /// with it.
    pub is_complete_url: bool,
    /// Timeout of one request; 8 seconds by default.
    pub timeout: Option<Duration>,
}

/// Format of the requests to a collector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtlpEncoding {
    /// `http/protobuf`.
    #[default]
    Protobuf,
    /// `http/json`.
    Json,
}

impl OtlpEncoding {
    fn content_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/x-protobuf",
            Self::Json => "application/json",
        }
    }
}

impl OtlpSink {
    /// Creates a sink for a collector, such as `http://127.0.0.1:4318`.
    pub fn new(
        name: Name,
        url: &str,
        headers: &[(Name, Credential)],
        options: OtlpOptions,
    ) -> Result<Self, InvalidSink> {
        let base = url.trim_end_matches('/');
        let is_complete = options.is_complete_url || base.ends_with(PATH);
        let url = if is_complete { url.to_owned() } else { format!("{base}{PATH}") };
        let post = PostTarget::new(&url, headers)?.with_timeout(options.timeout);
        Ok(Self { name, post, options })
    }

    fn post<'a>(&'a self, spans: Vec<&Span>) -> SendFuture<'a> {
        let OtlpOptions { resource, encoding, .. } = &self.options;
        let body = match encoding {
            OtlpEncoding::Protobuf => otlp::spans(spans, resource),
            OtlpEncoding::Json => otlp::json_spans(spans, resource),
        };
        Box::pin(self.post.send(encoding.content_type(), None, body))
    }
}

impl Sink for OtlpSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn send<'a>(&'a self, batch: &'a TraceBatch) -> SendFuture<'a> {
        // Collectors must receive each span only once, and a repeated batch differs only in the
        // run's own span.
        let spans = batch.spans.iter().filter(|_| !batch.is_again);
        let spans: Vec<&Span> = spans.chain(&batch.agent).collect();
        if spans.is_empty() {
            return Box::pin(async { Ok(()) });
        }
        self.post(spans)
    }

    fn send_calls<'a>(&'a self, calls: &'a [Span]) -> SendFuture<'a> {
        self.post(calls.iter().collect())
    }
}
