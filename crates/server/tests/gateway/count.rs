//! Tokens are counted in every dialect that can ask for it, whoever answers.

use crate::harness::{Gate, MODELS, Say};
use serde_json::{Value, json};
use throughline_server::ReplayMode;

/// A request that asks for its number of tokens, and what is asked.
fn counting(say: Say, model: &str, history: &[Value]) -> (String, Value) {
    let (_, mut body) = say.request(model, history, false);
    match say {
        Say::Messages => {
            body.as_object_mut()
                .unwrap()
                .retain(|name, _| !["max_tokens", "stream"].contains(&&**name));
            ("/v1/messages/count_tokens".to_owned(), body)
        }
        Say::Responses => {
            body.as_object_mut().unwrap().retain(|name, _| {
                ["model", "input", "instructions", "tools", "reasoning"].contains(&&**name)
            });
            ("/v1/responses/input_tokens".to_owned(), body)
        }
        Say::Gemini => {
            let wrapped = json!({"generateContentRequest": body});
            (format!("/v1beta/models/{model}:countTokens"), wrapped)
        }
        Say::Chat => panic!("chat has no such path"),
    }
}

async fn count(gate: &Gate, say: Say, model: &str, history: &[Value]) -> (u64, String) {
    let (path, body) = counting(say, model, history);
    let headers = [("content-type", "application/json"), ("anthropic-version", "2023-06-01")];
    let (status, headers, body) =
        gate.send("POST", &path, body.to_string().into_bytes(), &headers).await;
    let said: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(status, 200, "{say:?} → {model}: {said}");
    let name = if say == Say::Gemini { "totalTokens" } else { "input_tokens" };
    let how = headers["x-throughline-count"].to_str().unwrap().to_owned();
    (said[name].as_u64().unwrap_or_else(|| panic!("{say:?} → {model}: {said}")), how)
}

/// A provider that can count does; of another, the answer says that it is an estimate. A longer request has more tokens.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_counted_whoever_answers() {
    let gate = Gate::open(ReplayMode::Repair).await;
    for say in [Say::Messages, Say::Responses, Say::Gemini] {
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

/// What another model thought, and our claims to it, do not reach the one who counts.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_ours_reaches_the_one_who_counts() {
    let gate = Gate::open(ReplayMode::Repair).await;
    let own = [
        (Say::Messages, "sim/claude-sonnet-4-5", "sim/gpt-5.2"),
        (Say::Responses, "sim/gpt-5.2", "sim/gemini-3-pro-preview"),
        (Say::Gemini, "sim/gemini-3-pro-preview", "sim/claude-sonnet-4-5"),
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

/// A model that nobody knows is no model to count for either.
#[tokio::test(flavor = "multi_thread")]
async fn counting_for_nobody_is_an_error_of_the_dialect() {
    let gate = Gate::open(ReplayMode::Repair).await;
    let (path, body) = counting(Say::Messages, "nobody/knows", &[Say::Messages.user("Hello")]);
    let (status, said) = gate.raw(&path, body.to_string().into_bytes(), &[]).await;
    assert_eq!((status, said["type"].as_str()), (404, Some("error")), "{said}");
}
