//! Tests listing, showing, cancelling and resetting runs.

use serde_json::json;
use throughline_server::routes;

use crate::letta::scene::{AgentGateway, MODEL, OTHER, kinds, user_message};

#[tokio::test(flavor = "multi_thread")]
async fn run_exposes_messages_steps_and_usage() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    let response = gateway.send_message(&agent, "What is the weather?").await;
    let run = response["messages"][0]["run_id"].as_str().unwrap();
    let run_view = gateway.request("GET", &format!("/v1/runs/{run}"), &json!(null)).await;
    assert_eq!(run_view["agent_id"], agent.as_str());
    assert_eq!(
        (&run_view["status"], &run_view["stop_reason"]),
        (&json!("completed"), &json!("end_turn"))
    );
    let messages = gateway.request("GET", &format!("/v1/runs/{run}/messages"), &json!(null)).await;
    assert_eq!(kinds(&messages)[0], "user_message");
    assert_eq!(messages.as_array().unwrap().len(), 8);
    let steps =
        gateway.request("GET", &format!("/v1/runs/{run}/steps?order=asc"), &json!(null)).await;
    assert_eq!(steps.as_array().unwrap().len(), 2);
    assert_eq!(steps[0]["id"], messages[1]["step_id"]);
    assert_eq!((&steps[0]["status"], &steps[0]["prompt_tokens"]), (&json!("success"), &json!(100)));
    let usage = gateway.request("GET", &format!("/v1/runs/{run}/usage"), &json!(null)).await;
    assert_eq!(usage["total_tokens"], 220);
    assert_eq!(usage["completion_tokens_details"]["reasoning_tokens"], 8);

    let other = gateway.agent(&json!({})).await;
    gateway.send_message(&other, "Hello").await;
    gateway.send_message(&agent, "fail").await;
    let list = async |query: &str| {
        let runs = gateway.request("GET", &format!("/v1/runs/?{query}"), &json!(null)).await;
        runs.as_array().unwrap().clone()
    };
    assert_eq!(list("").await.len(), 3);
    let own = list(&format!("agent_id={agent}&order=asc")).await;
    assert_eq!(own.len(), 2);
    assert_eq!(own[0]["id"], run);
    assert_eq!(
        (&own[1]["status"], &own[1]["stop_reason"]),
        (&json!("failed"), &json!("llm_api_error"))
    );
    assert_eq!(list("statuses=failed").await.len(), 1);
    assert_eq!(list("active=true").await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_run_reports_its_error() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    let frames =
        gateway.stream(&format!("/v1/agents/{agent}/messages/stream"), &user_message("fail")).await;
    let frames = serde_json::Value::from(frames);
    assert_eq!(kinds(&frames), ["error_message", "stop_reason", "usage_statistics"]);
    assert!(frames[0]["message"].as_str().unwrap().contains("does not want to"), "{frames}");
    assert_eq!(frames[0]["error_type"], "llm_api_error");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_can_be_cancelled_and_agent_reset() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    let path = format!("/v1/agents/{agent}/messages");
    gateway.send_message(&agent, "Hello").await;
    let run = gateway.request("POST", &format!("{path}/async"), &user_message("slow")).await;
    let run = run["id"].as_str().unwrap();
    let reset = format!("/v1/agents/{agent}/reset-messages");
    let (status, response) = gateway.try_request("PATCH", &reset, &json!({})).await;
    assert_eq!((status, &response["detail"]["run_id"]), (409, &json!(run)));
    let ended = gateway.request("POST", &format!("{path}/cancel"), &json!({})).await;
    assert_eq!(ended[run], "cancelled");
    let run_view = gateway.request("GET", &format!("/v1/runs/{run}"), &json!(null)).await;
    assert_eq!(
        (&run_view["status"], &run_view["stop_reason"]),
        (&json!("cancelled"), &json!("cancelled"))
    );
    let ended =
        gateway.request("POST", &format!("{path}/cancel"), &json!({"run_ids": [run]})).await;
    assert!(ended[run].as_str().unwrap().contains("has already"), "{ended}");

    gateway.request("PATCH", &reset, &json!({"add_default_initial_messages": false})).await;
    assert_eq!(gateway.request("GET", &path, &json!(null)).await, json!([]));
    let response = gateway.send_message(&agent, "Hello again").await;
    assert_eq!(response["stop_reason"]["stop_reason"], "end_turn");
    let list = gateway.request("GET", &path, &json!(null)).await;
    assert_eq!(list.as_array().unwrap().len(), 4, "{list}");
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_hides_the_runs() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    let own = gateway.send_message(&agent, "Hello").await;
    let create_path = format!("/v1/conversations/?agent_id={agent}");
    let conversation = gateway.request("POST", &create_path, &json!({})).await;
    let conversation = format!("/v1/conversations/{}", conversation["id"].as_str().unwrap());
    let body = json!({"input": "Hello", "streaming": false});
    let beside = gateway.request("POST", &format!("{conversation}/messages"), &body).await;
    let [own, beside] = [own, beside]
        .map(|response| response["messages"][0]["run_id"].as_str().unwrap().to_owned());
    let missing_and_present = async |run: &str| {
        let mut statuses = Vec::new();
        // The console shows everything that is stored, including deleted agents' runs.
        let console = ["", "/events/stream", "/trace"]
            .map(|suffix| format!("/v1/throughline/runs/{{run}}{suffix}"));
        let of_runs = routes().iter().filter(|route| route.path.contains("{run}"));
        for route in of_runs.filter(|route| console.iter().all(|path| *path != route.path)) {
            let path = route.path.replace("{run}", run);
            let (status, _) = gateway.send("us", route.method, &path, &json!({})).await;
            statuses.push((route.path, status));
        }
        statuses.into_iter().partition::<Vec<_>, _>(|(_, status)| *status == 404)
    };
    assert_eq!(missing_and_present(&own).await.0, [], "the runs exist");
    gateway.request("DELETE", &conversation, &json!(null)).await;
    assert_eq!(missing_and_present(&beside).await.1, [], "of a conversation");
    assert_eq!(missing_and_present(&own).await.0, [], "the agent's own are still there");
    gateway.request("DELETE", &format!("/v1/agents/{agent}"), &json!(null)).await;
    assert_eq!(missing_and_present(&own).await.1, [], "of an agent");
    assert_eq!(gateway.request("GET", "/v1/runs/", &json!(null)).await, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_charged_per_model_after_a_switch() {
    let gateway = AgentGateway::open().await;
    let policy =
        json!({"rules": [{"when": ["unknown"], "then": "retry-other"}], "otherModels": [OTHER]});
    let agent = gateway.agent(&json!({"throughline": {"gate": policy}})).await;
    let response = gateway.send_message(&agent, "What is the weather? Then switch.").await;
    assert_eq!(response["stop_reason"]["stop_reason"], "end_turn", "{response}");
    // The first model calls a tool and then fails; the other model answers.
    let used = async |key: &str| {
        let (status, bytes) = gateway.send(key, "GET", "/v1/throughline/usage", &json!(null)).await;
        assert_eq!(status, 200);
        let used: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        let rows = used["models"].as_array().unwrap().iter();
        let usage_row = |usage_row: &serde_json::Value| {
            let number = |name: &str| usage_row[name].as_u64().unwrap();
            (usage_row["model"].as_str().unwrap().to_owned(), number("calls"), number("tokens"))
        };
        rows.map(usage_row).collect::<Vec<_>>()
    };
    let mut rows = used("us").await;
    while rows.len() < 2 {
        rows = used("us").await;
    }
    rows.sort();
    assert_eq!(rows, [(OTHER.to_owned(), 1, 110), (MODEL.to_owned(), 1, 110)]);
    assert_eq!(used("them").await, []);
    // A summary is charged to its caller as well.
    let summary = format!("/v1/agents/{agent}/summarize");
    gateway.request("POST", &summary, &json!({})).await;
    while !used("us").await.contains(&(MODEL.to_owned(), 2, 220)) {}
}
