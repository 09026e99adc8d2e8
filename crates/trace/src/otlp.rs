//! Encodes spans as OpenTelemetry's `ExportTraceServiceRequest` in protobuf.
//!
//! The message has only a dozen fields of five kinds, so a hand-written encoder is simpler than a
//! generated one.

mod json;

use jiff::Timestamp;
use throughline_core::gen_ai;
use throughline_json::Name;

pub(crate) use crate::otlp::json::spans as json_spans;
use crate::resource::{NAME, Resource, VERSION};
use crate::span::{Span, Value};

/// The status code `ERROR` of a span.
const ERROR: u64 = 2;

/// Encodes an export request that contains these spans.
pub fn spans<'s>(spans: impl IntoIterator<Item = &'s Span>, resource: &Resource) -> Vec<u8> {
    let mut request = Message::default();
    request.message(1, |resource_spans| {
        resource_spans.message(1, |out| {
            for (key, value) in resource.attributes() {
                attribute(out, 1, key, &Value::from(value));
            }
        });
        resource_spans.message(2, |scope_spans| {
            scope_spans.message(1, |scope| {
                scope.text(1, NAME);
                scope.text(2, VERSION);
            });
            for span in spans {
                scope_spans.message(2, |out| put(out, span));
            }
            scope_spans.text(3, gen_ai::SCHEMA_URL);
        });
        resource_spans.text(3, gen_ai::SCHEMA_URL);
    });
    request.0
}

fn put(out: &mut Message, span: &Span) {
    out.bytes(1, &span.trace);
    out.bytes(2, &span.id);
    if let Some(parent) = &span.parent {
        out.bytes(4, parent);
    }
    out.text(5, &span.name);
    out.number(6, span_kind(span));
    out.fixed(7, nanoseconds(span.start));
    out.fixed(8, nanoseconds(span.end));
    let (error, problem) = status_of(span);
    for (key, value) in span.attributes.iter().chain(&error) {
        attribute(out, 9, key, value);
    }
    if let Some(problem) = problem {
        out.message(15, |status| {
            status.text(2, problem);
            status.number(3, ERROR);
        });
    }
}

/// Returns the span kind of the protocol: 3 is CLIENT, 1 is INTERNAL.
fn span_kind(span: &Span) -> u64 {
    if span.kind.is_client() { 3 } else { 1 }
}

/// Returns the error message of a failed span. A failed span must have an error class, so also
/// returns `error.type` for a span that has none.
fn status_of(span: &Span) -> (Option<(&'static str, Value)>, Option<&Name>) {
    let problem = span.problem.as_ref();
    let has_class = span.attributes.iter().any(|(key, _)| *key == ERROR_TYPE);
    let class = problem.filter(|_| !has_class);
    (class.map(|_| (ERROR_TYPE, Value::from(gen_ai::OTHER_ERROR))), problem)
}

/// Attribute with the class of a span's error.
const ERROR_TYPE: &str = "error.type";

fn attribute(out: &mut Message, field: u32, key: &str, value: &Value) {
    out.message(field, |pair| {
        pair.text(1, key);
        pair.message(2, |any| any_value(any, value));
    });
}

fn any_value(any: &mut Message, value: &Value) {
    match value {
        Value::Text(text) => any.text(1, text),
        Value::Flag(flag) => any.number(2, u64::from(*flag)),
        Value::Whole(number) => any.number(3, *number),
        Value::Decimal(number) => any.fixed(4, number.to_bits()),
        Value::Texts(texts) => any.message(5, |list| {
            for text in texts {
                list.message(1, |any| any.text(1, text));
            }
        }),
    }
}

fn nanoseconds(at: Timestamp) -> u64 {
    u64::try_from(at.as_nanosecond()).unwrap_or(0)
}

/// A protobuf message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }

    /// Writes the key of a field: its number and wire type.
    fn key(&mut self, field: u32, kind: u32) {
        self.varint(u64::from(field << 3 | kind));
    }

    fn number(&mut self, field: u32, value: u64) {
        self.key(field, 0);
        self.varint(value);
    }

    fn fixed(&mut self, field: u32, value: u64) {
        self.key(field, 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn bytes(&mut self, field: u32, value: &[u8]) {
        self.key(field, 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    fn text(&mut self, field: u32, value: &str) {
        self.bytes(field, value.as_bytes());
    }

    fn message(&mut self, field: u32, fill: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        fill(&mut inner);
        self.bytes(field, &inner.0);
    }
}
