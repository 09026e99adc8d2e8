//! Tests of signals and changed files: reloads of the configuration and of the certificate, and the
//! shutdown while a stream is open.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use crate::support::kept::TestStore;
use crate::support::serving::{GatewayProcess, send_request, wait_until};

fn question(model: &str) -> String {
    format!(
        r#"{{"model":"{model}","max_tokens":4096,"messages":[{{"role":"user","content":"Hi"}}]}}"#
    )
}

/// Returns the number of reloads of a kind with a result.
fn reloads(serving: &GatewayProcess, kind: &str, result: &str) -> u32 {
    let metrics = serving.send("GET", "/metrics", "", "");
    let label = format!("throughline_reloads_total{{kind=\"{kind}\",result=\"{result}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&*label));
    line.unwrap_or_else(|| panic!("{label} is not in {metrics}")).parse().unwrap()
}

/// Returns the log lines of configuration reloads.
fn reload_lines(serving: &GatewayProcess) -> Vec<Value> {
    let errors = serving.errors();
    let lines = errors.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["event"] == "config_reload").collect()
}

/// Replaces a file by a rename, as editors do.
fn replace(store: &TestStore, name: &str, text: &str) {
    let part = store.file("part");
    fs::write(&part, text).unwrap();
    fs::rename(&part, store.file(name)).unwrap();
}

fn route(target: &str) -> String {
    format!("[[routes]]\nmodel = \"fast\"\ntargets = [\"{target}\"]\n")
}

/// Clients that call the model `fast` again and again.
struct CallLoad {
    is_over: Arc<AtomicBool>,
    calls: Arc<AtomicU32>,
    clients: Vec<thread::JoinHandle<Vec<String>>>,
}

impl CallLoad {
    fn start(serving: &GatewayProcess) -> Self {
        let (is_over, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let client = || {
            let (is_over, calls) = (Arc::clone(&is_over), Arc::clone(&calls));
            let address = serving.address.clone();
            thread::spawn(move || {
                let mut failures = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    let body = question("fast");
                    let response = send_request(&address, "POST", "/v1/messages", "", &body);
                    calls.fetch_add(1, Ordering::Relaxed);
                    if !response.starts_with("HTTP/1.1 200") {
                        failures.push(response);
                    }
                }
                failures
            })
        };
        let clients = (0..3).map(|_| client()).collect();
        Self { is_over, calls, clients }
    }

    fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Stops the clients, checks that no call failed, and returns the number of calls.
    fn stop(self) -> u32 {
        self.is_over.store(true, Ordering::Relaxed);
        let failures = self.clients.into_iter().flat_map(|client| client.join().unwrap());
        let (failures, calls) = (failures.collect::<Vec<_>>(), self.calls.load(Ordering::Relaxed));
        assert_eq!(failures, [""; 0], "of {calls} calls");
        calls
    }
}

/// Each version of the file has a route of the same name, so every call must succeed.
#[test]
fn twenty_reloads_under_load_fail_no_call() {
    let store = TestStore::without_database("reload-load");
    let targets = ["sim/claude-sonnet-5-5", "sim/gpt-5.6-sol"];
    fs::write(store.file("throughline.toml"), route(targets[0])).unwrap();
    let serving = GatewayProcess::start(&store.folder, &[], &["--log", "warn"]);
    let load = CallLoad::start(&serving);
    for number in 1..=20_u32 {
        let seen = load.calls();
        replace(&store, "throughline.toml", &route(targets[number as usize % 2]));
        serving.signal("HUP");
        wait_until("a reload", || reloads(&serving, "config", "applied") >= number);
        wait_until("a call after the reload", || load.calls() > seen + 3);
    }
    let calls = load.stop();
    println!("FIGURE calls during 20 reloads: {calls}, failed: 0");
    assert_eq!(reloads(&serving, "config", "rejected"), 0);
    let metrics = serving.send("GET", "/metrics", "", "");
    let time = "throughline_last_reload_timestamp_seconds{kind=\"config\"} ";
    assert!(metrics.contains(time), "{metrics}");
}

/// Returns the number of calls so far and their cost in millionths of a dollar.
fn used(serving: &GatewayProcess) -> (u64, u64) {
    let usage = json_body(&serving.send("GET", "/v1/throughline/usage", "", ""));
    let number = |name: &str| usage["used"][name].as_u64().unwrap();
    (number("calls"), number("micro_usd"))
}

