//! Classifies a request by its dialect and the operation it requests.

use axum::http::HeaderMap;
use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use throughline_codec::Framing;
use throughline_core::{Request, Wire};
use throughline_json::{self as json, Name, Node, Tree};

use crate::access::Permission;
use crate::gateway::compaction::COMPACT_PATH;
use crate::gateway::headers::without_query;
use crate::gateway::models::ModelFormat;
use crate::gateway::objects::is_defined;
use crate::url::decode_segment;

/// The operation that a request selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GatewayRoute {
    /// A model call.
    Call,
    /// The preparation of a conversation without a model call. Only a WebSocket requests it.
    WarmUp,
    /// A count of the tokens in a request.
    Count,
    /// The list of models.
    Models(ModelFormat),
    /// One model by name.
    Model(ModelFormat, Name),
    /// The record of a call by its id.
    CallRecord(Name),
    /// An operation on a response by its id. The response may be stored by the gateway.
    Response(Name, ResponseOp),
    /// Any other path of the dialect, which the gateway forwards to the provider.
    Other,
    /// A path that belongs to no dialect.
    Nowhere,
    /// An unknown path of the agent API. It is never forwarded to a provider.
    NoAgentPath,
}

impl GatewayRoute {
    /// Returns the permission that a key needs for the operation.
    pub(crate) fn permission(&self) -> Permission {
        match self {
            Self::Call | Self::WarmUp | Self::Count | Self::Response(..) | Self::Other => {
                Permission::Use
            }
            Self::CallRecord(_) => Permission::Inspect,
            Self::Models(_) | Self::Model(..) | Self::Nowhere | Self::NoAgentPath => {
                Permission::Read
            }
        }
    }
}

/// An operation on a response that the client identifies by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseOp {
    Itself,
    /// The input items of the request that the response answers.
    Input,
    Deletion,
}

/// Path, wire and operation of each `POST` path that alone determines the operation.
pub(crate) static FIXED_PATHS: [(&str, Wire, GatewayRoute); 6] = [
    ("/v1/messages", Wire::ANTHROPIC_MESSAGES, GatewayRoute::Call),
    ("/v1/messages/count_tokens", Wire::ANTHROPIC_MESSAGES, GatewayRoute::Count),
    ("/v1/responses", Wire::OPENAI_RESPONSES, GatewayRoute::Call),
    (COMPACT_PATH, Wire::OPENAI_RESPONSES, GatewayRoute::Call),
    ("/v1/responses/input_tokens", Wire::OPENAI_RESPONSES, GatewayRoute::Count),
    ("/v1/chat/completions", Wire::OPENAI_CHAT, GatewayRoute::Call),
];

/// Classifies a request by its method, path and headers. The wire determines the format of list and
/// error responses.
pub(crate) fn classify(method: &str, request: &Request) -> (Wire, GatewayRoute) {
    use GatewayRoute::{Call, Count, Nowhere, Other};
    let path = without_query(&request.path);
    let mut fixed = FIXED_PATHS.iter().filter(|_| method == "POST");
    if let Some((_, wire, route)) = fixed.find(|fixed| fixed.0 == path) {
        return (wire.clone(), route.clone());
    }
    let is_anthropic = request.header("anthropic-version").is_some();
    if let Some(call) = path.strip_prefix("/v1/throughline/calls/").filter(|_| method == "GET") {
        return (Wire::OPENAI_CHAT, GatewayRoute::CallRecord(Name::from(call)));
    }
    if let Some(route) = classify_cloud_models(method, path) {
        return route;
    }
    if is_vertex_path(path) {
        return (Wire::GEMINI, Nowhere);
    }
    if is_agent_path(path) {
        return (Wire::OPENAI_CHAT, GatewayRoute::NoAgentPath);
    }
    if let Some(route) =
        classify_response(method, path).or_else(|| classify_models(method, request))
    {
        return route;
    }
    let verb = gemini_verb(path);
    let is_gemini = ["/v1beta/", "/upload/", "/download/"].iter().any(|own| path.starts_with(own));
    match (method, path) {
        ("POST", _) if matches!(verb, Some("generateContent" | "streamGenerateContent")) => {
            (Wire::GEMINI, Call)
        }
        ("POST", _) if verb == Some("countTokens") => (Wire::GEMINI, Count),
        (_, _) if is_gemini => (Wire::GEMINI, Other),
        (_, path) if !path.starts_with("/v1/") => (Wire::OPENAI_CHAT, Nowhere),
        (_, path) if is_anthropic || path.starts_with("/v1/messages") => {
            (Wire::ANTHROPIC_MESSAGES, Other)
        }
        (_, path) if path.starts_with("/v1/responses") => (Wire::OPENAI_RESPONSES, Other),
        (_, _) => (Wire::OPENAI_CHAT, Other),
    }
}

