//! JSON as it was received.
//!
//! Providers sign and encrypt what they wrote, so a value that is parsed and written again is a different
//! value: key order, `1e2`, `\u00e9`, large integers and duplicate keys do not survive a parsed tree. [`Json`] is
//! therefore verbatim text that was checked once. [`Tree`] is an index over that text: one linear pass notes
//! where each value begins and ends, and everything else is a slice of the same bytes.
//!
//! Nothing here recurses, so ten thousand nested arrays are as safe as ten.

mod measure;
mod scan;
mod text;
mod tree;
mod write;

#[cfg(test)]
#[path = "json/json_tests.rs"]
mod json_tests;

use bytes::Bytes;

pub use crate::json::measure::{Measure, SizeLimits, TooMany};
pub use crate::json::tree::{Elements, Members, Node, Shape, Tree};
pub use crate::json::write::{
    Array, Object, array, array_of, object, object_of, push_number, push_string, string,
};

/// One JSON value, exactly as it was written. Always valid UTF-8 and valid JSON.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Bytes);

impl Json {
    /// Checks the text and keeps it. Surrounding white space is not part of the value.
    pub fn parse(text: impl Into<Bytes>) -> Result<Self, SyntaxError> {
        Ok(Tree::parse(text)?.into_json())
    }

    /// Wraps bytes that this crate cut from a checked text or wrote itself.
    pub(crate) fn trusted(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// The JSON value `null`.
    pub fn null() -> Self {
        Self(Bytes::from_static(b"null"))
    }

    /// The verbatim text.
    pub fn as_str(&self) -> &str {
        // The bytes were checked when the value was made, so the fallback is never taken.
        std::str::from_utf8(&self.0).unwrap_or("null")
    }

    /// The verbatim bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// The same in memory of its own: of a longer text that it was cut from it holds nothing more.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }

    /// An index over the value, for reading it.
    pub fn tree(&self) -> Tree {
        Tree::of_checked(&self.0)
    }

    /// Whether both say the same thing: white space, escapes and the order of members aside.
    pub fn says_the_same_as(&self, other: &Json) -> bool {
        self.0 == other.0 || self.canonical() == other.canonical()
    }

    /// The value with members sorted, white space removed and strings escaped in one way. Two texts that
    /// mean the same value have the same canonical form; numbers are compared as they were written.
    pub fn canonical(&self) -> String {
        self.tree().root().canonical()
    }
}

impl std::fmt::Debug for Json {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values may hold seals, so only their size is told.
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

/// Where and why a text is not JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at line {line} column {column}")]
pub struct SyntaxError {
    /// What was wrong, as the end of a sentence.
    pub what: &'static str,
    /// The byte at which it was noticed.
    pub offset: usize,
    /// The line of that byte, from 1.
    pub line: usize,
    /// The column of that byte in its line, from 1.
    pub column: usize,
}

impl SyntaxError {
    pub(crate) fn at(text: &[u8], offset: usize, what: &'static str) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line = memchr::memchr_iter(b'\n', before).count() + 1;
        let line_start = memchr::memrchr(b'\n', before).map_or(0, |newline| newline + 1);
        Self { what, offset, line, column: offset.saturating_sub(line_start) + 1 }
    }

    /// Whether too many arrays and objects stand in each other: see [`Tree::parse_within`].
    pub fn is_too_deep(&self) -> bool {
        self.what == scan::TOO_DEEP
    }
}
