//! The enum strings of stored texts.

use throughline_json::StringEnum;

use crate::item::{Outcome, Role};
use crate::thought::{ReasoningSource, ThoughtKind};

impl StringEnum for Role {
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

impl StringEnum for Outcome {
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

impl StringEnum for ThoughtKind {
    const ALL: &'static [Self] = &[Self::Text, Self::Summary, Self::Encrypted];

    fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Summary => "summary",
            Self::Encrypted => "encrypted",
        }
    }
}

impl StringEnum for ReasoningSource {
    const ALL: &'static [Self] = &[Self::ReasonerModel, Self::NonReasonerModel];

    fn as_str(self) -> &'static str {
        self.as_str()
    }
}
