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

async fn ask(simulator: &Simulator, row: &str, request: &Value) -> HttpResponse {
    post(simulator, &format!("/at/{row}/v1/chat/completions"), &KEY, request).await
}

fn message(answer: &Value) -> Value {
    answer["choices"][0]["message"].clone()
}

/// Appends the message and the results of its calls to `messages`; returns the number of calls.
fn gone_on(messages: &mut Vec<Value>, message: Value) -> usize {
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
                let said = message[key].as_str().unwrap_or_default().to_owned();
                message[key] = json!(said + piece);
            }
        }
        match &delta["content"] {
            Value::String(piece) => match &mut message["content"] {
                Value::String(said) => said.push_str(piece),
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
            let said = last["thinking"][0]["text"].as_str().unwrap_or_default().to_owned();
            last["thinking"][0]["text"] = json!(said + piece);
        }
        Some(last) => {
            let said = last["text"].as_str().unwrap_or_default().to_owned();
            last["text"] = json!(said + chunk["text"].as_str().unwrap_or_default());
        }
        None => chunks.push(chunk.clone()),
    }
}

fn add_detail(message: &mut Value, fragment: &Value) {
    if message.get("reasoning_details").is_none() {
        message["reasoning_details"] = json!([]);
    }
    let details = message["reasoning_details"].as_array_mut().unwrap();
    let known = details
        .iter_mut()
        .find(|detail| detail["index"] == fragment["index"] && detail["type"] == fragment["type"]);
    let Some(detail) = known else {
        details.push(fragment.clone());
        return;
    };
    for (key, value) in fragment.as_object().unwrap() {
        match (key.as_str(), value) {
            ("text" | "summary", Value::String(piece)) => {
                let said = detail[key].as_str().unwrap_or_default().to_owned();
                detail[key] = json!(said + piece);
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
    let said = call["function"]["arguments"].as_str().unwrap_or_default().to_owned();
    let piece = fragment["function"]["arguments"].as_str().unwrap_or_default();
    call["function"]["arguments"] = json!(said + piece);
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
                    let asked = thinking(row, request(model, &messages));
                    let answer = ask(&simulator, row, &with(asked, "stream", json!(streams))).await;
                    let said =
                        if streams { assembled(&answer) } else { message(&answer.accepted()) };
                    assert!(!said[key].is_null(), "{row} {model} {said}");
                    steps += 1;
                    if gone_on(&mut messages, said) == 0 {
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
        ask(&simulator, "openai-chat", &request("gpt-5.6", &[user("Hi")])).await.accepted();
    let said = message(&answer);
    assert_eq!((said.get("reasoning_content"), said.get("reasoning_details")), (None, None));
    assert!(answer["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64() > Some(0));
    let mut messages = vec![user("Hi")];
    gone_on(&mut messages, said);
    messages[1]["reasoning_content"] = json!("of another model");
    ask(&simulator, "openai-chat", &request("gpt-5.6", &messages)).await.accepted();
}

#[tokio::test]
async fn unsupported_efforts_sampling_and_limits_are_rejected() {
    let simulator = simulator().await;
    let asked = |model: &str, key: &str, value: Value| {
        with(json!({"model": model, "messages": [user("Hi")]}), key, value)
    };
    let effort = asked("gpt-5", "reasoning_effort", json!("xhigh"));
    let answer = ask(&simulator, "openai-chat", &effort).await;
    assert!(
        answer.refused(400).starts_with("Unsupported value: 'xhigh' is not supported with the")
    );
    assert_eq!(answer.json()["error"]["param"], "reasoning_effort");
    let warm = asked("gpt-5", "temperature", json!(0.5));
    assert_eq!(
        ask(&simulator, "openai-chat", &warm).await.refused(400),
        "Unsupported value: 'temperature' does not support 0.5 with this model. Only the default (1) value is supported."
    );
    let limit = asked("o4-mini", "max_tokens", json!(500));
    assert_eq!(
        ask(&simulator, "openai-chat", &limit).await.refused(400),
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    );
    let renamed = asked("o4-mini", "max_completion_tokens", json!(500));
    ask(&simulator, "openai-chat", &renamed).await.accepted();
    // A router translates efforts and drops unsupported settings.
    let routed = with(
        asked("openai/gpt-5", "temperature", json!(0.5)),
        "reasoning",
        json!({"effort": "max"}),
    );
    ask(&simulator, "openrouter", &routed).await.accepted();
}

#[tokio::test]
async fn calls_without_results_are_rejected() {
    let simulator = simulator().await;
    for (row, model) in [("openai-chat", "gpt-5.6"), ("moonshot", "kimi-k2-turbo")] {
        let mut messages = vec![user("Weather?")];
        let answer = ask(&simulator, row, &request(model, &messages)).await.accepted();
        gone_on(&mut messages, message(&answer));
        let id = messages[2]["tool_call_id"].as_str().unwrap();
        let unanswered = [&messages[..2], &[user("Well?")]].concat();
        for broken in [&messages[..2], &unanswered] {
            let refused = ask(&simulator, row, &request(model, broken)).await.refused(400);
            assert_eq!(
                refused,
                format!(
                    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {id}"
                )
            );
        }
        let orphan = [messages[0].clone(), messages[2].clone()];
        let refused = ask(&simulator, row, &request(model, &orphan)).await.refused(400);
        assert!(refused.starts_with("Invalid parameter: messages with role 'tool' must be"));
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
        let answer = ask(&simulator, row, &request(model, &messages)).await.accepted();
        gone_on(&mut messages, message(&answer));
        for broken in [None, Some(Value::Null)] {
            let mut without = messages.clone();
            let said = without[1].as_object_mut().unwrap();
            said.remove("reasoning_content");
            said.extend(broken.map(|value| ("reasoning_content".to_owned(), value)));
            let answer = ask(&simulator, row, &request(model, &without)).await;
            assert_eq!(answer.refused(400), expected);
            assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
            // Later turns do not fix the missing reasoning.
            without.extend([json!({"role": "assistant", "content": "Sunny."}), user("And then?")]);
            ask(&simulator, row, &request(model, &without)).await.refused(400);
        }
        let mut empty = messages.clone();
        empty[1]["reasoning_content"] = json!("");
        ask(&simulator, row, &request(model, &empty)).await.accepted();
        let mut stand_in = messages.clone();
        stand_in[1]["reasoning_content"] = json!(".");
        ask(&simulator, row, &request(model, &stand_in)).await.accepted();
    }
    let mut messages = vec![user("Weather?")];
    let off = |messages: &[Value]| {
        with(request("deepseek-v4-flash", messages), "thinking", json!({"type": "disabled"}))
    };
    let answer = ask(&simulator, "deepseek", &off(&messages)).await.accepted();
    assert_eq!(message(&answer).get("reasoning_content"), None);
    gone_on(&mut messages, message(&answer));
    ask(&simulator, "deepseek", &off(&messages)).await.accepted();
}

#[tokio::test]
async fn deepseek_rejects_forced_tools_while_thinking() {
    let simulator = simulator().await;
    let forced =
        with(request("deepseek-v4-flash", &[user("Hi")]), "tool_choice", json!("required"));
    let answer = ask(&simulator, "deepseek", &forced).await;
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
    ask(&simulator, "deepseek", &off).await.accepted();
}

#[tokio::test]
async fn mistral_rejects_unknown_keys_and_long_call_ids() {
    let simulator = simulator().await;
    let mut messages = vec![user("Weather?")];
    let asked = |messages: &[Value]| request("magistral-medium-latest", messages);
    let answer = ask(&simulator, "mistral", &asked(&messages)).await.accepted();
    let said = message(&answer);
    assert_eq!(said["content"][0]["type"], "thinking");
    assert_eq!(said["tool_calls"][0]["id"].as_str().unwrap().len(), 9);
    gone_on(&mut messages, said);
    for key in ["reasoning_content", "reasoning", "reasoning_details"] {
        let mut extra = messages.clone();
        extra[1][key] = json!("hm");
        let answer = ask(&simulator, "mistral", &asked(&extra)).await;
        assert_eq!(answer.status, 422);
        let detail = &answer.json()["message"]["detail"][0];
        assert_eq!(detail["type"], "extra_forbidden");
        assert_eq!(detail["loc"], json!(["body", "messages", 1, "assistant", key]));
        assert_eq!(detail["msg"], "Extra inputs are not permitted");
    }
    let mut renamed = messages.clone();
    renamed[1]["tool_calls"][0]["id"] = json!("call_long");
    renamed[2]["tool_call_id"] = json!("call_long");
    let refused = ask(&simulator, "mistral", &asked(&renamed)).await.refused(400);
    assert_eq!(
        refused,
        "Tool call id was call_long but must be a-z, A-Z, 0-9, with a length of 9."
    );
    let refused = ask(&simulator, "mistral", &asked(&messages[..2])).await.refused(400);
    assert_eq!(refused, "Not the same number of function calls and responses");
}

#[tokio::test]
async fn groq_rejects_conflicting_reasoning_settings() {
    let simulator = simulator().await;
    let both = json!({"model": "qwen3-32b", "messages": [user("Hi")], "reasoning_format": "parsed", "include_reasoning": true});
    let refused = ask(&simulator, "groq", &both).await.refused(400);
    assert!(refused.contains("include_reasoning") && refused.contains("reasoning_format"));
}

#[tokio::test]
async fn lost_or_edited_reasoning_is_accepted_and_recorded() {
    let simulator = simulator().await;
    let mut messages = vec![user("Weather?")];
    let answer = ask(&simulator, "zai", &request("glm-4.7", &messages)).await.accepted();
    gone_on(&mut messages, message(&answer));
    let mut lost = messages.clone();
    lost[1].as_object_mut().unwrap().remove("reasoning_content");
    ask(&simulator, "zai", &request("glm-4.7", &lost)).await.accepted();
    assert_eq!(simulator.ledger().entries.last().unwrap().lost, 1);
    let mut edited = messages.clone();
    edited[1]["reasoning_content"] = json!("Something that no model ever thought.");
    ask(&simulator, "zai", &request("glm-4.7", &edited)).await.accepted();
    let entry = simulator.ledger().entries.last().cloned().unwrap();
    assert_eq!(entry.returned[0].verdict, Verdict::Dropped("altered".to_owned()));
}

/// Returns the messages after one step at OpenRouter: a question, a call with its reasoning
/// details, and the call's result.
async fn one_step(simulator: &Simulator, model: &str) -> Vec<Value> {
    let mut messages = vec![user("Weather?")];
    let asked = thinking("openrouter", request(model, &messages));
    let answer = ask(simulator, "openrouter", &asked).await.accepted();
    assert_eq!(gone_on(&mut messages, message(&answer)), 1);
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
    let asked = |messages: &[Value]| thinking("openrouter", request(CLAUDE, messages));
    ask(&simulator, "openrouter", &asked(&messages)).await.accepted();

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
        let answer = ask(&simulator, "openrouter", &asked(&broken)).await;
        let raw = upstream(&answer, "Anthropic");
        assert_eq!(raw["error"]["type"], "invalid_request_error");
        assert_eq!(raw["error"]["message"], expected, "{key}");
    }
    let mut unsigned = messages.clone();
    unsigned[1]["reasoning_details"][0].as_object_mut().unwrap().remove("signature");
    let raw = upstream(&ask(&simulator, "openrouter", &asked(&unsigned)).await, "Anthropic");
    assert_eq!(raw["error"]["message"], "messages.1.content.0.thinking.signature: Field required");
    // After a new user message, the signature is not required any more.
    unsigned.extend([json!({"role": "assistant", "content": "Sunny."}), user("And then?")]);
    ask(&simulator, "openrouter", &asked(&unsigned)).await.accepted();
    // If all details are missing, the request is accepted, and the loss is recorded.
    let mut dropped = messages.clone();
    dropped[1].as_object_mut().unwrap().remove("reasoning_details");
    ask(&simulator, "openrouter", &asked(&dropped)).await.accepted();
    assert_eq!(simulator.ledger().entries.last().unwrap().lost, 1);
}

#[tokio::test]
async fn raw_stream_fragments_are_rejected() {
    let simulator = simulator().await;
    let mut messages = vec![user("Weather?")];
    let asked = with(thinking("openrouter", request(CLAUDE, &messages)), "stream", json!(true));
    let answer = ask(&simulator, "openrouter", &asked).await;
    let mut said = assembled(&answer);
    let fragments: Vec<Value> = answer
        .events()
        .iter()
        .filter_map(|event| {
            event.pointer("/choices/0/delta/reasoning_details")?.as_array().cloned()
        })
        .flatten()
        .collect();
    assert!(fragments.len() > 2);
    said["reasoning_details"] = json!(fragments);
    gone_on(&mut messages, said);
    let replayed = thinking("openrouter", request(CLAUDE, &messages));
    let raw = upstream(&ask(&simulator, "openrouter", &replayed).await, "Anthropic");
    assert_eq!(
        raw["error"]["message"],
        "messages.1.content.0: Invalid `signature` in `thinking` block"
    );
}

#[tokio::test]
async fn detail_moved_to_another_message_is_rejected() {
    let simulator = simulator().await;
    let mut messages = one_step(&simulator, CLAUDE).await;
    let asked = |messages: &[Value]| thinking("openrouter", request(CLAUDE, messages));
    let second = ask(&simulator, "openrouter", &asked(&messages)).await.accepted();
    gone_on(&mut messages, message(&second));
    let first = messages[1]["reasoning_details"].clone();
    messages[1]["reasoning_details"] = messages[3]["reasoning_details"].clone();
    messages[3]["reasoning_details"] = first;
    let raw = upstream(&ask(&simulator, "openrouter", &asked(&messages)).await, "Anthropic");
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
    let asked = |messages: &[Value]| request(model, messages);
    ask(&simulator, "openrouter", &asked(&messages)).await.accepted();

    let mut without = messages.clone();
    without[1].as_object_mut().unwrap().remove("reasoning_details");
    let raw = upstream(&ask(&simulator, "openrouter", &asked(&without)).await, "Google AI Studio");
    assert_eq!(raw["error"]["status"], "INVALID_ARGUMENT");
    let sentence = raw["error"]["message"].as_str().unwrap();
    assert!(sentence.contains("missing a thought_signature"), "{sentence}");
    assert!(sentence.contains("`default_api:weather` , position 2"), "{sentence}");

    let mut altered = messages.clone();
    let at = altered[1]["reasoning_details"].as_array().unwrap().len() - 1;
    altered[1]["reasoning_details"][at]["data"] = json!("AAAA");
    let raw = upstream(&ask(&simulator, "openrouter", &asked(&altered)).await, "Google AI Studio");
    assert_eq!(raw["error"]["message"], "Corrupted thought signature.");
}

#[tokio::test]
async fn foreign_seals_are_rejected_or_ignored() {
    let simulator = simulator().await;
    let claudes = one_step(&simulator, CLAUDE).await;
    let openais = one_step(&simulator, "openai/gpt-5.6").await;
    let asked = |model: &str, messages: &[Value]| thinking("openrouter", request(model, messages));
    let raw = upstream(&ask(&simulator, "openrouter", &asked(CLAUDE, &openais)).await, "Anthropic");
    assert!(raw["error"]["message"].as_str().unwrap().contains("Invalid `signature`"));
    let to_openai = ask(&simulator, "openrouter", &asked("openai/gpt-5.6", &claudes)).await;
    assert_eq!(upstream(&to_openai, "OpenAI")["error"]["code"], "invalid_encrypted_content");
    let elsewhere = ask(&simulator, "openrouter", &asked("deepseek/deepseek-v4", &claudes)).await;
    elsewhere.accepted();
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
        let answer = ask(&simulator, "openrouter", &request(CLAUDE, &demoted)).await.accepted();
        assert_eq!(answer["choices"][0]["finish_reason"], "content_filter");
        assert_eq!(answer["choices"][0]["native_finish_reason"], "refusal");
    }
}

#[tokio::test]
async fn requested_tools_are_called_in_parallel() {
    let simulator = simulator().await;
    for model in [CLAUDE, "google/gemini-3-pro-preview"] {
        let mut messages = vec![user("Weather?")];
        let asked = |messages: &[Value]| {
            with(
                thinking("openrouter", request(model, messages)),
                "parallel_tool_calls",
                json!(true),
            )
        };
        let answer = ask(&simulator, "openrouter", &asked(&messages)).await.accepted();
        assert_eq!(gone_on(&mut messages, message(&answer)), 2);
        let last = ask(&simulator, "openrouter", &asked(&messages)).await.accepted();
        assert!(message(&last)["content"].as_str().unwrap().contains("sunny"));
    }
    assert!(simulator.ledger().all_verified());
}
