//! Spans, the elements of a trace.

use jiff::Timestamp;
use throughline_json::{Name, words};

/// Value of the required attribute `gen_ai.provider.name` if the provider is unknown.
pub(crate) const UNKNOWN_PROVIDER: &str = "unknown";

/// An operation with a duration, or an instantaneous event. A span's id is derived from the run and
/// the span's position, so a repeated delivery contains the same ids.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Trace id, shared by all spans of the trace.
    pub trace: [u8; 16],
    /// Span id, unique within the trace.
    pub id: [u8; 8],
    /// Id of the parent span; `None` for a root span.
    pub parent: Option<[u8; 8]>,
    /// Display name, such as `chat claude-sonnet-4-5`.
    pub name: String,
    /// Kind of operation that the span measures.
    pub kind: SpanKind,
    /// Start time of the operation.
    pub start: Timestamp,
    /// End time of the operation; equal to `start` for an event.
    pub end: Timestamp,
    /// Attributes, with OpenTelemetry's names where conventions exist.
    pub attributes: Vec<(&'static str, Value)>,
    /// Error message, if the operation failed.
    pub problem: Option<Name>,
}

words! {
    /// Kind of a span. Each string is the kind's name in a session document.
    SpanKind {
        /// The whole run of an agent.
        Agent = "agent",
        /// A model call.
        Inference = "ai_call",
        /// A tool call.
        Tool = "tool_call",
        /// A change to the agent's plan.
        Plan = "plan",
        /// A wait for a person or the caller.
        Wait = "wait",
        /// An event such as a message, a note, a limit or a summary.
        Note = "note",
        /// A call through the gateway.
        Call = "gateway_call",
    }
}

impl SpanKind {
    /// Returns whether OpenTelemetry classifies the span as a client request.
    pub(crate) fn is_client(self) -> bool {
        matches!(self, SpanKind::Inference | SpanKind::Call)
    }
}

/// Attribute value, in one of OpenTelemetry's types.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A string.
    Text(Name),
    /// An unsigned integer.
    Whole(u64),
    /// A floating-point number.
    Decimal(f64),
    /// A Boolean.
    Flag(bool),
    /// A list of strings.
    Texts(Vec<Name>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(Name::from(text))
    }
}

impl From<&Name> for Value {
    fn from(text: &Name) -> Self {
        Value::Text(Name::clone(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Text(Name::from(text))
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Value::Whole(number)
    }
}

impl Span {
    /// Creates a span without attributes that starts and ends at `at`.
    pub(crate) fn new(trace: [u8; 16], kind: SpanKind, name: String, at: Timestamp) -> Self {
        let (id, parent, attributes, problem) = ([0; 8], None, Vec::new(), None);
        Self { trace, id, parent, name, kind, start: at, end: at, attributes, problem }
    }

    pub(crate) fn add(&mut self, key: &'static str, value: impl Into<Value>) {
        self.attributes.push((key, value.into()));
    }

    /// Adds a list of strings, unless it is empty.
    pub(crate) fn add_texts(&mut self, key: &'static str, texts: Vec<Name>) {
        if !texts.is_empty() {
            self.add(key, Value::Texts(texts));
        }
    }

    pub(crate) fn add_if_some(&mut self, key: &'static str, value: Option<impl Into<Value>>) {
        self.attributes.extend(value.map(|value| (key, value.into())));
    }
}

/// Derives an id of `N` bytes from a name. Equal names give equal ids.
pub(crate) fn derive_id<const N: usize>(name: &str) -> [u8; N] {
    let mut id = [0; N];
    blake3::Hasher::new_derive_key("throughline trace ids")
        .update(name.as_bytes())
        .finalize_xof()
        .fill(&mut id);
    id
}

/// Formats bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
