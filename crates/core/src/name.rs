//! Names and ids: cheap to copy, compared by what they say.

use std::borrow::Cow;
use std::sync::Arc;

/// A shared piece of text: a model's name, a tool's name, an id that somebody else chose.
pub type Name = Arc<str>;

/// A word that is usually one of ours and sometimes somebody else's.
pub type Label = Cow<'static, str>;

/// The name of a provider protocol. Open: a codec from another crate brings its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Wire(Label);

impl Wire {
    /// Anthropic's Messages API.
    pub const ANTHROPIC_MESSAGES: Wire = Wire(Cow::Borrowed("anthropic-messages"));
    /// OpenAI's Responses API, and its clones.
    pub const OPENAI_RESPONSES: Wire = Wire(Cow::Borrowed("openai-responses"));
    /// OpenAI's Chat Completions API, with all its dialects.
    pub const OPENAI_CHAT: Wire = Wire(Cow::Borrowed("openai-chat"));
    /// Google's generateContent.
    pub const GEMINI: Wire = Wire(Cow::Borrowed("gemini"));
    /// Amazon Bedrock's Converse.
    pub const BEDROCK_CONVERSE: Wire = Wire(Cow::Borrowed("bedrock-converse"));

    /// A wire of that name.
    pub fn new(name: impl Into<Label>) -> Self {
        Self(name.into())
    }

    /// A wire of that name, as a constant.
    pub const fn borrowed(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

/// Identifies an Item within its Thread: never derived from content.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemId(pub Name);

/// Our own name for a tool call. The wire's id may be absent, or stand twice in one conversation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub Name);

impl ItemId {
    /// The id of an Item that has no other name than its place: `2.0`, after the name of the reply that it is part of.
    pub fn at(reply: &str, place: crate::item::Place) -> Self {
        // Every Item of every request has an id, so it is put together without a detour over the heap.
        let mut digits = Digits::default();
        digits.push(place.part);
        digits.push_dot();
        digits.push(place.message);
        if reply.is_empty() {
            return Self(Name::from(digits.as_str()));
        }
        Self(Name::from([reply, ".", digits.as_str()].concat()))
    }
}

/// Numbers with dots between them, written from the right.
struct Digits {
    text: [u8; 24],
    start: usize,
}

impl Default for Digits {
    fn default() -> Self {
        Self { text: [0; 24], start: 24 }
    }
}

impl Digits {
    fn put(&mut self, byte: u8) {
        self.start = self.start.saturating_sub(1);
        if let Some(place) = self.text.get_mut(self.start) {
            *place = byte;
        }
    }

    fn push(&mut self, mut number: u32) {
        loop {
            self.put(b'0' + u8::try_from(number % 10).unwrap_or_default());
            number /= 10;
            if number == 0 {
                return;
            }
        }
    }

    fn push_dot(&mut self) {
        self.put(b'.');
    }

    fn as_str(&self) -> &str {
        self.text
            .get(self.start..)
            .and_then(|text| std::str::from_utf8(text).ok())
            .unwrap_or_default()
    }
}

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

/// A BLAKE3 digest.
pub type Digest = [u8; 32];
