//! A digest of what a request says up to a point, for models that bind their seals to it.
//!
//! White space, escapes and `cache_control` markers do not count; the order of members does, because it is not
//! known that the provider ignores it. An audit takes the other side of that doubt, with [`Prefix::of_meaning`].

use throughline_core::{Digest, Json, Node, Shape};

/// A running digest.
#[derive(Clone)]
pub(crate) struct Prefix {
    hasher: blake3::Hasher,
    /// Whether only the meaning counts: members in any order, and a lone text block as the bare text that it stands for.
    by_meaning: bool,
}

impl Prefix {
    pub(crate) fn new() -> Self {
        let hasher = blake3::Hasher::new_derive_key("throughline 2026-11 request prefix v1");
        Self { hasher, by_meaning: false }
    }

    /// A digest that is the same for everything that surely means the same.
    pub(crate) fn of_meaning() -> Self {
        Self { by_meaning: true, ..Self::new() }
    }

    /// Goes on with one element under its name: the system prompt, the tools, a message.
    pub(crate) fn absorb(&mut self, name: &str, element: &Json) {
        self.word(b'#', name.as_bytes());
        let tree = element.tree();
        self.node(tree.root());
    }

    /// The digest of everything so far.
    pub(crate) fn digest(&self) -> Digest {
        *self.hasher.finalize().as_bytes()
    }

    fn word(&mut self, kind: u8, bytes: &[u8]) {
        self.hasher.update(&[kind]);
        self.hasher.update(&(bytes.len() as u64).to_le_bytes());
        self.hasher.update(bytes);
    }

    fn node(&mut self, root: Node<'_>) {
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
            let node = lone_text(node).filter(|_| self.by_meaning).unwrap_or(node);
            match node.shape() {
                Shape::Null | Shape::Bool | Shape::Number => self.word(b'v', node.raw()),
                Shape::String => self.word(b's', node.text().unwrap_or_default().as_bytes()),
                Shape::Array => {
                    self.hasher.update(b"[");
                    tasks.push(Task::Close);
                    let elements: Vec<_> = node.elements().collect();
                    tasks.extend(elements.into_iter().rev().map(Task::Value));
                }
                Shape::Object => {
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

/// The text of a list that holds one text block and nothing else: the wires take either for the other.
fn lone_text(node: Node<'_>) -> Option<Node<'_>> {
    let mut elements = node.elements();
    let block = elements.next().filter(|_| elements.next().is_none())?;
    let mut members = block.members().filter(|(name, _)| !name.is("cache_control"));
    let is_plain =
        members.all(|(name, value)| name.is("text") || (name.is("type") && value.is("text")));
    block.get("text").filter(|text| is_plain && text.is_string())
}
