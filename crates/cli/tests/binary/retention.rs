//! Tests of `[retention]`: the job of the gateway, `throughline stats` and the startup message.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use throughline_core::{LogId, Store as _, Tenant};
use throughline_store::Options;

use crate::support::kept::TestStore;
use crate::support::serving::{GatewayProcess, wait_until};

/// Every class expires after a second, and the job runs every second.
const SECOND: &str = "[retention]\nrequests = \"1s\"\nbodies = \"1s\"\nthreads = \"1s\"\n\
                      runs = \"1s\"\ntraces = \"1s\"\ninterval = \"1s\"\n\
                      [tracing.sinks.files]\nkind = \"file\"\nfolder = \"traces\"\n";

/// Returns the value of a metric; 0 if there is none yet.
fn metric(serving: &GatewayProcess, name: &str) -> u64 {
    let metrics = serving.send("GET", "/metrics", "", "");
    let mut lines = metrics.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.map_or(0, |value| value.parse().unwrap())
}

fn deleted(serving: &GatewayProcess, class: &str) -> u64 {
    metric(serving, &format!("throughline_retention_deleted_total{{class=\"{class}\"}}"))
}

fn passes(serving: &GatewayProcess, result: &str) -> u64 {
    metric(serving, &format!("throughline_retention_runs_total{{result=\"{result}\"}}"))
}

fn call(serving: &GatewayProcess) {
    let body = json!({
        "model": "sim/claude-sonnet-5-5",
        "max_tokens": 4096,
        "messages": [{"role": "user", "content": "Hello"}],
    });
    let response = serving.send("POST", "/v1/messages", "", &body.to_string());
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}

fn calls(serving: &GatewayProcess) -> Value {
    let response = serving.send("GET", "/v1/throughline/calls", "", "");
    let body = response.split_once("\r\n\r\n").unwrap().1;
    serde_json::from_str::<Value>(body).unwrap()["calls"].clone()
}

#[test]
fn expired_data_is_deleted_and_stats_agree() {
    let store = TestStore::without_database("retention");
    fs::write(store.file("throughline.toml"), SECOND).unwrap();
    let session = store.file("traces/sess_run_1");
    fs::create_dir_all(&session).unwrap();
    fs::write(session.join("trace.session.json"), "{}").unwrap();
    let mut serving = GatewayProcess::start(&store.folder, &[], &[]);
    let welcome = &serving.welcome;
    assert!(welcome.contains("requests are kept for 1s, bodies are kept for 1s"), "{welcome}");
    assert!(welcome.contains("without a master key"), "{welcome}");
    call(&serving);
    wait_until("a deleted request", || deleted(&serving, "requests") >= 1);
    wait_until("a deleted trace", || deleted(&serving, "traces") == 1);
    assert!(!session.exists());
    wait_until("no call", || calls(&serving) == json!([]));
    wait_until("a further pass", || passes(&serving, "completed") >= 2);
    assert_eq!(passes(&serving, "failed"), 0, "{}", serving.errors());
    // A new conversation with the same content works.
    call(&serving);
    wait_until("the second deleted request", || deleted(&serving, "requests") >= 2);
    assert_eq!(serving.stop(), 0);
    let stats = store.json(&["stats"]);
    for class in ["requests", "bodies", "threads", "runs", "traces"] {
        let row = &stats["retention"][class];
        assert_eq!((&row["stored"], &row["expired"]), (&json!(0), &json!(0)), "{class}: {stats}");
        assert_eq!(row["kept_seconds"], 1);
    }
    assert_eq!(store.json(&["verify"])["verdict"], "intact");
}

