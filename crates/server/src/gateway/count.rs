//! Counts the tokens of a request, in the caller's dialect.
//!
//! The request is prepared like a model call, with its lost reasoning restored, and the provider
//! counts its tokens. If the wire has no counting endpoint, the count is estimated. The response
//! header `x-throughline-count` is `counted` or `estimated`.

use bytes::Bytes;
use throughline_codec::error_message;
use throughline_core::{Request, UpstreamResponse, Wire};
use throughline_json::{self as json, Node, Tree};

use crate::error::{GatewayError, GatewayResult};
use crate::gateway::answer::{collect_body, forwarded_headers};
use crate::gateway::dialect;
use crate::gateway::exchange::{Exchange, codec_for};
use crate::gateway::headers::without_query;
use crate::gateway::prepare::DecodedRequest;
use crate::gateway::previous::PreviousResponse;
use crate::object::{object, put_members};
use crate::response::{GatewayResponse, ResponseBody};
use crate::routing::RouteTarget;

/// Assumed number of bytes per token in an estimate.
const BYTES_OF_A_TOKEN: u64 = 4;

/// The field in which a Gemini client may wrap the request whose tokens are counted.
const WRAPPER_MEMBER: &str = "generateContentRequest";

/// Fields that Anthropic and OpenAI accept in a token-count request. Both providers reject requests
/// with other fields.
pub(crate) const COUNTED_MESSAGES: &[&str] = &[
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
const COUNTED_CONVERSE: &[&str] =
    &["messages", "system", "toolConfig", "additionalModelRequestFields"];
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
    pub(crate) async fn count(&self, request: Request) -> GatewayResult {
        let model = self.requested_model(&request)?;
        let no_provider = || GatewayError::new(404, format!("no provider serves model {model}"));
        let reached = self.reach(model).await?.into_iter().next().ok_or_else(no_provider)?;
        let previous = self.find_previous(&request).await?;
        let accounts = self.with_accounts(vec![reached], &request, &previous).await?;
        let reached = accounts.into_iter().next().ok_or_else(no_provider)?;
        let expanded = previous.request_for(&reached.provider.wire)?.map(|(_, all)| all.clone());
        let request = Request { body: expanded.unwrap_or_else(|| request.body.clone()), ..request };
        let renamed = dialect::renamed(&self.wire, request, model, &reached.model);
        let references = self.resolve_references(&renamed, &reached).await?;
        let renamed = references.map_or(renamed, |references| references.for_target);
        let (inner, is_wrapped) = unwrap_request(&renamed);
        let preparing = async {
            let (expanded, _) = self.without_foreign_compactions(inner.clone(), &reached).await?;
            let DecodedRequest { call, target, tenant, .. } = self.decode(&expanded, &reached)?;
            let to = codec_for(&target.origin.wire)?;
            let is_resumed = matches!(previous, PreviousResponse::From(..));
            let finding = self.restore_or_pass(to, call, &tenant, &expanded, is_resumed, &reached);
            let (found, _) = Box::pin(finding).await?;
            let issued = found.replayed.as_ref().map(|replayed| &replayed.issued);
            let checked = self.audit_and_repair(to, found.encoded, &target, issued)?;
            Ok::<_, GatewayError>((target, to, checked.encoded.request))
        };
        let heavy = &self.gateway.operations.heavy;
        let prepared = heavy.run(&self.caller, inner.body.len(), Box::pin(preparing)).await?;
        let (target, to, ready) = prepared?;
        self.scope.release_preparation_memory();
        let wire = &target.origin.wire;
        let estimate = u64::try_from(ready.body.len()).unwrap_or(u64::MAX) / BYTES_OF_A_TOKEN;
        let Some(path) = counting(wire, &to.path(&target, false)) else {
            return Ok(count_response(&self.wire, estimate.max(1), "estimated"));
        };
        let is_same = *wire == self.wire;
        let body = match (is_same, is_wrapped) {
            (true, _) if *wire == Wire::BEDROCK_CONVERSE => {
                countable_body(wire, &ready.body, target.model())
            }
            (true, _) if ready.body == inner.body => renamed.body.clone(),
            (true, true) => wrap_request(&ready.body, None),
            (true, false) | (false, _) => countable_body(wire, &ready.body, target.model()),
        };
        self.check_ownership(&target.origin, &body).await?;
        let request = Request { path: path.into(), headers: ready.headers, body };
        let answer = self.send_other(&reached, "POST", request).await?;
        match answer.status {
            // Not every provider of a wire has a counting endpoint.
            404 | 405 | 501 => Ok(count_response(&self.wire, estimate.max(1), "estimated")),
            // Bedrock's counting endpoint has a format of its own, which is also the caller's.
            _ if is_same => passed(&reached, answer).await,
            status => {
                let body = collect_body(answer).await?;
                let unnamed = || format!("{} answered {status}", reached.endpoint);
                if status >= 400 {
                    let message = error_message(&body).unwrap_or_else(unnamed);
                    return Err(GatewayError::new(status, message));
                }
                let tokens =
                    read_token_count(&body).ok_or_else(|| GatewayError::new(502, unnamed()))?;
                let mut response = count_response(&self.wire, tokens, "counted");
                response.headers.extend(reached.response_headers());
                Ok(response)
            }
        }
    }
}

