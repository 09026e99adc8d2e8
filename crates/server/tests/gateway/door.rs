//! What the gateway says to whoever may not ask, or asks for what there is not: in the caller's dialect, and clearly.

use crate::harness::{Gate, Say};
use serde_json::{Value, json};
use throughline_server::ReplayMode;

/// The message of an error in a dialect's shape.
fn message(say: Say, body: &Value) -> String {
    let error = &body["error"];
    match say {
        Say::Messages => assert_eq!(body["type"], "error", "{body}"),
        Say::Gemini => assert!(error["code"].is_u64() && error["status"].is_string(), "{body}"),
        Say::Responses | Say::Chat => assert!(error["type"].is_string(), "{body}"),
    }
    error["message"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_come_in_the_callers_dialect() {
    let gate = Gate::open(ReplayMode::Repair).await;
    for say in Say::ALL {
        let (status, body) = gate.post(say, "nobody/at-all", &[say.user("Hello")]).await;
        assert_eq!(status, 404, "{say:?}: {body}");
        assert!(message(say, &body).contains("there is no model"), "{body}");
        // What the provider refuses is told with its own status and words.
        let (status, body) = gate.post(say, "sim/claude-sonnet-4-5", &[]).await;
        assert_eq!(status, 400, "{say:?}: {body}");
        assert!(!message(say, &body).is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_request_is_refused() {
    let gate = Gate::open(ReplayMode::Repair).await;
    let deep = format!(
        "{{\"model\":\"sim/gpt-5.2\",\"input\":{}1{}}}",
        "[".repeat(10_000),
        "]".repeat(10_000)
    );
    for body in ["", "{", "[]", "{\"model\":7}", "{}", "\u{0}", deep.as_str()] {
        let (status, answer) = gate.raw("/v1/responses", body.as_bytes().to_vec(), &[]).await;
        let shown = body.chars().take(40).collect::<String>();
        assert!((400..500).contains(&status), "{shown}: {status} {answer}");
        assert!(!message(Say::Responses, &answer).is_empty(), "{answer}");
    }
    let large = vec![b' '; (64 << 20) + 1];
    let (status, answer) = gate.raw("/v1/messages", large, &[]).await;
    assert_eq!(status, 413, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_mistyped_of_ours_goes_to_no_provider() {
    let gate = Gate::open(ReplayMode::Repair).await;
    for path in ["/v1/agents/agent-1/messages/cancle", "/v1/runs/1/stop", "/v1/throughline/nothing"]
    {
        let (status, answer) = gate.raw(path, b"{}".to_vec(), &[]).await;
        assert_eq!(status, 404, "{path}: {answer}");
        let detail = answer["detail"].as_str().unwrap_or_default();
        assert!(detail.contains("the agent API has no POST"), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_keys_it_answers_this_machine_only() {
    let gate = Gate::open(ReplayMode::Repair).await;
    let hello = || json!({"model": "sim/gpt-5.2", "input": "Hello"}).to_string().into_bytes();
    for foreign in [("host", "example.com"), ("origin", "https://example.com"), ("origin", "null")]
    {
        let (status, answer) = gate.raw("/v1/responses", hello(), &[foreign]).await;
        assert_eq!(status, 403, "{foreign:?}: {answer}");
        assert!(message(Say::Responses, &answer).contains("this machine only"));
    }
    assert_eq!(gate.raw("/v1/responses", hello(), &[]).await.0, 200);
}

/// In `enforce` a request that would be refused is not sent, and its caller hears the rule and the mend.
#[tokio::test(flavor = "multi_thread")]
async fn what_would_be_refused_is_refused_before_it_is_sent() {
    let gate = Gate::open(ReplayMode::Enforce).await;
    let call =
        json!({"type": "tool_use", "id": "toolu_1", "name": "get_time", "input": {"zone": "UTC"}});
    let history = [Say::Messages.user("Hello"), json!({"role": "assistant", "content": [call]})];
    let (status, body) = gate.post(Say::Messages, "sim/claude-sonnet-4-5", &history).await;
    assert_eq!(status, 400, "{body}");
    let said = message(Say::Messages, &body);
    assert!(said.starts_with('['), "the rule is named first: {said}");
    assert_eq!(gate.requests(), 0, "nothing was sent");
}
