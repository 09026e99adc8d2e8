//! What is told of one thing that took time.

use jiff::Timestamp;
use throughline_core::Name;

/// One thing that took time, or happened at once. Its ids follow from the run and from its place in it, so that whoever
/// tells it again tells the same span.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The trace.
    pub trace: [u8; 16],
    /// Its own id.
    pub id: [u8; 8],
    /// The span that it is a part of.
    pub parent: Option<[u8; 8]>,
    /// Its name, as `chat claude-sonnet-4-5`.
    pub name: String,
    /// What it is.
    pub kind: SpanKind,
    /// When it began.
    pub start: Timestamp,
    /// When it ended.
    pub end: Timestamp,
    /// What is known of it, by the names of OpenTelemetry's conventions where they have one.
    pub attributes: Vec<(&'static str, Value)>,
    /// What went wrong.
    pub problem: Option<Name>,
}

/// What a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SpanKind {
    /// A run of an agent, from its first word to its last.
    Agent,
    /// A model was asked.
    Inference,
    /// A tool ran.
    Tool,
    /// The plan changed.
    Plan,
    /// Somebody was waited for.
    Wait,
    /// Something happened: a message, a note, a limit, a summary.
    Note,
    /// A call through the gateway.
    Call,
}

impl SpanKind {
    /// The word for it in a session.
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

    /// Whether it is a request to somebody else, as OpenTelemetry tells spans apart.
    pub(crate) fn is_client(self) -> bool {
        matches!(self, SpanKind::Inference | SpanKind::Call)
    }
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(Name),
    /// A whole number.
    Whole(u64),
    /// A number.
    Decimal(f64),
    /// Yes or no.
    Flag(bool),
    /// Several texts.
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
    /// A span that begins and ends at once, and knows nothing yet.
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

    /// Adds what is known of it.
    pub(crate) fn add(&mut self, key: &'static str, value: impl Into<Value>) {
        self.attributes.push((key, value.into()));
    }

    /// Adds what may be known of it.
    pub(crate) fn maybe(&mut self, key: &'static str, value: Option<impl Into<Value>>) {
        self.attributes.extend(value.map(|value| (key, value.into())));
    }
}

/// An id for something of that name: the same each time.
pub(crate) fn id_of<const N: usize>(name: &str) -> [u8; N] {
    let mut id = [0; N];
    blake3::Hasher::new_derive_key("throughline trace ids")
        .update(name.as_bytes())
        .finalize_xof()
        .fill(&mut id);
    id
}

/// Bytes as lower-case digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digit = |value: u8| DIGITS.get(usize::from(value)).copied().unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
