//! A client that drops or corrupts the reasoning of its conversations. The client sends the same
//! requests directly to the simulators and through the gateway.
//!
//! A lossy client parses each body into its own types, drops unknown fields, and serialises the
//! rest.

use std::sync::Arc;

use anyhow::Context as _;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use throughline_codec::Catalog;
use throughline_core::{Credential, Upstream as _, UpstreamRequest};
use throughline_json::Name;
use throughline_provider::{CredentialSource, Endpoint, Http};

use super::processes::{DemoProcesses, KEY};
use super::{CLAUDE, GPT};
use crate::print::failure::Result;

/// Number of requests that the simulators receive from the client: the start of a conversation with
/// each provider and one continuation per mistake, directly and through the gateway.
pub(super) const REQUESTS: u64 = 12;

/// Responses that the lossy client received.
pub(super) struct LossyClient {
    pub(super) results: Vec<MistakeResult>,
    /// Ledger numbers of the requests that the client sent directly to the simulators.
    pub(super) direct: Vec<u64>,
    /// Ledger numbers of the requests that the gateway sent for the client.
    pub(super) gateway: Vec<u64>,
}

/// Results of a request with a mistake.
pub(super) struct MistakeResult {
    pub(super) provider: &'static str,
    /// What the client did wrong, such as "drops the thinking".
    pub(super) mistake: &'static str,
    pub(super) direct: DirectResult,
    pub(super) gateway: GatewayResult,
}

/// Result of a request that the lossy client sent directly to a provider.
pub(super) struct DirectResult {
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

pub(super) const MISTAKES: [Mistake; 4] = [
    ("anthropic", "drops the thinking", |body| drop_parts(body, "thinking")),
    ("anthropic", "truncates a signature", |body| truncate_values(body, "signature")),
    ("openai", "drops the reasoning", |body| drop_parts(body, "reasoning")),
    ("openai", "truncates the encrypted content", |body| {
        truncate_values(body, "encrypted_content");
    }),
];

/// Continues a conversation with each mistake, directly and through the gateway.
pub(super) async fn play(processes: &DemoProcesses) -> Result<LossyClient> {
    let mut client = Client::new(processes)?;
    let mut results = Vec::new();
    for provider in ["anthropic", "openai"] {
        let direct = client.start_conversation(provider, ClientRoute::Direct).await?;
        let through_gateway = client.start_conversation(provider, ClientRoute::Gateway).await?;
        for (_, mistake, spoil) in MISTAKES.into_iter().filter(|(name, ..)| *name == provider) {
            let spoiled = |mut body: Value| {
                spoil(&mut body);
                body
            };
            let direct = client.continue_directly(provider, &spoiled(direct.clone())).await?;
            let gateway = spoiled(through_gateway.clone());
            let gateway = client.continue_through_gateway(provider, &gateway).await?;
            results.push(MistakeResult { provider, mistake, direct, gateway });
        }
    }
    Ok(LossyClient { results, direct: client.direct, gateway: client.gateway })
}

/// Returns the first request of a conversation in which the model calls a tool.
fn first_request(provider: &str) -> Value {
    let (question, tool) = ("Is the checkout fast today?", "read_metrics");
    let schema = json!({"type": "object", "properties": {}});
    if provider == "anthropic" {
        return json!({
            "model": CLAUDE,
            "max_tokens": 4096,
            "thinking": {"type": "enabled", "budget_tokens": 2048},
            "tools": [{"name": tool, "input_schema": schema}],
            "messages": [{"role": "user", "content": question}],
        });
    }
    json!({
        "model": GPT,
        "store": false,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "medium"},
        "tools": [{"type": "function", "name": tool, "parameters": schema}],
        "input": [{"role": "user", "content": question}],
    })
}

/// Adds the model's response and the result of its tool call to a request.
fn add_result(request: &mut Value, provider: &str, response: &Value) {
    let list = |value: &Value, key: &str| {
        value.get(key).and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let find_id = |parts: &[Value], kind: &str, key: &str| {
        let call = parts.iter().find(|part| is_type(part, kind));
        call.and_then(|call| call.get(key)).cloned().unwrap_or_default()
    };
    let output = "p95 = 0.21 s";
    let (key, added) = if provider == "anthropic" {
        let parts = list(response, "content");
        let id = find_id(&parts, "tool_use", "id");
        let answer = json!([{"type": "tool_result", "tool_use_id": id, "content": output}]);
        let reply = json!({"role": "assistant", "content": parts});
        ("messages", vec![reply, json!({"role": "user", "content": answer})])
    } else {
        let mut items = list(response, "output");
        let id = find_id(&items, "function_call", "call_id");
        items.push(json!({"type": "function_call_output", "call_id": id, "output": output}));
        ("input", items)
    };
    if let Some(messages) = request.get_mut(key).and_then(Value::as_array_mut) {
        messages.extend(added);
    }
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

/// How the client reaches a provider.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientRoute {
    Direct,
    Gateway,
}

/// HTTP client for the simulators and the gateway.
struct Client<'p> {
    http: Http,
    processes: &'p DemoProcesses,
    /// Ledger numbers of the requests so far.
    direct: Vec<u64>,
    gateway: Vec<u64>,
}

