//! Tests that a reply which Gemini interrupts and continues is one turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::compaction::TenantNames;
use crate::harness::{ClientDialect, GatewayOptions, MODELS, QUESTION, SimGateway};
use crate::house::{RawGateway, RawGatewayOptions, RawProvider, http_response, store};
use serde_json::{Value, json};
use throughline_server::{Keyring, ReplayMode};
use throughline_sim::Options;
use throughline_testkit::Folder;
use tokio::io::AsyncWriteExt as _;

const GEMINI: &str = MODELS[2];

/// A reply in three parts, a second reply, and a third one.
const SCRIPT: &str = r#"[
    {"thoughts": ["Where to begin?"], "texts": ["One, two, "], "stop": "continuation"},
    {"texts": ["three, four, "], "stop": "continuation"},
    {"texts": ["five."]},
    {"thoughts": ["Let me look."], "calls": [{"name": "get_weather", "arguments": {"city": "Paris"}}]},
    {"texts": ["Sunny."]}
]"#;

async fn open(keyring: Option<Arc<dyn Keyring>>) -> SimGateway {
    let simulators = Options { script: SCRIPT.parse().unwrap(), ..Options::default() };
    let mut options = GatewayOptions::of(ReplayMode::Repair);
    options.keyring = keyring.unwrap_or(options.keyring);
    SimGateway::open_with(options, simulators).await
}

/// Returns the visible text of the messages that a reply adds.
fn text_of(dialect: ClientDialect, reply: &[Value]) -> String {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let texts: Vec<Value> = match dialect {
        ClientDialect::Messages => list(&reply[0]["content"]),
        ClientDialect::Responses => reply.iter().flat_map(|item| list(&item["content"])).collect(),
        ClientDialect::Chat => vec![json!({"text": reply[0]["content"]})],
        ClientDialect::Gemini => {
            let parts = reply.iter().flat_map(|content| list(&content["parts"]));
            parts.filter(|part| part["thought"] != true).collect()
        }
    };
    texts.iter().filter_map(|part| part["text"].as_str()).collect()
}

fn assert_intact(gateway: &SimGateway, requests: usize, label: &str) {
    let ledger = gateway.ledger();
    assert_eq!(ledger.entries.len(), requests, "{label}: {ledger:#?}");
    assert!(ledger.all_verified(), "{label}: {ledger:#?}");
}

/// A client of another dialect sends one request and gets one reply. Later turns contain the
/// signatures of all parts, even if the client drops everything but the text.
#[tokio::test(flavor = "multi_thread")]
async fn gateway_continues_the_reply_for_other_dialects() {
    for dialect in [ClientDialect::Messages, ClientDialect::Responses, ClientDialect::Chat] {
        for (stream, drops) in [(false, false), (true, false), (false, true), (true, true)] {
            let label = format!("{dialect:?}, streamed {stream}, drops {drops}");
            let gateway = open(None).await;
            let mut history = vec![dialect.user(QUESTION)];
            let reply = gateway.send_history(dialect, GEMINI, &history, stream).await;
            let reply = reply.map_err(|error| format!("{label}: {error}")).unwrap();
            assert_eq!(text_of(dialect, &reply), "One, two, three, four, five.", "{label}");
            assert_intact(&gateway, 3, &label);
            history.extend(if drops { dialect.stripped(reply) } else { reply });
            history.push(dialect.user("And the weather?"));
            let reply = gateway.send_history(dialect, GEMINI, &history, stream).await.unwrap();
            let calls = dialect.calls(&reply);
            assert_eq!(calls.len(), 1, "{label}");
            // The request contained the signatures of all three parts.
            let last = gateway.ledger().entries.last().cloned().unwrap();
            assert_eq!(last.returned.len(), 3, "{label}: {last:#?}");
            history.extend(if drops { dialect.stripped(reply) } else { reply });
            history.extend(dialect.results(&calls));
            gateway.send_history(dialect, GEMINI, &history, stream).await.unwrap();
            assert_intact(&gateway, 5, &label);
        }
    }
}

/// Sends a Gemini request and returns its candidates, one per chunk.
async fn generate(
    gateway: &SimGateway,
    body: &Value,
    stream: bool,
    key: &str,
) -> (u16, Vec<Value>) {
    let verb = if stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
    let path = format!("/v1beta/models/{GEMINI}:{verb}");
    let headers: Vec<_> =
        Some(("x-goog-api-key", key)).into_iter().filter(|(_, key)| !key.is_empty()).collect();
    let (status, _, body) =
        gateway.send("POST", &path, body.to_string().into_bytes(), &headers).await;
    let text = String::from_utf8_lossy(&body).into_owned();
    let chunks: Vec<Value> = if stream && status == 200 {
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).unwrap()).collect()
    } else {
        vec![serde_json::from_str(&text).unwrap()]
    };
    let candidates = chunks.into_iter().map(|chunk| match chunk.get("candidates") {
        Some(candidates) => candidates[0].clone(),
        None => chunk,
    });
    (status, candidates.collect())
}

