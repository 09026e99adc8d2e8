//! Reads the members of a JSON document individually and reports which member is invalid.

mod members;
mod schema;

use std::sync::Arc;

use crate::name::{Label, Name};
use crate::number::Number;
use crate::{Json, Node, Object};

pub use crate::document::members::{DocumentRecord, Nullable, RecordMember};
pub use crate::document::schema::{
    Definitions, SchemaBuilder, array_schema, enum_schema, type_schema,
};

/// A document member that is missing or invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub struct InvalidDocument {
    /// The full path of the member, starting with the document name, such as
    /// `LLMMessage.toolCalls[0].name`.
    pub field: Name,
    /// The problem and how to fix it, as a predicate: the error message is `field` followed by this
    /// text.
    pub problem: Label,
}

/// Reads the members of an object. A member that is `null` counts as absent.
pub struct Fields<'t> {
    node: Node<'t>,
    path: String,
}

impl<'t> Fields<'t> {
    /// Wraps `node`, which must be an object.
    pub fn from_node(node: Node<'t>, path: impl Into<String>) -> Result<Self, InvalidDocument> {
        let path = path.into();
        if !node.is_object() {
            let problem = Label::Borrowed("must be an object");
            return Err(InvalidDocument { field: Name::from(path), problem });
        }
        Ok(Self { node, path })
    }

    /// Returns the path of a member, starting with the document name.
    pub fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Creates an error about a member; `problem` is a predicate such as `must be a string`.
    pub fn error(&self, key: &str, problem: impl Into<Label>) -> InvalidDocument {
        InvalidDocument { field: Name::from(self.path(key)), problem: problem.into() }
    }

    /// Returns the member's value unless it is absent or `null`.
    pub fn present(&self, key: &str) -> Option<Node<'t>> {
        self.node.present(key)
    }

    /// Returns the member's value even if it is `null`, for members that may hold any JSON value.
    pub fn get(&self, key: &str) -> Option<Node<'t>> {
        self.node.get(key)
    }

    /// Reads an optional string; fails if the member has another type.
    pub fn text(&self, key: &str) -> Result<Option<Name>, InvalidDocument> {
        self.read(key, Node::name, "must be a string")
    }

    /// Reads a string that must be present.
    pub fn required_text(&self, key: &str) -> Result<Name, InvalidDocument> {
        self.text(key)?.ok_or_else(|| self.error(key, "is missing; expected a string"))
    }

    /// Reads an optional boolean; fails if the member has another type.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, InvalidDocument> {
        self.read(key, Node::bool, "must be true or false")
    }

    /// Reads an optional whole number; fails if it does not fit into an `i64`.
    pub fn integer(&self, key: &str) -> Result<Option<i64>, InvalidDocument> {
        self.read(key, |node| node.number()?.parse().ok(), "must be a whole number")
    }

    /// Reads an optional non-negative whole number; fails if it does not fit into a `u64`.
    pub fn count(&self, key: &str) -> Result<Option<u64>, InvalidDocument> {
        self.read(key, Node::u64, "must be a non-negative whole number")
    }

    /// Reads an optional number and keeps it as written.
    pub fn number(&self, key: &str) -> Result<Option<Number>, InvalidDocument> {
        self.read(key, Number::from_node, "must be a number")
    }

    /// Reads an optional member whose value must be one of the enum's strings.
    pub fn string_enum<T: StringEnum>(&self, key: &str) -> Result<Option<T>, InvalidDocument> {
        let Some(node) = self.present(key) else { return Ok(None) };
        let found = T::ALL.iter().copied().find(|name| node.is(name.as_str()));
        let invalid = || self.error(key, format!("must be one of {}", join_variants::<T>()));
        found.ok_or_else(invalid).map(Some)
    }

    /// Checks that the member exists and is the string `expected`.
    pub fn expect_string(&self, key: &str, expected: &str) -> Result<(), InvalidDocument> {
        let is_expected = self.present(key).is_some_and(|node| node.is(expected));
        if is_expected { Ok(()) } else { Err(self.error(key, format!("must be {expected}"))) }
    }

    /// Reads an optional array of strings. Errors name the index of an invalid element.
    pub fn texts(&self, key: &str) -> Result<Option<Vec<Name>>, InvalidDocument> {
        let Some(node) = self.present(key) else { return Ok(None) };
        if !node.is_array() {
            return Err(self.error(key, "must be an array of strings"));
        }
        let text = |(place, node): (usize, Node<'t>)| {
            node.name().ok_or_else(|| self.error(&format!("{key}[{place}]"), "must be a string"))
        };
        node.elements().enumerate().map(text).collect::<Result<_, _>>().map(Some)
    }

    /// Returns the name, value and path of every member, for objects whose member names are keys
    /// chosen by the user.
    pub fn entries(&self) -> impl Iterator<Item = (Name, Node<'t>, String)> {
        let members = self.node.members().filter_map(|(key, value)| Some((key.name()?, value)));
        members.map(|(key, value)| {
            let path = format!("{}[{key:?}]", self.path);
            (key, value, path)
        })
    }

    /// Fails if the object has a member that is not in `known`, so that a misspelt setting is not
    /// ignored silently.
    pub fn refuse_unknown(&self, known: &[&str]) -> Result<(), InvalidDocument> {
        match self.extras(known).first() {
            None => Ok(()),
            Some((key, _)) => {
                Err(self.error(key, format!("is not a known setting; use {}", known.join(", "))))
            }
        }
    }

    /// Reads an array of objects; empty if the member is absent. Errors include the element's
    /// index.
    pub fn list(&self, key: &str) -> Result<Vec<Fields<'t>>, InvalidDocument> {
        let Some(node) = self.present(key) else { return Ok(Vec::new()) };
        if !node.is_array() {
            return Err(self.error(key, "must be an array"));
        }
        let at = |position| format!("{}[{position}]", self.path(key));
        let elements = node.elements().enumerate();
        elements.map(|(place, node)| Fields::from_node(node, at(place))).collect()
    }

    /// Reads an optional nested object. In errors about its members, the path starts with the path
    /// of `key`.
    pub fn object(&self, key: &str) -> Result<Option<Fields<'t>>, InvalidDocument> {
        self.present(key).map(|node| Fields::from_node(node, self.path(key))).transpose()
    }

    /// Returns the members that are not in `known`, verbatim.
    pub fn extras(&self, known: &[&str]) -> Vec<(Name, Json)> {
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

/// An enum whose variants are written as fixed strings.
pub trait StringEnum: Copy + 'static {
    /// All variants, in declaration order.
    const ALL: &'static [Self];

    /// Returns the string that represents the variant in documents.
    fn as_str(self) -> &'static str;
}

