//! A lossy client that sends the same conversation with its reasoning dropped or corrupted: first
//! directly to the simulators, then through the gateway.
//!
//! Such a client parses a body into its own types, drops unknown fields, and serialises it again.

use std::sync::Arc;

use anyhow::Context as _;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use throughline_agent::Purpose;
use throughline_codec::{Catalog, codec};
use throughline_core::{
    Body, Call, Credential, Item, LogId, Target, ThreadSecret, Upstream as _, UpstreamRequest,
    kind, restore_items,
};
use throughline_json::Name;
use throughline_provider::{CredentialSource, Endpoint, Http};

use super::CLAUDE;
use super::stage::{DemoProcesses, KEY};
use super::totals::{records_of, runs_of};
use crate::agent::AgentContext;
use crate::print::failure::Failure;

/// Results of the lossy client.
pub(super) struct LossyClient {
    pub(super) heard: Vec<MistakeResult>,
    /// Numbers in the simulators' ledger of the requests that bypassed Throughline.
    pub(super) requests: Vec<u64>,
    /// Result of the same mistake through the gateway.
    pub(super) restored: GatewayResult,
}

/// Result of one mistake.
pub(super) struct MistakeResult {
    pub(super) provider: &'static str,
    /// What the client did wrong, such as "drops the thinking".
    pub(super) mistake: &'static str,
    pub(super) status: u16,
    /// Error message of the provider; empty if it accepted the request.
    pub(super) said: String,
    /// Number of seals that were missing from an accepted request.
    pub(super) lost: usize,
}

/// Result of a lossy request through the gateway.
pub(super) struct GatewayResult {
    pub(super) status: u16,
    /// Number of restored thoughts.
    pub(super) thoughts: u64,
    /// Number of restored seals.
    pub(super) seals: u64,
    /// Id of the call record in the gateway.
    pub(super) call: String,
}

/// A mistake and the provider it is sent to.
struct Mistake {
    provider: &'static str,
    what: &'static str,
    make: fn(&mut Value),
}

const MISTAKES: [Mistake; 4] = [
    Mistake { provider: "anthropic", what: "drops the thinking", make: drop_thinking },
    Mistake { provider: "anthropic", what: "truncates a signature", make: truncate_signatures },
    Mistake { provider: "openai", what: "drops the reasoning", make: drop_reasoning },
    Mistake {
        provider: "openai",
        what: "truncates the encrypted content",
        make: truncate_encrypted,
    },
];

pub(super) async fn play(
    stage: &DemoProcesses,
    house: &AgentContext,
    thread: &str,
) -> Result<LossyClient, Failure> {
    let client = Client::new(stage)?;
    let thread = LogId::from(thread);
    let (mut heard, mut requests) = (Vec::new(), Vec::new());
    for mistake in &MISTAKES {
        let (path, mut body) = conversation(house, &thread, mistake.provider).await?;
        (mistake.make)(&mut body);
        let known = stage.ledger().entries.len();
        let answer = client.post(mistake.provider, &path, &body).await?;
        let ledger = stage.ledger();
        let own = ledger.entries.iter().skip(known);
        let lost = own.clone().map(|entry| entry.lost).sum();
        requests.extend(own.map(|entry| entry.request));
        let (provider, status, said) = (mistake.provider, answer.status, answer.problem());
        heard.push(MistakeResult { provider, mistake: mistake.what, status, said, lost });
    }
    let restored = run_through_gateway(&client).await?;
    Ok(LossyClient { heard, requests, restored })
}

