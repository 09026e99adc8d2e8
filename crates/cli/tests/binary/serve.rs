//! Tests of the gateway process: startup message, responses, usage, memory, and shutdown.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::kept::TestStore;
use crate::support::serving::{GatewayProcess, send_request, wait_until};
use crate::support::{throughline_with, without_keys};

const QUESTION: &str = r#"{"model":"sim/claude-sonnet-4-5","max_tokens":4096,"messages":[{"role":"user","content":"Hello"}]}"#;

fn json_of(response: &str) -> Value {
    let body = response.split_once("\r\n\r\n").unwrap().1;
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {response}"))
}

#[test]
fn gateway_answers_records_usage_and_stops() {
    let store = TestStore::without_database("serve-counts");
    std::fs::write(
        store.file("throughline.toml"),
        "[prices.\"sim/*\"]\ninput = 1000\noutput = 1000\n",
    )
    .unwrap();
    let key = store.json(&["keys", "create", "--label", "ci", "--budget-usd", "4.14"]);
    let (id, secret) = (key["id"].as_str().unwrap(), key["key"].as_str().unwrap());
    let mut serving = GatewayProcess::start(&store.folder, &[], &[]);
    let credentials = format!("authorization: Bearer {secret}\r\n");
    assert!(serving.send("GET", "/healthz", "", "").starts_with("HTTP/1.1 200"));
    assert!(serving.send("GET", "/readyz", "", "").starts_with("HTTP/1.1 200"));
    assert!(serving.send("GET", "/metrics", "", "").starts_with("HTTP/1.1 401"));
    let response = serving.send("POST", "/v1/messages", &credentials, QUESTION);
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    // The rest of the budget does not cover 4,096 output tokens.
    let response = serving.send("POST", "/v1/messages", &credentials, QUESTION);
    assert!(response.starts_with("HTTP/1.1 402") && response.contains("$4.14"), "{response}");
    let used = json_of(&serving.send("GET", "/v1/throughline/usage", &credentials, ""));
    assert_eq!((&used["key"], &used["used"]["calls"]), (&key["id"], &Value::from(1)));
    let metrics = serving.send("GET", "/metrics", &credentials, "");
    for name in [
        "calls_total",
        "tokens_total",
        "cost_usd_total",
        "fates_total",
        "verdicts_total",
        "capture_failures_total",
        "open_streams",
        "call_seconds_bucket",
        "first_byte_seconds_bucket",
        "retries_total",
    ] {
        assert!(metrics.contains(&format!("\nthroughline_{name}")), "{name} is not in {metrics}");
    }
    assert_eq!(serving.stop(), 0);
    let errors = serving.errors();
    let mut lines: Vec<Value> =
        errors.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.retain(|line| line["event"] == "call");
    assert_eq!(lines.len(), 2, "{errors}");
    assert_eq!((&lines[0]["status"], &lines[0]["key"]), (&Value::from(200), &Value::from(id)));
    assert_eq!(
        (&lines[1]["status"], &lines[1]["level"]),
        (&Value::from(402), &Value::from("info"))
    );
    // The usage is in the store, and the command prints it.
    let printed = store.json(&["usage"]);
    assert_eq!(printed["usage"].as_array().unwrap().len(), 1);
    for (name, value) in [
        ("key", key["id"].clone()),
        ("provider", "sim".into()),
        ("model", "claude-sonnet-4-5".into()),
        ("calls", 1.into()),
        ("micro_usd", used["used"]["micro_usd"].clone()),
    ] {
        assert_eq!(printed["usage"][0][name], value, "{name}");
    }
    let output = store.run(&["usage", "--by", "day,model"]);
    assert!(
        output.out.starts_with("day ") && output.out.contains("claude-sonnet-4-5"),
        "{}",
        output.out
    );
    let output = store.run(&["usage", "--tenant", "unknown"]);
    assert!(output.out.contains("the tenant unknown has no calls"), "{}", output.out);
}