struct HttpResponse {
    status: u16,
    headers: Vec<(Name, Name)>,
    body: Value,
    /// Number of Seals that the simulators found missing.
    lost: usize,
}

/// Endpoint for the gateway's own API.
const GATEWAY: &str = "gateway anthropic";

impl<'p> Client<'p> {
    fn new(processes: &'p DemoProcesses) -> Result<Self> {
        let (simulators, gateway) = (processes.simulator.url(), processes.gateway_url());
        let mut endpoints = Vec::new();
        for (name, row, address) in [
            ("anthropic", "anthropic", format!("{simulators}/at/anthropic")),
            ("openai", "openai", format!("{simulators}/at/openai")),
            (GATEWAY, "anthropic", gateway.clone()),
            ("gateway openai", "openai", format!("{gateway}/v1")),
        ] {
            let provider = Catalog::builtin().provider(row);
            let row = provider.with_context(|| format!("the catalog has no provider {row}"))?;
            // Seals are bound to an account, so this client uses the agent's account.
            let key = CredentialSource::Key(Credential::new(KEY));
            let endpoint = Endpoint::new(name, row, &address, key);
            endpoints.push(endpoint.with_context(|| format!("invalid address {address}"))?);
        }
        let http = Http::new(endpoints, Arc::new(crate::clock::now));
        let http = http.context("cannot create the lossy client")?;
        Ok(Self { http, processes, direct: Vec::new(), gateway: Vec::new() })
    }

    /// Sends the first request of a conversation and returns the request that continues it, with
    /// all reasoning.
    async fn start_conversation(&mut self, provider: &str, route: ClientRoute) -> Result<Value> {
        let mut request = first_request(provider);
        let response = self.post(provider, route, &request).await?;
        add_result(&mut request, provider, &response.body);
        Ok(request)
    }

    async fn continue_directly(&mut self, provider: &str, body: &Value) -> Result<DirectResult> {
        let response = self.post(provider, ClientRoute::Direct, body).await?;
        let error = response.body.pointer("/error/message").and_then(Value::as_str);
        let error = error.unwrap_or_default().to_owned();
        Ok(DirectResult { status: response.status, error, lost: response.lost })
    }

    async fn continue_through_gateway(
        &mut self,
        provider: &str,
        body: &Value,
    ) -> Result<GatewayResult> {
        let response = self.post(provider, ClientRoute::Gateway, body).await?;
        let is_call = |(name, _): &&(Name, Name)| name.eq_ignore_ascii_case("x-throughline-call");
        let call = response.headers.iter().find(is_call).map(|(_, id)| id.to_string());
        let call = call.unwrap_or_default();
        let record =
            self.send("GET", GATEWAY, &format!("/v1/throughline/calls/{call}"), "").await?;
        let fates = record.body.get("fates").and_then(Value::as_array).cloned().unwrap_or_default();
        let restored = |key: &str| {
            let fates = fates.iter().filter_map(|fate| fate.get(key)).flat_map(|fate| match fate {
                Value::Array(all) => all.iter().collect(),
                one => vec![one],
            });
            let is_restored =
                |fate: &&Value| fate.as_str().is_some_and(|fate| fate.starts_with("restored"));
            fates.filter(is_restored).count()
        };
        let (thoughts, seals) = (restored("visible"), restored("seals"));
        Ok(GatewayResult { status: response.status, thoughts, seals, call })
    }

    /// Sends a request to a provider, and records its numbers in the simulators' ledger.
    async fn post(
        &mut self,
        provider: &str,
        route: ClientRoute,
        body: &Value,
    ) -> Result<HttpResponse> {
        let known = self.processes.simulator.ledger().entries.len();
        let path = if provider == "anthropic" { "/v1/messages" } else { "/responses" };
        let endpoint = match route {
            ClientRoute::Direct => provider.to_owned(),
            ClientRoute::Gateway => format!("gateway {provider}"),
        };
        let mut response = self.send("POST", &endpoint, path, &body.to_string()).await?;
        let ledger = self.processes.simulator.ledger();
        let own = ledger.entries.iter().skip(known);
        response.lost = own.clone().map(|entry| entry.lost).sum();
        let requests = match route {
            ClientRoute::Direct => &mut self.direct,
            ClientRoute::Gateway => &mut self.gateway,
        };
        requests.extend(own.map(|entry| entry.request));
        Ok(response)
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
        let response = self.http.send(request).await;
        let mut response = response.with_context(|| format!("no response from {to}"))?;
        let mut bytes = Vec::new();
        while let Some(chunk) = response.body.next().await {
            let chunk = chunk.with_context(|| format!("the response from {to} was interrupted"))?;
            bytes.extend_from_slice(&chunk);
        }
        let body = serde_json::from_slice(&bytes).unwrap_or_default();
        Ok(HttpResponse { status: response.status, headers: response.headers, body, lost: 0 })
    }
}