/// First path segments under `/v1/` that only the agent API uses. Letta's clients request these
/// paths, although Throughline does not implement all of them.
const AGENT_PATHS: &str = "access-tokens agents archives blocks client-side-access-tokens environments feeds \
    folders groups health identities jobs mcp-servers passages projects providers runs \
    sandbox-config scheduled-messages sources steps tags telemetry templates throughline \
    tools voice-beta";

/// Returns whether a path can only belong to the agent API. Such a path is never forwarded to a
/// provider.
fn is_agent_path(path: &str) -> bool {
    if path.starts_with("/letta/") {
        return true;
    }
    let Some(rest) = path.strip_prefix("/v1/") else { return false };
    let (first, after) = rest.split_once('/').unwrap_or((rest, ""));
    let has_letta_id = |begins: &[&str]| begins.iter().any(|begin| after.starts_with(begin));
    match first {
        "models" => after.trim_end_matches('/') == "embedding",
        "messages" => {
            matches!(after.trim_end_matches('/'), "search")
                || rest == "messages/"
                || has_letta_id(&["message-"])
        }
        "conversations" => {
            rest == "conversations/"
                || after == "default"
                || has_letta_id(&["conv-", "agent-", "default/"])
        }
        first => {
            AGENT_PATHS.split(' ').any(|known| known == first) || first.starts_with("_internal")
        }
    }
}

/// Returns the wire whose format an error for this request has. On a path that no dialect defines,
/// the header that contains the key shows the client's dialect.
pub(crate) fn error_wire(
    (wire, route): (&Wire, &GatewayRoute),
    path: &str,
    headers: &HeaderMap,
) -> Wire {
    let is_unknown = matches!(route, GatewayRoute::Other | GatewayRoute::Nowhere)
        && *wire == Wire::OPENAI_CHAT
        && !is_defined(wire, without_query(path));
    if is_unknown && headers.contains_key("x-api-key") {
        Wire::ANTHROPIC_MESSAGES
    } else if is_unknown && headers.contains_key("x-goog-api-key") {
        Wire::GEMINI
    } else {
        wire.clone()
    }
}

/// Matches the list of models and a path that names a single model. The parameter `client_version`
/// identifies Codex.
fn classify_models(method: &str, request: &Request) -> Option<(Wire, GatewayRoute)> {
    if !is_read(method) {
        return None;
    }
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    let (rest, format) = match path.strip_prefix("/v1beta/models") {
        Some(rest) => (rest, ModelFormat::Gemini),
        None => {
            let rest = path.strip_prefix("/v1/models")?;
            let is_codex = query.split('&').any(|pair| pair.starts_with("client_version="));
            let is_anthropic = request.header("anthropic-version").is_some();
            let format = match (is_anthropic, is_codex) {
                (true, _) => ModelFormat::Anthropic,
                (false, true) => ModelFormat::Codex,
                (false, false) => ModelFormat::OpenAi,
            };
            (rest, format)
        }
    };
    model_route(format, rest)
}

/// Applies the format of the provider whose clients send their key in the request's header.
pub(crate) fn with_key_format(
    (wire, route): (Wire, GatewayRoute),
    headers: &HeaderMap,
) -> (Wire, GatewayRoute) {
    let format = |format: ModelFormat| match format {
        ModelFormat::OpenAi if headers.contains_key("x-api-key") => ModelFormat::Anthropic,
        ModelFormat::OpenAi if headers.contains_key("x-goog-api-key") => ModelFormat::Gemini,
        format => format,
    };
    match route {
        GatewayRoute::Models(own) => (format(own).wire(), GatewayRoute::Models(format(own))),
        GatewayRoute::Model(own, name) => {
            (format(own).wire(), GatewayRoute::Model(format(own), name))
        }
        route => (wire, route),
    }
}

