//! A model at an endpoint: a wire's translator and the way to its provider, together.
//!
//! [`EndpointModel`] writes a Call in the provider's words, looks at it as the provider would and mends what can be mended,
//! sends it, and reads what comes back. What the provider would refuse all the same is not sent.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use throughline_codec::{
    Asked, Codec, Framing, Reach, Severity, Transcript, codec, events_of, recount, repair,
};
use throughline_core::{
    Answer, Asking, Call, Encoded, Event, Events, Model, ModelError, Name, Outgoing, Reply, Saying,
    Target, Tree, Trouble, Upstream,
};

use crate::model::hearing::Hearing;
use crate::model::trouble::{of_codec, of_status, of_upstream, unsealed};

mod hearing;
mod named;
mod trouble;

pub use crate::model::named::{EndpointModels, Whereabouts};

/// The largest whole answer that is read.
const LARGEST_ANSWER: usize = 256 << 20;

/// A model at an endpoint.
#[derive(Clone)]
pub struct EndpointModel {
    upstream: Arc<dyn Upstream>,
    endpoint: Name,
    target: Target,
    codec: &'static dyn Codec,
}

impl EndpointModel {
    /// The model that `target` names, behind the endpoint of that name.
    pub fn new(
        upstream: Arc<dyn Upstream>,
        endpoint: impl Into<Name>,
        target: Target,
    ) -> Result<Self, ModelError> {
        let wire = &target.origin.wire;
        let spoken = codec(wire);
        let codec = spoken.ok_or_else(|| other(format!("nobody here speaks {wire}")))?;
        Ok(Self { upstream, endpoint: endpoint.into(), target, codec })
    }

    /// The same, on a wire that somebody else translates.
    #[must_use]
    pub fn speaking(self, codec: &'static dyn Codec) -> Self {
        Self { codec, ..self }
    }

    async fn hear(&self, call: Call) -> Result<Saying, ModelError> {
        let encoded = self.written(&call)?;
        let outgoing = Outgoing {
            endpoint: self.endpoint.clone(),
            model: Some(Name::from(self.target.model())),
            method: "POST".into(),
            path: self.codec.path(&self.target, call.stream).into(),
            headers: headers(&encoded),
            body: encoded.request.body,
            credential: None,
        };
        let answer = self.upstream.send(outgoing).await.map_err(|error| of_upstream(&error))?;
        if answer.status >= 300 {
            return Err(self.refused(answer).await);
        }
        if let Some(coding) = answer.header("content-encoding")
            && !coding.eq_ignore_ascii_case("identity")
        {
            let endpoint = &self.endpoint;
            let message = format!("{endpoint} answers in {coding}, which it was not asked for");
            return Err(other(message));
        }
        let asked = Asked { target: self.target.clone(), prefix: encoded.prefix };
        let events = if call.stream && !is_whole(&answer, self.codec.framing()) {
            Hearing::of(self.codec, &asked, answer.body).events()
        } else {
            told(&self.whole(answer, &asked).await?)
        };
        Ok(Saying { fates: encoded.fates, warnings: encoded.warnings, events })
    }

    /// The Call in the provider's words, mended where it would be refused.
    fn written(&self, call: &Call) -> Result<Encoded, ModelError> {
        let mut encoded = self.codec.encode(call).map_err(|error| of_codec(&error))?;
        let transcript = Transcript::of(self.codec, &encoded.request);
        let transcript = Transcript { knows_headers: true, ..transcript };
        let repaired = repair(&transcript, &self.target, Reach::Refused);
        let repaired = repaired.map_err(|error| of_codec(&error))?;
        let refused = repaired.audit.findings.iter();
        if let Some(finding) =
            refused.into_iter().find(|finding| finding.severity == Severity::Refuse)
        {
            let (endpoint, rule) = (&self.endpoint, finding.rule.id);
            let message = unsealed(&finding.message);
            return Err(other(format!("{endpoint} would refuse this: [{rule}] {message}")));
        }
        if !repaired.mended.is_empty() {
            recount(self.codec, &self.target, &mut encoded, repaired.request)
                .map_err(|error| of_codec(&error))?;
        }
        Ok(encoded)
    }

    /// Why there is no answer, by what the provider says.
    async fn refused(&self, answer: Answer) -> ModelError {
        let status = answer.status;
        let body = body(answer).await.unwrap_or_default();
        let said = message_of(&body).map(|said| format!(": {}", unsealed(&said)));
        let message = format!("{} answered {status}{}", self.endpoint, said.unwrap_or_default());
        ModelError::new(of_status(status), message)
    }

    async fn whole(&self, answer: Answer, asked: &Asked) -> Result<Reply, ModelError> {
        let body = body(answer).await?;
        self.codec.decode_reply(&body, asked).map_err(|error| of_codec(&error))
    }
}

impl Model for EndpointModel {
    fn target(&self) -> &Target {
        &self.target
    }

    fn ask(&self, call: Call) -> Asking<'_> {
        Box::pin(self.hear(call))
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

/// The headers that go out. Nothing is saved by compressing what comes in small pieces.
fn headers(encoded: &Encoded) -> Vec<(Name, Name)> {
    let mut headers = encoded.request.headers.clone();
    headers.push((Name::from("accept-encoding"), Name::from("identity")));
    headers
}

/// Whether an answer comes in one piece although a stream was asked for.
fn is_whole(answer: &Answer, framing: Framing) -> bool {
    let kind = answer.header("content-type").and_then(Framing::of_content_type);
    framing == Framing::Sse && kind.is_some_and(|kind| kind == Framing::JsonArray)
}

/// The Events of an answer that came in one piece.
fn told(reply: &Reply) -> Events {
    let events: Vec<Result<Event, ModelError>> = events_of(reply).into_iter().map(Ok).collect();
    Box::pin(futures_util::stream::iter(events))
}

async fn body(answer: Answer) -> Result<Bytes, ModelError> {
    let mut chunks = answer.body;
    let mut body = BytesMut::new();
    while let Some(chunk) = chunks.next().await {
        body.extend_from_slice(&chunk.map_err(|error| of_upstream(&error))?);
        if body.len() > LARGEST_ANSWER {
            return Err(other("the answer is larger than 256 MiB"));
        }
    }
    Ok(body.freeze())
}

/// What a provider says to a request that it does not answer.
fn message_of(body: &Bytes) -> Option<Name> {
    let tree = Tree::parse(body.clone()).ok()?;
    let root = tree.root();
    // Gemini's arrays hold the error in their first element.
    let root = root.elements().next().unwrap_or(root);
    let error = root.get("error").unwrap_or(root);
    let text = error.name_of("message").or_else(|| root.name_of("message"));
    text.or_else(|| root.name_of("error"))
}

fn other(message: impl Into<Name>) -> ModelError {
    ModelError::new(Trouble::Other, message)
}
