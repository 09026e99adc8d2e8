//! Reading the members of a JSON document one by one, and saying clearly which of them is wrong.

mod members;
mod schema;

use std::sync::Arc;

use crate::json::{Json, Node, Object};
use crate::name::{Label, Name};
use crate::number::Number;

pub use crate::document::members::Nullable;
pub(crate) use crate::document::members::{Member, Record, object, record};
pub(crate) use crate::document::schema::{Definitions, Shape, list_of, of_type};

/// What is wrong with a document, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub struct InvalidDocument {
    /// The member, from the document's name down, as `LLMMessage.toolCalls[0].name`.
    pub field: Name,
    /// What is wrong with it and what to write instead, as the end of a sentence.
    pub problem: Label,
}

/// An object whose members are being read. A member that is `null` is absent.
pub(crate) struct Fields<'t> {
    node: Node<'t>,
    path: String,
}

impl<'t> Fields<'t> {
    /// The members of `node`, which must be an object.
    pub(crate) fn of(node: Node<'t>, path: impl Into<String>) -> Result<Self, InvalidDocument> {
        let path = path.into();
        if !node.is_object() {
            let problem = Label::Borrowed("must be an object");
            return Err(InvalidDocument { field: Name::from(path), problem });
        }
        Ok(Self { node, path })
    }

    /// The member's name, from the document's name down.
    pub(crate) fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    pub(crate) fn error(&self, key: &str, problem: impl Into<Label>) -> InvalidDocument {
        InvalidDocument { field: Name::from(self.path(key)), problem: problem.into() }
    }

    pub(crate) fn present(&self, key: &str) -> Option<Node<'t>> {
        self.node.present(key)
    }

    /// The member's value, `null` included: of a member that may be anything, `null` is a value like any other.
    pub(crate) fn given(&self, key: &str) -> Option<Node<'t>> {
        self.node.get(key)
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<Name>, InvalidDocument> {
        self.read(key, Node::name, "must be a string")
    }

    pub(crate) fn required_text(&self, key: &str) -> Result<Name, InvalidDocument> {
        self.text(key)?.ok_or_else(|| self.error(key, "is missing: it must be a string"))
    }

    pub(crate) fn bool(&self, key: &str) -> Result<Option<bool>, InvalidDocument> {
        self.read(key, Node::bool, "must be true or false")
    }

    pub(crate) fn integer(&self, key: &str) -> Result<Option<i64>, InvalidDocument> {
        self.read(key, |node| node.number()?.parse().ok(), "must be a whole number")
    }

    pub(crate) fn count(&self, key: &str) -> Result<Option<u64>, InvalidDocument> {
        self.read(key, Node::u64, "must be a non-negative whole number")
    }

    pub(crate) fn number(&self, key: &str) -> Result<Option<Number>, InvalidDocument> {
        self.read(key, Number::of_node, "must be a number")
    }

    /// One of the words of a closed list.
    pub(crate) fn word<T: Word>(&self, key: &str) -> Result<Option<T>, InvalidDocument> {
        let Some(node) = self.present(key) else { return Ok(None) };
        let found = T::ALL.iter().find(|word| node.is(word.as_str()));
        found
            .copied()
            .map(Some)
            .ok_or_else(|| self.error(key, format!("must be one of {}", list_of_words::<T>())))
    }

    /// The member has to say exactly that.
    pub(crate) fn must_say(&self, key: &str, word: &str) -> Result<(), InvalidDocument> {
        let says = self.present(key).is_some_and(|node| node.is(word));
        if says { Ok(()) } else { Err(self.error(key, format!("must be {word}"))) }
    }

    /// The strings of an array.
    pub(crate) fn texts(&self, key: &str) -> Result<Option<Vec<Name>>, InvalidDocument> {
        let Some(node) = self.present(key) else { return Ok(None) };
        if !node.is_array() {
            return Err(self.error(key, "must be an array of strings"));
        }
        let text = |(place, node): (usize, Node<'t>)| {
            node.name().ok_or_else(|| self.error(&format!("{key}[{place}]"), "must be a string"))
        };
        node.elements().enumerate().map(text).collect::<Result<_, _>>().map(Some)
    }

    /// The values of an object whose names are content, each with the path that ends in its name.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (Name, Node<'t>, String)> {
        let members = self.node.members().filter_map(|(key, value)| Some((key.name()?, value)));
        members.map(|(key, value)| {
            let path = format!("{}[{key:?}]", self.path);
            (key, value, path)
        })
    }

    /// Refuses a member that `known` does not name: a misspelt setting would otherwise be ignored in silence.
    pub(crate) fn refuse_unknown(&self, known: &[&str]) -> Result<(), InvalidDocument> {
        match self.extras(known).first() {
            None => Ok(()),
            Some((key, _)) => {
                Err(self.error(key, format!("is not a setting: use {}", known.join(", "))))
            }
        }
    }

    /// The elements of an array, each with its own path.
    pub(crate) fn list(&self, key: &str) -> Result<Vec<Fields<'t>>, InvalidDocument> {
        let Some(node) = self.present(key) else { return Ok(Vec::new()) };
        if !node.is_array() {
            return Err(self.error(key, "must be an array"));
        }
        let at = |position| format!("{}[{position}]", self.path(key));
        node.elements().enumerate().map(|(place, node)| Fields::of(node, at(place))).collect()
    }

    /// The members that `known` does not name, verbatim.
    pub(crate) fn extras(&self, known: &[&str]) -> Vec<(Name, Json)> {
        let members = self.node.members().filter_map(|(key, value)| Some((key.name()?, value)));
        let unknown = members.filter(|(key, _)| !known.contains(&&**key));
        unknown.map(|(key, value)| (key, value.json())).collect()
    }

    fn read<T>(
        &self,
        key: &str,
        read: impl FnOnce(Node<'t>) -> Option<T>,
        problem: &'static str,
    ) -> Result<Option<T>, InvalidDocument> {
        let Some(node) = self.present(key) else { return Ok(None) };
        read(node).map(Some).ok_or_else(|| self.error(key, problem))
    }
}

