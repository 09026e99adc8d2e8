//! Tests of store failures: which requests are forwarded, which are refused, and what is logged.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::hold::{GatedStore, Outage};
use crate::house::{
    ANSWER, RawGateway, RawGatewayOptions, RawProvider, RawResponse, STREAM, STREAM_HEAD,
    http_response, question, store, until,
};
use throughline_core::{StoreFuture, Tenant, TurnId};
use throughline_replay::Claims;
use throughline_server::{Admission, Allowance, Keyring, OnStoreFailure, StorePolicy};
use throughline_testkit::Folder;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Semaphore;

/// A gateway whose store can be made to fail, and a provider that records its requests.
pub(crate) struct OutageGateway {
    pub(crate) gateway: RawGateway,
    pub(crate) outage: Arc<Outage>,
    /// Whether the key `tl_one` is revoked.
    is_revoked: Arc<AtomicBool>,
    requests: Arc<Mutex<Vec<String>>>,
    _folder: Folder,
}

/// A keyring that reads from the store, in which `tl_one`, `tl_two`, `tl_budget`, all keys that
/// start with `tl_new_` and, in another tenant, `tl_other_tenant` exist.
struct StoredKeys {
    outage: Arc<Outage>,
    is_revoked: Arc<AtomicBool>,
    is_open: bool,
}

/// A message that makes the provider cut its stream.
const CUT: &str = "Cut the stream";

/// A message to which the provider responds with a thinking block and this signature.
const THINK: &str = "Think first";
const SIGNATURE: &str = "EqoBCkgIARABGAIiQLw7issuedByTheFirstProvider";

/// A message to which the provider responds with a compaction item that has this content.
const COMPACT: &str = "Compact this";
const COMPACTION: &str = "gAAAAABissuedByTheProvider";

impl Keyring for StoredKeys {
    fn admit<'a>(&'a self, key: Option<&'a str>) -> StoreFuture<'a, Admission> {
        Box::pin(async move {
            self.outage.read()?;
            let limits = Allowance { micro_usd: Some(1_000_000), ..Allowance::default() };
            let tenant = if key == Some("tl_other_tenant") { "other" } else { "acme" };
            let admission = |allowance| Admission::Key {
                role: None,
                tenant: Tenant::from(tenant),
                id: key.unwrap_or_default().into(),
                models: Vec::new(),
                allowance,
            };
            Ok(match key {
                _ if self.is_open => Admission::Open,
                Some("tl_one") if self.is_revoked.load(Ordering::SeqCst) => Admission::Refused,
                Some("tl_one" | "tl_two" | "tl_other_tenant") => admission(Allowance::default()),
                Some("tl_budget") => admission(limits),
                Some(key) if key.starts_with("tl_new_") => admission(Allowance::default()),
                Some(_) | None => Admission::Refused,
            })
        })
    }
}

