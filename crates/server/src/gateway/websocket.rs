//! WebSocket mode of the Responses API.
//!
//! A client opens a WebSocket at `/v1/responses` and sends `response.create` events. Each event
//! runs through the same handler as a streamed `POST /v1/responses`, and its events are sent as
//! text messages. A named lane (`stream_id`) runs its responses one after another; different lanes
//! run at once.
//!
//! | file | contents |
//! |---|---|
//! | `handshake.rs` | the upgrade of the connection |
//! | `metered_stream.rs` | the memory of messages that arrive |
//! | `client_event.rs` | the events that a client sends |
//! | `turn.rs` | one response, from the request to its last event |
//! | `conversation_cache.rs` | the conversations that a socket holds |
//! | `steering.rs` | input that a client adds to a running response |
//! | `event.rs` | error events |

mod client_event;
mod conversation_cache;
mod event;
mod handshake;
mod metered_stream;
mod steering;
mod turn;

#[cfg(test)]
#[path = "websocket/websocket_tests.rs"]
mod websocket_tests;

use std::collections::{HashSet, VecDeque};
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use throughline_json::{self as json, Json, Name};
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message, Utf8Bytes};

use crate::access::Caller;
use crate::error::{GatewayError, GatewayResult};
use crate::gateway::dialect::GatewayRoute;
use crate::gateway::limited_tree;
use crate::gateway::websocket::client_event::{ClientEvent, CreateRequest, InvalidEvent};
use crate::gateway::websocket::conversation_cache::ConversationCache;
use crate::gateway::websocket::metered_stream::{MeteredStream, ReceiveMeter};
use crate::gateway::websocket::steering::Steering;
use crate::gateway::websocket::turn::TurnEnd;
use crate::response::GatewayResponse;
use crate::sync::lock;
use crate::telemetry::{MemoryReservation, SocketPhase, Telemetry};

pub(crate) use crate::gateway::websocket::handshake::{accept, is_requested, request_parts};

/// The path of the WebSocket.
pub(crate) const PATH: &str = "/v1/responses";

/// Sends the body of a request through the HTTP handler.
pub(crate) type Dispatch = Arc<dyn Fn(Bytes, GatewayRoute) -> DispatchFuture + Send + Sync>;

type DispatchFuture = Pin<Box<dyn Future<Output = GatewayResponse> + Send>>;

type Socket = WebSocketStream<MeteredStream<TokioIo<Upgraded>>>;

/// Maximum number of named lanes of a socket, as at OpenAI.
const MAX_LANES: usize = 32;
/// Maximum number of responses of a socket that run at once, as at OpenAI.
const MAX_RUNNING: usize = 16;
/// Maximum number of requests that wait for their lane.
const MAX_WAITING: usize = 64;
/// Number of events that may wait until the client reads them.
const QUEUED_EVENTS: usize = 8;
/// Number of ping intervals without a byte after which a client counts as gone.
const MISSED_PINGS: u32 = 4;
/// How long the client may take to confirm the end of the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The shared state of a socket and its responses.
struct SocketContext {
    dispatch: Dispatch,
    caller: Caller,
    operations: Arc<Telemetry>,
    body_limit: usize,
    /// The messages to the client. A client that does not read delays the responses.
    messages: mpsc::Sender<Message>,
    state: Mutex<SocketState>,
}

struct SocketState {
    conversations: ConversationCache,
    steering: Steering,
}

/// The client disconnected.
struct SocketClosed;

impl SocketContext {
    /// Sends an event. An event of a named lane names its lane.
    async fn send(&self, event: &Json, lane: Option<&Name>) -> Result<(), SocketClosed> {
        let text = match lane {
            None => event.bytes().clone(),
            Some(lane) => {
                let event = event.tree();
                let event = json::object(|o| {
                    o.nodes(event.root().members()).string("stream_id", lane);
                });
                event.bytes().clone()
            }
        };
        // JSON is always valid UTF-8.
        let text = Utf8Bytes::try_from(text).unwrap_or_default();
        self.messages.send(Message::Text(text)).await.map_err(|_| SocketClosed)
    }
}

