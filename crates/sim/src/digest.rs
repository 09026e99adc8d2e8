//! Computes short digests, and serializes JSON values in two forms: canonical and as written.
//!
//! Providers bind a Seal to the meaning of a request. Seals therefore use the canonical form, which
//! ignores white space, escapes and member order. A prompt cache compares the written form, in
//! which member order matters. Both forms ignore the cache markers `cache_control` and
//! `cachePoint`.

use std::fmt;

use serde::{Deserialize, Serialize};
use throughline_json::{self as json, JsonKind, Node};

#[cfg(test)]
#[path = "digest_tests.rs"]
mod digest_tests;

/// The first 16 bytes of a BLAKE3 digest, formatted in hexadecimal.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct Digest(u128);

impl Digest {
    /// Computes the digest of `bytes`. Different values of `purpose` give different digests for the
    /// same bytes.
    pub(crate) fn new(purpose: &str, bytes: impl AsRef<[u8]>) -> Self {
        Self::from_pieces(purpose, [bytes.as_ref()])
    }

    /// Computes the digest of several pieces, each prefixed with its length.
    pub(crate) fn from_pieces<'b>(
        purpose: &str,
        pieces: impl IntoIterator<Item = &'b [u8]>,
    ) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(purpose);
        for piece in pieces {
            hasher.update(&(piece.len() as u64).to_le_bytes());
            hasher.update(piece);
        }
        Self::first_of(hasher.finalize().as_bytes())
    }

    /// Creates a digest from the first 16 of these bytes, padded with zeros.
    pub(crate) fn first_of(bytes: &[u8]) -> Self {
        let mut first = [0; 16];
        for (to, from) in first.iter_mut().zip(bytes) {
            *to = *from;
        }
        Self(u128::from_be_bytes(first))
    }

    /// Returns the digest of this digest followed by `bytes`.
    pub(crate) fn and(self, bytes: impl AsRef<[u8]>) -> Self {
        Self::from_pieces("throughline-sim chain", [&self.bytes()[..], bytes.as_ref()])
    }

    pub(crate) fn bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Derives a number below `limit` from this digest. Returns 0 if `limit` is 0 or 1.
    pub(crate) fn below(self, limit: usize) -> usize {
        let limit = u128::try_from(limit).unwrap_or(1).max(1);
        usize::try_from(self.0 % limit).unwrap_or_default()
    }

    /// Chooses one of the values deterministically; `None` if the slice is empty.
    pub(crate) fn choose<T>(self, values: &[T]) -> Option<&T> {
        values.get(self.below(values.len()))
    }

    /// Derives an id in the providers' format: a prefix, followed by letters and digits.
    pub(crate) fn id(self, prefix: &str, length: usize) -> String {
        const LETTERS: &[u8; 62] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        let mut id = String::from(prefix);
        let mut state = self;
        while id.len() < prefix.len() + length {
            state = state.and("id");
            id.push(char::from(state.choose(LETTERS).copied().unwrap_or(b'A')));
        }
        id
    }

    /// Derives an id in the format of a version 4 UUID.
    pub(crate) fn uuid(self) -> String {
        let hex = self.hex(32);
        let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
        let (one, two, three) = (part(0, 8), part(8, 12), part(13, 16));
        format!("{one}-{two}-4{three}-8{}-{}", part(17, 20), part(20, 32))
    }

    /// Derives `digits` hexadecimal digits. Digits after the first 32 come from chained digests.
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

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}…", self.0 >> 96)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        u128::from_str_radix(&text, 16).map(Self)
    }
}

/// Serializes a value in canonical form: sorted members, no white space, uniform escapes, and no
/// cache markers or `null` members.
pub(crate) fn canonical_bytes(node: Node<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    write(node, Order::Sorted, &mut out);
    out
}

/// Serializes a value as written: members in their original order, no white space and no cache
/// markers.
pub(crate) fn written_bytes(node: Node<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    write(node, Order::AsWritten, &mut out);
    out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Sorted,
    AsWritten,
}

/// Serializes a value with an explicit stack, so that deep nesting cannot overflow the call stack.
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
            JsonKind::Null | JsonKind::Bool | JsonKind::Number => out.extend_from_slice(node.raw()),
            JsonKind::String => json::push_string(out, &node.text().unwrap_or_default()),
            JsonKind::Array => {
                out.push(b'[');
                tasks.push(Task::Literal(b']'));
                let is_marker = |element: &Node<'_>| element.get("cachePoint").is_some();
                let elements: Vec<_> = node.elements().filter(|e| !is_marker(e)).collect();
                for element in elements.into_iter().rev() {
                    tasks.push(Task::Literal(b','));
                    tasks.push(Task::Value(element));
                }
            }
            JsonKind::Object => {
                out.push(b'{');
                tasks.push(Task::Literal(b'}'));
                let included = node.members().filter(|(name, _)| !name.is("cache_control"));
                let mut members: Vec<_> = included.collect();
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
