//! Why the gateway does not answer a request, and the error body of each dialect.

use std::time::Duration;

use throughline_codec::CodecError;
use throughline_core::{UpstreamError, Wire};
use throughline_json::{self as json, Json, Name};

use crate::response::GatewayResponse;

/// The reason why a request fails, as the client receives it.
#[derive(Debug)]
pub(crate) struct GatewayError {
    pub(crate) status: u16,
    pub(crate) message: String,
    /// The parameter at fault and the error code, for dialects that have them.
    pub(crate) code: Option<(&'static str, &'static str)>,
    /// The delay after which a retry may succeed.
    pub(crate) retry_after: Option<Duration>,
    /// Whether a failed read from the store is the cause.
    pub(crate) is_of_store: bool,
}

impl GatewayError {
    pub(crate) fn new(status: u16, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, message, code: None, retry_after: None, is_of_store: false }
    }

    /// Sets the delay after which a retry may succeed.
    #[must_use]
    pub(crate) fn after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Encodes the error in the caller's dialect.
    pub(crate) fn told(&self, wire: &Wire) -> GatewayResponse {
        let said = error_json_with_code(wire, self.status, &self.message, self.code);
        let mut answered = GatewayResponse::json(self.status, &said);
        if let Some(wait) = self.retry_after {
            // `retry-after` takes whole seconds, so round up.
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            answered.headers.push((Name::from("retry-after"), seconds.to_string().into()));
        }
        answered
    }

    pub(crate) fn from_codec(error: &CodecError) -> Self {
        Self::new(400, error.to_string())
    }

    pub(crate) fn from_upstream(error: &UpstreamError) -> Self {
        match error {
            UpstreamError::NoCredential { .. } => Self::new(401, error.to_string()),
            UpstreamError::TimedOut { .. } => Self::new(504, error.to_string()),
            UpstreamError::Resting { left, .. } => Self::new(503, error.to_string()).after(*left),
            _ => Self::new(502, error.to_string()),
        }
    }
}

/// Encodes an error in the shape of a dialect.
pub(crate) fn dialect_error(wire: &Wire, status: u16, message: &str) -> Json {
    error_json_with_code(wire, status, message, None)
}

/// Encodes an error with the parameter at fault and a code, for dialects that have them.
pub(crate) fn error_json_with_code(
    wire: &Wire,
    status: u16,
    message: &str,
    code: Option<(&str, &str)>,
) -> Json {
    let kind = kind_of(status);
    json::object(|o| match wire.as_str() {
        "anthropic-messages" => {
            o.string("type", "error").object("error", |error| {
                error.string("type", kind).string("message", message);
            });
        }
        "gemini" => {
            o.object("error", |error| {
                error.number("code", status.into());
                error.string("message", message).string("status", gemini_status(status));
            });
        }
        _ => {
            // OpenAI's errors with a code always have this type.
            let kind = if code.is_some() { "invalid_request_error" } else { kind };
            o.object("error", |error| {
                error.string("message", message).string("type", kind);
                match code {
                    Some((param, code)) => error.string("param", param).string("code", code),
                    None => error.null("param").null("code"),
                };
            });
        }
    })
}

fn kind_of(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

fn gemini_status(status: u16) -> &'static str {
    match status {
        400 | 413 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 | 529 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        _ => "INTERNAL",
    }
}
