//! Tests that runs are limited by the key that started them and by the operator's caps.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use throughline_server::RunCaps;
use throughline_testkit::figure;
use tokio::sync::oneshot;

use crate::harness::begin;
use crate::letta::scene::{AgentGateway, MODEL};

/// Sends a request with a key, checks that the request succeeds, and returns the response.
async fn request_as(
    gateway: &AgentGateway,
    key: &str,
    method: &str,
    path: &str,
    body: &Value,
) -> Value {
    let (status, bytes) = gateway.send(key, method, path, body).await;
    assert_eq!(status, 200, "{method} {path}: {}", String::from_utf8_lossy(&bytes));
    serde_json::from_slice(&bytes).unwrap()
}

/// Creates an agent for a key. After the message `forever`, the agent's model calls a tool again
/// and again.
async fn agent(gateway: &AgentGateway, key: &str) -> String {
    let body = json!({"name": "Ada", "model": MODEL, "tools": ["get_weather"]});
    request_as(gateway, key, "POST", "/v1/agents/", &body).await["id"].as_str().unwrap().to_owned()
}

fn user_message(text: &str) -> Value {
    json!({"messages": [{"role": "user", "content": text}], "max_steps": 900})
}

/// Waits until a run is no longer running, and returns the run.
async fn ended(gateway: &AgentGateway, key: &str, run: &str) -> Value {
    loop {
        let run = request_as(gateway, key, "GET", &format!("/v1/runs/{run}"), &json!(null)).await;
        if run["status"] != "running" {
            return run;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Returns the reason why a run ended, as recorded in its Journal.
async fn reason(gateway: &AgentGateway, key: &str, run: &str) -> String {
    let path = format!("/v1/throughline/runs/{run}/journal");
    let journal = request_as(gateway, key, "GET", &path, &json!(null)).await;
    let mut events = journal.as_array().unwrap().iter().map(|one| &one["data"]);
    let last = events.rfind(|event| event["type"] == "run").unwrap();
    last["reason"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn key_limits_end_a_run_within_one_call_of_its_budget() {
    let gateway = AgentGateway::open().await;
    let ada = agent(&gateway, "us.tenth").await;
    let path = format!("/v1/agents/{ada}/messages");
    let response =
        request_as(&gateway, "us.tenth", "POST", &path, &user_message("The weather, forever."))
            .await;
    assert_eq!(response["stop_reason"]["stop_reason"], "insufficient_credits", "{response}");
    let calls = gateway.model_calls.load(Ordering::SeqCst);
    let used = request_as(&gateway, "us.tenth", "GET", "/v1/throughline/usage", &json!(null)).await;
    let spent = used["used"]["micro_usd"].as_u64().unwrap();
    figure(
        "a run with a budget of $0.10",
        format!("{calls} calls, {spent} millionths of a dollar"),
    );
    assert!((100_000..=110_000).contains(&spent), "{used}");
    assert_eq!(calls, 10);
    let run = response["messages"][0]["run_id"].as_str().unwrap();
    let reason = reason(&gateway, "us.tenth", run).await;
    assert!(
        reason.starts_with("limit reached: keyBudget: the key us.tenth has used up"),
        "{reason}"
    );
    // The next message with that key is refused before a run starts.
    let (status, body) = gateway.send("us.tenth", "POST", &path, &user_message("Hello")).await;
    assert_eq!(status, 402, "{}", String::from_utf8_lossy(&body));
    assert_eq!(gateway.model_calls.load(Ordering::SeqCst), calls);
}

#[tokio::test(flavor = "multi_thread")]
async fn key_limits_refuse_reflections_and_summaries_after_the_budget() {
    let gateway = AgentGateway::open().await;
    let reflection = json!({"cadence": "after_tool", "mode": "separate", "maxPerRun": 99});
    let body = json!({"name": "Ada", "model": MODEL, "tools": ["get_weather"],
        "throughline": {"reasoning": {"level": "high", "reflection": reflection}}});
    let ada = request_as(&gateway, "us.tenth", "POST", "/v1/agents/", &body).await;
    let ada = ada["id"].as_str().unwrap();
    let path = format!("/v1/agents/{ada}/messages");
    // The budget covers ten calls. After this call, turns and reflections alternate, so the
    // eleventh call is a reflection.
    request_as(&gateway, "us.tenth", "POST", &path, &user_message("Hello")).await;
    let response =
        request_as(&gateway, "us.tenth", "POST", &path, &user_message("The weather, forever."))
            .await;
    assert_eq!(response["stop_reason"]["stop_reason"], "insufficient_credits", "{response}");
    let run = response["messages"][0]["run_id"].as_str().unwrap();
    let journal = format!("/v1/throughline/runs/{run}/journal");
    let journal = request_as(&gateway, "us.tenth", "GET", &journal, &json!(null)).await;
    let events = journal.as_array().unwrap().iter().map(|one| &one["data"]);
    let answers: Vec<bool> = events
        .filter(|event| event["type"] == "usage")
        .map(|event| event["purpose"] == "reflection")
        .collect();
    assert_eq!(answers, [false, true, false, true, false, true, false, true, false]);
    assert_eq!(gateway.model_calls.load(Ordering::SeqCst), 10);
    let summary = format!("/v1/conversations/{ada}/compact");
    let (status, error) = gateway.send("us.tenth", "POST", &summary, &json!({})).await;
    assert_eq!(status, 402, "{}", String::from_utf8_lossy(&error));
    assert_eq!(gateway.model_calls.load(Ordering::SeqCst), 10, "no summary was requested");
}

#[tokio::test(flavor = "multi_thread")]
async fn key_limits_end_a_revoked_keys_run_before_its_next_call() {
    let gateway = AgentGateway::open().await;
    let ada = agent(&gateway, "us.gone").await;
    let path = format!("/v1/agents/{ada}/messages/async");
    gateway.permits.add_permits(3);
    let run = request_as(&gateway, "us.gone", "POST", &path, &user_message("slow, forever")).await;
    let run = run["id"].as_str().unwrap();
    while gateway.model_calls.load(Ordering::SeqCst) < 4 {
        tokio::task::yield_now().await;
    }
    gateway.keys.revoke("us.gone");
    gateway.permits.add_permits(100);
    let response = ended(&gateway, "us", run).await;
    let calls = gateway.model_calls.load(Ordering::SeqCst);
    figure("calls of a run after its key was revoked", calls - 4);
    assert_eq!((&response["status"], calls), (&json!("failed"), 4), "{response}");
    let reason = reason(&gateway, "us", run).await;
    assert!(
        reason.starts_with("limit reached: keyRevoked: the key us.gone was revoked"),
        "{reason}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn key_limits_hold_for_runs_that_another_process_takes_over() {
    let first = AgentGateway::open().await;
    let (stop, stopped) = oneshot::channel::<()>();
    let leaving = first.beside(async { drop(stopped.await) }).await;
    let ada = agent(&leaving, "us.gone").await;
    let path = format!("/v1/agents/{ada}/messages/async");
    let run = request_as(&leaving, "us.gone", "POST", &path, &user_message("slow, forever")).await;
    let run = run["id"].as_str().unwrap();
    while leaving.model_calls.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    first.keys.revoke("us.gone");
    stop.send(()).unwrap();
    let response = ended(&first, "us", run).await;
    assert_eq!(response["status"], "failed", "{response}");
    assert_eq!(first.model_calls.load(Ordering::SeqCst), 0, "the other process called no model");
    let reason = reason(&first, "us", run).await;
    assert!(reason.starts_with("limit reached: keyRevoked"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_caps_runs_and_steps_of_a_tenant() {
    let gateway = AgentGateway::capped(RunCaps { max_steps: 3, max_runs_per_tenant: 4 }).await;
    let (status, error) = {
        let ada = agent(&gateway, "us").await;
        gateway
            .send("us", "POST", &format!("/v1/agents/{ada}/messages"), &user_message("Hello"))
            .await
    };
    let error = String::from_utf8_lossy(&error).into_owned();
    assert_eq!(status, 422, "{error}");
    assert!(error.contains("max_steps: 900 is more than this server allows"), "{error}");
    // An agent without a step limit gets the cap.
    let ada = agent(&gateway, "us").await;
    let body = json!({"messages": [{"role": "user", "content": "The weather, forever."}]});
    let reply =
        request_as(&gateway, "us", "POST", &format!("/v1/agents/{ada}/messages"), &body).await;
    let run = reply["messages"][0]["run_id"].as_str().unwrap();
    assert!(reason(&gateway, "us", run).await.contains("maxToolCalls"));
    assert_eq!(gateway.model_calls.swap(0, Ordering::SeqCst), 4, "three steps and the last answer");
    // Active runs take the tenant's slots; further runs are refused with a `retry-after`.
    let slow = json!({"messages": [{"role": "user", "content": "slow"}]});
    for _ in 0..4 {
        let ada = agent(&gateway, "us").await;
        request_as(&gateway, "us", "POST", &format!("/v1/agents/{ada}/messages/async"), &slow)
            .await;
    }
    let ada = agent(&gateway, "us").await;
    let path = format!("/v1/agents/{ada}/messages/async");
    let mut refused = 0;
    for _ in 0..50 {
        let headers = [("authorization", "Bearer tl_us")];
        let body = slow.to_string().into_bytes();
        let response = begin(&gateway.url, "POST", &path, body, &headers).await;
        assert_eq!(response.status().as_u16(), 429);
        assert_eq!(response.headers()["retry-after"], "1");
        refused += 1;
    }
    // The share of another tenant is unaffected.
    let eve = agent(&gateway, "them").await;
    let hello = json!({"messages": [{"role": "user", "content": "Hello"}]});
    let reply =
        request_as(&gateway, "them", "POST", &format!("/v1/agents/{eve}/messages"), &hello).await;
    assert_eq!(reply["stop_reason"]["stop_reason"], "end_turn");
    figure("messages over a tenant's share that were refused", refused);
    // When these runs end, their slots are free again.
    gateway.permits.add_permits(100);
    loop {
        let (status, _) = gateway.send("us", "POST", &path, &slow).await;
        if status == 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