/// Returns whether a method only reads. The server sends the response to `HEAD` without its body.
fn is_read(method: &str) -> bool {
    matches!(method, "GET" | "HEAD")
}

/// Matches the model lists of Bedrock and of Vertex.
fn classify_cloud_models(method: &str, path: &str) -> Option<(Wire, GatewayRoute)> {
    if !is_read(method) {
        return None;
    }
    if let Some(rest) = path.strip_prefix("/foundation-models") {
        return model_route(ModelFormat::BedrockModels, rest);
    }
    if let Some(rest) = path.strip_prefix("/inference-profiles") {
        return model_route(ModelFormat::BedrockProfiles, rest);
    }
    let (publisher, model, None) = vertex_model(path)? else { return None };
    let model = match (publisher, model) {
        (_, "") => return model_route(ModelFormat::Vertex, ""),
        ("google", model) => format!("/{model}"),
        (publisher, model) => format!("/{publisher}/{model}"),
    };
    model_route(ModelFormat::Vertex, &model)
}

/// Returns the route of a list, or of the model that `rest` names after a slash.
fn model_route(format: ModelFormat, rest: &str) -> Option<(Wire, GatewayRoute)> {
    let wire = format.wire();
    if rest.is_empty() {
        return Some((wire, GatewayRoute::Models(format)));
    }
    let name = rest.strip_prefix('/').filter(|name| !name.is_empty())?;
    Some((wire, GatewayRoute::Model(format, decode_segment(name))))
}

/// Splits a path of Vertex into the publisher, the model, and the method after the colon. The path
/// may begin with an API version, a project and a location. The model is empty in the path of the
/// model list.
pub(crate) fn vertex_model(path: &str) -> Option<(&str, &str, Option<&str>)> {
    let rest = ["/v1/", "/v1beta1/", "/"].iter().find_map(|lead| {
        let rest = path.strip_prefix(lead)?;
        (rest.starts_with("projects/") || rest.starts_with("publishers/")).then_some(rest)
    })?;
    let rest = match rest.strip_prefix("projects/") {
        Some(rest) => {
            let (_project, rest) = rest.split_once("/locations/")?;
            rest.split_once('/')?.1
        }
        None => rest,
    };
    let (publisher, rest) = rest.strip_prefix("publishers/")?.split_once('/')?;
    let rest = rest.strip_prefix("models")?;
    let model = if rest.is_empty() { rest } else { rest.strip_prefix('/')? };
    match model.rsplit_once(':') {
        Some((model, method)) => Some((publisher, model, Some(method))),
        None => Some((publisher, model, None)),
    }
}

/// Returns whether a path names a resource of Vertex. The agent API has only the list `projects`.
fn is_vertex_path(path: &str) -> bool {
    let rest = ["/v1/", "/v1beta1/", "/"].iter().find_map(|lead| path.strip_prefix(lead));
    let (first, after) = rest.and_then(|rest| rest.split_once('/')).unwrap_or_default();
    matches!(first, "projects" | "publishers") && !after.is_empty()
}

/// Matches an operation on a response.
fn classify_response(method: &str, path: &str) -> Option<(Wire, GatewayRoute)> {
    let rest = path.strip_prefix("/v1/responses/").filter(|rest| !rest.is_empty())?;
    let (id, operation) = match (method, rest.split_once('/')) {
        ("GET", None) => (rest, ResponseOp::Itself),
        ("DELETE", None) => (rest, ResponseOp::Deletion),
        ("GET", Some((id, "input_items"))) => (id, ResponseOp::Input),
        (_, _) => return None,
    };
    Some((Wire::OPENAI_RESPONSES, GatewayRoute::Response(decode_segment(id), operation)))
}

/// Returns the operation in a Gemini path, such as `generateContent`.
fn gemini_verb(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("/v1beta/models/").or_else(|| path.strip_prefix("/v1/models/"))?;
    rest.rsplit_once(':').map(|(_, verb)| verb)
}

