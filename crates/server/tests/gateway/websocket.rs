//! Tests WebSocket mode of the Responses API with the simulators and with a scripted provider.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _, stream};
use serde_json::{Value, json};
use throughline_core::{
    StoreFuture, Tenant, Upstream, UpstreamFuture, UpstreamRequest, UpstreamResponse,
};
use throughline_json::Name;
use throughline_server::{Admission, Allowance, Keyring, ReplayMode};
use throughline_testkit::{Folder, figure};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::harness::{
    ClientDialect, GatewayOptions, MODELS, QUESTION, SimGateway, serve, serve_on, upstream,
};

/// Maximum time that a test waits for a message.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// One model on each wire: Anthropic, Responses, Gemini, Chat and Converse.
const TARGETS: [&str; 5] = [
    MODELS[0],
    MODELS[1],
    MODELS[2],
    MODELS[3],
    "sim/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
];

/// The client's end of a WebSocket.
pub(crate) struct TestSocket(pub(crate) WebSocketStream<TcpStream>);

impl TestSocket {
    pub(crate) async fn open(url: &str) -> Self {
        Self::open_with(url, &[]).await.unwrap()
    }

    /// Opens a socket with these headers. The error is the status of a refused handshake.
    pub(crate) async fn open_with(
        url: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Self, u16> {
        let address = url.strip_prefix("http://").unwrap();
        let mut request = format!("ws://{address}/v1/responses").into_client_request().unwrap();
        for (name, value) in headers {
            let (name, value) = (HeaderName::from_static(name), HeaderValue::from_str(value));
            request.headers_mut().insert(name, value.unwrap());
        }
        let stream = TcpStream::connect(address).await.unwrap();
        match tokio_tungstenite::client_async(request, stream).await {
            Ok((socket, _)) => Ok(Self(socket)),
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) async fn send(&mut self, event: &Value) {
        self.0.send(Message::text(event.to_string())).await.unwrap();
    }

    pub(crate) async fn message(&mut self) -> Message {
        loop {
            let message = timeout(PATIENCE, self.0.next()).await.expect("a message arrives");
            match message.expect("the socket is open").unwrap() {
                Message::Ping(_) | Message::Pong(_) => {}
                message => return message,
            }
        }
    }

    /// Returns the next event.
    pub(crate) async fn event(&mut self) -> Value {
        match self.message().await {
            Message::Text(text) => serde_json::from_str(&text).unwrap(),
            message => panic!("{message:?} is no event"),
        }
    }

    /// Reads events up to the next event of this type, and returns that event.
    pub(crate) async fn until(&mut self, kind: &str) -> Value {
        loop {
            let event = self.event().await;
            assert!(event["type"] != "error" || kind == "error", "{event}");
            if event["type"] == kind {
                return event;
            }
        }
    }

    /// Requests a response, and returns the completed response.
    pub(crate) async fn create(&mut self, body: &Value) -> Value {
        self.send(&created(body)).await;
        self.until("response.completed").await["response"].clone()
    }

    /// Requests a response that fails, and returns the error event.
    pub(crate) async fn create_refused(&mut self, body: &Value) -> Value {
        self.send(&created(body)).await;
        self.until("error").await
    }
}

/// Returns the `response.create` event for the body of a request over HTTP.
pub(crate) fn created(body: &Value) -> Value {
    let mut event = body.clone();
    event["type"] = json!("response.create");
    event.as_object_mut().unwrap().remove("stream");
    event
}

/// Returns a request with tools that is not stored.
pub(crate) fn request(model: &str, input: &[Value], previous: Option<&str>) -> Value {
    let (_, mut body) = ClientDialect::Responses.request(model, input, true);
    if let Some(previous) = previous {
        body["previous_response_id"] = json!(previous);
    }
    body
}

pub(crate) fn user(text: &str) -> Value {
    ClientDialect::Responses.user(text)
}

fn id_of(response: &Value) -> String {
    response["id"].as_str().unwrap().to_owned()
}

/// Runs a conversation in which each request contains only the new items.
async fn converse(socket: &mut TestSocket, model: &str, turns: usize) -> usize {
    let dialect = ClientDialect::Responses;
    let (mut input, mut previous, mut calls) = (vec![user(QUESTION)], None, 0);
    for _ in 0..turns {
        let response = socket.create(&request(model, &input, previous.as_deref())).await;
        assert_eq!(response["previous_response_id"].as_str(), previous.as_deref(), "{response}");
        previous = Some(id_of(&response));
        let output = response["output"].as_array().unwrap();
        let called = dialect.calls(output);
        calls += called.len();
        input = match &*called {
            [] => vec![user("Thank you. And once more, please.")],
            called => dialect.results(called),
        };
    }
    calls
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_turns_with_tools_keep_every_seal_on_each_wire() {
    for model in TARGETS {
        let gateway = SimGateway::open(ReplayMode::Repair).await;
        let mut socket = TestSocket::open(gateway.url()).await;
        let calls = converse(&mut socket, model, 20).await;
        assert!(calls > 5, "{model} called {calls} tools");
        gateway.assert_nothing_refused();
        let ledger = gateway.ledger();
        assert_eq!(ledger.entries.len(), 20, "{model}");
        let lost: usize = ledger.entries.iter().map(|entry| entry.lost).sum();
        let returned: usize = ledger.entries.iter().map(|entry| entry.returned.len()).sum();
        figure(&format!("WebSocket, 20 turns, {model}: lost"), lost);
        figure(&format!("WebSocket, 20 turns, {model}: Seals returned"), returned);
        assert_eq!(lost, 0, "{model}");
        let wire = &ledger.entries[0].wire;
        assert!(returned > 0 || wire == "openai-chat", "{model} got no Seal back");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_responses_continue_on_another_socket() {
    for model in TARGETS {
        let gateway = SimGateway::open(ReplayMode::Repair).await;
        let mut body = request(model, &[user("Remember the number 7.")], None);
        body.as_object_mut().unwrap().remove("store");
        let first = TestSocket::open(gateway.url()).await.create(&body).await;
        body["previous_response_id"] = first["id"].clone();
        let called = ClientDialect::Responses.calls(first["output"].as_array().unwrap());
        let mut input = ClientDialect::Responses.results(&called);
        input.push(user("Which number?"));
        body["input"] = json!(input);
        let second = TestSocket::open(gateway.url()).await.create(&body).await;
        assert_eq!(second["previous_response_id"], first["id"], "{model}");
        gateway.assert_nothing_refused();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn warm_up_calls_no_model_and_its_input_is_continued() {
    for model in [MODELS[0], MODELS[1]] {
        let gateway = SimGateway::open(ReplayMode::Repair).await;
        let mut socket = TestSocket::open(gateway.url()).await;
        let prompt = json!({"role": "developer", "content": "Answer in one sentence."});
        let mut warm_up = request(model, std::slice::from_ref(&prompt), None);
        warm_up["generate"] = json!(false);
        socket.send(&created(&warm_up)).await;
        let started = socket.event().await;
        let ended = socket.event().await;
        assert_eq!(started["type"], "response.created");
        assert_eq!(started["response"]["status"], "in_progress");
        assert_eq!(ended["type"], "response.completed");
        assert_eq!(ended["response"]["output"], json!([]));
        for event in [&started, &ended] {
            let created = event["response"]["created_at"].as_u64().unwrap();
            assert!(created > 1_700_000_000, "{event}");
        }
        assert_eq!(gateway.requests(), 0, "a warm-up called the model");
        let warm = id_of(&ended["response"]);
        assert_eq!(started["response"]["id"].as_str(), Some(&*warm));
        let response = socket.create(&request(model, &[user(QUESTION)], Some(&warm))).await;
        assert_eq!(response["previous_response_id"].as_str(), Some(&*warm));
        // The same conversation over HTTP has the same number of tokens.
        let whole = request(model, &[prompt, user(QUESTION)], None);
        let mut whole = whole;
        whole["stream"] = json!(false);
        let whole = whole.to_string().into_bytes();
        let (status, expected) = gateway.raw("/v1/responses", whole, &[]).await;
        assert_eq!(status, 200, "{expected}");
        assert_eq!(response["usage"]["input_tokens"], expected["usage"]["input_tokens"], "{model}");
        // A warm-up of an unknown model fails like a call.
        warm_up["model"] = json!("unknown");
        let error = socket.create_refused(&warm_up).await;
        assert_eq!(error["status"], 404, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_run_in_order_and_name_their_events() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let mut socket = TestSocket::open(gateway.url()).await;
    let on_lane = |lane: &str, text: &str| {
        let mut event = created(&request(MODELS[1], &[user(text)], None));
        event["stream_id"] = json!(lane);
        event
    };
    for (lane, text) in [("a", "One."), ("a", "Two."), ("b", "Three."), ("a", "Four.")] {
        socket.send(&on_lane(lane, text)).await;
    }
    let (mut running, mut ended) = (Vec::new(), Vec::new());
    while ended.len() < 4 {
        let event = socket.event().await;
        let lane = event["stream_id"].as_str().expect("each event names its lane").to_owned();
        match event["type"].as_str().unwrap() {
            "response.created" => {
                assert!(!running.contains(&lane), "two responses run on lane {lane}");
                running.push(lane);
            }
            "response.completed" => {
                running.retain(|known| *known != lane);
                ended.push(lane);
            }
            kind => assert_ne!(kind, "error", "{event}"),
        }
    }
    ended.sort();
    assert_eq!(ended, ["a", "a", "a", "b"]);
    // A new lane forks a response of another lane.
    let mut event = on_lane("a", "Five.");
    socket.send(&event).await;
    let parent = socket.until("response.completed").await["response"].clone();
    event = on_lane("fork", "Six.");
    event["previous_response_id"] = parent["id"].clone();
    let called = ClientDialect::Responses.calls(parent["output"].as_array().unwrap());
    let results = ClientDialect::Responses.results(&called);
    event["input"] = json!([results, vec![user("Six.")]].concat());
    socket.send(&event).await;
    let fork = socket.until("response.completed").await;
    assert_eq!(
        (&fork["stream_id"], &fork["response"]["previous_response_id"]),
        (&json!("fork"), &parent["id"])
    );
    // An event without a lane has no `stream_id`.
    socket.send(&created(&request(MODELS[1], &[user("Seven.")], None))).await;
    assert_eq!(socket.until("response.completed").await.get("stream_id"), None);
    gateway.assert_nothing_refused();
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_lanes_are_refused() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let mut socket = TestSocket::open(gateway.url()).await;
    let mut body = request(MODELS[1], &[user("Hello.")], None);
    body["generate"] = json!(false);
    for lane in [json!(""), json!("two words"), json!("x".repeat(257)), json!(7)] {
        body["stream_id"] = lane.clone();
        let error = socket.create_refused(&body).await;
        assert_eq!(error["error"]["code"], "invalid_stream_id", "{lane}: {error}");
        assert_eq!(error["status"], 400);
    }
    for lane in 0..32 {
        body["stream_id"] = json!(format!("lane-{lane}"));
        socket.create(&body).await;
    }
    body["stream_id"] = json!("one-more");
    let error = socket.create_refused(&body).await;
    assert_eq!(error["error"]["code"], "websocket_stream_limit_reached", "{error}");
    assert_eq!(error["stream_id"], "one-more");
    body["stream_id"] = json!("lane-31");
    socket.create(&body).await;
}

/// Admits the keys of two tenants. Tenant beta may use only Claude.
struct SocketKeys;

impl Keyring for SocketKeys {
    fn admit<'a>(&'a self, key: Option<&'a str>) -> StoreFuture<'a, Admission> {
        Box::pin(async move {
            let Some(tenant) = key.and_then(|key| key.strip_prefix("tl_")) else {
                return Ok(Admission::Refused);
            };
            let models = match tenant {
                "alpha" => Vec::new(),
                "beta" => vec![Name::from("sim/claude*")],
                _ => return Ok(Admission::Refused),
            };
            let (id, allowance) = (Name::from(tenant), Allowance::default());
            Ok(Admission::Key { role: None, tenant: Tenant::from(tenant), id, models, allowance })
        })
    }
}

async fn open_as(gateway: &SimGateway, key: &str) -> Result<TestSocket, u16> {
    let key = format!("Bearer {key}");
    TestSocket::open_with(gateway.url(), &[("authorization", &key)]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_continue_only_their_own_responses() {
    let gateway = SimGateway::open_for(ReplayMode::Repair, Arc::new(SocketKeys)).await;
    let (mut alpha, mut beta) =
        (open_as(&gateway, "tl_alpha").await.unwrap(), open_as(&gateway, "tl_beta").await.unwrap());
    let mut body = json!({"model": MODELS[0], "input": "Hello."});
    let stored = alpha.create(&body).await;
    body["store"] = json!(false);
    let held = alpha.create(&body).await;
    let requests = gateway.requests();
    for id in [&stored["id"], &held["id"]] {
        body["previous_response_id"] = id.clone();
        let error = beta.create_refused(&body).await;
        assert_eq!(error["status"], 400, "{error}");
        assert_eq!(error["error"]["code"], "previous_response_not_found", "{error}");
        assert_eq!(error["error"]["param"], "previous_response_id", "{error}");
    }
    // A response that is not stored belongs to its connection.
    let error = open_as(&gateway, "tl_alpha").await.unwrap().create_refused(&body).await;
    assert_eq!(error["error"]["code"], "previous_response_not_found", "{error}");
    // Another end user of the same tenant does not continue it either.
    body["user"] = json!("mallory");
    let error = alpha.create_refused(&body).await;
    assert_eq!(error["error"]["code"], "previous_response_not_found", "{error}");
    assert_eq!(gateway.requests(), requests, "a refused request reached the provider");
    body.as_object_mut().unwrap().remove("user");
    alpha.create(&body).await;
    // The rules of the key apply to each response, and a refusal leaves the socket open.
    let error = beta.create_refused(&json!({"model": MODELS[1], "input": "Hello."})).await;
    assert_eq!(error["status"], 403, "{error}");
    beta.create(&json!({"model": MODELS[0], "input": "Hello."})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn handshakes_are_authenticated() {
    let gateway = SimGateway::open_for(ReplayMode::Repair, Arc::new(SocketKeys)).await;
    assert_eq!(open_as(&gateway, "tl_gamma").await.err(), Some(401));
    assert_eq!(TestSocket::open_with(gateway.url(), &[]).await.err(), Some(401));
    let open = SimGateway::open(ReplayMode::Repair).await;
    let origin = [("origin", "https://example.com")];
    assert_eq!(TestSocket::open_with(open.url(), &origin).await.err(), Some(403));
    let own = [("origin", open.url())];
    let mut socket = TestSocket::open_with(open.url(), &own).await.unwrap();
    socket.create(&json!({"model": MODELS[1], "input": "Hello."})).await;
    let headers = [("connection", "upgrade"), ("upgrade", "websocket")];
    let (status, _, body) = open.send("GET", "/v1/responses", Vec::new(), &headers).await;
    assert_eq!(status, 400, "{body:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_messages_get_an_error_and_leave_the_socket_open() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let mut socket = TestSocket::open(gateway.url()).await;
    for (text, expected) in [
        ("{\"type\":", "not a JSON object"),
        ("[1]", "not a JSON object"),
        ("{}", "has no `type`"),
        (r#"{"type":"session.update"}"#, "`session.update` is not supported"),
        (r#"{"type":"response.create","background":true}"#, "`background` is not supported"),
        (r#"{"type":"response.create","input":"Hello."}"#, "does not specify a model"),
        (r#"{"type":"response.create","model":"unknown","input":"Hello."}"#, "no model `unknown`"),
    ] {
        socket.0.send(Message::text(text)).await.unwrap();
        let error = socket.until("error").await;
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{text}: {message}");
        assert!(matches!(error["status"].as_u64(), Some(400 | 404)), "{error}");
        assert!(error["error"]["type"].is_string(), "{error}");
    }
    assert_eq!(gateway.requests(), 0);
    socket.create(&json!({"model": MODELS[0], "input": "Hello."})).await;
    // The provider's refusal is an error event with the provider's status.
    let headers = [("x-sim-fault", "429:7")];
    let mut socket = TestSocket::open_with(gateway.url(), &headers).await.unwrap();
    let error = socket.create_refused(&json!({"model": MODELS[1], "input": "Hello."})).await;
    assert_eq!(error["status"], 429, "{error}");
    assert_eq!(error["headers"]["retry-after"], "7", "{error}");
    let headers = [("x-sim-fault", "cut@900")];
    let mut socket = TestSocket::open_with(gateway.url(), &headers).await.unwrap();
    socket.send(&created(&json!({"model": MODELS[1], "input": "Hello."}))).await;
    let error = socket.until("error").await;
    assert_eq!(error["status"], 502, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_message_gets_an_error_before_the_socket_closes() {
    let gateway = SimGateway::open(ReplayMode::Repair).await;
    let mut socket = TestSocket::open(gateway.url()).await;
    socket.0.send(Message::text(" ".repeat((64 << 20) + 1))).await.unwrap();
    let error = socket.event().await;
    assert_eq!((&error["type"], &error["status"]), (&json!("error"), &json!(413)), "{error}");
    match socket.message().await {
        Message::Close(Some(CloseFrame { code, .. })) => assert_eq!(code, CloseCode::Size),
        message => panic!("{message:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_closes_sockets_with_a_reason() {
    let simulator = throughline_sim::start(throughline_sim::Options::default()).await.unwrap();
    let folder = Folder::new("websocket");
    let store = format!("sqlite://{}", folder.join("store.db").display());
    let options = throughline_store::Options::default();
    let store = throughline_store::open(&store, &options).await.unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async move { drop(stopped.await) };
    let options = GatewayOptions::of(ReplayMode::Repair);
    let url = serve_on(store, Arc::new(upstream(&simulator.url())), options, stopped).await;
    let mut socket = TestSocket::open(&url).await;
    socket.create(&json!({"model": MODELS[0], "input": "Hello."})).await;
    stop.send(()).unwrap();
    match socket.message().await {
        Message::Close(Some(CloseFrame { code, .. })) => assert_eq!(code, CloseCode::Restart),
        message => panic!("{message:?}"),
    }
}

/// A provider whose streams the test writes.
pub(crate) struct GatedProvider {
    pub(crate) requests: Mutex<Vec<Value>>,
    streams: Mutex<VecDeque<mpsc::UnboundedReceiver<Bytes>>>,
    pub(crate) cancelled: Arc<Notify>,
}

/// Reports the end of a stream.
struct StreamGuard(Arc<Notify>);

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl GatedProvider {
    /// Creates a provider, and the senders of its next streams.
    pub(crate) fn new<const N: usize>() -> (Arc<Self>, [mpsc::UnboundedSender<Bytes>; N]) {
        let mut streams = VecDeque::new();
        let senders = std::array::from_fn(|_| {
            let (sender, receiver) = mpsc::unbounded_channel();
            streams.push_back(receiver);
            sender
        });
        let provider = Self {
            requests: Mutex::default(),
            streams: Mutex::new(streams),
            cancelled: Arc::default(),
        };
        (Arc::new(provider), senders)
    }

    /// Returns the texts, calls and results in the input of a request.
    fn input(&self, request: usize) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        assert!(requests[request].get("previous_response_id").is_none(), "{}", requests[request]);
        let input = requests[request]["input"].as_array().unwrap().iter();
        input
            .map(|item| match item["type"].as_str() {
                Some("function_call" | "function_call_output") => {
                    format!("{} {}", item["type"].as_str().unwrap(), item["call_id"])
                }
                _ => {
                    let content = &item["content"];
                    let text = content.as_str().or_else(|| content[0]["text"].as_str());
                    text.unwrap_or_default().to_owned()
                }
            })
            .collect()
    }
}

impl Upstream for GatedProvider {
    fn send(&self, request: UpstreamRequest) -> UpstreamFuture<'_> {
        self.requests.lock().unwrap().push(serde_json::from_slice(&request.body).unwrap());
        let chunks = self.streams.lock().unwrap().pop_front().expect("a stream is left");
        let guard = StreamGuard(Arc::clone(&self.cancelled));
        let body = stream::unfold((chunks, guard), async |(mut chunks, guard)| {
            chunks.recv().await.map(|chunk| (Ok(chunk), (chunks, guard)))
        });
        let headers = vec![("content-type".into(), "text/event-stream".into())];
        let response = UpstreamResponse { status: 200, headers, body: Box::pin(body) };
        Box::pin(async { Ok(response) })
    }
}

pub(crate) fn sse(event: &Value) -> Bytes {
    Bytes::from(format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
}

fn response_json(id: &str, status: &str, output: &[Value]) -> Value {
    json!({"id": id, "object": "response", "created_at": 0, "status": status, "model": "gpt-5.2",
           "output": output, "previous_response_id": null,
           "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}})
}

/// Returns the first event of a response.
pub(crate) fn start(id: &str) -> Bytes {
    let response = response_json(id, "in_progress", &[]);
    sse(&json!({"type": "response.created", "sequence_number": 0, "response": response}))
}

/// Returns the other events of a response with one output item.
pub(crate) fn end(id: &str, item: &Value) -> Bytes {
    let added = json!({"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": item});
    let done = json!({"type": "response.output_item.done", "sequence_number": 2, "output_index": 0, "item": item});
    let response = response_json(id, "completed", std::slice::from_ref(item));
    let completed =
        json!({"type": "response.completed", "sequence_number": 3, "response": response});
    Bytes::from([sse(&added), sse(&done), sse(&completed)].concat())
}

pub(crate) fn message(text: &str) -> Value {
    json!({"id": format!("msg_{text}"), "type": "message", "status": "completed", "role": "assistant",
           "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn disconnect_cancels_the_request_to_the_provider() {
    let (provider, [stream]) = GatedProvider::new();
    let options = GatewayOptions::of(ReplayMode::Repair);
    let (url, ..) = serve(Arc::clone(&provider) as _, options).await;
    let mut socket = TestSocket::open(&url).await;
    socket.send(&created(&request(MODELS[1], &[user("Count.")], None))).await;
    stream.send(start("resp_1")).unwrap();
    socket.until("response.created").await;
    drop(socket);
    timeout(PATIENCE, provider.cancelled.notified()).await.expect("the request is cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn steering_input_continues_the_response() {
    let (provider, [first, second]) = GatedProvider::new();
    let options = GatewayOptions::of(ReplayMode::Repair);
    let (url, _journal, _folder) = serve(Arc::clone(&provider) as _, options).await;
    let mut socket = TestSocket::open(&url).await;
    let mut event = created(&request(MODELS[1], &[user("Count.")], None));
    event["stream_id"] = json!("main");
    socket.send(&event).await;
    first.send(start("resp_1")).unwrap();
    socket.until("response.created").await;
    let steer =
        json!({"type": "response.steer", "previous_response_id": "resp_1", "input": "In German."});
    socket.send(&steer).await;
    let accepted = socket.event().await;
    assert_eq!(accepted["type"], "response.steer.accepted", "{accepted}");
    assert_eq!(accepted["steer"]["previous_response_id"], "resp_1");
    assert_eq!(accepted["stream_id"], "main");
    first.send(end("resp_1", &message("One."))).unwrap();
    drop(first);
    socket.until("response.completed").await;
    second.send(start("resp_2")).unwrap();
    second.send(end("resp_2", &message("Eins."))).unwrap();
    drop(second);
    let successor = socket.until("response.created").await;
    assert_eq!(successor["response"]["id"], "resp_2");
    assert_eq!(successor["response"]["previous_response_id"], "resp_1");
    assert_eq!(successor["stream_id"], "main");
    socket.until("response.completed").await;
    assert_eq!(provider.input(1), ["Count.", "One.", "In German."]);
    // A response that has ended or is unknown cannot be steered.
    for (id, code) in [("resp_2", "response_already_completed"), ("resp_9", "response_not_found")] {
        let steer = json!({"type": "response.steer", "previous_response_id": id, "input": "Stop."});
        socket.send(&steer).await;
        let failed = socket.event().await;
        assert_eq!(failed["type"], "response.steer.failed", "{failed}");
        assert_eq!(failed["error"]["code"], code, "{failed}");
        assert_eq!(failed["steer"]["input"], "Stop.", "{failed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn steering_input_waits_for_tool_results() {
    let (provider, [first, second]) = GatedProvider::new();
    let options = GatewayOptions::of(ReplayMode::Repair);
    let (url, _journal, _folder) = serve(Arc::clone(&provider) as _, options).await;
    let mut socket = TestSocket::open(&url).await;
    socket.send(&created(&request(MODELS[1], &[user("Weather?")], None))).await;
    first.send(start("resp_1")).unwrap();
    socket.until("response.created").await;
    let input =
        json!([{"role": "user", "content": [{"type": "input_text", "text": "In Celsius."}]}]);
    let mut steer =
        json!({"type": "response.steer", "previous_response_id": "resp_1", "input": "x"});
    steer["input"] = json!([{"role": "assistant", "content": "No."}]);
    socket.send(&steer).await;
    assert_eq!(socket.event().await["error"]["code"], "invalid_input");
    steer["input"] = input;
    socket.send(&steer).await;
    assert_eq!(socket.event().await["type"], "response.steer.accepted");
    let call = json!({"id": "fc_1", "type": "function_call", "status": "completed", "call_id": "call_1",
                      "name": "get_weather", "arguments": "{\"city\":\"Paris\"}"});
    first.send(end("resp_1", &call)).unwrap();
    drop(first);
    socket.until("response.completed").await;
    let pending = socket.event().await;
    assert_eq!(pending["type"], "response.steer.pending", "{pending}");
    let stub = json!({"type": "function_call_output", "call_id": "call_1", "name": "get_weather"});
    assert_eq!(pending["required_input"], json!([stub]));
    let results = ClientDialect::Responses.results(&[("call_1".into(), "get_weather".into())]);
    socket.send(&created(&request(MODELS[1], &results, Some("resp_1")))).await;
    second.send(start("resp_2")).unwrap();
    second.send(end("resp_2", &message("Sunny."))).unwrap();
    drop(second);
    socket.until("response.completed").await;
    let expected =
        ["Weather?", "function_call \"call_1\"", "function_call_output \"call_1\"", "In Celsius."];
    assert_eq!(provider.input(1), expected);
}
