//! Tests for Chat Completions and its dialects: accepted requests, and rejected requests with their
//! error messages.

use crate::common::{HttpResponse, post, simulator};
use serde_json::{Value, json};
use throughline_sim::{Simulator, Verdict};

const KEY: [(&str, &str); 1] = [("authorization", "Bearer sk-one")];

fn tool(name: &str) -> Value {
    let parameters = json!({
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    });
    json!({"type": "function", "function": {"name": name, "parameters": parameters}})
}

fn request(model: &str, messages: &[Value]) -> Value {
    json!({"model": model, "messages": messages, "tools": [tool("weather"), tool("news")]})
}

fn with(mut request: Value, key: &str, value: Value) -> Value {
    request[key] = value;
    request
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

async fn submit(simulator: &Simulator, row: &str, request: &Value) -> HttpResponse {
    post(simulator, &format!("/at/{row}/v1/chat/completions"), &KEY, request).await
}

fn message(answer: &Value) -> Value {
    answer["choices"][0]["message"].clone()
}

/// Appends the message and the results of its calls to `messages`; returns the number of calls.
fn append_reply(messages: &mut Vec<Value>, message: Value) -> usize {
    let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
    messages.push(message);
    for call in &calls {
        let id = &call["id"];
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": "sunny ☀"}));
    }
    calls.len()
}

/// Adds the provider's setting that enables thinking.
fn thinking(row: &str, request: Value) -> Value {
    match row {
        "openrouter" => with(request, "reasoning", json!({"effort": "low"})),
        "mistral" | "groq" | "vllm" | "openai-chat" => {
            with(request, "reasoning_effort", json!("low"))
        }
        "qwen" => with(request, "enable_thinking", json!(true)),
        _ => request,
    }
}

const ROWS: [(&str, &str, &str); 15] = [
    ("deepseek", "deepseek-v4-flash", "reasoning_content"),
    ("deepseek", "deepseek-reasoner", "reasoning_content"),
    ("moonshot", "kimi-k2-thinking", "reasoning_content"),
    ("mistral", "magistral-medium-latest", "content"),
    ("zai", "glm-4.7", "reasoning_content"),
    ("minimax", "MiniMax-M2", "content"),
    ("qwen", "qwen3-max", "reasoning_content"),
    ("groq", "openai/gpt-oss-120b", "reasoning"),
    ("vllm", "qwen3-32b", "reasoning"),
    ("compatible", "gpt-oss-20b", "reasoning_content"),
    ("openrouter", "anthropic/claude-sonnet-4.5", "reasoning_details"),
    ("openrouter", "google/gemini-3-pro-preview", "reasoning_details"),
    ("openrouter", "openai/gpt-5.6", "reasoning_details"),
    ("openrouter", "x-ai/grok-4.3", "reasoning_details"),
    ("openrouter", "deepseek/deepseek-v4", "reasoning_details"),
];

/// Assembles a message from stream events, as a correct client does.
fn assembled(answer: &HttpResponse) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let mut message = json!({"role": "assistant", "content": ""});
    for event in answer.events() {
        let Some(delta) = event.pointer("/choices/0/delta").cloned() else { continue };
        for key in ["reasoning_content", "reasoning"] {
            if let Some(piece) = delta[key].as_str() {
                let text = message[key].as_str().unwrap_or_default().to_owned();
                message[key] = json!(text + piece);
            }
        }
        match &delta["content"] {
            Value::String(piece) => match &mut message["content"] {
                Value::String(text) => text.push_str(piece),
                Value::Array(chunks) => chunks.push(json!({"type": "text", "text": piece})),
                _ => {}
            },
            Value::Array(chunks) => {
                for chunk in chunks {
                    add_chunk(&mut message, chunk);
                }
            }
            _ => {}
        }
        for fragment in delta["reasoning_details"].as_array().into_iter().flatten() {
            add_detail(&mut message, fragment);
        }
        for fragment in delta["tool_calls"].as_array().into_iter().flatten() {
            add_call(&mut message, fragment);
        }
    }
    message
}

