//! Errors that the gateway returns, and their JSON bodies in each dialect.

use std::time::Duration;

use throughline_codec::CodecError;
use throughline_core::{StoreError, UpstreamError, Wire};
use throughline_json::Json;

use crate::object::object;
use crate::response::GatewayResponse;

/// Retry delay sent to clients while the store is unavailable.
pub(crate) const RETRY_STORE: Duration = Duration::from_secs(5);

pub(crate) type GatewayResult<T = GatewayResponse> = Result<T, GatewayError>;

/// An error response to the client, independent of the client's dialect.
#[derive(Debug)]
pub(crate) struct GatewayError {
    pub(crate) status: u16,
    pub(crate) message: String,
    /// The parameter at fault and the error code, for dialects that have them.
    pub(crate) code: Option<(&'static str, &'static str)>,
    /// The delay after which a retry may succeed.
    pub(crate) retry_after: Option<Duration>,
    /// Whether the client must not repeat the request by itself, because a repetition within the
    /// next minute cannot succeed.
    pub(crate) is_final: bool,
    /// Whether a failed store read caused the error.
    pub(crate) is_of_store: bool,
}

impl GatewayError {
    pub(crate) fn new(status: u16, message: impl Into<String>) -> Self {
        let message = message.into();
        let (code, retry_after) = (None, None);
        Self { status, message, code, retry_after, is_final: false, is_of_store: false }
    }

    /// Sets the delay after which a retry may succeed.
    #[must_use]
    pub(crate) fn after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Asks the client not to repeat the request by itself.
    #[must_use]
    pub(crate) fn without_retry(mut self) -> Self {
        self.is_final = true;
        self
    }

    /// Encodes the error as a complete response in the caller's dialect.
    pub(crate) fn to_response(&self, wire: &Wire) -> GatewayResponse {
        let json = self.to_json(wire);
        let response = if *wire == Wire::BEDROCK_CONVERSE {
            let (status, name) = bedrock_error(self.status, self.is_final);
            GatewayResponse::json(status, &json).with_header("x-amzn-errortype", name)
        } else {
            GatewayResponse::json(self.status, &json)
        };
        let response = response.with_retry_after(self.retry_after);
        // The official clients of OpenAI and Anthropic obey this header.
        if self.is_final { response.with_header("x-should-retry", "false") } else { response }
    }

    /// Encodes the error body in the wire's format.
    pub(crate) fn to_json(&self, wire: &Wire) -> Json {
        let Self { status, message, code, .. } = self;
        match wire.as_str() {
            "anthropic-messages" => {
                let error = object! { "type": error_type(*status), "message": message };
                object! { "type": "error", "error": error }
            }
            "gemini" => {
                let name = gemini_status(*status);
                let error = object! { "code": status, "message": message, "status": name };
                object! { "error": error }
            }
            "bedrock-converse" => object! { "message": message },
            _ => {
                // OpenAI uses the error type of status 400 for every error with a code.
                let status = if code.is_some() { 400 } else { *status };
                let (kind, (param, code)) = (error_type(status), code.unzip());
                let error =
                    object! { "message": message, "type": kind, "param": param, "code": code };
                object! { "error": error }
            }
        }
    }
}

impl From<CodecError> for GatewayError {
    fn from(error: CodecError) -> Self {
        Self::new(400, error.to_string())
    }
}

impl From<&UpstreamError> for GatewayError {
    fn from(error: &UpstreamError) -> Self {
        match error {
            UpstreamError::NoCredential { .. } => Self::new(401, error.to_string()),
            // The details name files and hosts of the operator. The log contains them.
            UpstreamError::CredentialUnavailable { endpoint, .. } => {
                let message = "the gateway has no credential; its log states the reason";
                Self::new(502, format!("no credential for {endpoint}: {message}"))
            }
            UpstreamError::TimedOut { .. } => Self::new(504, error.to_string()),
            UpstreamError::Resting { left, .. } => Self::new(503, error.to_string()).after(*left),
            _ => Self::new(502, error.to_string()),
        }
    }
}

impl From<StoreError> for GatewayError {
    fn from(error: StoreError) -> Self {
        let problem = Self::new(503, format!("the store cannot be read: {error}"));
        Self { is_of_store: true, ..problem.after(RETRY_STORE) }
    }
}

fn error_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

/// Returns the status and the name of Bedrock's error for a status. Bedrock never returns 401, 402
/// or 529. The AWS clients repeat every request with status 429, so an error that the client must
/// not repeat has another status.
fn bedrock_error(status: u16, is_final: bool) -> (u16, &'static str) {
    match status {
        402 => (400, "ServiceQuotaExceededException"),
        429 if is_final => (400, "ServiceQuotaExceededException"),
        401 => (403, "UnrecognizedClientException"),
        403 => (403, "AccessDeniedException"),
        404 => (404, "ResourceNotFoundException"),
        408 => (408, "ModelTimeoutException"),
        429 => (429, "ThrottlingException"),
        503 | 529 => (503, "ServiceUnavailableException"),
        400..=499 => (status, "ValidationException"),
        _ => (status, "InternalServerException"),
    }
}

fn gemini_status(status: u16) -> &'static str {
    match status {
        400 | 413 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        402 | 429 => "RESOURCE_EXHAUSTED",
        503 | 529 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        _ => "INTERNAL",
    }
}
