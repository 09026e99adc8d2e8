//! Tests for behaviour common to all wires: faults, scripts, determinism, the ledger and shutdown.

use crate::common::{get, post, send, simulator};
use serde_json::{Value, json};
use throughline_sim::{Fault, FaultKind, Options, Script, start};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PATH: &str = "/v1/messages";
const KEY: &[(&str, &str)] = &[("x-api-key", "key-one"), ("anthropic-version", "2023-06-01")];

fn tools(names: &[&str]) -> Value {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    names.iter().map(|name| json!({"name": name, "input_schema": schema})).collect()
}

fn request() -> Value {
    json!({
        "model": "claude-opus-4-6",
        "max_tokens": 4096,
        "thinking": {"type": "adaptive"},
        "tools": tools(&["weather", "news"]),
        "messages": [{"role": "user", "content": "How is Zürich today?"}],
    })
}

fn streamed() -> Value {
    let mut request = request();
    request["stream"] = json!(true);
    request
}

async fn with_fault(fault: &str, body: &Value) -> crate::common::HttpResponse {
    let headers = [KEY, &[("x-sim-fault", fault)]].concat();
    post(&simulator().await, PATH, &headers, body).await
}

#[tokio::test]
async fn the_same_seed_gives_the_same_bytes() {
    for body in [request(), streamed()] {
        let (one, two) = (simulator().await, simulator().await);
        // Another request in between must not affect the response.
        post(&two, PATH, KEY, &json!({"model": "claude-x", "max_tokens": 1, "messages": []})).await;
        let first = post(&one, PATH, KEY, &body).await;
        assert_eq!(first.body, post(&two, PATH, KEY, &body).await.body);
        assert_ne!(first.body, post(&one, PATH, KEY, &body).await.body, "a second answer is new");
        let other = start(Options { seed: 1, ..Options::default() }).await.unwrap();
        assert_ne!(first.body, post(&other, PATH, KEY, &body).await.body);
    }
}

#[tokio::test]
async fn seals_survive_a_restart_with_the_same_seed() {
    let first = post(&simulator().await, PATH, KEY, &request()).await.expect_ok();
    let mut request = request();
    let id = &first["content"][1]["id"];
    request["messages"].as_array_mut().unwrap().extend([
        json!({"role": "assistant", "content": first["content"]}),
        json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "x"}]}),
    ]);
    post(&simulator().await, PATH, KEY, &request).await.expect_ok();
    let other = start(Options { seed: 1, ..Options::default() }).await.unwrap();
    let error = post(&other, PATH, KEY, &request).await.expect_error(400);
    assert_eq!(error, "messages.1.content.0: Invalid `signature` in `thinking` block");
}

#[tokio::test]
async fn cut_fault_truncates_the_body() {
    for body in [request(), streamed()] {
        let complete = post(&simulator().await, PATH, KEY, &body).await;
        let cut = with_fault("cut@120", &body).await;
        assert!(cut.was_cut);
        assert_eq!(cut.body, complete.body[..120]);
        assert!(!complete.was_cut);
    }
}

#[tokio::test]
async fn injected_errors_use_the_provider_format() {
    let limited = with_fault("429:30", &request()).await;
    assert_eq!(limited.status, 429);
    assert_eq!(limited.headers["retry-after"], "30");
    assert_eq!(limited.json()["error"]["type"], "rate_limit_error");
    let overloaded = with_fault("529", &streamed()).await;
    assert_eq!(overloaded.expect_error(529), "Overloaded");
    assert_eq!(overloaded.json()["error"]["type"], "overloaded_error");
    assert_eq!(with_fault("500", &request()).await.json()["error"]["type"], "api_error");
    let error = with_fault("flood", &request()).await.expect_error(400);
    assert!(error.starts_with("`flood` is not a fault: try cut@200"), "{error}");
}

#[tokio::test]
async fn drip_garbage_and_duplicate_faults_change_the_bytes() {
    let complete = post(&simulator().await, PATH, KEY, &streamed()).await;
    assert_eq!(with_fault("drip", &streamed()).await.body, complete.body);
    let garbage = with_fault("garbage@50", &streamed()).await.body;
    assert!(garbage.len() > complete.body.len());
    assert_eq!((&garbage[..50], &garbage[50..52]), (&complete.body[..50], &b"\xff\xfe"[..]));
    let twice = with_fault("duplicate", &streamed()).await;
    assert_eq!(twice.body.len(), 2 * complete.body.len());
    let events = twice.events();
    assert_eq!(events[0], events[1]);
}

