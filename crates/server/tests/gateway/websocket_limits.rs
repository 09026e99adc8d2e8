//! Tests the limits of WebSockets: memory, time, queues, keys and shutdown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::json;
use throughline_core::{StoreFuture, Tenant};
use throughline_json::Name;
use throughline_server::{Admission, Allowance, Keyring, Limits, ReplayMode, SocketLimits};
use throughline_testkit::Folder;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::oneshot;
use tokio::time::{interval, sleep, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};

use crate::harness::{GatewayOptions, MODELS, SimGateway, serve, serve_on};
use crate::house::{RawGateway, RawGatewayOptions, RawProvider, STREAM, STREAM_HEAD, store};
use crate::websocket::{
    GatedProvider, PATIENCE, TestSocket, created, end, message, request, sse, start, user,
};

fn options_with(limits: Limits) -> GatewayOptions {
    GatewayOptions { limits, ..GatewayOptions::of(ReplayMode::Repair) }
}

fn socket_limits(sockets: SocketLimits) -> GatewayOptions {
    options_with(Limits { sockets, ..Limits::default() })
}

async fn open_gateway(options: GatewayOptions) -> SimGateway {
    SimGateway::open_with(options, throughline_sim::Options::default()).await
}

/// Reads the close frame.
async fn closed(socket: &mut TestSocket) -> (CloseCode, String) {
    match socket.message().await {
        Message::Close(Some(CloseFrame { code, reason })) => (code, reason.to_string()),
        message => panic!("{message:?} is no close frame"),
    }
}

