//! Requests on the paths of Amazon Bedrock and Vertex AI.
//!
//! Clients that are configured for one of these clouds can send their requests to the gateway. The
//! paths name the model. `Converse` is a dialect of its own. The other operations wrap a dialect
//! that the gateway serves: `InvokeModel` and `rawPredict` wrap Anthropic's Messages, and
//! `generateContent` on Vertex is Gemini's. The gateway removes the wrapping from the request, and
//! adds it to the response.

mod invoke_stream;
mod names;

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use throughline_codec::{add_beta, error_message};
use throughline_core::{Request, Wire};
use throughline_json::{self as json, Name, Node, Tree};
use throughline_replay::ParsedBody;

use self::invoke_stream::to_event_stream;
use self::names::resolve_name;
use crate::error::{GatewayError, GatewayResult};
use crate::gateway::count::COUNTED_MESSAGES;
use crate::gateway::dialect::{self, GatewayRoute, vertex_model};
use crate::gateway::headers::without_query;
use crate::gateway::{Gateway, limited_tree};
use crate::object::{object, put_members};
use crate::response::{GatewayResponse, ResponseBody};
use crate::url::decode_segment;

/// The API version of Anthropic's Messages, which the clouds name in the body.
const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

/// Headers that apply only to the cloud itself. Responses must arrive uncompressed, because the
/// gateway wraps them.
const CLOUD_HEADERS: &[&str] = &["accept", "accept-encoding", "x-goog-user-project"];
const BEDROCK_HEADERS: &str = "x-amzn-bedrock-";

/// Headers that select a guardrail for `InvokeModel`.
const GUARDRAIL_HEADERS: &str = "x-amzn-bedrock-guardrail";