fn request(contents: &[Value], token: Option<&Value>) -> Value {
    let config = json!({"thinkingConfig": {"includeThoughts": true}});
    let tool = json!({"name": "get_weather", "parameters": {"type": "object",
                      "properties": {"city": {"type": "string"}}}});
    let mut body = json!({"contents": contents, "generationConfig": config,
                          "tools": [{"functionDeclarations": [tool]}]});
    if let Some(token) = token {
        body["continuationToken"] = token.clone();
    }
    body
}

/// Runs the three requests of the interrupted reply as Google's client does. Returns the parts of
/// all responses.
async fn merged_parts(gateway: &SimGateway, contents: &[Value], stream: bool) -> Vec<Value> {
    let (mut parts, mut token): (Vec<Value>, Option<Value>) = (Vec::new(), None);
    loop {
        let body = request(contents, token.as_ref());
        let (status, candidates) = generate(gateway, &body, stream, "").await;
        assert_eq!(status, 200, "{candidates:#?}");
        for candidate in &candidates {
            parts.extend(candidate["content"]["parts"].as_array().cloned().unwrap_or_default());
        }
        let last = candidates.last().unwrap();
        if last["finishReason"] != "CONTINUATION" {
            assert_eq!(last["finishReason"], "STOP");
            return parts;
        }
        token = Some(last["continuationToken"].clone());
        assert!(token.as_ref().is_some_and(Value::is_string), "{last:#}");
    }
}

/// A Gemini client continues the reply itself and later sends the merged reply. The gateway finds
/// the merged reply, even if the client joined its texts and dropped the signatures.
#[tokio::test(flavor = "multi_thread")]
async fn merged_reply_of_a_gemini_client_is_one_turn() {
    let dialect = ClientDialect::Gemini;
    for (stream, drops) in [(false, false), (true, false), (false, true), (true, true)] {
        let label = format!("streamed {stream}, drops {drops}");
        let gateway = open(None).await;
        let mut contents = vec![dialect.user(QUESTION)];
        let parts = merged_parts(&gateway, &contents, stream).await;
        let reply = json!({"role": "model", "parts": parts});
        let text = text_of(dialect, std::slice::from_ref(&reply));
        assert_eq!(text, "One, two, three, four, five.", "{label}");
        let joined = json!({"role": "model", "parts": [{"text": text}]});
        contents.push(if drops { joined } else { reply });
        contents.push(dialect.user("And the weather?"));
        let (status, candidates) = generate(&gateway, &request(&contents, None), stream, "").await;
        assert_eq!(status, 200, "{label}: {candidates:#?}");
        let last = gateway.ledger().entries.last().cloned().unwrap();
        assert_eq!(last.returned.len(), 3, "{label}: {last:#?}");
        assert_intact(&gateway, 4, &label);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn token_of_another_tenant_is_refused() {
    let gateway = open(Some(Arc::new(TenantNames))).await;
    let contents = [ClientDialect::Gemini.user(QUESTION)];
    let (status, candidates) =
        generate(&gateway, &request(&contents, None), false, "tl_acme").await;
    assert_eq!(status, 200, "{candidates:#?}");
    let body = request(&contents, Some(&candidates[0]["continuationToken"]));
    let (status, answer) = generate(&gateway, &body, false, "tl_other").await;
    assert_eq!(status, 400, "{answer:#?}");
    assert!(answer[0].to_string().contains("not issued to this caller"), "{answer:#?}");
    assert_eq!(gateway.requests(), 1);
    assert_eq!(generate(&gateway, &body, false, "tl_acme").await.0, 200);
}

/// Without capture, the gateway cannot tell whether a token was issued to the caller.
#[tokio::test(flavor = "multi_thread")]
async fn token_from_a_gateway_key_is_refused_without_replay() {
    let gateway = SimGateway::open_for(ReplayMode::Off, Arc::new(TenantNames)).await;
    let contents = [ClientDialect::Gemini.user(QUESTION)];
    for member in ["continuationToken", "continuation_token"] {
        let mut body = request(&contents, None);
        body[member] = json!("dG9rZW4=");
        let (status, answer) = generate(&gateway, &body, false, "tl_acme").await;
        assert_eq!(status, 400, "{member}: {answer:#?}");
        assert!(answer[0].to_string().contains("`replay` is `off`"), "{member}: {answer:#?}");
    }
    assert_eq!(gateway.requests(), 0);
}

/// Only the provider that issued a token can continue the reply.
#[tokio::test(flavor = "multi_thread")]
async fn token_is_refused_for_another_provider() {
    let gateway = open(None).await;
    let contents = [ClientDialect::Gemini.user(QUESTION)];
    let (_, candidates) = generate(&gateway, &request(&contents, None), false, "").await;
    let body = request(&contents, Some(&candidates[0]["continuationToken"]));
    let path = format!("/v1beta/models/{}:generateContent", MODELS[0]);
    let (status, error) = gateway.raw(&path, body.to_string().into_bytes(), &[]).await;
    assert_eq!(status, 400, "{error:#}");
    assert!(error["error"]["message"].as_str().unwrap().contains("continuationToken"), "{error:#}");
}

/// If the provider does not continue its reply, the caller gets an error and no half reply.
#[tokio::test(flavor = "multi_thread")]
async fn failed_continuation_is_an_error() {
    let script = r#"[{"texts": ["One, "], "stop": "continuation"},
                     {"refuse": {"status": 503, "message": "Overloaded"}}]"#;
    let simulators = Options { script: script.parse().unwrap(), ..Options::default() };
    let gateway = SimGateway::open_with(GatewayOptions::of(ReplayMode::Repair), simulators).await;
    let (path, body) =
        ClientDialect::Chat.request(GEMINI, &[ClientDialect::Chat.user(QUESTION)], false);
    let (status, headers, error) =
        gateway.send("POST", &path, body.to_string().into_bytes(), &[]).await;
    let error: Value = serde_json::from_slice(&error).unwrap();
    assert_eq!(status, 502, "{error:#}");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("did not continue its response: Overloaded"), "{error:#}");
    let call = headers["x-throughline-call"].to_str().unwrap();
    let record = gateway.get(&format!("/v1/throughline/calls/{call}")).await.1;
    assert!(record["usage"]["output"].as_u64().unwrap() > 0, "{record:#}");
}

