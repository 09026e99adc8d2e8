//! Tests of provider keys that are replaced while the gateway serves requests.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use crate::support::kept::TestStore;
use crate::support::serving::{GatewayProcess, send_request, wait_until};

const QUESTION: &str =
    r#"{"model":"claude-sonnet-5-5","max_tokens":64,"messages":[{"role":"user","content":"Hi"}]}"#;
const REPLY: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-5-5","content":[{"type":"text","text":"Hello"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}"#;

/// A provider that accepts one key at a time.
struct Provider {
    url: String,
    accepted: Arc<Mutex<String>>,
    rejections: Arc<AtomicU32>,
}

impl Provider {
    fn start(key: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let accepted = Arc::new(Mutex::new(key.to_owned()));
        let rejections = Arc::new(AtomicU32::new(0));
        let (known, count) = (Arc::clone(&accepted), Arc::clone(&rejections));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, known, count) =
                    (stream.unwrap(), Arc::clone(&known), Arc::clone(&count));
                thread::spawn(move || serve(stream, &known, &count));
            }
        });
        Self { url, accepted, rejections }
    }
}

/// Answers the requests of a connection.
fn serve(mut stream: TcpStream, accepted: &Mutex<String>, rejections: &AtomicU32) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let (mut key, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            match line.trim_end().split_once(": ") {
                Some(("x-api-key", value)) => value.clone_into(&mut key),
                Some(("content-length", value)) => length = value.parse().unwrap(),
                Some(_) | None => {}
            }
            if line == "\r\n" {
                break;
            }
        }
        reader.read_exact(&mut vec![0; length]).unwrap();
        let (status, body) = if key == *accepted.lock().unwrap() {
            ("200 OK", REPLY)
        } else {
            rejections.fetch_add(1, Ordering::SeqCst);
            ("401 Unauthorized", r#"{"type":"error","error":{"type":"authentication_error"}}"#)
        };
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json");
        let response = format!("{head}\r\ncontent-length: {length}\r\n\r\n{body}");
        // The gateway may have closed an idle connection.
        if stream.write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}

/// Replaces a key in one step, as secret managers do.
fn write_key(store: &TestStore, key: &str) {
    fs::write(store.file("part"), key).unwrap();
    fs::rename(store.file("part"), store.file("key")).unwrap();
}

/// Each old key is revoked as soon as the file has the new key. The configuration is reloaded too.
#[test]
fn keys_are_rotated_under_load_without_failed_calls() {
    const ROTATIONS: usize = 10;
    let store = TestStore::without_database("rotation");
    let provider = Provider::start("key-0");
    write_key(&store, "key-0");
    let config = format!(
        "[providers.anthropic]\nbase_url = \"{}\"\nkey_file = \"{}\"\n",
        provider.url,
        store.file("key").display()
    );
    fs::write(store.file("throughline.toml"), config).unwrap();
    let serving = GatewayProcess::start(&store.folder, &[], &["--log", "error"]);
    let stop = Arc::new(AtomicBool::new(false));
    let clients = (0..3).map(|_| {
        let calls = Arc::new(AtomicU32::new(0));
        let (stop, counter) = (Arc::clone(&stop), Arc::clone(&calls));
        let address = serving.address.clone();
        let client = thread::spawn(move || {
            let mut failures = Vec::new();
            while !stop.load(Ordering::SeqCst) {
                let response = send_request(&address, "POST", "/v1/messages", "", QUESTION);
                if !response.starts_with("HTTP/1.1 200") {
                    failures.push(response);
                }
                counter.fetch_add(1, Ordering::SeqCst);
            }
            failures
        });
        (client, calls)
    });
    let clients: Vec<_> = clients.collect();
    for number in 1..=ROTATIONS {
        // A call is repeated once, so no call may span two rotations.
        for (_, calls) in &clients {
            let seen = calls.load(Ordering::SeqCst);
            wait_until("two calls", || calls.load(Ordering::SeqCst) >= seen + 2);
        }
        let key = format!("key-{number}");
        write_key(&store, &key);
        *provider.accepted.lock().unwrap() = key;
        if number % 3 == 0 {
            serving.signal("HUP");
        }
    }
    stop.store(true, Ordering::SeqCst);
    let mut total = 0;
    for (client, calls) in clients {
        assert_eq!(client.join().unwrap(), [""; 0]);
        total += calls.load(Ordering::SeqCst);
    }
    let rejections = provider.rejections.load(Ordering::SeqCst);
    println!("FIGURE calls during {ROTATIONS} key rotations: {total}, failed: 0");
    assert!(rejections > 0, "the provider rejected no old key, so no call was repeated");
    assert!(!serving.errors().contains("key-"), "{}", serving.errors());
}

#[test]
fn failing_source_is_logged_and_named_without_its_key() {
    let store = TestStore::without_database("rotation-failure");
    let provider = Provider::start("canary");
    let program = store.file("program");
    let config = format!(
        "[providers.anthropic]\nbase_url = \"{}\"\nkey_command = [\"sh\", \"{}\", \"canary\"]\n",
        provider.url,
        program.display()
    );
    fs::write(store.file("throughline.toml"), config).unwrap();
    fs::write(&program, "echo canary >&2; exit 3").unwrap();
    let serving = GatewayProcess::start(&store.folder, &[], &["--log", "error"]);
    let ask = || serving.send("POST", "/v1/messages", "", QUESTION);
    let response = ask();
    assert!(response.starts_with("HTTP/1.1 502"), "{response}");
    assert!(response.contains("no credential for"), "{response}");
    assert!(!response.contains("the command sh"), "callers do not see the operator's command");
    let errors = serving.errors();
    let lines = errors.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let logged = lines.filter(|line| line["event"] == "credential_unavailable").count();
    assert!(logged > 0, "{errors}");
    assert!(!format!("{response}{errors}").contains("canary"));
    // The gateway recovers without a restart.
    fs::write(&program, "echo canary").unwrap();
    wait_until("an accepted request", || ask().starts_with("HTTP/1.1 200"));
}