/// The settings of a socket.
pub(crate) struct SocketOptions {
    pub(crate) dispatch: Dispatch,
    pub(crate) caller: Caller,
    pub(crate) operations: Arc<Telemetry>,
    pub(crate) body_limit: usize,
    pub(crate) depth_limit: u32,
}

/// Why the gateway closes a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SocketEnd {
    /// A write failed.
    Broken,
    /// The client closed the socket.
    Disconnected,
    Idle,
    Expired,
    NoPong,
    Shutdown,
    TooLarge,
    TooSlow,
    NoMemory,
    Invalid,
    /// A task of the gateway failed.
    Internal,
}

impl SocketEnd {
    fn reason(self) -> &'static str {
        match self {
            SocketEnd::Broken => "the connection failed",
            SocketEnd::Disconnected => "the client disconnected",
            SocketEnd::Idle => "no request for too long",
            SocketEnd::Expired => "the connection reached its time limit",
            SocketEnd::NoPong => "the client did not answer pings",
            SocketEnd::Shutdown => "the gateway is shutting down",
            SocketEnd::TooLarge => "a message exceeds the limit",
            SocketEnd::TooSlow => "a message arrived too slowly",
            SocketEnd::NoMemory => "the gateway has no memory for a message",
            SocketEnd::Invalid => "a frame is invalid",
            SocketEnd::Internal => "internal error",
        }
    }

    fn code(self) -> CloseCode {
        match self {
            SocketEnd::Broken | SocketEnd::Disconnected | SocketEnd::Idle | SocketEnd::Expired => {
                CloseCode::Normal
            }
            SocketEnd::NoPong | SocketEnd::TooSlow => CloseCode::Policy,
            SocketEnd::Shutdown => CloseCode::Restart,
            SocketEnd::TooLarge => CloseCode::Size,
            SocketEnd::NoMemory => CloseCode::Again,
            SocketEnd::Invalid => CloseCode::Protocol,
            SocketEnd::Internal => CloseCode::Error,
        }
    }
}

/// Serves a WebSocket until one side closes it. Unfinished responses are cancelled.
async fn serve(socket: Socket, options: SocketOptions) {
    let SocketOptions { dispatch, caller, operations, body_limit, depth_limit } = options;
    let meter = socket.get_ref().meter();
    let (sink, mut frames) = socket.split();
    let (messages, queue) = mpsc::channel(QUEUED_EVENTS);
    let conversations = ConversationCache::new(body_limit);
    let state = Mutex::new(SocketState { conversations, steering: Steering::default() });
    let context = SocketContext { dispatch, caller, operations, body_limit, messages, state };
    let context = Arc::new(context);
    let mut lanes = Lanes {
        context: Arc::clone(&context),
        meter: Arc::clone(&meter),
        depth_limit,
        running: JoinSet::new(),
        busy: HashSet::new(),
        waiting: VecDeque::new(),
        waiting_bytes: 0,
        names: HashSet::new(),
        responses: 0,
        is_draining: false,
    };
    let mut writer = pin!(write(sink, queue));
    let supervision = async {
        let (end, problem) = meter.supervise(&context.operations, &context.caller).await;
        drop(context.send(&event::from_problem(&problem), None).await);
        end
    };
    let end = tokio::select! {
        end = lanes.serve(&mut frames) => end,
        end = supervision => end,
        _ = &mut writer => SocketEnd::Broken,
    };
    context.operations.log_socket(&context.caller, lanes.responses, end.reason());
    // Dropping the lanes cancels their responses.
    drop(lanes);
    let closing = async {
        match end {
            SocketEnd::Broken => {}
            // Reading on sends the reply to the client's close frame.
            SocketEnd::Disconnected => while let Some(Ok(_)) = frames.next().await {},
            SocketEnd::Idle
            | SocketEnd::Expired
            | SocketEnd::NoPong
            | SocketEnd::Shutdown
            | SocketEnd::TooLarge
            | SocketEnd::TooSlow
            | SocketEnd::NoMemory
            | SocketEnd::Invalid
            | SocketEnd::Internal => {
                let (code, reason) = (end.code(), Utf8Bytes::from_static(end.reason()));
                let close = Message::Close(Some(CloseFrame { code, reason }));
                let (_, sink) = join(context.messages.send(close), writer).await;
                if let Some(mut socket) = sink.and_then(|sink| sink.reunite(frames).ok()) {
                    discard(socket.get_mut().get_mut()).await;
                }
            }
        }
    };
    drop(timeout(CLOSE_TIMEOUT, closing).await);
}

