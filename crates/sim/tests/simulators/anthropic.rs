//! Tests for Anthropic's Messages API: accepted and rejected requests, dropped thoughts, and
//! signatures.

use crate::common::{HttpResponse, get, post, simulator};
use serde_json::{Value, json};
use throughline_sim::{Options, Simulator, Verdict, start};

const PATH: &str = "/v1/messages";
const KEY: &[(&str, &str)] = &[("x-api-key", "key-one"), ("anthropic-version", "2023-06-01")];

type Change = fn(&mut Value);

fn tool(name: &str) -> Value {
    json!({"name": name, "description": "Looks something up.", "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
        "required": ["city"],
    }})
}

fn request(model: &str) -> Value {
    json!({
        "model": model,
        "max_tokens": 4096,
        "system": "Be brief.",
        "tools": [tool("weather"), tool("news")],
        "messages": [{"role": "user", "content": "How is Zürich today? 🌤"}],
    })
}

fn manual(model: &str) -> Value {
    let mut request = request(model);
    request["thinking"] = json!({"type": "enabled", "budget_tokens": 2048});
    request
}

async fn submit(simulator: &Simulator, body: &Value) -> HttpResponse {
    post(simulator, PATH, KEY, body).await
}

/// Appends the reply and the results of its calls to the request.
fn append_reply(request: &mut Value, answer: &Value) {
    let content = answer["content"].clone();
    let calls = content.as_array().expect("content is a list").iter();
    let calls = calls.filter(|block| block["type"] == "tool_use");
    let results: Vec<Value> = calls
        .map(|call| json!({"type": "tool_result", "tool_use_id": call["id"], "content": "sunny, 21 °C"}))
        .collect();
    let messages = request["messages"].as_array_mut().expect("messages are a list");
    messages.push(json!({"role": "assistant", "content": content}));
    if results.is_empty() {
        messages.push(json!({"role": "user", "content": "And tomorrow?"}));
    } else {
        messages.push(json!({"role": "user", "content": results}));
    }
}

/// Sends a request and returns the follow-up request with the first tool results.
async fn follow_up(simulator: &Simulator, mut request: Value) -> Value {
    let answer = submit(simulator, &request).await.expect_ok();
    assert_eq!(answer["stop_reason"], "tool_use");
    append_reply(&mut request, &answer);
    request
}

#[tokio::test]
async fn two_turns_with_tools_are_accepted_if_returned_exactly() {
    for model in ["claude-sonnet-4-5", "claude-opus-4-6", "claude-opus-5-5", "claude-fable-5-1"] {
        let simulator = simulator().await;
        let mut request = request(model);
        if model == "claude-sonnet-4-5" {
            request = manual(model);
        }
        if model == "claude-opus-4-6" {
            request["thinking"] = json!({"type": "adaptive"});
        }
        let mut stops = Vec::new();
        for _ in 0..6 {
            let answer = submit(&simulator, &request).await.expect_ok();
            assert_eq!(answer["content"][0]["type"], "thinking", "{model}");
            stops.push(answer["stop_reason"].as_str().unwrap_or_default().to_owned());
            append_reply(&mut request, &answer);
        }
        assert_eq!(stops, ["tool_use", "tool_use", "end_turn", "tool_use", "tool_use", "end_turn"]);
        let ledger = simulator.ledger();
        assert!(ledger.all_verified(), "{ledger:?}");
        assert_eq!(ledger.issued().count(), 6);
        assert_eq!(ledger.returned().count(), 1 + 2 + 3 + 4 + 5);
    }
}

