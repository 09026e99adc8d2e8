//! Who speaks: a name for the system that is never sent, and a name for the model.

use crate::json::Json;
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
}
