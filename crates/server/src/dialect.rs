//! Which of the four dialects a caller speaks, and what it wants.

use bytes::Bytes;
use throughline_codec::Framing;
use throughline_core::{Json, Name, Node, Request, Tree, Wire, json};

use crate::letta::decode_segment;

/// What a request wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// A model's answer.
    Call(Wire),
    /// The number of a request's tokens.
    Count(Wire),
    /// The list of models, in the shape of that wire.
    Models(Wire),
    /// The model of that name, in the shape of that wire.
    Model(Wire, Name),
    /// The story of the call of that name.
    Story(Name),
    /// Something of the response of that id, which may have been kept here.
    Response(Name, Wanted),
    /// Something else of that dialect, which its provider answers.
    Other(Wire),
    /// A path that nothing answers, with an error in that wire's shape.
    Nowhere(Wire),
    /// A path of the agent API that nothing answers. It never reaches a provider.
    NoAgentPath,
}

impl Door {
    /// The wire in whose shape errors are answered.
    pub(crate) fn wire(&self) -> Wire {
        match self {
            Door::Call(wire)
            | Door::Count(wire)
            | Door::Models(wire)
            | Door::Model(wire, _)
            | Door::Other(wire)
            | Door::Nowhere(wire) => wire.clone(),
            Door::Story(_) | Door::NoAgentPath => Wire::OPENAI_CHAT,
            Door::Response(..) => Wire::OPENAI_RESPONSES,
        }
    }
}

/// What is wanted of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Itself,
    /// What it was asked with.
    Input,
    /// That it be no more.
    Deletion,
}

/// What a request wants, by its method, its path and its headers.
pub(crate) fn door(method: &str, request: &Request) -> Door {
    let path = request.path.split('?').next().unwrap_or_default();
    let is_anthropic = request.header("anthropic-version").is_some();
    if let Some(call) = path.strip_prefix("/v1/throughline/calls/").filter(|_| method == "GET") {
        return Door::Story(Name::from(call));
    }
    if is_agent_path(path) {
        return Door::NoAgentPath;
    }
    if let Some(door) =
        response_door(method, path).or_else(|| model_door(method, path, is_anthropic))
    {
        return door;
    }
    match (method, path) {
        ("POST", "/v1/messages") => Door::Call(Wire::ANTHROPIC_MESSAGES),
        ("POST", "/v1/responses") => Door::Call(Wire::OPENAI_RESPONSES),
        ("POST", "/v1/chat/completions") => Door::Call(Wire::OPENAI_CHAT),
        ("POST", "/v1/messages/count_tokens") => Door::Count(Wire::ANTHROPIC_MESSAGES),
        ("POST", "/v1/responses/input_tokens") => Door::Count(Wire::OPENAI_RESPONSES),
        ("GET", "/v1/models") if is_anthropic => Door::Models(Wire::ANTHROPIC_MESSAGES),
        ("GET", "/v1/models") => Door::Models(Wire::OPENAI_CHAT),
        ("GET", "/v1beta/models") => Door::Models(Wire::GEMINI),
        ("POST", path)
            if matches!(gemini_verb(path), Some("generateContent" | "streamGenerateContent")) =>
        {
            Door::Call(Wire::GEMINI)
        }
        ("POST", path) if gemini_verb(path) == Some("countTokens") => Door::Count(Wire::GEMINI),
        (_, path)
            if ["/v1beta/", "/upload/", "/download/"].iter().any(|own| path.starts_with(own)) =>
        {
            Door::Other(Wire::GEMINI)
        }
        (_, path) if !path.starts_with("/v1/") => Door::Nowhere(Wire::OPENAI_CHAT),
        (_, path) if is_anthropic || path.starts_with("/v1/messages") => {
            Door::Other(Wire::ANTHROPIC_MESSAGES)
        }
        (_, path) if path.starts_with("/v1/responses") => Door::Other(Wire::OPENAI_RESPONSES),
        (_, _) => Door::Other(Wire::OPENAI_CHAT),
    }
}

/// The first segments under `/v1/` that only the agent API has. Letta's clients ask for them, whether or not we answer.
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

/// Whether only the agent API can have a path. Such a path is never forwarded to a provider.
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

/// The model that a path names.
fn model_door(method: &str, path: &str, is_anthropic: bool) -> Option<Door> {
    if method != "GET" {
        return None;
    }
    let (name, wire) = match path.strip_prefix("/v1beta/models/") {
        Some(name) => (name, Wire::GEMINI),
        None if is_anthropic => (path.strip_prefix("/v1/models/")?, Wire::ANTHROPIC_MESSAGES),
        None => (path.strip_prefix("/v1/models/")?, Wire::OPENAI_CHAT),
    };
    (!name.is_empty()).then(|| Door::Model(wire, decode_segment(name)))
}