#[tokio::test]
async fn streamed_answer_equals_the_whole_answer() {
    let complete = submit(&simulator().await, &manual("claude-sonnet-4-5")).await.expect_ok();
    let mut request = manual("claude-sonnet-4-5");
    request["stream"] = json!(true);
    let streamed = submit(&simulator().await, &request).await;
    let events = streamed.events();
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(kinds.first(), Some(&"message_start"));
    assert_eq!(kinds.last(), Some(&"message_stop"));
    let deltas = |kind: &str, key: &str| -> String {
        let matching = events.iter().filter(|event| event["delta"]["type"] == kind);
        matching.filter_map(|event| event["delta"][key].as_str()).collect()
    };
    assert!(kinds.iter().filter(|kind| **kind == "content_block_delta").count() > 5);
    let content = &complete["content"];
    assert_eq!(content[0]["thinking"], deltas("thinking_delta", "thinking"));
    assert_eq!(content[0]["signature"], deltas("signature_delta", "signature"));
    let input: Value = serde_json::from_str(&deltas("input_json_delta", "partial_json")).unwrap();
    assert_eq!(content[1]["input"], input);
    assert!(input["city"].is_string(), "{input}");
    let start = &events[0]["message"]["usage"];
    assert!(start["cache_creation_input_tokens"].as_u64() > Some(0), "{start}");
}

#[tokio::test]
async fn model_list_includes_capabilities() {
    let simulator = simulator().await;
    let list = get(&simulator, "/v1/models", KEY).await.expect_ok();
    let fable = list["data"].as_array().unwrap().iter().find(|m| m["id"] == "claude-fable-5-1");
    let types = &fable.unwrap()["capabilities"]["thinking"]["types"];
    assert_eq!(types["adaptive"]["supported"], true);
    assert_eq!(types["enabled"]["supported"], false);
    let one = get(&simulator, "/v1/models/claude-opus-5", KEY).await.expect_ok();
    assert_eq!(one["display_name"], "Claude Opus 5");
    assert_eq!(get(&simulator, "/v1/models/claude-none", KEY).await.expect_error(404), "Not found");
}

#[tokio::test]
async fn tool_loop_without_thinking_is_rejected() {
    let simulator = simulator().await;
    let mut request = follow_up(&simulator, manual("claude-sonnet-4-5")).await;
    request["messages"][1]["content"].as_array_mut().unwrap().remove(0);
    let answer = submit(&simulator, &request).await;
    assert!(answer.expect_error(400).starts_with(
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. \
         When `thinking` is enabled, a final `assistant` message must start with a thinking block"
    ));
    let error = answer.json();
    assert_eq!(error["type"], "error");
    assert_eq!(error["error"]["type"], "invalid_request_error");
    assert_eq!(error["request_id"], answer.headers["request-id"].to_str().unwrap());
    assert_eq!(simulator.ledger().entries.len(), 2);
}

#[tokio::test]
async fn altered_seals_are_rejected() {
    let invalid = "messages.1.content.0: Invalid `signature` in `thinking` block";
    let modified = "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest \
                    assistant message cannot be modified. These blocks must remain as they were in \
                    the original response.";
    let missing = "messages.1.content.0.thinking.signature: Field required";
    let cases: [(&str, Change, &str); 8] = [
        ("empty", |block| block["signature"] = json!(""), invalid),
        ("made up", |block| block["signature"] = json!("EqoBCkgIARABGAIiQL8f"), invalid),
        ("fernet", |block| block["signature"] = json!("gAAAAABpZm9vYmFy"), invalid),
        (
            "truncated",
            |block| {
                let text = block["signature"].as_str().unwrap().to_owned();
                block["signature"] = json!(text[..text.len() - 8]);
            },
            invalid,
        ),
        (
            "another alphabet",
            |block| {
                let text = block["signature"].as_str().unwrap().to_owned();
                block["signature"] = json!(text.replace('+', "-").replace('/', "_"));
            },
            invalid,
        ),
        (
            "gone",
            |block| {
                block.as_object_mut().unwrap().remove("signature");
            },
            missing,
        ),
        ("edited", |block| block["thinking"] = json!("Something else."), modified),
        ("blanked", |block| block["thinking"] = json!(""), modified),
    ];
    for (name, change, expected) in cases {
        let simulator = simulator().await;
        let mut request = follow_up(&simulator, manual("claude-sonnet-4-5")).await;
        change(&mut request["messages"][1]["content"][0]);
        assert_eq!(submit(&simulator, &request).await.expect_error(400), expected, "{name}");
    }
}