/// Sends the first part of a message.
async fn send_part(socket: &mut TestSocket, length: usize) {
    let frame = Frame::message(" ".repeat(length), OpCode::Data(Data::Text), false);
    socket.0.send(Message::Frame(frame)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_messages_are_within_the_memory_limit() {
    let limits = Limits { memory: 2 << 20, queue: Duration::from_secs(2), ..Limits::default() };
    let gateway = open_gateway(options_with(limits)).await;
    let mut first = TestSocket::open(gateway.url()).await;
    send_part(&mut first, 512 << 10).await;
    // The gateway answers the ping after it has received the part.
    first.0.send(Message::Ping("received".into())).await.unwrap();
    loop {
        let answer = timeout(PATIENCE, first.0.next()).await.expect("the gateway answers");
        if matches!(answer.unwrap().unwrap(), Message::Pong(_)) {
            break;
        }
    }
    let mut second = TestSocket::open(gateway.url()).await;
    send_part(&mut second, 512 << 10).await;
    let error = second.until("error").await;
    assert_eq!(error["status"], 503, "{error}");
    assert!(error["error"]["message"].as_str().unwrap().contains("max_request_memory"), "{error}");
    assert_eq!(closed(&mut second).await.0, CloseCode::Again);
    // A small request still fits.
    let mut third = TestSocket::open(gateway.url()).await;
    third.create(&json!({"model": MODELS[0], "input": "Hello."})).await;
    // The memory is free again after the sockets are closed.
    drop((first, second));
    third.create(&json!({"model": MODELS[0], "input": "Hello. ".repeat(30_000)})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_requests_are_within_the_memory_limit() {
    let (provider, [stream]) = GatedProvider::new();
    let limits = Limits { memory: 2 << 20, queue: Duration::from_millis(100), ..Limits::default() };
    let (url, _journal, _folder) = serve(Arc::clone(&provider) as _, options_with(limits)).await;
    let mut socket = TestSocket::open(&url).await;
    socket.send(&created(&request(MODELS[1], &[user("Count.")], None))).await;
    stream.send(start("resp_1")).unwrap();
    socket.until("response.created").await;
    // Two requests of 384 KiB wait for the lane, and a third one is refused.
    let large = created(&request(MODELS[1], &[user(&"x".repeat(384 << 10))], None));
    for _ in 0..3 {
        socket.send(&large).await;
    }
    let error = socket.until("error").await;
    assert_eq!(error["status"], 503, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_upload_counts_as_a_sign_of_life() {
    let sockets = SocketLimits { ping: Duration::from_millis(250), ..SocketLimits::default() };
    let gateway = open_gateway(socket_limits(sockets)).await;
    let mut socket = TestSocket::open(gateway.url()).await;
    let event = created(&json!({"model": MODELS[0], "input": "Hello. ".repeat(64)})).to_string();
    // One masked frame, whose mask changes nothing.
    let mut frame = vec![0x81, 0xfe];
    frame.extend_from_slice(&u16::try_from(event.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(event.as_bytes());
    // The upload takes longer than the four intervals in which a client must answer.
    let mut pace = interval(Duration::from_millis(25));
    for part in frame.chunks(frame.len().div_ceil(60)) {
        pace.tick().await;
        socket.0.get_mut().write_all(part).await.unwrap();
    }
    socket.until("response.completed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_upload_ends_the_socket() {
    let sockets = SocketLimits { ping: Duration::from_millis(50), ..SocketLimits::default() };
    let limits = Limits { sockets, body: Duration::from_millis(200), ..Limits::default() };
    let gateway = open_gateway(options_with(limits)).await;
    let mut socket = TestSocket::open(gateway.url()).await;
    send_part(&mut socket, 100).await;
    let error = socket.until("error").await;
    assert_eq!(error["status"], 408, "{error}");
    assert_eq!(closed(&mut socket).await.0, CloseCode::Policy);
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_answers_no_pings_is_disconnected() {
    let sockets = SocketLimits { ping: Duration::from_millis(50), ..SocketLimits::default() };
    let gateway = open_gateway(socket_limits(sockets)).await;
    let mut socket = TestSocket::open(gateway.url()).await;
    // Reading the connection itself answers no pings.
    let mut received = Vec::new();
    while !String::from_utf8_lossy(&received).contains("did not answer pings") {
        let read = timeout(PATIENCE, socket.0.get_mut().read_buf(&mut received)).await;
        assert!(read.expect("the gateway closes the socket").unwrap() > 0, "no close frame");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_and_old_sockets_are_closed() {
    let ping = Duration::from_millis(50);
    let sockets = SocketLimits { ping, idle: ping * 4, ..SocketLimits::default() };
    let gateway = open_gateway(socket_limits(sockets)).await;
    let mut socket = TestSocket::open(gateway.url()).await;
    let expected = (CloseCode::Normal, "no request for too long".to_owned());
    assert_eq!(closed(&mut socket).await, expected);
    let sockets = SocketLimits { ping, lifetime: ping * 4, ..SocketLimits::default() };
    let gateway = open_gateway(socket_limits(sockets)).await;
    let mut socket = TestSocket::open(gateway.url()).await;
    let error = socket.until("error").await;
    assert_eq!(error["error"]["code"], "websocket_connection_limit_reached", "{error}");
    assert_eq!(closed(&mut socket).await.0, CloseCode::Normal);
}

#[tokio::test(flavor = "multi_thread")]
async fn steering_does_not_extend_the_lifetime() {
    let (provider, [stream]) = GatedProvider::new();
    let lifetime = Duration::from_secs(2);
    let sockets = SocketLimits { lifetime, ..SocketLimits::default() };
    let (url, _journal, _folder) = serve(Arc::clone(&provider) as _, socket_limits(sockets)).await;
    let mut socket = TestSocket::open(&url).await;
    socket.send(&created(&request(MODELS[1], &[user("Count.")], None))).await;
    stream.send(start("resp_1")).unwrap();
    socket.until("response.created").await;
    steer(&mut socket).await;
    // The lifetime passes while the response runs.
    sleep(lifetime).await;
    stream.send(end("resp_1", &message("One."))).unwrap();
    drop(stream);
    socket.until("response.completed").await;
    let failed = socket.event().await;
    assert_eq!(failed["type"], "response.steer.failed", "{failed}");
    assert_eq!(failed["error"]["code"], "successor_creation_failed", "{failed}");
    let error = socket.until("error").await;
    assert_eq!(error["error"]["code"], "websocket_connection_limit_reached", "{error}");
    assert_eq!(closed(&mut socket).await.0, CloseCode::Normal);
    assert_eq!(provider.requests.lock().unwrap().len(), 1);
}

/// Adds input to the running response `resp_1`.
async fn steer(socket: &mut TestSocket) {
    let input = "In German.";
    let steer = json!({"type": "response.steer", "previous_response_id": "resp_1", "input": input});
    socket.send(&steer).await;
    let accepted = socket.event().await;
    assert_eq!(accepted["type"], "response.steer.accepted", "{accepted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_ends_running_responses_and_starts_none() {
    let (provider, [stream]) = GatedProvider::new();
    let folder = Folder::new("websocket");
    let store = format!("sqlite://{}", folder.join("store.db").display());
    let options = throughline_store::Options::default();
    let store = throughline_store::open(&store, &options).await.unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async move { drop(stopped.await) };
    let options = GatewayOptions { drains: true, ..GatewayOptions::of(ReplayMode::Repair) };
    let url = serve_on(store, Arc::clone(&provider) as _, options, stopped).await;
    let mut socket = TestSocket::open(&url).await;
    let event = created(&request(MODELS[1], &[user("Count.")], None));
    socket.send(&event).await;
    stream.send(start("resp_1")).unwrap();
    socket.until("response.created").await;
    // This request waits for its lane.
    socket.send(&event).await;
    steer(&mut socket).await;
    stop.send(()).unwrap();
    let error = socket.until("error").await;
    assert_eq!(error["status"], 503, "{error}");
    stream.send(end("resp_1", &message("One."))).unwrap();
    drop(stream);
    socket.until("response.completed").await;
    let failed = socket.event().await;
    assert_eq!(failed["type"], "response.steer.failed", "{failed}");
    assert_eq!(failed["error"]["code"], "successor_creation_failed", "{failed}");
    assert_eq!(failed["steer"]["input"], "In German.", "{failed}");
    assert_eq!(closed(&mut socket).await.0, CloseCode::Restart);
    assert_eq!(provider.requests.lock().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_waiting_requests_are_refused() {
    let (provider, [stream]) = GatedProvider::new();
    let options = GatewayOptions::of(ReplayMode::Repair);
    let (url, _journal, _folder) = serve(Arc::clone(&provider) as _, options).await;
    let mut socket = TestSocket::open(&url).await;
    let event = created(&request(MODELS[1], &[user("Count.")], None));
    socket.send(&event).await;
    stream.send(start("resp_1")).unwrap();
    socket.until("response.created").await;
    for _ in 0..65 {
        socket.send(&event).await;
    }
    let error = socket.until("error").await;
    assert_eq!(
        (&error["status"], &error["error"]["code"]),
        (&json!(429), &json!("websocket_queue_full"))
    );
    assert_eq!(provider.requests.lock().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_does_not_read_is_disconnected() {
    let (provider, [stream]) = GatedProvider::new();
    let limits = Limits { slow_reader: Duration::from_millis(200), ..Limits::default() };
    let (url, _journal, _folder) = serve(Arc::clone(&provider) as _, options_with(limits)).await;
    let mut socket = TestSocket::open(&url).await;
    socket.send(&created(&request(MODELS[1], &[user("Count.")], None))).await;
    stream.send(start("resp_1")).unwrap();
    socket.until("response.created").await;
    // More text than the buffers of the connection hold.
    let delta = json!({"type": "response.output_text.delta", "sequence_number": 1,
                       "item_id": "msg_1", "output_index": 0, "content_index": 0,
                       "delta": "x".repeat(256 << 10)});
    for _ in 0..64 {
        // The gateway may cancel the request before all of it is sent.
        if stream.send(sse(&delta)).is_err() {
            break;
        }
    }
    timeout(PATIENCE, provider.cancelled.notified()).await.expect("the request is cancelled");
}

/// A keyring with one key, which can be revoked.
struct OneKey {
    is_revoked: AtomicBool,
    allowance: Allowance,
}

impl Keyring for OneKey {
    fn admit<'a>(&'a self, _: Option<&'a str>) -> StoreFuture<'a, Admission> {
        let admission = if self.is_revoked.load(Ordering::SeqCst) {
            Admission::Refused
        } else {
            let (tenant, id, models) = (Tenant::from("alpha"), Name::from("key_1"), Vec::new());
            Admission::Key { role: None, tenant, id, models, allowance: self.allowance }
        };
        Box::pin(async move { Ok(admission) })
    }
}

async fn open_with_key(allowance: Allowance) -> (SimGateway, Arc<OneKey>, TestSocket) {
    let keyring = Arc::new(OneKey { is_revoked: AtomicBool::new(false), allowance });
    let gateway = SimGateway::open_for(ReplayMode::Repair, Arc::<OneKey>::clone(&keyring)).await;
    let headers = [("authorization", "Bearer tl_key")];
    let socket = TestSocket::open_with(gateway.url(), &headers).await.unwrap();
    (gateway, keyring, socket)
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_key_starts_no_response_on_an_open_socket() {
    let (gateway, keyring, mut socket) = open_with_key(Allowance::default()).await;
    let body = json!({"model": MODELS[0], "input": "Hello."});
    socket.create(&body).await;
    keyring.is_revoked.store(true, Ordering::SeqCst);
    let error = socket.create_refused(&body).await;
    assert_eq!(error["status"], 401, "{error}");
    assert_eq!(gateway.requests(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn budget_and_rate_limit_hold_between_responses_of_a_socket() {
    // A response without a maximum reserves 4,096 output tokens.
    let budget = Allowance { tokens: Some(4200), ..Allowance::default() };
    let rate = Allowance { per_minute: Some(2), ..Allowance::default() };
    for (allowance, status, expected) in [(budget, 402, "budget"), (rate, 429, "minute")] {
        let (gateway, _keyring, mut socket) = open_with_key(allowance).await;
        let event = created(&json!({"model": MODELS[0], "input": "Hello."}));
        let (mut completed, mut refusal) = (0, None);
        // A new minute may start meanwhile.
        while refusal.is_none() && completed < 8 {
            socket.send(&event).await;
            loop {
                let event = socket.event().await;
                match event["type"].as_str().unwrap() {
                    "response.completed" => completed += 1,
                    "error" => refusal = Some(event),
                    _ => continue,
                }
                break;
            }
        }
        let refusal = refusal.expect("a response is refused");
        assert_eq!(refusal["status"], status, "{refusal}");
        let text = refusal["error"]["message"].as_str().unwrap();
        assert!(text.contains(expected), "{text}");
        assert!(completed > 0, "the first response is refused");
        assert_eq!(gateway.requests(), completed);
    }
}

/// Waits until the gateway has logged the end of a socket, and returns the log line.
async fn socket_line(gateway: &RawGateway) -> String {
    let waiting = async {
        loop {
            match gateway.lines.of("websocket").pop() {
                Some(line) => return line,
                None => tokio::task::yield_now().await,
            }
        }
    };
    timeout(PATIENCE, waiting).await.expect("the gateway logs the end of the socket")
}

/// A client that disconnects in the middle of a response is charged for what the provider sent. The
/// end of its connection is no error, whether or not the client sends a close frame.
#[tokio::test(flavor = "multi_thread")]
async fn disconnect_is_billed_and_is_no_invalid_frame() {
    for sends_close in [true, false] {
        let provider = RawProvider::with_handler(async |mut stream| {
            let cut = STREAM.find("event: content_block_stop").unwrap();
            let start = format!("{STREAM_HEAD}{}", &STREAM[..cut]);
            stream.write_all(start.as_bytes()).await.unwrap();
            // Wait until the gateway disconnects.
            stream.read_u8().await.ok();
        })
        .await;
        let folder = Folder::new("socket-leaver");
        let (tenant, id) = (Tenant::from("acme"), "key_1".into());
        let allowance = Allowance::default();
        let admission =
            Some(Admission::Key { role: None, tenant, id, models: Vec::new(), allowance });
        let options = RawGatewayOptions { admission, ..RawGatewayOptions::default() };
        let gateway = RawGateway::open(&provider, &store(&folder).await, options);
        let url = format!("http://{}", gateway.address);
        let key = [("x-api-key", "tl_any")];
        let mut socket = TestSocket::open_with(&url, &key).await.unwrap();
        socket.send(&created(&json!({"model": "claude-sonnet-4-5", "input": "Hello"}))).await;
        socket.until("response.output_text.delta").await;
        if sends_close {
            socket.0.close(None).await.unwrap();
        }
        drop(socket);
        provider.is_alone().await;
        let usage = async || {
            let response = gateway.send("/v1/throughline/usage", "", "").await;
            serde_json::from_str::<serde_json::Value>(&response.body).unwrap()["used"].clone()
        };
        let charged = async { while usage().await["calls"] != 1 {} };
        timeout(PATIENCE, charged).await.expect("the call is charged");
        let used = usage().await;
        assert_eq!((&used["input"], &used["output"]), (&json!(100), &json!(2)), "{used}");
        let line = socket_line(&gateway).await;
        assert!(line.starts_with("info "), "{line}");
        assert!(line.contains("\"closed\":\"the client disconnected\""), "{line}");
        gateway.close().await;
    }
}
