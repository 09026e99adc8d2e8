//! The words of the closed lists, as stored texts write them.

use crate::document::Word;
use crate::item::{Outcome, Role};
use crate::thought::ThoughtKind;

impl Word for Role {
    const ALL: &'static [Self] =
        &[Self::System, Self::Developer, Self::User, Self::Assistant, Self::Tool];

    fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Developer => "developer",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

impl Word for Outcome {
    const ALL: &'static [Self] = &[Self::Ok, Self::Error, Self::Unknown, Self::Denied];

    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Unknown => "unknown",
            Self::Denied => "denied",
        }
    }
}

impl Word for ThoughtKind {
    const ALL: &'static [Self] = &[Self::Text, Self::Summary, Self::Encrypted];

    fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Summary => "summary",
            Self::Encrypted => "encrypted",
        }
    }
}