#[tokio::test]
async fn edited_earlier_thinking_is_an_invalid_signature() {
    let simulator = simulator().await;
    let mut request = follow_up(&simulator, manual("claude-sonnet-4-5")).await;
    request = follow_up(&simulator, request).await;
    request["messages"][1]["content"][0]["thinking"] = json!("Something else.");
    assert_eq!(
        submit(&simulator, &request).await.expect_error(400),
        "messages.1.content.0: Invalid `signature` in `thinking` block"
    );
}

#[tokio::test]
async fn repeated_and_moved_blocks_are_rejected() {
    let simulator = simulator().await;
    let one = follow_up(&simulator, manual("claude-sonnet-4-5")).await;
    let two = follow_up(&simulator, one).await;

    let mut repeated = two.clone();
    let block = repeated["messages"][3]["content"][0].clone();
    repeated["messages"][3]["content"].as_array_mut().unwrap().insert(1, block);
    let error = submit(&simulator, &repeated).await.expect_error(400);
    assert!(error.starts_with("messages.3.content.1: `thinking`"), "{error}");

    let mut moved = two.clone();
    let block = moved["messages"][1]["content"].as_array_mut().unwrap().remove(0);
    moved["messages"][3]["content"][0] = block;
    let error = submit(&simulator, &moved).await.expect_error(400);
    assert!(error.contains("cannot be modified"), "{error}");
}

#[tokio::test]
async fn thinking_may_be_redacted_and_interleaved() {
    let script = r#"
        [[turn]]
        parts = [
            { thought = "Private text.", telling = "redacted" },
            { thought = "Public text." },
            { text = "One moment…" },
            { thought = "And once more." },
            { call = "weather" },
        ]
    "#;
    let options = Options { script: script.parse().unwrap(), ..Options::default() };
    let simulator = start(options).await.unwrap();
    let original = follow_up(&simulator, manual("claude-sonnet-4-5")).await;
    let kind = |index: usize| original["messages"][1]["content"][index]["type"].as_str().unwrap();
    assert_eq!(kind(0), "redacted_thinking");
    submit(&simulator, &original).await.expect_ok();

    // With a budget, all thoughts must be returned; without one, some may be missing.
    let mut partial = original.clone();
    partial["messages"][1]["content"].as_array_mut().unwrap().remove(3);
    let error = submit(&simulator, &partial).await.expect_error(400);
    assert!(error.starts_with("messages.1.content.0: `thinking` or `redacted_thinking`"));
    partial.as_object_mut().unwrap().remove("thinking");
    submit(&simulator, &partial).await.expect_ok();
    assert_eq!(simulator.ledger().entries.last().unwrap().lost, 1);

    let mut without_data = original.clone();
    without_data["messages"][1]["content"][0].as_object_mut().unwrap().remove("data");
    assert_eq!(
        submit(&simulator, &without_data).await.expect_error(400),
        "messages.1.content.0.redacted_thinking.data: Field required"
    );
    let mut swapped = original.clone();
    swapped["messages"][1]["content"][0]["data"] =
        original["messages"][1]["content"][1]["signature"].clone();
    assert_eq!(
        submit(&simulator, &swapped).await.expect_error(400),
        "messages.1.content.0: Invalid `data` in `redacted_thinking` block"
    );

    let mut magic = manual("claude-sonnet-4-5");
    magic["messages"][0]["content"] =
        json!("ANTHROPIC_MAGIC_STRING_TRIGGER_REDACTED_THINKING_46C9");
    magic["stream"] = json!(true);
    let events = submit(&simulator, &magic).await.events();
    let start = events.iter().find(|event| event["type"] == "content_block_start").unwrap();
    assert_eq!(start["content_block"]["type"], "redacted_thinking");
    assert!(start["content_block"]["data"].as_str().unwrap().starts_with('E'));
}

#[tokio::test]
async fn between_tools_mode_thinks_only_after_tool_results() {
    let simulator = simulator().await;
    let mut request = request("claude-sonnet-5-5");
    request["thinking"] = json!({"type": "between_tools"});
    let first = submit(&simulator, &request).await.expect_ok();
    assert_eq!(first["content"][0]["type"], "tool_use");
    append_reply(&mut request, &first);
    let second = submit(&simulator, &request).await.expect_ok();
    assert_eq!(second["content"][0]["type"], "thinking");
    request["output_config"] = json!({"effort": "max"});
    let error = submit(&simulator, &request).await.expect_error(400);
    assert!(error.starts_with("\"thinking.type.between_tools\" is not supported"), "{error}");
}

