//! Tests of conversations. A conversation is an additional Thread of an agent.

use serde_json::{Value, json};

use crate::letta::scene::{AgentGateway, MODEL, kinds, user_message};

async fn conversation(gateway: &AgentGateway, agent: &str) -> String {
    let created = gateway
        .request("POST", "/v1/conversations/", &json!({"agent_id": agent, "summary": "Tea"}))
        .await;
    assert_eq!((&created["agent_id"], &created["summary"]), (&json!(agent), &json!("Tea")));
    created["id"].as_str().unwrap().to_owned()
}

async fn texts(gateway: &AgentGateway, conversation: &str) -> Vec<String> {
    let path = format!("/v1/conversations/{conversation}/messages?order=asc");
    let list = gateway.request("GET", &path, &json!(null)).await;
    let texts = list.as_array().unwrap().iter().filter_map(|one| one["content"].as_str());
    texts.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn conversation_has_its_own_thread() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    let id = conversation(&gateway, &agent).await;
    gateway.send_message(&agent, "In the agent's own thread.").await;
    let path = format!("/v1/conversations/{id}");
    // The response is a stream, unless the request turns streaming off.
    let frames = gateway.stream(&format!("{path}/messages"), &user_message("One")).await;
    let run = frames[0]["run_id"].as_str().unwrap();
    assert_eq!(
        gateway.request("GET", &format!("/v1/runs/{run}"), &json!(null)).await["conversation_id"],
        id.as_str()
    );
    let mut body = user_message("Two");
    body["streaming"] = json!(false);
    let response = gateway.request("POST", &format!("{path}/messages"), &body).await;
    assert_eq!(response["stop_reason"]["stop_reason"], "end_turn");
    assert_eq!(texts(&gateway, &id).await, ["One", "You said: One", "Two", "You said: Two"]);
    assert_eq!(texts(&gateway, &agent).await.len(), 2);
    let mut body = user_message("Three");
    body["agent_id"] = json!(agent);
    body["streaming"] = json!(false);
    gateway.request("POST", "/v1/conversations/default/messages", &body).await;
    assert_eq!(texts(&gateway, &agent).await.len(), 4);

    let changed =
        gateway.request("PATCH", &path, &json!({"summary": "Coffee", "model": MODEL})).await;
    assert_eq!(changed["summary"], "Coffee");
    let list =
        gateway.request("GET", &format!("/v1/conversations/?agent_id={agent}"), &json!(null)).await;
    assert_eq!(list, json!([changed]));
    gateway.request("DELETE", &path, &json!(null)).await;
    let (status, _) = gateway.try_request("GET", &path, &json!(null)).await;
    assert_eq!(status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn conversations_run_and_cancel_independently() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    let (one, two) = (conversation(&gateway, &agent).await, conversation(&gateway, &agent).await);
    let mut runs = Vec::new();
    for id in [&one, &two] {
        let mut body = user_message("slow");
        body["background"] = json!(true);
        body["streaming"] = json!(true);
        let body = body.to_string().into_bytes();
        let headers = [("authorization", "Bearer tl_us")];
        let path = format!("/v1/conversations/{id}/messages");
        // The reader disconnects at once; the run continues.
        drop(crate::harness::begin(&gateway.url, "POST", &path, body, &headers).await);
        let list =
            gateway.request("GET", &format!("/v1/runs/?conversation_id={id}"), &json!(null)).await;
        assert_eq!(list[0]["status"], "running");
        runs.push(list[0]["id"].clone());
    }
    let ended =
        gateway.request("POST", &format!("/v1/conversations/{one}/cancel"), &json!(null)).await;
    assert_eq!(ended, json!({runs[0].as_str().unwrap(): "cancelled"}));
    // The model call of the cancelled run may still wait for a permit, ahead of the other one.
    gateway.permits.add_permits(2);
    let frames = gateway
        .stream(&format!("/v1/conversations/{two}/stream"), &json!({"run_id": runs[1]}))
        .await;
    assert_eq!(kinds(&Value::from(frames)).last(), Some(&"usage_statistics"));
}

#[tokio::test(flavor = "multi_thread")]
async fn fork_shares_history_up_to_a_message() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    gateway.send_message(&agent, "One").await;
    gateway.send_message(&agent, "Two").await;
    let list = format!("/v1/agents/{agent}/messages?order=asc");
    let list = gateway.request("GET", &list, &json!(null)).await;
    let first_answer = list[3]["id"].as_str().unwrap();
    let full_fork =
        gateway.request("POST", &format!("/v1/conversations/{agent}/fork"), &json!({})).await;
    let path = format!("/v1/conversations/default/fork?agent_id={agent}&message_id={first_answer}");
    let early_fork = gateway.request("POST", &path, &json!(null)).await;
    for (fork, expected) in [(&full_fork, 4), (&early_fork, 2)] {
        let id = fork["id"].as_str().unwrap();
        assert_eq!(texts(&gateway, id).await.len(), expected);
        let mut body = user_message("Three");
        body["streaming"] = json!(false);
        gateway.request("POST", &format!("/v1/conversations/{id}/messages"), &body).await;
        assert_eq!(texts(&gateway, id).await.len(), expected + 2);
    }
    assert_eq!(texts(&gateway, &agent).await.len(), 4, "the forked conversation is unchanged");
}

#[tokio::test(flavor = "multi_thread")]
async fn conversation_can_be_compacted_on_request() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    let empty = gateway.request("POST", &format!("/v1/agents/{agent}/summarize"), &json!({})).await;
    assert_eq!(empty["summary"], "");
    for number in 0..3 {
        gateway.send_message(&agent, &format!("Hello {number}")).await;
    }
    let response =
        gateway.request("POST", &format!("/v1/conversations/{agent}/compact"), &json!({})).await;
    assert_eq!(response["summary"], "They talked.");
    assert_eq!(
        (&response["num_messages_before"], &response["num_messages_after"]),
        (&json!(12), &json!(1))
    );
    let response = gateway.send_message(&agent, "Go on").await;
    assert_eq!(response["stop_reason"]["stop_reason"], "end_turn");
    let list = format!("/v1/agents/{agent}/messages?order=asc");
    let list = gateway.request("GET", &list, &json!(null)).await;
    assert_eq!(kinds(&list)[12], "summary_message");
    assert_eq!(list.as_array().unwrap().len(), 17, "nothing is lost: {list}");
}
