//! Tests for the Responses API and its variants: accepted requests, and rejected requests with
//! their error messages.

use crate::common::{HttpResponse, post, simulator};
use serde_json::{Value, json};
use throughline_sim::{Options, Simulator, Verdict, start};

const KEY: [(&str, &str); 1] = [("authorization", "Bearer sk-one")];
const OTHER_KEY: [(&str, &str); 1] = [("authorization", "Bearer sk-two")];

fn tool(name: &str) -> Value {
    let parameters = json!({
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
        "required": ["city", "days"],
        "additionalProperties": false,
    });
    json!({"type": "function", "name": name, "parameters": parameters, "strict": true})
}

fn request(model: &str, input: &[Value]) -> Value {
    json!({
        "model": model,
        "input": input,
        "reasoning": {"effort": "low", "summary": "auto"},
        "tools": [tool("weather"), tool("news")],
    })
}

fn with(mut request: Value, key: &str, value: Value) -> Value {
    request[key] = value;
    request
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

async fn submit(simulator: &Simulator, row: &str, request: &Value) -> HttpResponse {
    post(simulator, &format!("/at/{row}/v1/responses"), &KEY, request).await
}

fn output(answer: &Value) -> Vec<Value> {
    answer["output"].as_array().cloned().unwrap()
}

/// Appends the output and the results of its calls to `input`; returns the number of calls.
fn append_reply(input: &mut Vec<Value>, output: &[Value]) -> usize {
    input.extend_from_slice(output);
    let calls = output.iter().filter(|item| item["type"] == "function_call");
    let results: Vec<Value> = calls
        .map(|call| {
            let id = &call["call_id"];
            json!({"type": "function_call_output", "call_id": id, "output": "sunny ☀"})
        })
        .collect();
    input.extend_from_slice(&results);
    results.len()
}

/// Returns the input after one step: a question, a reasoning item, a call and its output.
async fn one_step(simulator: &Simulator, row: &str, model: &str, store: bool) -> Vec<Value> {
    let mut input = vec![user("What is the weather?")];
    let first = with(request(model, &input), "store", json!(store));
    let answer = submit(simulator, row, &first).await.expect_ok();
    assert_eq!(append_reply(&mut input, &output(&answer)), 1);
    assert_eq!(input[1]["type"], "reasoning");
    input
}

fn events_of(answer: &HttpResponse, kind: &str) -> Vec<Value> {
    answer.events().into_iter().filter(|event| event["type"] == kind).collect()
}

const ROWS: [(&str, &str); 5] = [
    ("openai", "gpt-5.6"),
    ("azure", "gpt-5.5"),
    ("bedrock-mantle", "openai.gpt-5.6-luna"),
    ("xai", "grok-4.3"),
    ("deepseek-responses", "deepseek-v4-flash"),
];

#[tokio::test]
async fn two_turns_with_tools_are_accepted_if_everything_is_returned() {
    for (row, model) in ROWS {
        for (store, streams) in [(true, false), (false, false), (true, true)] {
            let simulator = simulator().await;
            let mut input = vec![user("What is the weather in Zürich?")];
            let mut steps = 0;
            for turn in 0..2 {
                loop {
                    let body = with(request(model, &input), "store", json!(store));
                    let answer =
                        submit(&simulator, row, &with(body, "stream", json!(streams))).await;
                    let items = if streams {
                        let done = events_of(&answer, "response.output_item.done");
                        done.into_iter().map(|event| event["item"].clone()).collect()
                    } else {
                        output(&answer.expect_ok())
                    };
                    assert_eq!(items[0]["type"], "reasoning", "{row}");
                    steps += 1;
                    if append_reply(&mut input, &items) == 0 {
                        break;
                    }
                }
                input.push(user(&format!("And then? {turn}")));
            }
            assert_eq!(steps, 6, "{row}");
            let ledger = simulator.ledger();
            assert!(ledger.all_verified(), "{row} {ledger:#?}");
            assert_eq!(ledger.issued().count(), 6);
            simulator.stop().await;
        }
    }
}

#[tokio::test]
async fn stream_events_are_ordered_and_the_early_ciphertext_is_invalid() {
    let simulator = simulator().await;
    let mut input = vec![user("What is the weather?")];
    let body = with(request("gpt-5.6", &input), "stream", json!(true));
    let answer = submit(&simulator, "openai", &body).await;
    assert_eq!(answer.headers["content-type"], "text/event-stream; charset=utf-8");
    let mut kinds: Vec<String> =
        answer.events().iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect();
    kinds.dedup();
    let names: Vec<&str> = kinds.iter().map(|kind| kind.trim_start_matches("response.")).collect();
    assert_eq!(
        names,
        [
            "created",
            "in_progress",
            "output_item.added",
            "reasoning_summary_part.added",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.done",
            "reasoning_summary_part.done",
            "output_item.done",
            "output_item.added",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
            "completed",
        ]
    );
    let added = events_of(&answer, "response.output_item.added");
    let done = events_of(&answer, "response.output_item.done");
    let completed = events_of(&answer, "response.completed");
    assert_eq!(added[0]["item"]["id"], done[0]["item"]["id"]);
    let early = added[0]["item"]["encrypted_content"].as_str().unwrap();
    assert!(early.starts_with("gAAAA"));
    assert_ne!(early, done[0]["item"]["encrypted_content"]);
    assert_eq!(completed[0]["response"]["output"][0], done[0]["item"]);
    let deltas = events_of(&answer, "response.function_call_arguments.delta");
    let arguments: String = deltas.iter().map(|event| event["delta"].as_str().unwrap()).collect();
    assert_eq!(done[1]["item"]["arguments"], arguments);
    assert!(deltas.len() > 1);

    append_reply(&mut input, &[done[0]["item"].clone(), done[1]["item"].clone()]);
    input[1]["encrypted_content"] = json!(early);
    let response = submit(&simulator, "openai", &request("gpt-5.6", &input)).await;
    assert_eq!(response.json()["error"]["code"], "invalid_encrypted_content");
}

#[tokio::test]
async fn previous_response_id_continues_a_stored_response() {
    let simulator = simulator().await;
    let first =
        submit(&simulator, "openai", &request("gpt-5.6", &[user("Weather?")])).await.expect_ok();
    let mut outputs = Vec::new();
    append_reply(&mut outputs, &output(&first));
    let resumed =
        with(request("gpt-5.6", &outputs[2..]), "previous_response_id", first["id"].clone());
    let second = submit(&simulator, "openai", &resumed).await.expect_ok();
    assert_eq!(second["output"][1]["name"], "news");
    assert!(simulator.ledger().all_verified());

    let elsewhere = post(&simulator, "/at/openai/v1/responses", &OTHER_KEY, &resumed).await;
    assert_eq!(elsewhere.json()["error"]["code"], "previous_response_not_found");
    let both = with(resumed.clone(), "conversation", json!("conv_1"));
    let error = submit(&simulator, "openai", &both).await.expect_error(400);
    assert!(error.starts_with("Mutually exclusive parameters"), "{error}");
    // Calls in the previous response still require their outputs.
    let silent = with(resumed, "input", json!([user("Well?")]));
    let error = submit(&simulator, "openai", &silent).await.expect_error(400);
    assert!(error.starts_with("No tool output found for function call call_"), "{error}");
}

#[tokio::test]
async fn unstored_responses_are_not_found() {
    let simulator = simulator().await;
    let unstored = with(request("gpt-5.6", &[user("Weather?")]), "store", json!(false));
    let first = submit(&simulator, "openai", &unstored).await.expect_ok();
    let resumed = with(request("gpt-5.6", &[]), "previous_response_id", first["id"].clone());
    let response = submit(&simulator, "openai", &resumed).await;
    let error = response.json()["error"].clone();
    assert_eq!(response.status, 400);
    assert_eq!(error["code"], "previous_response_not_found");
    let id = first["id"].as_str().unwrap();
    assert_eq!(error["message"], format!("Previous response with id '{id}' not found."));

    for store in [true, false] {
        let mut input = vec![user("Weather?")];
        append_reply(&mut input, &output(&first));
        input[1].as_object_mut().unwrap().remove("encrypted_content");
        let body = with(request("gpt-5.6", &input), "store", json!(store));
        let message = submit(&simulator, "openai", &body).await.expect_error(404);
        let id = input[1]["id"].as_str().unwrap();
        assert!(message.starts_with(&format!("Item with id '{id}' not found. Items are not")));
    }
}

#[tokio::test]
async fn stored_items_resolve_by_id() {
    let simulator = simulator().await;
    let mut input = one_step(&simulator, "openai", "gpt-5.6", true).await;
    let original = input.clone();
    input[1].as_object_mut().unwrap().remove("encrypted_content");
    submit(&simulator, "openai", &request("gpt-5.6", &input)).await.expect_ok();
    for at in [1, 2] {
        input[at] = json!({"type": "item_reference", "id": original[at]["id"]});
    }
    submit(&simulator, "openai", &request("gpt-5.6", &input)).await.expect_ok();
    assert!(simulator.ledger().all_verified());
    let lost = json!({"type": "item_reference", "id": "rs_made_up"});
    let error = submit(&simulator, "openai", &request("gpt-5.6", &[lost])).await.expect_error(404);
    assert!(error.contains("rs_made_up"));
}

#[tokio::test]
async fn stored_reasoning_requires_its_following_item() {
    let simulator = simulator().await;
    for (row, model) in [("openai", "gpt-5.6"), ("azure", "gpt-5.5"), ("bedrock-mantle", "gpt-5.6")]
    {
        let input = one_step(&simulator, row, model, true).await;
        let id = input[1]["id"].as_str().unwrap();
        let expected = format!(
            "Item '{id}' of type 'reasoning' was provided without its required following item."
        );
        let mut without_id = input.clone();
        without_id[2].as_object_mut().unwrap().remove("id");
        let alone = [input[0].clone(), input[1].clone()];
        let edited =
            [input[0].clone(), input[1].clone(), json!({"role": "assistant", "content": "42"})];
        for broken in [&without_id[..], &alone, &edited] {
            let answer = submit(&simulator, row, &request(model, broken)).await;
            assert_eq!(answer.expect_error(400), expected);
            assert_eq!(
                answer.json()["error"],
                json!({"message": expected, "type": "invalid_request_error", "param": "input", "code": null})
            );
            // Without `store`, pairs are not checked.
            let unstored = with(request(model, broken), "store", json!(false));
            submit(&simulator, row, &unstored).await.expect_ok();
        }
    }
}

#[tokio::test]
async fn stored_item_requires_its_reasoning() {
    let simulator = simulator().await;
    let input = one_step(&simulator, "openai", "gpt-5.6", true).await;
    let (reasoning, call) = (input[1]["id"].as_str().unwrap(), input[2]["id"].as_str().unwrap());
    let mut broken = vec![input[0].clone(), input[2].clone(), input[3].clone()];
    let error = submit(&simulator, "openai", &request("gpt-5.6", &broken)).await.expect_error(400);
    assert_eq!(
        error,
        format!(
            "Item '{call}' of type 'function_call' was provided without its required 'reasoning' item: '{reasoning}'."
        )
    );
    // Without its id, the call requires no reasoning item.
    broken[1].as_object_mut().unwrap().remove("id");
    submit(&simulator, "openai", &request("gpt-5.6", &broken)).await.expect_ok();
    assert_eq!(simulator.ledger().entries.last().unwrap().lost, 1);
}

#[tokio::test]
async fn xai_checks_no_pairs() {
    let simulator = simulator().await;
    let mut input = one_step(&simulator, "xai", "grok-4.3", true).await;
    input[2].as_object_mut().unwrap().remove("id");
    submit(&simulator, "xai", &request("grok-4.3", &input)).await.expect_ok();
    input.remove(1);
    submit(&simulator, "xai", &request("grok-4.3", &input)).await.expect_ok();
}

#[tokio::test]
async fn invalid_ciphertexts_are_rejected() {
    let simulator = simulator().await;
    let input = one_step(&simulator, "openai", "gpt-5.6", true).await;
    let good = input[1]["encrypted_content"].as_str().unwrap().to_owned();
    assert!(good.starts_with("gAAAA"));
    let mut flipped = good.clone().into_bytes();
    flipped[60] = if flipped[60] == b'A' { b'B' } else { b'A' };
    let flipped = String::from_utf8(flipped).unwrap();
    let cases =
        ["", "not base64!", &flipped, &good[..good.len() - 4], &good.replace(['-', '_'], "+")];
    for bad in cases {
        if bad == good {
            continue;
        }
        let mut broken = input.clone();
        broken[1]["encrypted_content"] = json!(bad);
        let answer = submit(&simulator, "openai", &request("gpt-5.6", &broken)).await;
        let id = input[1]["id"].as_str().unwrap();
        assert_eq!(
            answer.expect_error(400),
            format!(
                "The encrypted content for item {id} could not be verified. Reason: Encrypted content could not be decrypted or parsed."
            )
        );
        assert_eq!(answer.json()["error"]["code"], "invalid_encrypted_content");
        let last = simulator.ledger().entries.last().cloned().unwrap();
        assert!(matches!(last.returned.last().unwrap().verdict, Verdict::Refused(_)));
    }
    // Ciphertexts issued to another account, and by another endpoint.
    let mut without_ids = input.clone();
    for item in &mut without_ids[1..3] {
        item.as_object_mut().unwrap().remove("id");
    }
    let body = with(request("gpt-5.6", &without_ids), "store", json!(false));
    let answer = post(&simulator, "/at/openai/v1/responses", &OTHER_KEY, &body).await;
    assert!(answer.expect_error(400).contains("organization_id did not match"));
    let answer = submit(&simulator, "azure", &body).await;
    assert!(answer.expect_error(400).starts_with("The encrypted content gAAA..."));
    submit(&simulator, "openai", &body).await.expect_ok();
    let compaction = json!({"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAB"});
    let answer = submit(&simulator, "openai", &request("gpt-5.6", &[compaction])).await;
    assert!(answer.expect_error(400).starts_with("The encrypted content for item cmp_1"));
}

#[tokio::test]
async fn reasoning_requires_a_summary() {
    let simulator = simulator().await;
    let mut input = one_step(&simulator, "openai", "gpt-5.6", true).await;
    input[1].as_object_mut().unwrap().remove("summary");
    let answer = submit(&simulator, "openai", &request("gpt-5.6", &input)).await;
    assert_eq!(answer.expect_error(400), "Missing required parameter: 'input[1].summary'.");
    assert_eq!(answer.json()["error"]["code"], "missing_required_parameter");
    input[1]["summary"] = json!([]);
    submit(&simulator, "openai", &request("gpt-5.6", &input)).await.expect_ok();
}

#[tokio::test]
async fn unsupported_efforts_and_sampling_are_rejected() {
    let simulator = simulator().await;
    let body = |model: &str, effort: &str| json!({"model": model, "input": "Hi", "reasoning": {"effort": effort}});
    let error = submit(&simulator, "openai", &body("gpt-5", "xhigh")).await.expect_error(400);
    assert_eq!(
        error,
        "Unsupported value: 'xhigh' is not supported with the 'gpt-5' model. Supported values are: 'minimal', 'low', 'medium', and 'high'."
    );
    submit(&simulator, "openai", &body("gpt-5.6", "max")).await.expect_ok();
    submit(&simulator, "openai", &body("gpt-4.1", "low")).await.expect_error(400);
    let warm = |model: &str| json!({"model": model, "input": "Hi", "temperature": 0.5});
    let answer = submit(&simulator, "openai", &warm("gpt-5")).await;
    assert_eq!(
        answer.expect_error(400),
        "Unsupported parameter: 'temperature' is not supported with this model."
    );
    assert_eq!(answer.json()["error"]["param"], "temperature");
    submit(&simulator, "openai", &warm("gpt-4.1")).await.expect_ok();
    submit(&simulator, "openai", &warm("gpt-5.1")).await.expect_ok();
    submit(&simulator, "openai", &with(warm("gpt-5.1"), "reasoning", json!({"effort": "low"})))
        .await
        .expect_error(400);
}

#[tokio::test]
async fn calls_without_outputs_are_rejected() {
    let simulator = simulator().await;
    let input = one_step(&simulator, "openai", "gpt-5.6", false).await;
    let id = input[2]["call_id"].as_str().unwrap();
    let unstored = |input: &[Value]| with(request("gpt-5.6", input), "store", json!(false));
    let error = submit(&simulator, "openai", &unstored(&input[..3])).await.expect_error(400);
    assert_eq!(error, format!("No tool output found for function call {id}."));
    let alone = [input[0].clone(), input[3].clone()];
    let error = submit(&simulator, "openai", &unstored(&alone)).await.expect_error(400);
    assert_eq!(error, format!("No tool call found for function call output with call_id {id}."));
    let elsewhere = with(unstored(&alone), "conversation", json!("conv_1"));
    submit(&simulator, "openai", &elsewhere).await.expect_ok();
}

#[tokio::test]
async fn deepseek_rejects_messages_between_calls_and_outputs() {
    let simulator = simulator().await;
    let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "weather", "arguments": "{}"});
    let answer =
        |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "sunny"});
    let message = json!({"role": "assistant", "content": "<think>\nhm\n</think>"});
    let input =
        [call("call-a"), message, call("call-b"), answer("call-a"), answer("call-b"), user("?")];
    let body = json!({"model": "deepseek-v4-flash", "input": input});
    let response = submit(&simulator, "deepseek-responses", &body).await;
    assert_eq!(
        response.json(),
        json!({"error": {
            "message": "No tool output found for tool call call-a.",
            "type": "invalid_request_error",
            "param": null,
            "code": "invalid_request_error",
        }})
    );
}

