//! Tests of budgets through the gateway: periods, status codes, rates and the usage report.

use std::sync::{Arc, Mutex};

use crate::harness::official;
use crate::house::{
    ANSWER, RawGateway, RawGatewayOptions, RawProvider, RawResponse, http_response, question,
    read_response, store,
};
use jiff::Timestamp;
use serde_json::{Value, json};
use throughline_core::{BudgetPeriod, Clock, Tenant};
use throughline_server::{Admission, Allowance};
use throughline_testkit::{Folder, figure};

struct SetClock(Mutex<Timestamp>);

impl SetClock {
    fn at(text: &str) -> Arc<Self> {
        Arc::new(Self(Mutex::new(text.parse().unwrap())))
    }

    fn set(&self, text: &str) {
        *self.0.lock().unwrap() = text.parse().unwrap();
    }
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
}

/// Starts a gateway whose callers use one key. A call reserves 127 tokens and uses 120.
async fn open(
    folder: &Folder,
    provider: &RawProvider,
    clock: &Arc<SetClock>,
    allowance: Allowance,
) -> RawGateway {
    let (tenant, id) = (Tenant::from("acme"), "key_1".into());
    let admission = Some(Admission::Key { role: None, tenant, id, models: Vec::new(), allowance });
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    let options = RawGatewayOptions { admission, clock, ..RawGatewayOptions::default() };
    RawGateway::open(provider, &store(folder).await, options)
}

async fn provider() -> RawProvider {
    RawProvider::with_reply(http_response("200 OK", "application/json", ANSWER)).await
}

async fn send(gateway: &RawGateway) -> RawResponse {
    gateway.send_question("claude-sonnet-4-5", false).await
}

fn header<'r>(response: &'r RawResponse, name: &str) -> Option<&'r str> {
    let prefix = format!("{name}: ");
    response.head.lines().find_map(|line| line.strip_prefix(&*prefix))
}

