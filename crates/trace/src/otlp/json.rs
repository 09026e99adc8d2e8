//! Encodes spans as OTLP/JSON. Unlike in protobuf's own JSON mapping, ids are hexadecimal.

use throughline_core::gen_ai;
use throughline_json::{self as json, Number};

use super::{nanoseconds, status_of};
use crate::resource::{NAME, Resource, VERSION};
use crate::span::{Span, Value, hex};

/// Encodes an export request that contains these spans.
pub(crate) fn spans<'s>(spans: impl IntoIterator<Item = &'s Span>, resource: &Resource) -> Vec<u8> {
    let request = json::object(|o| {
        o.array("resourceSpans", |list| {
            list.object(|o| {
                o.object("resource", |o| {
                    o.array("attributes", |list| {
                        for (key, value) in resource.attributes() {
                            list.object(|o| put_attribute(o, key, &Value::from(value)));
                        }
                    });
                });
                o.array("scopeSpans", |list| {
                    list.object(|o| {
                        o.object("scope", |o| {
                            o.string("name", NAME).string("version", VERSION);
                        });
                        o.array("spans", |list| {
                            for span in spans {
                                list.object(|o| put(o, span));
                            }
                        });
                        o.string("schemaUrl", gen_ai::SCHEMA_URL);
                    });
                });
                o.string("schemaUrl", gen_ai::SCHEMA_URL);
            });
        });
    });
    request.bytes().to_vec()
}

fn put(o: &mut json::Object<'_>, span: &Span) {
    o.string("traceId", &hex(&span.trace)).string("spanId", &hex(&span.id));
    o.maybe_string("parentSpanId", span.parent.as_ref().map(|parent| hex(parent)).as_deref());
    o.string("name", &span.name).number("kind", super::span_kind(span));
    o.string("startTimeUnixNano", &nanoseconds(span.start).to_string());
    o.string("endTimeUnixNano", &nanoseconds(span.end).to_string());
    let (error, problem) = status_of(span);
    o.array("attributes", |list| {
        for (key, value) in span.attributes.iter().chain(&error) {
            list.object(|o| put_attribute(o, key, value));
        }
    });
    if let Some(problem) = problem {
        o.object("status", |o| {
            o.string("message", problem).number("code", super::ERROR);
        });
    }
}

fn put_attribute(o: &mut json::Object<'_>, key: &str, value: &Value) {
    o.string("key", key).object("value", |o| put_value(o, value));
}

fn put_value(o: &mut json::Object<'_>, value: &Value) {
    match value {
        Value::Text(text) => o.string("stringValue", text),
        Value::Flag(flag) => o.bool("boolValue", *flag),
        Value::Whole(number) => o.string("intValue", &number.to_string()),
        Value::Decimal(number) => match Number::from_f64(*number) {
            Some(number) => o.raw("doubleValue", &number.json()),
            None => o.string("doubleValue", "NaN"),
        },
        Value::Texts(texts) => o.object("arrayValue", |o| {
            o.array("values", |list| {
                for text in texts {
                    list.object(|o| {
                        o.string("stringValue", text);
                    });
                }
            });
        }),
    };
}