/// A reply that stays incomplete is an error: the connection fails, or the provider interrupts the
/// reply too often. The tokens of all received parts are recorded.
#[tokio::test(flavor = "multi_thread")]
async fn incomplete_reply_is_an_error() {
    let part = r#"{"candidates":[{"content":{"parts":[{"text":"One, "}],"role":"model"},"finishReason":"CONTINUATION","continuationToken":"dG9rZW4=","index":0}],"usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":3,"totalTokenCount":8},"modelVersion":"gemini-3-pro-preview","responseId":"r1"}"#;
    for (parts, expected) in [(1, ""), (1000, "interrupted its response more than 64 times")] {
        for stream in [false, true] {
            let requests = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&requests);
            let part = http_response("200 OK", "application/json", part);
            let provider = RawProvider::with_handler(move |mut connection| {
                let is_answered = count.fetch_add(1, Ordering::SeqCst) < parts;
                let part = part.clone();
                async move {
                    if is_answered {
                        connection.write_all(part.as_bytes()).await.ok();
                        connection.shutdown().await.ok();
                    }
                }
            })
            .await;
            let folder = Folder::new("continuation");
            let options = RawGatewayOptions { own_wires: true, ..RawGatewayOptions::default() };
            let gateway = RawGateway::open(&provider, &store(&folder).await, options);
            let (path, body) = ClientDialect::Chat.request(
                "gemini-3-pro-preview",
                &[ClientDialect::Chat.user(QUESTION)],
                stream,
            );
            let response = gateway.send(&path, "", &body.to_string()).await;
            let label = format!("{parts} parts, streamed {stream}: {response:?}");
            assert_eq!(response.status, if stream { 200 } else { 502 }, "{label}");
            assert!(response.body.contains(r#""error""#), "{label}");
            assert!(response.body.contains(expected), "{label}");
            assert_eq!(requests.load(Ordering::SeqCst), if parts == 1 { 2 } else { 65 }, "{label}");
            let record = format!("/v1/throughline/calls/{}", response.call);
            let record = gateway.send(&record, "", "").await.body;
            let record: Value = serde_json::from_str(&record).unwrap();
            let tokens = 3 * parts.min(65);
            assert_eq!(record["usage"]["output"], tokens, "{label}: {record:#}");
            gateway.close().await;
        }
    }
}