#[test]
fn everything_is_kept_by_default_and_a_reload_applies_retention() {
    let store = TestStore::without_database("retention-reload");
    fs::write(store.file("throughline.toml"), "").unwrap();
    let serving = GatewayProcess::start(&store.folder, &[], &[]);
    assert!(serving.welcome.contains("everything is kept"), "{}", serving.welcome);
    call(&serving);
    wait_until("a stored call", || {
        calls(&serving).as_array().is_some_and(|calls| calls.len() == 1)
    });
    let stats = store.json(&["stats"]);
    let row = &stats["retention"]["requests"];
    assert_eq!((&row["stored"], &row["expired"]), (&json!(1), &json!(0)), "{stats}");
    assert!(row["kept_seconds"].is_null() && row["since"].is_string(), "{stats}");
    fs::write(store.file("part"), SECOND).unwrap();
    fs::rename(store.file("part"), store.file("throughline.toml")).unwrap();
    serving.signal("HUP");
    wait_until("a deleted request", || deleted(&serving, "requests") >= 1);
}

#[test]
fn one_node_at_a_time_deletes_data() {
    let store = TestStore::empty("retention-lease");
    store.with_journal(&Options::default(), async |journal| {
        let (tenant, log) = (Tenant::from("throughline-retention"), LogId::from("retention"));
        let lease = journal.lease(&tenant, &log, "another node", Duration::from_hours(1));
        lease.await.unwrap();
    });
    fs::write(store.file("throughline.toml"), SECOND).unwrap();
    let serving = GatewayProcess::start(&store.folder, &[], &[]);
    call(&serving);
    wait_until("skipped passes", || passes(&serving, "skipped") >= 3);
    assert_eq!((deleted(&serving, "requests"), passes(&serving, "completed")), (0, 0));
}

#[test]
fn invalid_ages_are_reported_with_their_line() {
    let store = TestStore::empty("retention-invalid");
    fs::write(store.file("throughline.toml"), "[retention]\nrequests = 30\ncalls = \"1d\"\n")
        .unwrap();
    let output = store.run(&["config", "check"]);
    assert_eq!(output.code, 1, "{}{}", output.out, output.err);
    let text = format!("{}{}", output.out, output.err);
    assert!(text.contains("write requests = \"30d\" or \"12h\""), "{text}");
    assert!(text.contains("calls"), "{text}");
}

#[test]
fn short_ages_are_warnings() {
    let store = TestStore::empty("retention-short");
    fs::write(store.file("throughline.toml"), "[retention]\nrequests = \"3s\"\nruns = \"1h\"\n")
        .unwrap();
    let output = store.run(&["config", "check"]);
    assert_eq!((output.code, output.err.as_str()), (0, ""));
    let warning = "warning: throughline.toml:2:12: `requests` = \"3s\" permanently erases this \
                   data 3s after its last use";
    assert!(output.out.starts_with(warning), "{}", output.out);
    assert_eq!(output.out.matches("warning:").count(), 1, "{}", output.out);
}

#[test]
fn pruning_keeps_the_list_of_agents() {
    let store = TestStore::without_database("retention-prune");
    let create = |serving: &GatewayProcess, name: &str| {
        let agent = json!({"name": name, "model": "sim/claude-sonnet-5-5"}).to_string();
        serving.send("POST", "/v1/agents/", "", &agent)
    };
    let mut serving = GatewayProcess::start(&store.folder, &[], &[]);
    let first = create(&serving, "first");
    assert!(first.starts_with("HTTP/1.1 200"), "{first}");
    call(&serving);
    assert_eq!(serving.stop(), 0);
    let pruned = store.json(&["prune", "--bytes", "0", "--yes"]);
    let threads = pruned["threads"].as_array().unwrap();
    assert_eq!(threads.len(), 1, "only the call expires: {pruned}");
    let serving = GatewayProcess::start(&store.folder, &[], &[]);
    let second = create(&serving, "second");
    assert!(second.starts_with("HTTP/1.1 200"), "{second}");
    let agents = serving.send("GET", "/v1/agents/", "", "");
    assert!(agents.contains("\"first\"") && agents.contains("\"second\""), "{agents}");
}