/// A word of a closed list.
pub(crate) trait Word: Copy + 'static {
    /// The whole list.
    const ALL: &'static [Self];

    /// The word.
    fn as_str(self) -> &'static str;
}

/// The words of a closed list, for a sentence.
pub(crate) fn list_of_words<T: Word>() -> String {
    let words: Vec<_> = T::ALL.iter().map(|word| word.as_str()).collect();
    words.join(", ")
}

/// Declares a closed list of documented words.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$note:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$note])* $variant,)+ }

        impl $name {
            /// The documented word.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl crate::document::Word for $name {
            const ALL: &'static [Self] = &[$(Self::$variant,)+];

            fn as_str(self) -> &'static str { self.as_str() }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}
pub(crate) use words;

/// Writes the members that no field speaks for, except those whose names `known` has.
pub(crate) fn write_extras(out: &mut Object<'_>, extras: &[(Name, Json)], known: &[&str]) {
    for (key, value) in extras.iter().filter(|(key, _)| !known.contains(&&**key)) {
        out.raw(key, value);
    }
}

/// An opaque text of a document: a signature, or sealed data. It shows its size and never itself.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Opaque(Arc<str>);

impl Opaque {
    /// The text, for the tenant whose document it is. Never for a log.
    pub fn reveal_to_tenant(&self) -> &str {
        &self.0
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has none, in which case it seals nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text of a Seal; nothing where it has none.
    pub(crate) fn of(seal: &crate::Seal) -> Option<Self> {
        let text = std::str::from_utf8(seal.reveal_to_tenant()).ok()?;
        (!text.is_empty()).then(|| Self(Arc::from(text)))
    }

    pub(crate) fn bytes(&self) -> bytes::Bytes {
        bytes::Bytes::copy_from_slice(self.0.as_bytes())
    }
}

impl From<&str> for Opaque {
    fn from(text: &str) -> Self {
        Self(Arc::from(text))
    }
}

impl From<Name> for Opaque {
    fn from(text: Name) -> Self {
        Self(text)
    }
}

impl std::fmt::Debug for Opaque {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Opaque({} B)", self.len())
    }
}