/// A request on a path of Amazon Bedrock or Vertex AI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CloudRequest {
    operation: CloudOperation,
    /// The model in the path, as the client wrote it.
    model: Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CloudOperation {
    /// Bedrock's `InvokeModel` and `InvokeModelWithResponseStream`.
    Invoke { stream: bool },
    /// Bedrock's `Converse` and `ConverseStream`.
    Converse { stream: bool },
    /// Bedrock's `CountTokens`.
    BedrockCount,
    /// Vertex's `rawPredict` and `streamRawPredict`.
    RawPredict { stream: bool },
    /// Vertex's `count-tokens:rawPredict`, whose body names the model.
    VertexCount,
    /// Vertex's `generateContent`, `streamGenerateContent` and `countTokens`.
    Gemini(&'static str),
}

use CloudOperation::{BedrockCount, Converse, Gemini, Invoke, RawPredict, VertexCount};

/// A request without the wrapping of its cloud, with its parsed body.
pub(crate) struct UnwrappedRequest {
    pub(crate) wire: Wire,
    pub(crate) request: Request,
    pub(crate) body: Option<ParsedBody>,
}

impl CloudRequest {
    /// Recognises a path of a cloud.
    pub(crate) fn parse(method: &str, path: &str) -> Option<Self> {
        let path = without_query(path);
        if method != "POST" {
            return None;
        }
        parse_bedrock(path).or_else(|| parse_vertex(path))
    }

    /// Returns the dialect inside the wrapping, and the requested operation.
    pub(crate) fn classify(&self) -> (Wire, GatewayRoute) {
        match self.operation {
            Invoke { .. } | RawPredict { .. } => (Wire::ANTHROPIC_MESSAGES, GatewayRoute::Call),
            BedrockCount | VertexCount => (Wire::ANTHROPIC_MESSAGES, GatewayRoute::Count),
            Converse { .. } => (Wire::BEDROCK_CONVERSE, GatewayRoute::Call),
            Gemini("countTokens") => (Wire::GEMINI, GatewayRoute::Count),
            Gemini(_) => (Wire::GEMINI, GatewayRoute::Call),
        }
    }

    /// Returns the wire whose error format the cloud uses.
    pub(crate) fn error_wire(&self) -> Wire {
        if self.is_bedrock() { Wire::BEDROCK_CONVERSE } else { Wire::GEMINI }
    }

    fn is_bedrock(&self) -> bool {
        match self.operation {
            Invoke { .. } | Converse { .. } | BedrockCount => true,
            RawPredict { .. } | VertexCount | Gemini(_) => false,
        }
    }

    /// Explains a refused request. A signature cannot replace a key, because the gateway does not
    /// know the secret that signed the request.
    pub(crate) fn explain_refusal(
        &self,
        headers: &HeaderMap,
        problem: GatewayError,
    ) -> GatewayError {
        let authorization = headers.get("authorization").and_then(|value| value.to_str().ok());
        let is_signed = authorization.is_some_and(|value| value.starts_with("AWS4-"));
        if problem.status != 401 || !self.is_bedrock() || !is_signed {
            return problem;
        }
        let message = "this gateway requires an API key and cannot verify an AWS signature (SigV4): \
                       set AWS_BEARER_TOKEN_BEDROCK to a gateway key, which `throughline keys \
                       create` prints";
        GatewayError { message: message.to_owned(), ..problem }
    }

    /// Removes the wrapping from a request.
    pub(crate) fn unwrap(
        &self,
        gateway: &Gateway,
        mut request: Request,
        body: Option<ParsedBody>,
    ) -> GatewayResult<UnwrappedRequest> {
        let (wire, _) = self.classify();
        if let Invoke { .. } = self.operation {
            refuse_guardrail(&request)?;
        }
        request.headers.retain(|(name, _)| {
            !CLOUD_HEADERS.contains(&&**name) && !name.starts_with(BEDROCK_HEADERS)
        });
        let query = request.path.split_once('?').map(|(_, query)| format!("?{query}"));
        let query = query.unwrap_or_default();
        match self.operation {
            Converse { stream } => {
                let model = resolve_name(gateway, &self.model);
                request.path = dialect::converse_path(&model, stream).into();
                Ok(UnwrappedRequest { wire, request, body })
            }
            Gemini(verb) => {
                let model = dialect::encode_segment(&self.model);
                request.path = format!("/v1beta/models/{model}:{verb}{query}").into();
                Ok(UnwrappedRequest { wire, request, body })
            }
            Invoke { stream } => {
                let tree = parsed(body)?;
                if tree.root().get("anthropic_version").is_none() {
                    let message = "InvokeModel accepts only the body of Anthropic's Messages API, \
                                   with `anthropic_version`: add \"anthropic_version\": \
                                   \"bedrock-2023-05-31\", or use Converse";
                    return Err(GatewayError::new(400, message));
                }
                let model = resolve_name(gateway, &self.model);
                messages(gateway, request, &tree, &model, Some(stream), None)
            }
            RawPredict { stream } => {
                let tree = parsed(body)?;
                let own = tree.root().get("stream").and_then(Node::bool);
                let model = resolve_name(gateway, &self.model);
                messages(gateway, request, &tree, &model, Some(stream || own == Some(true)), None)
            }
            VertexCount => {
                let tree = parsed(body)?;
                let model = tree.root().name_of("model").ok_or_else(|| {
                    GatewayError::new(400, "the request does not specify a model")
                })?;
                let model = resolve_name(gateway, &model);
                messages(gateway, request, &tree, &model, None, Some(COUNTED_MESSAGES))
            }
            BedrockCount => self.unwrap_count(gateway, request, &parsed(body)?),
        }
    }

    /// Removes the wrapping of `CountTokens`: `{"input": {"invokeModel": {"body": BASE64}}}`, or
    /// `{"input": {"converse": {…}}}`.
    fn unwrap_count(
        &self,
        gateway: &Gateway,
        mut request: Request,
        tree: &Tree,
    ) -> GatewayResult<UnwrappedRequest> {
        let model = resolve_name(gateway, &self.model);
        if let Some(converse) = tree.root().at("/input/converse") {
            request.path = dialect::converse_path(&model, false).into();
            request.body = converse.json().bytes().clone();
            let body = limited(gateway, &request.body)?;
            return Ok(UnwrappedRequest { wire: Wire::BEDROCK_CONVERSE, request, body });
        }
        let body = tree.root().at("/input/invokeModel/body").and_then(Node::name);
        let body =
            body.and_then(|body| STANDARD.decode(body.as_bytes()).ok()).ok_or_else(|| {
                let message = "CountTokens needs `input.converse`, or `input.invokeModel.body` as \
                           base64";
                GatewayError::new(400, message)
            })?;
        let inner = parsed(limited(gateway, &Bytes::from(body))?)?;
        messages(gateway, request, &inner, &model, None, Some(COUNTED_MESSAGES))
    }

    /// Adds the cloud's wrapping to a response.
    pub(crate) fn wrap(&self, mut response: GatewayResponse) -> GatewayResponse {
        if response.status >= 400 {
            return self.wrap_error(response);
        }
        match self.operation {
            Converse { .. } | RawPredict { .. } | VertexCount | Gemini(_) => response,
            Invoke { .. } => {
                let ResponseBody::Stream(stream) = response.body else { return response };
                response.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("content-type"));
                response.body = ResponseBody::Stream(to_event_stream(stream));
                response
                    .with_header("content-type", "application/vnd.amazon.eventstream")
                    .with_header("x-amzn-bedrock-content-type", "application/json")
            }
            BedrockCount => {
                let ResponseBody::Whole(body) = &response.body else { return response };
                let tree = Tree::parse(body.clone()).ok();
                let count = tree.as_ref().and_then(|tree| tree.root().get("input_tokens"));
                let Some(count) = count.and_then(Node::u64) else { return response };
                let body = object! { "inputTokens": count };
                response.body = ResponseBody::Whole(body.bytes().clone());
                response
            }
        }
    }

    /// Converts an error to the cloud's format, unless the cloud itself returned the error.
    fn wrap_error(&self, response: GatewayResponse) -> GatewayResponse {
        const TYPE: &str = "x-amzn-errortype";
        let is_own = response.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(TYPE));
        let is_kept = match self.operation {
            Invoke { .. } | Converse { .. } | BedrockCount => is_own,
            // Vertex returns the errors of Anthropic's models in Anthropic's format.
            RawPredict { .. } | VertexCount => !matches!(response.status, 401 | 403 | 404 | 429),
            Gemini(_) => true,
        };
        let ResponseBody::Whole(body) = &response.body else { return response };
        let message = error_message(body).filter(|_| !is_kept);
        let Some(message) = message else { return response };
        let mut wrapped =
            GatewayError::new(response.status, message).to_response(&self.error_wire());
        let is_of_body = |name: &str| name.eq_ignore_ascii_case("content-type");
        let rest = response.headers.into_iter().filter(|(name, _)| !is_of_body(name));
        wrapped.headers.extend(rest);
        wrapped
    }
}

