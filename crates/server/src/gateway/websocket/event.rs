//! Builds the error events that a WebSocket sends.

use bytes::Bytes;
use throughline_core::Wire;
use throughline_json::{self as json, Json, Name, Node, Tree};

use crate::error::GatewayError;
use crate::gateway::answer::is_gateway_header;
use crate::object::object;

/// The header that states when to send a request again. An error event repeats this header.
const RETRY_AFTER: &str = "retry-after";

/// The code of the error for an unknown `previous_response_id`. On a WebSocket, OpenAI reports it
/// with status 400.
const PREVIOUS_NOT_FOUND: &str = "previous_response_not_found";

/// Returns the error event for an error of the gateway.
pub(super) fn from_problem(problem: &GatewayError) -> Json {
    let response = problem.to_response(&Wire::OPENAI_RESPONSES);
    let body = problem.to_json(&Wire::OPENAI_RESPONSES);
    from_response(problem.status, &response.headers, body.bytes())
}

/// Returns the error event for an error response.
pub(super) fn from_response(status: u16, headers: &[(Name, Name)], body: &Bytes) -> Json {
    let body = Tree::parse(body.clone()).ok();
    let error = body.as_ref().and_then(|body| body.root().get("error"));
    let error = error.filter(|error| error.is_object()).map(Node::json);
    let error = error.unwrap_or_else(|| {
        let message = format!("the provider answered with status {status}");
        object! { "type": "api_error", "message": message, "param": None::<&str>, "code": None::<&str> }
    });
    let error = error.tree();
    let error = error.root();
    let is_unknown_response = error.get("code").is_some_and(|code| code.is(PREVIOUS_NOT_FOUND));
    let status = if is_unknown_response { 400 } else { status };
    let is_reported =
        |name: &str| is_gateway_header(name) || name.eq_ignore_ascii_case(RETRY_AFTER);
    let headers: Vec<_> = headers.iter().filter(|(name, _)| is_reported(name)).collect();
    let put_headers = |o: &mut json::Object<'_>| put_headers(o, headers.iter().copied());
    json::object(|o| {
        o.string("type", "error").number("status", status.into());
        o.object("error", |o| {
            o.nodes(error.members().filter(|(name, _)| !name.is("headers")));
            if error.get("type").is_none() {
                o.string("type", "api_error");
            }
            put_headers(o);
        });
        // Codex reads the headers here, and OpenAI's clients read them in `error`.
        put_headers(o);
    })
}

/// Adds the headers of the gateway to the first event of a response. Over HTTP, the response has
/// these headers.
pub(super) fn with_headers(event: Node<'_>, headers: &[(Name, Name)]) -> Json {
    json::object(|o| {
        o.nodes(event.members());
        put_headers(o, headers.iter().filter(|(name, _)| is_gateway_header(name)));
    })
}

fn put_headers<'h>(o: &mut json::Object<'_>, headers: impl Iterator<Item = &'h (Name, Name)>) {
    let mut headers = headers.peekable();
    if headers.peek().is_some() {
        o.object("headers", |o| {
            for (name, value) in headers {
                o.string(name, value);
            }
        });
    }
}

/// Converts an error event of a stream of server-sent events, whose members are at the top level.
pub(super) fn from_stream_event(event: Node<'_>) -> Json {
    if event.get("error").is_some_and(Node::is_object) {
        return event.json();
    }
    let is_rate_limit = event.get("code").is_some_and(|code| code.is("rate_limit_exceeded"));
    json::object(|o| {
        o.string("type", "error").number("status", if is_rate_limit { 429 } else { 502 });
        o.object("error", |o| {
            o.string("type", "server_error");
            for name in ["code", "message", "param"] {
                match event.get(name) {
                    Some(value) => o.node(name, value),
                    None => o.null(name),
                };
            }
        });
        o.maybe("sequence_number", event.get("sequence_number"));
    })
}
