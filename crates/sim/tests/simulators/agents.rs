//! Tests for the behaviour that coding agents rely on: bounded tool loops, tools in input items,
//! scripts that call tools by role, and compactions.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use throughline_sim::{Options, start};

use crate::common::{HttpResponse, get, post, send, simulator};

const KEY: &[(&str, &str)] = &[("x-api-key", "key-one"), ("anthropic-version", "2023-06-01")];
const BEARER: &[(&str, &str)] = &[("authorization", "Bearer key-one")];

fn schema(name: &str) -> Value {
    let properties = json!({(name): {"type": "string"}});
    json!({"type": "object", "properties": properties, "required": [name]})
}

fn claude_tools(names: impl Iterator<Item = String>) -> Vec<Value> {
    names.map(|name| json!({"name": name, "input_schema": schema("command")})).collect()
}

/// Runs an agent loop over the Messages API, and returns the names of the called tools.
async fn claude_loop(
    simulator: &throughline_sim::Simulator,
    tools: &[Value],
    rounds: usize,
) -> Vec<String> {
    let mut messages = vec![json!({"role": "user", "content": "Go."})];
    let mut called = Vec::new();
    for _ in 0..rounds {
        let body = json!({"model": "claude-sonnet-5-5", "max_tokens": 4096,
                          "thinking": {"type": "adaptive"}, "tools": tools, "messages": messages});
        let reply = post(simulator, "/v1/messages", KEY, &body).await.expect_ok();
        let content = reply["content"].as_array().unwrap().clone();
        let calls: Vec<&Value> =
            content.iter().filter(|block| block["type"] == "tool_use").collect();
        if calls.is_empty() {
            assert_eq!(reply["stop_reason"], "end_turn");
            return called;
        }
        called.extend(calls.iter().map(|call| call["name"].as_str().unwrap().to_owned()));
        let results: Vec<Value> = calls
            .iter()
            .map(
                |call| json!({"type": "tool_result", "tool_use_id": call["id"], "content": "done"}),
            )
            .collect();
        messages.push(json!({"role": "assistant", "content": content}));
        messages.push(json!({"role": "user", "content": results}));
    }
    panic!("the loop did not end after {rounds} rounds: {called:?}");
}

#[tokio::test]
async fn unscripted_loop_ends_after_sixteen_rounds() {
    let simulator = simulator().await;
    let tools = claude_tools((0..40).map(|number| format!("tool_{number}")));
    assert_eq!(claude_loop(&simulator, &tools, 30).await.len(), 16);
    assert!(simulator.ledger().all_verified());
}

#[tokio::test]
async fn unscripted_model_does_not_call_subagents() {
    let simulator = simulator().await;
    let names = ["Task", "Agent", "Bash", "AskUserQuestion", "WebFetch", "spawn_agent", "Read"];
    let tools = claude_tools(names.into_iter().map(str::to_owned));
    assert_eq!(claude_loop(&simulator, &tools, 30).await, ["Bash", "Read"]);
}

/// An agent may force a call. The model then also calls a tool that it would not choose.
#[tokio::test]
async fn forced_subagent_is_called() {
    let body = json!({
        "model": "gpt-5.6-sol", "input": "Go.", "tool_choice": {"type": "function", "name": "task"},
        "tools": [{"type": "function", "name": "task", "parameters": schema("prompt")}],
    });
    let reply = post(&simulator().await, "/v1/responses", BEARER, &body).await.expect_ok();
    assert_eq!(calls(&reply)[0]["name"], "task");
}

fn calls(reply: &Value) -> Vec<Value> {
    let output = reply["output"].as_array().unwrap().iter();
    let is_call =
        |item: &&Value| matches!(item["type"].as_str(), Some("function_call" | "custom_tool_call"));
    output.filter(is_call).cloned().collect()
}

/// The form in which Codex sends its tools for recent models.
fn codex_request(input: &[Value]) -> Value {
    let exec = json!({"type": "custom", "name": "exec", "description": "Runs JavaScript."});
    let wait = json!({"type": "function", "name": "wait", "parameters": schema("cell_id")});
    let spawn = json!({"type": "function", "name": "spawn_agent", "parameters": schema("message")});
    let message = json!({"type": "function", "name": "notify", "parameters": schema("message")});
    let tools = json!({"type": "additional_tools", "role": "developer", "tools": [
        {"type": "namespace", "name": "functions", "tools": [exec, wait]},
        {"type": "namespace", "name": "collaboration", "tools": [spawn, message]},
    ]});
    let items: Vec<Value> = [tools].into_iter().chain(input.iter().cloned()).collect();
    json!({"model": "gpt-5.6-sol", "store": false, "include": ["reasoning.encrypted_content"],
           "input": items})
}

