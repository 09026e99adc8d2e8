//! Counts the tokens of a request, in the caller's dialect.
//!
//! The request is prepared like a call, with its lost reasoning restored, and its provider counts
//! the tokens. If the wire has no counting endpoint, the count is estimated. The header
//! `x-throughline-count` of the response is `counted` or `estimated`.

use bytes::Bytes;
use throughline_core::{Request, UpstreamRequest as Sent, UpstreamResponse, Wire};
use throughline_json::{self as json, Json, Name, Node, Tree};

use crate::error::GatewayError;
use crate::gateway::answer::{is_forwarded_header, whole};
use crate::gateway::dialect;
use crate::gateway::exchange::{Exchange, codec_for};
use crate::gateway::headers::without_query;
use crate::gateway::prepare::DecodedRequest;
use crate::response::{GatewayResponse, ResponseBody};

/// Bytes per token of an estimate.
const BYTES_OF_A_TOKEN: u64 = 4;

/// The member in which Gemini's clients may wrap the request to count.
const WRAPPER_MEMBER: &str = "generateContentRequest";

/// The members that Anthropic and OpenAI accept in a request to count; they refuse others.
const COUNTED_MESSAGES: &[&str] = &[
    "model",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "cache_control",
    "context_management",
    "mcp_servers",
];
const COUNTED_RESPONSES: &[&str] = &[
    "model",
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning",
    "text",
    "truncation",
    "previous_response_id",
    "conversation",
];

impl Exchange<'_> {
    /// Counts the tokens of a request.
    pub(crate) async fn count(&self, request: Request) -> Result<GatewayResponse, GatewayError> {
        let body = self.body.as_ref();
        let (asked, end_user) = self.named(&request, body)?;
        let all = self.reach(&asked)?;
        let no_provider = || GatewayError::new(404, format!("no provider serves model {asked}"));
        let reached = all.into_iter().next().ok_or_else(no_provider)?;
        let resumed = self.find_previous(&request, body, end_user.as_deref()).await?;
        let unfolded = resumed.request_for(&reached.provider.wire)?.map(|(_, whole)| whole.clone());
        let request = Request { body: unfolded.unwrap_or_else(|| request.body.clone()), ..request };
        let renamed = dialect::renamed(&self.wire, request, &asked, &reached.model);
        let references = self.resolve_references(&renamed, body, &reached, end_user.as_deref());
        let renamed = references.await?.map_or(renamed, |references| references.for_target);
        let (inner, is_wrapped) = unwrap_request(&renamed);
        let preparing = async {
            let DecodedRequest { call, target, tenant } = self.decode(&inner, body, &reached)?;
            let to = codec_for(&target.origin.wire)?;
            let found = self.restore_and_encode(to, call, end_user.as_deref(), &tenant).await?;
            let issued = found.replayed.as_ref().map(|replayed| &replayed.issued);
            let checked = self.audit_and_repair(to, found.encoded, body, &target, issued)?;
            Ok::<_, GatewayError>((target, to, checked.encoded.request))
        };
        let heavy = &self.gateway.operations.heavy;
        let prepared = heavy.run(&self.caller, inner.body.len(), Box::pin(preparing)).await?;
        let (target, to, ready) = prepared?;
        self.scope.release_preparation_memory();
        let wire = &target.origin.wire;
        let estimate = u64::try_from(ready.body.len()).unwrap_or(u64::MAX) / BYTES_OF_A_TOKEN;
        let Some(path) = counting(wire, &to.path(&target, false)) else {
            return Ok(told(&self.wire, estimate.max(1), "estimated"));
        };
        let is_same = *wire == self.wire;
        let body = match (is_same, is_wrapped) {
            (true, _) if ready.body == inner.body => renamed.body.clone(),
            (true, true) => wrap_request(&ready.body, None),
            (true, false) | (false, _) => countable_body(wire, &ready.body, target.model()),
        };
        self.check_body_ownership(&target.origin, &body, None).await?;
        self.scope.record().provider = Some(reached.account.clone());
        let sent = Sent {
            endpoint: reached.endpoint.clone(),
            model: Some(reached.model.clone()),
            method: "POST".into(),
            path: path.into(),
            headers: ready.headers,
            body,
            credential: self.caller.credential.clone(),
        };
        let answer = self.gateway.upstream.send(sent).await;
        let answer = answer.map_err(|error| self.record_upstream_error(&error))?;
        self.scope.record_first_byte();
        match answer.status {
            // Not every provider of a wire has a counting endpoint.
            404 | 405 | 501 => Ok(told(&self.wire, estimate.max(1), "estimated")),
            _ if is_same => passed(answer).await,
            status => {
                let body = whole(answer).await?;
                let unnamed = || format!("{} answered {status}", reached.endpoint);
                if status >= 400 {
                    let message = dialect::error_message(&body).unwrap_or_else(unnamed);
                    return Err(GatewayError::new(status, message));
                }
                let tokens =
                    read_token_count(&body).ok_or_else(|| GatewayError::new(502, unnamed()))?;
                Ok(told(&self.wire, tokens, "counted"))
            }
        }
    }
}

