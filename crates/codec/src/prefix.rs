//! Computes a digest of a request prefix, for models that bind their Seals to the prefix.
//!
//! The digest ignores white space, escapes and `cache_control` markers. A single text block has the
//! digest of the plain text that it contains, because clients write a text as a block only to add a
//! cache marker. The digest depends on the order of members, because no provider documents that the
//! order is ignored. An audit must not report false changes, so it uses
//! [`PrefixHasher::semantic`], which ignores the order.

use throughline_core::{Digest, Item};
use throughline_json::{Json, JsonKind, Node};

#[derive(Clone)]
pub(crate) struct PrefixHasher {
    hasher: blake3::Hasher,
    /// The digest in which a single text block differs from the plain text that it contains;
    /// `None` while both digests are equal. Earlier versions bound Seals to this digest.
    exact: Option<blake3::Hasher>,
    /// Whether to ignore member order.
    by_meaning: bool,
}

impl PrefixHasher {
    pub(crate) fn new() -> Self {
        let hasher = blake3::Hasher::new_derive_key("throughline 2026-11 request prefix v1");
        Self { hasher, exact: None, by_meaning: false }
    }

    /// Creates a hasher whose digest ignores differences that cannot change a request's meaning.
    pub(crate) fn semantic() -> Self {
        Self { by_meaning: true, ..Self::new() }
    }

    /// Adds one named element: the system prompt, the tools or a message.
    pub(crate) fn update(&mut self, name: &str, element: &Json) {
        let tree = element.tree();
        let before = self.hasher.clone();
        let mut form = ElementForm { unwraps: true, is_sorted: self.by_meaning, has_blocks: false };
        form.hash(&mut self.hasher, name, tree.root());
        if form.has_blocks && self.exact.is_none() && !self.by_meaning {
            self.exact = Some(before);
        }
        if let Some(exact) = &mut self.exact {
            ElementForm { unwraps: false, ..form }.hash(exact, name, tree.root());
        }
    }

    /// Returns the digest of all elements added so far.
    pub(crate) fn digest(&self) -> Digest {
        *self.hasher.finalize().as_bytes()
    }

    /// Returns the digest to compare with the Seals of these Items: the digest that an earlier
    /// version bound them to, if it still matches, otherwise [`PrefixHasher::digest`].
    pub(crate) fn digest_for<'i>(&self, items: impl IntoIterator<Item = &'i Item>) -> Digest {
        let exact = self.exact.as_ref().map(|exact| *exact.finalize().as_bytes());
        let mut seals = items.into_iter().flat_map(|item| &item.seals);
        match exact {
            Some(exact) if seals.any(|seal| seal.bound.prefix == Some(exact)) => exact,
            Some(_) | None => self.digest(),
        }
    }
}

/// How the value of an element is hashed.
struct ElementForm {
    /// Whether to treat a single text block like the plain text that it contains.
    unwraps: bool,
    /// Whether to sort the members of objects.
    is_sorted: bool,
    /// Whether the value contained a single text block.
    has_blocks: bool,
}

impl ElementForm {
    fn hash(&mut self, hasher: &mut blake3::Hasher, name: &str, root: Node<'_>) {
        enum Task<'t> {
            Value(Node<'t>),
            Close,
        }
        hash_token(hasher, b'#', name.as_bytes());
        let mut tasks = vec![Task::Value(root)];
        while let Some(task) = tasks.pop() {
            let node = match task {
                Task::Close => {
                    hasher.update(b")");
                    continue;
                }
                Task::Value(node) => node,
            };
            let text = single_text_block(node).filter(|_| self.unwraps);
            self.has_blocks |= text.is_some();
            let node = text.unwrap_or(node);
            match node.shape() {
                JsonKind::Null | JsonKind::Bool | JsonKind::Number => {
                    hash_token(hasher, b'v', node.raw());
                }
                JsonKind::String => {
                    hash_token(hasher, b's', node.text().unwrap_or_default().as_bytes());
                }
                JsonKind::Array => {
                    hasher.update(b"[");
                    tasks.push(Task::Close);
                    let elements: Vec<_> = node.elements().collect();
                    tasks.extend(elements.into_iter().rev().map(Task::Value));
                }
                JsonKind::Object => {
                    hasher.update(b"{");
                    tasks.push(Task::Close);
                    let counted = node.members().filter(|(name, _)| !name.is("cache_control"));
                    let mut members: Vec<_> = counted.collect();
                    if self.is_sorted {
                        members.sort_by_key(|(name, _)| name.text());
                    }
                    for (name, value) in members.into_iter().rev() {
                        tasks.push(Task::Value(value));
                        tasks.push(Task::Value(name));
                    }
                }
            }
        }
    }
}