#[tokio::test]
async fn thinking_of_completed_turns_is_optional() {
    let simulator = simulator().await;
    let mut request = manual("claude-sonnet-4-5");
    for _ in 0..3 {
        let answer = submit(&simulator, &request).await.expect_ok();
        append_reply(&mut request, &answer);
    }
    for message in request["messages"].as_array_mut().unwrap() {
        if let Some(blocks) = message["content"].as_array_mut() {
            blocks.retain(|block| block["type"] != "thinking");
        }
    }
    submit(&simulator, &request).await.expect_ok();
}

#[tokio::test]
async fn dropped_adaptive_thinking_is_accepted_and_counted_as_lost() {
    let simulator = simulator().await;
    let mut first = request("claude-opus-4-6");
    first["thinking"] = json!({"type": "adaptive"});
    let mut request = follow_up(&simulator, first).await;
    request["messages"][1]["content"].as_array_mut().unwrap().remove(0);
    submit(&simulator, &request).await.expect_ok();
    let ledger = simulator.ledger();
    assert_eq!(ledger.entries[1].lost, 1);
    assert!(!ledger.all_verified());
}

#[tokio::test]
async fn changed_prefix_is_rejected_dropped_or_tolerated() {
    let beta = "thinking-binding-controls-2026-08-01";
    let differences: [(Change, &str); 4] = [
        (
            |r| r["system"] = json!("Be verbose."),
            "The `system` prompt differs from the one this block was created with.",
        ),
        (
            |r| r["tools"][1]["description"] = json!("Other."),
            "The `tools` differ from the ones this block was created with.",
        ),
        (
            |r| r["messages"][0]["content"] = json!("How is Bern today?"),
            "An earlier message differs from the one this block was created with.",
        ),
        (
            |r| {
                r["messages"][1]["content"].as_array_mut().unwrap().remove(0);
            },
            "The thinking block that preceded this one when it was created is missing from this \
             request.",
        ),
    ];
    for (change, difference) in differences {
        let simulator = simulator().await;
        let one = follow_up(&simulator, request("claude-fable-5-1")).await;
        let mut changed = follow_up(&simulator, one).await;
        change(&mut changed);
        let error = submit(&simulator, &changed).await.expect_error(400);
        assert!(error.contains("The block is bound to a different conversation."), "{error}");
        assert!(error.ends_with(difference), "{error}");
        let counted = post(&simulator, "/v1/messages/count_tokens", KEY, &changed).await;
        assert_eq!(counted.expect_error(400), error);

        // For an older account, prefixes are checked only if the request asks for it.
        let old = [KEY, &[("x-sim-account-created", "2026-08-30")]].concat();
        post(&simulator, PATH, &old, &changed).await.expect_ok();
        let mut bound = changed.clone();
        bound["thinking"] = json!({"type": "adaptive",
            "block_binding": {"prefix_mismatch_behavior": "error"}});
        assert_eq!(
            post(&simulator, PATH, &old, &bound).await.expect_error(400),
            "thinking.adaptive.block_binding: Extra inputs are not permitted"
        );
        let old = [&old[..], &[("anthropic-beta", beta)]].concat();
        assert_eq!(post(&simulator, PATH, &old, &bound).await.expect_error(400), error);

        bound["thinking"]["block_binding"]["prefix_mismatch_behavior"] = json!("drop_block");
        let dropped = post(&simulator, PATH, &old, &bound).await.expect_ok();
        let transformations = dropped["input_transformations"].as_array().unwrap();
        assert!(!transformations.is_empty());
        assert!(
            transformations.iter().all(
                |n| n["type"] == "thinking_dropped" && n["reason"] == "prefix_binding_mismatch"
            )
        );
    }
}

