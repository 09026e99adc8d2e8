//! Measures memory and work for large requests, and checks that probes get a response meanwhile.
//!
//! Maximum memory above idle, per byte of a request of at least 1 MiB. The limit applies to
//! accepted and refused requests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use throughline_json::work;
use throughline_testkit::{Child, Folder, LARGE_REQUESTS, LargeRequest, child_task, figure};

use crate::house::{ANSWER, RawGateway, RawGatewayOptions, RawProvider, store};

const MIB: usize = 1 << 20;

/// Maximum memory above idle per byte of a request of at least 1 MiB, for accepted and refused
/// requests.
const MAX_FACTOR_ACCEPTED: f64 = 24.0;
const MAX_FACTOR_REJECTED: f64 = 4.0;

/// Runs the gateway for the large-request test, which starts this function in a child process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_for_large_requests() {
    let Some(provider) = child_task() else { return };
    let folder = Folder::new("large");
    let options = RawGatewayOptions { own_wires: true, ..RawGatewayOptions::default() };
    let gateway = RawGateway::open(&RawProvider::at(&provider), &store(&folder).await, options);
    // Serves the number of work steps so far to each connection.
    let steps = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = steps.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = steps.accept() {
            write!(stream, "{}", work::total()).ok();
        }
    });
    println!("\nready {} {address}", gateway.address);
    std::future::pending::<()>().await;
}

/// The gateway, and a thread that requests `/healthz` every 20 ms.
struct ProbedGateway {
    child: Child,
    address: String,
    steps: String,
    is_over: Arc<AtomicBool>,
    probes: Arc<AtomicU64>,
    /// Number of probes that got a response while a large request was pending.
    during: AtomicU64,
    /// Response time of the slowest probe in microseconds.
    slowest: Arc<AtomicU64>,
}

impl ProbedGateway {
    fn start(provider: &str) -> Self {
        let mut child = Child::start("large::gateway_for_large_requests", provider);
        let ready = std::iter::from_fn(|| child.line()).find(|line| line.starts_with("ready "));
        let ready = ready.expect("the gateway starts");
        let mut fields = ready.split(' ').skip(1).map(str::to_owned);
        let (address, steps) = (fields.next().unwrap(), fields.next().unwrap());
        let (is_over, probes, slowest) = (
            Arc::<AtomicBool>::default(),
            Arc::<AtomicU64>::default(),
            Arc::<AtomicU64>::default(),
        );
        std::thread::spawn({
            let (address, is_over, probes, slowest) =
                (address.clone(), is_over.clone(), probes.clone(), slowest.clone());
            move || {
                while !is_over.load(Ordering::SeqCst) {
                    #[expect(clippy::disallowed_methods, reason = "prints the slowest probe")]
                    let started = Instant::now();
                    if send_request(&address, "GET", "/healthz", "").0 == 200 {
                        probes.fetch_add(1, Ordering::SeqCst);
                        let took = u64::try_from(started.elapsed().as_micros()).unwrap();
                        slowest.fetch_max(took, Ordering::SeqCst);
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        });
        Self { child, address, steps, is_over, probes, during: AtomicU64::new(0), slowest }
    }

    fn steps(&self) -> u64 {
        let mut text = String::new();
        TcpStream::connect(&self.steps).unwrap().read_to_string(&mut text).unwrap();
        text.parse().unwrap()
    }

    /// Returns a value in kilobytes from `/proc/PID/status` of the gateway process.
    fn kilobytes(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    #[expect(clippy::cast_precision_loss, reason = "a ratio of two sizes below 2^50")]
    /// Sends a request, and a health probe before reading the response. Returns the status, the
    /// error, the peak memory above idle per request byte, and the number of work steps.
    fn send(&self, path: &str, body: &str) -> (u16, String, f64, u64) {
        std::fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").unwrap();
        let (idle, steps) = (self.kilobytes("VmRSS:"), self.steps());
        let stream = write(&self.address, "POST", path, body).unwrap();
        assert_eq!(
            send_request(&self.address, "GET", "/healthz", "").0,
            200,
            "a probe is answered"
        );
        self.during.fetch_add(u64::from(is_pending(&stream)), Ordering::SeqCst);
        let (status, text) = read(stream);
        let most = self.kilobytes("VmHWM:").saturating_sub(idle);
        (status, text, (most << 10) as f64 / body.len() as f64, self.steps() - steps)
    }
}

impl Drop for ProbedGateway {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.child.kill();
    }
}

/// Sends one request on its own connection; returns the status and body.
fn send_request(address: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    write(address, method, path, body).map_or((0, String::new()), read)
}

/// Returns whether no byte of the response has arrived yet.
fn is_pending(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    peeked.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

/// Opens a connection and writes a request.
fn write(address: &str, method: &str, path: &str, body: &str) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).ok()?;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nx-api-key: tl_any\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok();
    stream.write_all(body.as_bytes()).ok();
    Some(stream)
}

/// Reads the status and body of a response.
fn read(mut stream: TcpStream) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).ok();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, text.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned()))
}

