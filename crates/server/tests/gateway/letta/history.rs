//! Tests of messages with an earlier conversation, and of ephemeral messages.

use serde_json::{Value, json};

use crate::letta::scene::{AgentGateway, MODEL};

/// A file that Gemini stores, possibly for another tenant.
const FILE: &str = "https://generativelanguage.googleapis.com/v1beta/files/abc";

/// Sends a message request and returns the documented state of its run.
async fn state(gateway: &AgentGateway, agent: &str, body: &Value) -> Value {
    let path = format!("/v1/agents/{agent}/messages");
    let answer = gateway.request("POST", &path, body).await;
    let run = answer["messages"][0]["run_id"].as_str().unwrap_or_else(|| panic!("{answer}"));
    gateway.request("GET", &format!("/v1/throughline/runs/{run}/state"), &json!(null)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn history_is_added_before_the_message() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    let block = json!({"type": "thinking", "content": "Weigh both.", "signature": "c2lnbmVk"});
    let history = json!({
        "format": "llm-message",
        "owner": MODEL,
        "messages": [
            {"role": "user", "content": "One?"},
            {"role": "assistant", "content": "One.", "thinkingBlocks": [block], "toolCalls": []},
        ],
    });
    let state = state(&gateway, &agent, &json!({"input": "Two?", "history": history})).await;
    let messages = state["messages"].as_array().unwrap();
    let texts: Vec<&str> = messages.iter().filter_map(|one| one["content"].as_str()).collect();
    assert_eq!(texts, ["One?", "One.", "Two?", "You said: Two?"]);
    // The owner's block is stored with its signature and its format.
    let mut stored = block.clone();
    stored["providerMeta"] = json!({"format": "anthropic-claude-v1"});
    assert_eq!(messages[1]["thinkingBlocks"], json!([stored]));
    let reasoning = gateway
        .request("GET", &format!("/v1/agents/{agent}/messages?order=asc"), &json!(null))
        .await;
    let list = reasoning.as_array().unwrap();
    let thought = list.iter().find(|one| one["reasoning"] == "Weigh both.").unwrap();
    assert_eq!(thought["signature"], "c2lnbmVk");
}

#[tokio::test(flavor = "multi_thread")]
async fn ephemeral_message_reaches_the_model_but_not_the_thread() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    let body = json!({"messages": [
        {"role": "user", "content": "Answer in MANDARIN.", "ephemeral": true},
        {"role": "user", "content": "Two?"},
    ]});
    let path = format!("/v1/agents/{agent}/messages");
    let answer = gateway.request("POST", &path, &body).await;
    let run = answer["messages"][0]["run_id"].as_str().unwrap();
    let of_run = |what: &str| format!("/v1/throughline/runs/{run}/{what}");
    let state = gateway.request("GET", &of_run("state"), &json!(null)).await;
    assert!(!state.to_string().contains("MANDARIN"), "{state}");
    let journal = gateway.request("GET", &of_run("journal"), &json!(null)).await;
    assert!(journal.to_string().contains("MANDARIN"), "{journal}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_history_is_rejected_with_the_field() {
    let gateway = AgentGateway::open().await;
    let agent = gateway.agent(&json!({})).await;
    let path = format!("/v1/agents/{agent}/messages");
    for (history, expected) in [
        (json!({"format": "csv", "messages": []}), "history.format: must be one of"),
        (json!({"format": "llm-message"}), "history.messages: is missing"),
        (json!({"format": "llm-message", "messages": [{"role": "x"}]}), "history: entry 0"),
        (json!({"format": "llm-message", "owner": "gpt-9", "messages": []}), "history.owner: "),
        // Parts that are not the owner's reasoning could refer to another tenant's objects.
        (
            json!({"format": "raw-thought", "owner": MODEL, "messages": [{
                "id": "t", "content": "", "createdAt": 0, "updatedAt": 0,
                "replayCompatibility": "anthropic-messages-thinking-v1",
                "payload": {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
            }]}),
            "history: entry 0: payload is not reasoning of",
        ),
        (
            json!({"format": "raw-thought", "owner": MODEL, "messages": [{
                "id": "t", "content": "", "createdAt": 0, "updatedAt": 0,
                "replayCompatibility": "openai-responses-reasoning-item-v1",
                "payload": {"type": "item_reference", "id": "rs_1"},
            }]}),
            "history: entry 0: replayCompatibility names the wire openai-responses",
        ),
        (
            json!({"format": "reasoning-details", "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": FILE}}]},
            ]}),
            "history: refers to a file at a provider",
        ),
        (
            json!({"format": "llm-message", "messages": [
                {"role": "assistant", "content": "", "toolCalls": [{"id": "c1", "name": "x", "args": {}}]},
            ]}),
            "no result for the tool call c1",
        ),
    ] {
        let body = json!({"input": "Two?", "history": history});
        let (status, answer) = gateway.try_request("POST", &path, &body).await;
        assert!((400..500).contains(&status), "{status} {answer}");
        assert!(answer.to_string().contains(expected), "{expected}: {answer}");
    }
    let image = json!({"type": "image", "source": {"type": "url", "url": FILE}});
    let body = json!({"messages": [{"role": "user", "content": [image]}]});
    let (status, answer) = gateway.try_request("POST", &path, &body).await;
    assert_eq!(status, 422, "{answer}");
    assert!(answer.to_string().contains("an image refers to a file"), "{answer}");
}
