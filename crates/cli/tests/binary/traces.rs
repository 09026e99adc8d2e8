//! Tests of traces. Every kind of sink receives traces. A failing, slow or absent sink does not
//! affect the run, but its trace is incomplete.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use throughline_testkit::{figure, skip, workspace_root};

use crate::support::kept::TestStore;
use crate::support::serving::GatewayProcess;
use crate::support::{CommandOutput, throughline_with};

/// A request received by a trace receiver.
#[derive(Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) path: String,
    pub(crate) headers: String,
    pub(crate) body: Vec<u8>,
}

/// An HTTP server that receives traces and sends scripted responses.
pub(crate) struct Receiver {
    pub(crate) address: String,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl Receiver {
    /// Starts a receiver that sends `answers` in order, one per request. The last answer is
    /// repeated for further requests. For an empty answer, the receiver never responds.
    pub(crate) fn start(answers: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests: Arc<Mutex<Vec<ReceivedRequest>>> = Arc::default();
        let log = Arc::clone(&requests);
        std::thread::spawn(move || {
            let mut silent = Vec::new();
            for stream in listener.incoming().map_while(Result::ok) {
                let Some(request) = read(&stream) else { continue };
                let number = {
                    let mut log = log.lock().unwrap();
                    log.push(request);
                    log.len() - 1
                };
                let answer = answers.get(number).or(answers.last()).copied().unwrap_or_default();
                if answer.is_empty() {
                    silent.push(stream);
                    continue;
                }
                let answer =
                    format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                // The client may have closed the connection.
                (&stream).write_all(answer.as_bytes()).ok();
            }
        });
        Self { address, requests }
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// Parses the received request bodies as JSON.
    fn documents(&self) -> Vec<Value> {
        self.requests()
            .iter()
            .map(|request| serde_json::from_slice(&request.body).unwrap())
            .collect()
    }

    /// Decodes the received spans with the OpenTelemetry Python package; `None` if it is not
    /// installed.
    fn spans(&self, folder: &Path) -> Option<Vec<Value>> {
        let python = workspace_root().join("target/sdks/python/bin/python");
        if !python.exists() {
            skip("OpenTelemetry's classes: run scripts/sdks to install them");
            return None;
        }
        let mut command = Command::new(python);
        command.arg(workspace_root().join("crates/cli/tests/binary/otlp.py"));
        for (number, request) in self.requests().iter().enumerate() {
            assert_eq!(request.path, "/v1/traces");
            assert!(request.headers.contains("application/x-protobuf"), "{}", request.headers);
            let file = folder.join(format!("export-{number}"));
            std::fs::write(&file, &request.body).unwrap();
            command.arg(file);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let lines = String::from_utf8(output.stdout).unwrap();
        Some(lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }
}

fn read(stream: &TcpStream) -> Option<ReceivedRequest> {
    let mut lines = BufReader::new(stream);
    let mut first = String::new();
    lines.read_line(&mut first).ok()?;
    let path = first.split_whitespace().nth(1)?.to_owned();
    let mut headers = String::new();
    while lines.read_line(&mut headers).ok()? > 2 {}
    let length = headers.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    let mut body = vec![0; length.unwrap_or(0)];
    lines.read_exact(&mut body).ok()?;
    Some(ReceivedRequest { path, headers: headers.to_ascii_lowercase(), body })
}

const AGENT: &str = "kind = \"minimal\"\nmodel = \"sim/claude-sonnet-4-5\"\nreasoning = { level = \"medium\", reflection = false }\n";

/// Creates a directory with the given tracing configuration.
fn agent_store(name: &str, tracing: &str) -> TestStore {
    let store = TestStore::without_database(name);
    std::fs::write(store.file("agent.toml"), AGENT).unwrap();
    std::fs::write(store.file("throughline.toml"), format!("[tracing]\n{tracing}")).unwrap();
    store
}

/// Runs an agent with a tool. The run must succeed even if its trace fails.
fn run_agent(store: &TestStore) -> CommandOutput {
    let prompt = "What is the time? My key is sk-proj-a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2";
    let arguments = ["run", prompt, "--agent", "agent.toml", "--tool", "now=echo noon", "--no-ask"];
    let output = store.run(&arguments);
    assert_eq!(output.code, 0, "{}\n{}", output.out, output.err);
    assert!(output.out.contains("noon"), "{}", output.out);
    output
}

fn find_word(text: &str, prefix: &str) -> String {
    let word = text.split_whitespace().find(|word| word.starts_with(prefix));
    word.unwrap_or_else(|| panic!("no {prefix} in {text}")).to_owned()
}

/// Reads the session file that the file sink wrote for a run.
fn session(store: &TestStore, output: &CommandOutput) -> Value {
    let run = find_word(&output.err, "run_");
    let file = store.file(&format!("traces/sess_{run}/trace.session.json"));
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

#[test]
fn collector_receives_the_spans() {
    let collector = Receiver::start(&["200 OK"]);
    let tracing = format!(
        "[tracing.sinks.collector]\nkind = \"otlp\"\nurl = \"http://{}\"\nheader = \"x-team\"\nvalue = \"shop\"\n",
        collector.address
    );
    let store = agent_store("traces-otlp", &tracing);
    let output = run_agent(&store);
    assert!(!output.err.contains("partial"), "{}", output.err);
    assert!(collector.requests()[0].headers.contains("x-team: shop"));
    let Some(spans) = collector.spans(&store.folder) else { return };
    let spans_of = |operation: &str| -> Vec<&Value> {
        spans
            .iter()
            .filter(|span| span["attributes"]["gen_ai.operation.name"] == operation)
            .collect()
    };
    let (agents, turns, tools) =
        (spans_of("invoke_agent"), spans_of("chat"), spans_of("execute_tool"));
    assert_eq!((agents.len(), turns.len(), tools.len()), (1, 2, 1), "{spans:#?}");
    let agent = agents[0];
    assert_eq!(
        (&agent["service"], &agent["name"]),
        (&"throughline".into(), &"invoke_agent assistant".into())
    );
    assert_eq!(agent["attributes"]["throughline.trace.status"], "success");
    for span in turns.iter().chain(&tools) {
        assert_eq!((&span["trace"], &span["parent"]), (&agent["trace"], &agent["id"]));
        assert!(span["took"].as_i64().unwrap() >= 0 && span["start"].as_i64().unwrap() > 0);
    }
    let ids: BTreeSet<&str> = spans.iter().map(|span| span["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), spans.len());
    // The spans contain usage, thoughts and Fates.
    for turn in &turns {
        let attributes = &turn["attributes"];
        assert_eq!(
            (&turn["name"], &turn["kind"]),
            (&"chat sim/claude-sonnet-4-5".into(), &3.into())
        );
        assert!(attributes["gen_ai.usage.input_tokens"].as_u64().unwrap() > 0, "{turn}");
        assert!(attributes["gen_ai.usage.reasoning.output_tokens"].as_u64().unwrap() > 0, "{turn}");
        assert!(attributes["throughline.seals.bytes"].as_u64().unwrap() > 0, "{turn}");
    }
    assert_eq!(turns[1]["attributes"]["throughline.fates.kept"], 1);
    assert_eq!(tools[0]["attributes"]["gen_ai.tool.name"], "now");
    // Secrets are redacted.
    let all = serde_json::to_string(&spans).unwrap();
    assert!(all.contains("What is the time?") && !all.contains("sk-proj"), "{all}");
    figure("traces: spans that a collector decoded", spans.len());
}

#[test]
fn file_sink_session_can_be_exported_again() {
    let store =
        agent_store("traces-file", "[tracing.sinks.files]\nkind = \"file\"\nfolder = \"traces\"\n");
    let output = run_agent(&store);
    let session = session(&store, &output);
    assert_eq!(
        (&session["status"], &session["errors"]),
        (&"success".into(), &Value::Array(Vec::new()))
    );
    let config = serde_json::json!({"enabled": true, "logData": true, "mode": "batched", "sinks": ["files"]});
    assert_eq!(session["config"], config);
    assert_eq!(session["threadId"].as_str().unwrap(), find_word(&output.err, "thread_"));
    let events = session["events"].as_array().unwrap();
    for (sequence, event) in (1..).zip(events) {
        assert_eq!(event["sequence"], sequence);
        assert!(event["id"].as_str().unwrap().starts_with(&format!("evt_{sequence:04}_")));
    }
    // The trace can be exported again from the run's log.
    let run = find_word(&output.err, "run_");
    let again = store.run(&["traces", "export", &run]);
    assert_eq!(again.code, 0, "{}", again.err);
    let again: Value = serde_json::from_str(&again.out).unwrap();
    assert_eq!((&again["events"], &again["traceId"]), (&session["events"], &session["traceId"]));
    // The console's endpoint returns the same trace.
    let serving = GatewayProcess::start(&store.folder, &[], &[]);
    let path = format!("/v1/throughline/runs/{run}/trace");
    let response = serving.send("GET", &path, "", "");
    let served: Value = serde_json::from_str(response.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(served, again);
    let response = serving.send("GET", "/v1/throughline/runs/run_unknown/trace", "", "");
    assert!(response.starts_with("HTTP/1.1 404"), "{response}");
    let silent = store.run(&["traces", "export", &run, "--no-data"]);
    assert!(!silent.out.contains("What is the time?"), "{}", silent.out);
    let unknown = store.run(&["traces", "export", "run_unknown"]);
    assert_eq!(unknown.code, 2, "{}", unknown.err);
}

#[test]
fn disabled_tracing_writes_nothing() {
    let store = agent_store(
        "traces-off",
        "enabled = false\n[tracing.sinks.files]\nkind = \"file\"\nfolder = \"traces\"\n",
    );
    run_agent(&store);
    assert!(!store.file("traces").exists());
}

#[test]
fn agent_declares_where_and_what_is_traced() {
    let store = agent_store(
        "traces-of-agent",
        "[tracing.sinks.files]\nkind = \"file\"\nfolder = \"other\"\n",
    );
    let with = |tracing: &str| {
        std::fs::write(store.file("agent.toml"), format!("{AGENT}\n[tracing]\n{tracing}")).unwrap();
    };
    // The agent's sink replaces the configured sinks, and its settings apply.
    with(
        "enabled = true\nthreadId = \"shop\"\nlogData = false\nsink = { type = \"file\", path = \"traces\" }\n",
    );
    let output = run_agent(&store);
    let session = session(&store, &output);
    assert_eq!(session["threadId"], "shop");
    assert_eq!(session["config"]["logData"], false);
    assert!(!session.to_string().contains("noon"), "logData is off: {session}");
    assert!(!store.file("other").exists());
    // A manual export leaves out the same content.
    let exported = store.run(&["traces", "export", &find_word(&output.err, "run_")]);
    assert!(!exported.out.contains("noon"), "{}", exported.out);
    with("enabled = false\n");
    run_agent(&store);
    assert!(!store.file("other").exists());
    // A name refers to a configured sink.
    with("enabled = true\nsink = { type = \"file\", name = \"files\" }\n");
    let output = run_agent(&store);
    let run = find_word(&output.err, "run_");
    assert!(store.file(&format!("other/sess_{run}/trace.session.json")).exists());
    with("enabled = true\nsink = { type = \"custom\", name = \"none\" }\n");
    let output = run_agent(&store);
    assert!(output.err.contains("the agent's sink none is not declared here"), "{}", output.err);
    with("enabled = true\nsink = { type = \"http\", url = \"http://x\", apiKey = \"k\" }\n");
    let output = store.run(&["run", "Hello", "--agent", "agent.toml", "--no-ask"]);
    assert_eq!(output.code, 65, "{}", output.err);
    assert!(output.err.contains("sink.apiKey is a credential"), "{}", output.err);
}

#[test]
fn cognipeer_sink_authenticates_with_its_key() {
    let console = Receiver::start(&["200 OK"]);
    let tracing = format!(
        "[tracing.sinks.console]\nkind = \"cognipeer\"\nurl = \"http://{}/sessions\"\napi_key = \"k-1\"\n",
        console.address
    );
    let store = agent_store("traces-cognipeer", &tracing);
    let output = run_agent(&store);
    assert!(!output.err.contains("partial"), "{}", output.err);
    let requests = console.requests();
    assert!(requests[0].headers.contains("authorization: bearer k-1"), "{}", requests[0].headers);
    let session = &console.documents()[0];
    assert_eq!((&session["phase"], &session["status"]), (&"whole".into(), &"success".into()));
}

#[test]
fn failing_sink_makes_the_trace_partial() {
    // Three sinks: one refuses, one is slow, and one is absent.
    let refuses = Receiver::start(&["400 Bad Request"]);
    let slow = Receiver::start(&[""]);
    let absent = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for (kind, address, problem) in [
        ("http", refuses.address.as_str(), "HTTP 400"),
        ("otlp", refuses.address.as_str(), "HTTP 400"),
        ("cognipeer", refuses.address.as_str(), "HTTP 400"),
        ("http", absent.as_str(), "refused"),
        ("otlp", absent.as_str(), "refused"),
        ("otlp", slow.address.as_str(), "timed out"),
    ] {
        // A slow sink is abandoned after a second; the other sinks have time for retries.
        let patience = if address == slow.address { "1s" } else { "20s" };
        let tracing = format!(
            "patience = \"{patience}\"\n[tracing.sinks.files]\nkind = \"file\"\nfolder = \"traces\"\n\n[tracing.sinks.bad]\nkind = \"{kind}\"\nurl = \"http://{address}\"\n"
        );
        let store = agent_store(&format!("traces-{kind}-{}", address.replace(':', "-")), &tracing);
        let output = run_agent(&store);
        // Both the standard error output and the trace report the failure.
        assert!(
            output.err.contains("is partial") && output.err.contains(problem),
            "{kind}: {}",
            output.err
        );
        let session = session(&store, &output);
        assert_eq!(session["status"], "partial", "{kind} {problem}: {session}");
        let error = session["errors"][0]["message"].as_str().unwrap();
        assert!(error.starts_with("bad: ") && error.contains(problem), "{error}");
    }
    // A directory that cannot be written counts as a failing sink, too.
    let tracing = "[tracing.sinks.files]\nkind = \"file\"\nfolder = \"agent.toml\"\n";
    let store = agent_store("traces-no-folder", tracing);
    assert!(run_agent(&store).err.contains("is partial"));
}

#[test]
fn streaming_trace_is_retried_without_gaps() {
    let receiver =
        Receiver::start(&["503 Busy\r\nretry-after: 0", "429 Slow\r\nretry-after: 0", "200 OK"]);
    let tracing = format!(
        "mode = \"streaming\"\nthread_id = \"shop\"\n[tracing.sinks.web]\nkind = \"http\"\nurl = \"http://{}/sessions\"\n",
        receiver.address
    );
    let store = agent_store("traces-stream", &tracing);
    let output = run_agent(&store);
    assert!(!output.err.contains("partial"), "{}", output.err);
    let requests = receiver.requests();
    let key = |request: &ReceivedRequest| {
        request.headers.lines().find(|line| line.starts_with("idempotency-key")).unwrap().to_owned()
    };
    // The sink receives the same batch with the same key until it accepts it.
    assert_eq!((key(&requests[0]), key(&requests[1])), (key(&requests[1]), key(&requests[2])));
    let batches = &receiver.documents()[2..];
    let phases: Vec<&str> = batches.iter().map(|batch| batch["phase"].as_str().unwrap()).collect();
    assert_eq!((phases[0], phases[phases.len() - 1]), ("start", "end"), "{phases:?}");
    let events = batches.iter().flat_map(|batch| batch["events"].as_array().unwrap());
    let sequence: Vec<u64> = events.map(|event| event["sequence"].as_u64().unwrap()).collect();
    let expected: Vec<u64> = (1..=sequence.len() as u64).collect();
    assert_eq!(sequence, expected, "no gap and no duplicate");
    assert!(batches.iter().all(|batch| batch["threadId"] == "shop"));
    assert_eq!(batches[batches.len() - 1]["status"], "success");
}

#[test]
fn gateway_calls_join_the_callers_trace() {
    let collector = Receiver::start(&["200 OK"]);
    let provider = Receiver::start(&["500 Oh"]);
    let store = TestStore::without_database("traces-gateway");
    let config = format!(
        "[tracing.sinks.collector]\nkind = \"otlp\"\nurl = \"http://{}\"\n\n[providers.own]\nwire = \"openai-chat\"\nbase_url = \"http://{}\"\n",
        collector.address, provider.address
    );
    std::fs::write(store.file("throughline.toml"), config).unwrap();
    let mut serving = GatewayProcess::start(&store.folder, &[], &[]);
    let (trace, parent) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let header = format!("traceparent: 00-{trace}-{parent}-01\r\n");
    for model in ["sim/claude-sonnet-4-5", "own/any"] {
        let body = format!(
            r#"{{"model":"{model}","max_tokens":300,"messages":[{{"role":"user","content":"Hello"}}]}}"#
        );
        serving.send("POST", "/v1/chat/completions", &header, &body);
    }
    assert_eq!(serving.stop(), 0, "{}", serving.errors());
    // In the provider's headers, the parent is the gateway's span, within the caller's trace.
    let passed = provider.requests()[0].headers.clone();
    let passed = passed.lines().find(|line| line.starts_with("traceparent")).unwrap().to_owned();
    assert!(passed.contains(trace) && !passed.contains(parent), "{passed}");
    let Some(spans) = collector.spans(&store.folder) else { return };
    assert_eq!(spans.len(), 2, "{spans:#?}");
    for span in &spans {
        assert_eq!((&span["trace"], &span["parent"]), (&trace.into(), &parent.into()));
    }
    let good = &spans[0]["attributes"];
    assert_eq!(
        (&good["gen_ai.request.model"], &good["http.response.status_code"]),
        (&"claude-sonnet-4-5".into(), &200.into())
    );
    assert_eq!((&good["throughline.audit"], &spans[0]["status"]), (&"accept".into(), &0.into()));
    assert!(good["gen_ai.usage.output_tokens"].as_u64().unwrap() > 0);
    assert_eq!(good["gen_ai.request.max_tokens"], 300);
    assert!(passed.contains(spans[1]["id"].as_str().unwrap()), "{passed}");
    assert_eq!(spans[1]["status"], 2);
}

#[test]
fn opentelemetry_variables_declare_a_collector() {
    let collector = Receiver::start(&["200 OK"]);
    let store = TestStore::without_database("traces-variables");
    let endpoint = format!("http://{}/", collector.address);
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-team=shop"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_SERVICE_NAME", "checkout"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test"),
    ];
    let mut serving = GatewayProcess::start(&store.folder, &environment, &[]);
    let body =
        r#"{"model":"sim/claude-sonnet-4-5","messages":[{"role":"user","content":"Hello"}]}"#;
    let parent = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331";
    // By default, the gateway follows the caller's decision on sampling.
    for flags in ["01", "00"] {
        let header = format!("traceparent: 00-{parent}-{flags}\r\n");
        let response = serving.send("POST", "/v1/chat/completions", &header, body);
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    }
    // Only the sampled call is an exemplar.
    let accept = "accept: application/openmetrics-text\r\n";
    let metrics = serving.send("GET", "/metrics", accept, "");
    assert!(metrics.contains("application/openmetrics-text; version=1.0.0"), "{metrics}");
    assert!(metrics.contains("# {trace_id=\"0af7651916cd43dd8448eb211c80319c\""), "{metrics}");
    assert_eq!(serving.stop(), 0, "{}", serving.errors());
    let requests = collector.requests();
    let all: Vec<&str> = requests.iter().map(|request| &*request.path).collect();
    assert_eq!(all, ["/v1/traces"]);
    assert!(requests[0].headers.contains("x-team: shop"), "{}", requests[0].headers);
    let document = &collector.documents()[0]["resourceSpans"][0];
    let resource = document["resource"].to_string();
    assert!(resource.contains("checkout") && resource.contains("deployment.environment.name"));
    let spans = document["scopeSpans"][0]["spans"].as_array().unwrap();
    assert_eq!(spans.len(), 1, "{spans:#?}");
    assert_eq!(spans[0]["parentSpanId"], "b7ad6b7169203331");
    assert!(!document.to_string().contains("Hello"));
}

#[test]
fn unsupported_opentelemetry_variables_stop_the_gateway() {
    let store = TestStore::without_database("traces-grpc");
    let environment =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--store", "sqlite://a.db"];
    let output = throughline_with(&environment, &store.folder, &arguments, b"");
    assert_eq!(output.code, 2, "{}", output.err);
    let expected = "OTEL_EXPORTER_OTLP_PROTOCOL is \"grpc\"; use \"http/protobuf\"";
    assert!(output.err.contains(expected), "{}", output.err);
}

/// A gateway client that authenticates with a tenant's API key.
struct Caller<'s> {
    serving: &'s GatewayProcess,
    header: String,
}

impl<'s> Caller<'s> {
    fn new(serving: &'s GatewayProcess, key: &Value) -> Self {
        let header = format!("authorization: Bearer {}\r\n", key["key"].as_str().unwrap());
        Self { serving, header }
    }

    fn status(&self, path: &str) -> String {
        let response = self.serving.send("GET", path, &self.header, "");
        response.split_whitespace().nth(1).unwrap().to_owned()
    }

    /// Sends a request that must succeed and returns its JSON response.
    fn json(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let response = self.serving.send(method, path, &self.header, &body);
        assert!(response.starts_with("HTTP/1.1 200"), "{method} {path}: {response}");
        serde_json::from_str(response.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    /// Decides the only pending approval of a run.
    fn decide(&self, run: &str, is_approved: bool) {
        let path = format!("/v1/throughline/runs/{run}/state");
        let state = self.json("GET", &path, &Value::Null);
        let pending = state["pendingApprovals"].as_array().unwrap();
        assert_eq!(pending.len(), 1, "{state}");
        let path = format!("/v1/throughline/approvals/{}", pending[0]["id"].as_str().unwrap());
        self.json("POST", &path, &serde_json::json!({"approved": is_approved}));
    }
}

/// Returns all files below a directory, except the store's files (`a.db*`).
fn files_below(folder: &Path) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else if !path.file_name().unwrap().to_string_lossy().starts_with("a.db") {
            files.insert(path);
        }
    }
    files
}

/// Waits up to 30 seconds for a file and returns its bytes.
fn wait_for_file(file: &Path) -> Vec<u8> {
    for _ in 0..1_500 {
        if let Ok(bytes) = std::fs::read(file) {
            return bytes;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{} was not written", file.display());
}

#[test]
fn forged_snapshots_write_no_trace_of_another_tenant_and_none_outside_the_folder() {
    let service = Receiver::start(&["200 OK"]);
    let config = format!(
        "[http.ticket]\ndescription = \"Opens a ticket.\"\nmethod = \"POST\"\nurl = \"http://{}/tickets\"\napproval = \"always\"\n\n[tracing.sinks.files]\nkind = \"file\"\nfolder = \"traces\"\n",
        service.address
    );
    let store = TestStore::without_database("traces-forged");
    std::fs::write(store.file("throughline.toml"), config).unwrap();
    let keys = ["alpha", "beta"].map(|tenant| store.json(&["keys", "create", "--tenant", tenant]));
    let serving = GatewayProcess::start(&store.folder, &[], &[]);
    let [alpha, beta] = keys.map(|key| Caller::new(&serving, &key));
    // Alpha's run waits for an approval, receives it, and ends with a trace.
    let agent =
        serde_json::json!({"name": "Ada", "model": "sim/claude-sonnet-4-5", "tools": ["ticket"]});
    let agent = alpha.json("POST", "/v1/agents/", &agent);
    let path = format!("/v1/agents/{}/messages", agent["id"].as_str().unwrap());
    let reply = alpha.json("POST", &path, &serde_json::json!({"input": "Open a ticket"}));
    assert_eq!(reply["stop_reason"]["stop_reason"], "requires_approval", "{reply}");
    let run = reply["messages"][0]["run_id"].as_str().unwrap();
    let path = format!("/v1/throughline/runs/{run}/snapshot");
    let snapshot = alpha.json("GET", &path, &Value::Null);
    alpha.decide(run, true);
    let trace = store.file(&format!("traces/alpha.sess_{run}/trace.session.json"));
    let before = wait_for_file(&trace);
    assert_eq!(service.requests().len(), 1, "the approved tool ran once");
    let others = files_below(&store.folder);
    // Beta imports the snapshot under names that it must not get, and claims that the call needs no
    // approval.
    let absolute = store.file("absolute/run").display().to_string();
    let outside = "../../traces-forged-outside";
    let mut traces = BTreeSet::from([trace.clone()]);
    for name in [run, outside, &absolute] {
        let mut forged = snapshot.clone();
        forged["progress"]["run"] = name.into();
        forged["thread"] = if name == run { snapshot["thread"].clone() } else { name.into() };
        forged["progress"]["calls"][0]["stage"] = serde_json::json!({"is": "queued"});
        forged["progress"]["phase"] = serde_json::json!({"is": "working"});
        let reply = beta.json("POST", "/v1/throughline/snapshots", &forged);
        let new = reply["id"].as_str().unwrap();
        assert!(new.starts_with("run_") && new != name && new != run, "{reply}");
        assert_eq!(reply["stop_reason"], "requires_approval", "{reply}");
        assert_eq!(alpha.status(&format!("/v1/runs/{new}")), "404", "{new} is beta's");
        // Beta's run continues without the tool and ends with its own trace.
        beta.decide(new, false);
        let own = store.file(&format!("traces/beta.sess_{new}/trace.session.json"));
        let session: Value = serde_json::from_slice(&wait_for_file(&own)).unwrap();
        assert_eq!(session["sessionId"], format!("beta.sess_{new}"), "{session}");
        assert!(traces.insert(own), "{new} is a new name");
    }
    assert_eq!(beta.status(&format!("/v1/runs/{run}")), "404", "{run} is alpha's");
    assert_eq!(service.requests().len(), 1, "no forged call ran");
    assert_eq!(std::fs::read(&trace).unwrap(), before, "the trace of alpha is unchanged");
    let expected: BTreeSet<PathBuf> = others.union(&traces).cloned().collect();
    assert_eq!(files_below(&store.folder), expected);
    for folder in [&store.folder, &store.file("traces"), &store.file("traces/x")] {
        assert!(
            !folder.join(outside).exists()
                && !folder.join("..").join("traces-forged-outside").exists()
        );
    }
}
