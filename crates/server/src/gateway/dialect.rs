//! Classifies a request by its dialect and the operation it requests.

use bytes::Bytes;
use throughline_codec::Framing;
use throughline_core::{Request, Wire};
use throughline_json::{self as json, Name, Node, Tree};

use crate::gateway::headers::without_query;
use crate::url::decode_segment;

/// The operation that a request selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GatewayRoute {
    /// A model call.
    Call,
    /// A count of the tokens in a request.
    Count,
    /// The list of models.
    Models,
    /// One model by name.
    Model(Name),
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

/// An operation on a response that the client identifies by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseOp {
    Itself,
    /// The input items of the request that the response answers.
    Input,
    Deletion,
}

/// Path, wire and operation of each `POST` path that alone determines the operation.
pub(crate) static FIXED_PATHS: [(&str, Wire, GatewayRoute); 5] = [
    ("/v1/messages", Wire::ANTHROPIC_MESSAGES, GatewayRoute::Call),
    ("/v1/messages/count_tokens", Wire::ANTHROPIC_MESSAGES, GatewayRoute::Count),
    ("/v1/responses", Wire::OPENAI_RESPONSES, GatewayRoute::Call),
    ("/v1/responses/input_tokens", Wire::OPENAI_RESPONSES, GatewayRoute::Count),
    ("/v1/chat/completions", Wire::OPENAI_CHAT, GatewayRoute::Call),
];

/// Classifies a request by its method, path and headers. The wire determines the format of list and
/// error responses.
pub(crate) fn classify(method: &str, request: &Request) -> (Wire, GatewayRoute) {
    use GatewayRoute::{Call, Count, Models, Nowhere, Other};
    let path = without_query(&request.path);
    let mut fixed = FIXED_PATHS.iter().filter(|_| method == "POST");
    if let Some((_, wire, route)) = fixed.find(|fixed| fixed.0 == path) {
        return (wire.clone(), route.clone());
    }
    let is_anthropic = request.header("anthropic-version").is_some();
    if let Some(call) = path.strip_prefix("/v1/throughline/calls/").filter(|_| method == "GET") {
        return (Wire::OPENAI_CHAT, GatewayRoute::CallRecord(Name::from(call)));
    }
    if is_agent_path(path) {
        return (Wire::OPENAI_CHAT, GatewayRoute::NoAgentPath);
    }
    if let Some(route) =
        classify_response(method, path).or_else(|| classify_model(method, path, is_anthropic))
    {
        return route;
    }
    let verb = gemini_verb(path);
    let is_gemini = ["/v1beta/", "/upload/", "/download/"].iter().any(|own| path.starts_with(own));
    match (method, path) {
        ("GET", "/v1/models") if is_anthropic => (Wire::ANTHROPIC_MESSAGES, Models),
        ("GET", "/v1/models") => (Wire::OPENAI_CHAT, Models),
        ("GET", "/v1beta/models") => (Wire::GEMINI, Models),
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

/// Matches a path that names a single model.
fn classify_model(method: &str, path: &str, is_anthropic: bool) -> Option<(Wire, GatewayRoute)> {
    if method != "GET" {
        return None;
    }
    let (name, wire) = match path.strip_prefix("/v1beta/models/") {
        Some(name) => (name, Wire::GEMINI),
        None if is_anthropic => (path.strip_prefix("/v1/models/")?, Wire::ANTHROPIC_MESSAGES),
        None => (path.strip_prefix("/v1/models/")?, Wire::OPENAI_CHAT),
    };
    (!name.is_empty()).then(|| (wire, GatewayRoute::Model(decode_segment(name))))
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

/// Returns the model that a request names, in its path or in its body.
pub(crate) fn requested_model(wire: &Wire, path: &str, body: Option<&Tree>) -> Option<Name> {
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
    body.and_then(|body| body.root().get("stream")).and_then(Node::bool).unwrap_or(false)
}

/// Replaces the model name and leaves every other byte unchanged.
pub(crate) fn renamed(wire: &Wire, request: Request, from: &str, to: &str) -> Request {
    if from == to {
        return request;
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

/// Returns the framing that the client expects: server-sent events, or Gemini's JSON array.
pub(crate) fn framing(wire: &Wire, request: &Request) -> Framing {
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
