//! Tests of several gateways on one PostgreSQL store. If the gateway that runs an agent is killed,
//! another gateway finishes the run, even if no client follows the run. Clients that follow the run
//! receive every message once.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use throughline_testkit::{Cluster, TestRng, cases, figure, postgres_database};

use crate::support::kept::TestStore;
use crate::support::serving::{GatewayProcess, send_request};

/// Number of tools, and also of tool calls per run, because a simulated model calls each tool once.
const TOOLS: usize = 6;

/// A server for HTTP tools. A test kills the gateway that owns a run while the run waits for one of
/// these tools.
struct HttpTools {
    address: String,
    /// Number of tool calls until `called` receives the next notification.
    next: Arc<Mutex<usize>>,
    called: Receiver<()>,
}

impl HttpTools {
    fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (next, (notify, called)) = (Arc::new(Mutex::new(0)), channel());
        let counted = Arc::clone(&next);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                answer(stream, &counted, &notify);
            }
        });
        Self { address, next, called }
    }

    fn config(&self) -> String {
        let tool = |number: usize| {
            let address = &self.address;
            format!("[http.look_{number}]\nurl = \"http://{address}/look/{number}/{{at}}\"\n")
        };
        (1..=TOOLS).map(tool).collect::<String>() + "[agents]\nlease = \"1s\"\n"
    }
}

/// Answers a tool call. Sends a notification if the countdown `next` reaches zero with this call.
fn answer(mut stream: TcpStream, next: &Mutex<usize>, notify: &Sender<()>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let is_awaited = {
        let mut next = next.lock().unwrap();
        *next = next.saturating_sub(1);
        *next == 0
    };
    let body = "sunny";
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close";
    let response = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    if is_awaited {
        notify.send(()).ok();
    }
    drop(stream.write_all(response.as_bytes()));
}

fn json_of(response: &str) -> Value {
    let body = response.split_once("\r\n\r\n").unwrap().1;
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {response}"))
}

/// Follows a run on a gateway and returns its messages, up to the end of the stream.
fn follow_run(address: &str, run: &str) -> Vec<Value> {
    let path = format!("/v1/runs/{run}/stream?include_pings=false");
    let response = send_request(address, "GET", &path, "", "");
    let frames = response.lines().filter_map(|line| line.strip_prefix("data: {"));
    frames.map(|frame| serde_json::from_str(&format!("{{{frame}")).unwrap()).collect()
}

/// Polls a run until it is over, without following it.
fn wait_until_over(node: &GatewayProcess, run: &str) -> Value {
    loop {
        let record = json_of(&node.send("GET", &format!("/v1/runs/{run}"), "", ""));
        if record["status"] != "running" {
            return record["status"].clone();
        }
    }
}

