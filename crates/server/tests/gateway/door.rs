//! Tests the errors for unauthorised and invalid requests, in the caller's dialect.

use crate::harness::{ClientDialect, SimGateway};
use serde_json::{Value, json};
use throughline_server::ReplayMode;

/// Returns the message of an error in a dialect's format.
fn message(dialect: ClientDialect, body: &Value) -> String {
    let error = &body["error"];
    match dialect {
        ClientDialect::Messages => assert_eq!(body["type"], "error", "{body}"),
        ClientDialect::Gemini => {
            assert!(error["code"].is_u64() && error["status"].is_string(), "{body}");
        }
        ClientDialect::Responses | ClientDialect::Chat => {
            assert!(error["type"].is_string(), "{body}");
        }
    }
    error["message"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_use_the_callers_dialect() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    for dialect in ClientDialect::ALL {
        let (status, body) =
            gateway.post(dialect, "unknown/at-all", &[dialect.user("Hello")]).await;
        assert_eq!(status, 404, "{dialect:?}: {body}");
        assert!(message(dialect, &body).contains("there is no model"), "{body}");
        // A provider's refusal keeps its status and message.
        let (status, body) = gateway.post(dialect, "sim/claude-sonnet-4-5", &[]).await;
        assert_eq!(status, 400, "{dialect:?}: {body}");
        assert!(!message(dialect, &body).is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_requests_are_refused() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let deep = format!(
        "{{\"model\":\"sim/gpt-5.2\",\"input\":{}1{}}}",
        "[".repeat(10_000),
        "]".repeat(10_000)
    );
    for body in ["", "{", "[]", "{\"model\":7}", "{}", "\u{0}", deep.as_str()] {
        let (status, answer) = gateway.raw("/v1/responses", body.as_bytes().to_vec(), &[]).await;
        let excerpt = body.chars().take(40).collect::<String>();
        assert!((400..500).contains(&status), "{excerpt}: {status} {answer}");
        assert!(!message(ClientDialect::Responses, &answer).is_empty(), "{answer}");
    }
    let large = vec![b' '; (64 << 20) + 1];
    let (status, answer) = gateway.raw("/v1/messages", large, &[]).await;
    assert_eq!(status, 413, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_own_paths_are_never_proxied() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    for path in ["/v1/agents/agent-1/messages/cancle", "/v1/runs/1/stop", "/v1/throughline/nothing"]
    {
        let (status, answer) = gateway.raw(path, b"{}".to_vec(), &[]).await;
        assert_eq!(status, 404, "{path}: {answer}");
        let detail = answer["detail"].as_str().unwrap_or_default();
        assert!(detail.contains("the agent API has no POST"), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn open_gateway_answers_only_this_machine() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let hello = || json!({"model": "sim/gpt-5.2", "input": "Hello"}).to_string().into_bytes();
    for foreign in [("host", "example.com"), ("origin", "https://example.com"), ("origin", "null")]
    {
        let (status, answer) = gateway.raw("/v1/responses", hello(), &[foreign]).await;
        assert_eq!(status, 403, "{foreign:?}: {answer}");
        assert!(message(ClientDialect::Responses, &answer).contains("this machine only"));
    }
    assert_eq!(gateway.raw("/v1/responses", hello(), &[]).await.0, 200);
}

/// With `enforce`, a request that the provider would refuse is not sent. The error names the
/// violated rule and the fix.
#[tokio::test(flavor = "multi_thread")]
async fn enforce_refuses_before_sending() {
    let gateway = SimGateway::open(ReplayMode::Enforce).await;
    let call =
        json!({"type": "tool_use", "id": "toolu_1", "name": "get_time", "input": {"zone": "UTC"}});
    let history =
        [ClientDialect::Messages.user("Hello"), json!({"role": "assistant", "content": [call]})];
    let (status, body) =
        gateway.post(ClientDialect::Messages, "sim/claude-sonnet-4-5", &history).await;
    assert_eq!(status, 400, "{body}");
    let error = message(ClientDialect::Messages, &body);
    assert!(error.starts_with('['), "the rule is named first: {error}");
    assert!(error.contains("; see https://throughline.github.io/"), "{error}");
    assert_eq!(gateway.requests(), 0, "nothing was sent");
}