/// Returns path and body of the agent's request in the middle of a provider's tool loop.
async fn conversation(
    house: &AgentContext,
    thread: &LogId,
    provider: &str,
) -> Result<(Name, Value), Failure> {
    let records = records_of(house, thread).await?;
    let items = records.iter().filter(|record| &*record.kind == kind::ITEM);
    let items = restore_items(items.map(|record| record.content.bytes().cloned()));
    let mut items = items.context("the thread cannot be read")?;
    items.sort_by_key(|item| item.place);
    let is_own =
        |item: &&Item| item.origin.as_ref().is_some_and(|made| &*made.provider == provider);
    let is_thought = |item: &Item| matches!(item.body, Body::Thought(_));
    let origin = items.iter().find(is_own).and_then(|item| item.origin.clone());
    let origin = origin.with_context(|| format!("{provider} has no reply in this thread"))?;
    let catalog = Catalog::builtin();
    let row = catalog.provider(provider).context("the provider is not in the catalog")?;
    let target = Target { profile: catalog.profile(&origin.asked), provider: row, origin };
    // Cut at the second thought: the first tool calls have results, and the model has not continued
    // yet.
    let mut own_thoughts =
        items.iter().enumerate().filter(|(_, item)| is_own(item) && is_thought(item));
    let end = own_thoughts.nth(1).map_or(items.len(), |(place, _)| place);
    items.truncate(end);
    let mut call = asked(house, thread, target).await?;
    call.items = items;
    call.stream = false;
    let wire = codec(&call.target.provider.wire).context("no codec is registered for the wire")?;
    let encoded = wire.encode(&call).context("the conversation cannot be encoded")?;
    let body = serde_json::from_slice(&encoded.request.body).context("the request is not JSON")?;
    Ok((encoded.request.path, body))
}

/// Builds the agent's call to that model, with its instructions, tools and settings.
async fn asked(house: &AgentContext, thread: &LogId, target: Target) -> Result<Call, Failure> {
    let runs = runs_of(house, thread).await?;
    let first = runs.last().context("the thread has no run")?;
    let state = house.runner.state(&house.tenant, first).await;
    let state = state.map_err(|error| house.to_failure(error))?;
    Ok(state.call(Purpose::Turn, target, &ThreadSecret::new([0; 32])))
}

/// Runs a two-request conversation through the gateway with a client that returns only readable
/// parts.
async fn run_through_gateway(client: &Client) -> Result<GatewayResult, Failure> {
    let mut request = json!({
        "model": CLAUDE,
        "max_tokens": 4096,
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "tools": [{"name": "read_metrics", "input_schema": {"type": "object", "properties": {}}}],
        "messages": [{"role": "user", "content": "Is the checkout fast today?"}],
    });
    let first = client.post("gateway", "/v1/messages", &request).await?;
    let said = first.body.get("content").and_then(Value::as_array).cloned().unwrap_or_default();
    let shown: Vec<Value> = said.into_iter().filter(|part| !is_type(part, "thinking")).collect();
    let used = shown.iter().find(|part| is_type(part, "tool_use"));
    let id = used.and_then(|used| used.get("id")).cloned().unwrap_or_default();
    let answer = json!([{"type": "tool_result", "tool_use_id": id, "content": "p95 = 0.21 s"}]);
    if let Some(messages) = request.get_mut("messages").and_then(Value::as_array_mut) {
        messages.push(json!({"role": "assistant", "content": shown}));
        messages.push(json!({"role": "user", "content": answer}));
    }
    let second = client.post("gateway", "/v1/messages", &request).await?;
    let call = second.header("x-throughline-call");
    let story = client.send("GET", "gateway", &format!("/v1/throughline/calls/{call}"), "").await?;
    let fates = story.body.get("fates").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_restored = |did: &Value| did.as_str().is_some_and(|did| did.starts_with("restored"));
    let put_back = |key: &str| {
        let dids = fates.iter().filter_map(|fate| fate.get(key)).flat_map(|did| match did {
            Value::Array(all) => all.iter().collect(),
            one => vec![one],
        });
        u64::try_from(dids.filter(|did| is_restored(did)).count()).unwrap_or(u64::MAX)
    };
    let (thoughts, seals) = (put_back("visible"), put_back("seals"));
    Ok(GatewayResult { status: second.status, thoughts, seals, call })
}