#[tokio::test]
async fn lost_moved_or_repeated_reasoning_is_accepted_and_recorded() {
    let simulator = simulator().await;
    let unstored = |input: &[Value]| with(request("gpt-5.6", input), "store", json!(false));
    let mut input = one_step(&simulator, "openai", "gpt-5.6", false).await;
    let second = submit(&simulator, "openai", &unstored(&input)).await.expect_ok();
    append_reply(&mut input, &output(&second));
    for item in &mut input {
        item.as_object_mut().unwrap().remove("id");
    }
    let last = || simulator.ledger().entries.last().cloned().unwrap();
    let verdicts = || -> Vec<Verdict> {
        last().returned.into_iter().map(|returned| returned.verdict).collect()
    };
    let dropped = |reason: &str| Verdict::Dropped(reason.to_owned());

    let mut without = input.clone();
    without.remove(1);
    submit(&simulator, "openai", &unstored(&without)).await.expect_ok();
    assert_eq!((verdicts(), last().lost), (vec![Verdict::Accepted], 1));

    let mut moved = input.clone();
    moved.swap(1, 4);
    submit(&simulator, "openai", &unstored(&moved)).await.expect_ok();
    assert_eq!(verdicts(), [dropped("moved"), dropped("moved")]);

    let mut repeated = input.clone();
    repeated.insert(2, input[1].clone());
    submit(&simulator, "openai", &unstored(&repeated)).await.expect_ok();
    assert_eq!(verdicts(), [Verdict::Accepted, dropped("duplicate"), Verdict::Accepted]);
    assert!(!simulator.ledger().all_verified());
}