/// Parses the JSON body of an HTTP response.
fn json_body(response: &str) -> Value {
    let (_, body) = response.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {response}"))
}

/// Sends a call after `earlier` other calls, and returns its number of input tokens and its cost.
fn cost_of_a_call(serving: &GatewayProcess, earlier: u64) -> (u64, u64) {
    // A call is charged when its response has ended.
    wait_until("the earlier calls", || used(serving).0 == earlier);
    let (_, before) = used(serving);
    let response = json_body(&serving.send("POST", "/v1/messages", "", &question("fast")));
    wait_until("the call", || used(serving).0 == earlier + 1);
    let kinds = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"];
    let tokens = kinds.iter().filter_map(|kind| response["usage"][kind].as_u64()).sum();
    (tokens, used(serving).1 - before)
}

#[test]
fn prices_and_redaction_are_reloaded_under_load() {
    let store = TestStore::without_database("reload-prices");
    let file = "throughline.toml";
    // In dollars per million input tokens.
    let config = |price: u32, secret: &str| {
        format!(
            "{}[prices.\"sim/*\"]\ninput = {price}\ncached = {price}\nwritten = {price}\n\
             output = 0\n[redaction]\nsecretPatterns = [\"{secret}\"]\n",
            route("sim/claude-sonnet-5-5")
        )
    };
    fs::write(store.file(file), config(3, "apple")).unwrap();
    let serving = GatewayProcess::start(&store.folder, &[], &["--log", "info"]);
    let agent = r#"{"name":"Ada","model":"sim/claude-sonnet-4-5"}"#;
    let agent = json_body(&serving.send("POST", "/v1/agents/", "", agent));
    let messages = format!("/v1/agents/{}/messages", agent["id"].as_str().unwrap());
    let sent = serving.send("POST", &messages, "", r#"{"input":"An apple and a plum"}"#);
    assert!(sent.starts_with("HTTP/1.1 200"), "{sent}");
    // Returns whether the messages contain these words.
    let words = || {
        let listed = serving.send("GET", &messages, "", "");
        (listed.contains("An apple"), listed.contains("a plum"))
    };
    let (calls_of_agent, _) = used(&serving);
    let (tokens, cost) = cost_of_a_call(&serving, calls_of_agent);
    assert_eq!((cost, words()), (3 * tokens, (false, true)));
    let load = CallLoad::start(&serving);
    for number in 1..=10_u32 {
        let seen = load.calls();
        let secret = if number % 2 == 0 { "apple" } else { "plum" };
        replace(&store, file, &config(3 + number, secret));
        serving.signal("HUP");
        wait_until("a reload", || reloads(&serving, "config", "applied") >= number);
        wait_until("a call after the reload", || load.calls() > seen + 3);
        assert_eq!(words(), (number % 2 == 1, number % 2 == 0), "{secret} is redacted");
    }
    let calls = load.stop();
    println!("FIGURE calls during 10 reloads of prices and redaction: {calls}, failed: 0");
    let (tokens, cost) = cost_of_a_call(&serving, calls_of_agent + 1 + u64::from(calls));
    assert_eq!(cost, 13 * tokens);
    // The log lists the sections that need a restart.
    let more = "[agents]\nmax_steps = 7\n[tracing]\nenabled = false\n";
    replace(&store, file, &format!("{}{more}", config(1, "pear")));
    serving.signal("HUP");
    wait_until("a reload", || reloads(&serving, "config", "applied") >= 11);
    let lines = reload_lines(&serving);
    assert_eq!(lines.last().unwrap()["needs_restart"], "agents.max_steps, tracing.enabled");
    assert!(lines.iter().rev().skip(1).all(|line| line["needs_restart"].is_null()), "{lines:?}");
    assert_eq!(words(), (true, true));
}

#[test]
fn invalid_file_changes_nothing_and_the_next_valid_file_applies() {
    let store = TestStore::without_database("reload-invalid");
    let file = "throughline.toml";
    fs::write(store.file(file), route("sim/claude-sonnet-5-5")).unwrap();
    let serving = GatewayProcess::start(&store.folder, &[], &[]);
    let provider = |model: &str| {
        let response = serving.send("POST", "/v1/messages", "", &question(model));
        let header = response.lines().find_map(|line| line.strip_prefix("x-throughline-model: "));
        header.map(str::to_owned)
    };
    let claude = Some("claude-sonnet-5-5".to_owned());
    assert_eq!(provider("fast"), claude);
    // The route is valid, but the file is not.
    let invalid = format!("{}[gateway]\nreplay = \"sometimes\"\n", route("sim/gpt-5.6-sol"));
    replace(&store, file, &invalid);
    serving.signal("HUP");
    wait_until("a rejected reload", || reloads(&serving, "config", "rejected") == 1);
    assert_eq!(provider("fast"), claude);
    let lines = reload_lines(&serving);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!((&lines[0]["result"], &lines[0]["level"]), (&"rejected".into(), &"error".into()));
    let problem = lines[0]["problem"].as_str().unwrap();
    assert!(problem.contains("throughline.toml:5") && problem.contains("replay"), "{problem}");
    // A missing file is rejected too.
    fs::rename(store.file(file), store.file("away")).unwrap();
    wait_until("a rejected reload by file", || reloads(&serving, "config", "rejected") == 2);
    assert_eq!(provider("fast"), claude);
    // The watch finds the next valid file without a signal. Some settings need a restart.
    let valid = "[server]\nlisten = \"127.0.0.1:9\"\nlog = \"info\"\n[gateway]\nmax_streams = 7\n";
    replace(&store, file, &format!("{valid}{}", route("sim/gpt-5.6-sol")));
    wait_until("an applied reload", || reloads(&serving, "config", "applied") == 1);
    assert_eq!(provider("fast"), Some("gpt-5.6-sol".to_owned()));
    let lines = reload_lines(&serving);
    let last = lines.last().unwrap();
    assert_eq!((&last["result"], &last["trigger"]), (&"applied".into(), &"file".into()), "{last}");
    assert_eq!(last["needs_restart"], "gateway.max_streams, server.listen", "{last}");
}

/// A listener that other machines reach needs keys or the operator's consent, also after a reload.
/// The gateway tries the reload again, so the file takes effect when a key exists.
#[test]
fn reload_cannot_open_the_gateway_to_other_machines() {
    let store = TestStore::without_database("reload-open");
    let file = "throughline.toml";
    fs::write(store.file(file), "[server]\nallow_open = true\n").unwrap();
    let serving = GatewayProcess::start_at("0.0.0.0:0", &store.folder, &[], &["--log", "info"]);
    let is_served = || {
        let headers = "x-forwarded-for: 203.0.113.9\r\n";
        serving.send("GET", "/v1/models", headers, "").starts_with("HTTP/1.1 200")
    };
    assert!(is_served());
    replace(&store, file, "[server]\nallow_open = false\n");
    serving.signal("HUP");
    wait_until("a rejected reload", || reloads(&serving, "config", "rejected") >= 1);
    assert!(is_served());
    let lines = reload_lines(&serving);
    let problem = lines[0]["problem"].as_str().unwrap();
    assert!(problem.contains("there are no API keys"), "{problem}");
    assert_eq!(store.run(&["keys", "create"]).code, 0);
    let applied = || reload_lines(&serving).into_iter().find(|line| line["result"] == "applied");
    wait_until("an applied reload", || applied().is_some());
    assert_eq!(applied().unwrap()["trigger"], "retry");
    assert!(!is_served(), "a request without a key was accepted");
}

/// A certificate with its key, in PEM format.
struct TestCertificate {
    der: CertificateDer<'static>,
    certificate: String,
    key: String,
}

impl TestCertificate {
    fn new() -> Self {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let pem = |label: &str, der: &[u8]| {
            let text = STANDARD.encode(der);
            format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
        };
        Self {
            der: cert.der().clone(),
            certificate: pem("CERTIFICATE", cert.der()),
            key: pem("PRIVATE KEY", &signing_key.serialize_der()),
        }
    }

    fn install(&self, store: &TestStore) {
        replace(store, "tls.crt", &self.certificate);
        replace(store, "tls.key", &self.key);
    }

    /// Connects to a server; `None` if the server has another certificate.
    fn connect(&self, address: &str) -> Option<StreamOwned<ClientConnection, TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut socket = TcpStream::connect(address).unwrap();
        while connection.is_handshaking() {
            connection.complete_io(&mut socket).ok()?;
        }
        Some(StreamOwned::new(connection, socket))
    }

    fn send(&self, address: &str, request: &str) -> Option<String> {
        let mut stream = self.connect(address)?;
        stream.write_all(request.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        // The server closes the connection after its response.
        stream.read_to_end(&mut bytes).ok();
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
}

/// A provider that sends the start of a stream, and the rest after a message in `go_on`.
fn slow_provider(go_on: Receiver<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = vec![0; 65536];
        assert_ne!(stream.read(&mut head).unwrap(), 0);
        let chunk = |text: &str| {
            format!(
                "data: {{\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\
                 \"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\
                 \"finish_reason\":null}}]}}\n\n"
            )
        };
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        stream.write_all(format!("{head}{}", chunk("first")).as_bytes()).unwrap();
        go_on.recv().unwrap();
        let end = chunk("second").replace("null", "\"stop\"");
        stream.write_all(format!("{end}data: [DONE]\n\n").as_bytes()).unwrap();
    });
    format!("http://{address}")
}

