//! A client that drops or corrupts the reasoning in the demo's conversation. The client sends
//! requests directly to the simulators first, and then through the gateway.
//!
//! A lossy client parses each body into its own types, drops unknown fields, and serialises the
//! rest.

use std::sync::Arc;

use anyhow::Context as _;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use throughline_agent::Purpose;
use throughline_codec::{Catalog, codec};
use throughline_core::{
    Body, Call, Credential, Item, LogId, Target, ThreadSecret, Upstream as _, UpstreamRequest,
};
use throughline_json::Name;
use throughline_provider::{CredentialSource, Endpoint, Http};

use super::CLAUDE;
use super::processes::{DemoProcesses, KEY};
use super::totals::{items_of, runs_of};
use crate::agent::AgentContext;
use crate::print::failure::Result;

/// Responses that the lossy client received.
pub(super) struct LossyClient {
    pub(super) results: Vec<MistakeResult>,
    /// Ledger numbers of the requests that the client sent directly to the simulators.
    pub(super) requests: Vec<u64>,
    /// Result of a request that lacked its thinking when the client sent it through the gateway.
    pub(super) restored: GatewayResult,
}

pub(super) struct MistakeResult {
    pub(super) provider: &'static str,
    /// What the client did wrong, such as "drops the thinking".
    pub(super) mistake: &'static str,
    pub(super) status: u16,
    /// The provider's error message; empty if the provider accepted the request.
    pub(super) error: String,
    /// Number of Seals that were missing from an accepted request.
    pub(super) lost: usize,
}

/// Result of a request that the lossy client sent through the gateway.
pub(super) struct GatewayResult {
    pub(super) status: u16,
    pub(super) thoughts: usize,
    pub(super) seals: usize,
    /// Id of the gateway's record of the call.
    pub(super) call: String,
}

/// A provider, a description of the client's mistake, and a function that corrupts the request
/// body.
type Mistake = (&'static str, &'static str, fn(&mut Value));

const MISTAKES: [Mistake; 4] = [
    ("anthropic", "drops the thinking", |body| drop_parts(body, "thinking")),
    ("anthropic", "truncates a signature", |body| truncate_values(body, "signature")),
    ("openai", "drops the reasoning", |body| drop_parts(body, "reasoning")),
    ("openai", "truncates the encrypted content", |body| {
        truncate_values(body, "encrypted_content");
    }),
];

pub(super) async fn play(
    processes: &DemoProcesses,
    context: &AgentContext,
    thread: &str,
) -> Result<LossyClient> {
    let client = Client::new(processes)?;
    let thread = LogId::from(thread);
    let (mut results, mut requests) = (Vec::new(), Vec::new());
    for (provider, mistake, spoil) in MISTAKES {
        let (path, mut body) = conversation(context, &thread, provider).await?;
        spoil(&mut body);
        let known = processes.simulator.ledger().entries.len();
        let HttpResponse { status, body, .. } = client.post(provider, &path, &body).await?;
        let ledger = processes.simulator.ledger();
        let own = ledger.entries.iter().skip(known);
        let lost = own.clone().map(|entry| entry.lost).sum();
        requests.extend(own.map(|entry| entry.request));
        let error = body.pointer("/error/message").and_then(Value::as_str);
        let error = error.unwrap_or_default().to_owned();
        results.push(MistakeResult { provider, mistake, status, error, lost });
    }
    let restored = run_through_gateway(&client).await?;
    Ok(LossyClient { results, requests, restored })
}

/// Rebuilds the agent's request in the middle of the tool loop with a provider. Returns the path
/// and body of the request.
async fn conversation(
    context: &AgentContext,
    thread: &LogId,
    provider: &str,
) -> Result<(Name, Value)> {
    let mut items = items_of(context, thread).await?;
    items.sort_by_key(|item| item.place);
    let is_own =
        |item: &&Item| item.origin.as_ref().is_some_and(|made| &*made.provider == provider);
    let is_thought = |item: &Item| matches!(item.body, Body::Thought(_));
    let origin = items.iter().find(is_own).and_then(|item| item.origin.clone());
    let origin = origin.with_context(|| format!("this thread has no response from {provider}"))?;
    let catalog = Catalog::builtin();
    let row = catalog.provider(provider);
    let row = row.with_context(|| format!("the catalog has no provider {provider}"))?;
    let target = Target { profile: catalog.profile(&origin.asked), provider: row, origin };
    // Cut at the second thought, where the first tool calls have results and the model has not
    // continued yet.
    let mut own_thoughts =
        items.iter().enumerate().filter(|(_, item)| is_own(item) && is_thought(item));
    let end = own_thoughts.nth(1).map_or(items.len(), |(index, _)| index);
    items.truncate(end);
    // The agent's instructions, tools and settings come from its first run.
    let runs = runs_of(context, thread).await?;
    let state = context.state(runs.last().context("the thread has no runs")?).await?;
    let mut call: Call = state.call(Purpose::Turn, target, &ThreadSecret::new([0; 32]));
    call.items = items;
    call.stream = false;
    let wire = &call.target.provider.wire;
    let wire = codec(wire).with_context(|| format!("no codec registered for wire `{wire}`"))?;
    let encoded = wire.encode(&call).context("cannot encode the conversation")?;
    let body =
        serde_json::from_slice(&encoded.request.body).context("the encoded request is not JSON")?;
    Ok((encoded.request.path, body))
}

