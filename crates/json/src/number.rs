//! Numbers as written in documents.

use bytes::Bytes;

use crate::name::Name;
use crate::{Json, Node};

/// A number that keeps its text: `1.0` is written as `1.0` and differs from `1`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Number(Name);

impl Number {
    /// Converts a float; `None` if it is infinite or NaN, which JSON cannot write.
    pub fn from_f64(value: f64) -> Option<Self> {
        value.is_finite().then(|| Self(Name::from(value.to_string())))
    }

    pub(crate) fn from_node(node: Node<'_>) -> Option<Self> {
        node.number().map(|text| Self(Name::from(text)))
    }

    /// Returns the number as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the nearest float; infinite if the number is too large.
    pub fn value(&self) -> f64 {
        self.0.parse().unwrap_or_default()
    }

    /// Returns the number as JSON, with its original text.
    pub fn json(&self) -> Json {
        Json::from_trusted(Bytes::copy_from_slice(self.0.as_bytes()))
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self(Name::from(value.to_string()))
    }
}

impl std::fmt::Debug for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}
