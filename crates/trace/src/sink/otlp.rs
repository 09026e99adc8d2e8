//! Sends traces to an OpenTelemetry collector as protobuf over HTTP.

use throughline_core::Credential;
use throughline_json::Name;

use crate::otlp;
use crate::session::TraceBatch;
use crate::sink::http::PostTarget;
use crate::sink::{InvalidSink, SendFuture, Sink};
use crate::span::Span;

const KIND: &str = "application/x-protobuf";
/// URL path of the collector's trace endpoint.
const PATH: &str = "/v1/traces";

/// Sends spans to an OpenTelemetry collector.
pub struct OtlpSink {
    name: Name,
    post: PostTarget,
}

impl OtlpSink {
    /// Creates a sink for a collector, such as `http://127.0.0.1:4318`. `/v1/traces` is appended
    /// unless the URL already ends with it.
    pub fn new(name: Name, url: &str, headers: &[(Name, Credential)]) -> Result<Self, InvalidSink> {
        let base = url.trim_end_matches('/');
        let url = if base.ends_with(PATH) { base.to_owned() } else { format!("{base}{PATH}") };
        Ok(Self { name, post: PostTarget::new(&url, headers)? })
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
        Box::pin(self.post.send(KIND, None, otlp::spans(spans)))
    }

    fn send_calls<'a>(&'a self, calls: &'a [Span]) -> SendFuture<'a> {
        Box::pin(self.post.send(KIND, None, otlp::spans(calls)))
    }
}
