//! Traces for an OpenTelemetry collector: protobuf over HTTP.

use throughline_core::{Credential, Name};

use crate::otlp;
use crate::session::Parcel;
use crate::sink::http::Post;
use crate::sink::{InvalidSink, Sink, Taking};
use crate::span::Span;

const KIND: &str = "application/x-protobuf";
/// Where collectors take traces.
const PATH: &str = "/v1/traces";

/// Posts spans to a collector.
pub struct OtlpSink {
    name: Name,
    post: Post,
}

impl OtlpSink {
    /// A collector at that address, as `http://127.0.0.1:4318`; one that ends with `/v1/traces` is taken as it is.
    pub fn new(name: Name, url: &str, headers: &[(Name, Credential)]) -> Result<Self, InvalidSink> {
        let base = url.trim_end_matches('/');
        let url = if base.ends_with(PATH) { base.to_owned() } else { format!("{base}{PATH}") };
        Ok(Self { name, post: Post::new(&url, headers)? })
    }
}

impl Sink for OtlpSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn take<'a>(&'a self, parcel: &'a Parcel) -> Taking<'a> {
        // A span is told once; of what is told again, only the run's own says something else.
        let spans = parcel.spans.iter().filter(|_| !parcel.is_again);
        let spans: Vec<&Span> = spans.chain(&parcel.agent).collect();
        if spans.is_empty() {
            return Box::pin(async { Ok(()) });
        }
        Box::pin(self.post.send(KIND, None, otlp::spans(spans)))
    }

    fn take_calls<'a>(&'a self, calls: &'a [Span]) -> Taking<'a> {
        Box::pin(self.post.send(KIND, None, otlp::spans(calls)))
    }
}
