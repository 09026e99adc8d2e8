//! A digest of what a request says up to a point, for models that bind their seals to it.
//!
//! White space, escapes and `cache_control` markers do not count; the order of members does, because it is not
//! known that the provider ignores it.

use throughline_core::{Digest, Json, Node, Shape};

/// A running digest.
#[derive(Clone)]
pub(crate) struct Prefix(blake3::Hasher);

impl Prefix {
    pub(crate) fn new() -> Self {
        Self(blake3::Hasher::new_derive_key("throughline 2026-11 request prefix v1"))
    }

    /// Goes on with one element under its name: the system prompt, the tools, a message.
    pub(crate) fn absorb(&mut self, name: &str, element: &Json) {
        self.word(b'#', name.as_bytes());
        let tree = element.tree();
        self.node(tree.root());
    }

    /// The digest of everything so far.
    pub(crate) fn digest(&self) -> Digest {
        *self.0.finalize().as_bytes()
    }

    fn word(&mut self, kind: u8, bytes: &[u8]) {
        self.0.update(&[kind]);
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
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
                    self.0.update(b")");
                    continue;
                }
                Task::Value(node) => node,
            };
            match node.shape() {
                Shape::Null | Shape::Bool | Shape::Number => self.word(b'v', node.raw()),
                Shape::String => self.word(b's', node.text().unwrap_or_default().as_bytes()),
                Shape::Array => {
                    self.0.update(b"[");
                    tasks.push(Task::Close);
                    let elements: Vec<_> = node.elements().collect();
                    tasks.extend(elements.into_iter().rev().map(Task::Value));
                }
                Shape::Object => {
                    self.0.update(b"{");
                    tasks.push(Task::Close);
                    let counted = node.members().filter(|(name, _)| !name.is("cache_control"));
                    let members: Vec<_> = counted.collect();
                    for (name, value) in members.into_iter().rev() {
                        tasks.push(Task::Value(value));
                        tasks.push(Task::Value(name));
                    }
                }
            }
        }
    }
}
