//! Tests that thoughts matching a pattern of the policy are redacted in every GET route, command,
//! sink and export.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::{Value, json};
use throughline_testkit::figure;

use crate::support::kept::TestStore;
use crate::support::serving::GatewayProcess;
use crate::traces::Receiver;

/// Pattern for the note that ends every simulated thought and occurs in no other text.
const NOTE: &str = "note [0-9a-f]{6}";

type Views = Vec<(String, String)>;

/// Parses the JSON body of an HTTP response.
fn body(response: &str) -> Value {
    let (_, body) = response.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap()
}

/// Returns the first string in a response that starts with `prefix`, such as `run_`.
fn id(response: &str, prefix: &str) -> String {
    let start = response.find(prefix).unwrap_or_else(|| panic!("no {prefix} in {response}"));
    response[start..].split('"').next().unwrap().to_owned()
}

/// Runs an agent through the agent endpoints and the conversation endpoints. Returns the ids of the
/// agent, run and conversation.
fn run_agent(serving: &GatewayProcess, views: &mut Views) -> BTreeMap<&'static str, String> {
    let mut send = |method: &str, path: &str, body: &str| {
        let response = serving.send(method, path, "", body);
        assert!(response.starts_with("HTTP/1.1 200"), "{method} {path}: {response}");
        views.push((format!("{method} {path}"), response.clone()));
        response
    };
    let reflects = r#"{"reasoning":{"level":"high","reflection":{"cadence":"after_tool"}}}"#;
    let agent =
        format!(r#"{{"name":"Ada","model":"sim/claude-sonnet-4-5","throughline":{reflects}}}"#);
    let agent = id(&send("POST", "/v1/agents/", &agent), "agent-");
    let messages = format!("/v1/agents/{agent}/messages");
    let response = send("POST", &messages, r#"{"input":"Hello"}"#);
    assert!(
        response.contains("reasoning_message") && response.contains("[REDACTED]"),
        "{response}"
    );
    let run = id(&response, "run_").split('.').next().unwrap().to_owned();
    let tokens = r#"{"input":"And again","stream_tokens":true}"#;
    let stream = send("POST", &format!("{messages}/stream"), tokens);
    assert!(stream.contains("[REDACTED]") && stream.contains("[DONE]"), "{stream}");
    let conversation = send("POST", &format!("/v1/conversations/?agent_id={agent}"), "{}");
    let conversation = id(&conversation, "conv-");
    let path = format!("/v1/conversations/{conversation}/messages");
    send("POST", &path, r#"{"input":"Here too","streaming":false}"#);
    for path in ["stream?starting_after=0", "stream"] {
        send("GET", &format!("/v1/runs/{run}/{path}"), "");
    }
    BTreeMap::from([("agent", agent), ("run", run), ("conversation", conversation)])
}

/// Runs a conversation through the gateway and returns the id of the last call. The client receives
/// unredacted thoughts, because it must send them back.
fn call_gateway(serving: &GatewayProcess, note: &Regex) -> String {
    let mut request = json!({"model": "sim/claude-sonnet-4-5", "max_tokens": 4096,
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "messages": [{"role": "user", "content": "Hello"}]});
    let response = serving.send("POST", "/v1/messages", "", &request.to_string());
    assert!(note.is_match(&response), "{response}");
    request["messages"].as_array_mut().unwrap().extend([
        json!({"role": "assistant", "content": body(&response)["content"]}),
        json!({"role": "user", "content": "And again"}),
    ]);
    let response = serving.send("POST", "/v1/messages", "", &request.to_string());
    assert!(note.is_match(&response), "the provider accepts what it issued: {response}");
    let start = response.to_ascii_lowercase().find("x-throughline-call: ").unwrap();
    response[start..].lines().next().unwrap().split_once(": ").unwrap().1.to_owned()
}

/// Requests every GET route of the agent API in `/openapi.json`, once per thread if the path names
/// a thread. Routes of the provider dialects are excluded, because they return unredacted content
/// to the owning client. Routes of the sign-in return no content.
fn read_routes(
    serving: &GatewayProcess,
    ids: &BTreeMap<&str, String>,
    threads: &[String],
    note: &Regex,
    views: &mut Views,
) {
    let document = body(&serving.send("GET", "/openapi.json", "", ""));
    let mut routes = 0;
    for (route, item) in document["paths"].as_object().unwrap() {
        let area = item["get"]["tags"][0].as_str();
        if area.is_none_or(|area| {
            ["anthropic", "openai", "gemini", "bedrock", "vertex", "sign-in"].contains(&area)
        }) {
            continue;
        }
        routes += 1;
        let threads = if route.contains("{thread}") { threads } else { &threads[..1] };
        for thread in threads {
            let mut path = route.replace("{thread}", thread);
            for (name, id) in ids {
                path = path.replace(&format!("{{{name}}}"), id);
            }
            assert!(!path.contains('{'), "no id for {path}");
            let response = serving.send("GET", &path, "", "");
            let is_found = response.starts_with("HTTP/1.1 200");
            assert!(is_found || path.ends_with("/blocks/none"), "GET {path}: {response}");
            if path.ends_with("/snapshot") {
                // Another store can resume from a snapshot, so a snapshot contains the thoughts
                // unredacted.
                assert!(note.is_match(&response), "{response}");
            } else {
                views.push((format!("GET {path}"), response));
            }
        }
    }
    figure("thinkingPatterns: GET routes of the OpenAPI document without a match", routes);
    assert!(routes > 40, "{routes}");
}

/// Runs every command that prints thoughts.
fn run_commands(store: &TestStore, run: &str, threads: &[String], views: &mut Views) {
    for format in ["text", "json"] {
        let model = ["--model", "sim/claude-sonnet-4-5", "--tool", "now=date"];
        let run = [&["run", "What is the time?", "--format", format][..], &model].concat();
        let output = store.run(&run);
        assert_eq!(output.code, 0, "{}", output.err);
        views.push((format!("run --format {format}"), format!("{}{}", output.out, output.err)));
    }
    let narrated = store.run(&["narrate", run]);
    assert!(narrated.out.contains("[REDACTED]"), "{}", narrated.out);
    views.push(("narrate".to_owned(), narrated.out));
    let mut commands: Vec<Vec<&str>> = vec![
        vec!["items", run],
        vec!["runs"],
        vec!["threads"],
        vec!["inbox"],
        vec!["export"],
        vec!["traces", "export", run],
        vec!["traces", "export", run, "--as", "otlp", "--output", "trace.otlp"],
    ];
    commands.extend(threads.iter().map(|thread| vec!["items", &**thread]));
    for command in &commands {
        let formats: &[&str] = if command[0] == "traces" { &["text"] } else { &["text", "json"] };
        for format in formats {
            let output = store.run(&[&command[..], &["--format", format]].concat());
            assert_eq!(output.code, 0, "{command:?}: {}", output.err);
            views.push((format!("{command:?} --format {format}"), output.out + &output.err));
        }
    }
    let bytes = std::fs::read(store.file("trace.otlp")).unwrap();
    views.push(("trace.otlp".to_owned(), String::from_utf8_lossy(&bytes).into_owned()));
}

/// Reads every file that the trace file sink wrote.
fn read_files(store: &TestStore, views: &mut Views) {
    let (mut folders, mut has_thoughts) = (vec![store.file("traces")], false);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = std::fs::read_to_string(&path).unwrap();
                has_thoughts |= text.contains("throughline.thinking");
                views.push((format!("the file sink: {}", path.display()), text));
            }
        }
    }
    assert!(has_thoughts, "the file sink has redacted thoughts");
}

