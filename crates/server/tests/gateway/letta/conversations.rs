//! Tests of conversations. A conversation is an additional Thread of an agent.

use serde_json::{Value, json};

use crate::letta::scene::{AgentGateway, MODEL, kinds, said};

async fn conversation(scene: &AgentGateway, agent: &str) -> String {
    let made = scene
        .ask("POST", "/v1/conversations/", &json!({"agent_id": agent, "summary": "Tea"}))
        .await;
    assert_eq!((&made["agent_id"], &made["summary"]), (&json!(agent), &json!("Tea")));
    made["id"].as_str().unwrap().to_owned()
}

async fn texts(scene: &AgentGateway, conversation: &str) -> Vec<String> {
    let path = format!("/v1/conversations/{conversation}/messages?order=asc");
    let list = scene.ask("GET", &path, &json!(null)).await;
    let texts = list.as_array().unwrap().iter().filter_map(|one| one["content"].as_str());
    texts.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn conversation_has_its_own_thread() {
    let scene = AgentGateway::open().await;
    let agent = scene.agent(&json!({})).await;
    let id = conversation(&scene, &agent).await;
    scene.say(&agent, "In the agent's own thread.").await;
    let path = format!("/v1/conversations/{id}");
    // The response is a stream, unless the request turns streaming off.
    let frames = scene.stream(&format!("{path}/messages"), &said("One")).await;
    let run = frames[0]["run_id"].as_str().unwrap();
    assert_eq!(
        scene.ask("GET", &format!("/v1/runs/{run}"), &json!(null)).await["conversation_id"],
        id.as_str()
    );
    let mut body = said("Two");
    body["streaming"] = json!(false);
    let told = scene.ask("POST", &format!("{path}/messages"), &body).await;
    assert_eq!(told["stop_reason"]["stop_reason"], "end_turn");
    assert_eq!(texts(&scene, &id).await, ["One", "You said: One", "Two", "You said: Two"]);
    assert_eq!(texts(&scene, &agent).await.len(), 2);
    let mut body = said("Three");
    body["agent_id"] = json!(agent);
    body["streaming"] = json!(false);
    scene.ask("POST", "/v1/conversations/default/messages", &body).await;
    assert_eq!(texts(&scene, &agent).await.len(), 4);

    let changed = scene.ask("PATCH", &path, &json!({"summary": "Coffee", "model": MODEL})).await;
    assert_eq!(changed["summary"], "Coffee");
    let list =
        scene.ask("GET", &format!("/v1/conversations/?agent_id={agent}"), &json!(null)).await;
    assert_eq!(list, json!([changed]));
    scene.ask("DELETE", &path, &json!(null)).await;
    let (status, _) = scene.try_request("GET", &path, &json!(null)).await;
    assert_eq!(status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn conversations_run_and_cancel_independently() {
    let scene = AgentGateway::open().await;
    let agent = scene.agent(&json!({})).await;
    let (one, two) = (conversation(&scene, &agent).await, conversation(&scene, &agent).await);
    let mut runs = Vec::new();
    for id in [&one, &two] {
        let mut body = said("slow");
        body["background"] = json!(true);
        body["streaming"] = json!(true);
        let body = body.to_string().into_bytes();
        let headers = [("authorization", "Bearer tl_us")];
        let path = format!("/v1/conversations/{id}/messages");
        // The reader disconnects at once; the run continues.
        drop(crate::harness::begin(&scene.url, "POST", &path, body, &headers).await);
        let list = scene.ask("GET", &format!("/v1/runs/?conversation_id={id}"), &json!(null)).await;
        assert_eq!(list[0]["status"], "running");
        runs.push(list[0]["id"].clone());
    }
    let ended = scene.ask("POST", &format!("/v1/conversations/{one}/cancel"), &json!(null)).await;
    assert_eq!(ended, json!({runs[0].as_str().unwrap(): "cancelled"}));
    scene.gate.add_permits(1);
    let frames =
        scene.stream(&format!("/v1/conversations/{two}/stream"), &json!({"run_id": runs[1]})).await;
    assert_eq!(kinds(&Value::from(frames)).last(), Some(&"usage_statistics"));
}

#[tokio::test(flavor = "multi_thread")]
async fn fork_shares_history_up_to_a_message() {
    let scene = AgentGateway::open().await;
    let agent = scene.agent(&json!({})).await;
    scene.say(&agent, "One").await;
    scene.say(&agent, "Two").await;
    let list = format!("/v1/agents/{agent}/messages?order=asc");
    let list = scene.ask("GET", &list, &json!(null)).await;
    let first_answer = list[3]["id"].as_str().unwrap();
    let whole = scene.ask("POST", &format!("/v1/conversations/{agent}/fork"), &json!({})).await;
    let path = format!("/v1/conversations/default/fork?agent_id={agent}&message_id={first_answer}");
    let early = scene.ask("POST", &path, &json!(null)).await;
    for (fork, wanted) in [(&whole, 4), (&early, 2)] {
        let id = fork["id"].as_str().unwrap();
        assert_eq!(texts(&scene, id).await.len(), wanted);
        let mut body = said("Three");
        body["streaming"] = json!(false);
        scene.ask("POST", &format!("/v1/conversations/{id}/messages"), &body).await;
        assert_eq!(texts(&scene, id).await.len(), wanted + 2);
    }
    assert_eq!(texts(&scene, &agent).await.len(), 4, "the forked conversation is unchanged");
}

#[tokio::test(flavor = "multi_thread")]
async fn conversation_can_be_compacted_on_request() {
    let scene = AgentGateway::open().await;
    let agent = scene.agent(&json!({})).await;
    let empty = scene.ask("POST", &format!("/v1/agents/{agent}/summarize"), &json!({})).await;
    assert_eq!(empty["summary"], "");
    for number in 0..3 {
        scene.say(&agent, &format!("Hello {number}")).await;
    }
    let told = scene.ask("POST", &format!("/v1/conversations/{agent}/compact"), &json!({})).await;
    assert_eq!(told["summary"], "They talked.");
    assert_eq!(
        (&told["num_messages_before"], &told["num_messages_after"]),
        (&json!(12), &json!(1))
    );
    let told = scene.say(&agent, "Go on").await;
    assert_eq!(told["stop_reason"]["stop_reason"], "end_turn");
    let list = format!("/v1/agents/{agent}/messages?order=asc");
    let list = scene.ask("GET", &list, &json!(null)).await;
    assert_eq!(kinds(&list)[12], "summary_message");
    assert_eq!(list.as_array().unwrap().len(), 17, "nothing is lost: {list}");
}