#[tokio::test]
async fn system_messages_must_precede_a_reply_or_come_last() {
    let simulator = simulator().await;
    let note = json!({"role": "system", "content": "Answer in verse."});
    let mut last = follow_up(&simulator, request("claude-fable-5-1")).await;
    last["messages"].as_array_mut().unwrap().push(note.clone());
    let inside = follow_up(&simulator, last).await;
    submit(&simulator, &inside).await.expect_ok();
    let mut misplaced = inside.clone();
    misplaced["messages"].as_array_mut().unwrap().insert(5, note.clone());
    assert_eq!(
        submit(&simulator, &misplaced).await.expect_error(400),
        "messages.5: role 'system' must precede an 'assistant' message or end the array"
    );
    // A missing message is a change of the prefix.
    let mut without = inside;
    without["messages"].as_array_mut().unwrap().remove(3);
    let error = submit(&simulator, &without).await.expect_error(400);
    assert!(
        error.ends_with("An earlier message differs from the one this block was created with.")
    );
}

#[tokio::test]
async fn tools_change_in_system_messages_with_the_beta() {
    let added = json!({"name": "radio", "input_schema": {"type": "object"}});
    let addition = json!({"type": "tool_addition",
        "tool": {"type": "tool_definition", "definition": added}});
    let removal = |name: &str| json!({"type": "tool_removal", "tool": {"type": "tool_reference", "name": name}});
    let inline = [KEY, &[("anthropic-beta", "inline-tools-2026-09-15")]].concat();
    let by_name = [KEY, &[("anthropic-beta", "mid-conversation-tool-changes-2026-07-01")]].concat();
    let simulator = simulator().await;
    let first = follow_up(&simulator, request("claude-fable-5-1")).await;
    let with = |blocks: &[&Value]| {
        let mut changed = first.clone();
        let message = json!({"role": "system", "content": blocks});
        changed["messages"].as_array_mut().unwrap().push(message);
        changed
    };
    let tools: Vec<&str> = first["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    let removals: Vec<Value> = tools.iter().map(|name| removal(name)).collect();
    let mut blocks: Vec<&Value> = removals.iter().collect();
    blocks.push(&addition);
    let reply = post(&simulator, PATH, &inline, &with(&blocks)).await.expect_ok();
    let called =
        reply["content"].as_array().unwrap().iter().find(|block| block["type"] == "tool_use");
    assert_eq!(called.unwrap()["name"], "radio", "only the added tool is offered: {reply}");
    assert!(simulator.ledger().all_verified(), "the prefix is unchanged");
    post(&simulator, PATH, &by_name, &with(&[&removals[0]])).await.expect_ok();
    for (headers, changed, error) in [
        (KEY.to_vec(), with(&[&removals[0]]), "Input tag 'tool_removal'"),
        (by_name.clone(), with(&[&addition]), "Input tag 'tool_definition'"),
        (by_name, with(&[&removal("maps")]), "Tool 'maps' not found in provided tools"),
    ] {
        let message = post(&simulator, PATH, &headers, &changed).await.expect_error(400);
        assert!(message.contains(error), "{message}");
    }
}

#[tokio::test]
async fn key_order_and_cache_control_do_not_change_a_prefix() {
    let simulator = simulator().await;
    let mut request = follow_up(&simulator, request("claude-fable-5-1")).await;
    request["messages"][0]["content"] = json!([{"cache_control": {"type": "ephemeral"}, "text": "How is Zürich today? 🌤", "type": "text"}]);
    request["system"] = json!([{"type": "text", "text": "Be brief."}]);
    let input = request["tools"][0]["input_schema"].take();
    request["tools"][0] =
        json!({"input_schema": input, "name": "weather", "description": "Looks something up."});
    submit(&simulator, &request).await.expect_ok();
}

#[tokio::test]
async fn unreadable_blocks_are_dropped_without_error() {
    let simulator = simulator().await;
    // Opus 5.5 cannot read thoughts from Fable 5.1.
    let mut switched = follow_up(&simulator, request("claude-fable-5-1")).await;
    switched["model"] = json!("claude-opus-5-5");
    submit(&simulator, &switched).await.expect_ok();
    let dropped = |simulator: &Simulator| {
        simulator.ledger().entries.last().unwrap().returned[0].verdict.clone()
    };
    assert_eq!(dropped(&simulator), Verdict::Dropped("model_binding_mismatch".to_owned()));
    let beta = [KEY, &[("anthropic-beta", "thinking-binding-controls-2026-08-01")]].concat();
    let response = post(&simulator, PATH, &beta, &switched).await.expect_ok();
    assert_eq!(
        response["input_transformations"],
        json!([{"type": "thinking_dropped", "path": "messages.1.content.0",
                "reason": "model_binding_mismatch"}])
    );

    // Sonnet 5.5 binds signatures to the account.
    let moved = follow_up(&simulator, request("claude-sonnet-5-5")).await;
    post(&simulator, PATH, &[("x-api-key", "key-two")], &moved).await.expect_ok();
    assert_eq!(dropped(&simulator), Verdict::Dropped("organization_binding_mismatch".to_owned()));
}

#[tokio::test]
async fn thoughts_shown_as_text_are_refused_by_the_model() {
    let simulator = simulator().await;
    let first = submit(&simulator, &manual("claude-sonnet-4-5")).await.expect_ok();
    let thought = first["content"][0]["thinking"].clone();
    let mut demoted = request("claude-sonnet-4-5");
    demoted["messages"] = json!([
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": [{"type": "text", "text": thought}]},
        {"role": "user", "content": "Go on"},
    ]);
    let answer = submit(&simulator, &demoted).await.expect_ok();
    assert_eq!(answer["stop_reason"], "refusal");
    assert_eq!(answer["stop_details"]["category"], "reasoning_extraction");
    assert_eq!(answer["content"], json!([]));

    demoted["messages"][1]["content"] = json!("<think>I wonder…</think>Hello!");
    demoted["stream"] = json!(true);
    let events = submit(&simulator, &demoted).await.events();
    let end = events.iter().find(|event| event["type"] == "message_delta").unwrap();
    assert_eq!(end["delta"]["stop_reason"], "refusal");
    assert_eq!(end["delta"]["stop_details"]["category"], "reasoning_extraction");
}

#[tokio::test]
async fn unsupported_settings_are_rejected() {
    let unsupported = |kind: &str| {
        format!(
            "\"thinking.type.{kind}\" is not supported for this model. Use \
             \"thinking.type.adaptive\" and \"output_config.effort\" to control thinking behavior."
        )
    };
    let forced = json!({"type": "tool", "name": "weather"});
    let budget = |tokens: u64| json!({"type": "enabled", "budget_tokens": tokens});
    let cases = [
        ("claude-opus-4-7", json!({"thinking": budget(2048)}), unsupported("enabled")),
        ("claude-opus-5-5", json!({"thinking": {"type": "disabled"}}), unsupported("disabled")),
        ("claude-sonnet-4-5", json!({"thinking": {"type": "adaptive"}}), unsupported("adaptive")),
        (
            "claude-opus-5",
            json!({"thinking": {"type": "disabled"}, "output_config": {"effort": "max"}}),
            "\"thinking.type.disabled\" is not supported for this model when \
             \"output_config.effort\" is 'max'. Use \"thinking.type.adaptive\", or an effort of \
             'high' or lower."
                .to_owned(),
        ),
        (
            "claude-sonnet-4-5",
            json!({"thinking": budget(1000)}),
            "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
                .to_owned(),
        ),
        (
            "claude-sonnet-4-5",
            json!({"thinking": {"type": "enabled"}}),
            "thinking.enabled.budget_tokens: Field required".to_owned(),
        ),
        (
            "claude-sonnet-4-5",
            json!({"thinking": budget(2048), "tool_choice": forced}),
            "Thinking may not be enabled when tool_choice forces tool use.".to_owned(),
        ),
        (
            "claude-opus-5-5",
            json!({"tool_choice": {"type": "any"}}),
            "tool_choice: type \"tool\" and \"any\" are not supported for this model.".to_owned(),
        ),
        (
            "claude-opus-4-6",
            json!({"output_config": {"effort": "xhigh"}}),
            "This model does not support effort level 'xhigh'. Supported levels: high, low, max, \
             medium."
                .to_owned(),
        ),
        (
            "claude-opus-4-7",
            json!({"temperature": 0.2}),
            "`temperature` is deprecated for this model.".to_owned(),
        ),
        (
            "claude-opus-4-7",
            json!({"top_k": 5}),
            "`top_k` is deprecated for this model.".to_owned(),
        ),
        (
            "claude-opus-5-5",
            json!({"compaction": {"type": "summarize"}, "context_management": {"edits": []}}),
            "compaction: cannot be combined with `context_management`. Set only one of them."
                .to_owned(),
        ),
    ];
    let simulator = simulator().await;
    for (model, settings, expected) in cases {
        let mut request = request(model);
        for (key, value) in settings.as_object().unwrap() {
            request[key] = value.clone();
        }
        assert_eq!(
            submit(&simulator, &request).await.expect_error(400),
            expected,
            "{model} {settings}"
        );
    }
    let mut large = manual("claude-sonnet-4-5");
    large["thinking"] = budget(4096);
    let error = submit(&simulator, &large).await.expect_error(400);
    assert!(error.starts_with("`max_tokens` must be greater than `thinking.budget_tokens`."));
    let interleaved = [KEY, &[("anthropic-beta", "interleaved-thinking-2025-05-14")]].concat();
    post(&simulator, PATH, &interleaved, &large).await.expect_ok();
    // With adaptive thinking, forced tools are allowed.
    let mut adaptive = request("claude-opus-4-6");
    adaptive["thinking"] = json!({"type": "adaptive"});
    adaptive["tool_choice"] = json!({"type": "tool", "name": "news"});
    let answer = submit(&simulator, &adaptive).await.expect_ok();
    assert_eq!(answer["content"][1]["name"], "news");
}

#[tokio::test]
async fn invalid_endings_and_unpaired_calls_are_rejected() {
    let simulator = simulator().await;
    let original = follow_up(&simulator, manual("claude-sonnet-4-5")).await;
    let id = original["messages"][1]["content"][1]["id"].as_str().unwrap().to_owned();

    let mut unanswered = original.clone();
    unanswered["messages"][2]["content"] = json!("Never mind.");
    assert_eq!(
        submit(&simulator, &unanswered).await.expect_error(400),
        format!(
            "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: \
             {id}. Each `tool_use` block must have a corresponding `tool_result` block in the next \
             message."
        )
    );
    let mut unasked = original.clone();
    unasked["messages"].as_array_mut().unwrap().remove(1);
    assert_eq!(
        submit(&simulator, &unasked).await.expect_error(400),
        format!(
            "messages.1.content.0: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each \
             `tool_result` block must have a corresponding `tool_use` block in the previous message."
        )
    );
    let mut repeated = original.clone();
    let results = repeated["messages"][2]["content"].as_array_mut().unwrap();
    results.push(results[0].clone());
    assert_eq!(
        submit(&simulator, &repeated).await.expect_error(400),
        format!(
            "messages.2.content.1: each tool_use must have a single result. Found multiple \
             `tool_result` blocks with id: {id}"
        )
    );
    let mut open = original.clone();
    open["messages"].as_array_mut().unwrap().truncate(2);
    open["messages"][1]["content"].as_array_mut().unwrap().truncate(1);
    assert_eq!(
        submit(&simulator, &open).await.expect_error(400),
        "messages.1.content.0: The final block in an assistant message cannot be `thinking`."
    );
    let mut prefilled = request("claude-opus-5-5");
    let messages = prefilled["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": "Well,"}));
    assert_eq!(
        submit(&simulator, &prefilled).await.expect_error(400),
        "This model does not support assistant message prefill. The conversation must end with a \
         user message."
    );
    let mut empty = request("claude-opus-5-5");
    empty["messages"] = json!([
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": [{"type": "compaction", "content": ""}]},
        {"role": "user", "content": "Go on"},
    ]);
    assert_eq!(
        submit(&simulator, &empty).await.expect_error(400),
        "messages.1.content.0.compaction.content: String should have at least 1 character"
    );
}

