//! Short digests, and two ways of writing a JSON value: what it says, and how it was written.
//!
//! What a provider binds a seal to is what a request says: white space, escapes and the order of members aside. What a
//! prompt cache knows is how it was written: there the order of members counts. Marks of where to
//! cache, `cache_control` and `cachePoint`, count in neither.

use std::fmt;

use serde::{Deserialize, Serialize};
use throughline_core::{Node, Shape, json};

#[cfg(test)]
#[path = "digest_tests.rs"]
mod digest_tests;

/// Sixteen bytes of a BLAKE3 digest, written in hexadecimal.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct Mark(u128);

impl Mark {
    /// The digest of some bytes for one purpose. The same bytes have another digest for another purpose.
    pub(crate) fn of(purpose: &str, bytes: impl AsRef<[u8]>) -> Self {
        Self::of_all(purpose, [bytes.as_ref()])
    }

    /// The digest of several pieces, each told apart from the next.
    pub(crate) fn of_all<'b>(purpose: &str, pieces: impl IntoIterator<Item = &'b [u8]>) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(purpose);
        for piece in pieces {
            hasher.update(&(piece.len() as u64).to_le_bytes());
            hasher.update(piece);
        }
        Self::first_of(hasher.finalize().as_bytes())
    }

    /// The first sixteen of these bytes.
    pub(crate) fn first_of(bytes: &[u8]) -> Self {
        let mut first = [0; 16];
        for (to, from) in first.iter_mut().zip(bytes) {
            *to = *from;
        }
        Self(u128::from_be_bytes(first))
    }

    /// The same digest gone on with: the order of what is added counts.
    pub(crate) fn and(self, bytes: impl AsRef<[u8]>) -> Self {
        Self::of_all("throughline-sim chain", [&self.bytes()[..], bytes.as_ref()])
    }

    /// Its bytes.
    pub(crate) fn bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// A number below `limit` that depends on this digest and on nothing else; 0 where there is no choice.
    pub(crate) fn below(self, limit: usize) -> usize {
        let limit = u128::try_from(limit).unwrap_or(1).max(1);
        usize::try_from(self.0 % limit).unwrap_or_default()
    }

    /// An id in the form that the providers use: a prefix, and letters and digits.
    pub(crate) fn id(self, prefix: &str, length: usize) -> String {
        const LETTERS: &[u8; 62] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        let mut id = String::from(prefix);
        let mut state = self;
        while id.len() < prefix.len() + length {
            state = state.and("id");
            let letter = LETTERS.get(state.below(LETTERS.len())).copied().unwrap_or(b'A');
            id.push(char::from(letter));
        }
        id
    }

    /// Hexadecimal digits, as many as asked for.
    pub(crate) fn hex(self, digits: usize) -> String {
        let mut text = String::new();
        let mut state = self;
        while text.len() < digits {
            text.push_str(&state.to_string());
            state = state.and("hex");
        }
        text.truncate(digits);
        text
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}…", self.0 >> 96)
    }
}

impl From<Mark> for String {
    fn from(mark: Mark) -> Self {
        mark.to_string()
    }
}

impl TryFrom<String> for Mark {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        u128::from_str_radix(&text, 16).map(Self)
    }
}

/// What a value says: members sorted, white space gone, strings escaped in one way, no `cache_control`. A member that is
/// `null` says nothing.
pub(crate) fn said(node: Node<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    write(node, Order::Sorted, &mut out);
    out
}

/// How a value was written: members in their order, white space gone, no `cache_control`.
pub(crate) fn written(node: Node<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    write(node, Order::AsWritten, &mut out);
    out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Sorted,
    AsWritten,
}

/// Works on a list of tasks, so that depth costs no stack.
fn write(root: Node<'_>, order: Order, out: &mut Vec<u8>) {
    enum Task<'t> {
        Value(Node<'t>),
        Literal(u8),
    }
    let mut tasks = vec![Task::Value(root)];
    while let Some(task) = tasks.pop() {
        let node = match task {
            Task::Literal(byte) => {
                out.push(byte);
                continue;
            }
            Task::Value(node) => node,
        };
        match node.shape() {
            Shape::Null | Shape::Bool | Shape::Number => out.extend_from_slice(node.raw()),
            Shape::String => json::push_string(out, &node.text().unwrap_or_default()),
            Shape::Array => {
                out.push(b'[');
                tasks.push(Task::Literal(b']'));
                let is_mark = |element: &Node<'_>| element.get("cachePoint").is_some();
                let elements: Vec<_> = node.elements().filter(|e| !is_mark(e)).collect();
                for element in elements.into_iter().rev() {
                    tasks.push(Task::Literal(b','));
                    tasks.push(Task::Value(element));
                }
            }
            Shape::Object => {
                out.push(b'{');
                tasks.push(Task::Literal(b'}'));
                let counted = node.members().filter(|(name, _)| !name.is("cache_control"));
                let mut members: Vec<_> = counted.collect();
                if order == Order::Sorted {
                    members.retain(|(_, value)| !value.is_null());
                    members.sort_by_key(|(name, _)| name.text());
                }
                for (name, value) in members.into_iter().rev() {
                    tasks.push(Task::Literal(b','));
                    tasks.push(Task::Value(value));
                    tasks.push(Task::Literal(b':'));
                    tasks.push(Task::Value(name));
                }
            }
        }
    }
}