/// Starts a provider that reads each whole request and responds in the format of the wire that the
/// request path selects.
fn provider() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            std::thread::spawn(move || answer(stream));
        }
    });
    url
}

fn answer(mut stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).ok();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) <= 2 {
            break;
        }
        let line = line.to_ascii_lowercase();
        if let Some(told) = line.strip_prefix("content-length:") {
            length = told.trim().parse().unwrap();
        }
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink()).ok();
    let body = match &first {
        path if path.contains("/messages") => ANSWER,
        path if path.contains("/chat/completions") => {
            r#"{"id":"c","object":"chat.completion","created":1,"model":"gpt-4o","choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#
        }
        path if path.contains("/responses") => {
            r#"{"id":"resp_1","object":"response","created_at":1,"status":"completed","model":"gpt-5","output":[{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Hello","annotations":[]}]}],"usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2}}"#
        }
        _ => {
            r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"Hello"}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":1,"totalTokenCount":2}}"#
        }
    };
    stream
        .write_all(crate::house::http_response("200 OK", "application/json", body).as_bytes())
        .ok();
}

fn path_of(shape: &LargeRequest) -> String {
    match shape.wire {
        "anthropic-messages" => "/v1/messages".to_owned(),
        "openai-chat" => "/v1/chat/completions".to_owned(),
        "openai-responses" => "/v1/responses".to_owned(),
        _ => format!("/v1beta/models/{}:generateContent", shape.target.1),
    }
}

/// Returns a body with this many items, padded with text to this size in bytes.
fn filled(shape: &LargeRequest, items: usize, bytes: usize) -> String {
    let body = (shape.body)(items);
    let missing = bytes.saturating_sub(body.len());
    let text = "lorem ipsum ".repeat(missing / 12 + 1);
    format!("{{\"metadata\":{{\"user_id\":\"{text}\"}},{}", &body[1..])
}

#[test]
fn large_requests_take_bounded_memory_and_probes_are_answered() {
    let provider = provider();
    let mut wrong = Vec::new();
    let mut report = |label: String,
                      size: usize,
                      most: f64,
                      (status, text, factor, steps): (u16, String, f64, u64)| {
        figure(
            &label,
            format!(
                "{} MiB, status {status}, peak {factor:.1} x the body, {steps} steps",
                size / MIB
            ),
        );
        if factor > most {
            wrong.push(format!("{label}: {factor:.1} x the body, and {most} is the most"));
        }
        (status, text)
    };
    // As many items as fit into 8 MiB: refused before anything is indexed.
    let watched = ProbedGateway::start(&provider);
    for shape in LARGE_REQUESTS {
        let each = (shape.body)(2_000).len() / 2_000;
        let body = (shape.body)(8 * MIB / each + 2_000);
        let sent = watched.send(&path_of(shape), &body);
        let (status, text) =
            report(format!("refused: {}", shape.name), body.len(), MAX_FACTOR_REJECTED, sent);
        assert_eq!(status, 413, "{}: {text}", shape.name);
        assert!(text.contains("_limit)"), "the limit is named: {text}");
    }
    let (probes, slowest) = (&watched.probes, &watched.slowest);
    assert!(probes.load(Ordering::SeqCst) > 0);
    figure("slowest answer to a probe", format!("{} ms", slowest.load(Ordering::SeqCst) / 1000));
    drop(watched);
    let mut during = 0;
    // Send the largest accepted request to a gateway that has handled no other large request.
    for (name, items, bytes) in WORST_CASES {
        let shape = LARGE_REQUESTS.iter().find(|shape| shape.name == name).unwrap();
        let watched = ProbedGateway::start(&provider);
        // Send a small request first, so that one-time costs are not measured.
        watched.send(&path_of(shape), &(shape.body)(4));
        let body = filled(shape, items, bytes);
        let sent = watched.send(&path_of(shape), &body);
        let (status, text) =
            report(format!("accepted: {name}"), body.len(), MAX_FACTOR_ACCEPTED, sent);
        assert_eq!(status, 200, "{name}: {text}");
        during += watched.during.load(Ordering::SeqCst);
    }
    figure("probes answered while a large request was read", during);
    assert!(during > 0);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The most expensive request shapes, each with its number of items and size in bytes.
const WORST_CASES: [(&str, usize, usize); 9] = [
    ("responses: lone function_call_output", 4_900, MIB),
    ("chat: lone tool messages", 4_900, MIB),
    ("chat: lone tool messages", 13_500, 5 * MIB / 2),
    ("responses: empty elements", 4_900, MIB),
    ("anthropic: parallel calls, all answered", 4_900, MIB),
    ("anthropic: arguments with many members", 190_000, MIB),
    ("responses: lone reasoning items", 19_900, 8 * MIB),
    ("anthropic: plain turns", 19_900, 8 * MIB),
    ("gemini: steps without signatures", 19_900, 8 * MIB),
];