#[tokio::test]
async fn cache_matches_prefixes_as_written() {
    let simulator = simulator().await;
    let first = request("claude-opus-4-6");
    let cached = |answer: &Value| answer["usage"]["cache_read_input_tokens"].as_u64().unwrap();
    let one = submit(&simulator, &first).await.expect_ok();
    assert_eq!(cached(&one), 0);
    let mut longer = first.clone();
    append_reply(&mut longer, &one);
    let two = submit(&simulator, &longer).await.expect_ok();
    assert!(cached(&two) > 20, "{two}");
    let mut again = longer.clone();
    let schema = again["tools"][0]["input_schema"].take();
    again["tools"][0] =
        json!({"input_schema": schema, "name": "weather", "description": "Looks something up."});
    let three = submit(&simulator, &again).await.expect_ok();
    assert_eq!(cached(&three), 0, "the order of members counts");
    // Changed thinking settings invalidate the cached messages, but not the cached tools.
    longer["thinking"] = json!({"type": "adaptive"});
    let four = submit(&simulator, &longer).await.expect_ok();
    assert!(cached(&four) > 0 && cached(&four) < cached(&two));
}

#[tokio::test]
async fn compatible_apis_neither_sign_nor_verify() {
    let simulator = simulator().await;
    let mut request = request("deepseek-v4");
    request["thinking"] = json!({"type": "enabled", "budget_tokens": 1024});
    let path = "/at/deepseek/anthropic/v1/messages";
    let answer = post(&simulator, path, KEY, &request).await.expect_ok();
    assert_eq!(answer["content"][0]["type"], "thinking");
    append_reply(&mut request, &answer);
    request["messages"][1]["content"][0] = json!({"type": "thinking", "thinking": "Mine."});
    post(&simulator, path, KEY, &request).await.expect_ok();
    assert_eq!(simulator.ledger().entries[0].provider, "deepseek-anthropic");
}

