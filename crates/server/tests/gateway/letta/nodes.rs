//! Tests several processes on one store: each process can drive and follow any run.

use std::sync::atomic::Ordering;

use serde_json::json;
use tokio::sync::oneshot;

use crate::letta::scene::{AgentGateway, kinds, user_message};

#[tokio::test(flavor = "multi_thread")]
async fn another_process_can_follow_and_decide_a_run() {
    let first = AgentGateway::open().await;
    let second = first.beside(std::future::pending()).await;
    let agent = first.agent(&json!({})).await;
    let path = format!("/v1/agents/{agent}/messages");
    let run = first.request("POST", &format!("{path}/async"), &user_message("Be slow.")).await;
    let run = run["id"].as_str().unwrap();
    first.permits.add_permits(1);
    let frames = second.stream(&format!("/v1/runs/{run}/stream"), &json!({})).await;
    let frames: Vec<_> =
        frames.into_iter().filter(|frame| frame["message_type"] != "ping").collect();
    let again =
        first.stream(&format!("/v1/runs/{run}/stream"), &json!({"starting_after": 0})).await;
    assert_eq!(frames, again, "both streams have the same messages and numbers");

    let response = first.send_message(&agent, "Send a mail.").await;
    let call = &response["messages"][2]["tool_call"]["tool_call_id"];
    let decision = json!({"messages": [{"type": "approval", "approvals": [
        {"type": "approval", "tool_call_id": call, "approve": true}]}]});
    let response = second.request("POST", &path, &decision).await;
    assert_eq!(response["stop_reason"]["stop_reason"], "end_turn");
    assert_eq!((first.ran.lock().unwrap().len(), second.ran.lock().unwrap().len()), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn run_of_a_stopped_process_resumes_elsewhere() {
    let second = AgentGateway::open().await;
    let (stop, stopped) = oneshot::channel::<()>();
    let first = second.beside(async move { drop(stopped.await) }).await;
    let agent = first.agent(&json!({})).await;
    let path = format!("/v1/agents/{agent}/messages");
    let run = first.request("POST", &format!("{path}/async"), &user_message("Be slow.")).await;
    let run = run["id"].as_str().unwrap();
    stop.send(()).unwrap();
    // The model in the other process answers at once.
    second.permits.add_permits(1);
    let frames = second.stream(&format!("/v1/runs/{run}/stream"), &json!({})).await;
    let frames: Vec<_> =
        frames.into_iter().filter(|frame| frame["message_type"] != "ping").collect();
    let numbers: Vec<_> = frames.iter().map(|frame| frame["seq_id"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=frames.len() as u64).collect::<Vec<_>>());
    let frames = serde_json::Value::from(frames);
    assert_eq!(kinds(&frames)[2], "assistant_message");
    assert_eq!(frames[3]["stop_reason"], "end_turn");
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_of_a_stopped_process_is_charged_to_the_key() {
    let second = AgentGateway::open().await;
    let (stop, stopped) = oneshot::channel::<()>();
    let first = second.beside(async move { drop(stopped.await) }).await;
    let agent = first.agent(&json!({})).await;
    let path = format!("/v1/agents/{agent}/messages");
    let run = first
        .request("POST", &format!("{path}/async"), &user_message("The weather, but slow."))
        .await;
    let run = run["id"].as_str().unwrap();
    // The first process calls a tool and stops before the second answer; the other process answers.
    first.permits.add_permits(1);
    while first.model_calls.load(Ordering::SeqCst) < 2 {
        tokio::task::yield_now().await;
    }
    stop.send(()).unwrap();
    second.permits.add_permits(1);
    let frames = second.stream(&format!("/v1/runs/{run}/stream"), &json!({})).await;
    assert_eq!(frames.last().unwrap()["message_type"], "usage_statistics");
    let used = async || {
        let (_, bytes) = second.send("us", "GET", "/v1/throughline/usage", &json!(null)).await;
        serde_json::from_slice::<serde_json::Value>(&bytes).unwrap()["used"].clone()
    };
    // The interrupted call of the first process is charged by its estimate.
    let mut all = used().await;
    while all["calls"] != 3 {
        all = used().await;
    }
    assert!(all["tokens"].as_u64().unwrap() > 220, "{all}");
}