/// Returns the request whose tokens are counted, and whether the client wrapped that request in
/// [`WRAPPER_MEMBER`].
fn unwrap_request(request: &Request) -> (Request, bool) {
    let tree = Tree::parse(request.body.clone()).ok();
    let inner = tree.as_ref().and_then(|tree| tree.root().get(WRAPPER_MEMBER)).map(Node::json);
    match inner {
        Some(inner) => (Request { body: inner.bytes().clone(), ..request.clone() }, true),
        None => (request.clone(), false),
    }
}

/// Wraps a Gemini request for the counting endpoint, and sets `model` if a model is given.
fn wrap_request(body: &Bytes, model: Option<&str>) -> Bytes {
    let Ok(tree) = Tree::parse(body.clone()) else { return body.clone() };
    let wrapped = json::object(|o| {
        o.object(WRAPPER_MEMBER, |o| {
            o.maybe_string("model", model.map(|model| format!("models/{model}")).as_deref());
            put_members(o, tree.root().members());
        });
    });
    wrapped.bytes().clone()
}

/// Derives a wire's token-counting path from its call path; `None` if the wire has no counting
/// endpoint.
fn counting(wire: &Wire, path: &str) -> Option<String> {
    let bare = without_query(path);
    match wire.as_str() {
        "anthropic-messages" => bare.ends_with("/messages").then(|| format!("{bare}/count_tokens")),
        "openai-responses" => bare.ends_with("/responses").then(|| format!("{bare}/input_tokens")),
        "gemini" => Some(format!("{}:countTokens", bare.strip_suffix(":generateContent")?)),
        "bedrock-converse" => Some(format!("{}/count-tokens", bare.strip_suffix("/converse")?)),
        _ => None,
    }
}

/// Reduces a translated request to the fields that the counting endpoint accepts.
fn countable_body(wire: &Wire, body: &Bytes, model: &str) -> Bytes {
    let known = match wire.as_str() {
        "anthropic-messages" => COUNTED_MESSAGES,
        "openai-responses" => COUNTED_RESPONSES,
        "bedrock-converse" => COUNTED_CONVERSE,
        _ => return wrap_request(body, Some(model)),
    };
    let Ok(tree) = Tree::parse(body.clone()) else { return body.clone() };
    let is_counted = |name: Node<'_>| known.iter().any(|known| name.is(known));
    let counted = tree.root().members().filter(|(name, _)| is_counted(*name));
    let counted = json::object(|o| put_members(o, counted));
    if *wire == Wire::BEDROCK_CONVERSE {
        let input = object! { "converse": counted };
        return object! { "input": input }.bytes().clone();
    }
    counted.bytes().clone()
}

/// Reads the token count from a provider's response in any dialect.
fn read_token_count(body: &Bytes) -> Option<u64> {
    let tree = Tree::parse(body.clone()).ok()?;
    let root = tree.root();
    let names = ["input_tokens", "totalTokens", "inputTokens"];
    names.iter().find_map(|name| root.get(name)).and_then(Node::u64)
}

/// Encodes the token count in the caller's dialect.
fn count_response(wire: &Wire, tokens: u64, method: &str) -> GatewayResponse {
    let body = match wire.as_str() {
        "gemini" => object! { "totalTokens": tokens },
        "bedrock-converse" => object! { "inputTokens": tokens },
        "openai-responses" => {
            object! { "object": "response.input_tokens", "input_tokens": tokens }
        }
        _ => object! { "input_tokens": tokens },
    };
    GatewayResponse::json(200, &body).with_header("x-throughline-count", method)
}

/// Returns the provider's response without changes.
async fn passed(reached: &RouteTarget, answer: UpstreamResponse) -> GatewayResult {
    let status = answer.status;
    let headers = forwarded_headers(reached, &answer);
    let body = ResponseBody::Whole(collect_body(answer).await?);
    Ok(GatewayResponse { status, headers, body }.with_header("x-throughline-count", "counted"))
}
