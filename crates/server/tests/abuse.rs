//! Tests callers and providers that misbehave, on purpose or by accident. Callers get a clear
//! error, and other callers are not affected.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "gateway/house/mod.rs"]
mod house;
#[path = "abuse/large.rs"]
mod large;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use bytes::Bytes;
use house::{
    ANSWER, RawGateway, RawGatewayOptions, RawProvider, STREAM, STREAM_HEAD, http_response,
    question, store, until,
};
use throughline_agent::{Ports, Runner};
use throughline_core::{
    Append, Batch, LogHead, LogId, LogKind, LogOpening, Model, ModelError, ModelErrorKind,
    ModelRegistry, NewRecord, Store as _, StoreFuture, Tenant,
};
use throughline_json::{Json, Name, SizeLimits};
use throughline_server::{Admission, AgentApi, Allowance, Limits};
use throughline_spec::{Archive, ExportSink, KeyHead, RedactionPolicy, VerifySummary};
use throughline_store::Journal;
use throughline_testkit::{Folder, on_small_disk};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const SOON: Duration = Duration::from_millis(300);

/// Returns options for a gateway with short timeouts.
fn impatient() -> RawGatewayOptions {
    let limits = Limits { headers: SOON, body: SOON, slow_reader: SOON, ..Limits::default() };
    RawGatewayOptions { limits, idle: SOON, ..RawGatewayOptions::default() }
}

async fn assert_still_answers(gateway: &RawGateway) {
    assert_eq!(gateway.send("/readyz", "", "").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_request_head_times_out() {
    let (folder, provider) = (Folder::new("loris"), RawProvider::with_reply("").await);
    let gateway = RawGateway::open(&provider, &store(&folder).await, impatient());
    for head in [
        "",
        "P",
        "PRI * HTTP/2.0",
        "POST /v1/messages HTTP/1.1\r\nhost: loca",
        "GET / HTTP/1.1\r\na: b\r\n",
    ] {
        let mut stream = gateway.connect(head).await;
        let mut rest = Vec::new();
        // The connection ends, possibly with an error.
        stream.read_to_end(&mut rest).await.ok();
    }
    assert_still_answers(&gateway).await;
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_body_is_refused() {
    let (folder, provider) = (Folder::new("trickle"), RawProvider::with_reply("").await);
    let gateway = RawGateway::open(&provider, &store(&folder).await, impatient());
    let request = gateway.request("/v1/messages", "", &question("claude-sonnet-4-5", false));
    let mut stream = gateway.connect(&request[..request.len() - 20]).await;
    let response = house::read_response(&mut stream).await;
    assert_eq!(response.status, 408, "{response:?}");
    assert!(response.body.contains("too slowly"), "{}", response.body);
    // Sending the bytes one by one does not extend the timeout.
    let stream = gateway.connect(&request[..request.len() - 60]).await;
    let (mut reading, mut writing) = stream.into_split();
    let dribble = tokio::spawn(async move {
        loop {
            if writing.write_all(b" ").await.is_err() {
                return;
            }
            tokio::time::sleep(SOON / 10).await;
        }
    });
    let mut response = String::new();
    reading.read_to_string(&mut response).await.ok();
    assert!(response.starts_with("HTTP/1.1 408"), "{response}");
    dribble.abort();
    assert_still_answers(&gateway).await;
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_body_is_refused() {
    let (folder, provider) = (Folder::new("endless"), RawProvider::with_reply("").await);
    let options = RawGatewayOptions { body_limit: 1 << 20, ..RawGatewayOptions::default() };
    let gateway = RawGateway::open(&provider, &store(&folder).await, options);
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n",
        gateway.address
    );
    let (mut reading, mut writing) = gateway.connect(&head).await.into_split();
    let sending = tokio::spawn(async move {
        let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
        while writing.write_all(chunk.as_bytes()).await.is_ok() {}
    });
    let mut response = vec![0; 1024];
    let length = reading.read(&mut response).await.unwrap();
    let response = String::from_utf8_lossy(&response[..length]).into_owned();
    assert!(response.starts_with("HTTP/1.1 413"), "{response}");
    sending.abort();
    // A caller that sends all of a slightly too large body gets the same error.
    let response = gateway.send("/v1/chat/completions", "", &" ".repeat(8 << 20)).await;
    assert_eq!(response.status, 413, "{response:?}");
    assert!(response.body.contains("exceeds the limit of 1 MiB"), "{}", response.body);
    let open = format!("{{\"model\":\"claude\",\"messages\":{}", "[".repeat(10_000));
    let closed = format!("{open}{}}}", "]".repeat(10_000));
    for body in [open, closed] {
        let response = gateway.send("/v1/messages", "", &body).await;
        assert_eq!(response.status, 400, "{response:?}");
        assert!(response.body.contains("nested deeper"), "{}", response.body);
    }
    gateway.close().await;
}

/// Starts a provider that sends an endless response as fast as it can.
async fn torrent() -> RawProvider {
    RawProvider::with_handler(async |mut stream| {
        stream.write_all(STREAM_HEAD.as_bytes()).await.ok();
        let start = &STREAM[..STREAM.find("event: content_block_stop").unwrap()];
        stream.write_all(start.as_bytes()).await.ok();
        let text = "words ".repeat(2000);
        let more = format!(
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}}}}\n\n"
        );
        while stream.write_all(more.as_bytes()).await.is_ok() {}
    })
    .await
}