/// Claude Code adds default values to the arguments of calls, and other clients replace call ids.
#[tokio::test]
async fn reasoning_before_a_call_with_the_same_id_or_content_is_not_moved() {
    let simulator = simulator().await;
    let input = one_step(&simulator, "openai", "gpt-5.6", false).await;
    let verdict = async |id: Option<&str>, extra: Option<&str>| {
        let mut input = input.clone();
        for item in &mut input {
            item.as_object_mut().unwrap().remove("id");
            if let Some(id) = id.filter(|_| item.get("call_id").is_some()) {
                item["call_id"] = json!(id);
            }
        }
        if let Some(extra) = extra {
            let arguments = input[2]["arguments"].as_str().unwrap();
            let mut arguments: Value = serde_json::from_str(arguments).unwrap();
            arguments[extra] = json!(false);
            input[2]["arguments"] = json!(arguments.to_string());
        }
        let body = with(request("gpt-5.6", &input), "store", json!(false));
        submit(&simulator, "openai", &body).await.expect_ok();
        let entry = simulator.ledger().entries.last().cloned().unwrap();
        entry.returned.into_iter().map(|returned| returned.verdict).next().unwrap()
    };
    assert_eq!(verdict(None, Some("replace_all")).await, Verdict::Accepted);
    assert_eq!(verdict(Some("call_of_the_client"), None).await, Verdict::Accepted);
    let moved = Verdict::Dropped("moved".to_owned());
    assert_eq!(verdict(Some("call_of_the_client"), Some("replace_all")).await, moved);
}