/// Writes messages to the client. Returns the sink after a close frame, or `None` if the connection
/// fails.
async fn write(
    mut sink: SplitSink<Socket, Message>,
    mut queue: mpsc::Receiver<Message>,
) -> Option<SplitSink<Socket, Message>> {
    while let Some(message) = queue.recv().await {
        let is_last = matches!(message, Message::Close(_));
        sink.send(message).await.ok()?;
        if is_last {
            return Some(sink);
        }
    }
    None
}

/// Reads until the client closes the connection. With unread bytes, the end of the connection could
/// reach the client before the last messages.
async fn discard(stream: &mut TokioIo<Upgraded>) {
    let mut scratch = vec![0; 8 << 10];
    while stream.read(&mut scratch).await.is_ok_and(|read| read > 0) {}
}

/// The lanes of a socket and their requests.
struct Lanes {
    context: Arc<SocketContext>,
    meter: Arc<ReceiveMeter>,
    depth_limit: u32,
    running: JoinSet<TurnEnd>,
    busy: HashSet<Option<Name>>,
    waiting: VecDeque<CreateRequest>,
    /// The size of all waiting requests.
    waiting_bytes: usize,
    /// The names of all lanes since the socket was opened.
    names: HashSet<Name>,
    responses: u64,
    /// Whether no further response may start.
    is_draining: bool,
}