fn add_chunk(message: &mut Value, chunk: &Value) {
    if !message["content"].is_array() {
        message["content"] = json!([]);
    }
    let chunks = message["content"].as_array_mut().unwrap();
    match chunks.last_mut().filter(|last| last["type"] == chunk["type"]) {
        Some(last) if chunk["type"] == "thinking" => {
            let piece = chunk["thinking"][0]["text"].as_str().unwrap_or_default();
            let text = last["thinking"][0]["text"].as_str().unwrap_or_default().to_owned();
            last["thinking"][0]["text"] = json!(text + piece);
        }
        Some(last) => {
            let text = last["text"].as_str().unwrap_or_default().to_owned();
            last["text"] = json!(text + chunk["text"].as_str().unwrap_or_default());
        }
        None => chunks.push(chunk.clone()),
    }
}

fn add_detail(message: &mut Value, fragment: &Value) {
    if message.get("reasoning_details").is_none() {
        message["reasoning_details"] = json!([]);
    }
    let details = message["reasoning_details"].as_array_mut().unwrap();
    let existing = details
        .iter_mut()
        .find(|detail| detail["index"] == fragment["index"] && detail["type"] == fragment["type"]);
    let Some(detail) = existing else {
        details.push(fragment.clone());
        return;
    };
    for (key, value) in fragment.as_object().unwrap() {
        match (key.as_str(), value) {
            ("text" | "summary", Value::String(piece)) => {
                let text = detail[key].as_str().unwrap_or_default().to_owned();
                detail[key] = json!(text + piece);
            }
            (_, Value::Null) => {}
            (_, value) => detail[key] = value.clone(),
        }
    }
}

fn add_call(message: &mut Value, fragment: &Value) {
    if message.get("tool_calls").is_none() {
        message["tool_calls"] = json!([]);
    }
    let calls = message["tool_calls"].as_array_mut().unwrap();
    let index = usize::try_from(fragment["index"].as_u64().unwrap()).unwrap();
    if index == calls.len() {
        calls.push(json!({"type": "function", "function": {"arguments": ""}}));
    }
    let call = &mut calls[index];
    if let Some(id) = fragment["id"].as_str() {
        call["id"] = json!(id);
    }
    if let Some(name) = fragment["function"]["name"].as_str() {
        call["function"]["name"] = json!(name);
    }
    let arguments = call["function"]["arguments"].as_str().unwrap_or_default().to_owned();
    let piece = fragment["function"]["arguments"].as_str().unwrap_or_default();
    call["function"]["arguments"] = json!(arguments + piece);
}

#[tokio::test]
async fn two_turns_with_tools_are_accepted_if_everything_is_returned() {
    for (row, model, key) in ROWS {
        for streams in [false, true] {
            let simulator = simulator().await;
            let mut messages = vec![user("What is the weather in Zürich?")];
            let mut steps = 0;
            for turn in 0..2 {
                loop {
                    let body = thinking(row, request(model, &messages));
                    let answer =
                        submit(&simulator, row, &with(body, "stream", json!(streams))).await;
                    let reply =
                        if streams { assembled(&answer) } else { message(&answer.expect_ok()) };
                    assert!(!reply[key].is_null(), "{row} {model} {reply}");
                    steps += 1;
                    if append_reply(&mut messages, reply) == 0 {
                        break;
                    }
                }
                messages.push(user(&format!("And then? {turn}")));
            }
            assert_eq!(steps, 6, "{row} {model}");
            let ledger = simulator.ledger();
            assert!(ledger.all_verified(), "{row} {model} {streams} {ledger:#?}");
            simulator.stop().await;
        }
    }
}