#[tokio::test]
async fn stalled_response_ends_when_the_simulator_stops() {
    let simulator = simulator().await;
    let body = streamed().to_string();
    let mut connection = TcpStream::connect(simulator.address()).await.unwrap();
    let request = format!(
        "POST {PATH} HTTP/1.1\r\nhost: x\r\nx-sim-fault: stall\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut first = [0; 64];
    assert!(connection.read(&mut first).await.unwrap() > 0);
    simulator.stop().await;
    let mut rest = Vec::new();
    connection.read_to_end(&mut rest).await.unwrap();
    assert!(!String::from_utf8_lossy(&rest).contains("message_stop"));
}

#[tokio::test]
async fn fault_can_affect_a_single_request() {
    let faults = vec![Fault { kind: FaultKind::Status(503, None), only: Some(2) }];
    let simulator = start(Options { faults, ..Options::default() }).await.unwrap();
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(post(&simulator, PATH, KEY, &request()).await.status);
    }
    assert_eq!(statuses, [200, 503, 200]);
    assert_eq!("503#2".parse::<Fault>().unwrap().only, Some(2));
}

#[tokio::test]
async fn tools_are_called_in_parallel_if_requested() {
    let calls = |answer: &Value| {
        let content = answer["content"].as_array().unwrap();
        content.iter().filter(|block| block["type"] == "tool_use").count()
    };
    let simulator = simulator().await;
    assert_eq!(calls(&post(&simulator, PATH, KEY, &request()).await.expect_ok()), 1);
    let parallel = [KEY, &[("x-sim-parallel", "true")]].concat();
    assert_eq!(calls(&post(&simulator, PATH, &parallel, &request()).await.expect_ok()), 2);
    let always = start(Options { parallel: true, ..Options::default() }).await.unwrap();
    assert_eq!(calls(&post(&always, PATH, KEY, &request()).await.expect_ok()), 2);
    let mut single = request();
    single["tool_choice"] = json!({"type": "auto", "disable_parallel_tool_use": true});
    assert_eq!(calls(&post(&always, PATH, KEY, &single).await.expect_ok()), 1);
}

#[tokio::test]
async fn script_determines_replies() {
    let script: Script = r#"
        [[turn]]
        refuse = { status = 529, message = "Too much.", kind = "overloaded_error" }

        [[turn]]
        parts = [
            { thought = "Secret.", telling = "redacted" },
            { thought = "Unsaid.", telling = "seal-only" },
            { text = "One moment…" },
            { call = "news", arguments = { city = "Bern" } },
        ]
        usage = { input = 100, cached = 90, output = 7, thought = 3 }

        [[turn]]
        model = "claude-opus-4-6"
        step = 1
        texts = ["Cut sh"]
        stop = "length"
    "#
    .parse()
    .unwrap();
    let simulator = start(Options { script, ..Options::default() }).await.unwrap();
    assert_eq!(post(&simulator, PATH, KEY, &request()).await.expect_error(529), "Too much.");

    let first = post(&simulator, PATH, KEY, &request()).await.expect_ok();
    let content = first["content"].as_array().unwrap();
    let kinds: Vec<&str> = content.iter().filter_map(|block| block["type"].as_str()).collect();
    assert_eq!(kinds, ["redacted_thinking", "thinking", "text", "tool_use"]);
    assert_eq!(content[1]["thinking"], "");
    assert_eq!(content[3]["input"], json!({"city": "Bern"}));
    assert_eq!(first["usage"]["cache_read_input_tokens"], 90);
    assert_eq!(first["usage"]["input_tokens"], 10);
    assert_eq!(first["usage"]["output_tokens_details"]["thinking_tokens"], 3);

    // No scripted turn matches a new conversation, so the simulator generates a reply.
    let generated = post(&simulator, PATH, KEY, &request()).await.expect_ok();
    assert_eq!(generated["stop_reason"], "tool_use");

    let mut next = request();
    next["messages"].as_array_mut().unwrap().extend([
        json!({"role": "assistant", "content": content}),
        json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": content[3]["id"], "content": "x"}]}),
    ]);
    let second = post(&simulator, PATH, KEY, &next).await.expect_ok();
    assert_eq!(second["stop_reason"], "max_tokens");
    assert_eq!(second["content"], json!([{"type": "text", "text": "Cut sh"}]));

    // Swapped blocks are rejected, because each Seal is bound to its position.
    next["messages"][1]["content"].as_array_mut().unwrap().swap(0, 1);
    let error = post(&simulator, PATH, KEY, &next).await.expect_error(400);
    assert!(error.starts_with("messages.1.content.1: `thinking`"), "{error}");
}