fn hash_token(hasher: &mut blake3::Hasher, kind: u8, bytes: &[u8]) {
    hasher.update(&[kind]);
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

/// Adds elements to the prefix digest. `prefix` is `None` if the target's Seals are not bound to
/// the prefix.
pub(crate) fn absorb<'j>(
    prefix: &mut Option<PrefixHasher>,
    name: &str,
    elements: impl IntoIterator<Item = &'j Json>,
) {
    if let Some(prefix) = prefix {
        elements.into_iter().for_each(|element| prefix.update(name, element));
    }
}

/// Returns the text of a list that contains exactly one text block. The wires treat such a list
/// like a plain string.
fn single_text_block(node: Node<'_>) -> Option<Node<'_>> {
    let mut elements = node.elements();
    let block = elements.next().filter(|_| elements.next().is_none())?;
    let mut members = block.members().filter(|(name, _)| !name.is("cache_control"));
    let is_plain =
        members.all(|(name, value)| name.is("text") || (name.is("type") && value.is("text")));
    block.get("text").filter(|text| is_plain && text.is_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use bytes::Bytes;
    use throughline_core::{Body, ItemPosition, Role, Seal, SealBinding};

    use super::*;
    use crate::Catalog;

    const BLOCK: &str = r#"{"role":"user","content":[{"type":"text","text":"Hi","cache_control":{"type":"ephemeral"}}]}"#;
    const TEXT: &str = r#"{"role":"user","content":"Hi"}"#;

    fn hashed(messages: &[&str]) -> PrefixHasher {
        let mut hasher = PrefixHasher::new();
        for message in messages {
            hasher.update("message", &Json::parse((*message).to_owned()).unwrap());
        }
        hasher
    }

    #[test]
    fn cache_marker_on_a_text_leaves_the_digest_unchanged() {
        assert_eq!(hashed(&[BLOCK, TEXT]).digest(), hashed(&[TEXT, BLOCK]).digest());
        let other = r#"{"role":"user","content":[{"type":"text","text":"Ha"}]}"#;
        assert_ne!(hashed(&[other]).digest(), hashed(&[TEXT]).digest());
        let two =
            r#"{"role":"user","content":[{"type":"text","text":"H"},{"type":"text","text":"i"}]}"#;
        assert_ne!(hashed(&[two]).digest(), hashed(&[TEXT]).digest());
    }

    #[test]
    fn digest_of_an_earlier_version_still_matches_its_seals() {
        let hasher = hashed(&[TEXT, BLOCK, TEXT]);
        let exact = *hasher.exact.as_ref().unwrap().finalize().as_bytes();
        let owner = Catalog::builtin().target_for("anthropic", "claude-fable-5-1", "test").unwrap();
        let mut item = Item::new("i", ItemPosition::default(), Role::Assistant, Body::Unknown);
        assert_eq!(hasher.digest_for([&item]), hasher.digest());
        let bound = SealBinding { prefix: Some(exact), ..SealBinding::default() };
        let seal = Seal::new(Bytes::from("s"), "anthropic.signature", owner.origin, "/signature");
        item.seals.push(seal.bound_to(bound));
        assert_eq!(hasher.digest_for([&item]), exact);
        assert_ne!(hashed(&[TEXT, TEXT, TEXT]).digest_for([&item]), exact, "another form");
    }
}