/// A thousand callers stop reading. Each is disconnected, and its provider request is cancelled.
#[tokio::test(flavor = "multi_thread")]
async fn slow_readers_and_their_upstream_requests_are_cancelled() {
    let (folder, provider) = (Folder::new("slow"), torrent().await);
    // Only the limit for slow readers is short: on a busy machine, requests may arrive late.
    let limits = Limits { slow_reader: SOON, ..Limits::default() };
    let options = RawGatewayOptions { limits, ..RawGatewayOptions::default() };
    let gateway = RawGateway::open(&provider, &store(&folder).await, options);
    let mut callers = Vec::new();
    for number in 0..1000 {
        // Half of them use another dialect, which requires translation.
        let path = if number % 2 == 0 { "/v1/messages" } else { "/v1/chat/completions" };
        let question = question("claude-sonnet-4-5", true);
        callers.push(gateway.connect(&gateway.request(path, "", &question)).await);
    }
    until(|| provider.open.load(Ordering::SeqCst) == 0 && gateway.lines.calls().len() == 1000)
        .await;
    assert_eq!(gateway.metric("throughline_open_streams").await, "0");
    drop(callers);
    // The measured process contains provider, gateway and callers. Without a bound, each caller
    // would cost megabytes.
    let most = most_memory();
    println!("FIGURE most memory with a thousand slow readers: {} MiB", most >> 10);
    assert!(most < 1 << 20, "{most} KiB");
    assert_still_answers(&gateway).await;
    gateway.close().await;
}

fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// When a caller disconnects during a stream, the gateway cancels its request to the provider.
#[tokio::test(flavor = "multi_thread")]
async fn disconnect_cancels_the_upstream_request() {
    let (folder, provider) = (Folder::new("vanish"), torrent().await);
    let gateway = RawGateway::open(&provider, &store(&folder).await, RawGatewayOptions::default());
    for path in ["/v1/messages", "/v1/chat/completions"] {
        let request = gateway.request(path, "", &question("claude-sonnet-4-5", true));
        let mut stream = gateway.connect(&request).await;
        stream.read_u8().await.unwrap();
        assert_eq!(provider.open.load(Ordering::SeqCst), 1);
        drop(stream);
        provider.is_alone().await;
    }
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_provider_times_out() {
    let provider = RawProvider::with_handler(async |mut stream| {
        let start = &STREAM[..STREAM.find("event: content_block_stop").unwrap()];
        stream.write_all(format!("{STREAM_HEAD}{start}").as_bytes()).await.ok();
        // Sends nothing more until the gateway disconnects.
        stream.read_u8().await.ok();
    })
    .await;
    let folder = Folder::new("stall");
    let gateway = RawGateway::open(&provider, &store(&folder).await, impatient());
    // On the same wire the caller's stream breaks like the provider's.
    let response = gateway.send_question("claude-sonnet-4-5", true).await;
    assert!(
        response.status == 200 && !response.is_complete && response.body.contains("Hello there"),
        "{response:?}"
    );
    // In another dialect an error is sent, and nothing looks like a normal end.
    let response =
        gateway.send("/v1/chat/completions", "", &question("claude-sonnet-4-5", true)).await;
    assert!(response.body.contains("to continue its response"), "{response:?}");
    assert!(!response.body.contains("\"finish_reason\":\"stop\""), "{response:?}");
    provider.is_alone().await;
    let lines = gateway.lines.calls();
    assert!(
        lines[0].starts_with("warn ") && lines[0].contains("to continue its response"),
        "{lines:?}"
    );
    assert_eq!(gateway.metric("throughline_captures_total").await, "0");
    gateway.close().await;
}

/// Wherever a stream breaks, the caller can detect that the stream is incomplete, and the gateway
/// stores none of it.
#[tokio::test(flavor = "multi_thread")]
async fn stream_broken_at_any_byte_is_reported_and_not_stored() {
    let cut = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let next = std::sync::Arc::clone(&cut);
    let provider = RawProvider::with_handler(move |mut stream| {
        let cut = next.load(Ordering::SeqCst);
        async move {
            // The provider announces more bytes than it sends.
            let head = STREAM_HEAD.replace("connection", "content-length: 100000\r\nconnection");
            stream.write_all(format!("{head}{}", &STREAM[..cut]).as_bytes()).await.ok();
            // With zero linger, closing the socket resets the connection.
            stream.set_zero_linger().ok();
        }
    })
    .await;
    let folder = Folder::new("break");
    let gateway = RawGateway::open(&provider, &store(&folder).await, RawGatewayOptions::default());
    let last = STREAM.find("event: message_stop").unwrap();
    for at in 0..last {
        cut.store(at, Ordering::SeqCst);
        let response = gateway.send_question("claude-sonnet-4-5", true).await;
        assert!(response.status >= 500 || !response.is_complete, "at {at}: {response:?}");
        let response =
            gateway.send("/v1/chat/completions", "", &question("claude-sonnet-4-5", true)).await;
        assert!(
            response.status >= 500 || response.body.contains("\"error\""),
            "at {at}: {response:?}"
        );
    }
    assert_eq!(gateway.metric("throughline_captures_total").await, "0");
    assert_still_answers(&gateway).await;
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unparsable_replies_are_reported() {
    let garbage = "data: {\"type\": nonsense\n\ndata: \u{1}\u{2}\n\n".repeat(5);
    let answers = [
        format!("{STREAM_HEAD}{garbage}"),
        http_response("200 OK", "text/html", "<html>It works!</html>"),
        http_response("200 OK", "text/event-stream", ""),
        http_response("200 OK", "application/json", "[[[[]]]]"),
    ];
    for answer in answers {
        let (folder, provider) = (Folder::new("garbage"), RawProvider::with_reply(&*answer).await);
        let gateway =
            RawGateway::open(&provider, &store(&folder).await, RawGatewayOptions::default());
        // On the same wire the response is forwarded, because the caller may understand it.
        let response = gateway.send_question("claude-sonnet-4-5", true).await;
        assert!(answer.ends_with(&response.body), "{response:?}");
        assert_eq!(gateway.send_question("claude-sonnet-4-5", false).await.status, 200);
        // For another dialect the response cannot be translated.
        for stream in [true, false] {
            let question = question("claude-sonnet-4-5", stream);
            let response = gateway.send("/v1/chat/completions", "", &question).await;
            assert!(response.body.contains("\"error\""), "{stream} {answer:?}: {response:?}");
        }
        assert_eq!(gateway.metric("throughline_captures_total").await, "0");
        assert_still_answers(&gateway).await;
        gateway.close().await;
    }
}

/// A stream with an invalid frame may end normally. The gateway does not store the reply, because
/// the captured reply would be incomplete.
#[tokio::test(flavor = "multi_thread")]
async fn stream_with_an_invalid_frame_is_not_captured() {
    let split = STREAM.find("event: content_block_stop").unwrap();
    let (start, rest) = STREAM.split_at(split);
    let answer = format!("{STREAM_HEAD}{start}data: {{\"type\": nonsense\n\n{rest}");
    let (folder, provider) = (Folder::new("nonsense"), RawProvider::with_reply(&*answer).await);
    let gateway = RawGateway::open(&provider, &store(&folder).await, RawGatewayOptions::default());
    let response = gateway.send_question("claude-sonnet-4-5", true).await;
    assert!(answer.ends_with(&response.body), "{response:?}");
    assert!(response.body.contains("message_stop"), "{response:?}");
    let question = question("claude-sonnet-4-5", true);
    let response = gateway.send("/v1/chat/completions", "", &question).await;
    assert!(response.body.contains("\"error\""), "{response:?}");
    assert_eq!(gateway.metric("throughline_captures_total").await, "0");
    assert_eq!(gateway.metric("throughline_capture_failures_total").await, "2");
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_are_not_followed() {
    let elsewhere =
        RawProvider::with_reply(http_response("200 OK", "application/json", ANSWER)).await;
    let answer = http_response("302 Found", "text/plain", "").replace(
        "content-type",
        &format!("location: {}/v1/messages\r\ncontent-type", elsewhere.url),
    );
    let (folder, provider) = (Folder::new("redirect"), RawProvider::with_reply(answer).await);
    let gateway = RawGateway::open(&provider, &store(&folder).await, RawGatewayOptions::default());
    for path in ["/v1/messages", "/v1/chat/completions", "/v1/messages/batches"] {
        let response = gateway.send(path, "", &question("claude-sonnet-4-5", true)).await;
        assert_eq!(response.status, 502, "{path}: {response:?}");
        assert!(
            response.body.contains("redirects are not") && !response.head.contains("location"),
            "{response:?}"
        );
    }
    gateway.close().await;
}

/// A page on this machine may change data only with the token. Pages of other sites cannot read the
/// token.
#[tokio::test(flavor = "multi_thread")]
async fn page_requests_require_the_token() {
    let (folder, provider) = (
        Folder::new("page"),
        RawProvider::with_reply(http_response("200 OK", "application/json", ANSWER)).await,
    );
    let gateway = RawGateway::open(&provider, &store(&folder).await, RawGatewayOptions::default());
    let question = question("claude-sonnet-4-5", false);
    let origin = format!("origin: http://{}\r\n", gateway.address);
    let response = gateway.send("/v1/messages", &origin, &question).await;
    assert_eq!(response.status, 403, "{response:?}");
    assert!(response.body.contains("/v1/throughline/token"), "{}", response.body);
    let token = gateway.send("/v1/throughline/token", &origin, "").await;
    let token: serde_json::Value = serde_json::from_str(&token.body).unwrap();
    let token = token["token"].as_str().unwrap();
    let with = format!("{origin}x-throughline-token: {token}\r\n");
    assert_eq!(gateway.send("/v1/messages", &with, &question).await.status, 200);
    let wrong = format!("{origin}x-throughline-token: {}\r\n", token.replace(&token[..1], "_"));
    assert_eq!(gateway.send("/v1/messages", &wrong, &question).await.status, 403);
    let foreign = "origin: http://example.com\r\n";
    assert_eq!(gateway.send("/v1/throughline/token", foreign, "").await.status, 403);
    // Clients other than pages need no token.
    assert_eq!(gateway.send("/v1/messages", "", &question).await.status, 200);
    gateway.close().await;
}

/// A model registry without models, because the test only reads exports.
struct NoModels;

impl ModelRegistry for NoModels {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        Err(ModelError::new(ModelErrorKind::Other, Name::from(format!("no model {name}"))))
    }
}

/// A Journal that counts exported bytes and exports in progress.
struct CountedExports {
    journal: Journal,
    written: Arc<AtomicUsize>,
    running: Arc<AtomicUsize>,
}

struct CountedSink<'s>(&'s mut dyn ExportSink, &'s AtomicUsize);

impl ExportSink for CountedSink<'_> {
    fn write(&mut self, chunk: Bytes) -> StoreFuture<'_, ()> {
        let length = chunk.len();
        Box::pin(async move {
            self.0.write(chunk).await?;
            self.1.fetch_add(length, Ordering::SeqCst);
            Ok(())
        })
    }
}

