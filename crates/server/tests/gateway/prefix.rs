//! Tests callers that change the prefix that a model's Thoughts are bound to.

use crate::harness::{GatewayOptions, SimGateway};
use serde_json::{Value, json};
use throughline_server::{PrefixPolicy, ReplayMode};

const MODEL: &str = "sim/claude-fable-5-1";
const SYSTEM: &str = "You are a weather service.";

/// The definition of one tool, with its JSON keys in two different orders.
const TOOL: &str = r#"[{"name":"get_weather","input_schema":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}]"#;
const SAME_TOOL: &str = r#"[ {"input_schema": {"required":["city"],"properties":{"city":{"type":"string"}},"type":"object"}, "name":"get_weather"} ]"#;

async fn open_gateway(prefix: PrefixPolicy) -> SimGateway {
    let options = GatewayOptions { prefix, ..GatewayOptions::of(ReplayMode::Repair) };
    SimGateway::open_with(options, throughline_sim::Options::default()).await
}

/// Sends a request. Returns the status, the Fates header, the prefix header and the response.
async fn send_request(
    gateway: &SimGateway,
    system: &str,
    tools: &str,
    messages: &[Value],
) -> (u16, String, Option<String>, Value) {
    // The body is written by hand, because the test depends on its exact bytes.
    let body = format!(
        r#"{{"model":"{MODEL}","max_tokens":4096,"system":{},"tools":{tools},"messages":{}}}"#,
        json!(system),
        json!(messages)
    );
    let headers = [("content-type", "application/json"), ("anthropic-version", "2023-06-01")];
    let (status, headers, body) =
        gateway.send("POST", "/v1/messages", body.into_bytes(), &headers).await;
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let fates = text("x-throughline-fates").unwrap_or_default();
    (status, fates, text("x-throughline-prefix"), serde_json::from_slice(&body).unwrap())
}

/// Returns a conversation within a tool loop: the model reasoned, called a tool, and received the
/// result.
async fn begin_tool_loop(gateway: &SimGateway) -> Vec<Value> {
    let mut messages = vec![json!({"role": "user", "content": "What is the weather in Paris?"})];
    let (status, _, _, response) = send_request(gateway, SYSTEM, TOOL, &messages).await;
    assert_eq!(status, 200, "{response}");
    let content = response["content"].as_array().unwrap();
    assert!(content.iter().any(|block| block["type"] == "thinking"), "{response}");
    let call = content.iter().find(|block| block["type"] == "tool_use").unwrap();
    let result =
        json!({"type": "tool_result", "tool_use_id": call["id"], "content": "sunny, 21 degrees"});
    messages.push(json!({"role": "assistant", "content": content}));
    messages.push(json!({"role": "user", "content": [result]}));
    messages
}

#[tokio::test(flavor = "multi_thread")]
async fn formatting_changes_keep_the_original_prefix() {
    let gateway = open_gateway(PrefixPolicy::Freeze).await;
    let messages = begin_tool_loop(&gateway).await;
    let (status, fates, changed, response) =
        send_request(&gateway, SYSTEM, SAME_TOOL, &messages).await;
    assert_eq!((status, changed), (200, None), "{response}");
    assert!(fates.ends_with("elided=0"), "{fates}");
    gateway.assert_nothing_refused();
    let last = gateway.ledger().entries.into_iter().next_back().unwrap();
    assert_eq!(last.returned.len(), 1, "the thought was returned: {last:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_prefix_drops_thoughts_and_is_reported() {
    for policy in [PrefixPolicy::Freeze, PrefixPolicy::DropBlock] {
        let gateway = open_gateway(policy).await;
        let messages = begin_tool_loop(&gateway).await;
        let (status, fates, changed, response) =
            send_request(&gateway, "You are a pirate.", TOOL, &messages).await;
        assert_eq!((status, changed.as_deref()), (200, Some("system")), "{policy:?}: {response}");
        assert!(!fates.ends_with("elided=0"), "{policy:?}: {fates}");
        gateway.assert_nothing_refused();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_policies_refuse_a_changed_prefix() {
    for policy in [PrefixPolicy::FreezeOrError, PrefixPolicy::Error] {
        let gateway = open_gateway(policy).await;
        let messages = begin_tool_loop(&gateway).await;
        let requests = gateway.requests();
        let (status, _, _, response) =
            send_request(&gateway, "You are a pirate.", TOOL, &messages).await;
        assert_eq!(status, 400, "{policy:?}: {response}");
        let message = response["error"]["message"].as_str().unwrap();
        assert!(message.contains("`system`"), "{policy:?}: {message}");
        assert_eq!(gateway.requests(), requests, "{policy:?}: the provider received no request");
        // The stricter policy refuses even a change in formatting.
        let (status, _, _, response) = send_request(&gateway, SYSTEM, SAME_TOOL, &messages).await;
        let expected = if policy == PrefixPolicy::Error { 400 } else { 200 };
        assert_eq!(status, expected, "{policy:?}: {response}");
    }
}

/// Without repair, the gateway forwards the request unchanged, and the provider refuses the
/// request.
#[tokio::test(flavor = "multi_thread")]
async fn changed_prefix_is_refused_by_the_provider_without_repair() {
    let gateway = SimGateway::open(ReplayMode::Observe).await;
    let messages = begin_tool_loop(&gateway).await;
    let (status, _, _, response) =
        send_request(&gateway, "You are a pirate.", TOOL, &messages).await;
    assert_eq!(status, 400, "{response}");
    let message = response["error"]["message"].as_str().unwrap();
    assert!(message.contains("bound to a different conversation"), "{message}");
}
