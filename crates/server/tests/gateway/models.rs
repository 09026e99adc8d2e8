//! Tests the contracts of recent models through the gateway, with clients that drop all reasoning.

use serde_json::{Value, json};
use throughline_server::{PrefixPolicy, ReplayMode};

use crate::harness::{ClientDialect, GatewayOptions, SimGateway};

/// Models that require their reasoning back.
const DEMANDING: [&str; 11] = [
    "sim/claude-fable-5-2",
    "sim/claude-mythos-5-2",
    "sim/claude-opus-5-5",
    "sim/claude-sonnet-5-5",
    "sim/claude-haiku-5-5",
    "sim/gpt-6-sol",
    "sim/gpt-6-astra",
    "sim/gpt-6.1-sol",
    "sim/gemini-4-argon",
    "sim/deepseek-flash",
    "sim/kimi-k3",
];

/// Models that accept requests without their reasoning.
const UNDEMANDING: [&str; 2] = ["sim/qwen3.8-max", "sim/mistral-medium-3.5"];

/// Models that bind their Thoughts to the prefix.
const BOUND: [&str; 6] = [
    "sim/claude-fable-5-2",
    "sim/claude-mythos-5-1",
    "sim/claude-mythos-5-2",
    "sim/claude-opus-5-5",
    "sim/claude-sonnet-5-5",
    "sim/claude-haiku-5-5",
];

/// No provider refuses a request, although the client returns no reasoning. Models that seal their
/// reasoning get all Seals of the open tool loop back.
#[tokio::test(flavor = "multi_thread")]
async fn recent_models_accept_clients_that_drop_reasoning() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    for model in DEMANDING.into_iter().chain(UNDEMANDING) {
        for dialect in [ClientDialect::Messages, ClientDialect::Chat] {
            let turns = gateway.converse(dialect, model, false, true).await;
            assert!(turns >= 3, "{dialect:?} → {model}: {turns} turns");
        }
    }
    gateway.assert_nothing_refused();
    for entry in gateway.ledger().entries {
        let is_sealed =
            ["claude", "gpt", "gemini"].iter().any(|name| entry.model.starts_with(name));
        assert!(!is_sealed || entry.lost == 0, "{}: {entry:?}", entry.model);
    }
}

/// Sends a tool loop whose system prompt changed after the first request. Returns the status of the
/// second response, and the errors that the provider returned, one per request that it received.
async fn change_system(policy: PrefixPolicy, model: &str) -> (u16, Vec<Option<String>>) {
    let options = GatewayOptions { prefix: policy, ..GatewayOptions::of(ReplayMode::Repair) };
    let gateway = SimGateway::open_with(options, throughline_sim::Options::default()).await;
    let tool = json!({"name": "get_weather", "input_schema": {"type": "object", "properties": {}}});
    let mut messages = vec![json!({"role": "user", "content": "How is Paris?"})];
    let request = |system: &str, messages: &[Value]| json!({"model": model, "max_tokens": 4096, "system": system, "tools": [tool], "messages": messages});
    let headers = [("content-type", "application/json"), ("anthropic-version", "2023-06-01")];
    let send = async |body: Value| {
        let body = body.to_string().into_bytes();
        let (status, _, body) = gateway.send("POST", "/v1/messages", body, &headers).await;
        (status, serde_json::from_slice::<Value>(&body).unwrap())
    };
    let (status, response) = send(request("Be brief.", &messages)).await;
    assert_eq!(status, 200, "{model}: {response}");
    let content = response["content"].as_array().unwrap();
    let call = content.iter().find(|block| block["type"] == "tool_use").unwrap();
    let result = json!({"type": "tool_result", "tool_use_id": call["id"], "content": "sunny"});
    messages.push(json!({"role": "assistant", "content": content}));
    messages.push(json!({"role": "user", "content": [result]}));
    let (status, _) = send(request("Be long-winded.", &messages)).await;
    (status, gateway.ledger().entries.into_iter().map(|entry| entry.refused).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_prefix_is_handled_as_configured_on_each_bound_model() {
    for model in BOUND {
        let dropped = change_system(PrefixPolicy::DropBlock, model).await;
        assert_eq!(dropped, (200, vec![None, None]), "{model}");
        // The gateway refuses the second request, so the provider does not receive it.
        let refused = change_system(PrefixPolicy::Error, model).await;
        assert_eq!(refused, (400, vec![None]), "{model}");
    }
}
