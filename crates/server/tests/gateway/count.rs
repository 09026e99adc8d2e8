//! Tests token counting in every dialect that has a token-count endpoint, with the models of every
//! provider.

use crate::harness::{ClientDialect, MODELS, SimGateway};
use serde_json::{Value, json};
use throughline_server::ReplayMode;

/// Returns the path and body of a token-count request.
fn counting(dialect: ClientDialect, model: &str, history: &[Value]) -> (String, Value) {
    let (_, mut body) = dialect.request(model, history, false);
    match dialect {
        ClientDialect::Messages => {
            body.as_object_mut()
                .unwrap()
                .retain(|name, _| !["max_tokens", "stream"].contains(&&**name));
            ("/v1/messages/count_tokens".to_owned(), body)
        }
        ClientDialect::Responses => {
            body.as_object_mut().unwrap().retain(|name, _| {
                ["model", "input", "instructions", "tools", "reasoning"].contains(&&**name)
            });
            ("/v1/responses/input_tokens".to_owned(), body)
        }
        ClientDialect::Gemini => {
            let wrapped = json!({"generateContentRequest": body});
            (format!("/v1beta/models/{model}:countTokens"), wrapped)
        }
        ClientDialect::Chat => panic!("chat has no such path"),
    }
}

async fn count(
    gateway: &SimGateway,
    dialect: ClientDialect,
    model: &str,
    history: &[Value],
) -> (u64, String) {
    let (path, body) = counting(dialect, model, history);
    let headers = [("content-type", "application/json"), ("anthropic-version", "2023-06-01")];
    let (status, headers, body) =
        gateway.send("POST", &path, body.to_string().into_bytes(), &headers).await;
    let response: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(status, 200, "{dialect:?} → {model}: {response}");
    let name = if dialect == ClientDialect::Gemini { "totalTokens" } else { "input_tokens" };
    let method = headers["x-throughline-count"].to_str().unwrap().to_owned();
    (response[name].as_u64().unwrap_or_else(|| panic!("{dialect:?} → {model}: {response}")), method)
}

/// If the provider has a count endpoint, the provider counts the tokens. Otherwise the response is
/// marked as an estimate. A longer request has more tokens.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_counted_for_every_provider() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    for dialect in [ClientDialect::Messages, ClientDialect::Responses, ClientDialect::Gemini] {
        for model in MODELS {
            let short = [dialect.user("Hello")];
            let long = [dialect.user(&"How are you today? ".repeat(200))];
            let (few, method) = count(&gateway, dialect, model, &short).await;
            let (many, _) = count(&gateway, dialect, model, &long).await;
            let expected = if model.contains("deepseek") { "estimated" } else { "counted" };
            assert_eq!(method, expected, "{dialect:?} → {model}");
            assert!(0 < few && few + 200 < many, "{dialect:?} → {model}: {few}, {many}");
        }
    }
    gateway.assert_nothing_refused();
}

/// Other models' Thoughts and Claims are not sent to the provider that counts the tokens.
#[tokio::test(flavor = "multi_thread")]
async fn claims_and_foreign_thoughts_are_not_sent_to_count_endpoints() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let cases = [
        (ClientDialect::Messages, "sim/claude-sonnet-4-5", "sim/gpt-5.2"),
        (ClientDialect::Responses, "sim/gpt-5.2", "sim/gemini-3-pro-preview"),
        (ClientDialect::Gemini, "sim/gemini-3-pro-preview", "sim/claude-sonnet-4-5"),
    ];
    for (dialect, model, other_model) in cases {
        let mut history = vec![dialect.user("What is the weather in Paris?")];
        let reply = gateway.send_history(dialect, other_model, &history, false).await.unwrap();
        let calls = dialect.calls(&reply);
        history.extend(reply);
        history.extend(dialect.results(&calls));
        let (tokens, method) = count(&gateway, dialect, model, &history).await;
        assert!(tokens > 0);
        assert_eq!(method, "counted", "{dialect:?} → {model}");
    }
    gateway.assert_nothing_refused();
}

/// Counting tokens for an unknown model returns an error in the caller's dialect.
#[tokio::test(flavor = "multi_thread")]
async fn counting_for_an_unknown_model_returns_a_dialect_error() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let (path, body) = counting(
        ClientDialect::Messages,
        "unknown/knows",
        &[ClientDialect::Messages.user("Hello")],
    );
    let (status, response) = gateway.raw(&path, body.to_string().into_bytes(), &[]).await;
    assert_eq!((status, response["type"].as_str()), (404, Some("error")), "{response}");
}
