//! Upgrades a connection to a WebSocket.

use axum::body::Body;
use axum::http::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ORIGIN,
    SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use axum::response::Response;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::error::{GatewayError, GatewayResult};
use crate::gateway::websocket::metered_stream::{FREE_BYTES, MeteredStream};
use crate::gateway::websocket::{SocketOptions, serve};
use crate::telemetry::PoolPermit;

/// The header in which clients name beta features.
const BETA: HeaderName = HeaderName::from_static("openai-beta");

/// Prefix of the beta feature that selects WebSockets. It has no meaning over HTTP.
const SOCKET_BETA: &str = "responses_websockets";

/// Returns whether a request asks for a WebSocket.
pub(crate) fn is_requested(headers: &HeaderMap) -> bool {
    let value = headers.get(UPGRADE).and_then(|value| value.to_str().ok());
    value.is_some_and(|value| value.trim().eq_ignore_ascii_case("websocket"))
}

/// Accepts the upgrade, and serves the socket in a task of its own. `place` is held until the
/// socket is closed.
pub(crate) fn accept(
    mut parts: Parts,
    options: SocketOptions,
    place: PoolPermit,
) -> GatewayResult<Response> {
    let header = |name: HeaderName| parts.headers.get(name).map(HeaderValue::as_bytes);
    if header(SEC_WEBSOCKET_VERSION) != Some(b"13".as_slice()) {
        let message = "the header sec-websocket-version must be 13";
        return Err(GatewayError::new(400, message));
    }
    let Some(accept) = header(SEC_WEBSOCKET_KEY).map(derive_accept_key) else {
        return Err(GatewayError::new(400, "the header sec-websocket-key is missing"));
    };
    let Some(upgrade) = parts.extensions.remove::<OnUpgrade>() else {
        let message = "this connection cannot become a WebSocket; connect with HTTP/1.1";
        return Err(GatewayError::new(426, message));
    };
    let mut config = WebSocketConfig::default();
    // Thousands of sockets may be open at once.
    config.read_buffer_size = FREE_BYTES;
    // Each event is sent at once.
    config.write_buffer_size = 0;
    config.max_message_size = Some(options.body_limit);
    config.max_frame_size = Some(options.body_limit);
    tokio::spawn(async move {
        // The upgrade fails only if the client disconnects.
        if let Ok(upgraded) = upgrade.await {
            let stream = MeteredStream::new(TokioIo::new(upgraded));
            let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
            serve(socket, options).await;
        }
        drop(place);
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(&accept) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    Ok(response)
}

/// Returns the head of the requests over HTTP that the socket's events stand for.
pub(crate) fn request_parts(handshake: &Parts) -> Parts {
    let (mut parts, ()) = axum::http::Request::new(()).into_parts();
    parts.method = Method::POST;
    parts.uri = handshake.uri.clone();
    parts.version = Version::HTTP_11;
    parts.headers = handshake.headers.clone();
    let of_socket: Vec<HeaderName> = parts.headers.keys().cloned().collect();
    for name in of_socket.into_iter().filter(is_of_handshake) {
        parts.headers.remove(name);
    }
    let betas = handshake.headers.get_all(BETA).iter().filter_map(|value| value.to_str().ok());
    let betas = betas.flat_map(|value| value.split(',')).map(str::trim);
    let betas: Vec<&str> = betas.filter(|beta| !beta.starts_with(SOCKET_BETA)).collect();
    parts.headers.remove(BETA);
    if let Ok(betas) = HeaderValue::from_str(&betas.join(","))
        && !betas.is_empty()
    {
        parts.headers.insert(BETA, betas);
    }
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    parts.headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    parts
}

/// Returns whether a header belongs to the handshake only. The handshake has checked the origin,
/// and events are never compressed.
fn is_of_handshake(name: &HeaderName) -> bool {
    [CONNECTION, UPGRADE, ORIGIN, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH].contains(name)
        || name.as_str().starts_with("sec-websocket-")
}