/// Recognises `/model/{id}/{action}`.
fn parse_bedrock(path: &str) -> Option<CloudRequest> {
    // An encoded model id contains no slash, but a client may send an ARN without encoding.
    let (model, action) = path.strip_prefix("/model/")?.rsplit_once('/')?;
    let operation = match action {
        "invoke" => Invoke { stream: false },
        "invoke-with-response-stream" => Invoke { stream: true },
        "converse" => Converse { stream: false },
        "converse-stream" => Converse { stream: true },
        "count-tokens" => BedrockCount,
        _ => return None,
    };
    (!model.is_empty()).then(|| CloudRequest { operation, model: decode_segment(model) })
}

/// Recognises `publishers/{publisher}/models/{model}:{method}`, with or without a project, a
/// location and an API version.
fn parse_vertex(path: &str) -> Option<CloudRequest> {
    let (publisher, model, method) = vertex_model(path)?;
    let operation = match method? {
        "rawPredict" if model == "count-tokens" => VertexCount,
        "rawPredict" => RawPredict { stream: false },
        "streamRawPredict" => RawPredict { stream: true },
        "generateContent" => Gemini("generateContent"),
        "streamGenerateContent" => Gemini("streamGenerateContent"),
        "countTokens" => Gemini("countTokens"),
        _ => return None,
    };
    let is_own = match operation {
        RawPredict { .. } => publisher == "anthropic",
        Gemini(_) => publisher == "google",
        VertexCount | Invoke { .. } | Converse { .. } | BedrockCount => true,
    };
    let model = decode_segment(model);
    // Google's client writes `NAME/model` as a model of the publisher NAME.
    let model = if is_own { model } else { format!("{publisher}/{model}").into() };
    Some(CloudRequest { operation, model })
}

/// Refuses a guardrail, because only Bedrock could apply it.
fn refuse_guardrail(request: &Request) -> GatewayResult<()> {
    let mut names = request.headers.iter().map(|(name, _)| name);
    if names.any(|name| name.starts_with(GUARDRAIL_HEADERS)) {
        let message = "the gateway cannot apply a guardrail to InvokeModel: remove the guardrail, \
                       or use Converse with `guardrailConfig` and a model of Bedrock";
        return Err(GatewayError::new(400, message));
    }
    Ok(())
}

fn parsed(body: Option<ParsedBody>) -> GatewayResult<Tree> {
    let body = body.map(|body| body.tree).filter(|body| body.root().is_object());
    body.ok_or_else(|| GatewayError::new(400, "the body is not a JSON object"))
}

fn limited(gateway: &Gateway, body: &Bytes) -> GatewayResult<Option<ParsedBody>> {
    let tree = limited_tree(body, gateway.depth_limit, &gateway.operations.limits.sizes)?;
    Ok(tree.map(ParsedBody::new))
}

/// Writes a body as a request to Anthropic's Messages API: the model and the streaming mode move
/// from the path to the body, and the API version and the betas move from the body to the headers.
/// With `members`, the body keeps only these members, because it is sent to the counting endpoint.
fn messages(
    gateway: &Gateway,
    mut request: Request,
    tree: &Tree,
    model: &str,
    stream: Option<bool>,
    members: Option<&[&str]>,
) -> GatewayResult<UnwrappedRequest> {
    let root = tree.root();
    let betas = root.get("anthropic_beta").into_iter().flat_map(Node::elements);
    for beta in betas.filter_map(Node::name) {
        add_beta(&mut request.headers, &beta);
    }
    if request.header(VERSION.0).is_none() {
        request.headers.push((Name::from(VERSION.0), Name::from(VERSION.1)));
    }
    let is_kept = |name: Node<'_>| {
        let moved = ["model", "stream", "anthropic_version", "anthropic_beta"];
        !moved.iter().any(|moved| name.is(moved))
            && members.is_none_or(|members| members.iter().any(|member| name.is(member)))
    };
    let body = json::object(|o| {
        o.string("model", model);
        if stream == Some(true) {
            o.bool("stream", true);
        }
        put_members(o, root.members().filter(|(name, _)| is_kept(*name)));
    });
    request.body = body.bytes().clone();
    let path = if stream.is_some() { "/v1/messages" } else { "/v1/messages/count_tokens" };
    request.path = Name::from(path);
    let body = limited(gateway, &request.body)?;
    Ok(UnwrappedRequest { wire: Wire::ANTHROPIC_MESSAGES, request, body })
}

#[cfg(test)]
#[path = "cloud_tests.rs"]
mod tests;