/// Returns the request to count, and whether it was wrapped in another, as Gemini's clients may do.
fn unwrap_request(request: &Request) -> (Request, bool) {
    let tree = Tree::parse(request.body.clone()).ok();
    let inner = tree.as_ref().and_then(|tree| tree.root().get(WRAPPER_MEMBER)).map(Node::json);
    match inner {
        Some(inner) => (Request { body: inner.bytes().clone(), ..request.clone() }, true),
        None => (request.clone(), false),
    }
}

/// Wraps a Gemini request for counting, and adds the model's name if one is given.
fn wrap_request(body: &Bytes, model: Option<&str>) -> Bytes {
    let Ok(tree) = Tree::parse(body.clone()) else { return body.clone() };
    let wrapped = json::object(|o| {
        o.object(WRAPPER_MEMBER, |o| {
            o.maybe_string("model", model.map(|model| format!("models/{model}")).as_deref());
            for (name, value) in tree.root().members() {
                o.raw(&name.text().unwrap_or_default(), &value.json());
            }
        });
    });
    wrapped.bytes().clone()
}

/// The counting path of a wire, derived from its path for calls.
fn counting(wire: &Wire, path: &str) -> Option<String> {
    let bare = without_query(path);
    match wire.as_str() {
        "anthropic-messages" => bare.ends_with("/messages").then(|| format!("{bare}/count_tokens")),
        "openai-responses" => bare.ends_with("/responses").then(|| format!("{bare}/input_tokens")),
        "gemini" => Some(format!("{}:countTokens", bare.strip_suffix(":generateContent")?)),
        _ => None,
    }
}

/// Reduces a request to the members that are counted, for a wire other than the caller's.
fn countable_body(wire: &Wire, body: &Bytes, model: &str) -> Bytes {
    let known = match wire.as_str() {
        "anthropic-messages" => COUNTED_MESSAGES,
        "openai-responses" => COUNTED_RESPONSES,
        _ => return wrap_request(body, Some(model)),
    };
    let Ok(tree) = Tree::parse(body.clone()) else { return body.clone() };
    let kept = json::object(|o| {
        let members = tree.root().members();
        for (name, value) in members.filter(|(name, _)| known.iter().any(|known| name.is(known))) {
            o.raw(&name.text().unwrap_or_default(), &value.json());
        }
    });
    kept.bytes().clone()
}

/// Reads the count from a provider's response of any shape.
fn read_token_count(body: &Bytes) -> Option<u64> {
    let tree = Tree::parse(body.clone()).ok()?;
    let root = tree.root();
    root.get("input_tokens").or_else(|| root.get("totalTokens")).and_then(Node::u64)
}

/// Encodes the count in the caller's dialect.
fn told(wire: &Wire, tokens: u64, how: &str) -> GatewayResponse {
    let said: Json = json::object(|o| match wire.as_str() {
        "gemini" => {
            o.number("totalTokens", tokens);
        }
        "openai-responses" => {
            o.string("object", "response.input_tokens").number("input_tokens", tokens);
        }
        _ => {
            o.number("input_tokens", tokens);
        }
    });
    let mut answered = GatewayResponse::json(200, &said);
    answered.headers.push((Name::from("x-throughline-count"), Name::from(how)));
    answered
}

/// Returns the provider's response without changes.
async fn passed(answer: UpstreamResponse) -> Result<GatewayResponse, GatewayError> {
    let status = answer.status;
    let passed = answer.headers.iter().filter(|(name, _)| is_forwarded_header(name, true));
    let mut headers: Vec<(Name, Name)> = passed.cloned().collect();
    headers.push((Name::from("x-throughline-count"), Name::from("counted")));
    Ok(GatewayResponse { status, headers, body: ResponseBody::Whole(whole(answer).await?) })
}