impl OutageGateway {
    pub(crate) async fn open(policy: StorePolicy, is_open: bool) -> Self {
        let folder = Folder::new("outage");
        let journal = store(&folder).await;
        let requests = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&requests);
        let provider = RawProvider::with_request_handler(move |request, mut stream| {
            let answer = answer_to(&request);
            recorded.lock().unwrap().push(request);
            async move {
                stream.write_all(answer.as_bytes()).await.ok();
                stream.shutdown().await.ok();
            }
        })
        .await;
        let outage = Arc::new(Outage::default());
        let let_go = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        let gated = GatedStore { journal, let_go, outage: Arc::clone(&outage) };
        let is_revoked = Arc::new(AtomicBool::new(false));
        let keyring = StoredKeys {
            outage: Arc::clone(&outage),
            is_revoked: Arc::clone(&is_revoked),
            is_open,
        };
        let options = RawGatewayOptions {
            policy,
            keyring: Some(Arc::new(keyring)),
            own_wires: true,
            ..RawGatewayOptions::default()
        };
        let gateway = RawGateway::open_on(&provider, Arc::new(gated), options);
        Self { gateway, outage, is_revoked, requests, _folder: folder }
    }

    fn call_count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    /// Returns the requests that the provider received.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    async fn send_as(&self, key: &str, body: &str) -> RawResponse {
        self.send_to("/v1/messages", key, body).await
    }

    pub(crate) async fn send_to(&self, path: &str, key: &str, body: &str) -> RawResponse {
        let gateway = &self.gateway;
        let request = gateway.request(path, "", body);
        let mut stream = gateway.connect(&request.replace("tl_any", key)).await;
        crate::house::read_response(&mut stream).await
    }

    async fn ready(&self) -> (u16, String) {
        let response = self.gateway.send("/readyz", "", "").await;
        (response.status, response.body)
    }

    /// Waits until the gateway is ready. Readiness is checked once a second.
    pub(crate) async fn recovers(&self) {
        while self.ready().await.0 != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Returns the provider's response to a request.
fn answer_to(request: &str) -> String {
    if request.contains(THINK) {
        let thinking = format!(
            r#""content":[{{"type":"thinking","thinking":"Hm","signature":"{SIGNATURE}"}},"#
        );
        let answer = ANSWER.replace(r#""content":["#, &thinking);
        return http_response("200 OK", "application/json", &answer);
    }
    if request.contains(COMPACT) {
        let answer = format!(
            r#"{{"id":"resp_1","object":"response","created_at":1,"status":"completed","model":"gpt-5.2","output":[{{"type":"compaction","id":"cmp_1","encrypted_content":"{COMPACTION}"}}],"usage":{{"input_tokens":1,"output_tokens":1,"total_tokens":2}}}}"#
        );
        return http_response("200 OK", "application/json", &answer);
    }
    if !request.contains(r#""stream":true"#) {
        return http_response("200 OK", "application/json", ANSWER);
    }
    let (events, _) = STREAM.split_once("event: content_block_stop").unwrap();
    [STREAM_HEAD, if request.contains(CUT) { events } else { STREAM }].concat()
}

/// Returns a conversation without its reasoning, so that the gateway must look up the reasoning in
/// the store.
fn conversation(reply: &str) -> String {
    format!(
        r#"{{"model":"claude-sonnet-4-5","max_tokens":100,"messages":[{{"role":"user","content":"Hello"}},{{"role":"assistant","content":"{reply}"}},{{"role":"user","content":"More"}}]}}"#
    )
}

fn hello() -> String {
    question("claude-sonnet-4-5", false)
}

#[tokio::test(flavor = "multi_thread")]
async fn store_outage_passes_requests_without_stored_state() {
    let fixture = OutageGateway::open(StorePolicy::default(), true).await;
    let before = fixture.send_as("tl_any", &hello()).await;
    assert_eq!((before.status, fixture.ready().await.0), (200, 200), "{before:?}");
    assert!(!before.head.contains("x-throughline-restore"), "{}", before.head);

    fixture.outage.set(true, true);
    let response = fixture.send_as("tl_any", &conversation("Hi")).await;
    assert_eq!(response.status, 200, "{response:?}");
    assert!(response.body.contains("Hello"), "{}", response.body);
    assert!(response.head.contains("x-throughline-restore: skipped"), "{}", response.head);
    assert!(response.head.contains("x-throughline-audit: degrade"), "{}", response.head);
    assert_eq!(fixture.call_count(), 2);
    until(|| fixture.gateway.lines.calls().len() >= 2).await;
    assert_eq!(fixture.gateway.metric("throughline_capture_failures_total").await, "1");
    let lost = fixture.gateway.lines.calls().pop().unwrap();
    assert!(lost.contains(r#""capture":"lost""#) && !lost.contains("nothing was lost"), "{lost}");
    let lines = fixture.gateway.lines.of("store");
    let read = lines.iter().find(|line| line.contains("read failed")).unwrap();
    assert!(read.starts_with("warn ") && read.contains("connection refused"), "{read}");
    let write = lines.iter().find(|line| line.contains("write failed")).unwrap();
    assert!(write.starts_with("warn ") && write.contains("the store is full"), "{write}");

    let count = fixture.send_to("/v1/messages/count_tokens", "tl_any", &hello()).await;
    assert_eq!(count.status, 200, "{count:?}");

    // Requests with a gateway handle need the store, as do call records and stored responses.
    let claims = Claims::new([7; 32]);
    let claim = claims.claim(&Tenant::from("default"), &TurnId::from("node"));
    let claimed = conversation(&claim);
    let response_id = claims.response_id(&Tenant::from("default"), &TurnId::from("node"));
    let resumed =
        format!(r#"{{"model":"gpt-5","input":"Hi","previous_response_id":"{response_id}"}}"#);
    for (path, body) in [
        ("/v1/messages", claimed.as_str()),
        ("/v1/responses", &resumed),
        ("/v1/throughline/calls/some-call", ""),
    ] {
        let response = fixture.gateway.send(path, "", body).await;
        assert_eq!(response.status, 503, "{path}: {response:?}");
        assert!(response.head.contains("retry-after: 5"), "{path}: {}", response.head);
    }
    assert_eq!(fixture.call_count(), 3, "a request that needs the store was forwarded");
    let lines = fixture.gateway.lines.calls();
    let refused = lines.iter().find(|line| line.contains(r#""status":503"#)).unwrap();
    assert!(refused.starts_with("warn ") && refused.contains("connection refused"), "{refused}");
    let (status, reason) = fixture.ready().await;
    assert_eq!(status, 503, "{reason}");
    assert!(reason.contains("the store does not respond"), "{reason}");
    assert_eq!(fixture.gateway.send("/healthz", "", "").await.status, 200);

    fixture.outage.set(false, false);
    fixture.recovers().await;
    let after = fixture.send_as("tl_any", &conversation("Hi")).await;
    assert!(!after.head.contains("x-throughline-restore"), "{}", after.head);
    let story = format!("/v1/throughline/calls/{}", after.call);
    assert_eq!(fixture.gateway.send(&story, "", "").await.status, 200, "it is kept again");
    fixture.gateway.close().await;
}

/// Only the store knows which caller received a `continuationToken`, so the request needs the
/// store.
#[tokio::test(flavor = "multi_thread")]
async fn continuation_token_is_not_forwarded_during_an_outage() {
    let fixture = OutageGateway::open(StorePolicy::default(), false).await;
    let contents = r#""contents":[{"role":"user","parts":[{"text":"Hello"}]}]"#;
    let path = "/v1beta/models/gemini-3-flash-preview:generateContent";
    let send = async |body: String| {
        let request = fixture.gateway.request(path, "", &body).replace("tl_any", "tl_one");
        let mut stream = fixture.gateway.connect(&request).await;
        crate::house::read_response(&mut stream).await
    };
    send(format!("{{{contents}}}")).await;
    fixture.outage.set(true, true);
    send(format!("{{{contents}}}")).await;
    assert_eq!(fixture.call_count(), 2, "a request without a token was not forwarded");
    for member in ["continuationToken", "continuation_token"] {
        let response = send(format!(r#"{{{contents},"{member}":"dG9rZW4="}}"#)).await;
        assert_eq!(response.status, 503, "{member}: {response:?}");
    }
    assert_eq!(fixture.call_count(), 2, "a token was forwarded");
    fixture.gateway.close().await;
}

/// During an outage, the gateway forwards a compaction item only to the provider that issued it to
/// this tenant. Any other target needs the conversation that the item stands for.
#[tokio::test(flavor = "multi_thread")]
async fn compaction_reaches_only_its_issuer_during_an_outage() {
    let fixture = OutageGateway::open(StorePolicy::default(), true).await;
    let compact = format!(r#"{{"model":"gpt-5.2","input":"{COMPACT}"}}"#);
    assert_eq!(fixture.gateway.send("/v1/responses", "", &compact).await.status, 200);
    fixture.outage.set(true, true);
    let cases = [
        ("gpt-5.2", COMPACTION, 200),
        ("gpt-5.2", "gAAAAABissuedToAnotherCaller", 503),
        ("claude-sonnet-4-5", COMPACTION, 503),
    ];
    for (model, content, status) in cases {
        let calls = fixture.call_count();
        let body = format!(
            r#"{{"model":"{model}","input":[{{"type":"compaction","id":"cmp_1","encrypted_content":"{content}"}},{{"role":"user","content":"On"}}]}}"#
        );
        let response = fixture.gateway.send("/v1/responses", "", &body).await;
        assert_eq!(response.status, status, "{model}, {content}: {response:?}");
        assert_eq!(fixture.call_count() - calls, usize::from(status == 200), "{model}, {content}");
    }
    let lines = fixture.gateway.lines.of("store");
    assert!(lines.iter().any(|line| line.contains("read failed")), "{lines:?}");
    fixture.gateway.close().await;
}

/// Returns a conversation whose first reply contains this thinking block.
fn with_thinking(model: &str, thinking: &str) -> String {
    format!(
        r#"{{"model":"{model}","max_tokens":100,"messages":[{{"role":"user","content":"Hello"}},{{"role":"assistant","content":[{thinking},{{"type":"text","text":"Hello"}}]}},{{"role":"user","content":"More"}}]}}"#
    )
}

/// During an outage, the gateway forwards a Seal only to the provider that issued it to this
/// tenant. Another provider of the same wire does not receive it. A Seal whose issuer only the
/// store knows is not forwarded at all.
#[tokio::test(flavor = "multi_thread")]
async fn seal_reaches_only_its_issuer_during_an_outage() {
    let fixture = OutageGateway::open(StorePolicy::default(), true).await;
    assert_eq!(fixture.send_as("tl_any", &hello()).await.status, 200);
    fixture.outage.set(true, true);
    let ask = format!(
        r#"{{"model":"claude-sonnet-4-5","max_tokens":100,"messages":[{{"role":"user","content":"{THINK}"}}]}}"#
    );
    let response = fixture.send_as("tl_any", &ask).await;
    assert!(response.status == 200 && response.body.contains(SIGNATURE), "{response:?}");
    let issued = format!(r#"{{"type":"thinking","thinking":"Hm","signature":"{SIGNATURE}"}}"#);
    let unknown = issued.replace(SIGNATURE, "EqoBCkgIARABGAIiQLw7issuedBeforeTheStart");
    let unsigned = r#"{"type":"thinking","thinking":"Hm"}"#;
    let as_text = r#"{"type":"text","text":"<thinking>Hm</thinking>"}"#;
    let cases = [
        ("claude-sonnet-4-5", issued.as_str(), 200, true),
        ("deepseek-v4-flash", &issued, 200, false),
        ("claude-sonnet-4-5", &unknown, 503, false),
        ("deepseek-v4-flash", unsigned, 200, false),
        ("deepseek-v4-flash", &unsigned.replace("Hm", "unknown"), 503, false),
        ("deepseek-v4-flash", as_text, 503, false),
    ];
    for (model, thinking, status, is_sent) in cases {
        let calls = fixture.call_count();
        let response = fixture.send_as("tl_any", &with_thinking(model, thinking)).await;
        assert_eq!(response.status, status, "{model}, {thinking}: {response:?}");
        let requests = fixture.requests();
        assert_eq!(requests.len() - calls, usize::from(status == 200), "{model}, {thinking}");
        if status == 200 {
            let sent = requests.last().unwrap();
            assert_eq!(sent.contains(SIGNATURE), is_sent, "{model}: {sent}");
            assert_eq!(sent.contains("Hm"), is_sent, "{model}: {sent}");
        } else {
            assert!(response.head.contains("retry-after: 5"), "{}", response.head);
        }
    }
    fixture.gateway.close().await;
}

/// A Seal that was issued to another tenant is not forwarded during an outage.
#[tokio::test(flavor = "multi_thread")]
async fn seal_of_another_tenant_is_not_forwarded_during_an_outage() {
    let fixture = OutageGateway::open(StorePolicy::default(), false).await;
    assert_eq!(fixture.send_as("tl_other_tenant", &hello()).await.status, 200);
    let ask = format!(
        r#"{{"model":"claude-sonnet-4-5","max_tokens":100,"messages":[{{"role":"user","content":"{THINK}"}}]}}"#
    );
    assert_eq!(fixture.send_as("tl_one", &ask).await.status, 200);
    fixture.outage.set(true, true);
    let issued = format!(r#"{{"type":"thinking","thinking":"Hm","signature":"{SIGNATURE}"}}"#);
    let body = with_thinking("claude-sonnet-4-5", &issued);
    for (key, status) in [("tl_one", 200), ("tl_other_tenant", 503)] {
        let response = fixture.send_as(key, &body).await;
        assert_eq!(response.status, status, "{key}: {response:?}");
    }
    fixture.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_fails_after_a_failed_write_until_one_succeeds() {
    let fixture = OutageGateway::open(StorePolicy::default(), true).await;
    assert_eq!(fixture.ready().await.0, 200, "the store accepts writes");
    // The result of a successful test is reused for a second, but a failed write is reported at
    // once.
    fixture.outage.set(false, true);
    assert_eq!(fixture.send_as("tl_any", &hello()).await.status, 200);
    let (status, reason) = fixture.ready().await;
    assert_eq!(status, 503);
    assert!(reason.contains("the store is full"), "{reason}");
    assert_eq!(fixture.ready().await.0, 503, "it is still full");
    fixture.outage.set(false, false);
    fixture.recovers().await;
    let lines = fixture.gateway.lines.of("store");
    assert!(lines.iter().any(|line| line.contains("write works again")), "{lines:?}");
    fixture.gateway.close().await;
}

/// A gateway without calls is not ready either if its store accepts no writes.
#[tokio::test(flavor = "multi_thread")]
async fn readiness_tests_a_write_before_the_first_call() {
    let fixture = OutageGateway::open(StorePolicy::default(), true).await;
    fixture.outage.set(false, true);
    let (status, reason) = fixture.ready().await;
    assert_eq!((status, fixture.call_count()), (503, 0), "{reason}");
    assert!(reason.contains("the store is full"), "{reason}");
    fixture.outage.set(false, false);
    fixture.recovers().await;
    fixture.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refuse_policy_refuses_while_the_store_fails() {
    let policy = StorePolicy { on_failure: OnStoreFailure::Refuse, ..StorePolicy::default() };
    let fixture = OutageGateway::open(policy, true).await;
    assert_eq!(fixture.send_as("tl_any", &hello()).await.status, 200);
    fixture.outage.set(true, true);
    let response = fixture.send_as("tl_any", &hello()).await;
    assert_eq!((response.status, fixture.call_count()), (503, 1), "{response:?}");
    assert!(response.head.contains("retry-after: 5"), "{}", response.head);
    let lines = fixture.gateway.lines.of("refused");
    assert!(lines.iter().all(|line| line.starts_with("warn ")), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("connection refused")), "{lines:?}");

    // After a reply could not be stored, requests are refused until writes succeed again.
    fixture.outage.set(false, true);
    assert_eq!(fixture.send_as("tl_any", &hello()).await.status, 200);
    let response = fixture.send_as("tl_any", &hello()).await;
    assert_eq!((response.status, fixture.call_count()), (503, 2), "{response:?}");
    assert!(response.body.contains("the store is full"), "{}", response.body);
    fixture.outage.set(false, false);
    fixture.recovers().await;
    assert_eq!(fixture.send_as("tl_any", &hello()).await.status, 200);
    fixture.gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cached_keys_work_during_an_outage_and_others_do_not() {
    let grace = Duration::from_secs(3);
    let policy = StorePolicy { key_grace: grace, ..StorePolicy::default() };
    let fixture = OutageGateway::open(policy, false).await;
    for key in ["tl_one", "tl_budget"] {
        assert_eq!(fixture.send_as(key, &hello()).await.status, 200, "{key}");
    }
    assert_eq!(fixture.send_as("tl_other", &hello()).await.status, 401);
    let confirmed = std::time::Instant::now();
    fixture.outage.set(true, true);
    let calls = fixture.call_count();
    // An unused key, a key with a budget, and an invalid key are refused.
    for key in ["tl_two", "tl_budget", "tl_other"] {
        let response = fixture.send_as(key, &hello()).await;
        assert_eq!(response.status, 503, "{key}: {response:?}");
        assert!(response.head.contains("retry-after: 5"), "{key}: {}", response.head);
    }
    assert_eq!(fixture.call_count(), calls, "an unchecked request was forwarded");
    let response = fixture.send_as("tl_one", &hello()).await;
    assert!(response.status == 200 || confirmed.elapsed() > grace, "{response:?}");
    while fixture.send_as("tl_one", &hello()).await.status == 200 {
        assert!(confirmed.elapsed() < grace * 4, "a remembered key does not expire");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    fixture.outage.set(false, false);
    fixture.recovers().await;
    for key in ["tl_one", "tl_two", "tl_budget"] {
        assert_eq!(fixture.send_as(key, &hello()).await.status, 200, "{key}");
    }
    fixture.gateway.close().await;
}

/// The store cannot confirm a key that was revoked while the store was down, so the key is refused
/// after the grace. When the store responds again, the key is invalid.
#[tokio::test(flavor = "multi_thread")]
async fn key_revoked_during_an_outage_is_refused_after_the_grace() {
    let policy = StorePolicy { key_grace: Duration::from_secs(1), ..StorePolicy::default() };
    let fixture = OutageGateway::open(policy, false).await;
    assert_eq!(fixture.send_as("tl_one", &hello()).await.status, 200);
    fixture.outage.set(true, true);
    fixture.is_revoked.store(true, Ordering::SeqCst);
    let refused = loop {
        let response = fixture.send_as("tl_one", &hello()).await;
        if response.status != 200 {
            break response;
        }
    };
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.head.contains("retry-after: 5"), "{}", refused.head);
    // Successful requests during the outage do not extend the grace.
    let calls = fixture.call_count();
    assert_eq!(fixture.send_as("tl_one", &hello()).await.status, 503);
    assert_eq!(fixture.call_count(), calls, "an unchecked request was forwarded");
    fixture.outage.set(false, false);
    fixture.recovers().await;
    assert_eq!(fixture.send_as("tl_one", &hello()).await.status, 401);
    assert_eq!(fixture.call_count(), calls, "a request with a revoked key was forwarded");
    fixture.gateway.close().await;
}

/// A response that the provider cut is not captured. If its call record cannot be stored either,
/// the gateway counts the response as lost.
#[tokio::test(flavor = "multi_thread")]
async fn cut_response_without_a_stored_record_is_counted_as_lost() {
    let fixture = OutageGateway::open(StorePolicy::default(), true).await;
    let lost = "throughline_capture_failures_total";
    for (is_down, count, outcome) in [(false, "0", "none"), (true, "1", "lost")] {
        fixture.outage.set(is_down, is_down);
        let known = fixture.gateway.lines.calls().len();
        let body = question("claude-sonnet-4-5", true).replace("Hello", CUT);
        let response = fixture.send_as("tl_any", &body).await;
        assert!(response.body.contains("Hello there"), "{response:?}");
        until(|| fixture.gateway.lines.calls().len() > known).await;
        let line = fixture.gateway.lines.calls().pop().unwrap();
        assert!(line.contains(&format!(r#""capture":"{outcome}""#)), "{line}");
        assert_eq!(fixture.gateway.metric(lost).await, count, "{line}");
    }
    fixture.gateway.close().await;
}
