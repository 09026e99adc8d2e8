//! Tests that runs are limited by the key that started them and by the operator's caps.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use throughline_server::RunCaps;
use throughline_testkit::figure;
use tokio::sync::oneshot;

use crate::harness::begin;
use crate::house::{ANSWER, RawProvider, http_response};
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

/// Returns the usage of a key.
async fn usage(gateway: &AgentGateway, key: &str) -> Value {
    request_as(gateway, key, "GET", "/v1/throughline/usage", &json!(null)).await
}

/// Returns the cost of all calls of a key in millionths of a dollar.
async fn spent(gateway: &AgentGateway, key: &str) -> u64 {
    usage(gateway, key).await["used"]["micro_usd"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn key_limits_end_a_run_before_it_exceeds_its_budget() {
    let gateway = AgentGateway::open().await;
    gateway.keys.set_budget("us.half", 500_000);
    let ada = agent(&gateway, "us.half").await;
    let path = format!("/v1/agents/{ada}/messages");
    let response =
        request_as(&gateway, "us.half", "POST", &path, &user_message("The weather, forever."))
            .await;
    assert_eq!(response["stop_reason"]["stop_reason"], "insufficient_credits", "{response}");
    let calls = gateway.model_calls.load(Ordering::SeqCst);
    let used = spent(&gateway, "us.half").await;
    figure("a run with a budget of $0.50", format!("{calls} calls, {used} millionths of a dollar"));
    assert!(calls > 0 && used <= 500_000, "{calls} calls used {used}");
    assert_eq!(used, calls * 10_000, "every call is charged once");
    let run = response["messages"][0]["run_id"].as_str().unwrap();
    let reason = reason(&gateway, "us.half", run).await;
    let expected = "limit reached: keyBudget: the budget of $0.50 of the key us.half has $";
    assert!(reason.starts_with(expected) && reason.contains("this call may use"), "{reason}");
    // After the budget was raised, the conversation continues where it ended.
    let tools = gateway.ran.lock().unwrap().len();
    gateway.keys.set_budget("us.half", 10_000_000);
    let response =
        request_as(&gateway, "us.half", "POST", &path, &user_message("What did they say?")).await;
    assert_eq!(response["stop_reason"]["stop_reason"], "end_turn", "{response}");
    assert_eq!(gateway.model_calls.load(Ordering::SeqCst), calls + 1);
    assert_eq!(gateway.ran.lock().unwrap().len(), tools, "no tool runs again");
    let history = request_as(&gateway, "us.half", "GET", &path, &json!(null)).await.to_string();
    assert!(history.contains("get_weather"), "{history}");
}

#[tokio::test(flavor = "multi_thread")]
async fn key_limits_refuse_a_message_after_the_budget_is_spent() {
    let gateway = AgentGateway::open().await;
    gateway.keys.set_budget("us.half", 500_000);
    let ada = agent(&gateway, "us.half").await;
    let path = format!("/v1/agents/{ada}/messages");
    // The call uses more than was estimated.
    request_as(&gateway, "us.half", "POST", &path, &user_message("An expensive one")).await;
    assert_eq!(spent(&gateway, "us.half").await, 500_000);
    let (status, body) = gateway.send("us.half", "POST", &path, &user_message("Hello")).await;
    assert_eq!(status, 402, "{}", String::from_utf8_lossy(&body));
    assert_eq!(gateway.model_calls.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn key_limits_charge_a_cancelled_call_by_its_estimate() {
    let gateway = AgentGateway::open().await;
    gateway.keys.set_budget("us.half", 500_000);
    let ada = agent(&gateway, "us.half").await;
    let path = format!("/v1/agents/{ada}/messages");
    let run = format!("{path}/async");
    let run = request_as(&gateway, "us.half", "POST", &run, &user_message("slow")).await;
    while gateway.model_calls.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let before = usage(&gateway, "us.half").await;
    assert_eq!(before["used"]["calls"], 0, "{before}");
    assert!(before["budgets"][0]["reserved"].as_u64().unwrap() > 0, "{before}");
    request_as(&gateway, "us.half", "POST", &format!("{path}/cancel"), &json!({})).await;
    ended(&gateway, "us.half", run["id"].as_str().unwrap()).await;
    // The model call is stopped after the end of the run is stored.
    let after = loop {
        let usage = usage(&gateway, "us.half").await;
        if usage["budgets"][0]["used"] != 0 {
            break usage;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(after["used"]["calls"], 1, "{after}");
    let cost = after["used"]["micro_usd"].as_u64().unwrap();
    assert_eq!(after["budgets"][0]["used"], cost, "{after}");
    assert!(cost > 0, "{after}");
}

/// The provider may have processed a call without a response.
#[tokio::test(flavor = "multi_thread")]
async fn key_limits_charge_a_call_that_gets_lost_by_its_estimate() {
    let gateway = AgentGateway::open().await;
    gateway.keys.set_budget("us.half", 500_000);
    let ada = agent(&gateway, "us.half").await;
    let path = format!("/v1/agents/{ada}/messages");
    let response = request_as(&gateway, "us.half", "POST", &path, &user_message("Get lost")).await;
    assert_eq!(response["stop_reason"]["stop_reason"], "llm_api_error", "{response}");
    let used = usage(&gateway, "us.half").await;
    assert_eq!(used["used"]["calls"], gateway.model_calls.load(Ordering::SeqCst), "{used}");
    let cost = used["used"]["micro_usd"].as_u64().unwrap();
    assert!(cost > 0 && used["budgets"][0]["used"] == cost, "{used}");
}

/// Sends model calls with a key until its budget does not cover another one. Returns the number of
/// successful calls.
async fn call_until_spent(gateway: &AgentGateway, key: &str) -> u64 {
    let text = "word ".repeat(200);
    let body = json!({"model": MODEL, "max_tokens": 100,
        "messages": [{"role": "user", "content": text}]});
    let mut calls = 0;
    loop {
        let (status, response) = gateway.send(key, "POST", "/v1/messages", &body).await;
        match status {
            200 => calls += 1,
            402 => return calls,
            // Other calls have reserved the rest.
            429 => tokio::time::sleep(Duration::from_millis(20)).await,
            _ => panic!("{status}: {}", String::from_utf8_lossy(&response)),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_runs_and_calls_never_exceed_a_budget() {
    const BUDGET: u64 = 1_500_000;
    let provider =
        RawProvider::with_reply(http_response("200 OK", "application/json", ANSWER)).await;
    let gateway = AgentGateway::open().await.with_provider(&provider.url).await;
    gateway.keys.set_budget("us.half", BUDGET);
    let run = async || {
        let path = format!("/v1/agents/{}/messages", agent(&gateway, "us.half").await);
        let text = user_message("The weather, forever.");
        let response = request_as(&gateway, "us.half", "POST", &path, &text).await;
        assert_eq!(response["stop_reason"]["stop_reason"], "insufficient_credits", "{response}");
        0
    };
    let call = async || call_until_spent(&gateway, "us.half").await;
    let mut most = 0;
    let watch = async {
        loop {
            let usage = usage(&gateway, "us.half").await;
            let number = |name: &str| usage["budgets"][0][name].as_u64().unwrap();
            let (used, reserved) = (number("used"), number("reserved"));
            assert!(used + reserved <= BUDGET, "{usage}");
            most = most.max(used + reserved);
        }
    };
    let work = futures_util::future::join_all([
        Box::pin(run()) as Pin<Box<dyn Future<Output = u64>>>,
        Box::pin(run()),
        Box::pin(run()),
        Box::pin(run()),
        Box::pin(call()),
        Box::pin(call()),
        Box::pin(call()),
    ]);
    let calls: u64 = tokio::select! {
        calls = work => calls.iter().sum(),
        () = watch => unreachable!("the watch does not end"),
    };
    let of_runs = gateway.model_calls.load(Ordering::SeqCst);
    // A call of a client is charged after its response has ended.
    let used = loop {
        let used = usage(&gateway, "us.half").await["used"].clone();
        if used["calls"].as_u64().unwrap() >= of_runs + calls {
            break used["micro_usd"].as_u64().unwrap();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let shown = format!(
        "{of_runs} of runs, {calls} of clients, ${}.{:02}",
        used / 1_000_000,
        used / 10_000 % 100
    );
    figure("calls within a budget of $1.50", shown);
    assert!(of_runs > 4 && calls > 3, "{of_runs} calls of runs, {calls} calls");
    assert_eq!(used, (of_runs + calls) * 10_000, "every call is charged once");
    assert!(used <= BUDGET && most <= BUDGET, "{used}, {most}");
}

#[tokio::test(flavor = "multi_thread")]
async fn key_limits_refuse_reflections_and_summaries_after_the_budget() {
    let gateway = AgentGateway::open().await;
    gateway.keys.set_budget("us.half", 500_000);
    let reflection = json!({"cadence": "after_tool", "mode": "separate", "maxPerRun": 99});
    let body = json!({"name": "Ada", "model": MODEL, "tools": ["get_weather"],
        "throughline": {"reasoning": {"level": "high", "reflection": reflection}}});
    let ada = request_as(&gateway, "us.half", "POST", "/v1/agents/", &body).await;
    let ada = ada["id"].as_str().unwrap();
    let path = format!("/v1/agents/{ada}/messages");
    // After this call, turns and reflections alternate until the budget does not cover the next
    // call.
    request_as(&gateway, "us.half", "POST", &path, &user_message("Hello")).await;
    let response =
        request_as(&gateway, "us.half", "POST", &path, &user_message("The weather, forever."))
            .await;
    assert_eq!(response["stop_reason"]["stop_reason"], "insufficient_credits", "{response}");
    let run = response["messages"][0]["run_id"].as_str().unwrap();
    let journal = format!("/v1/throughline/runs/{run}/journal");
    let journal = request_as(&gateway, "us.half", "GET", &journal, &json!(null)).await;
    let events = journal.as_array().unwrap().iter().map(|one| &one["data"]);
    let answers: Vec<bool> = events
        .filter(|event| event["type"] == "usage")
        .map(|event| event["purpose"] == "reflection")
        .collect();
    let alternating: Vec<bool> = (0..answers.len()).map(|index| index % 2 == 1).collect();
    assert_eq!(answers, alternating);
    let calls = gateway.model_calls.load(Ordering::SeqCst);
    assert!(calls > 2, "a reflection was allowed");
    assert_eq!(calls, 1 + answers.len() as u64);
    let used = spent(&gateway, "us.half").await;
    assert!(used == calls * 10_000 && used <= 500_000, "{used}");
    gateway.keys.set_budget("us.half", used);
    let summary = format!("/v1/conversations/{ada}/compact");
    let (status, error) = gateway.send("us.half", "POST", &summary, &json!({})).await;
    assert_eq!(status, 402, "{}", String::from_utf8_lossy(&error));
    assert_eq!(gateway.model_calls.load(Ordering::SeqCst), calls, "no summary was requested");
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
