//! Computes a digest of a request prefix, for models that bind their Seals to the prefix.
//!
//! The digest ignores white space, escapes and `cache_control` markers. The digest depends on the
//! order of members, because no provider documents that the order is ignored. An audit must not
//! report false changes, so it uses [`PrefixHasher::semantic`], which ignores the order.

use throughline_core::Digest;
use throughline_json::{Json, JsonKind, Node};

#[derive(Clone)]
pub(crate) struct PrefixHasher {
    hasher: blake3::Hasher,
    /// Whether to ignore member order and to treat a single text block like the plain text it
    /// contains.
    by_meaning: bool,
}

impl PrefixHasher {
    pub(crate) fn new() -> Self {
        let hasher = blake3::Hasher::new_derive_key("throughline 2026-11 request prefix v1");
        Self { hasher, by_meaning: false }
    }

    /// Creates a hasher whose digest ignores differences that cannot change a request's meaning.
    pub(crate) fn semantic() -> Self {
        Self { by_meaning: true, ..Self::new() }
    }

    /// Adds one named element: the system prompt, the tools or a message.
    pub(crate) fn update(&mut self, name: &str, element: &Json) {
        self.hash_token(b'#', name.as_bytes());
        let tree = element.tree();
        self.hash_node(tree.root());
    }

    /// Returns the digest of all elements added so far.
    pub(crate) fn digest(&self) -> Digest {
        *self.hasher.finalize().as_bytes()
    }

    fn hash_token(&mut self, kind: u8, bytes: &[u8]) {
        self.hasher.update(&[kind]);
        self.hasher.update(&(bytes.len() as u64).to_le_bytes());
        self.hasher.update(bytes);
    }

    fn hash_node(&mut self, root: Node<'_>) {
        enum Task<'t> {
            Value(Node<'t>),
            Close,
        }
        let mut tasks = vec![Task::Value(root)];
        while let Some(task) = tasks.pop() {
            let node = match task {
                Task::Close => {
                    self.hasher.update(b")");
                    continue;
                }
                Task::Value(node) => node,
            };
            let node = single_text_block(node).filter(|_| self.by_meaning).unwrap_or(node);
            match node.shape() {
                JsonKind::Null | JsonKind::Bool | JsonKind::Number => {
                    self.hash_token(b'v', node.raw());
                }
                JsonKind::String => {
                    self.hash_token(b's', node.text().unwrap_or_default().as_bytes());
                }
                JsonKind::Array => {
                    self.hasher.update(b"[");
                    tasks.push(Task::Close);
                    let elements: Vec<_> = node.elements().collect();
                    tasks.extend(elements.into_iter().rev().map(Task::Value));
                }
                JsonKind::Object => {
                    self.hasher.update(b"{");
                    tasks.push(Task::Close);
                    let counted = node.members().filter(|(name, _)| !name.is("cache_control"));
                    let mut members: Vec<_> = counted.collect();
                    if self.by_meaning {
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
