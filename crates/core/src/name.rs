//! Wire names and ids. They are cheap to clone and compare by value.

use std::borrow::Cow;

use bytes::Bytes;
use throughline_json::{Label, Name};

/// The name of a provider protocol. The set is open: other crates can add codecs with new names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Wire(Label);

impl Wire {
    /// Anthropic's Messages API.
    pub const ANTHROPIC_MESSAGES: Wire = Wire(Cow::Borrowed("anthropic-messages"));
    /// OpenAI's Responses API and compatible APIs of other providers.
    pub const OPENAI_RESPONSES: Wire = Wire(Cow::Borrowed("openai-responses"));
    /// OpenAI's Chat Completions API, with all its dialects.
    pub const OPENAI_CHAT: Wire = Wire(Cow::Borrowed("openai-chat"));
    /// Google's generateContent API.
    pub const GEMINI: Wire = Wire(Cow::Borrowed("gemini"));
    /// Amazon Bedrock's Converse API.
    pub const BEDROCK_CONVERSE: Wire = Wire(Cow::Borrowed("bedrock-converse"));

    /// Creates a wire name. Any text is accepted.
    pub fn new(name: impl Into<Label>) -> Self {
        Self(name.into())
    }

    /// Creates a wire name as a constant.
    pub const fn borrowed(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }

    /// Returns the wire name, such as `openai-chat`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

/// Identifies an Item within its Thread. The id is never derived from the Item's content.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemId(pub Name);

/// Throughline's id for a tool call. Wire ids are not used, because they may be missing or repeated
/// within a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub Name);

macro_rules! text_id {
    ($($id:ident),*) => { $(
        impl From<&str> for $id {
            fn from(text: &str) -> Self { Self(Name::from(text)) }
        }
        impl From<String> for $id {
            fn from(text: String) -> Self { Self(Name::from(text)) }
        }
        impl std::fmt::Display for $id {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.pad(&self.0) }
        }
    )* };
}
pub(crate) use text_id;
text_id!(ItemId, CallId);

/// A 32-byte BLAKE3 digest.
pub type Digest = [u8; 32];

/// Encodes bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Decodes hexadecimal digits; `None` if a digit is invalid or the length is odd.
pub(crate) fn unhex(text: &str) -> Option<Bytes> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    pairs.collect::<Option<Vec<u8>>>().map(Bytes::from)
}
