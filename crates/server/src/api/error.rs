//! Errors of the agent API in Letta's format: an object with a `detail`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use throughline_agent::{InvalidConfig, InvalidSnapshot, RefusalKind, RunError};
use throughline_codec::CodecError;
use throughline_core::StoreError;
use throughline_json::{self as json, InvalidDocument, Json};

use crate::api::responses::AnyValue;
use crate::error::{GatewayError, RETRY_STORE};
use crate::object::{object, to_json};
use crate::response::GatewayResponse;

/// An error response: status, detail and an optional `retry-after`.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) status: u16,
    detail: Json,
    retry_after: Option<Duration>,
}

/// The body of an error.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub(crate) struct ErrorBody<'e> {
    /// What is wrong: a sentence, or an object with a code, a message and ids.
    #[schemars(with = "AnyValue")]
    detail: &'e Json,
}

impl ApiError {
    pub(crate) fn new(status: u16, message: impl AsRef<str>) -> Self {
        Self { status, detail: json::string(message.as_ref()), retry_after: None }
    }

    /// Creates a 404 error, which is also returned for other tenants' objects.
    pub(crate) fn not_found(kind: &str, id: &str) -> Self {
        Self::new(404, format!("there is no {kind} {id}"))
    }

    /// Creates a 409 error that names the active run.
    pub(crate) fn busy(conversation: &str, run: &str, message: &str) -> Self {
        Self::conflict(object! {
            "code": "CONVERSATION_BUSY", "message": message,
            "conversation_id": conversation, "run_id": run,
        })
    }

    /// Creates a 409 error that names the pending request. The caller must decide that request
    /// first.
    pub(crate) fn pending_approval(run: &str, request: &str, message: &str) -> Self {
        Self::conflict(object! {
            "code": "PENDING_APPROVAL", "message": message,
            "pending_request_id": request, "run_id": run,
        })
    }

    fn conflict(detail: Json) -> Self {
        Self { status: 409, detail, retry_after: None }
    }

    /// Adds a `retry-after` header.
    pub(crate) fn after(self, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

    pub(crate) fn to_response(&self) -> GatewayResponse {
        let body = to_json(&ErrorBody { detail: &self.detail });
        GatewayResponse::json(self.status, &body).with_retry_after(self.retry_after)
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        use StoreError::{Conflict, Fenced, Held, MixedOnce, Taken};
        let status = match &error {
            StoreError::NotFound { .. } => 404,
            Conflict { .. } | Fenced { .. } | Held { .. } | Taken { .. } | MixedOnce { .. } => 409,
            StoreError::Invalid(_) => 422,
            _ => 503,
        };
        let retry_after = (status == 503).then_some(RETRY_STORE);
        Self { retry_after, ..Self::new(status, error.to_string()) }
    }
}

impl From<RunError> for ApiError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Store(error) => error.into(),
            RunError::Refused(refusal) => {
                let status = match refusal.kind {
                    RefusalKind::NotFound => 404,
                    RefusalKind::Conflict => 409,
                    RefusalKind::Invalid => 422,
                };
                Self::new(status, &refusal.message)
            }
            RunError::Busy { ref run, .. } => Self::busy("", run, &error.to_string()),
            RunError::Config(_) | RunError::Model(_) => Self::new(422, error.to_string()),
            RunError::Erased { .. } => Self::new(404, error.to_string()),
            RunError::Damaged { .. } => Self::new(500, error.to_string()),
        }
    }
}

impl From<GatewayError> for ApiError {
    fn from(problem: GatewayError) -> Self {
        let error = Self::new(problem.status, &problem.message);
        Self { retry_after: problem.retry_after, ..error }
    }
}

/// Maps errors in a caller's documents to status 422.
macro_rules! invalid_input {
    ($($error:ty),*) => { $(
        impl From<$error> for ApiError {
            fn from(error: $error) -> Self {
                Self::new(422, error.to_string())
            }
        }
    )* };
}

invalid_input!(CodecError, InvalidConfig, InvalidDocument, InvalidSnapshot);