async fn budgets(gateway: &RawGateway) -> Value {
    let response = gateway.send("/v1/throughline/usage", "", "").await;
    let usage: Value = serde_json::from_str(&response.body).unwrap();
    usage["budgets"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn daily_budget_is_refused_until_midnight() {
    let (folder, provider) = (Folder::new("daily"), provider().await);
    let clock = SetClock::at("2026-11-18T23:00:00Z");
    let period = Some(BudgetPeriod::Day);
    let allowance = Allowance { tokens: Some(250), period, ..Allowance::default() };
    let gateway = open(&folder, &provider, &clock, allowance).await;
    assert_eq!(send(&gateway).await.status, 200);
    assert_eq!(send(&gateway).await.status, 200);
    let refused = send(&gateway).await;
    assert_eq!(refused.status, 429, "{refused:?}");
    assert_eq!(header(&refused, "retry-after"), Some("3600"));
    assert_eq!(header(&refused, "x-should-retry"), Some("false"), "clients do not repeat it");
    assert!(refused.body.contains("budget of 250 tokens per day"), "{}", refused.body);
    let start = "2026-11-18T00:00:00Z".parse::<Timestamp>().unwrap().as_second();
    let mut day = json!([{"unit": "tokens", "period": "day", "limit": 250, "used": 240,
        "reserved": 0, "window_start": start, "window_end": start + 86_400}]);
    let mut known = budgets(&gateway).await;
    // The lease may hold a few unused tokens.
    assert!(known[0]["reserved"].as_u64().unwrap() <= 10, "{known}");
    known[0]["reserved"] = json!(0);
    assert_eq!(known, day);
    clock.set("2026-11-19T00:00:00Z");
    assert_eq!(send(&gateway).await.status, 200);
    let known = budgets(&gateway).await;
    day[0]["window_start"] = json!(start + 86_400);
    assert_eq!(
        (&known[0]["used"], &known[0]["window_start"]),
        (&json!(120), &day[0]["window_start"])
    );
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn call_that_exceeds_the_rest_of_a_budget_is_not_sent() {
    let (folder, provider) = (Folder::new("rest"), provider().await);
    let clock = SetClock::at("2026-11-18T12:00:00Z");
    let allowance = Allowance { micro_usd: Some(1000), ..Allowance::default() };
    let gateway = open(&folder, &provider, &clock, allowance).await;
    let large = question("claude-sonnet-4-5", false).replace("100", "1000");
    let refused = gateway.send("/v1/messages", "", &large).await;
    assert_eq!((refused.status, header(&refused, "retry-after")), (402, None), "{refused:?}");
    assert_eq!(header(&refused, "x-should-retry"), Some("false"));
    for expected in ["has $0.001000 left", "this call may use $0.002028", "keys update key_1"] {
        assert!(refused.body.contains(expected), "{expected} is not in {}", refused.body);
    }
    // A smaller call fits.
    assert_eq!(send(&gateway).await.status, 200);
    assert_eq!(budgets(&gateway).await[0]["used"], 140);
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_per_minute_are_limited() {
    let (folder, provider) = (Folder::new("tpm"), provider().await);
    let clock = SetClock::at("2026-11-18T12:00:20Z");
    let allowance = Allowance { tokens_per_minute: Some(200), ..Allowance::default() };
    let gateway = open(&folder, &provider, &clock, allowance).await;
    assert_eq!(send(&gateway).await.status, 200);
    let refused = send(&gateway).await;
    assert_eq!((refused.status, header(&refused, "retry-after")), (429, Some("40")), "{refused:?}");
    assert_eq!(header(&refused, "x-should-retry"), None, "a client may wait and repeat it");
    clock.set("2026-11-18T12:01:00Z");
    assert_eq!(send(&gateway).await.status, 200);
    // Waiting does not help a call that is larger than the limit.
    let large = question("claude-sonnet-4-5", false).replace("100", "1000");
    clock.set("2026-11-18T12:02:00Z");
    let refused = gateway.send("/v1/messages", "", &large).await;
    assert_eq!((refused.status, header(&refused, "x-should-retry")), (403, Some("false")));
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn request_rate_holds_over_two_nodes() {
    let (folder, provider) = (Folder::new("rpm"), provider().await);
    let clock = SetClock::at("2026-11-18T12:00:00Z");
    let allowance = Allowance { per_minute: Some(3), ..Allowance::default() };
    let one = open(&folder, &provider, &clock, allowance).await;
    let two = open(&folder, &provider, &clock, allowance).await;
    for gateway in [&one, &two, &one] {
        assert_eq!(send(gateway).await.status, 200);
    }
    let refused = send(&two).await;
    assert_eq!(refused.status, 429, "{refused:?}");
    assert!(refused.body.contains("rate of 3 requests per minute"), "{}", refused.body);
    // Node two cannot distinguish calls in progress on node one until that node reports its usage.
    one.close().await;
    let refused = send(&two).await;
    assert_eq!((refused.status, header(&refused, "retry-after")), (429, Some("60")), "{refused:?}");
    assert!(refused.body.contains("rate of 3 requests per minute"), "{}", refused.body);
    two.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_call_returns_its_reservation() {
    let folder = Folder::new("failed");
    let reply = http_response("400 Bad Request", "application/json", r#"{"error":"no"}"#);
    let provider = RawProvider::with_reply(reply).await;
    let clock = SetClock::at("2026-11-18T12:00:00Z");
    let allowance = Allowance { tokens: Some(130), ..Allowance::default() };
    let gateway = open(&folder, &provider, &clock, allowance).await;
    for _ in 0..5 {
        assert_eq!(send(&gateway).await.status, 400);
    }
    assert_eq!(budgets(&gateway).await[0]["used"], 0);
    gateway.close().await;
}

/// The provider may have processed a request whose response is missing or incomplete, so the
/// gateway charges an estimate.
#[tokio::test(flavor = "multi_thread")]
async fn call_without_a_complete_response_is_charged_by_its_estimate() {
    let cut = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{";
    for reply in ["", cut] {
        let (folder, provider) = (Folder::new("cut"), RawProvider::with_reply(reply).await);
        let clock = SetClock::at("2026-11-18T12:00:00Z");
        let allowance = Allowance { tokens: Some(1000), ..Allowance::default() };
        let gateway = open(&folder, &provider, &clock, allowance).await;
        assert_eq!(send(&gateway).await.status, 502);
        // A reservation is 27 input tokens and 100 output tokens.
        let used = budgets(&gateway).await[0]["used"].clone();
        assert!((26..=27).contains(&used.as_u64().unwrap()), "{used} after {reply:?}");
        gateway.close().await;
    }
}

/// The budget of an existing store counts the usage that an earlier version recorded.
#[tokio::test(flavor = "multi_thread")]
async fn usage_of_an_earlier_version_counts_for_a_total_budget() {
    let (folder, provider) = (Folder::new("earlier"), provider().await);
    let clock = SetClock::at("2026-11-18T12:00:00Z");
    // Without a limit, calls are recorded only in the usage ledger, as in earlier versions.
    let gateway = open(&folder, &provider, &clock, Allowance::default()).await;
    assert_eq!(send(&gateway).await.status, 200);
    assert_eq!(send(&gateway).await.status, 200);
    gateway.close().await;
    let allowance = Allowance { tokens: Some(370), ..Allowance::default() };
    let gateway = open(&folder, &provider, &clock, allowance).await;
    assert_eq!(budgets(&gateway).await[0]["used"], 240);
    assert_eq!(send(&gateway).await.status, 200);
    assert_eq!(send(&gateway).await.status, 402);
    assert_eq!(budgets(&gateway).await[0]["used"], 360);
    gateway.close().await;
}

/// The official clients send one request, although they repeat failed requests by default.
#[tokio::test(flavor = "multi_thread")]
async fn official_clients_do_not_repeat_a_request_after_a_spent_budget() {
    const NODE: [&str; 4] =
        ["openai_chat", "openai_responses", "anthropic_messages", "google_gemini"];
    let python = [&NODE[..], &["boto3_converse"]].concat();
    let provider = provider().await;
    let clock = SetClock::at("2026-11-18T12:00:00Z");
    for period in [BudgetPeriod::Total, BudgetPeriod::Day] {
        let folder = Folder::new("clients");
        let allowance = Allowance { tokens: Some(1), period: Some(period), ..Allowance::default() };
        let gateway = open(&folder, &provider, &clock, allowance).await;
        let url = format!("http://{}", gateway.address);
        let mut sent = 0;
        for (language, script, clients) in
            [("python", "spent_budget.py", &python[..]), ("node", "spent_budget.mjs", &NODE[..])]
        {
            for client in clients {
                let clients = [*client];
                let run = official::run(language, script, &url, "budget", &clients);
                let Some(output) = run.await else { continue };
                let (out, err) = (&output.stdout, String::from_utf8_lossy(&output.stderr));
                let name = format!("{language}/{client}, {period}");
                assert!(out.starts_with(b"ok "), "{name}: {err}");
                let requests = gateway.lines.calls().len();
                assert_eq!(requests - sent, 1, "{name} repeats the request");
                figure(&format!("{name}: requests"), requests - sent);
                sent = requests;
            }
        }
        gateway.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_distinguishes_a_foreign_key_from_a_missing_key() {
    let (folder, provider) = (Folder::new("foreign"), provider().await);
    let clock = SetClock::at("2026-11-18T12:00:00Z");
    let gateway = open(&folder, &provider, &clock, Allowance::default()).await;
    let question = question("claude-sonnet-4-5", false);
    for (key, expected) in [
        ("authorization: Bearer sk-123\r\n", "is not a key of this gateway"),
        ("x-api-key: sk-ant-123\r\n", "keys of the gateway start with `tl_`"),
        ("x-other: 1\r\n", "this gateway requires an API key"),
    ] {
        let request = format!(
            "POST /v1/messages HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{key}\
             content-length: {}\r\n\r\n{question}",
            question.len()
        );
        let mut stream = gateway.connect(&request).await;
        let refused = read_response(&mut stream).await;
        assert_eq!(refused.status, 401, "{refused:?}");
        assert!(refused.body.contains(expected), "{key}: {}", refused.body);
        assert!(!refused.body.contains("123"), "{}", refused.body);
    }
    gateway.close().await;
}