/// A request for a compaction returns one signed block. Later requests must start with this block,
/// unchanged.
#[tokio::test]
async fn compaction_returns_one_signed_block() {
    let simulator = simulator().await;
    let mut body = request("claude-opus-5-5");
    let answer = submit(&simulator, &body).await.expect_ok();
    append_reply(&mut body, &answer);
    body["compaction"] = json!({"type": "summarize"});
    assert_eq!(
        submit(&simulator, &body).await.expect_error(400),
        "compaction: Extra inputs are not permitted"
    );
    let headers = [KEY[0], ("anthropic-beta", "compact-2026-09-04")];
    for stream in [false, true] {
        body["stream"] = json!(stream);
        let answer = post(&simulator, "/v1/messages", &headers, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let is_signed = answer.text().contains(r#""type":"compaction""#)
            && answer.text().contains(r#""stop_reason":"compaction""#);
        assert!(is_signed, "{}", answer.text());
    }
    body["stream"] = json!(false);
    let answer = post(&simulator, "/v1/messages", &headers, &body).await.expect_ok();
    let [block] = answer["content"].as_array().unwrap().as_slice() else { panic!("{answer}") };
    let mut next = request("claude-opus-5-5");
    let messages = |blocks: &[(usize, &Value)]| {
        let mut all = vec![json!({"role": "user", "content": "Go on"})];
        for (at, block) in blocks {
            all.insert(*at, json!({"role": "assistant", "content": [block]}));
        }
        all.push(json!({"role": "user", "content": "Please"}));
        json!(all)
    };
    next["messages"] = messages(&[(0, block)]);
    submit(&simulator, &next).await.expect_ok();
    let (mut edited, mut forged) = (block.clone(), block.clone());
    edited["content"] = json!("Nothing happened.");
    forged["signature"] = json!("EAAA");
    let cases = [
        (vec![(1, block)], "messages.1.content.0: compaction_block_misplaced"),
        (vec![(0, block), (2, block)], "messages.2.content.0: compaction_block_ambiguous"),
        (vec![(0, &edited)], "messages.0.content.0: compaction_content_mismatch"),
        (vec![(0, &forged)], "messages.0.content.0: compaction_signature_invalid"),
    ];
    for (blocks, expected) in cases {
        next["messages"] = messages(&blocks);
        assert_eq!(submit(&simulator, &next).await.expect_error(400), expected);
    }
}
