//! Errors of the agent API in Letta's format: an object with a `detail`.

use schemars::JsonSchema;
use serde::Serialize;
use throughline_agent::{RefusalKind, RunError};
use throughline_core::StoreError;
use throughline_json::{self as json, Json, Name};

use crate::api::responses::{AnyValue, to_json};
use crate::error::GatewayError;
use crate::response::GatewayResponse;
use crate::telemetry::RETRY_STORE;

/// An error response: status, detail and an optional `retry-after`.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) status: u16,
    detail: Json,
    retry_after: Option<std::time::Duration>,
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

    /// A 404. The same error covers objects of other tenants.
    pub(crate) fn not_found(what: &str, id: &str) -> Self {
        Self::new(404, format!("there is no {what} {id}"))
    }

    /// A 409 that names the active run.
    pub(crate) fn busy(conversation: &str, run: &str, message: &str) -> Self {
        let detail = json::object(|o| {
            o.string("code", "CONVERSATION_BUSY").string("message", message);
            o.string("conversation_id", conversation).string("run_id", run);
        });
        Self { status: 409, detail, retry_after: None }
    }

    /// A 409 that names the pending request to decide first.
    pub(crate) fn pending_approval(run: &str, request: &str, message: &str) -> Self {
        let detail = json::object(|o| {
            o.string("code", "PENDING_APPROVAL").string("message", message);
            o.string("pending_request_id", request).string("run_id", run);
        });
        Self { status: 409, detail, retry_after: None }
    }

    /// Adds a `retry-after` header.
    pub(crate) fn after(self, wait: std::time::Duration) -> Self {
        Self { retry_after: Some(wait), ..self }
    }

    pub(crate) fn told(&self) -> GatewayResponse {
        let body = ErrorBody { detail: &self.detail };
        let mut answered = GatewayResponse::json(self.status, &to_json(&body));
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            answered.headers.push((Name::from("retry-after"), seconds.to_string().into()));
        }
        answered
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let status = match &error {
            StoreError::NotFound { .. } => 404,
            StoreError::Conflict { .. }
            | StoreError::Fenced { .. }
            | StoreError::Held { .. }
            | StoreError::Taken { .. }
            | StoreError::MixedOnce { .. } => 409,
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
            RunError::Damaged { .. } => Self::new(500, error.to_string()),
        }
    }
}

impl From<GatewayError> for ApiError {
    fn from(problem: GatewayError) -> Self {
        let denied = Self::new(problem.status, &problem.message);
        Self { retry_after: problem.retry_after, ..denied }
    }
}
