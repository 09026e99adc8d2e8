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
    Call(Wire),
    /// A count of the tokens in a request.
    Count(Wire),
    /// The list of models, in the shape of that wire.
    Models(Wire),
    /// One model by name, in the shape of that wire.
    Model(Wire, Name),
    /// The record of a call by its id.
    CallRecord(Name),
    /// An operation on a response by its id. The response may be stored here.
    Response(Name, ResponseOp),
    /// Any other path of that dialect, which its provider serves.
    Other(Wire),
    /// An unknown path. The error has the shape of that wire.
    Nowhere(Wire),
    /// An unknown path of the agent API. It is never forwarded to a provider.
    NoAgentPath,
}

impl GatewayRoute {
    /// The wire that determines the shape of errors.
    pub(crate) fn wire(&self) -> Wire {
        match self {
            GatewayRoute::Call(wire)
            | GatewayRoute::Count(wire)
            | GatewayRoute::Models(wire)
            | GatewayRoute::Model(wire, _)
            | GatewayRoute::Other(wire)
            | GatewayRoute::Nowhere(wire) => wire.clone(),
            GatewayRoute::CallRecord(_) | GatewayRoute::NoAgentPath => Wire::OPENAI_CHAT,
            GatewayRoute::Response(..) => Wire::OPENAI_RESPONSES,
        }
    }
}

/// An operation on a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseOp {
    Itself,
    /// The input items of its request.
    Input,
    Deletion,
}

/// Classifies a request by its method, path and headers.
pub(crate) fn classify(method: &str, request: &Request) -> GatewayRoute {
    let path = without_query(&request.path);
    let is_anthropic = request.header("anthropic-version").is_some();
    if let Some(call) = path.strip_prefix("/v1/throughline/calls/").filter(|_| method == "GET") {
        return GatewayRoute::CallRecord(Name::from(call));
    }
    if is_agent_path(path) {
        return GatewayRoute::NoAgentPath;
    }
    if let Some(door) =
        classify_response(method, path).or_else(|| classify_model(method, path, is_anthropic))
    {
        return door;
    }
    match (method, path) {
        ("POST", "/v1/messages") => GatewayRoute::Call(Wire::ANTHROPIC_MESSAGES),
        ("POST", "/v1/responses") => GatewayRoute::Call(Wire::OPENAI_RESPONSES),
        ("POST", "/v1/chat/completions") => GatewayRoute::Call(Wire::OPENAI_CHAT),
        ("POST", "/v1/messages/count_tokens") => GatewayRoute::Count(Wire::ANTHROPIC_MESSAGES),
        ("POST", "/v1/responses/input_tokens") => GatewayRoute::Count(Wire::OPENAI_RESPONSES),
        ("GET", "/v1/models") if is_anthropic => GatewayRoute::Models(Wire::ANTHROPIC_MESSAGES),
        ("GET", "/v1/models") => GatewayRoute::Models(Wire::OPENAI_CHAT),
        ("GET", "/v1beta/models") => GatewayRoute::Models(Wire::GEMINI),
        ("POST", path)
            if matches!(gemini_verb(path), Some("generateContent" | "streamGenerateContent")) =>
        {
            GatewayRoute::Call(Wire::GEMINI)
        }
        ("POST", path) if gemini_verb(path) == Some("countTokens") => {
            GatewayRoute::Count(Wire::GEMINI)
        }
        (_, path)
            if ["/v1beta/", "/upload/", "/download/"].iter().any(|own| path.starts_with(own)) =>
        {
            GatewayRoute::Other(Wire::GEMINI)
        }
        (_, path) if !path.starts_with("/v1/") => GatewayRoute::Nowhere(Wire::OPENAI_CHAT),
        (_, path) if is_anthropic || path.starts_with("/v1/messages") => {
            GatewayRoute::Other(Wire::ANTHROPIC_MESSAGES)
        }
        (_, path) if path.starts_with("/v1/responses") => {
            GatewayRoute::Other(Wire::OPENAI_RESPONSES)
        }
        (_, _) => GatewayRoute::Other(Wire::OPENAI_CHAT),
    }
}

/// First path segments under `/v1/` that only the agent API has. Letta's clients request them,
/// including some that Throughline does not implement.
const AGENT_PATHS: &[&str] = &[
    "access-tokens",
    "agents",
    "archives",
    "blocks",
    "client-side-access-tokens",
    "environments",
    "feeds",
    "folders",
    "groups",
    "health",
    "identities",
    "jobs",
    "mcp-servers",
    "passages",
    "projects",
    "providers",
    "runs",
    "sandbox-config",
    "scheduled-messages",
    "sources",
    "steps",
    "tags",
    "telemetry",
    "templates",
    "throughline",
    "tools",
    "voice-beta",
];