fn is_type(part: &Value, kind: &str) -> bool {
    part.get("type").and_then(Value::as_str) == Some(kind)
}

/// Applies a change to the content of all messages in Anthropic's format.
fn each_content(body: &mut Value, change: fn(&mut Vec<Value>)) {
    let messages = body.get_mut("messages").and_then(Value::as_array_mut);
    for message in messages.into_iter().flatten() {
        if let Some(content) = message.get_mut("content").and_then(Value::as_array_mut) {
            change(content);
        }
    }
}

fn drop_thinking(body: &mut Value) {
    each_content(body, |content| content.retain(|part| !is_type(part, "thinking")));
}

fn truncate_signatures(body: &mut Value) {
    each_content(body, |content| content.iter_mut().for_each(|part| cut(part, "signature")));
}

fn drop_reasoning(body: &mut Value) {
    if let Some(input) = body.get_mut("input").and_then(Value::as_array_mut) {
        input.retain(|item| !is_type(item, "reasoning"));
    }
}

fn truncate_encrypted(body: &mut Value) {
    let input = body.get_mut("input").and_then(Value::as_array_mut);
    input.into_iter().flatten().for_each(|item| cut(item, "encrypted_content"));
}

/// Truncates a string to its first half.
fn cut(part: &mut Value, key: &str) {
    let Some(Value::String(text)) = part.get_mut(key) else { return };
    text.truncate(text.floor_char_boundary(text.len() / 2));
}

/// HTTP client for the simulators and the gateway.
struct Client(Http);

/// A response.
struct HttpResponse {
    status: u16,
    headers: Vec<(Name, Name)>,
    body: Value,
}

impl Client {
    fn new(stage: &DemoProcesses) -> Result<Self, Failure> {
        let simulators = stage.simulators();
        let row = |name: &str| Catalog::builtin().provider(name).context("a row is missing");
        let addresses = [
            ("anthropic", format!("{simulators}/at/anthropic"), row("anthropic")?),
            ("openai", format!("{simulators}/at/openai"), row("openai")?),
            ("gateway", stage.gateway_url(), row("anthropic")?),
        ];
        let mut lines = Vec::new();
        for (name, address, row) in addresses {
            // Seals are bound to an account, so this client uses the agent's account.
            let key = CredentialSource::Key(Credential::new(KEY));
            let line = Endpoint::new(name, row, &address, key);
            lines.push(line.context("an address of the demo is invalid")?);
        }
        let http = Http::new(lines, Arc::new(crate::clock::now));
        Ok(Self(http.context("the lossy client cannot be started")?))
    }

    async fn post(&self, to: &str, path: &str, body: &Value) -> Result<HttpResponse, Failure> {
        self.send("POST", to, path, &body.to_string()).await
    }

    async fn send(
        &self,
        method: &str,
        to: &str,
        path: &str,
        body: &str,
    ) -> Result<HttpResponse, Failure> {
        let outgoing = UpstreamRequest {
            endpoint: Name::from(to),
            model: None,
            method: Name::from(method),
            path: Name::from(path),
            headers: vec![(Name::from("content-type"), Name::from("application/json"))],
            body: body.to_owned().into(),
            credential: None,
        };
        let answer =
            self.0.send(outgoing).await.with_context(|| format!("no response from {to}"))?;
        let (status, headers) = (answer.status, answer.headers);
        let mut chunks = answer.body;
        let mut bytes = Vec::new();
        while let Some(chunk) = chunks.next().await {
            bytes.extend_from_slice(
                &chunk.with_context(|| format!("the response of {to} was interrupted"))?,
            );
        }
        let body = serde_json::from_slice(&bytes).unwrap_or_default();
        Ok(HttpResponse { status, headers, body })
    }
}

impl HttpResponse {
    /// Returns the provider's error message.
    fn problem(&self) -> String {
        let message = self.body.get("error").and_then(|error| error.get("message"));
        message.and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    fn header(&self, name: &str) -> String {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.to_string()).unwrap_or_default()
    }
}