impl Archive for CountedExports {
    fn logs<'a>(
        &'a self,
        tenant: &'a Tenant,
        kind: LogKind,
        after: Option<&'a LogId>,
        limit: u32,
    ) -> StoreFuture<'a, Vec<LogHead>> {
        self.journal.logs(tenant, kind, after, limit)
    }

    fn forks<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        limit: u32,
    ) -> StoreFuture<'a, Vec<LogHead>> {
        self.journal.forks(tenant, log, limit)
    }

    fn public_key(&self) -> String {
        Archive::public_key(&self.journal)
    }

    fn verify<'a>(&'a self, tenant: Option<&'a Tenant>) -> StoreFuture<'a, VerifySummary> {
        Archive::verify(&self.journal, tenant)
    }

    fn manifest<'a>(&'a self, tenant: &'a Tenant) -> StoreFuture<'a, Json> {
        Archive::manifest(&self.journal, tenant)
    }

    fn export<'a>(
        &'a self,
        tenant: &'a Tenant,
        threads: &'a [LogId],
        policy: &'a RedactionPolicy,
        out: &'a mut dyn ExportSink,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.running.fetch_add(1, Ordering::SeqCst);
            let mut out = CountedSink(out, &self.written);
            let done = Archive::export(&self.journal, tenant, threads, policy, &mut out).await;
            self.running.fetch_sub(1, Ordering::SeqCst);
            done
        })
    }

    fn keys<'a>(&'a self, tenant: &'a Tenant) -> StoreFuture<'a, Vec<KeyHead>> {
        self.journal.keys(tenant)
    }
}

