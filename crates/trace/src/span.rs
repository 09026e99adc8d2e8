//! Spans, the units of a trace.

use jiff::Timestamp;
use throughline_json::Name;

/// An operation with a duration, or an instantaneous event. Its ids are derived from the run and
/// its position, so a repeated delivery contains the same span.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Id of the trace.
    pub trace: [u8; 16],
    /// Id of the span.
    pub id: [u8; 8],
    /// Id of the parent span.
    pub parent: Option<[u8; 8]>,
    /// Name such as `chat claude-sonnet-4-5`.
    pub name: String,
    /// Kind of operation.
    pub kind: SpanKind,
    /// Start time.
    pub start: Timestamp,
    /// End time.
    pub end: Timestamp,
    /// Attributes, named after OpenTelemetry's conventions where they exist.
    pub attributes: Vec<(&'static str, Value)>,
    /// Error, if the operation failed.
    pub problem: Option<Name>,
}

/// Kind of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpanKind {
    /// A run of an agent.
    Agent,
    /// A model call.
    Inference,
    /// A tool call.
    Tool,
    /// A change of the plan.
    Plan,
    /// A wait for a person or the caller.
    Wait,
    /// An event such as a message, a note, a limit or a summary.
    Note,
    /// A call through the gateway.
    Call,
}

impl SpanKind {
    /// Returns the name of the kind in a session document.
    pub fn as_str(self) -> &'static str {
        match self {
            SpanKind::Agent => "agent",
            SpanKind::Inference => "ai_call",
            SpanKind::Tool => "tool_call",
            SpanKind::Plan => "plan",
            SpanKind::Wait => "wait",
            SpanKind::Note => "note",
            SpanKind::Call => "gateway_call",
        }
    }

    /// Returns whether OpenTelemetry classifies the span as a client request.
    pub(crate) fn is_client(self) -> bool {
        matches!(self, SpanKind::Inference | SpanKind::Call)
    }
}

/// Value of an attribute.
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
    /// Creates a span without duration and attributes.
    pub(crate) fn new(trace: [u8; 16], kind: SpanKind, name: String, at: Timestamp) -> Self {
        Self {
            trace,
            id: [0; 8],
            parent: None,
            name,
            kind,
            start: at,
            end: at,
            attributes: Vec::new(),
            problem: None,
        }
    }

    /// Adds an attribute.
    pub(crate) fn add(&mut self, key: &'static str, value: impl Into<Value>) {
        self.attributes.push((key, value.into()));
    }

    /// Adds an attribute if the value is present.
    pub(crate) fn add_if_some(&mut self, key: &'static str, value: Option<impl Into<Value>>) {
        self.attributes.extend(value.map(|value| (key, value.into())));
    }
}

/// Derives a deterministic id from a name.
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
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digit = |value: u8| DIGITS.get(usize::from(value)).copied().unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