const CONVERSE_STREAM: &str = "converse-stream";

/// Returns the encoded model and the action in a path of Bedrock's Converse.
fn converse_segments(path: &str) -> Option<(&str, &str)> {
    without_query(path).strip_prefix("/model/")?.rsplit_once('/')
}

/// Returns the path of Bedrock's Converse for a model.
pub(crate) fn converse_path(model: &str, stream: bool) -> String {
    let action = if stream { CONVERSE_STREAM } else { "converse" };
    format!("/model/{}/{action}", encode_segment(model))
}

/// Encodes a model name as one path segment.
pub(crate) fn encode_segment(text: &str) -> String {
    const UNRESERVED: &AsciiSet =
        &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(text, UNRESERVED).to_string()
}

/// Returns the model that a request names, in its path or in its body.
pub(crate) fn requested_model(wire: &Wire, path: &str, body: Option<&Tree>) -> Option<Name> {
    if *wire == Wire::BEDROCK_CONVERSE {
        let (model, _) = converse_segments(path)?;
        return Some(decode_segment(model));
    }
    if *wire != Wire::GEMINI {
        return body?.root().name_of("model");
    }
    let (_, rest) = without_query(path).split_once("/models/")?;
    let (model, _) = rest.rsplit_once(':')?;
    Some(decode_segment(model))
}

/// Returns whether a request asks for a streamed response, in its path or in its body.
pub(crate) fn is_streamed(wire: &Wire, path: &str, body: Option<&Tree>) -> bool {
    if *wire == Wire::GEMINI {
        return gemini_verb(without_query(path)) == Some("streamGenerateContent");
    }
    if *wire == Wire::BEDROCK_CONVERSE {
        return converse_segments(path).is_some_and(|(_, action)| action == CONVERSE_STREAM);
    }
    body.and_then(|body| body.root().get("stream")).and_then(Node::bool).unwrap_or(false)
}

/// Replaces the model name and leaves every other byte unchanged.
pub(crate) fn renamed(wire: &Wire, request: Request, from: &str, to: &str) -> Request {
    if from == to {
        return request;
    }
    if *wire == Wire::BEDROCK_CONVERSE {
        let stream = is_streamed(wire, &request.path, None);
        return Request { path: converse_path(to, stream).into(), ..request };
    }
    if *wire == Wire::GEMINI {
        let (path, query) = match request.path.split_once('?') {
            Some((path, query)) => (path, format!("?{query}")),
            None => (&*request.path, String::new()),
        };
        let parts = path
            .split_once("/models/")
            .and_then(|(lead, rest)| rest.rsplit_once(':').map(|(_, verb)| (lead, verb)));
        let Some((lead, verb)) = parts else { return request };
        let path = format!("{lead}/models/{to}:{verb}{query}");
        return Request { path: path.into(), ..request };
    }
    let Ok(tree) = Tree::parse(request.body.clone()) else { return request };
    let Some(range) = tree.root().get("model").map(Node::range) else { return request };
    let (Some(before), Some(after)) =
        (request.body.get(..range.start), request.body.get(range.end..))
    else {
        return request;
    };
    let name = json::string(to);
    let body = [before, name.bytes(), after].concat();
    Request { body: Bytes::from(body), ..request }
}

/// Returns the framing that the client expects: server-sent events, Gemini's JSON array, or the
/// event stream of AWS.
pub(crate) fn framing(wire: &Wire, request: &Request) -> Framing {
    if *wire == Wire::BEDROCK_CONVERSE {
        return Framing::EventStream;
    }
    let query = request.path.split_once('?').map_or("", |(_, query)| query);
    if *wire == Wire::GEMINI && !query.split('&').any(|pair| pair == "alt=sse") {
        return Framing::JsonArray;
    }
    Framing::Sse
}

/// Returns the end user that a request body names.
pub(crate) fn end_user(body: &Tree) -> Option<Name> {
    let root = body.root();
    let metadata = root.get("metadata").and_then(|metadata| metadata.name_of("user_id"));
    metadata.or_else(|| root.name_of("safety_identifier")).or_else(|| root.name_of("user"))
}
