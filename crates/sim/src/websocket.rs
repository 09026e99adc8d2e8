//! Simulates WebSocket mode of the Responses API: `response.create` events, warm-ups, lanes, and
//! responses that a client continues although they are not stored.
//!
//! A socket answers its events one after another, also those of different lanes.

use std::collections::HashMap;

use axum::body::{Body, to_bytes};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use throughline_codec::{Framer, Framing};
use throughline_json::{self as json, Json, Node, Tree, object};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

/// Maximum size of a message and of an error response in bytes.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// Members of `response.create` that are not part of a request over HTTP.
const SOCKET_MEMBERS: [&str; 5] = ["type", "stream_id", "generate", "stream", "background"];

/// Returns whether a request asks for a WebSocket.
pub(crate) fn is_requested(parts: &Parts) -> bool {
    let upgrade = parts.headers.get(header::UPGRADE).and_then(|value| value.to_str().ok());
    parts.method == Method::GET
        && upgrade.is_some_and(|value| value.eq_ignore_ascii_case("websocket"))
}

/// Accepts the upgrade. `respond` answers the body of a request over HTTP. The socket closes when
/// `stopped` completes. Returns `None` if the connection cannot be upgraded.
pub(crate) fn accept(
    parts: &mut Parts,
    respond: impl Fn(Bytes) -> Response + Send + Sync + 'static,
    stopped: impl Future<Output = ()> + Send + 'static,
) -> Option<Response> {
    let key = parts.headers.get(header::SEC_WEBSOCKET_KEY)?;
    let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes())).ok()?;
    let upgrade = parts.extensions.remove::<OnUpgrade>()?;
    let mut config = WebSocketConfig::default();
    config.max_message_size = Some(MAX_BYTES);
    config.max_frame_size = Some(MAX_BYTES);
    tokio::spawn(async move {
        // The upgrade fails only if the client disconnects.
        let Ok(upgraded) = upgrade.await else { return };
        let stream = TokioIo::new(upgraded);
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
        let mut session = Session { socket, respond, held: HashMap::new(), warm_ups: 0 };
        tokio::select! {
            _ = session.serve() => {}
            () = stopped => drop(session.socket.close(None).await),
        }
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    Some(response)
}

/// One WebSocket.
struct Session<R> {
    socket: WebSocketStream<TokioIo<Upgraded>>,
    respond: R,
    /// The conversations of responses that are not stored, by response id.
    held: HashMap<String, HeldConversation>,
    warm_ups: u64,
}

/// A conversation after a stored response.
#[derive(Clone, Default)]
struct HeldConversation {
    base: Option<String>,
    items: Vec<Json>,
}

/// The client disconnected.
struct Disconnected;

impl<R: Fn(Bytes) -> Response + Send + Sync> Session<R> {
    async fn serve(&mut self) -> Result<(), Disconnected> {
        while let Some(Ok(message)) = self.socket.next().await {
            let text = match message {
                Message::Text(text) => Bytes::from(text),
                Message::Binary(bytes) => bytes,
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) | Message::Close(_) => {
                    continue;
                }
            };
            match Tree::parse(text) {
                Ok(event) => self.answer(event.root()).await?,
                Err(error) => {
                    let message = format!("The message is not valid JSON: {error}");
                    self.refuse(None, &message).await?;
                }
            }
        }
        Ok(())
    }

    async fn answer(&mut self, event: Node<'_>) -> Result<(), Disconnected> {
        let lane = event.present("stream_id");
        if !event.get("type").is_some_and(|kind| kind.is("response.create")) {
            let message = "Unsupported event type. Supported values are: 'response.create'.";
            return self.refuse(lane, message).await;
        }
        if event.get("background").and_then(Node::bool) == Some(true) {
            return self.refuse(lane, "Unsupported parameter: 'background'.").await;
        }
        let previous = event.present("previous_response_id").and_then(Node::text);
        let known = previous.as_ref().and_then(|id| self.held.get(&**id)).cloned();
        let is_held = known.is_some();
        let base = previous.map(std::borrow::Cow::into_owned);
        let mut conversation = known.unwrap_or(HeldConversation { base, items: Vec::new() });
        let input = event.present("input");
        if let Some(text) = input.filter(|input| input.is_string()) {
            conversation.items.push(object!("role": "user", "content": text));
        }
        conversation.items.extend(input.into_iter().flat_map(Node::elements).map(Node::json));
        if event.get("generate").and_then(Node::bool) == Some(false) {
            return self.warm_up(event, conversation).await;
        }
        let body = json::object(|o| {
            let members = event.members().filter(|(name, _)| {
                let is_input = name.is("input") || name.is("previous_response_id");
                !(SOCKET_MEMBERS.iter().any(|member| name.is(member)) || is_held && is_input)
            });
            o.nodes(members).bool("stream", true);
            if is_held {
                o.maybe_string("previous_response_id", conversation.base.as_deref());
                o.list("input", &conversation.items);
            }
        });
        let response = (self.respond)(body.bytes().clone());
        let is_stored = event.get("store").and_then(Node::bool).unwrap_or(true);
        self.relay(response, lane, (!is_stored).then_some(conversation)).await
    }

    /// Answers a request without output, and holds its input.
    async fn warm_up(
        &mut self,
        event: Node<'_>,
        conversation: HeldConversation,
    ) -> Result<(), Disconnected> {
        self.warm_ups += 1;
        let digest = blake3::Hasher::new()
            .update(event.raw())
            .update(&self.warm_ups.to_le_bytes())
            .finalize()
            .to_hex();
        let id = format!("resp_{}", digest.get(..48).unwrap_or_default());
        let response = |status: &str| {
            json::object(|o| {
                o.string("id", &id).string("object", "response").number("created_at", 0);
                o.string("status", status).maybe("model", event.get("model"));
                o.array("output", |_| {});
                o.object("usage", |o| {
                    o.number("input_tokens", 0).number("output_tokens", 0);
                    o.number("total_tokens", 0);
                });
            })
        };
        let lane = event.present("stream_id");
        let events = [("response.created", "in_progress"), ("response.completed", "completed")];
        self.held.insert(id.clone(), conversation);
        for (number, (kind, status)) in (0u64..).zip(events) {
            let response = response(status);
            let event = object!("type": kind, "sequence_number": number, "response": &response);
            self.send(lane, &event).await?;
        }
        Ok(())
    }

    /// Sends the events of a response, and holds the conversation of a response that is not stored.
    async fn relay(
        &mut self,
        response: Response,
        lane: Option<Node<'_>>,
        mut conversation: Option<HeldConversation>,
    ) -> Result<(), Disconnected> {
        let status = response.status().as_u16();
        if status >= 400 {
            let body = to_bytes(response.into_body(), MAX_BYTES).await.unwrap_or_default();
            let body = Tree::parse(body).ok();
            let error = body.as_ref().and_then(|body| body.root().get("error"));
            let event = json::object(|o| {
                o.string("type", "error").number("status", status.into());
                o.maybe("error", error);
            });
            return self.send(lane, &event).await;
        }
        let mut chunks = response.into_body().into_data_stream();
        let (mut framer, mut complete) = (Framer::new(Framing::Sse), Vec::new());
        while let Some(Ok(chunk)) = chunks.next().await {
            if framer.push(&chunk, &mut complete).is_err() {
                return Ok(());
            }
            for frame in complete.drain(..) {
                let Ok(event) = Json::parse(frame.data) else { continue };
                let tree = event.tree();
                let response = tree.root().get("response");
                let output = response.and_then(|response| response.get("output"));
                let id = response.and_then(|response| response.text_of("id"));
                let is_end = tree.root().get("type").is_some_and(|kind| {
                    kind.is("response.completed") || kind.is("response.incomplete")
                });
                if is_end
                    && let Some(id) = id
                    && let Some(mut conversation) = conversation.take()
                {
                    let output = output.into_iter().flat_map(Node::elements).map(Node::json);
                    conversation.items.extend(output);
                    self.held.insert(id.into_owned(), conversation);
                }
                self.send(lane, &event).await?;
            }
        }
        Ok(())
    }

    async fn refuse(&mut self, lane: Option<Node<'_>>, message: &str) -> Result<(), Disconnected> {
        let error = json::object(|o| {
            o.string("type", "invalid_request_error").null("code").string("message", message);
            o.null("param");
        });
        let event = object!("type": "error", "status": 400u64, "error": &error);
        self.send(lane, &event).await
    }

    /// Sends an event. An event of a named lane names its lane.
    async fn send(&mut self, lane: Option<Node<'_>>, event: &Json) -> Result<(), Disconnected> {
        let tree = event.tree();
        let event = json::object(|o| {
            o.nodes(tree.root().members()).maybe("stream_id", lane);
        });
        // JSON is always valid UTF-8.
        let text = Utf8Bytes::try_from(event.bytes().clone()).unwrap_or_default();
        self.socket.send(Message::Text(text)).await.map_err(|_| Disconnected)
    }
}
