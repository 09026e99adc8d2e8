//! Rules of the Responses API, as data.

mod pairing;
mod seals;
mod settings;

use throughline_core::{Target, Wire};

pub(super) use self::pairing::{
    CALLS_INTERRUPTED, ITEM_DUPLICATED, ITEM_WITHOUT_ITS_REASONING,
    REASONING_WITHOUT_FOLLOWING_ITEM, TOOL_CALL_UNANSWERED,
};
pub(super) use self::seals::{
    CACHE_PREFIX_BROKEN, ENCRYPTED_CONTENT_INVALID, ITEM_NOT_FOUND, PHASE_DROPPED,
    REASONING_DROPPED, REASONING_MOVED, REASONING_NEEDS_SUMMARY, THOUGHT_AS_TEXT,
};
pub(super) use self::settings::{
    EFFORT_NOT_SUPPORTED, PREVIOUS_RESPONSE_AND_CONVERSATION, PREVIOUS_RESPONSE_NOT_FOUND,
    REASONING_RESENT, SAMPLING_FIXED,
};
use crate::{Rule, Source, SourceKind};

/// All rules, in the order in which they are listed.
pub(in crate::responses) static RULES: &[&Rule] = &[
    &REASONING_WITHOUT_FOLLOWING_ITEM,
    &ITEM_WITHOUT_ITS_REASONING,
    &ITEM_DUPLICATED,
    &ITEM_NOT_FOUND,
    &ENCRYPTED_CONTENT_INVALID,
    &REASONING_NEEDS_SUMMARY,
    &PREVIOUS_RESPONSE_AND_CONVERSATION,
    &PREVIOUS_RESPONSE_NOT_FOUND,
    &REASONING_RESENT,
    &REASONING_DROPPED,
    &REASONING_MOVED,
    &EFFORT_NOT_SUPPORTED,
    &SAMPLING_FIXED,
    &TOOL_CALL_UNANSWERED,
    &CALLS_INTERRUPTED,
    &PHASE_DROPPED,
    &THOUGHT_AS_TEXT,
    &CACHE_PREFIX_BROKEN,
];

const WIRE: Wire = Wire::OPENAI_RESPONSES;

/// Source: the vendor's own client types.
const TYPES: Source = Source { kind: SourceKind::Types, at: "openai 3.49.0 (Python package)" };

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

/// Applies where stored ids pair items.
fn pairs_by_id(target: &Target) -> bool {
    target.provider.dialect.pairs
}

/// Applies where responses are stored, so that ids can reference them.
fn stores_responses(target: &Target) -> bool {
    target.provider.dialect.stores
}

/// Applies where reasoning is sealed and the Seals are verified.
fn seals_reasoning(target: &Target) -> bool {
    target.profile.bound.model
}
