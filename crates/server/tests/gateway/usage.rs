//! Tests that usage is counted, stored and limited across calls, restarts and nodes.

use std::sync::Arc;
use std::time::Duration;

use crate::house::{
    ANSWER, RawGateway, RawGatewayOptions, RawProvider, STREAM, STREAM_HEAD, http_response,
    question, store, until,
};
use serde_json::{Value, json};
use throughline_core::Tenant;
use throughline_server::{Admission, Allowance, Limits};
use throughline_testkit::Folder;

/// Returns options for a gateway whose callers all use the same key.
fn options_with(allowance: Allowance) -> RawGatewayOptions {
    let (tenant, id) = (Tenant::from("acme"), "key_1".into());
    let admission = Admission::Key { role: None, tenant, id, models: Vec::new(), allowance };
    RawGatewayOptions { admission: Some(admission), ..RawGatewayOptions::default() }
}

async fn used(gateway: &RawGateway) -> Value {
    let response = gateway.send("/v1/throughline/usage", "", "").await;
    assert_eq!(response.status, 200, "{response:?}");
    serde_json::from_str(&response.body).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn key_holder_can_read_its_usage() {
    let (folder, provider) = (
        Folder::new("usage"),
        RawProvider::with_reply(http_response("200 OK", "application/json", ANSWER)).await,
    );
    let gateway =
        RawGateway::open(&provider, &store(&folder).await, options_with(Allowance::default()));
    for _ in 0..3 {
        assert_eq!(gateway.send_question("claude-sonnet-4-5", false).await.status, 200);
    }
    assert_eq!(gateway.send_question("claude-unpriced", false).await.status, 200);
    let used = used(&gateway).await;
    assert_eq!(
        (&used["key"], &used["tenant"], &used["prices"]),
        (&json!("key_1"), &json!("acme"), &json!("one dollar"))
    );
    let totals = json!({"calls": 3, "tokens": 360, "input": 300, "cached": 0, "written": 0, "output": 60,
                      "thought": 0, "micro_usd": 420, "unpriced": 0, "provider": "raw", "model": "claude-sonnet-4-5"});
    assert_eq!(used["models"][0], totals);
    assert_eq!((&used["used"]["calls"], &used["used"]["unpriced"]), (&json!(4), &json!(1)));
    // Each call has one log line, and the metrics count all of them.
    let lines = gateway.lines.calls();
    let call = lines.iter().find(|line| line.contains("sonnet")).unwrap();
    for expected in [
        r#""key":"key_1""#,
        r#""provider":"raw""#,
        r#""status":200"#,
        r#""output":20"#,
        r#""micro_usd":140"#,
        r#""capture":"kept""#,
        r#""verdict":"accept""#,
    ] {
        assert!(call.contains(expected), "{expected} is not in {call}");
    }
    // The call record contains the cost as well.
    let id = serde_json::from_str::<Value>(&call[call.find('{').unwrap()..]).unwrap()["call"]
        .as_str()
        .unwrap()
        .to_owned();
    let story = gateway.send(&format!("/v1/throughline/calls/{id}"), "", "").await;
    let story: Value = serde_json::from_str(&story.body).unwrap();
    assert_eq!(story["cost"], json!({"micro_usd": 140, "prices": "one dollar"}), "{story}");
    assert_eq!(gateway.metric("throughline_calls_total{dialect=\"anthropic-messages\",provider=\"raw\",model=\"claude-sonnet-4-5\",status=\"200\"}").await, "3");
    assert_eq!(gateway.metric("throughline_tokens_total{provider=\"raw\",model=\"claude-sonnet-4-5\",kind=\"output\"}").await, "60");
    assert_eq!(
        gateway
            .metric("throughline_cost_usd_total{provider=\"raw\",model=\"claude-sonnet-4-5\"}")
            .await,
        "0.00042"
    );
    assert_eq!(gateway.metric("throughline_captures_total").await, "4");
    let seconds = "throughline_call_seconds_count{dialect=\"anthropic-messages\",provider=\"raw\"}";
    assert_eq!(gateway.metric(seconds).await, "4");
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spent_budget_is_enforced_after_restart() {
    let (folder, provider) = (
        Folder::new("budget"),
        RawProvider::with_reply(http_response("200 OK", "application/json", ANSWER)).await,
    );
    let store = store(&folder).await;
    // A call reserves 127 tokens and uses 120.
    let tokens = Allowance { tokens: Some(250), ..Allowance::default() };
    let gateway = RawGateway::open(&provider, &store, options_with(tokens));
    assert_eq!(gateway.send_question("claude-sonnet-4-5", false).await.status, 200);
    assert_eq!(gateway.send_question("claude-sonnet-4-5", false).await.status, 200);
    gateway.close().await;
    let gateway = RawGateway::open(&provider, &store, options_with(tokens));
    let response = gateway.send_question("claude-sonnet-4-5", false).await;
    assert_eq!(response.status, 402, "{response:?}");
    assert!(response.head.contains("x-should-retry: false"), "{}", response.head);
    for expected in ["billing_error", "key_1", "250 tokens", "--budget-tokens"] {
        assert!(response.body.contains(expected), "{expected} is not in {}", response.body);
    }
    // The error has the format of the caller's dialect.
    let response =
        gateway.send("/v1beta/models/claude:generateContent", "", r#"{"contents":[]}"#).await;
    assert_eq!(response.status, 402);
    assert!(response.body.contains("RESOURCE_EXHAUSTED"), "{}", response.body);
    // A key with a budget cannot use endpoints without a price.
    assert_eq!(gateway.send("/v1/embeddings", "", "{}").await.status, 403);
    gateway.close().await;
    let dollars = Allowance { micro_usd: Some(280), ..Allowance::default() };
    let gateway = RawGateway::open(&provider, &store, options_with(dollars));
    let response = gateway.send_question("claude-sonnet-4-5", false).await;
    assert_eq!(response.status, 402, "{response:?}");
    assert!(response.body.contains("--budget-usd"), "{}", response.body);
    gateway.close().await;
    let dollars = Allowance { micro_usd: Some(1_000_000), ..Allowance::default() };
    let gateway = RawGateway::open(&provider, &store, options_with(dollars));
    assert_eq!(gateway.send_question("claude-sonnet-4-5", false).await.status, 200);
    let response = gateway.send_question("claude-unpriced", false).await;
    assert_eq!(response.status, 403, "a model without a price is not free: {response:?}");
    assert!(response.body.contains("[prices."), "{}", response.body);
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn budget_is_shared_across_nodes() {
    let (folder, provider) = (
        Folder::new("nodes"),
        RawProvider::with_reply(http_response("200 OK", "application/json", ANSWER)).await,
    );
    let (one, other) = (store(&folder).await, store(&folder).await);
    let allowance = Allowance { tokens: Some(260), ..Allowance::default() };
    let one = RawGateway::open(&provider, &one, options_with(allowance));
    let other = RawGateway::open(&provider, &other, options_with(allowance));
    assert_eq!(one.send_question("claude-sonnet-4-5", false).await.status, 200);
    assert_eq!(other.send_question("claude-sonnet-4-5", false).await.status, 200);
    for gateway in [&one, &other] {
        while used(gateway).await["used"]["calls"] != 2 {}
        // While the other node has not returned its lease, waiting may help.
        let mut response = gateway.send_question("claude-sonnet-4-5", false).await;
        while response.status == 429 {
            assert!(response.head.contains("retry-after: 2"), "{}", response.head);
            assert!(!response.head.contains("x-should-retry"), "{}", response.head);
            response = gateway.send_question("claude-sonnet-4-5", false).await;
        }
        assert_eq!(response.status, 402, "{response:?}");
    }
    one.close().await;
    other.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rate_limit_returns_retry_after() {
    let (folder, provider) = (
        Folder::new("rate"),
        RawProvider::with_reply(http_response("200 OK", "application/json", ANSWER)).await,
    );
    let allowance = Allowance { per_minute: Some(2), ..Allowance::default() };
    let gateway = RawGateway::open(&provider, &store(&folder).await, options_with(allowance));
    assert_eq!(gateway.send_question("claude-sonnet-4-5", false).await.status, 200);
    assert_eq!(gateway.send_question("claude-sonnet-4-5", false).await.status, 200);
    let response = gateway.send_question("claude-sonnet-4-5", false).await;
    assert_eq!(response.status, 429, "{response:?}");
    let wait = response.head.lines().find_map(|line| line.strip_prefix("retry-after: ")).unwrap();
    assert!((1..=60).contains(&wait.parse::<u64>().unwrap()), "{wait}");
    // Requests for the usage report do not count.
    assert_eq!(used(&gateway).await["used"]["calls"], 2);
    gateway.close().await;
}

/// A caller that disconnects before the provider reports usage is charged for the output received
/// so far.
#[tokio::test(flavor = "multi_thread")]
async fn early_disconnect_is_still_billed() {
    let provider = RawProvider::with_handler(async |mut stream| {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let cut = STREAM.find("event: content_block_stop").unwrap();
        let start = format!("{STREAM_HEAD}{}", &STREAM[..cut]);
        stream.write_all(start.as_bytes()).await.unwrap();
        // Wait until the gateway disconnects.
        stream.read_u8().await.ok();
    })
    .await;
    let folder = Folder::new("leaver");
    let gateway =
        RawGateway::open(&provider, &store(&folder).await, options_with(Allowance::default()));
    let mut stream = gateway
        .connect(&gateway.request("/v1/messages", "", &question("claude-sonnet-4-5", true)))
        .await;
    read_until(&mut stream, "Hello there").await;
    drop(stream);
    provider.is_alone().await;
    while used(&gateway).await["used"]["calls"] != 1 {}
    let used = used(&gateway).await;
    assert_eq!((&used["used"]["input"], &used["used"]["output"]), (&json!(100), &json!(2)));
    gateway.close().await;
}

/// A caller that disconnects before the first byte is still charged for its input.
#[tokio::test(flavor = "multi_thread")]
async fn disconnect_before_the_first_byte_bills_the_input() {
    let provider = RawProvider::with_handler(async |mut stream| {
        use tokio::io::AsyncReadExt as _;
        // Wait until the gateway disconnects.
        stream.read_u8().await.ok();
    })
    .await;
    let folder = Folder::new("deserter");
    let gateway =
        RawGateway::open(&provider, &store(&folder).await, options_with(Allowance::default()));
    let request = gateway.request("/v1/messages", "", &question("claude-sonnet-4-5", false));
    let stream = gateway.connect(&request).await;
    until(|| provider.open.load(std::sync::atomic::Ordering::SeqCst) == 1).await;
    drop(stream);
    provider.is_alone().await;
    while used(&gateway).await["used"]["calls"] != 1 {}
    assert!(used(&gateway).await["used"]["input"].as_u64().unwrap() > 10);
    gateway.close().await;
}

async fn read_until(stream: &mut tokio::net::TcpStream, text: &str) {
    use tokio::io::AsyncReadExt as _;
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains(text) {
        assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0);
    }
}

/// Sends a request to the router of a server, without a connection.
async fn local_response(handle: &throughline_server::ServerHandle, path: &str) -> (u16, String) {
    use http_body_util::BodyExt as _;
    use tower_service::Service as _;
    let request = hyper::Request::get(path).body(http_body_util::Empty::<bytes::Bytes>::new());
    let response = handle.router().call(request.unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

/// A shutdown lets streams finish, and their usage is stored.
#[tokio::test(flavor = "multi_thread")]
async fn shutdown_lets_streams_finish() {
    let (go_on, wait) = tokio::sync::watch::channel(false);
    let provider = RawProvider::with_handler(move |mut stream| {
        let mut wait = wait.clone();
        async move {
            use tokio::io::AsyncWriteExt as _;
            let (start, rest) = STREAM.split_at(STREAM.find("event: content_block_stop").unwrap());
            stream.write_all(format!("{STREAM_HEAD}{start}").as_bytes()).await.unwrap();
            wait.wait_for(|goes_on| *goes_on).await.unwrap();
            stream.write_all(rest.as_bytes()).await.unwrap();
        }
    })
    .await;
    let folder = Folder::new("stop");
    let journal = store(&folder).await;
    let mut gateway = RawGateway::open(&provider, &journal, options_with(Allowance::default()));
    let mut stream = gateway
        .connect(&gateway.request("/v1/messages", "", &question("claude-sonnet-4-5", true)))
        .await;
    read_until(&mut stream, "Hello there").await;
    assert_eq!(gateway.metric("throughline_open_streams").await, "1");
    gateway.stop();
    // New connections are refused, and open connections learn that the gateway is not ready.
    while tokio::net::TcpStream::connect(&gateway.address).await.is_ok() {}
    let ready = local_response(&gateway.handle, "/readyz").await;
    assert_eq!(ready, (503, r#"{"status":"the gateway is shutting down"}"#.to_owned()));
    assert_eq!(local_response(&gateway.handle, "/healthz").await.0, 200);
    go_on.send(true).unwrap();
    read_until(&mut stream, "message_stop").await;
    gateway.stopped().await;
    let gateway = RawGateway::open(&provider, &journal, options_with(Allowance::default()));
    assert_eq!(used(&gateway).await["used"]["output"], 20);
    gateway.close().await;
}

/// If a shutdown aborts a call, the call's usage is still stored.
#[tokio::test(flavor = "multi_thread")]
async fn call_aborted_by_shutdown_is_billed() {
    let provider = RawProvider::with_handler(async |mut stream| {
        use tokio::io::AsyncReadExt as _;
        // Wait until the gateway disconnects.
        stream.read_u8().await.ok();
    })
    .await;
    let folder = Folder::new("abort");
    let journal = store(&folder).await;
    let mut options = options_with(Allowance::default());
    options.limits.shutdown = Duration::from_millis(50);
    let mut gateway = RawGateway::open(&provider, &journal, options);
    let request = gateway.request("/v1/messages", "", &question("claude-sonnet-4-5", false));
    let _stream = gateway.connect(&request).await;
    until(|| provider.open.load(std::sync::atomic::Ordering::SeqCst) == 1).await;
    gateway.stop();
    let lines = Arc::clone(&gateway.lines);
    gateway.stopped().await;
    assert_eq!(lines.calls().len(), 1);
    let gateway = RawGateway::open(&provider, &journal, options_with(Allowance::default()));
    assert_eq!(used(&gateway).await["used"]["calls"], 1);
    gateway.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn excess_streams_get_retry_after() {
    let (go_on, wait) = tokio::sync::watch::channel(false);
    let provider = RawProvider::with_handler(move |mut stream| {
        let mut wait = wait.clone();
        async move {
            use tokio::io::AsyncWriteExt as _;
            wait.wait_for(|goes_on| *goes_on).await.unwrap();
            let answer = http_response("200 OK", "application/json", ANSWER);
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await;
    let folder = Folder::new("full");
    let limits = Limits { streams: 2, shutdown: Duration::from_secs(5), ..Limits::default() };
    let options = RawGatewayOptions { limits, ..RawGatewayOptions::default() };
    let gateway = RawGateway::open(&provider, &store(&folder).await, options);
    let question = question("claude-sonnet-4-5", false);
    let mut streams = Vec::new();
    for _ in 0..2 {
        streams.push(gateway.connect(&gateway.request("/v1/messages", "", &question)).await);
    }
    until(|| provider.open.load(std::sync::atomic::Ordering::SeqCst) == 2).await;
    let response = gateway.send("/v1/chat/completions", "", &question).await;
    assert_eq!(response.status, 503, "{response:?}");
    assert!(response.head.contains("retry-after: 1"), "{}", response.head);
    // Requests that need no provider are still answered.
    assert_eq!(gateway.send("/readyz", "", "").await.status, 200);
    go_on.send(true).unwrap();
    for stream in &mut streams {
        assert_eq!(crate::house::read_response(stream).await.status, 200);
    }
    gateway.close().await;
}