/// Returns a request for a stream of the slow provider.
fn stream_request() -> String {
    let body = r#"{"model":"slow/m","stream":true,"messages":[{"role":"user","content":"Hi"}]}"#;
    let length = body.len();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
}

#[test]
fn certificate_is_replaced_while_a_stream_is_open() {
    let store = TestStore::without_database("reload-tls");
    let (first, second) = (TestCertificate::new(), TestCertificate::new());
    first.install(&store);
    let (finish, go_on) = channel();
    let provider = slow_provider(go_on);
    let config = format!(
        "[server.tls]\ncert = \"tls.crt\"\nkey = \"tls.key\"\n\
         [providers.slow]\nwire = \"openai-chat\"\nbase_url = \"{provider}\"\napi_key = \"k\"\n"
    );
    fs::write(store.file("throughline.toml"), config).unwrap();
    let mut serving = GatewayProcess::start_at("localhost:0", &store.folder, &[], &[]);
    assert!(serving.welcome.contains("https://localhost:"), "{}", serving.welcome);
    let address = serving.address.clone();
    let response = first.send(&address, &get("/healthz")).unwrap();
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert!(second.send(&address, &get("/healthz")).is_none());

    let mut stream = first.connect(&address).unwrap();
    stream.write_all(stream_request().as_bytes()).unwrap();
    let mut received = Vec::new();
    let mut read_until = |text: &str| {
        let mut buffer = [0; 4096];
        while !String::from_utf8_lossy(&received).contains(text) {
            let count = stream.read(&mut buffer).unwrap();
            assert_ne!(count, 0, "{}", String::from_utf8_lossy(&received));
            received.extend_from_slice(&buffer[..count]);
        }
    };
    read_until("first");
    // A key that does not match is rejected, and the certificate in effect stays.
    let metric = |certificate: &TestCertificate, result: &str| {
        let metrics = certificate.send(&address, &get("/metrics")).unwrap_or_default();
        let line =
            format!("throughline_reloads_total{{kind=\"certificate\",result=\"{result}\"}} 1");
        metrics.contains(&line)
    };
    replace(&store, "tls.key", &second.key);
    wait_until("a rejected certificate", || metric(&first, "rejected"));
    second.install(&store);
    wait_until("the new certificate", || metric(&second, "applied"));
    assert!(first.connect(&address).is_none(), "the old certificate is gone");
    finish.send(()).unwrap();
    read_until("second");
    read_until("[DONE]");
    assert!(serving.errors().contains("certificate_reload"), "{}", serving.errors());
    assert_eq!(serving.stop(), 0);
}

/// The shutdown may take an hour, so only the second signal can end the process.
#[test]
fn second_signal_stops_the_gateway_while_a_stream_is_open() {
    let store = TestStore::without_database("stop-twice");
    let (_finish, go_on) = channel();
    let provider = slow_provider(go_on);
    let config = format!(
        "[gateway.timeouts]\nshutdown = \"60m\"\n\
         [providers.slow]\nwire = \"openai-chat\"\nbase_url = \"{provider}\"\napi_key = \"k\"\n"
    );
    fs::write(store.file("throughline.toml"), config).unwrap();
    let mut serving = GatewayProcess::start(&store.folder, &[], &[]);
    let mut stream = TcpStream::connect(&serving.address).unwrap();
    stream.write_all(stream_request().as_bytes()).unwrap();
    let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&received).contains("first") {
        let count = stream.read(&mut buffer).unwrap();
        assert_ne!(count, 0, "{}", String::from_utf8_lossy(&received));
        received.extend_from_slice(&buffer[..count]);
    }
    serving.signal("TERM");
    wait_until("a closed listener", || TcpStream::connect(&serving.address).is_err());
    assert!(serving.is_running());
    assert_eq!(serving.stop(), 0);
}
