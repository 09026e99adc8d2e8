//! The response type that handlers return.

use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use futures_util::Stream;
use throughline_json::{Json, Name};

/// A response that is not yet converted to an HTTP response.
pub(crate) struct GatewayResponse {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(Name, Name)>,
    pub(crate) body: ResponseBody,
}

pub(crate) enum ResponseBody {
    Whole(Bytes),
    Stream(Pin<Box<dyn Stream<Item = Result<Bytes, StreamAborted>> + Send>>),
}

impl GatewayResponse {
    pub(crate) fn json(status: u16, body: &Json) -> Self {
        Self { status, ..Self::text("application/json", body.bytes().clone()) }
    }

    /// Returns a response with status 200 and this content type.
    pub(crate) fn text(content_type: &str, body: impl Into<Bytes>) -> Self {
        let body = ResponseBody::Whole(body.into());
        Self { status: 200, headers: Vec::new(), body }.with_header("content-type", content_type)
    }

    pub(crate) fn with_header(mut self, name: &str, value: impl Into<Name>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Adds a `retry-after` header. The header takes whole seconds, so the delay is rounded up.
    pub(crate) fn with_retry_after(self, delay: Option<Duration>) -> Self {
        let Some(delay) = delay else { return self };
        let seconds = delay.as_secs() + u64::from(delay.subsec_nanos() > 0);
        self.with_header("retry-after", seconds.to_string())
    }

    pub(crate) fn into_response(self) -> Response {
        let body = match self.body {
            ResponseBody::Whole(bytes) => Body::from(bytes),
            ResponseBody::Stream(stream) => Body::from_stream(stream),
        };
        let mut response = Response::new(body);
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::BAD_GATEWAY);
        response.headers_mut().reserve(self.headers.len());
        for (name, value) in &self.headers {
            let name = HeaderName::from_bytes(name.as_bytes());
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
                response.headers_mut().append(name, value);
            }
        }
        response
    }
}

/// The error of a stream that ended early. The error closes the client's connection, so the client
/// does not mistake a partial response for a complete one.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct StreamAborted(pub(crate) String);
