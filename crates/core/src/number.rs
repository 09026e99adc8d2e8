//! Numbers as documents write them.

use bytes::Bytes;

use crate::json::{Json, Node};
use crate::name::Name;

/// A number as it was written. It prints as it was read: `1.0` stays `1.0`, and is not the same text as `1`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Number(Name);

impl Number {
    /// The number, unless it is one that JSON cannot write: infinite, or none at all.
    pub fn of(value: f64) -> Option<Self> {
        value.is_finite().then(|| Self(Name::from(value.to_string())))
    }

    pub(crate) fn of_node(node: Node<'_>) -> Option<Self> {
        node.number().map(|text| Self(Name::from(text)))
    }

    /// The number as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The nearest value that can be counted with; a number too large for that is infinite.
    pub fn value(&self) -> f64 {
        self.0.parse().unwrap_or_default()
    }

    /// The number as JSON.
    pub fn json(&self) -> Json {
        Json::trusted(Bytes::copy_from_slice(self.0.as_bytes()))
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