/// Sends two requests through the gateway. The second request repeats only the readable parts of
/// the first response.
async fn run_through_gateway(client: &Client) -> Result<GatewayResult> {
    let mut request = json!({
        "model": CLAUDE,
        "max_tokens": 4096,
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "tools": [{"name": "read_metrics", "input_schema": {"type": "object", "properties": {}}}],
        "messages": [{"role": "user", "content": "Is the checkout fast today?"}],
    });
    let first = client.post("gateway", "/v1/messages", &request).await?;
    let parts = first.body.get("content").and_then(Value::as_array).cloned().unwrap_or_default();
    let shown: Vec<Value> = parts.into_iter().filter(|part| !is_type(part, "thinking")).collect();
    let used = shown.iter().find(|part| is_type(part, "tool_use"));
    let id = used.and_then(|used| used.get("id")).cloned().unwrap_or_default();
    let answer = json!([{"type": "tool_result", "tool_use_id": id, "content": "p95 = 0.21 s"}]);
    if let Some(messages) = request.get_mut("messages").and_then(Value::as_array_mut) {
        messages.push(json!({"role": "assistant", "content": shown}));
        messages.push(json!({"role": "user", "content": answer}));
    }
    let second = client.post("gateway", "/v1/messages", &request).await?;
    let is_call = |(name, _): &&(Name, Name)| name.eq_ignore_ascii_case("x-throughline-call");
    let call = second.headers.iter().find(is_call).map(|(_, id)| id.to_string());
    let call = call.unwrap_or_default();
    let path = format!("/v1/throughline/calls/{call}");
    let record = client.send("GET", "gateway", &path, "").await?;
    let fates = record.body.get("fates").and_then(Value::as_array).cloned().unwrap_or_default();
    let restored = |key: &str| {
        let fates = fates.iter().filter_map(|fate| fate.get(key)).flat_map(|fate| match fate {
            Value::Array(all) => all.iter().collect(),
            one => vec![one],
        });
        let is_restored = |fate: &&Value| fate.as_str().is_some_and(|s| s.starts_with("restored"));
        fates.filter(is_restored).count()
    };
    let (thoughts, seals) = (restored("visible"), restored("seals"));
    Ok(GatewayResult { status: second.status, thoughts, seals, call })
}

fn is_type(part: &Value, kind: &str) -> bool {
    part.get("type").and_then(Value::as_str) == Some(kind)
}

/// Removes all parts with the type `kind` at any depth of a body.
fn drop_parts(body: &mut Value, kind: &str) {
    if let Value::Array(list) = body {
        list.retain(|part| !is_type(part, kind));
    }
    for child in children(body) {
        drop_parts(child, kind);
    }
}

/// Truncates every string field named `key` to its first half, at any depth of a body.
fn truncate_values(body: &mut Value, key: &str) {
    if let Some(Value::String(text)) = body.get_mut(key) {
        text.truncate(text.floor_char_boundary(text.len() / 2));
    }
    for child in children(body) {
        truncate_values(child, key);
    }
}

fn children(value: &mut Value) -> Vec<&mut Value> {
    match value {
        Value::Array(list) => list.iter_mut().collect(),
        Value::Object(members) => members.values_mut().collect(),
        _ => Vec::new(),
    }
}

/// HTTP client for the simulators and the gateway.
struct Client(Http);

struct HttpResponse {
    status: u16,
    headers: Vec<(Name, Name)>,
    body: Value,
}

impl Client {
    fn new(processes: &DemoProcesses) -> Result<Self> {
        let simulators = processes.simulator.url();
        let mut endpoints = Vec::new();
        for (name, row, address) in [
            ("anthropic", "anthropic", format!("{simulators}/at/anthropic")),
            ("openai", "openai", format!("{simulators}/at/openai")),
            ("gateway", "anthropic", processes.gateway_url()),
        ] {
            let provider = Catalog::builtin().provider(row);
            let row = provider.with_context(|| format!("the catalog has no provider {row}"))?;
            // Seals are bound to an account, so this client uses the agent's account.
            let key = CredentialSource::Key(Credential::new(KEY));
            let endpoint = Endpoint::new(name, row, &address, key);
            endpoints.push(endpoint.with_context(|| format!("invalid address {address}"))?);
        }
        let http = Http::new(endpoints, Arc::new(crate::clock::now));
        Ok(Self(http.context("cannot create the lossy client")?))
    }

    async fn post(&self, to: &str, path: &str, body: &Value) -> Result<HttpResponse> {
        self.send("POST", to, path, &body.to_string()).await
    }

    async fn send(&self, method: &str, to: &str, path: &str, body: &str) -> Result<HttpResponse> {
        let request = UpstreamRequest {
            endpoint: Name::from(to),
            model: None,
            method: Name::from(method),
            path: Name::from(path),
            headers: vec![(Name::from("content-type"), Name::from("application/json"))],
            body: body.to_owned().into(),
            credential: None,
        };
        let response = self.0.send(request).await;
        let mut response = response.with_context(|| format!("no response from {to}"))?;
        let mut bytes = Vec::new();
        while let Some(chunk) = response.body.next().await {
            let chunk = chunk.with_context(|| format!("the response from {to} was interrupted"))?;
            bytes.extend_from_slice(&chunk);
        }
        let body = serde_json::from_slice(&bytes).unwrap_or_default();
        Ok(HttpResponse { status: response.status, headers: response.headers, body })
    }
}
