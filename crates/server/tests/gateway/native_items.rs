//! Tests parts that only one provider defines: Anthropic's `mcp_tool_listing` and
//! `input_transformations`, and OpenAI's `configuration_update`.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use throughline_server::ReplayMode;

use crate::harness::{ClientDialect, GatewayOptions, SimGateway, begin, serve, upstream};

const HEADERS: [(&str, &str); 3] = [
    ("content-type", "application/json"),
    ("anthropic-version", "2023-06-01"),
    ("anthropic-beta", "thinking-binding-controls-2026-08-01"),
];

/// Sends a request to a model that binds its thoughts to the system prompt.
async fn send_bound(
    gateway: &SimGateway,
    system: &str,
    messages: &[Value],
    stream: bool,
) -> (String, Vec<Value>) {
    let binding = json!({"prefix_mismatch_behavior": "drop_block"});
    let thinking = json!({"type": "adaptive", "display": "summarized", "block_binding": binding});
    let body = json!({"model": "sim/claude-fable-5-1", "max_tokens": 4096, "system": system,
        "thinking": thinking, "messages": messages, "stream": stream});
    let sent = gateway.send("POST", "/v1/messages", body.to_string().into(), &HEADERS).await;
    let (status, headers, reply) = sent;
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&reply));
    let call = headers["x-throughline-call"].to_str().unwrap().to_owned();
    let messages = if stream {
        Vec::new()
    } else {
        ClientDialect::Messages.answer(&serde_json::from_slice(&reply).unwrap())
    };
    (call, messages)
}

/// Reads a call record once the call has ended.
async fn read_record(gateway: &SimGateway, call: &str) -> Value {
    let (status, record) = gateway.get(&format!("/v1/throughline/calls/{call}")).await;
    assert_eq!(status, 200, "{record:#}");
    record
}

/// If the provider reports that it dropped a thought, the call's Fates and a metric report the drop
/// too, although the gateway sent the thought.
#[tokio::test(flavor = "multi_thread")]
async fn thoughts_that_the_provider_dropped_are_reported() {
    for stream in [false, true] {
        // In this mode, the gateway sends every thought as received.
        let gateway = SimGateway::open(ReplayMode::Observe).await;
        let mut messages = vec![json!({"role": "user", "content": "Hello."})];
        let (first, reply) = send_bound(&gateway, "Be brief.", &messages, false).await;
        messages.extend(reply);
        messages.push(json!({"role": "user", "content": "And again."}));
        let (second, _) = send_bound(&gateway, "Be verbose.", &messages, stream).await;

        let record = read_record(&gateway, &second).await;
        let entry = json!({"type": "thinking_dropped", "path": "messages.1.content.0",
            "reason": "prefix_binding_mismatch"});
        assert_eq!(record["input_transformations"], json!([entry]), "{record:#}");
        let dropped = "elided: dropped by the provider: prefix_binding_mismatch";
        let fates = record["fates"].as_array().unwrap();
        let is_dropped = |fate: &&Value| fate["visible"] == dropped;
        let found: Vec<_> = fates.iter().filter(is_dropped).collect();
        assert_eq!(found.len(), 1, "{record:#}");
        assert_eq!(found[0]["seals"], json!([dropped]), "{record:#}");
        let before = read_record(&gateway, &first).await;
        assert_eq!(before["input_transformations"], Value::Null, "{before:#}");

        let (_, _, page) = gateway.send("GET", "/metrics", Vec::new(), &[]).await;
        let page = String::from_utf8(page.to_vec()).unwrap();
        let line = "throughline_input_transformations_total{type=\"thinking_dropped\",\
            reason=\"prefix_binding_mismatch\"} 1\n";
        assert!(page.contains(line), "{page}");
    }
}

/// A provider that returns one fixed reply and records the requests that it receives.
#[derive(Clone)]
struct FixedReply {
    reply: String,
    requests: Arc<Mutex<Vec<String>>>,
}

async fn answer(
    State(provider): State<FixedReply>,
    body: String,
) -> ([(&'static str, &'static str); 1], String) {
    provider.requests.lock().unwrap().push(body);
    ([("content-type", "application/json")], provider.reply)
}

/// Anthropic's listing of an MCP server's tools. Its members are not in alphabetical order.
const LISTING: &str =
    r#"{"type":"mcp_tool_listing","server_name":"files","tools":[{"name":"read","z":1,"a":null}]}"#;
const THINKING: &str = r#"{"type":"thinking","thinking":"Hm.","signature":"RXhhbXBsZQ=="}"#;
const CALL: &str = r#"{"type":"text","text":"I use a tool."},{"type":"tool_use","id":"toolu_01A","name":"f","input":{"n":1}}"#;

/// The listing goes back byte for byte, also if the client drops it.
#[tokio::test(flavor = "multi_thread")]
async fn mcp_tool_listing_goes_back_unchanged() {
    let whole = format!("[{LISTING},{THINKING},{CALL}]");
    let reply = format!(
        r#"{{"id":"msg_01A","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":{whole},"stop_reason":"tool_use","stop_sequence":null,"usage":{{"input_tokens":1,"output_tokens":1}}}}"#
    );
    let provider = FixedReply { reply, requests: Arc::default() };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(answer).with_state(provider.clone());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let options = GatewayOptions::of(ReplayMode::Repair);
    let (url, _journal, _folder) = serve(Arc::new(upstream(&address)), options).await;

    let request = |rest: &str| {
        format!(
            r#"{{"model":"claude-sonnet-4-5","max_tokens":4096,"thinking":{{"type":"enabled","budget_tokens":2048}},"messages":[{{"role":"user","content":"Read."}}{rest}]}}"#
        )
    };
    let continued = |content: &str| {
        request(&format!(
            r#",{{"role":"assistant","content":{content}}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"toolu_01A","content":"done"}}]}}"#
        ))
    };
    let [first, kept, dropped] =
        [request(""), continued(&whole), continued(&format!("[{THINKING},{CALL}]"))];
    for body in [&first, &kept, &dropped] {
        let body = body.clone().into_bytes();
        let response = begin(&url, "POST", "/v1/messages", body, &HEADERS).await;
        assert_eq!(response.status().as_u16(), 200);
        drop(response.into_body().collect().await.unwrap());
    }
    let requests = provider.requests.lock().unwrap().clone();
    assert_eq!(requests, [first, kept.clone(), kept]);
}

/// A `configuration_update` reaches a model of another provider as settings, and the simulated
/// OpenAI model reads it itself.
#[tokio::test(flavor = "multi_thread")]
async fn configuration_update_applies_to_every_provider() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let update = json!({"type": "configuration_update", "reasoning": {"effort": "high"}});
    let input = json!([{"role": "user", "content": "Hello."}, update]);
    for model in ["sim/gpt-5.2", "sim/claude-opus-5-5", "sim/gemini-3-pro-preview"] {
        let body = json!({"model": model, "input": input, "store": false,
            "reasoning": {"effort": "none", "summary": "auto"}});
        let body = body.to_string().into_bytes();
        let (status, reply) = gateway.raw("/v1/responses", body, &HEADERS).await;
        assert_eq!(status, 200, "{model}: {reply:#}");
        let output = reply["output"].as_array().unwrap();
        let reasoning = output.iter().find(|item| item["type"] == "reasoning");
        let summary = reasoning.unwrap_or_else(|| panic!("{model} does not reason: {reply:#}"));
        assert_eq!(summary["summary"].as_array().unwrap().len(), 1, "{model}: {reply:#}");
    }
    gateway.assert_nothing_refused();
}
