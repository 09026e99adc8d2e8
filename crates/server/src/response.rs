//! A response on its way to the client.

use std::pin::Pin;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use futures_util::Stream;
use throughline_json::{Json, Name};

/// A response in the gateway's own form, before it becomes an HTTP response.
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
    pub(crate) fn json(status: u16, said: &Json) -> Self {
        let headers = vec![(Name::from("content-type"), Name::from("application/json"))];
        Self { status, headers, body: ResponseBody::Whole(said.bytes().clone()) }
    }

    pub(crate) fn into_response(self) -> Response {
        let body = match self.body {
            ResponseBody::Whole(bytes) => Body::from(bytes),
            ResponseBody::Stream(stream) => Body::from_stream(stream),
        };
        let mut response = Response::new(body);
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::BAD_GATEWAY);
        for (name, value) in &self.headers {
            let name = HeaderName::from_bytes(name.as_bytes());
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
                response.headers_mut().append(name, value);
            }
        }
        response
    }
}

pub(crate) fn plain(status: StatusCode, said: &Json) -> Response {
    let mut response = Response::new(Body::from(said.bytes().clone()));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// A stream that ended early. The caller's connection breaks, as the provider's did.
#[derive(Clone, Debug)]
pub(crate) struct StreamAborted(pub(crate) String);

impl std::fmt::Display for StreamAborted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StreamAborted {}
