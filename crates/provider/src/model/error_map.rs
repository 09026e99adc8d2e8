//! Converts failures of model calls to model errors. Messages contain no keys and no Seals.

use throughline_codec::CodecError;
use throughline_core::{Failure, ModelError, ModelErrorKind, UpstreamError};
use throughline_json::Name;

/// Words of at least this length may be keys or Seals.
const OPAQUE: usize = 32;

pub(super) fn kind_from_status(status: u16) -> ModelErrorKind {
    match status {
        429 => ModelErrorKind::RateLimit,
        408 | 425 | 500..=599 => ModelErrorKind::Transient,
        _ => ModelErrorKind::Other,
    }
}

pub(super) fn from_upstream(error: &UpstreamError) -> ModelError {
    let kind = match error {
        UpstreamError::Unreachable { .. }
        | UpstreamError::TimedOut { .. }
        | UpstreamError::Cut { .. } => ModelErrorKind::Transient,
        UpstreamError::Resting { .. } => ModelErrorKind::CircuitOpen,
        UpstreamError::UnknownEndpoint { .. }
        | UpstreamError::NoCredential { .. }
        | UpstreamError::Refused { .. }
        | UpstreamError::Invalid { .. }
        | UpstreamError::TooLarge { .. } => ModelErrorKind::Other,
    };
    ModelError::new(kind, error.to_string())
}

pub(super) fn from_codec(error: &CodecError) -> ModelError {
    match error {
        CodecError::Provider(failure) => from_failure(failure),
        // A corrupt response may be intact on a retry.
        CodecError::Syntax(_) | CodecError::Frame(_) => {
            ModelError::new(ModelErrorKind::Transient, error.to_string())
        }
        // `CodecError` is non-exhaustive.
        _ => ModelError::new(ModelErrorKind::Other, error.to_string()),
    }
}

/// Converts a failure that the provider reported in its response.
pub(super) fn from_failure(failure: &Failure) -> ModelError {
    let error_type = failure.kind.as_deref().unwrap_or_default().to_ascii_lowercase();
    let is = |parts: &[&str]| parts.iter().any(|part| error_type.contains(part));
    let kind = match failure.status {
        Some(status) => kind_from_status(status),
        None if is(&["rate_limit", "resource_exhausted", "throttl"]) => ModelErrorKind::RateLimit,
        None if is(&["invalid", "validation", "authentication", "permission", "not_found"]) => {
            ModelErrorKind::Other
        }
        None => ModelErrorKind::Transient,
    };
    ModelError::new(kind, redact(&failure.message))
}

/// Replaces words that may be keys or Seals: long words that mix letters and digits.
pub(super) fn redact(text: &str) -> Name {
    let is_inside = |c: char| c.is_ascii_alphanumeric() || "+/_=-".contains(c);
    let mut redacted = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_inside(c)).unwrap_or(rest.len());
        let (word, rest_of_text) = rest.split_at_checked(end).unwrap_or((rest, ""));
        redacted.push_str(if is_opaque(word) { "…" } else { word });
        let next = rest_of_text.find(is_inside).unwrap_or(rest_of_text.len());
        let (between, after) = rest_of_text.split_at_checked(next).unwrap_or((rest_of_text, ""));
        redacted.push_str(between);
        rest = after;
    }
    Name::from(redacted)
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
