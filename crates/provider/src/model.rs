//! Implements a model as an endpoint's HTTP client combined with a codec.
//!
//! [`EndpointModel`] encodes a Call, audits the encoded request, applies safe fixes, sends the
//! request, and decodes the response. If the provider would reject the fixed request, it is not
//! sent.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use throughline_codec::{
    Codec, DecodeContext, Framing, Preparation, Severity, codec, error_message, events_from_reply,
};
use throughline_core::{
    Call, EncodedRequest, Model, ModelError, ModelErrorKind, ModelFuture, ModelStream, Reply,
    Target, Upstream, UpstreamRequest, UpstreamResponse,
};
use throughline_json::Name;

use crate::model::error_map::{from_codec, from_upstream, kind_from_status};
use crate::model::reply_stream::ReplyStream;
use crate::redact::redact;

mod error_map;
mod models;
mod reply_stream;

pub use crate::model::models::{EndpointModels, ModelResolver, TargetOrder};

/// Maximum size of a complete response in bytes.
const LARGEST_ANSWER: usize = 256 << 20;

/// A model at an endpoint. It implements the `Model` port.
#[derive(Clone)]
pub struct EndpointModel {
    upstream: Arc<dyn Upstream>,
    endpoint: Name,
    target: Target,
    codec: &'static dyn Codec,
}

impl EndpointModel {
    /// Creates a client for the model in `target`, which sends requests to the named endpoint.
    /// Fails if no codec is registered for the target's wire.
    pub fn new(
        upstream: Arc<dyn Upstream>,
        endpoint: impl Into<Name>,
        target: Target,
    ) -> Result<Self, ModelError> {
        let wire = &target.origin.wire;
        let unknown = || other_error(format!("no codec registered for wire `{wire}`"));
        let codec = codec(wire).ok_or_else(unknown)?;
        Ok(Self { upstream, endpoint: endpoint.into(), target, codec })
    }

    /// Uses a custom codec instead of the built-in codec for the wire.
    #[must_use]
    pub fn with_codec(self, codec: &'static dyn Codec) -> Self {
        Self { codec, ..self }
    }

    /// Returns the name of the endpoint that receives the requests.
    pub fn endpoint(&self) -> &Name {
        &self.endpoint
    }

    async fn send(&self, call: Call) -> Result<ModelStream, ModelError> {
        let encoded = self.prepare(&call)?;
        // Compression saves nothing for small chunks, so it is disabled.
        let mut headers = encoded.request.headers.clone();
        headers.push((Name::from("accept-encoding"), Name::from("identity")));
        let outgoing = UpstreamRequest {
            endpoint: self.endpoint.clone(),
            model: Some(Name::from(self.target.model())),
            method: "POST".into(),
            path: self.codec.path(&self.target, call.stream).into(),
            headers,
            body: encoded.request.body,
            credential: None,
        };
        let response = self.upstream.send(outgoing).await.map_err(|error| from_upstream(&error))?;
        if response.status >= 300 {
            return Err(self.error_from_response(response).await);
        }
        if let Some(coding) = response.header("content-encoding")
            && !coding.eq_ignore_ascii_case("identity")
        {
            let problem = format!("content-encoding {coding}, which was not requested");
            let problem = other_error(format!("{} responded with {problem}", self.endpoint));
            return Err(problem.with_possible_charge());
        }
        let context = DecodeContext::of(self.target.clone());
        let context = DecodeContext { prefix: encoded.prefix, ..context };
        let events = if call.stream && !is_complete_document(&response, self.codec.framing()) {
            ReplyStream::new(self.codec, &context, response.body).events()
        } else {
            let reply = self.decode_document(response, &context).await;
            let reply = reply.map_err(ModelError::with_possible_charge)?;
            let events: Vec<_> = events_from_reply(&reply).into_iter().map(Ok).collect();
            Box::pin(futures_util::stream::iter(events))
        };
        Ok(ModelStream { fates: encoded.fates, warnings: encoded.warnings, events })
    }

    /// Encodes a Call and repairs problems for which the provider would reject the request. Fails
    /// if a problem cannot be repaired.
    fn prepare(&self, call: &Call) -> Result<EncodedRequest, ModelError> {
        let prepared = Preparation::new(self.codec, &self.target).encode(call);
        let prepared = prepared.map_err(|error| from_codec(&error))?;
        let mut findings = prepared.outcome.findings.iter();
        match findings.find(|finding| finding.severity == Severity::Refuse) {
            Some(finding) => {
                let (endpoint, rule) = (&self.endpoint, finding.rule.id);
                let message = redact(&finding.message);
                let message = format!("{endpoint} would reject this request: [{rule}] {message}");
                Err(other_error(message))
            }
            None => Ok(prepared.encoded),
        }
    }

    /// Converts an error response to a [`ModelError`].
    async fn error_from_response(&self, response: UpstreamResponse) -> ModelError {
        let status = response.status;
        let body = body(response).await.unwrap_or_default();
        let text = error_message(&body).map(|text| format!(": {}", redact(&text)));
        let message = format!("{} answered {status}{}", self.endpoint, text.unwrap_or_default());
        ModelError::new(kind_from_status(status), message)
    }

    async fn decode_document(
        &self,
        response: UpstreamResponse,
        context: &DecodeContext,
    ) -> Result<Reply, ModelError> {
        let body = body(response).await?;
        self.codec.decode_reply(&body, context).map_err(|error| from_codec(&error))
    }
}

impl Model for EndpointModel {
    fn target(&self) -> &Target {
        &self.target
    }

    fn send(&self, call: Call) -> ModelFuture<'_> {
        Box::pin(self.send(call))
    }
}

impl std::fmt::Debug for EndpointModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EndpointModel")
            .field("endpoint", &self.endpoint)
            .field("model", &self.target.model())
            .finish_non_exhaustive()
    }
}

/// Returns whether the response is a complete document although a stream was requested.
fn is_complete_document(response: &UpstreamResponse, framing: Framing) -> bool {
    let kind = response.header("content-type").and_then(Framing::from_content_type);
    framing == Framing::Sse && kind.is_some_and(|kind| kind == Framing::JsonArray)
}

async fn body(response: UpstreamResponse) -> Result<Bytes, ModelError> {
    let mut chunks = response.body;
    let mut body = BytesMut::new();
    while let Some(chunk) = chunks.next().await {
        body.extend_from_slice(&chunk.map_err(|error| from_upstream(&error))?);
        if body.len() > LARGEST_ANSWER {
            return Err(other_error("the response exceeds the limit of 256 MiB"));
        }
    }
    Ok(body.freeze())
}

fn other_error(message: impl Into<Name>) -> ModelError {
    ModelError::new(ModelErrorKind::Other, message)
}
