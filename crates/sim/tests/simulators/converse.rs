//! Tests for Bedrock's Converse API, with Claude and with models that do not sign.

use crate::common::{HttpResponse, get, post, simulator};
use serde_json::{Value, json};
use throughline_codec::{BedrockConverse, Catalog, DecodeContext, StreamDecoder};
use throughline_core::{Body, Event};
use throughline_sim::Simulator;

const KEY: &[(&str, &str)] = &[(
    "authorization",
    "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261115/us-east-1/bedrock/aws4_request, Signature=0",
)];
const SONNET: &str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";
const FABLE: &str = "us.anthropic.claude-fable-5-1-v1:0";

fn request() -> Value {
    let tool = |name: &str| {
        json!({"toolSpec": {"name": name, "inputSchema": {"json": {
            "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
        }}}})
    };
    json!({
        "system": [{"text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"text": "How is Zürich today? 🌤"}]}],
        "inferenceConfig": {"maxTokens": 4096},
        "toolConfig": {"tools": [tool("weather"), tool("news")]},
    })
}

fn manual() -> Value {
    let mut request = request();
    request["additionalModelRequestFields"] =
        json!({"thinking": {"type": "enabled", "budget_tokens": 2048}});
    request
}

async fn submit(simulator: &Simulator, model: &str, body: &Value) -> HttpResponse {
    let path = format!("/model/{}/converse", model.replace(':', "%3A"));
    post(simulator, &path, KEY, body).await
}

fn append_reply(request: &mut Value, answer: &Value) {
    let message = answer["output"]["message"].clone();
    let calls = message["content"].as_array().unwrap().iter().filter_map(|b| b.get("toolUse"));
    let results: Vec<Value> = calls
        .map(|call| {
            json!({"toolResult": {"toolUseId": call["toolUseId"], "content": [{"text": "sunny"}]}})
        })
        .collect();
    let messages = request["messages"].as_array_mut().unwrap();
    messages.push(message);
    let content =
        if results.is_empty() { json!([{"text": "And tomorrow?"}]) } else { json!(results) };
    messages.push(json!({"role": "user", "content": content}));
}

async fn follow_up(simulator: &Simulator, model: &str, mut request: Value) -> Value {
    let answer = submit(simulator, model, &request).await.expect_ok();
    append_reply(&mut request, &answer);
    request
}

#[tokio::test]
async fn two_turns_with_tools_are_accepted_if_returned_exactly() {
    for (model, first) in [(SONNET, manual()), (FABLE, request()), ("deepseek.r1-v1:0", request())]
    {
        let simulator = simulator().await;
        let mut request = first;
        let mut stops = Vec::new();
        for _ in 0..6 {
            let answer = submit(&simulator, model, &request).await.expect_ok();
            let first = &answer["output"]["message"]["content"][0];
            assert!(first["reasoningContent"]["reasoningText"].is_object(), "{answer}");
            stops.push(answer["stopReason"].as_str().unwrap().to_owned());
            append_reply(&mut request, &answer);
        }
        assert_eq!(stops, ["tool_use", "tool_use", "end_turn", "tool_use", "tool_use", "end_turn"]);
        assert!(simulator.ledger().all_verified());
    }
}

#[tokio::test]
async fn streamed_answer_equals_the_whole_answer() {
    let complete = submit(&simulator().await, SONNET, &manual()).await.expect_ok();
    let path = format!("/model/{}/converse-stream", SONNET.replace(':', "%3A"));
    let streamed = post(&simulator().await, &path, KEY, &manual()).await;
    assert_eq!(streamed.headers["content-type"], "application/vnd.amazon.eventstream");
    let target = Catalog::builtin().target_for("bedrock", SONNET, "one").unwrap();
    let mut decoder = StreamDecoder::new(&BedrockConverse, &DecodeContext::of(target));
    let mut events = decoder.push(&streamed.body).unwrap();
    events.extend(decoder.finish().unwrap());
    assert!(events.iter().filter(|event| matches!(event, Event::Delta { .. })).count() > 5);
    let Some(Event::Ended(reply)) = events.pop() else { panic!("the stream has an end") };
    let content = &complete["output"]["message"]["content"];
    let Body::Thought(thought) = &reply.items[0].body else { panic!("it thinks first") };
    assert_eq!(content[0]["reasoningContent"]["reasoningText"]["text"], *thought.content);
    let signature = &content[0]["reasoningContent"]["reasoningText"]["signature"];
    assert_eq!(reply.items[0].seals[0].reveal_to_tenant(), signature.as_str().unwrap());
    assert_eq!(reply.usage.output, complete["usage"]["outputTokens"].as_u64().unwrap());
}

#[tokio::test]
async fn claude_errors_are_wrapped_by_bedrock() {
    type Change = fn(&mut Value);
    let cases: [(&str, Change, &str); 6] = [
        (
            "signature missing",
            |r| {
                let text = &mut r["messages"][1]["content"][0]["reasoningContent"]["reasoningText"];
                text.as_object_mut().unwrap().remove("signature");
            },
            "messages.1.content.0.thinking.signature: Field required",
        ),
        (
            "signature empty",
            |r| {
                r["messages"][1]["content"][0]["reasoningContent"]["reasoningText"]["signature"] =
                    json!("");
            },
            "messages.1.content.0: Invalid `signature` in `thinking` block",
        ),
        (
            "text edited",
            |r| {
                r["messages"][1]["content"][0]["reasoningContent"]["reasoningText"]["text"] =
                    json!("Other.");
            },
            "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant \
             message cannot be modified.",
        ),
        (
            "thinking gone",
            |r| {
                r["messages"][1]["content"].as_array_mut().unwrap().remove(0);
            },
            "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found \
             `tool_use`.",
        ),
        (
            "budget too small",
            |r| r["additionalModelRequestFields"]["thinking"]["budget_tokens"] = json!(10),
            "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
        ),
        (
            "forced tool",
            |r| r["toolConfig"]["toolChoice"] = json!({"any": {}}),
            "Thinking may not be enabled when tool_choice forces tool use.",
        ),
    ];
    for (name, change, expected) in cases {
        let simulator = simulator().await;
        let mut request = follow_up(&simulator, SONNET, manual()).await;
        change(&mut request);
        let answer = submit(&simulator, SONNET, &request).await;
        let error = answer.expect_error(400);
        let expected = format!("The model returned the following errors: {expected}");
        assert!(error.starts_with(&expected), "{name}: {error}");
        assert_eq!(answer.headers["x-amzn-errortype"], "ValidationException");
        assert_eq!(answer.json(), json!({"message": error}));
    }
}

#[tokio::test]
async fn adaptive_thinking_rejects_forced_tools_up_to_4_7() {
    let simulator = simulator().await;
    let mut forced = request();
    forced["additionalModelRequestFields"] = json!({"thinking": {"type": "adaptive"}});
    forced["toolConfig"]["toolChoice"] = json!({"tool": {"name": "news"}});
    let model = "anthropic.claude-opus-4-6-v1";
    assert!(submit(&simulator, model, &forced).await.expect_error(400).contains("forces tool use"));
    submit(&simulator, "anthropic.claude-opus-4-8-v1", &forced).await.expect_ok();
}

#[tokio::test]
async fn changed_prefix_is_rejected_but_cache_points_are_ignored() {
    let simulator = simulator().await;
    let request = follow_up(&simulator, FABLE, request()).await;
    let mut marked = request.clone();
    marked["system"].as_array_mut().unwrap().push(json!({"cachePoint": {"type": "default"}}));
    let content = marked["messages"][0]["content"].as_array_mut().unwrap();
    content.push(json!({"cachePoint": {"type": "default"}}));
    submit(&simulator, FABLE, &marked).await.expect_ok();
    let mut changed = request;
    changed["system"][0]["text"] = json!("Be verbose.");
    let error = submit(&simulator, FABLE, &changed).await.expect_error(400);
    assert!(
        error.ends_with("The `system` prompt differs from the one this block was created with.")
    );
}

#[tokio::test]
async fn converse_rejects_blank_texts_and_unpaired_calls() {
    let simulator = simulator().await;
    let mut blank = request();
    blank["messages"][0]["content"].as_array_mut().unwrap().push(json!({"text": " \n"}));
    assert_eq!(
        submit(&simulator, "amazon.nova-2-lite-v1:0", &blank).await.expect_error(400),
        "The text field in the ContentBlock object at messages.0.content.1 is blank. Add text to the \
         text field, and try again."
    );
    let mut unanswered = follow_up(&simulator, SONNET, manual()).await;
    let id = unanswered["messages"][1]["content"][1]["toolUse"]["toolUseId"].clone();
    unanswered["messages"][2]["content"] = json!([{"text": "Never mind."}]);
    assert_eq!(
        submit(&simulator, SONNET, &unanswered).await.expect_error(400),
        format!(
            "Expected toolResult blocks at messages.2.content for the following Ids: {}",
            id.as_str().unwrap()
        )
    );
}

#[tokio::test]
async fn nova_rejects_empty_signatures() {
    let simulator = simulator().await;
    let model = "amazon.nova-2-lite-v1:0";
    let mut first = request();
    first["additionalModelRequestFields"] =
        json!({"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}});
    let mut request = follow_up(&simulator, model, first).await;
    submit(&simulator, model, &request).await.expect_ok();
    request["messages"][1]["content"][0]["reasoningContent"]["reasoningText"]["signature"] =
        json!("");
    let error = submit(&simulator, model, &request).await.expect_error(400);
    assert!(error.starts_with("The signature field in the ReasoningTextBlock object"), "{error}");
}

#[tokio::test]
async fn unsigned_deepseek_thoughts_are_rejected_by_claude() {
    let simulator = simulator().await;
    let request = follow_up(&simulator, "deepseek.r1-v1:0", request()).await;
    assert_eq!(
        submit(&simulator, SONNET, &request).await.expect_error(400),
        "The model returned the following errors: messages.1.content.0.thinking.signature: Field \
         required"
    );
}

#[tokio::test]
async fn bedrock_signatures_are_valid_at_anthropic() {
    let simulator = simulator().await;
    let request = follow_up(&simulator, SONNET, manual()).await;
    let content = &request["messages"][1]["content"];
    let text = &content[0]["reasoningContent"]["reasoningText"];
    let call = &content[1]["toolUse"];
    let moved = json!({
        "model": "claude-sonnet-4-5",
        "max_tokens": 4096,
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "messages": [
            {"role": "user", "content": "How is Zürich today? 🌤"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": text["text"], "signature": text["signature"]},
                {"type": "tool_use", "id": call["toolUseId"], "name": call["name"], "input": call["input"]},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": call["toolUseId"], "content": "sunny"},
            ]},
        ],
    });
    post(&simulator, "/v1/messages", &[("x-api-key", "one")], &moved).await.expect_ok();
}

#[tokio::test]
async fn thoughts_shown_as_text_are_refused_by_the_model() {
    let simulator = simulator().await;
    let mut demoted = request();
    demoted["messages"] = json!([
        {"role": "user", "content": [{"text": "Hello"}]},
        {"role": "assistant", "content": [{"text": "<thinking>I wonder…</thinking> Hello!"}]},
        {"role": "user", "content": [{"text": "Go on"}]},
    ]);
    let answer = submit(&simulator, SONNET, &demoted).await.expect_ok();
    assert_eq!(answer["stopReason"], "content_filtered");
    assert_eq!(answer["additionalModelResponseFields"]["stop_reason"], "refusal");
    assert_eq!(simulator.ledger().entries[0].stop.as_deref(), Some("refused"));
}

#[tokio::test]
async fn tokens_are_counted_and_models_listed() {
    let simulator = simulator().await;
    let path = format!("/model/{}/count-tokens", SONNET.replace(':', "%3A"));
    let body = json!({"input": {"converse": request()}});
    let counted = post(&simulator, &path, KEY, &body).await.expect_ok();
    assert!(counted["inputTokens"].as_u64() > Some(50));
    let models = get(&simulator, "/foundation-models", KEY).await.expect_ok();
    assert!(models["modelSummaries"].as_array().is_some_and(|models| models.len() > 3));
}
