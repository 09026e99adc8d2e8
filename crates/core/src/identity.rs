//! Identifies the speaker of a message: an internal identifier, which is never sent, and a name
//! that the model sees.

use throughline_json::{self as json, Fields, InvalidDocument, Json, JsonKind, Label, Node};

/// The speaker of a message, such as an agent or a user.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    /// The internal identifier. Never sent to a model.
    pub identifier: Identifier,
    /// The name shown to the model.
    pub representation: Label,
}

/// The internal identifier of a speaker: a string or a number.
#[derive(Clone, Debug, PartialEq)]
pub enum Identifier {
    /// A string identifier.
    Text(Label),
    /// A numeric identifier, with its digits as written.
    Number(Json),
}

impl Default for Identity {
    fn default() -> Self {
        Self::named("assistant")
    }
}

impl Identity {
    /// Creates a speaker whose identifier and representation are both `name`.
    pub fn named(name: impl Into<Label>) -> Self {
        let representation = name.into();
        Self { identifier: Identifier::Text(representation.clone()), representation }
    }

    /// Whether `self` and `other` are the same speaker. Speakers are compared by identifier, so a
    /// speaker may change its representation. Identities from older Threads have only a name and
    /// are compared by that name.
    pub fn is_same(&self, other: &Self) -> bool {
        let has_only_name =
            |one: &Self| one.identifier == Identifier::Text(one.representation.clone());
        self.identifier == other.identifier
            || ((has_only_name(self) || has_only_name(other))
                && self.representation == other.representation)
    }

    /// Parses a string, which sets both the identifier and the representation, or an object
    /// `{"identifier", "representation"}` with both members required. Errors name the invalid
    /// member by its path, starting with `path`.
    pub fn read(node: Node<'_>, path: &str) -> Result<Self, InvalidDocument> {
        let error = |field: &str, problem: &'static str| InvalidDocument {
            field: field.into(),
            problem: problem.into(),
        };
        if let Some(name) = node.text() {
            let problem = "must not be empty; omit it to use `assistant`";
            return match &*name {
                "" => Err(error(path, problem)),
                name => Ok(Self::named(name.to_owned())),
            };
        }
        let fields = Fields::from_node(node, path).map_err(|_| {
            error(path, "must be a string or an object with `identifier` and `representation`")
        })?;
        let identifier = match fields.present("identifier").map(|node| (node, node.shape())) {
            Some((node, JsonKind::Number)) => Identifier::Number(node.json()),
            Some((node, JsonKind::String)) if !node.is("") => {
                Identifier::Text(node.text().unwrap_or_default().into_owned().into())
            }
            Some(_) => {
                return Err(fields.error("identifier", "must be a non-empty string or a number"));
            }
            None => {
                return Err(fields.error("identifier", "is missing; expected a string or a number"));
            }
        };
        let representation = fields.required_text("representation")?;
        if representation.is_empty() {
            return Err(fields.error("representation", "must not be empty"));
        }
        Ok(Self { identifier, representation: representation.to_string().into() })
    }

    /// Returns the object `{"identifier", "representation"}`.
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

/// A speaker as supplied by a caller, before validation.
#[derive(Clone, Debug, PartialEq)]
pub enum RawIdentity {
    /// A string that becomes the identifier and the representation.
    Named(Label),
    /// A raw object `{"identifier", "representation"}`, which is validated.
    Raw(Json),
    /// A validated identity, used unchanged.
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