#[tokio::test]
async fn openai_chat_returns_no_reasoning() {
    let simulator = simulator().await;
    let answer =
        submit(&simulator, "openai-chat", &request("gpt-5", &[user("Hi")])).await.expect_ok();
    let reply = message(&answer);
    assert_eq!((reply.get("reasoning_content"), reply.get("reasoning_details")), (None, None));
    assert!(answer["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64() > Some(0));
    let mut messages = vec![user("Hi")];
    append_reply(&mut messages, reply);
    messages[1]["reasoning_content"] = json!("of another model");
    submit(&simulator, "openai-chat", &request("gpt-5", &messages)).await.expect_ok();
}

#[tokio::test]
async fn unsupported_efforts_sampling_and_limits_are_rejected() {
    let simulator = simulator().await;
    let body = |model: &str, key: &str, value: Value| {
        with(json!({"model": model, "messages": [user("Hi")]}), key, value)
    };
    let effort = body("gpt-5", "reasoning_effort", json!("xhigh"));
    let answer = submit(&simulator, "openai-chat", &effort).await;
    assert!(
        answer
            .expect_error(400)
            .starts_with("Unsupported value: 'xhigh' is not supported with the")
    );
    assert_eq!(answer.json()["error"]["param"], "reasoning_effort");
    let warm = body("gpt-5", "temperature", json!(0.5));
    assert_eq!(
        submit(&simulator, "openai-chat", &warm).await.expect_error(400),
        "Unsupported value: 'temperature' does not support 0.5 with this model. Only the default (1) value is supported."
    );
    let limit = body("o4-mini", "max_tokens", json!(500));
    assert_eq!(
        submit(&simulator, "openai-chat", &limit).await.expect_error(400),
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    );
    let renamed = body("o4-mini", "max_completion_tokens", json!(500));
    submit(&simulator, "openai-chat", &renamed).await.expect_ok();
    // A router translates efforts and drops unsupported settings.
    let routed = with(
        body("openai/gpt-5", "temperature", json!(0.5)),
        "reasoning",
        json!({"effort": "max"}),
    );
    submit(&simulator, "openrouter", &routed).await.expect_ok();
}

#[tokio::test]
async fn calls_without_results_are_rejected() {
    let simulator = simulator().await;
    for (row, model) in [("openai-chat", "gpt-5"), ("moonshot", "kimi-k2-turbo")] {
        let mut messages = vec![user("Weather?")];
        let answer = submit(&simulator, row, &request(model, &messages)).await.expect_ok();
        append_reply(&mut messages, message(&answer));
        let id = messages[2]["tool_call_id"].as_str().unwrap();
        let unanswered = [&messages[..2], &[user("Well?")]].concat();
        for broken in [&messages[..2], &unanswered] {
            let error = submit(&simulator, row, &request(model, broken)).await.expect_error(400);
            assert_eq!(
                error,
                format!(
                    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {id}"
                )
            );
        }
        let orphan = [messages[0].clone(), messages[2].clone()];
        let error = submit(&simulator, row, &request(model, &orphan)).await.expect_error(400);
        assert!(error.starts_with("Invalid parameter: messages with role 'tool' must be"));
        let repeated = [&messages[..], &[messages[2].clone()]].concat();
        let error = submit(&simulator, row, &request(model, &repeated)).await.expect_error(400);
        assert_eq!(
            error,
            format!(
                "Invalid parameter: Duplicate value for 'tool_call_id' of '{id}', in messages[2] and messages[3]."
            )
        );
    }
}

#[tokio::test]
async fn deepseek_and_kimi_require_the_reasoning_of_calls() {
    let simulator = simulator().await;
    let cases = [
        (
            "deepseek",
            "deepseek-v4-flash",
            "The reasoning_content in the thinking mode must be passed back to the API.",
        ),
        (
            "moonshot",
            "kimi-k2-thinking",
            "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1",
        ),
    ];
    for (row, model, expected) in cases {
        let mut messages = vec![user("Weather?")];
        let answer = submit(&simulator, row, &request(model, &messages)).await.expect_ok();
        append_reply(&mut messages, message(&answer));
        for broken in [None, Some(Value::Null)] {
            let mut without = messages.clone();
            let reply = without[1].as_object_mut().unwrap();
            reply.remove("reasoning_content");
            reply.extend(broken.map(|value| ("reasoning_content".to_owned(), value)));
            let answer = submit(&simulator, row, &request(model, &without)).await;
            assert_eq!(answer.expect_error(400), expected);
            assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
            // Later turns do not fix the missing reasoning.
            without.extend([json!({"role": "assistant", "content": "Sunny."}), user("And then?")]);
            submit(&simulator, row, &request(model, &without)).await.expect_error(400);
        }
        let mut empty = messages.clone();
        empty[1]["reasoning_content"] = json!("");
        submit(&simulator, row, &request(model, &empty)).await.expect_ok();
        let mut stand_in = messages.clone();
        stand_in[1]["reasoning_content"] = json!(".");
        submit(&simulator, row, &request(model, &stand_in)).await.expect_ok();
    }
    let mut messages = vec![user("Weather?")];
    let off = |messages: &[Value]| {
        with(request("deepseek-v4-flash", messages), "thinking", json!({"type": "disabled"}))
    };
    let answer = submit(&simulator, "deepseek", &off(&messages)).await.expect_ok();
    assert_eq!(message(&answer).get("reasoning_content"), None);
    append_reply(&mut messages, message(&answer));
    submit(&simulator, "deepseek", &off(&messages)).await.expect_ok();
}

/// Sources disagree on whether the reasoning of the answer after the calls is required, so the
/// request is accepted, and the ledger counts the reasoning as lost.
#[tokio::test]
async fn lost_reasoning_of_finished_tool_turns_is_recorded() {
    let simulator = simulator().await;
    for (row, model) in [("deepseek", "deepseek-v4-flash"), ("moonshot", "kimi-k2-thinking")] {
        let mut messages = vec![user("Weather?")];
        loop {
            let answer = submit(&simulator, row, &request(model, &messages)).await.expect_ok();
            if append_reply(&mut messages, message(&answer)) == 0 {
                break;
            }
        }
        let answer = messages.len() - 1;
        messages.push(user("Thanks."));
        let lost = async |at: Option<usize>, value: Value| {
            let mut messages = messages.clone();
            if let Some(at) = at {
                messages[at]["reasoning_content"] = value;
            }
            submit(&simulator, row, &request(model, &messages)).await.expect_ok();
            simulator.ledger().entries.last().unwrap().lost
        };
        assert_eq!(lost(None, Value::Null).await, 0, "{model}");
        assert_eq!(lost(Some(answer), Value::Null).await, 1, "{model}");
        assert_eq!(lost(Some(1), json!(".")).await, 1, "{model}");
    }
    let mut chat = vec![user("Hi")];
    let plain = |messages: &[Value]| json!({"model": "deepseek-v4-flash", "messages": messages});
    let answer = submit(&simulator, "deepseek", &plain(&chat)).await.expect_ok();
    chat.extend([json!({"role": "assistant", "content": message(&answer)["content"]}), user("?")]);
    submit(&simulator, "deepseek", &plain(&chat)).await.expect_ok();
    assert_eq!(simulator.ledger().entries.last().unwrap().lost, 0, "the turn called no tool");
}

#[tokio::test]
async fn deepseek_rejects_forced_tools_while_thinking() {
    let simulator = simulator().await;
    let forced =
        with(request("deepseek-v4-flash", &[user("Hi")]), "tool_choice", json!("required"));
    let answer = submit(&simulator, "deepseek", &forced).await;
    assert_eq!(
        answer.json()["error"],
        json!({
            "message": "Thinking mode does not support this tool_choice",
            "type": "invalid_request_error",
            "param": null,
            "code": "invalid_request_error",
        })
    );
    let off = with(forced, "thinking", json!({"type": "disabled"}));
    submit(&simulator, "deepseek", &off).await.expect_ok();
}

#[tokio::test]
async fn mistral_rejects_unknown_keys_and_long_call_ids() {
    let simulator = simulator().await;
    let mut messages = vec![user("Weather?")];
    let body = |messages: &[Value]| request("magistral-medium-latest", messages);
    let answer = submit(&simulator, "mistral", &body(&messages)).await.expect_ok();
    let reply = message(&answer);
    assert_eq!(reply["content"][0]["type"], "thinking");
    assert_eq!(reply["tool_calls"][0]["id"].as_str().unwrap().len(), 9);
    append_reply(&mut messages, reply);
    for key in ["reasoning_content", "reasoning", "reasoning_details"] {
        let mut extra = messages.clone();
        extra[1][key] = json!("hm");
        let answer = submit(&simulator, "mistral", &body(&extra)).await;
        assert_eq!(answer.status, 422);
        let detail = &answer.json()["message"]["detail"][0];
        assert_eq!(detail["type"], "extra_forbidden");
        assert_eq!(detail["loc"], json!(["body", "messages", 1, "assistant", key]));
        assert_eq!(detail["msg"], "Extra inputs are not permitted");
    }
    let mut renamed = messages.clone();
    renamed[1]["tool_calls"][0]["id"] = json!("call_long");
    renamed[2]["tool_call_id"] = json!("call_long");
    let error = submit(&simulator, "mistral", &body(&renamed)).await.expect_error(400);
    assert_eq!(error, "Tool call id was call_long but must be a-z, A-Z, 0-9, with a length of 9.");
    let error = submit(&simulator, "mistral", &body(&messages[..2])).await.expect_error(400);
    assert_eq!(error, "Not the same number of function calls and responses");
}

#[tokio::test]
async fn groq_rejects_conflicting_reasoning_settings() {
    let simulator = simulator().await;
    let both = json!({"model": "qwen3-32b", "messages": [user("Hi")], "reasoning_format": "parsed", "include_reasoning": true});
    let error = submit(&simulator, "groq", &both).await.expect_error(400);
    assert!(error.contains("include_reasoning") && error.contains("reasoning_format"));
}

#[tokio::test]
async fn lost_or_edited_reasoning_is_accepted_and_recorded() {
    let simulator = simulator().await;
    let mut messages = vec![user("Weather?")];
    let answer = submit(&simulator, "zai", &request("glm-4.7", &messages)).await.expect_ok();
    append_reply(&mut messages, message(&answer));
    let mut lost = messages.clone();
    lost[1].as_object_mut().unwrap().remove("reasoning_content");
    submit(&simulator, "zai", &request("glm-4.7", &lost)).await.expect_ok();
    assert_eq!(simulator.ledger().entries.last().unwrap().lost, 1);
    let mut edited = messages.clone();
    edited[1]["reasoning_content"] = json!("Something that no model ever thought.");
    submit(&simulator, "zai", &request("glm-4.7", &edited)).await.expect_ok();
    let entry = simulator.ledger().entries.last().cloned().unwrap();
    assert_eq!(entry.returned[0].verdict, Verdict::Dropped("altered".to_owned()));
}

/// Returns the messages after one step at OpenRouter: a question, a call with its reasoning
/// details, and the call's result.
async fn one_step(simulator: &Simulator, model: &str) -> Vec<Value> {
    let mut messages = vec![user("Weather?")];
    let body = thinking("openrouter", request(model, &messages));
    let answer = submit(simulator, "openrouter", &body).await.expect_ok();
    assert_eq!(append_reply(&mut messages, message(&answer)), 1);
    messages
}

/// Extracts the upstream error that the router wrapped in its own error.
#[track_caller]
fn upstream(answer: &HttpResponse, name: &str) -> Value {
    assert_eq!(answer.status, 400, "{}", answer.text());
    let error = &answer.json()["error"];
    assert_eq!(
        (&error["message"], &error["code"]),
        (&json!("Provider returned error"), &json!(400))
    );
    assert_eq!(error["metadata"]["provider_name"], name);
    serde_json::from_str(error["metadata"]["raw"].as_str().unwrap()).unwrap()
}

const CLAUDE: &str = "anthropic/claude-sonnet-4.5";

#[tokio::test]
async fn routed_claude_verifies_signatures() {
    let simulator = simulator().await;
    let messages = one_step(&simulator, CLAUDE).await;
    let detail = &messages[1]["reasoning_details"][0];
    assert_eq!(
        (&detail["type"], &detail["format"]),
        (&json!("reasoning.text"), &json!("anthropic-claude-v1"))
    );
    let signature = detail["signature"].as_str().unwrap().to_owned();
    assert!(signature.starts_with('E'));
    let body = |messages: &[Value]| thinking("openrouter", request(CLAUDE, messages));
    submit(&simulator, "openrouter", &body(&messages)).await.expect_ok();

    let invalid = "messages.1.content.0: Invalid `signature` in `thinking` block";
    let cases: [(&str, Value, &str); 4] = [
        ("signature", json!(""), invalid),
        ("signature", json!(signature.replacen(&signature[20..21], "0", 1)), invalid),
        ("text", json!("I was edited."), invalid),
        ("signature", json!("gAAAAABqaR3"), invalid),
    ];
    for (key, value, expected) in cases {
        let mut broken = messages.clone();
        if broken[1]["reasoning_details"][0][key] == value {
            continue;
        }
        broken[1]["reasoning_details"][0][key] = value;
        let answer = submit(&simulator, "openrouter", &body(&broken)).await;
        let raw = upstream(&answer, "Anthropic");
        assert_eq!(raw["error"]["type"], "invalid_request_error");
        assert_eq!(raw["error"]["message"], expected, "{key}");
    }
    let mut unsigned = messages.clone();
    unsigned[1]["reasoning_details"][0].as_object_mut().unwrap().remove("signature");
    let raw = upstream(&submit(&simulator, "openrouter", &body(&unsigned)).await, "Anthropic");
    assert_eq!(raw["error"]["message"], "messages.1.content.0.thinking.signature: Field required");
    // After a new user message, the signature is not required any more.
    unsigned.extend([json!({"role": "assistant", "content": "Sunny."}), user("And then?")]);
    submit(&simulator, "openrouter", &body(&unsigned)).await.expect_ok();
    // If all details are missing, the request is accepted, and the loss is recorded.
    let mut dropped = messages.clone();
    dropped[1].as_object_mut().unwrap().remove("reasoning_details");
    submit(&simulator, "openrouter", &body(&dropped)).await.expect_ok();
    assert_eq!(simulator.ledger().entries.last().unwrap().lost, 1);
}

#[tokio::test]
async fn raw_stream_fragments_are_rejected() {
    let simulator = simulator().await;
    let mut messages = vec![user("Weather?")];
    let body = with(thinking("openrouter", request(CLAUDE, &messages)), "stream", json!(true));
    let answer = submit(&simulator, "openrouter", &body).await;
    let mut reply = assembled(&answer);
    let fragments: Vec<Value> = answer
        .events()
        .iter()
        .filter_map(|event| {
            event.pointer("/choices/0/delta/reasoning_details")?.as_array().cloned()
        })
        .flatten()
        .collect();
    assert!(fragments.len() > 2);
    reply["reasoning_details"] = json!(fragments);
    append_reply(&mut messages, reply);
    let replayed = thinking("openrouter", request(CLAUDE, &messages));
    let raw = upstream(&submit(&simulator, "openrouter", &replayed).await, "Anthropic");
    assert_eq!(
        raw["error"]["message"],
        "messages.1.content.0: Invalid `signature` in `thinking` block"
    );
}

#[tokio::test]
async fn detail_moved_to_another_message_is_rejected() {
    let simulator = simulator().await;
    let mut messages = one_step(&simulator, CLAUDE).await;
    let body = |messages: &[Value]| thinking("openrouter", request(CLAUDE, messages));
    let second = submit(&simulator, "openrouter", &body(&messages)).await.expect_ok();
    append_reply(&mut messages, message(&second));
    let first = messages[1]["reasoning_details"].clone();
    messages[1]["reasoning_details"] = messages[3]["reasoning_details"].clone();
    messages[3]["reasoning_details"] = first;
    let raw = upstream(&submit(&simulator, "openrouter", &body(&messages)).await, "Anthropic");
    assert!(raw["error"]["message"].as_str().unwrap().contains("cannot be modified"));
}

#[tokio::test]
async fn routed_gemini_requires_the_first_call_signature() {
    let simulator = simulator().await;
    let model = "google/gemini-3-pro-preview";
    let messages = one_step(&simulator, model).await;
    let details = messages[1]["reasoning_details"].as_array().unwrap();
    let signed = details.iter().find(|detail| detail["type"] == "reasoning.encrypted").unwrap();
    assert_eq!(signed["id"], messages[1]["tool_calls"][0]["id"]);
    let body = |messages: &[Value]| request(model, messages);
    submit(&simulator, "openrouter", &body(&messages)).await.expect_ok();

    let mut without = messages.clone();
    without[1].as_object_mut().unwrap().remove("reasoning_details");
    let raw =
        upstream(&submit(&simulator, "openrouter", &body(&without)).await, "Google AI Studio");
    assert_eq!(raw["error"]["status"], "INVALID_ARGUMENT");
    let error = raw["error"]["message"].as_str().unwrap();
    assert!(error.contains("missing a thought_signature"), "{error}");
    assert!(error.contains("`default_api:weather` , position 2"), "{error}");

    let mut altered = messages.clone();
    let at = altered[1]["reasoning_details"].as_array().unwrap().len() - 1;
    altered[1]["reasoning_details"][at]["data"] = json!("AAAA");
    let raw =
        upstream(&submit(&simulator, "openrouter", &body(&altered)).await, "Google AI Studio");
    assert_eq!(raw["error"]["message"], "Corrupted thought signature.");
}

#[tokio::test]
async fn foreign_seals_are_rejected_or_ignored() {
    let simulator = simulator().await;
    let claudes = one_step(&simulator, CLAUDE).await;
    let openais = one_step(&simulator, "openai/gpt-5.6").await;
    let body = |model: &str, messages: &[Value]| thinking("openrouter", request(model, messages));
    let raw =
        upstream(&submit(&simulator, "openrouter", &body(CLAUDE, &openais)).await, "Anthropic");
    assert!(raw["error"]["message"].as_str().unwrap().contains("Invalid `signature`"));
    let to_openai = submit(&simulator, "openrouter", &body("openai/gpt-5.6", &claudes)).await;
    assert_eq!(upstream(&to_openai, "OpenAI")["error"]["code"], "invalid_encrypted_content");
    let elsewhere = submit(&simulator, "openrouter", &body("deepseek/deepseek-v4", &claudes)).await;
    elsewhere.expect_ok();
    let last = simulator.ledger().entries.last().cloned().unwrap();
    assert_eq!(last.returned[0].verdict, Verdict::Dropped("not_read".to_owned()));
}

#[tokio::test]
async fn thoughts_as_text_cause_a_refusal() {
    let simulator = simulator().await;
    let messages = one_step(&simulator, CLAUDE).await;
    let thought = messages[1]["reasoning_details"][0]["text"].as_str().unwrap();
    for text in [thought.to_owned(), format!("<think>{thought}</think>")] {
        let mut demoted = messages.clone();
        demoted[1].as_object_mut().unwrap().remove("reasoning_details");
        demoted[1]["content"] = json!(text);
        let answer = submit(&simulator, "openrouter", &request(CLAUDE, &demoted)).await.expect_ok();
        assert_eq!(answer["choices"][0]["finish_reason"], "content_filter");
        assert_eq!(answer["choices"][0]["native_finish_reason"], "refusal");
    }
}

#[tokio::test]
async fn requested_tools_are_called_in_parallel() {
    let simulator = simulator().await;
    for model in [CLAUDE, "google/gemini-3-pro-preview"] {
        let mut messages = vec![user("Weather?")];
        let body = |messages: &[Value]| {
            with(
                thinking("openrouter", request(model, messages)),
                "parallel_tool_calls",
                json!(true),
            )
        };
        let answer = submit(&simulator, "openrouter", &body(&messages)).await.expect_ok();
        assert_eq!(append_reply(&mut messages, message(&answer)), 2);
        let last = submit(&simulator, "openrouter", &body(&messages)).await.expect_ok();
        assert!(message(&last)["content"].as_str().unwrap().contains("sunny"));
    }
    assert!(simulator.ledger().all_verified());
}