/// Agents survive a restart, and the usage of their runs is charged to the key that started the
/// runs.
#[test]
fn agents_survive_a_restart_and_runs_are_charged() {
    let store = TestStore::without_database("serve-agents");
    let key = store.json(&["keys", "create", "--label", "ci"]);
    let credentials = format!("authorization: Bearer {}\r\n", key["key"].as_str().unwrap());
    let mut serving = GatewayProcess::start(&store.folder, &[], &[]);
    let agent = r#"{"name":"Ada","model":"sim/claude-sonnet-4-5"}"#;
    let agent = json_of(&serving.send("POST", "/v1/agents/", &credentials, agent));
    let path = format!("/v1/agents/{}/messages", agent["id"].as_str().unwrap());
    let reply = json_of(&serving.send("POST", &path, &credentials, r#"{"input":"Hello"}"#));
    assert_eq!(reply["stop_reason"]["stop_reason"], "end_turn", "{reply}");
    let before = json_of(&serving.send("GET", &path, &credentials, ""));
    assert_eq!(serving.stop(), 0);
    let used = store.json(&["usage"]);
    assert_eq!(
        (&used["usage"][0]["key"], &used["usage"][0]["calls"]),
        (&key["id"], &reply["usage"]["step_count"])
    );
    assert_eq!(used["usage"][0]["output"], reply["usage"]["completion_tokens"], "{used}");
    let mut serving = GatewayProcess::start(&store.folder, &[], &[]);
    assert_eq!(json_of(&serving.send("GET", &path, &credentials, "")), before);
    let reply = json_of(&serving.send("POST", &path, &credentials, r#"{"input":"And once more"}"#));
    assert_eq!(reply["stop_reason"]["stop_reason"], "end_turn", "{reply}");
    assert_eq!(serving.stop(), 0);
}

#[test]
fn used_port_and_unwritable_store_are_reported() {
    let store = TestStore::without_database("serve-fails");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let output = store.run(&["serve", "--listen", &address]);
    assert_eq!((output.code, output.out.as_str()), (1, ""));
    assert!(output.err.contains(&format!("{address} is in use")), "{}", output.err);
    let output = store.run(&["serve", "--listen", "localhost"]);
    assert_eq!((output.code, output.out.as_str()), (2, ""));
    assert!(output.err.contains("expected HOST:PORT"), "{}", output.err);
    for url in ["sqlite:///proc/throughline/a.db", "sqlite:///dev/null/a.db"] {
        let environment = [("THROUGHLINE_STORE", url)];
        let output = throughline_with(
            &environment,
            &store.folder,
            &["serve", "--listen", "127.0.0.1:0"],
            b"",
        );
        assert_eq!((output.code, output.out.as_str()), (69, ""), "{}", output.err);
        assert!(output.err.contains("cannot open sqlite://"), "{}", output.err);
    }
}

/// A pipeline such as `throughline serve | grep -m1 http` closes the pipe before the startup
/// message ends.
#[test]
fn gateway_runs_after_its_output_pipe_is_closed() {
    let store = TestStore::without_database("serve-pipe");
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_throughline"));
    let mut child = without_keys(&mut command)
        .args(["serve", "--listen", &address, "--log", "off"])
        .env("THROUGHLINE_STORE", store.url())
        .current_dir(&store.folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    wait_until("an open port", || {
        assert!(child.try_wait().unwrap().is_none(), "the gateway ended");
        TcpStream::connect(&address).is_ok()
    });
    let response = send_request(&address, "GET", "/healthz", "", "");
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A body of one gigabyte uses no more memory than the largest allowed body.
#[test]
fn gigabyte_body_is_refused_without_buffering() {
    const CHUNK: usize = 1 << 20;
    let store = TestStore::without_database("serve-gigabyte");
    let mut serving = GatewayProcess::start(&store.folder, &[], &[]);
    let mut stream = TcpStream::connect(&serving.address).unwrap();
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n",
        serving.address
    );
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = format!("{CHUNK:x}\r\n{}\r\n", "x".repeat(CHUNK));
    for _ in 0..1024 {
        if stream.write_all(chunk.as_bytes()).is_err() {
            break;
        }
    }
    stream.write_all(b"0\r\n\r\n").ok();
    let mut response = vec![0; 1024];
    let length = stream.read(&mut response).unwrap();
    let response = String::from_utf8_lossy(&response[..length]).into_owned();
    assert!(response.starts_with("HTTP/1.1 413"), "{response}");
    assert!(response.contains("exceeds the limit of 64 MiB"), "{response}");
    let (_, most) = serving.memory();
    println!("FIGURE peak memory during a one-gigabyte request: {} MiB", most >> 10);
    assert!(most < 300 << 10, "{most} KiB");
    assert_eq!(serving.stop(), 0);
}