#[tokio::test]
async fn generated_arguments_match_their_schema() {
    let mut body = request();
    body["tools"] = json!([{"name": "plan", "input_schema": {
        "type": "object",
        "$defs": {"stop": {"type": "object", "required": ["at"], "properties": {
            "at": {"type": "string", "format": "date-time"},
            "next": {"$ref": "#/$defs/stop"},
        }}},
        "required": ["mode", "stops", "seats", "ratio", "fixed", "code"],
        "properties": {
            "mode": {"enum": ["rail", "boat"]},
            "stops": {"type": "array", "minItems": 2, "items": {"$ref": "#/$defs/stop"}},
            "seats": {"type": "integer", "minimum": 10, "maximum": 12},
            "ratio": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            "fixed": {"const": 4},
            "code": {"type": ["string", "null"], "minLength": 30},
            "maybe": {"anyOf": [{"type": "null"}, {"type": "boolean"}]},
        },
    }}]);
    let answer = post(&simulator().await, PATH, KEY, &body).await.expect_ok();
    let input = &answer["content"][1]["input"];
    assert!(["rail", "boat"].contains(&input["mode"].as_str().unwrap()));
    assert_eq!(input["stops"][1]["at"], "2026-11-15T09:30:00Z");
    assert_eq!((&input["seats"], &input["ratio"]), (&json!(10), &json!(0.5)));
    assert_eq!((&input["fixed"], input.get("maybe")), (&json!(4), None), "no optional member");
    assert_eq!(input["code"].as_str().unwrap().chars().count(), 30);
}

#[tokio::test]
async fn structured_replies_match_their_schema() {
    let mut body = request();
    body["tools"] = json!([]);
    body["output_config"] = json!({"format": {"type": "json_schema", "schema": {
        "type": "object", "properties": {"days": {"type": "integer"}}, "required": ["days"]}}});
    let answer = post(&simulator().await, PATH, KEY, &body).await.expect_ok();
    let text = answer["content"][1]["text"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(text).unwrap(), json!({"days": 7}));
}

#[tokio::test]
async fn ledger_endpoint_exposes_no_seals() {
    let simulator = simulator().await;
    let answer = post(&simulator, PATH, KEY, &request()).await.expect_ok();
    let signature = answer["content"][0]["signature"].as_str().unwrap();
    let ledger = get(&simulator, "/sim/ledger", &[]).await;
    let body = ledger.json();
    assert_eq!(body["entries"][0]["issued"][0]["kind"], "thinking");
    assert_eq!(body["entries"][0]["stop"], "tools");
    assert!(!ledger.text().contains(signature));
    assert!(!format!("{:?}", simulator.ledger()).contains(signature));
    assert!(!ledger.text().contains("key-one"));
}

#[tokio::test]
async fn unknown_paths_return_the_provider_404() {
    let simulator = simulator().await;
    let anthropic = get(&simulator, "/v1/nothing", KEY).await;
    assert_eq!(anthropic.expect_error(404), "Not found");
    assert_eq!(anthropic.json()["error"]["type"], "not_found_error");
    assert_eq!(get(&simulator, "/at/unknown/v1/messages", KEY).await.status, 404);
    let wrong = send(&simulator, "GET", PATH, KEY, Vec::new()).await;
    assert_eq!(wrong.expect_error(405), "Method Not Allowed");
    let broken = send(&simulator, "POST", PATH, KEY, b"{\"model\": ".to_vec()).await;
    assert!(broken.expect_error(400).starts_with("The request body is not valid JSON"));
    let headers = [KEY, &[("x-sim-account-created", "yesterday")]].concat();
    let error = post(&simulator, PATH, &headers, &request()).await.expect_error(400);
    assert_eq!(error, "x-sim-account-created is not a date; write it as 2026-08-31");
}
