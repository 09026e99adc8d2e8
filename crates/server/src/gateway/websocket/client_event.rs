//! Reads the events that a client sends on a WebSocket.

use throughline_json::{Name, Node, Tree};

use crate::error::GatewayError;
use crate::gateway::websocket::steering::SteerSubmission;
use crate::telemetry::MemoryReservation;

/// Maximum length of a lane's name in bytes.
const MAX_LANE_NAME: usize = 256;

/// An event from the client.
pub(super) enum ClientEvent {
    Create(CreateRequest),
    /// `response.steer`; the tree is the complete event.
    Steer(Tree, MemoryReservation),
}

/// A request for a response on a lane.
pub(super) struct CreateRequest {
    /// The `stream_id`; `None` for the unnamed lane.
    pub(super) lane: Option<Name>,
    /// The complete event.
    pub(super) body: Tree,
    /// Steering input that the response continues with.
    pub(super) steers: Vec<SteerSubmission>,
    /// The memory that is reserved for the request until its response has ended.
    pub(super) memory: MemoryReservation,
}

/// An invalid event, and the lane that it names.
pub(super) struct InvalidEvent {
    pub(super) lane: Option<Name>,
    pub(super) problem: GatewayError,
}

/// Classifies and checks an event.
pub(super) fn read(body: Tree, memory: MemoryReservation) -> Result<ClientEvent, InvalidEvent> {
    let root = body.root();
    let invalid = |code: Option<(&'static str, &'static str)>, message: String| InvalidEvent {
        lane: None,
        problem: GatewayError { code, ..GatewayError::new(400, message) },
    };
    let kind = root.text_of("type").unwrap_or_default();
    match &*kind {
        "response.create" => {}
        "response.steer" => return Ok(ClientEvent::Steer(body, memory)),
        "" => {
            let message = "the event has no `type`: send a JSON object with the type \
                           `response.create` or `response.steer`";
            return Err(invalid(Some(("type", "invalid_event")), message.to_owned()));
        }
        other => {
            let message = format!(
                "the event type `{other}` is not supported: send `response.create` or \
                 `response.steer`"
            );
            return Err(invalid(Some(("type", "invalid_event")), message));
        }
    }
    let lane = match root.present("stream_id") {
        None => None,
        Some(lane) => match lane.name().filter(|name| is_lane_name(name)) {
            Some(name) => Some(name),
            None => {
                let message = format!(
                    "`stream_id` must have 1 to {MAX_LANE_NAME} letters, digits, dots, hyphens or \
                     underscores"
                );
                return Err(invalid(Some(("stream_id", "invalid_stream_id")), message));
            }
        },
    };
    if root.get("background").and_then(Node::bool) == Some(true) {
        let message = "`background` is not supported on a WebSocket; send the request over HTTP";
        let code = Some(("background", "unsupported_parameter"));
        return Err(InvalidEvent { lane, ..invalid(code, message.to_owned()) });
    }
    Ok(ClientEvent::Create(CreateRequest { lane, body, steers: Vec::new(), memory }))
}

fn is_lane_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    !name.is_empty() && name.len() <= MAX_LANE_NAME && name.bytes().all(is_letter)
}
