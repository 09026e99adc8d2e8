//! Tests token counting in every dialect that has a token-count endpoint, with the models of every
//! provider.

use crate::harness::{ClientDialect, MODELS, SimGateway};
use serde_json::{Value, json};
use throughline_server::ReplayMode;

/// Returns the path and body of a token-count request.
fn counting(say: ClientDialect, model: &str, history: &[Value]) -> (String, Value) {
    let (_, mut body) = say.request(model, history, false);
    match say {
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
    gate: &SimGateway,
    say: ClientDialect,
    model: &str,
    history: &[Value],
) -> (u64, String) {
    let (path, body) = counting(say, model, history);
    let headers = [("content-type", "application/json"), ("anthropic-version", "2023-06-01")];
    let (status, headers, body) =
        gate.send("POST", &path, body.to_string().into_bytes(), &headers).await;
    let said: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(status, 200, "{say:?} → {model}: {said}");
    let name = if say == ClientDialect::Gemini { "totalTokens" } else { "input_tokens" };
    let how = headers["x-throughline-count"].to_str().unwrap().to_owned();
    (said[name].as_u64().unwrap_or_else(|| panic!("{say:?} → {model}: {said}")), how)
}

/// If the provider has a count endpoint, the provider counts the tokens. Otherwise the response is
/// marked as an estimate. A longer request has more tokens.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_counted_for_every_provider() {
    let gate = SimGateway::open(ReplayMode::Repair).await;
    for say in [ClientDialect::Messages, ClientDialect::Responses, ClientDialect::Gemini] {
        for model in MODELS {
            let short = [say.user("Hello")];
            let long = [say.user(&"How are you today? ".repeat(200))];
            let (few, how) = count(&gate, say, model, &short).await;
            let (many, _) = count(&gate, say, model, &long).await;
            let expected = if model.contains("deepseek") { "estimated" } else { "counted" };
            assert_eq!(how, expected, "{say:?} → {model}");
            assert!(0 < few && few + 200 < many, "{say:?} → {model}: {few}, {many}");
        }
    }
    gate.assert_nothing_refused();
}

/// Other models' Thoughts and Claims are not sent to the provider that counts the tokens.
#[tokio::test(flavor = "multi_thread")]
async fn claims_and_foreign_thoughts_are_not_sent_to_count_endpoints() {
    let gate = SimGateway::open(ReplayMode::Repair).await;
    let own = [
        (ClientDialect::Messages, "sim/claude-sonnet-4-5", "sim/gpt-5.2"),
        (ClientDialect::Responses, "sim/gpt-5.2", "sim/gemini-3-pro-preview"),
        (ClientDialect::Gemini, "sim/gemini-3-pro-preview", "sim/claude-sonnet-4-5"),
    ];
    for (say, model, other) in own {
        let mut history = vec![say.user("What is the weather in Paris?")];
        let said = gate.ask(say, other, &history, false).await.unwrap();
        let calls = say.calls(&said);
        history.extend(said);
        history.extend(say.results(&calls));
        let (tokens, how) = count(&gate, say, model, &history).await;
        assert!(tokens > 0);
        assert_eq!(how, "counted", "{say:?} → {model}");
    }
    gate.assert_nothing_refused();
}

/// Counting tokens for an unknown model returns an error in the caller's dialect.
#[tokio::test(flavor = "multi_thread")]
async fn counting_for_an_unknown_model_returns_a_dialect_error() {
    let gate = SimGateway::open(ReplayMode::Repair).await;
    let (path, body) = counting(
        ClientDialect::Messages,
        "unknown/knows",
        &[ClientDialect::Messages.user("Hello")],
    );
    let (status, said) = gate.raw(&path, body.to_string().into_bytes(), &[]).await;
    assert_eq!((status, said["type"].as_str()), (404, Some("error")), "{said}");
}
