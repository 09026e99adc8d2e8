//! Rules of the Gemini API, as data.

mod function_responses;
mod signatures;
mod thinking;

use throughline_core::{Target, Wire};

pub(super) use self::function_responses::{
    ANSWERS_DO_NOT_MATCH, CACHE_PREFIX_BROKEN, THOUGHT_AS_TEXT,
};
pub(super) use self::signatures::{
    FIRST_CALL_NEEDS_SIGNATURE, SIGNATURE_CORRUPTED, SIGNATURE_DROPPED, SIGNATURE_MOVED,
    SIGNED_TEXT_EDITED, STAND_IN_USED,
};
pub(super) use self::thinking::{
    BUDGET_OUT_OF_RANGE, LEVEL_NOT_SUPPORTED, THOUGHTS_WITHOUT_THINKING,
};
use crate::{Rule, Source, SourceKind};

/// All rules, in the order in which they are listed.
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

/// Applies to every target of this wire.
fn applies_always(_: &Target) -> bool {
    true
}

/// Applies to models with a known profile.
fn is_known(target: &Target) -> bool {
    target.profile.name != "unknown"
}

/// Applies to models that sign their parts.
fn is_signing_model(target: &Target) -> bool {
    target.profile.bound.model
}
