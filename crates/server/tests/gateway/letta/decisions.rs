//! Tests of approvals sent as messages, and of tools that the client runs.

use serde_json::{Value, json};

use crate::letta::scene::{AgentGateway, kinds, user_message};

fn approval(call: &Value, approve: bool) -> Value {
    json!({"type": "approval", "tool_call_id": call, "approve": approve, "reason": "because"})
}

fn decide(approvals: &[Value]) -> Value {
    json!({"messages": [{"type": "approval", "approvals": approvals}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_call_waits_for_approval() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    let path = format!("/v1/agents/{agent}/messages");
    let response = gateway.send_message(&agent, "Send a mail.").await;
    assert_eq!(
        kinds(&response["messages"]),
        ["reasoning_message", "reasoning_message", "approval_request_message"]
    );
    assert_eq!(response["stop_reason"]["stop_reason"], "requires_approval");
    let request = &response["messages"][2];
    let call = &request["tool_call"]["tool_call_id"];
    // Another message is refused, and the error names the pending request.
    let (status, refused) = gateway.try_request("POST", &path, &user_message("Hello?")).await;
    assert_eq!(status, 409, "{refused}");
    assert_eq!(refused["detail"]["code"], "PENDING_APPROVAL");
    assert_eq!(refused["detail"]["pending_request_id"], request["id"]);
    assert_eq!(refused["detail"]["run_id"], request["run_id"]);
    assert!(gateway.ran.lock().unwrap().is_empty());

    let response = gateway.request("POST", &path, &decide(&[approval(call, true)])).await;
    assert_eq!(
        kinds(&response["messages"]),
        [
            "approval_response_message",
            "tool_return_message",
            "reasoning_message",
            "reasoning_message",
            "assistant_message",
        ]
    );
    assert_eq!(response["stop_reason"]["stop_reason"], "end_turn");
    assert_eq!(response["messages"][0]["run_id"], request["run_id"], "the same run continued");
    assert_eq!(*gateway.ran.lock().unwrap(), [r#"send_mail {"to":"a@example.com"}"#]);
    // A second decision is refused, and nothing runs.
    let (status, refused) =
        gateway.try_request("POST", &path, &decide(&[approval(call, true)])).await;
    assert_eq!(status, 409, "{refused}");
    assert_eq!(gateway.ran.lock().unwrap().len(), 1);
    let list = gateway.request("GET", &format!("{path}?order=asc"), &json!(null)).await;
    assert_eq!(
        kinds(&list)[3..6],
        ["approval_request_message", "approval_response_message", "tool_return_message"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn decisions_are_validated_before_any_is_sent() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    let path = format!("/v1/agents/{agent}/messages");
    let nothing = decide(&[approval(&json!("call_0_0"), true)]);
    let (status, refused) = gateway.try_request("POST", &path, &nothing).await;
    assert_eq!(status, 409, "nothing waits: {refused}");
    let response = gateway.send_message(&agent, "Send two mails.").await;
    let calls = &response["messages"][2]["tool_calls"];
    let (one, two) = (&calls[0]["tool_call_id"], &calls[1]["tool_call_id"]);
    for wrong in [
        vec![approval(one, true), approval(&json!("call_of_none"), true)],
        vec![approval(one, true), approval(one, false)],
        vec![json!({"type": "tool", "tool_call_id": one, "tool_return": "x", "status": "success"})],
    ] {
        let (status, refused) = gateway.try_request("POST", &path, &decide(&wrong)).await;
        assert!(matches!(status, 409 | 422), "{refused}");
    }
    assert!(gateway.ran.lock().unwrap().is_empty(), "nothing ran");
    // Decisions may arrive one at a time, so the other call is still pending.
    let response = gateway.request("POST", &path, &decide(&[approval(one, false)])).await;
    assert_eq!(response["stop_reason"]["stop_reason"], "requires_approval");
    let response = gateway.request("POST", &path, &decide(&[approval(two, true)])).await;
    assert_eq!(response["stop_reason"]["stop_reason"], "end_turn");
    assert_eq!(*gateway.ran.lock().unwrap(), [r#"send_mail {"to":"b@example.com"}"#]);
    let list = gateway.request("GET", &format!("{path}?order=asc"), &json!(null)).await;
    let list = list.as_array().unwrap();
    let denied = list.iter().find(|one| one["status"] == "error").unwrap();
    assert!(denied["tool_return"].as_str().unwrap().contains("because"), "{denied}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_rules_select_tools_that_need_approval() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({"tools": ["get_weather"]})).await;
    let rule = format!("/v1/agents/{agent}/tools/approval/get_weather");
    gateway.request("PATCH", &rule, &json!({"requires_approval": true})).await;
    let response = gateway.send_message(&agent, "weather").await;
    assert_eq!(response["stop_reason"]["stop_reason"], "requires_approval");
    let denial = json!({"messages": [{"type": "approval", "approve": false, "reason": "no",
        "approval_request_id": response["messages"][2]["id"]}]});
    let path = format!("/v1/agents/{agent}/messages");
    let response = gateway.request("POST", &path, &denial).await;
    assert_eq!(response["stop_reason"]["stop_reason"], "end_turn");
    gateway.request("PATCH", &rule, &json!({"requires_approval": false})).await;
    let response = gateway.send_message(&agent, "weather").await;
    assert_eq!(response["stop_reason"]["stop_reason"], "end_turn");
}

#[tokio::test(flavor = "multi_thread")]
async fn client_runs_its_own_tools() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    let path = format!("/v1/agents/{agent}/messages");
    let tools = json!([{"name": "local_time", "description": "The time here.",
        "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}}}]);
    for kind in ["approval", "tool_return"] {
        let mut body = user_message("Look at the clock.");
        body["client_tools"] = tools.clone();
        let response = gateway.request("POST", &path, &body).await;
        assert_eq!(response["stop_reason"]["stop_reason"], "requires_approval");
        let request = &response["messages"][2];
        assert_eq!(request["message_type"], "approval_request_message");
        let returned = json!([{"type": "tool", "tool_call_id": request["tool_call"]["tool_call_id"],
            "tool_return": "noon", "status": "success"}]);
        let mut body = match kind {
            "approval" => decide(returned.as_array().unwrap()),
            _ => json!({"messages": [{"type": "tool_return", "tool_returns": returned}]}),
        };
        body["client_tools"] = tools.clone();
        let response = gateway.request("POST", &path, &body).await;
        assert_eq!(response["messages"][0]["tool_return"], "noon", "{response}");
        assert_eq!(response["stop_reason"]["stop_reason"], "end_turn");
        let (status, refused) = gateway.try_request("POST", &path, &body).await;
        assert_eq!(status, 409, "returned twice: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_tool_results_are_stored_whole_or_refused() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    let path = format!("/v1/agents/{agent}/messages");
    let tools = json!([{"name": "local_time", "description": "The time here."}]);
    let mut body = user_message("Look at the clock.");
    body["client_tools"] = tools;
    let response = gateway.request("POST", &path, &body).await;
    let call = response["messages"][2]["tool_call"]["tool_call_id"].clone();
    let returned = |result: &serde_json::Value| {
        let tool_return = json!({"type": "tool", "tool_call_id": call, "tool_return": result, "status": "success"});
        json!({"messages": [{"type": "tool_return", "tool_returns": [tool_return]}]})
    };
    for result in [json!({"time": "noon"}), json!(12), json!([{"type": "smell", "text": "noon"}])] {
        let (status, refused) = gateway.try_request("POST", &path, &returned(&result)).await;
        assert_eq!(status, 422, "{result}: {refused}");
        assert!(refused["detail"].as_str().unwrap().contains("list of text and image parts"));
    }
    let picture = json!({"type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}});
    let parts = json!([{"type": "text", "text": "noon"}, picture]);
    let response = gateway.request("POST", &path, &returned(&parts)).await;
    assert_eq!(response["stop_reason"]["stop_reason"], "end_turn", "{response}");
    // The Thread and its snapshot contain both results.
    let run = response["messages"][0]["run_id"].as_str().unwrap();
    let snapshot = format!("/v1/throughline/runs/{run}/snapshot");
    let snapshot = gateway.request("GET", &snapshot, &json!(null)).await.to_string();
    assert!(snapshot.contains("noon") && snapshot.contains("aGk="), "{snapshot}");
}