/// What is asked of a response by its id.
fn response_door(method: &str, path: &str) -> Option<Door> {
    let rest = path.strip_prefix("/v1/responses/").filter(|rest| !rest.is_empty())?;
    let (id, wanted) = match (method, rest.split_once('/')) {
        ("GET", None) => (rest, Wanted::Itself),
        ("DELETE", None) => (rest, Wanted::Deletion),
        ("GET", Some((id, "input_items"))) => (id, Wanted::Input),
        (_, _) => return None,
    };
    Some(Door::Response(decode_segment(id), wanted))
}

/// What Gemini's path asks a model for, as `generateContent`.
fn gemini_verb(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("/v1beta/models/").or_else(|| path.strip_prefix("/v1/models/"))?;
    rest.rsplit_once(':').map(|(_, verb)| verb)
}

/// Whom a request names.
#[derive(Default)]
pub(crate) struct Names {
    /// The model, as the caller wrote it.
    pub(crate) model: Option<Name>,
    /// Whom the caller says that it asks for.
    pub(crate) end_user: Option<Name>,
}

/// Whom a request of that path and that body names.
pub(crate) fn names(wire: &Wire, path: &str, body: Option<&Tree>) -> Names {
    let in_path = (*wire == Wire::GEMINI).then(|| model_in_path(path)).flatten();
    let Some(root) = body.map(Tree::root) else {
        return Names { model: in_path, ..Names::default() };
    };
    let in_body = || if *wire == Wire::GEMINI { None } else { root.name_of("model") };
    Names { model: in_path.or_else(in_body), end_user: end_user(root) }
}

fn model_in_path(path: &str) -> Option<Name> {
    let (_, rest) = path.split('?').next()?.split_once("/models/")?;
    let (model, _) = rest.rsplit_once(':')?;
    Some(decode_segment(model))
}

/// The same request for the model of another name. Everything else stays as it is, byte for byte.
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

/// Whether the caller wants its answer streamed, and how that stream is framed.
pub(crate) fn framing(wire: &Wire, request: &Request) -> Framing {
    let query = request.path.split_once('?').map_or("", |(_, query)| query);
    if *wire == Wire::GEMINI && !query.split('&').any(|pair| pair == "alt=sse") {
        return Framing::JsonArray;
    }
    Framing::Sse
}

/// Whom the caller says that it asks for.
fn end_user(root: Node<'_>) -> Option<Name> {
    let metadata = root.get("metadata").and_then(|metadata| metadata.name_of("user_id"));
    metadata.or_else(|| root.name_of("safety_identifier")).or_else(|| root.name_of("user"))
}

/// An error in the words of a dialect.
pub(crate) fn error(wire: &Wire, status: u16, message: &str) -> Json {
    coded_error(wire, status, message, None)
}

/// An error that says which member is to blame, and has a word of its own, where the dialect tells such.
pub(crate) fn coded_error(
    wire: &Wire,
    status: u16,
    message: &str,
    code: Option<(&str, &str)>,
) -> Json {
    let kind = kind_of(status);
    json::object(|o| match wire.as_str() {
        "anthropic-messages" => {
            o.string("type", "error").object("error", |error| {
                error.string("type", kind).string("message", message);
            });
        }
        "gemini" => {
            o.object("error", |error| {
                error.number("code", status.into());
                error.string("message", message).string("status", gemini_status(status));
            });
        }
        _ => {
            // OpenAI's errors with a code are all of this type.
            let kind = if code.is_some() { "invalid_request_error" } else { kind };
            o.object("error", |error| {
                error.string("message", message).string("type", kind);
                match code {
                    Some((param, code)) => error.string("param", param).string("code", code),
                    None => error.null("param").null("code"),
                };
            });
        }
    })
}

fn kind_of(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

fn gemini_status(status: u16) -> &'static str {
    match status {
        400 | 413 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 | 529 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        _ => "INTERNAL",
    }
}

/// The sentence of a provider's error, whatever its shape.
pub(crate) fn message_of(body: &Bytes) -> Option<String> {
    let tree = Tree::parse(body.clone()).ok()?;
    let root = tree.root();
    // Gemini's arrays hold the error in their first element.
    let root = root.elements().next().unwrap_or(root);
    let error = root.get("error").unwrap_or(root);
    let text = error.name_of("message").or_else(|| root.name_of("message"));
    text.or_else(|| root.name_of("error")).map(|text| text.to_string())
}