/// An export uses far less memory than the size of the exported store, and stops reading when its
/// reader disconnects.
#[tokio::test(flavor = "multi_thread")]
async fn exports_stream_with_bounded_memory_and_end_with_their_reader() {
    const RECORDS: usize = 512;
    const SIZE: usize = 64 << 10;
    const GROWTH: u64 = 16 << 10;
    let (folder, provider) = (Folder::new("export"), RawProvider::with_reply("").await);
    let journal = store(&folder).await;
    let tenant = Tenant::from("default");
    let mut append = Append::new("long").opening(LogOpening::thread());
    for number in 0..RECORDS {
        let text = format!("{number} {}", "words ".repeat(SIZE / 6));
        append = append.record(NewRecord::new("item", text));
        if number % 8 == 7 {
            journal.commit(Batch::new(tenant.clone()).append(append)).await.unwrap();
            append = Append::new("long");
        }
    }
    let (written, running) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let archive = CountedExports {
        journal: journal.clone(),
        written: Arc::clone(&written),
        running: Arc::clone(&running),
    };
    let runner = Runner::new(
        Arc::new(journal.clone()),
        Arc::new(NoModels),
        Ports::with_system_clock([7; 32]),
    );
    // The policy has no text patterns, because the test measures memory, not regular expressions.
    let policy = RedactionPolicy { keys: vec!["none".into()], ..RedactionPolicy::nothing() };
    let agents = AgentApi::new(runner).with_archive(Arc::new(archive)).with_redaction(policy);
    let agents = Arc::new(agents);
    let options = RawGatewayOptions { agents: Some(agents), ..RawGatewayOptions::default() };
    let gateway = RawGateway::open(&provider, &journal, options);
    let request = gateway.request("/v1/throughline/journal/export", "", "");
    // Reset the peak memory.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = most_memory();
    let mut stream = tokio::net::TcpStream::connect(&gateway.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let (mut piece, mut bytes, mut end) = (vec![0; 64 << 10], 0, Vec::new());
    loop {
        let read = stream.read(&mut piece).await.unwrap();
        if read == 0 {
            break;
        }
        bytes += read;
        end.extend_from_slice(&piece[..read]);
        end.drain(..end.len().saturating_sub(4 << 10));
    }
    assert!(bytes > RECORDS * SIZE / 10 * 9, "{bytes} bytes: {}", String::from_utf8_lossy(&end));
    let end = String::from_utf8_lossy(&end).into_owned();
    assert!(end.contains(r#""signature":""#) && end.ends_with("0\r\n\r\n"), "the end: {end}");
    let growth = most_memory().saturating_sub(before);
    println!("FIGURE an export of {} MiB needs at most: {growth} KiB", bytes >> 20);
    assert!(growth < GROWTH, "{growth} KiB");
    // An export ends when its reader disconnects.
    let total = written.swap(0, Ordering::SeqCst);
    let mut stream = gateway.connect(&request).await;
    stream.read_exact(&mut piece[..4096]).await.unwrap();
    assert_eq!(running.load(Ordering::SeqCst), 1);
    drop(stream);
    until(|| running.load(Ordering::SeqCst) == 0).await;
    let part = written.load(Ordering::SeqCst);
    println!("FIGURE bytes read for a reader that left after 4 KiB: {part} of {total}");
    assert!(part < total / 4, "{part} of {total}");
    assert_still_answers(&gateway).await;
    gateway.close().await;
}

/// If the disk fills up during a stream, the stream continues, and the gateway reports that the
/// reply was not captured.
#[test]
fn full_disk_loses_only_the_capture() {
    on_small_disk("full_disk_loses_only_the_capture", 2048, |disk| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let filler = disk.join("filler");
            let provider = RawProvider::with_handler(move |mut stream| {
                let filler = filler.clone();
                async move {
                    let middle = STREAM.find("event: content_block_stop").unwrap();
                    let (start, rest) = STREAM.split_at(middle);
                    stream.write_all(format!("{STREAM_HEAD}{start}").as_bytes()).await.unwrap();
                    fill(&filler);
                    stream.write_all(rest.as_bytes()).await.unwrap();
                }
            })
            .await;
            let url = format!("sqlite://{}", disk.join("store.db").display());
            let options = throughline_store::Options::default();
            let store = throughline_store::open(&url, &options).await.unwrap();
            let gateway = RawGateway::open(&provider, &store, RawGatewayOptions::default());
            for path in ["/v1/messages", "/v1/chat/completions"] {
                let response = gateway.send(path, "", &question("claude-sonnet-4-5", true)).await;
                assert!(
                    response.is_complete && response.body.contains("Hello there"),
                    "{response:?}"
                );
            }
            until(|| gateway.lines.calls().len() == 2).await;
            let lines = gateway.lines.calls();
            let lost = lines.iter().filter(|line| line.contains(r#""capture":"lost""#)).count();
            assert_eq!(lost, 2, "{lines:?}");
            assert_eq!(gateway.metric("throughline_capture_failures_total").await, "2");
            gateway.close().await;
        });
    });
}

/// Writes to the file until the disk is full.
fn fill(file: &std::path::Path) {
    use std::io::Write as _;
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file).unwrap();
    for size in [64 << 10, 4 << 10, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
}

/// Returns the admission that is used for any key. A key of the form `tl_of_TENANT` is admitted for
/// that tenant instead.
fn any_key() -> Admission {
    let (tenant, id) = ("default".into(), "key".into());
    Admission::Key { role: None, tenant, id, models: Vec::new(), allowance: Allowance::default() }
}

/// Returns an HTTP request that contains this body and the tenant's key.
fn request_from(tenant: &str, gateway: &RawGateway, body: &str) -> String {
    gateway.request("/v1/messages", "", body).replace("tl_any", &format!("tl_of_{tenant}"))
}

/// Starts a provider that reads requests and never responds.
async fn silent() -> RawProvider {
    RawProvider::with_handler(async |mut stream| {
        stream.read_u8().await.ok();
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_tenant_cannot_take_all_stream_slots() {
    let (folder, provider) = (Folder::new("shares"), silent().await);
    let limits = Limits { streams: 8, queue: SOON, ..Limits::default() };
    let options =
        RawGatewayOptions { limits, admission: Some(any_key()), ..RawGatewayOptions::default() };
    let gateway = RawGateway::open(&provider, &store(&folder).await, options);
    let question = question("claude-sonnet-4-5", false);
    let mut waiting = Vec::new();
    for number in 1..=7 {
        waiting.push(gateway.connect(&request_from("busy", &gateway, &question)).await);
        until(|| provider.open.load(Ordering::SeqCst) == number).await;
    }
    let mut refused = gateway.connect(&request_from("busy", &gateway, &question)).await;
    let response = house::read_response(&mut refused).await;
    assert_eq!(
        response.status, 503,
        "the last slot is not for a tenant that has all others: {response:?}"
    );
    waiting.push(gateway.connect(&request_from("other", &gateway, &question)).await);
    until(|| provider.open.load(Ordering::SeqCst) == 8).await;
    drop(waiting);
    provider.is_alone().await;
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_beyond_the_memory_limit_wait_and_are_refused() {
    let (folder, provider) = (Folder::new("memory"), silent().await);
    let limits = Limits { memory: 5 << 20, queue: SOON, ..Limits::default() };
    let gateway = RawGateway::open(
        &provider,
        &store(&folder).await,
        RawGatewayOptions { limits, ..RawGatewayOptions::default() },
    );
    let text = "x".repeat(1 << 20);
    let large = question("claude-sonnet-4-5", false).replace("Hello", &text);
    assert!(large.len() > 1 << 20);
    let first = gateway.connect(&gateway.request("/v1/messages", "", &large)).await;
    until(|| provider.open.load(Ordering::SeqCst) == 1).await;
    let response = gateway.send("/v1/messages", "", &large).await;
    assert_eq!(response.status, 503, "{response:?}");
    assert!(response.body.contains("max_request_memory"), "{}", response.body);
    assert!(response.head.contains("retry-after: 1"), "{}", response.head);
    // A small request still fits.
    let small = question("claude-sonnet-4-5", false);
    let second = gateway.connect(&gateway.request("/v1/messages", "", &small)).await;
    until(|| provider.open.load(Ordering::SeqCst) == 2).await;
    drop((first, second));
    provider.is_alone().await;
    gateway.close().await;
}

/// Oversized requests are refused with an error in the caller's dialect, on every path that accepts
/// a body.
#[tokio::test(flavor = "multi_thread")]
async fn oversized_requests_are_refused_with_the_limit() {
    let (folder, provider) = (Folder::new("sizes"), silent().await);
    let sizes = SizeLimits { entries: 400, items: 100, tools: 10 };
    let limits = Limits { sizes, ..Limits::default() };
    let gateway = RawGateway::open(
        &provider,
        &store(&folder).await,
        RawGatewayOptions { limits, ..RawGatewayOptions::default() },
    );
    let many = |element: &str, count: usize| vec![element; count].join(",");
    let messages = format!(r#"{{"model":"claude","messages":[{}]}}"#, many("{}", 60));
    let tools = format!(r#"{{"model":"claude","messages":[],"tools":[{}]}}"#, many("{}", 11));
    let deep = r#"{"a":{"b":{"c":{"d":["#;
    let entries =
        format!(r#"{{"model":"claude","messages":[],"x":{deep}{}]}}}}}}}}}}"#, many("0", 450));
    for path in
        ["/v1/messages", "/v1/messages/count_tokens", "/v1/chat/completions", "/v1/responses"]
    {
        for (body, limit) in
            [(&messages, "item_limit"), (&tools, "tool_limit"), (&entries, "entry_limit")]
        {
            let response = gateway.send(path, "", body).await;
            assert_eq!(response.status, 413, "{path}: {response:?}");
            assert!(response.body.contains(limit), "{path}: {}", response.body);
            assert!(response.body.contains("\"error\""), "{path}: {}", response.body);
        }
    }
    assert_eq!(provider.open.load(Ordering::SeqCst), 0);
    gateway.close().await;
}

/// While every runtime worker is blocked, health probes still get a response. Other requests get a
/// response once the workers continue.
#[test]
fn healthz_answers_while_every_worker_is_blocked() {
    const WORKERS: usize = 2;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .unwrap();
    let folder = Folder::new("blocked");
    let (gateway, provider) = runtime.block_on(async {
        let provider =
            RawProvider::with_reply(http_response("200 OK", "application/json", ANSWER)).await;
        (RawGateway::open(&provider, &store(&folder).await, RawGatewayOptions::default()), provider)
    });
    assert_eq!(plainly(&gateway.request("/healthz", "", ""), &gateway.address), 200);
    let barrier = Arc::new(Barrier::new(WORKERS + 1));
    let blocked = Arc::new(AtomicUsize::new(0));
    for _ in 0..WORKERS {
        let (barrier, blocked) = (Arc::clone(&barrier), Arc::clone(&blocked));
        runtime.spawn(async move {
            blocked.fetch_add(1, Ordering::SeqCst);
            barrier.wait();
        });
    }
    while blocked.load(Ordering::SeqCst) < WORKERS {
        std::thread::yield_now();
    }
    #[expect(clippy::disallowed_methods, reason = "prints how long the probe takes")]
    let started = std::time::Instant::now();
    assert_eq!(plainly(&gateway.request("/healthz", "", ""), &gateway.address), 200);
    println!("FIGURE a probe while every worker is blocked: {:?}", started.elapsed());
    assert_eq!(plainly(&gateway.request("/readyz", "", ""), &gateway.address), 503);
    let call = gateway.request("/v1/messages", "", &question("claude-sonnet-4-5", false));
    let address = gateway.address.clone();
    let caller = std::thread::spawn(move || plainly(&call, &address));
    // The watchdog thread queues that connection for the runtime and still answers probes.
    assert_eq!(plainly(&gateway.request("/healthz", "", ""), &gateway.address), 200);
    barrier.wait();
    assert_eq!(caller.join().unwrap(), 200);
    drop(provider);
    runtime.block_on(gateway.close());
}

/// Measures memory and work for large requests, and checks that health probes get a response
/// meanwhile.
fn plainly(request: &str, address: &str) -> u16 {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response.split(' ').nth(1).unwrap().parse().unwrap()
}