#[tokio::test]
async fn reordered_members_miss_the_cache() {
    let simulator = simulator().await;
    let input = one_step(&simulator, "openai", "gpt-5.6", false).await;
    let body = with(request("gpt-5.6", &input), "store", json!(false));
    let cached = |answer: Value| {
        let usage = answer["usage"].clone();
        usage["input_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    assert!(cached(submit(&simulator, "openai", &body).await.expect_ok()) > 0);
    let tools =
        r#"[{"name":"weather","type":"function","strict":true,"parameters":{"type":"object"}}]"#;
    let reordered = with(body, "tools", serde_json::from_str(tools).unwrap());
    assert_eq!(cached(submit(&simulator, "openai", &reordered).await.expect_ok()), 0);
}

#[tokio::test]
async fn parallel_calls_and_tool_choice_are_honoured() {
    let simulator = simulator().await;
    let body = request("gpt-5.6", &[user("Weather?")]);
    let together = with(body.clone(), "parallel_tool_calls", json!(true));
    let answer = submit(&simulator, "openai", &together).await.expect_ok();
    let kinds: Vec<_> = output(&answer).iter().map(|item| item["type"].clone()).collect();
    assert_eq!(kinds, ["reasoning", "function_call", "function_call"]);
    let mut input = vec![user("Weather?")];
    append_reply(&mut input, &output(&answer));
    let last = submit(&simulator, "openai", &request("gpt-5.6", &input)).await.expect_ok();
    assert_eq!(last["output"][1]["type"], "message");
    assert_eq!(last["output"][1]["phase"], "final_answer");

    let forced = with(body.clone(), "tool_choice", json!({"type": "function", "name": "news"}));
    let answer = submit(&simulator, "openai", &forced).await.expect_ok();
    assert_eq!(answer["output"][1]["name"], "news");
    let custom = with(body, "tools", json!([{"type": "custom", "name": "shell"}]));
    let answer = submit(&simulator, "openai", &custom).await.expect_ok();
    assert_eq!(answer["output"][1]["type"], "custom_tool_call");
    let format = json!({"format": {"type": "json_schema", "name": "a", "schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}});
    let shaped = json!({"model": "gpt-5.6", "input": "Hi", "text": format});
    let answer = submit(&simulator, "openai", &shaped).await.expect_ok();
    let text = answer["output"][1]["content"][0]["text"].as_str().unwrap();
    assert!(serde_json::from_str::<Value>(text).unwrap()["n"].is_i64(), "{text}");
    assert!(simulator.ledger().all_verified());
}

#[tokio::test]
async fn the_same_seed_gives_the_same_bytes() {
    let mut bodies = Vec::new();
    for seed in [7, 7, 8] {
        let simulator = start(Options { seed, ..Options::default() }).await.unwrap();
        let body = with(request("gpt-5.6", &[user("Hi")]), "stream", json!(true));
        bodies.push(submit(&simulator, "openai", &body).await.body);
    }
    assert_eq!(bodies[0], bodies[1]);
    assert_ne!(bodies[0], bodies[2]);
}

/// OpenAI compacts a conversation on request, and reads only its own compactions.
#[tokio::test]
async fn openai_compacts_a_conversation() {
    let simulator = simulator().await;
    let mut input = one_step(&simulator, "openai", "gpt-5.6", true).await;
    input.push(json!({"type": "compaction_trigger"}));
    let answer = submit(&simulator, "openai", &request("gpt-5.6", &input)).await.expect_ok();
    let [item] = answer["output"].as_array().unwrap().as_slice() else { panic!("{answer}") };
    assert_eq!((&item["type"], &answer["status"]), (&json!("compaction"), &json!("completed")));
    let next = [item.clone(), json!({"role": "user", "content": "Go on"})];
    submit(&simulator, "openai", &request("gpt-5.6", &next)).await.expect_ok();
    assert!(simulator.ledger().all_verified());
    assert!(simulator.ledger().returned().count() > 0);
    // Azure has another key.
    let answer = submit(&simulator, "azure", &request("gpt-5.6", &next)).await;
    assert!(answer.expect_error(400).starts_with("The encrypted content"));
}

#[tokio::test]
async fn misplaced_triggers_and_unknown_triggers_are_refused() {
    let simulator = simulator().await;
    let (user, trigger) =
        (json!({"role": "user", "content": "Hi"}), json!({"type": "compaction_trigger"}));
    for input in [vec![trigger.clone(), user.clone()], vec![trigger.clone(), trigger.clone()]] {
        let answer = submit(&simulator, "openai", &request("gpt-5.6", &input)).await;
        assert_eq!(
            answer.expect_error(400),
            "The 'compaction_trigger' item must be the final input item."
        );
    }
    let answer =
        submit(&simulator, "openai", &request("gpt-5.6", std::slice::from_ref(&trigger))).await;
    assert_eq!(answer.expect_error(400), "The input contains nothing to compact.");
    let answer = submit(&simulator, "xai", &request("grok-4.5", &[user, trigger])).await;
    assert_eq!(answer.expect_error(400), "Invalid value: 'compaction_trigger' at 'input[1].type'.");
}

#[tokio::test]
async fn compact_endpoint_keeps_user_messages() {
    let simulator = simulator().await;
    let input = one_step(&simulator, "openai", "gpt-5.6", true).await;
    let body = json!({"model": "gpt-5.6", "input": input});
    let path = "/at/openai/v1/responses/compact";
    let answer = post(&simulator, path, &KEY, &body).await.expect_ok();
    let output = answer["output"].as_array().unwrap();
    let kinds: Vec<&Value> = output.iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds, ["message", "compaction"], "{answer}");
    assert_eq!(answer["object"], "response.compaction");
    let answer = post(&simulator, "/at/xai/v1/responses/compact", &KEY, &body).await;
    assert_eq!(answer.status, 404);
}