#[test]
fn thoughts_with_a_redacted_pattern_are_shown_nowhere() {
    let note = Regex::new(NOTE).unwrap();
    let store = TestStore::without_database("secrets-thoughts");
    let receivers = ["http", "otlp"].map(|kind| (kind, Receiver::start(&["200 OK"])));
    let sinks = receivers.iter().map(|(kind, receiver)| {
        format!(
            "[tracing.sinks.{kind}]\nkind = \"{kind}\"\nurl = \"http://{}\"\n",
            receiver.address
        )
    });
    let sinks: String = sinks.collect();
    let config = format!(
        "[server]\nlog = \"debug\"\n[redaction]\nthinkingPatterns = [\"{NOTE}\"]\n\
         [tracing.sinks.files]\nkind = \"file\"\nfolder = \"traces\"\n{sinks}"
    );
    std::fs::write(store.file("throughline.toml"), &config).unwrap();
    let mut serving = GatewayProcess::start(&store.folder, &[], &[]);
    let mut views = Views::new();
    let mut ids = run_agent(&serving, &mut views);
    ids.extend([("schema", "run-event".to_owned()), ("block", "none".to_owned())]);
    ids.insert("call", call_gateway(&serving, &note));
    let listed = body(&serving.send("GET", "/v1/throughline/threads", "", ""));
    let threads = listed["threads"].as_array().unwrap().iter();
    let threads: Vec<String> =
        threads.map(|thread| thread["id"].as_str().unwrap().to_owned()).collect();
    assert!(threads.iter().any(|thread| thread.starts_with("conversation-")), "{threads:?}");
    read_routes(&serving, &ids, &threads, &note, &mut views);
    assert_eq!(serving.stop(), 0);
    views.push(("the log".to_owned(), serving.errors()));
    run_commands(&store, &ids["run"], &threads, &mut views);
    read_files(&store, &mut views);
    for (kind, receiver) in &receivers {
        let requests = receiver.requests();
        assert!(!requests.is_empty(), "{kind}");
        for request in requests {
            let text = String::from_utf8_lossy(&request.body).into_owned();
            views.push((format!("the {kind} sink"), text));
        }
    }
    figure("thinkingPatterns: outputs without a match", views.len());
    for (view, text) in &views {
        assert!(!note.is_match(text), "{view} contains a match: {text}");
    }
    let stored = store.run(&["narrate", &ids["run"], "--no-redaction"]);
    assert!(note.is_match(&stored.out), "the store contains the whole thought: {}", stored.out);
    let full = store.run(&["export", "--full"]);
    assert!(note.is_match(&full.out), "a full export contains the whole thought");
}
