//! JSON that is kept exactly as it was received.
//!
//! Providers sign the text that they wrote. Parsing and rewriting a value changes that text: key
//! order, `1e2`, `\u00e9`, large integers and duplicate keys are lost. [`Json`] therefore keeps the
//! original text, which is validated once. [`Tree`] is an index over that text: one linear pass
//! records where each value begins and ends, and every value is a slice of the same bytes.
//!
//! No function recurses, so deep nesting cannot overflow the stack.
//!
//! [`record!`] declares the members of an object. The declaration generates a parser, a writer and
//! a JSON Schema.

mod common;
mod document;
mod measure;
mod name;
mod number;
mod scan;
mod text;
mod tree;
pub mod work;
mod write;

#[cfg(test)]
mod json_tests;

use bytes::Bytes;

pub use crate::common::{common_prefix, common_suffix};
pub use crate::document::{
    Definitions, DocumentRecord, Fields, InvalidDocument, Nullable, Opaque, RecordMember,
    SchemaBuilder, StringEnum, array_schema, enum_schema, join_variants, type_schema, write_extras,
};
pub use crate::measure::{Measure, SizeLimitExceeded, SizeLimits};
pub use crate::name::{Label, Name};
pub use crate::number::Number;
pub use crate::scan::JsonKind;
pub use crate::tree::{Elements, Members, Node, SharedBeginning, Tree};
pub use crate::write::{
    Array, JsonValue, Object, array, array_of, object, object_of, push_number, push_string, string,
};

/// One JSON value, exactly as it was written. Always valid UTF-8 and valid JSON.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Bytes);

impl Json {
    /// Validates the text and keeps it without the surrounding whitespace.
    pub fn parse(text: impl Into<Bytes>) -> Result<Self, SyntaxError> {
        Ok(Tree::parse(text)?.into_json())
    }

    /// Wraps bytes without validation. The bytes must be valid JSON, such as a value from a
    /// validated text.
    pub fn from_trusted(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// Returns the JSON value `null`.
    pub fn null() -> Self {
        Self(Bytes::from_static(b"null"))
    }

    /// Returns the JSON text, verbatim.
    pub fn as_str(&self) -> &str {
        // The bytes were validated on construction, so the fallback is unreachable.
        std::str::from_utf8(&self.0).unwrap_or("null")
    }

    /// Returns the bytes of the JSON text, verbatim.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// Returns a copy in its own memory. The original may be a slice that keeps a larger buffer
    /// allocated.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }

    /// Returns a copy in which `value` replaces the value at `range`, the range of one of this
    /// document's [`Node`]s. Returns an unchanged copy if the range is out of bounds.
    #[must_use]
    pub fn with_value_at(&self, range: std::ops::Range<usize>, value: &Json) -> Self {
        let parts = (self.bytes().get(..range.start), self.bytes().get(range.end..));
        let (Some(before), Some(after)) = parts else { return self.clone() };
        Self::from_trusted(Bytes::from([before, value.bytes(), after].concat()))
    }

    /// Builds an index over the value in one linear pass.
    pub fn tree(&self) -> Tree {
        Tree::from_checked(&self.0)
    }

    /// Whether the values are equal apart from whitespace, escapes and the order of members.
    pub fn is_equivalent_to(&self, other: &Json) -> bool {
        self.0 == other.0 || self.canonical() == other.canonical()
    }

    /// Returns the value with sorted members, no whitespace and uniform escapes. Equal values have
    /// the same canonical form, except that numbers stay as written: `1.0` differs from `1`.
    pub fn canonical(&self) -> String {
        self.tree().root().canonical()
    }
}

impl std::fmt::Debug for Json {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values may contain Seals, so only the size is printed.
        write!(f, "Json({} B)", self.0.len())
    }
}

impl From<u64> for Json {
    fn from(number: u64) -> Self {
        Self(Bytes::from(number.to_string()))
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Self(Bytes::from_static(if value { b"true" } else { b"false" }))
    }
}

impl From<&serde_json::Value> for Json {
    fn from(value: &serde_json::Value) -> Self {
        Self(Bytes::from(value.to_string()))
    }
}

impl serde::Serialize for Json {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &serde_json::value::RawValue =
            serde_json::from_str(self.as_str()).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> serde::Deserialize<'de> for Json {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<serde_json::value::RawValue>::deserialize(deserializer)?;
        Json::parse(raw.get().to_owned()).map_err(serde::de::Error::custom)
    }
}

/// A JSON syntax error with its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at line {line} column {column}")]
pub struct SyntaxError {
    /// A description of the problem, without the position.
    pub what: &'static str,
    /// The byte offset of the error.
    pub offset: usize,
    /// The line of the error, starting at 1.
    pub line: usize,
    /// The column of the error, starting at 1.
    pub column: usize,
}

impl SyntaxError {
    pub(crate) fn at(text: &[u8], offset: usize, what: &'static str) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line = memchr::memchr_iter(b'\n', before).count() + 1;
        let line_start = memchr::memrchr(b'\n', before).map_or(0, |newline| newline + 1);
        Self { what, offset, line, column: offset.saturating_sub(line_start) + 1 }
    }

    /// Whether arrays and objects are nested too deeply; see [`Tree::parse_within`].
    pub fn is_too_deep(&self) -> bool {
        self.what == scan::TOO_DEEP
    }

    /// Whether the text has too many values; see [`Tree::parse_bounded`].
    pub(crate) fn is_too_many(&self) -> bool {
        self.what == scan::TOO_MANY
    }
}
