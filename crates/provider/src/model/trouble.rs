//! What kind of failure it is when a model does not answer, in words that hold no key and no seal.

use throughline_codec::CodecError;
use throughline_core::{Failure, ModelError, Name, Trouble, UpstreamError};

/// From how many characters on a word may be a key or a seal.
const OPAQUE: usize = 32;

/// The kind of a status that is no answer.
pub(super) fn of_status(status: u16) -> Trouble {
    match status {
        429 => Trouble::RateLimit,
        408 | 425 | 500..=599 => Trouble::Transient,
        _ => Trouble::Other,
    }
}

pub(super) fn of_upstream(error: &UpstreamError) -> ModelError {
    let kind = match error {
        UpstreamError::Unreachable { .. }
        | UpstreamError::TimedOut { .. }
        | UpstreamError::Cut { .. } => Trouble::Transient,
        UpstreamError::Resting { .. } => Trouble::CircuitOpen,
        UpstreamError::UnknownEndpoint { .. }
        | UpstreamError::NoCredential { .. }
        | UpstreamError::Refused { .. }
        | UpstreamError::Invalid { .. }
        | UpstreamError::TooLarge { .. } => Trouble::Other,
    };
    ModelError::new(kind, error.to_string())
}

pub(super) fn of_codec(error: &CodecError) -> ModelError {
    match error {
        CodecError::Provider(failure) => of_failure(failure),
        // What comes broken once may come whole the next time.
        CodecError::Syntax(_) | CodecError::Frame(_) => {
            ModelError::new(Trouble::Transient, error.to_string())
        }
        _ => ModelError::new(Trouble::Other, error.to_string()),
    }
}

/// A provider's own account of why it failed.
pub(super) fn of_failure(failure: &Failure) -> ModelError {
    let word = failure.kind.as_deref().unwrap_or_default().to_ascii_lowercase();
    let is = |words: &[&str]| words.iter().any(|part| word.contains(part));
    let kind = match failure.status {
        Some(status) => of_status(status),
        None if is(&["rate_limit", "resource_exhausted", "throttl"]) => Trouble::RateLimit,
        None if is(&["invalid", "validation", "authentication", "permission", "not_found"]) => {
            Trouble::Other
        }
        None => Trouble::Transient,
    };
    ModelError::new(kind, unsealed(&failure.message))
}

/// The same words, without any that may be a key or a seal: long ones of letters and digits mixed.
pub(super) fn unsealed(said: &str) -> Name {
    let is_inside = |c: char| c.is_ascii_alphanumeric() || "+/_=-".contains(c);
    let mut shown = String::with_capacity(said.len());
    let mut rest = said;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_inside(c)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at_checked(end).unwrap_or((rest, ""));
        shown.push_str(if is_opaque(word) { "…" } else { word });
        let next = behind.find(is_inside).unwrap_or(behind.len());
        let (between, after) = behind.split_at_checked(next).unwrap_or((behind, ""));
        shown.push_str(between);
        rest = after;
    }
    Name::from(shown)
}

fn is_opaque(word: &str) -> bool {
    let has = |is: fn(&char) -> bool| word.chars().any(|c| is(&c));
    word.len() >= OPAQUE
        && has(char::is_ascii_digit)
        && has(char::is_ascii_uppercase)
        && has(char::is_ascii_lowercase)
}

#[cfg(test)]
#[path = "trouble_tests.rs"]
mod trouble_tests;