#[test]
fn another_node_finishes_the_run_when_a_node_is_killed() {
    let kills = (cases(30) / 500).max(3);
    let (mut dice, mut messages) = (TestRng::new(8), 0);
    let tools = HttpTools::open();
    let store = TestStore::without_database("nodes");
    let database_url = postgres_database();
    let environment = [("THROUGHLINE_STORE", &*database_url)];
    let node = |name: &str| {
        let folder = store.file(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("throughline.toml"), tools.config()).unwrap();
        GatewayProcess::start(&folder, &environment, &[])
    };
    let (mut owner, other) = (node("owner"), node("other"));
    let names: Vec<String> = (1..=TOOLS).map(|number| format!("look_{number}")).collect();
    let agent =
        serde_json::json!({"name": "Ada", "model": "sim/claude-sonnet-4-5", "tools": names});
    let agent = json_of(&owner.send("POST", "/v1/agents/", "", &agent.to_string()));
    let agent = agent["id"].as_str().unwrap_or_else(|| panic!("{agent}")).to_owned();
    for kill in 0..kills {
        *tools.next.lock().unwrap() = 1 + dice.below(TOOLS - 1);
        let path = format!("/v1/agents/{agent}/messages/async");
        let started = json_of(&owner.send("POST", &path, "", r#"{"input":"Look around."}"#));
        let run = started["id"].as_str().unwrap_or_else(|| panic!("{started}")).to_owned();
        // Every second run has a follower.
        let follower = (kill % 2 == 0).then(|| {
            let (address, run) = (other.address.clone(), run.clone());
            std::thread::spawn(move || follow_run(&address, &run))
        });
        tools.called.recv().unwrap();
        owner.kill();
        let frames = match follower {
            Some(follower) => follower.join().unwrap(),
            None => {
                assert_eq!(wait_until_over(&other, &run), "completed", "{}", other.errors());
                follow_run(&other.address, &run)
            }
        };
        let numbers: Vec<u64> =
            frames.iter().map(|frame| frame["seq_id"].as_u64().unwrap()).collect();
        assert_eq!(
            numbers,
            (1..=numbers.len() as u64).collect::<Vec<_>>(),
            "no gap and no duplicate"
        );
        let is_look = |frame: &&Value| {
            let name = frame["name"].as_str().unwrap_or_default();
            frame["message_type"] == "tool_return_message" && name.starts_with("look_")
        };
        assert_eq!(frames.iter().filter(is_look).count(), TOOLS, "each tool answered once");
        let stop = frames.iter().find(|frame| frame["message_type"] == "stop_reason").unwrap();
        assert_eq!(stop["stop_reason"], "end_turn");
        messages += frames.len();
        owner = node("owner");
    }
    figure("gateways killed", format!("{kills}, {messages} messages followed without a gap"));
}

/// Stops the database while a gateway uses it, and restarts the database. Meanwhile, requests that
/// need no stored state succeed, and the gateway reports that it is not ready.
#[test]
fn gateway_passes_requests_while_postgres_is_stopped() {
    let cluster = Cluster::start();
    let store = TestStore::without_database("outage");
    let folder = store.file("node");
    std::fs::create_dir_all(&folder).unwrap();
    let node = GatewayProcess::start(&folder, &[("THROUGHLINE_STORE", &*cluster.url)], &[]);
    // Each conversation is new, so that none of its turns are cached.
    let turn = std::cell::Cell::new(0);
    let send_turn = || {
        turn.set(turn.get() + 1);
        let history = format!("Answer {}", turn.get());
        let body = serde_json::json!({"model": "sim/claude-sonnet-4-5", "max_tokens": 64, "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": history},
            {"role": "user", "content": "And now?"}]});
        let body = &*body.to_string();
        node.send("POST", "/v1/messages", "content-type: application/json\r\n", body)
    };
    let is_ready = || node.send("GET", "/readyz", "", "").starts_with("HTTP/1.1 200");
    let response = send_turn();
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert!(!response.contains("x-throughline-restore") && is_ready(), "{response}");
    cluster.crash();
    #[expect(clippy::disallowed_methods, reason = "prints how long the call takes")]
    let began = std::time::Instant::now();
    let response = send_turn();
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert!(response.contains("x-throughline-restore: skipped"), "{response}");
    figure("a call while PostgreSQL is stopped", format!("{} ms", began.elapsed().as_millis()));
    assert!(!is_ready());
    let missing = node.send("GET", "/v1/throughline/calls/none", "", "");
    assert!(missing.starts_with("HTTP/1.1 503"), "{missing}");
    assert!(missing.contains("retry-after: 5"), "{missing}");
    let failed = node.errors();
    let failed = failed.lines().find(|line| line.contains("read failed")).unwrap_or_default();
    assert!(failed.contains(r#""level":"warn""#) && failed.contains("problem"), "{failed}");
    cluster.resume();
    while !is_ready() {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let response = send_turn();
    assert!(
        response.starts_with("HTTP/1.1 200") && !response.contains("x-throughline-restore"),
        "{response}"
    );
}