impl Lanes {
    /// Handles the frames of the client and the ends of responses.
    async fn serve(&mut self, frames: &mut SplitStream<Socket>) -> SocketEnd {
        let limits = self.context.operations.limits.sockets;
        let mut phase = self.context.operations.sockets.phase();
        let opened = Instant::now();
        let mut pings = interval_at(opened + limits.ping, limits.ping);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut last_frame, mut last_request) = (opened, opened);
        loop {
            let current = *phase.borrow_and_update();
            self.is_draining = current != SocketPhase::Serving;
            if self.is_draining && self.refuse_waiting().await.is_err() {
                return SocketEnd::Broken;
            }
            let is_idle = self.running.is_empty() && self.waiting.is_empty();
            if current == SocketPhase::Stopped || self.is_draining && is_idle {
                return SocketEnd::Shutdown;
            }
            if is_idle && opened.elapsed() >= limits.lifetime {
                drop(self.context.send(&event::from_problem(&expired()), None).await);
                return SocketEnd::Expired;
            }
            tokio::select! {
                frame = frames.next() => {
                    last_frame = Instant::now();
                    let flow = match frame {
                        Some(Ok(Message::Text(text))) => {
                            last_request = last_frame;
                            self.receive(Bytes::from(text), opened + limits.lifetime).await
                        }
                        Some(Ok(Message::Binary(bytes))) => {
                            last_request = last_frame;
                            self.receive(bytes, opened + limits.lifetime).await
                        }
                        Some(Ok(Message::Ping(payload) | Message::Pong(payload))) => {
                            self.meter.end_control_frame(payload.len());
                            ControlFlow::Continue(())
                        }
                        // Only a writer uses single frames.
                        Some(Ok(Message::Frame(_))) => ControlFlow::Continue(()),
                        Some(Ok(Message::Close(_))) | None => {
                            ControlFlow::Break(SocketEnd::Disconnected)
                        }
                        Some(Err(error)) => ControlFlow::Break(self.report(error).await),
                    };
                    if let ControlFlow::Break(end) = flow {
                        return end;
                    }
                }
                Some(ended) = self.running.join_next() => {
                    last_request = Instant::now();
                    // A task ends with an error only if it panicked, and then its lane is unknown.
                    let Ok(ended) = ended else { return SocketEnd::Internal };
                    self.is_draining = *phase.borrow() != SocketPhase::Serving;
                    if self.end_turn(ended, opened + limits.lifetime).await.is_err() {
                        return SocketEnd::Broken;
                    }
                }
                _ = pings.tick() => {
                    // A client cannot answer a ping inside a frame, so each byte counts.
                    let last_byte = last_frame.max(self.meter.last_received());
                    if last_byte.elapsed() >= limits.ping * MISSED_PINGS {
                        return SocketEnd::NoPong;
                    }
                    let is_unused = is_idle && !self.meter.is_receiving();
                    if is_unused && last_request.elapsed() >= limits.idle {
                        return SocketEnd::Idle;
                    }
                    // If the queue is full, the client has not read the last events yet.
                    drop(self.context.messages.try_send(Message::Ping(Bytes::new())));
                }
                changed = phase.changed() => {
                    if changed.is_err() {
                        return SocketEnd::Shutdown;
                    }
                }
            }
        }
    }

    /// Reports a frame that cannot be read.
    async fn report(&self, error: SocketError) -> SocketEnd {
        let (end, problem) = match error {
            SocketError::Capacity(_) => {
                let limit = self.context.body_limit;
                let message = format!("the message exceeds the limit of {limit} bytes");
                (SocketEnd::TooLarge, GatewayError::new(413, message))
            }
            // A client may end the connection without a close frame.
            SocketError::ConnectionClosed
            | SocketError::AlreadyClosed
            | SocketError::Io(_)
            | SocketError::Protocol(
                ProtocolError::ResetWithoutClosingHandshake
                | ProtocolError::ReceivedAfterClosing
                | ProtocolError::SendAfterClosing,
            ) => return SocketEnd::Disconnected,
            SocketError::Protocol(_) | SocketError::Utf8(_) => {
                let message = format!("the frame is invalid: {error}");
                (SocketEnd::Invalid, GatewayError::new(400, message))
            }
            _ => return SocketEnd::Broken,
        };
        drop(self.context.send(&event::from_problem(&problem), None).await);
        end
    }

    /// Handles an event from the client.
    async fn receive(&mut self, text: Bytes, expiry: Instant) -> ControlFlow<SocketEnd> {
        let room = self.meter.end_message();
        let (events, lane) = match self.read_event(text, room).await {
            Ok(ClientEvent::Create(request)) => {
                let lane = request.lane.clone();
                match self.admit(request, expiry) {
                    Ok(()) => return ControlFlow::Continue(()),
                    Err(problem) => (vec![event::from_problem(&problem)], lane),
                }
            }
            Ok(ClientEvent::Steer(steer, memory)) => {
                (lock(&self.context.state).steering.submit(steer.root(), Some(memory)), None)
            }
            Err(InvalidEvent { lane, problem }) => (vec![event::from_problem(&problem)], lane),
        };
        for event in events {
            if self.context.send(&event, lane.as_ref()).await.is_err() {
                return ControlFlow::Break(SocketEnd::Broken);
            }
        }
        ControlFlow::Continue(())
    }

    /// Parses an event, and completes the reservation of its memory.
    async fn read_event(
        &self,
        text: Bytes,
        room: Option<MemoryReservation>,
    ) -> Result<ClientEvent, InvalidEvent> {
        let without_lane = |problem| InvalidEvent { lane: None, problem };
        let operations = &self.context.operations;
        let mut room = room.unwrap_or_else(|| operations.new_reservation(&self.context.caller));
        room.resize_message(text.len()).await.map_err(without_lane)?;
        let parse = async { limited_tree(&text, self.depth_limit, &operations.limits.sizes) };
        let parsed = operations.heavy.run(&self.context.caller, text.len(), parse).await;
        let tree = parsed.and_then(|parsed| parsed).map_err(without_lane)?;
        let tree = tree.filter(|tree| tree.root().is_object()).ok_or_else(|| {
            let message = "the message is not a JSON object: send one event per message";
            without_lane(GatewayError::new(400, message))
        })?;
        room.reserve_entries(tree.entries()).await.map_err(without_lane)?;
        client_event::read(tree, room)
    }

    /// Starts a response, or queues the request until its lane is free.
    fn admit(&mut self, request: CreateRequest, expiry: Instant) -> GatewayResult<()> {
        if self.is_draining {
            return Err(shutting_down());
        }
        if Instant::now() >= expiry {
            return Err(expired());
        }
        let size = request.body.bytes().len();
        if self.waiting.len() >= MAX_WAITING || self.waiting_bytes + size > self.context.body_limit
        {
            let code = Some(("stream_id", "websocket_queue_full"));
            let message = "too many requests wait on this connection; send the request again \
                           after a response has ended";
            return Err(GatewayError { code, ..GatewayError::new(429, message) });
        }
        if let Some(lane) = request.lane.as_ref().filter(|lane| !self.names.contains(*lane)) {
            if self.names.len() >= MAX_LANES {
                let code = Some(("stream_id", "websocket_stream_limit_reached"));
                let message = format!(
                    "a connection has at most {MAX_LANES} named lanes; use one of them, or open \
                     another connection"
                );
                return Err(GatewayError { code, ..GatewayError::new(400, message) });
            }
            self.names.insert(lane.clone());
        }
        self.waiting_bytes += size;
        self.waiting.push_back(request);
        self.start_waiting();
        Ok(())
    }

    /// Refuses the waiting requests of a gateway that shuts down.
    async fn refuse_waiting(&mut self) -> Result<(), SocketClosed> {
        self.waiting_bytes = 0;
        while let Some(request) = self.waiting.pop_front() {
            if request.steers.is_empty() {
                let error = event::from_problem(&shutting_down());
                self.context.send(&error, request.lane.as_ref()).await?;
            } else {
                self.refuse_successor(&request).await?;
            }
        }
        Ok(())
    }

    /// Returns the steering input of a successor that does not start.
    async fn refuse_successor(&self, successor: &CreateRequest) -> Result<(), SocketClosed> {
        for steer in &successor.steers {
            // The event itself names the lane.
            let failed = steering::successor_failed(steer, successor.lane.as_ref());
            self.context.send(&failed, None).await?;
        }
        Ok(())
    }

    /// Frees the lane of a response. Its successor runs before the waiting requests of the lane,
    /// unless the socket has expired.
    async fn end_turn(&mut self, ended: TurnEnd, expiry: Instant) -> Result<(), SocketClosed> {
        self.busy.remove(&ended.lane);
        if let Some(successor) = ended.successor {
            if Instant::now() >= expiry {
                self.refuse_successor(&successor).await?;
            } else {
                self.waiting_bytes += successor.body.bytes().len();
                self.waiting.push_front(successor);
            }
        }
        // The waiting requests of a gateway that shuts down are refused.
        if !self.is_draining {
            self.start_waiting();
        }
        Ok(())
    }

    /// Starts the first waiting request of each free lane.
    fn start_waiting(&mut self) {
        let mut index = 0;
        while self.running.len() < MAX_RUNNING && index < self.waiting.len() {
            let lane = self.waiting.get(index).map(|request| request.lane.clone());
            let is_free = lane.is_some_and(|lane| self.busy.insert(lane));
            if !is_free {
                index += 1;
                continue;
            }
            let Some(request) = self.waiting.remove(index) else { return };
            self.waiting_bytes = self.waiting_bytes.saturating_sub(request.body.bytes().len());
            self.responses += 1;
            self.running.spawn(turn::run(Arc::clone(&self.context), request));
        }
    }
}

fn shutting_down() -> GatewayError {
    GatewayError::new(503, "the gateway is shutting down; connect again in a moment")
}

/// Returns OpenAI's error for a connection that was open for too long.
fn expired() -> GatewayError {
    let code = Some(("connection", "websocket_connection_limit_reached"));
    let message = "the WebSocket reached its time limit; open a new connection to continue";
    GatewayError { code, ..GatewayError::new(400, message) }
}
