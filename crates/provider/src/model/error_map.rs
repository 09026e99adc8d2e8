//! Converts failures of model calls to model errors. Messages contain no keys and no Seals.

use throughline_codec::CodecError;
use throughline_core::{Failure, ModelError, ModelErrorKind, UpstreamError};

use crate::redact::redact;

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
        | UpstreamError::CredentialUnavailable { .. }
        | UpstreamError::Cut { .. } => ModelErrorKind::Transient,
        UpstreamError::Resting { .. } => ModelErrorKind::CircuitOpen,
        UpstreamError::UnknownEndpoint { .. }
        | UpstreamError::NoCredential { .. }
        | UpstreamError::Refused { .. }
        | UpstreamError::Invalid { .. }
        | UpstreamError::TooLarge { .. } => ModelErrorKind::Other,
    };
    ModelError {
        may_be_charged: error.may_be_charged(),
        ..ModelError::new(kind, error.to_string())
    }
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

#[cfg(test)]
#[path = "trouble_tests.rs"]
mod trouble_tests;