/// Whether a path can only belong to the agent API. Such a path is never forwarded to a provider.
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
        first => AGENT_PATHS.contains(&first) || first.starts_with("_internal"),
    }
}

/// Matches a path that names one model.
fn classify_model(method: &str, path: &str, is_anthropic: bool) -> Option<GatewayRoute> {
    if method != "GET" {
        return None;
    }
    let (name, wire) = match path.strip_prefix("/v1beta/models/") {
        Some(name) => (name, Wire::GEMINI),
        None if is_anthropic => (path.strip_prefix("/v1/models/")?, Wire::ANTHROPIC_MESSAGES),
        None => (path.strip_prefix("/v1/models/")?, Wire::OPENAI_CHAT),
    };
    (!name.is_empty()).then(|| GatewayRoute::Model(wire, decode_segment(name)))
}

/// Matches an operation on a response.
fn classify_response(method: &str, path: &str) -> Option<GatewayRoute> {
    let rest = path.strip_prefix("/v1/responses/").filter(|rest| !rest.is_empty())?;
    let (id, wanted) = match (method, rest.split_once('/')) {
        ("GET", None) => (rest, ResponseOp::Itself),
        ("DELETE", None) => (rest, ResponseOp::Deletion),
        ("GET", Some((id, "input_items"))) => (id, ResponseOp::Input),
        (_, _) => return None,
    };
    Some(GatewayRoute::Response(decode_segment(id), wanted))
}

/// The operation in a Gemini path, such as `generateContent`.
fn gemini_verb(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("/v1beta/models/").or_else(|| path.strip_prefix("/v1/models/"))?;
    rest.rsplit_once(':').map(|(_, verb)| verb)
}

/// The names that a request contains.
#[derive(Default)]
pub(crate) struct RequestNames {
    /// The model name as the client wrote it.
    pub(crate) model: Option<Name>,
    /// The end user that the client names.
    pub(crate) end_user: Option<Name>,
}

/// Extracts the model and the end user from a path and a body.
pub(crate) fn names(wire: &Wire, path: &str, body: Option<&Tree>) -> RequestNames {
    let in_path = (*wire == Wire::GEMINI).then(|| model_in_path(path)).flatten();
    let Some(root) = body.map(Tree::root) else {
        return RequestNames { model: in_path, ..RequestNames::default() };
    };
    let in_body = || if *wire == Wire::GEMINI { None } else { root.name_of("model") };
    RequestNames { model: in_path.or_else(in_body), end_user: end_user(root) }
}

fn model_in_path(path: &str) -> Option<Name> {
    let (_, rest) = without_query(path).split_once("/models/")?;
    let (model, _) = rest.rsplit_once(':')?;
    Some(decode_segment(model))
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
        let place = path
            .split_once("/models/")
            .and_then(|(lead, rest)| rest.rsplit_once(':').map(|(_, verb)| (lead, verb)));
        let Some((lead, verb)) = place else { return request };
        let path = format!("{lead}/models/{to}:{verb}{query}");
        return Request { path: path.into(), ..request };
    }
    let Ok(tree) = Tree::parse(request.body.clone()) else { return request };
    let Some(place) = tree.root().get("model").map(Node::range) else { return request };
    let (Some(before), Some(after)) =
        (request.body.get(..place.start), request.body.get(place.end..))
    else {
        return request;
    };
    let name = json::string(to);
    let body = [before, name.bytes(), after].concat();
    Request { body: Bytes::from(body), ..request }
}

/// The framing of the caller's stream.
pub(crate) fn framing(wire: &Wire, request: &Request) -> Framing {
    let query = request.path.split_once('?').map_or("", |(_, query)| query);
    if *wire == Wire::GEMINI && !query.split('&').any(|pair| pair == "alt=sse") {
        return Framing::JsonArray;
    }
    Framing::Sse
}

/// The end user that a body names.
fn end_user(root: Node<'_>) -> Option<Name> {
    let metadata = root.get("metadata").and_then(|metadata| metadata.name_of("user_id"));
    metadata.or_else(|| root.name_of("safety_identifier")).or_else(|| root.name_of("user"))
}

/// Extracts the message from a provider's error of any shape.
pub(crate) fn error_message(body: &Bytes) -> Option<String> {
    let tree = Tree::parse(body.clone()).ok()?;
    let root = tree.root();
    // Gemini's arrays contain the error in their first element.
    let root = root.elements().next().unwrap_or(root);
    let error = root.get("error").unwrap_or(root);
    let text = error.name_of("message").or_else(|| root.name_of("message"));
    text.or_else(|| root.name_of("error")).map(|text| text.to_string())
}