fn user(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

#[tokio::test]
async fn tools_in_input_items_are_called_with_their_namespace() {
    for streams in [false, true] {
        let simulator = simulator().await;
        let mut input = vec![user("Go.")];
        let mut seen = Vec::new();
        for _ in 0..6 {
            let mut body = codex_request(&input);
            body["stream"] = json!(streams);
            let reply = completed(&post(&simulator, "/v1/responses", BEARER, &body).await);
            let calls = calls(&reply);
            input.extend(reply["output"].as_array().unwrap().clone());
            if calls.is_empty() {
                break;
            }
            for call in calls {
                let kind = call["type"].as_str().unwrap();
                seen.push((call["name"].clone(), call["namespace"].clone(), kind.to_owned()));
                input.push(json!({"type": format!("{kind}_output"), "call_id": call["call_id"],
                                  "output": "done"}));
            }
        }
        let call =
            |name: &str, namespace: Value, kind: &str| (json!(name), namespace, kind.to_owned());
        assert_eq!(
            seen,
            [
                call("exec", Value::Null, "custom_tool_call"),
                call("wait", Value::Null, "function_call"),
                call("notify", json!("collaboration"), "function_call"),
            ]
        );
        assert!(simulator.ledger().all_verified());
    }
}

/// Returns the complete response of a streamed or a plain reply.
fn completed(reply: &HttpResponse) -> Value {
    assert_eq!(reply.status, 200, "{}", reply.text());
    if !reply.text().starts_with("event:") {
        return reply.json();
    }
    let last = reply.events().pop().expect("an event");
    assert_eq!(last["type"], "response.completed");
    last["response"].clone()
}

const LOOP: &str = r#"
    [[turn]]
    round = 0
    times = "always"
    thoughts = ["Read it."]
    calls = [{ role = "read", path = "notes.txt" }]

    [[turn]]
    round = [1, 2]
    times = "always"
    calls = [{ role = "run", command = "echo {{result}}" }]

    [[turn]]
    times = "always"
    texts = ["{{user}} → {{result.0}}, {{result}}"]
"#;

#[tokio::test]
async fn script_runs_the_same_loop_in_every_conversation() {
    let options = Options { script: LOOP.parse().unwrap(), ..Options::default() };
    let simulator = start(options).await.unwrap();
    for _ in 0..2 {
        let mut input = vec![user("Hello")];
        let mut programs = Vec::new();
        let answer = loop {
            let body = codex_request(&input);
            let reply = post(&simulator, "/v1/responses", BEARER, &body).await.expect_ok();
            input.extend(reply["output"].as_array().unwrap().clone());
            let calls = calls(&reply);
            if calls.is_empty() {
                break reply["output"][0]["content"][0]["text"].clone();
            }
            for call in calls {
                programs.push(call["input"].as_str().unwrap().to_owned());
                let output = format!("output {}", programs.len());
                input.push(json!({"type": "custom_tool_call_output", "call_id": call["call_id"],
                                  "output": output}));
            }
        };
        assert_eq!(programs.len(), 3);
        assert!(programs[0].contains("cat -- 'notes.txt'"), "{programs:?}");
        assert!(programs[2].contains("echo output 2"), "{programs:?}");
        assert_eq!(answer, "Hello → output 1, output 3");
    }
}

#[tokio::test]
async fn script_can_be_replaced_over_http() {
    let simulator = simulator().await;
    let put = async |script: &str| {
        send(&simulator, "PUT", "/sim/script", &[], script.as_bytes().to_vec()).await
    };
    assert_eq!(put("[[turn]]\ntexts = [\"One.\"]\n").await.status, 204);
    let body = json!({"model": "gpt-5.6-sol", "input": "Hi"});
    let reply = post(&simulator, "/v1/responses", BEARER, &body).await.expect_ok();
    assert_eq!(reply["output"][0]["content"][0]["text"], "One.");
    let invalid = put("[[turn]]\nsays = \"One.\"\n").await;
    assert_eq!(invalid.status, 400);
    assert!(
        invalid.text().starts_with("invalid script, line 2: unknown field"),
        "{}",
        invalid.text()
    );
    assert_eq!(get(&simulator, "/sim/script", &[]).await.status, 405);

    post(&simulator, "/v1/responses", BEARER, &body).await.expect_ok();
    let entries = |reply: HttpResponse| -> Vec<u64> {
        let entries = reply.json()["entries"].as_array().unwrap().clone();
        entries.iter().map(|entry| entry["request"].as_u64().unwrap()).collect()
    };
    assert_eq!(entries(get(&simulator, "/sim/ledger", &[]).await), [1, 2]);
    assert_eq!(entries(get(&simulator, "/sim/ledger?after=1", &[]).await), [2]);
    for wrong in ["abc", "-1", "1.5"] {
        let reply = get(&simulator, &format!("/sim/ledger?after={wrong}"), &[]).await;
        let text = String::from_utf8(reply.body).unwrap();
        assert_eq!(reply.status, 400, "{text}");
        assert!(text.contains(&format!("`after` is `{wrong}`; use the number")), "{text}");
    }
}

/// After a compaction within a turn, the request shows no calls. A model that called its tools
/// again would never end the loop.
#[tokio::test]
async fn unscripted_model_answers_after_a_compaction() {
    let simulator = simulator().await;
    let trigger = codex_request(&[user("Go."), json!({"type": "compaction_trigger"})]);
    let reply = post(&simulator, "/v1/responses", BEARER, &trigger).await.expect_ok();
    let compaction = reply["output"][0].clone();
    assert_eq!(compaction["type"], "compaction");
    let body = codex_request(&[user("Go."), compaction.clone()]);
    let reply = post(&simulator, "/v1/responses", BEARER, &body).await.expect_ok();
    assert_eq!(calls(&reply), Vec::<Value>::new());
    let body = codex_request(&[compaction, user("Go on.")]);
    let reply = post(&simulator, "/v1/responses", BEARER, &body).await.expect_ok();
    assert_eq!(calls(&reply).len(), 1, "a new user message starts a new loop");
}

#[tokio::test]
async fn unscripted_model_answers_a_request_for_a_summary() {
    let prompt = "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a handoff summary.";
    let body = codex_request(&[user("Go."), user(prompt)]);
    let reply = post(&simulator().await, "/v1/responses", BEARER, &body).await.expect_ok();
    assert_eq!(calls(&reply), Vec::<Value>::new());
}

/// Codex reports a goal as an output without a call.
#[tokio::test]
async fn output_that_names_a_tool_needs_no_call() {
    let simulator = simulator().await;
    let goal = json!({"type": "function_call_output", "id": "fco_1", "name": "goal_objective",
                      "namespace": "agent", "output": "Finish."});
    let body = codex_request(&[user("Go."), goal]);
    let reply = post(&simulator, "/v1/responses", BEARER, &body).await.expect_ok();
    assert_eq!(calls(&reply).len(), 1);
    let lost = json!({"type": "function_call_output", "call_id": "call_1", "output": "Finish."});
    let body = codex_request(&[user("Go."), lost]);
    let error = post(&simulator, "/v1/responses", BEARER, &body).await.expect_error(400);
    assert_eq!(error, "No tool call found for function call output with call_id call_1.");
}

/// OpenAI compacts before a reply if the conversation reaches the threshold, and not again after
/// the compaction.
#[tokio::test]
async fn openai_compacts_at_the_threshold() {
    for streams in [false, true] {
        let simulator = simulator().await;
        let long = user(&"word ".repeat(2000));
        let request = |input: &[Value], threshold: u64| {
            let edit = json!([{"type": "compaction", "compact_threshold": threshold}]);
            json!({"model": "gpt-5.6-sol", "store": false, "input": input, "stream": streams,
                   "context_management": edit})
        };
        let send = async |input: &[Value], threshold: u64| -> Vec<Value> {
            let body = request(input, threshold);
            let reply = completed(&post(&simulator, "/v1/responses", BEARER, &body).await);
            reply["output"].as_array().unwrap().clone()
        };
        let kinds = |output: &[Value]| -> Vec<String> {
            output.iter().map(|item| item["type"].as_str().unwrap().to_owned()).collect()
        };
        let input = vec![long];
        assert_eq!(kinds(&send(&input, 100_000).await), ["reasoning", "message"]);
        let output = send(&input, 1000).await;
        assert_eq!(kinds(&output), ["compaction", "reasoning", "message"]);
        let input = [input, output, vec![user("More.")]].concat();
        assert_eq!(kinds(&send(&input, 1000).await), ["reasoning", "message"]);
        assert!(simulator.ledger().all_verified());
    }
    let body =
        json!({"model": "gpt-5.6-sol", "input": "Hi", "context_management": [{"type": "x"}]});
    let error = post(&simulator().await, "/v1/responses", BEARER, &body).await.expect_error(400);
    assert_eq!(error, "Invalid value for 'context_management[0].type': expected 'compaction'.");
}

/// Anthropic's edit compacts before the reply. The client returns the block with the reply.
#[tokio::test]
async fn anthropic_edit_compacts_at_the_threshold() {
    const BETA: (&str, &str) = ("anthropic-beta", "compact-2026-01-12");
    let simulator = simulator().await;
    let headers = [KEY, &[BETA]].concat();
    let edit = |value: Value| {
        let mut edit = json!({"type": "compact_20260112", "trigger": {"type": "input_tokens"}});
        edit["trigger"]["value"] = json!(1000);
        if value.is_boolean() {
            edit["pause_after_compaction"] = value;
        }
        json!({"edits": [edit]})
    };
    let long = "word ".repeat(2000);
    let mut body = json!({
        "model": "claude-sonnet-5-5", "max_tokens": 4096, "thinking": {"type": "adaptive"},
        "tools": claude_tools(["Bash".to_owned()].into_iter()),
        "messages": [{"role": "user", "content": long}],
        "context_management": edit(Value::Null),
    });
    let error = post(&simulator, "/v1/messages", KEY, &body).await.expect_error(400);
    assert!(error.contains("requires the beta 'compact-2026-01-12'"), "{error}");
    let kinds = |reply: &Value| -> Vec<String> {
        let content = reply["content"].as_array().unwrap().iter();
        content.map(|block| block["type"].as_str().unwrap().to_owned()).collect()
    };
    let first = post(&simulator, "/v1/messages", &headers, &body).await.expect_ok();
    assert_eq!(kinds(&first), ["compaction", "thinking", "tool_use"]);
    let result = json!({"type": "tool_result", "tool_use_id": first["content"][2]["id"],
                        "content": "done"});
    body["messages"].as_array_mut().unwrap().extend([
        json!({"role": "assistant", "content": first["content"]}),
        json!({"role": "user", "content": [result]}),
    ]);
    let second = post(&simulator, "/v1/messages", &headers, &body).await.expect_ok();
    assert_eq!(kinds(&second), ["thinking", "text"], "the compaction replaced the long message");

    body["messages"] = json!([{"role": "user", "content": long}]);
    body["context_management"] = edit(json!(true));
    let paused = post(&simulator, "/v1/messages", &headers, &body).await.expect_ok();
    assert_eq!(
        (kinds(&paused), &paused["stop_reason"]),
        (vec!["compaction".to_owned()], &json!("compaction"))
    );
    body["stream"] = json!(true);
    let streamed = post(&simulator, "/v1/messages", &headers, &body).await;
    assert!(streamed.text().contains(r#""stop_reason":"compaction""#), "{}", streamed.text());
}

/// The page contains the keys in tables and examples in blocks.
#[test]
fn documented_scripts_are_valid() {
    let page = include_str!("../../../../docs/simulators.md");
    let blocks: Vec<&str> = page.split("```").skip(1).step_by(2).collect();
    let scripts: Vec<&str> =
        blocks.iter().filter_map(|block| block.strip_prefix("toml\n")).collect();
    assert_eq!(scripts.len(), 2);
    let schema = include_str!("../../../../docs/schemas/sim-script.json");
    let schema: Value = serde_json::from_str(schema).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for script in scripts {
        let parsed = script.parse::<throughline_sim::Script>();
        assert!(parsed.is_ok(), "{parsed:?} in\n{script}");
        let document: Value = toml::from_str(script).unwrap();
        assert!(validator.is_valid(&document), "{document}");
    }
    // An unknown key is rejected with the list of all keys, which the page must document.
    let error = "[[turn]]\nzzzzzzzzzzzzzzzzz = 1\n".parse::<throughline_sim::Script>().unwrap_err();
    let keys: Vec<&str> = error.message.split('`').skip(3).step_by(2).collect();
    assert_eq!(keys.len(), 15, "{error}");
    for key in &keys {
        assert!(page.contains(&format!("| `{key}` |")), "`{key}` is not documented");
    }
    let turn = schema["$defs"]["turn"]["properties"].as_object().unwrap();
    let turn: BTreeSet<&str> = turn.keys().map(String::as_str).collect();
    assert_eq!(turn, keys.into_iter().collect());
}