/// Returns the strings of all variants, separated by commas, for error messages.
pub fn join_variants<T: StringEnum>() -> String {
    let names: Vec<_> = T::ALL.iter().map(|name| name.as_str()).collect();
    names.join(", ")
}

/// Declares enums whose variants are written as fixed strings in documents.
#[macro_export]
macro_rules! words {
    ($(
        $(#[$about:meta])*
        $name:ident { $($(#[$note:meta])* $variant:ident = $word:literal,)+ }
    )+) => { $(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$note])* $variant,)+ }

        impl $name {
            /// Returns the string that represents the variant in documents.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl $crate::StringEnum for $name {
            const ALL: &'static [Self] = &[$(Self::$variant,)+];

            fn as_str(self) -> &'static str { self.as_str() }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl $crate::RecordMember for $name {
            fn expected() -> String { format!("one of {}", $crate::join_variants::<Self>()) }

            fn schema(_: &mut $crate::Definitions) -> $crate::Json {
                $crate::enum_schema::<Self>()
            }

            fn read(
                fields: &$crate::Fields<'_>,
                key: &str,
            ) -> Result<Option<Self>, $crate::InvalidDocument> {
                fields.string_enum(key)
            }

            fn write(&self, out: &mut $crate::Object<'_>, key: &str) {
                out.string(key, self.as_str());
            }
        }
    )+ };
}

/// Writes the extra members of a record, except members whose names are in `known`.
pub fn write_extras(out: &mut Object<'_>, extras: &[(Name, Json)], known: &[&str]) {
    for (key, value) in extras.iter().filter(|(key, _)| !known.contains(&&**key)) {
        out.raw(key, value);
    }
}

/// A signature or sealed data in a document. The `Debug` output shows only its size.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Opaque(Arc<str>);

impl Opaque {
    /// Returns the text. Only the tenant that owns the document may see the text; never log it.
    pub fn reveal_to_tenant(&self) -> &str {
        &self.0
    }

    /// Returns the length of the text in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the text is empty, which means that the document contains no signature or sealed
    /// data.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a copy of the text as bytes.
    pub fn bytes(&self) -> bytes::Bytes {
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
