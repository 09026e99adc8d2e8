//! Tests the tools of Codex at targets on every wire: custom tools and tools in a namespace.

use serde_json::{Value, json};
use throughline_server::ReplayMode;

use crate::harness::{ClientDialect, MODELS, SimGateway};

fn schema(member: &str) -> Value {
    json!({"type": "object", "properties": {member: {"type": "string"}}, "required": [member]})
}

/// Returns a request whose tools are in a namespace: `exec` is a custom tool in the default
/// namespace, and `notify` is in a namespace of its own. Codex sends namespaces in the list of
/// tools or in an input element.
fn request(model: &str, is_in_input: bool, input: &[Value], stream: bool) -> Value {
    let exec = json!({"type": "custom", "name": "exec", "description": "Runs JavaScript."});
    let notify = json!({"type": "function", "name": "notify", "parameters": schema("message")});
    let tools = json!([
        {"type": "namespace", "name": "functions", "description": "", "tools": [exec]},
        {"type": "namespace", "name": "collaboration", "description": "", "tools": [notify]},
    ]);
    let mut body = json!({"model": model, "store": false, "stream": stream,
        "include": ["reasoning.encrypted_content"]});
    if is_in_input {
        let element = json!({"type": "additional_tools", "role": "developer", "tools": tools});
        body["input"] = [element].into_iter().chain(input.iter().cloned()).collect();
    } else {
        body["tools"] = tools;
        body["input"] = json!(input);
    }
    body
}

/// Requires that the stream adds this call and completes it, with its namespace.
fn assert_is_streamed(stream: &[u8], call: &Value) {
    let text = String::from_utf8_lossy(stream);
    let frames = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = frames.filter_map(|data| serde_json::from_str(data).ok()).collect();
    let items = |kind: &str| -> Vec<Value> {
        let events = events.iter().filter(|event| event["type"] == kind);
        events.map(|event| event["item"].clone()).collect()
    };
    assert!(items("response.output_item.done").contains(call), "{text}");
    let added = items("response.output_item.added");
    assert!(added.iter().any(|item| item["id"] == call["id"]), "{text}");
}

/// Runs a loop until the model calls no tool. Returns the type, name and namespace of each call.
/// `request` returns the request with an input.
async fn run_loop(
    gateway: &SimGateway,
    stream: bool,
    request: impl Fn(&[Value]) -> Value,
) -> Vec<(Value, Value, Value)> {
    let mut input = vec![json!({"role": "user", "content": "Go."})];
    let mut seen = Vec::new();
    let model = request(&input)["model"].clone();
    for _ in 0..6 {
        let body = request(&input).to_string().into_bytes();
        let headers = [("content-type", "application/json")];
        let (status, headers, reply) = gateway.send("POST", "/v1/responses", body, &headers).await;
        assert_eq!(status, 200, "{model}: {}", String::from_utf8_lossy(&reply));
        let framing = headers["content-type"].to_str().unwrap();
        let output = ClientDialect::Responses.reply(&reply, stream.then_some(framing));
        let calls: Vec<Value> =
            output.iter().filter(|item| item["call_id"].is_string()).cloned().collect();
        input.extend(output);
        if calls.is_empty() {
            return seen;
        }
        for call in calls {
            let kind = call["type"].as_str().unwrap();
            assert!(call["id"].is_string(), "{model}: {call}");
            let argument = if kind == "custom_tool_call" { "input" } else { "arguments" };
            assert!(call[argument].is_string(), "{model}: {call}");
            if stream {
                assert_is_streamed(&reply, &call);
            }
            let result = json!({"type": format!("{kind}_output"), "call_id": call["call_id"],
                "output": "done"});
            seen.push((call["type"].clone(), call["name"].clone(), call["namespace"].clone()));
            input.push(result);
        }
    }
    panic!("{model} does not end: {seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_custom_tools_and_namespaces_keep_their_form_on_every_wire() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let call = |kind: &str, name: &str, namespace: Value| (json!(kind), json!(name), namespace);
    for model in MODELS {
        for (is_in_input, stream) in [(true, false), (true, true), (false, false), (false, true)] {
            let request = |input: &[Value]| request(model, is_in_input, input, stream);
            let seen = run_loop(&gateway, stream, request).await;
            let wanted = [
                call("custom_tool_call", "exec", Value::Null),
                call("function_call", "notify", json!("collaboration")),
            ];
            let label = format!("{model}, in the input {is_in_input}, streamed {stream}");
            for form in &wanted {
                assert!(seen.contains(form), "{label}: {seen:?}");
            }
            assert!(seen.iter().all(|form| wanted.contains(form)), "{label}: {seen:?}");
        }
    }
    gateway.assert_nothing_refused();
    assert_eq!(gateway.ledger().entries.iter().map(|entry| entry.lost).sum::<usize>(), 0);
}

/// Two namespaces and the list of tools contain a tool with the same name, and the simulators call
/// each tool.
#[tokio::test(flavor = "multi_thread")]
async fn calls_of_equal_names_in_several_namespaces_name_their_own() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let notify =
        |member: &str| json!({"type": "function", "name": "notify", "parameters": schema(member)});
    let request = |model: &str, input: &[Value], stream: bool| {
        json!({"model": model, "store": false, "stream": stream, "input": input, "tools": [
            notify("message"),
            {"type": "namespace", "name": "mail", "description": "", "tools": [notify("subject")]},
            {"type": "namespace", "name": "chat", "description": "", "tools": [notify("text")]},
        ]})
    };
    // The simulator of the Responses API names only the first namespace with a tool.
    for model in MODELS.into_iter().filter(|model| !model.contains("gpt")) {
        for stream in [false, true] {
            let seen = run_loop(&gateway, stream, |input| request(model, input, stream)).await;
            for namespace in [Value::Null, json!("mail"), json!("chat")] {
                let call = (json!("function_call"), json!("notify"), namespace);
                assert!(seen.contains(&call), "{model}, streamed {stream}: {seen:?}");
            }
        }
    }
    gateway.assert_nothing_refused();
    assert_eq!(gateway.ledger().entries.iter().map(|entry| entry.lost).sum::<usize>(), 0);
}
