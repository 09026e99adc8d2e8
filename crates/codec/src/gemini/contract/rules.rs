//! What each rule of this wire says.

mod answers;
mod signatures;
mod thinking;

use throughline_core::{Target, Wire};

pub(super) use self::answers::{ANSWERS_DO_NOT_MATCH, CACHE_PREFIX_BROKEN, THOUGHT_AS_TEXT};
pub(super) use self::signatures::{
    FIRST_CALL_NEEDS_SIGNATURE, SIGNATURE_CORRUPTED, SIGNATURE_DROPPED, SIGNATURE_MOVED,
    SIGNED_TEXT_EDITED, STAND_IN_USED,
};
pub(super) use self::thinking::{
    BUDGET_OUT_OF_RANGE, LEVEL_NOT_SUPPORTED, THOUGHTS_WITHOUT_THINKING,
};
use crate::{Rule, Source, SourceKind};

/// All of them, in the order in which they are told.
pub(in crate::gemini) static RULES: &[&Rule] = &[
    &FIRST_CALL_NEEDS_SIGNATURE,
    &SIGNATURE_CORRUPTED,
    &SIGNATURE_DROPPED,
    &SIGNATURE_MOVED,
    &SIGNED_TEXT_EDITED,
    &STAND_IN_USED,
    &LEVEL_NOT_SUPPORTED,
    &BUDGET_OUT_OF_RANGE,
    &THOUGHTS_WITHOUT_THINKING,
    &ANSWERS_DO_NOT_MATCH,
    &THOUGHT_AS_TEXT,
    &CACHE_PREFIX_BROKEN,
];

const WIRE: Wire = Wire::GEMINI;

const SIGNATURES_PAGE: Source = Source {
    kind: SourceKind::Documentation,
    at: "https://ai.google.dev/gemini-api/docs/thought-signatures",
};

const THINKING_PAGE: Source = Source {
    kind: SourceKind::Documentation,
    at: "https://ai.google.dev/gemini-api/docs/thinking",
};

const fn issue(at: &'static str) -> Source {
    Source { kind: SourceKind::Issue, at }
}

const fn recorded(at: &'static str) -> Source {
    Source { kind: SourceKind::Recorded, at }
}

/// Wherever this wire is spoken.
fn always(_: &Target) -> bool {
    true
}

/// Models of which something is known.
fn is_known(target: &Target) -> bool {
    target.profile.name != "unknown"
}

/// Models that sign what they say.
fn signs(target: &Target) -> bool {
    target.profile.bound.model
}
