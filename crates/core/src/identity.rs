//! Who speaks: a name for the system that is never sent, and a name for the model.

use crate::document::{Fields, InvalidDocument};
use crate::json::{self, Json, Node, Shape};
use crate::name::Label;

/// Who speaks.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    /// For the system. Never sent to a model.
    pub identifier: Identifier,
    /// For the model.
    pub representation: Label,
}

/// The system's name for somebody: text, or a number.
#[derive(Clone, Debug, PartialEq)]
pub enum Identifier {
    /// Text.
    Text(Label),
    /// A number, as it was written.
    Number(Json),
}

impl Default for Identity {
    fn default() -> Self {
        Self::named("assistant")
    }
}

impl Identity {
    /// Somebody whom the system and the model call the same.
    pub fn named(name: impl Into<Label>) -> Self {
        let representation = name.into();
        Self { identifier: Identifier::Text(representation.clone()), representation }
    }

    /// Whether both are the same speaker: by the identifier, so that a new name for the model changes nothing. An identity
    /// that has only a name, as older Threads have them, is compared by that name.
    pub fn is_same(&self, other: &Self) -> bool {
        let has_only_name =
            |one: &Self| one.identifier == Identifier::Text(one.representation.clone());
        self.identifier == other.identifier
            || ((has_only_name(self) || has_only_name(other))
                && self.representation == other.representation)
    }
}

impl Identity {
    /// Reads a plain string, which is both names, or `{"identifier", "representation"}`, where both are
    /// demanded. The error names the member, below `path`.
    pub(crate) fn read(node: Node<'_>, path: &str) -> Result<Self, InvalidDocument> {
        let error = |field: &str, problem: &'static str| InvalidDocument {
            field: field.into(),
            problem: problem.into(),
        };
        if let Some(name) = node.text() {
            let problem = "must not be empty: leave it out for `assistant`";
            return match &*name {
                "" => Err(error(path, problem)),
                name => Ok(Self::named(name.to_owned())),
            };
        }
        let fields = Fields::of(node, path)
            .map_err(|_| error(path, "must be a string or {identifier, representation}"))?;
        let identifier = match fields.present("identifier").map(|node| (node, node.shape())) {
            Some((node, Shape::Number)) => Identifier::Number(node.json()),
            Some((node, Shape::String)) if !node.is("") => {
                Identifier::Text(node.text().unwrap_or_default().into_owned().into())
            }
            Some(_) => {
                return Err(fields.error("identifier", "must be a non-empty string or a number"));
            }
            None => return Err(fields.error("identifier", "is missing: give a string or a number")),
        };
        let representation = fields.required_text("representation")?;
        if representation.is_empty() {
            return Err(fields.error("representation", "must not be empty"));
        }
        Ok(Self { identifier, representation: representation.to_string().into() })
    }

    /// The object `{"identifier", "representation"}`.
    pub fn json(&self) -> Json {
        json::object(|out| {
            match &self.identifier {
                Identifier::Text(text) => out.string("identifier", text),
                Identifier::Number(number) => out.raw("identifier", number),
            };
            out.string("representation", &self.representation);
        })
    }
}

/// Who speaks, as a caller gives it.
#[derive(Clone, Debug, PartialEq)]
pub enum RawIdentity {
    /// A plain string: what the system and the model both say.
    Named(Label),
    /// A raw object `{"identifier", "representation"}`, which is checked.
    Raw(Json),
    /// A ready value, which passes through.
    Ready(Identity),
}

impl From<&str> for RawIdentity {
    fn from(name: &str) -> Self {
        Self::Named(name.to_owned().into())
    }
}

impl From<String> for RawIdentity {
    fn from(name: String) -> Self {
        Self::Named(name.into())
    }
}

impl From<Json> for RawIdentity {
    fn from(raw: Json) -> Self {
        Self::Raw(raw)
    }
}

impl From<Identity> for RawIdentity {
    fn from(ready: Identity) -> Self {
        Self::Ready(ready)
    }
}
