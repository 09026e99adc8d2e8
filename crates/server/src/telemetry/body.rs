//! Receives a request body within size and time limits.

use std::time::Duration;

use axum::body::{Body, BodyDataStream, HttpBody as _};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use tokio::time::{Instant, timeout_at};

use crate::error::{GatewayError, GatewayResult};
use crate::telemetry::MemoryReservation;

/// Minimum accepted transfer rate in bytes per second.
pub(crate) const MIN_BYTES_PER_SECOND: usize = 16 << 10;

/// Maximum buffer size that is allocated before any of the body arrives.
const MAX_PREALLOCATION: usize = 1 << 20;

/// Number of bytes to read from one body before other tasks run.
const TURN: usize = 256 << 10;

/// Pause after every [`TURN`] bytes while a body is discarded.
const REST: Duration = Duration::from_millis(2);

/// Receives the complete body within `patience`, plus the time that the received bytes take at the
/// minimum transfer rate. If the body is too large, the rest is read and discarded for up to
/// `patience`. Many clients read the response only after they have sent the whole body.
pub(crate) async fn read_body(
    body: Body,
    limit: usize,
    patience: Duration,
    room: &mut MemoryReservation,
) -> GatewayResult<Bytes> {
    let too_large = || exceeds_limit("the body", limit);
    let started = Instant::now();
    // The announced length sizes the buffer, up to a maximum that makes false announcements
    // harmless.
    let announced =
        usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX).min(MAX_PREALLOCATION);
    let mut pieces = body.into_data_stream();
    let mut joined = BytesMut::new();
    let mut only: Option<Bytes> = None;
    loop {
        let length = joined.len() + only.as_ref().map_or(0, Bytes::len);
        let needs = u64::try_from(length / MIN_BYTES_PER_SECOND).unwrap_or(u64::MAX);
        let deadline = started + patience + Duration::from_secs(needs);
        let piece = match timeout_at(deadline, pieces.next()).await {
            Ok(Some(Ok(piece))) => piece,
            Ok(Some(Err(_))) => {
                return Err(GatewayError::new(
                    400,
                    "the body was truncated; send the request again",
                ));
            }
            Ok(None) => break,
            Err(_) => {
                let message = "the body arrived too slowly; send at least 16 KiB per second";
                return Err(GatewayError::new(408, message));
            }
        };
        if length.saturating_add(piece.len()) > limit {
            tokio::spawn(timeout_at(Instant::now() + patience, discard(pieces)));
            return Err(too_large());
        }
        room.reserve_text(length + piece.len()).await?;
        // A body that arrives in one piece is not copied.
        if joined.is_empty() && only.is_none() {
            only = Some(piece);
        } else {
            if let Some(first) = only.take() {
                joined.reserve(announced.max(first.len() + piece.len()));
                joined.extend_from_slice(&first);
            }
            joined.extend_from_slice(&piece);
            // Let other tasks run even if this body arrives as fast as it is read.
            if length / TURN != joined.len() / TURN {
                tokio::task::yield_now().await;
            }
        }
    }
    Ok(only.unwrap_or_else(|| joined.freeze()))
}

/// Returns the error for content that exceeds the limit of a request body in bytes.
pub(crate) fn exceeds_limit(content: &str, limit: usize) -> GatewayError {
    let limit = if limit.is_multiple_of(1 << 20) {
        format!("{} MiB", limit >> 20)
    } else if limit.is_multiple_of(1 << 10) {
        format!("{} KiB", limit >> 10)
    } else {
        format!("{limit} bytes")
    };
    let message = format!(
        "{content} exceeds the limit of {limit}; send a smaller request, or raise `body_limit` in \
         the [gateway] section of throughline.toml"
    );
    GatewayError::new(413, message)
}

/// Discards the rest of a body, so that the client starts to read the response. Pauses between
/// reads, because the body may be endless.
async fn discard(mut pieces: BodyDataStream) {
    let mut left = TURN;
    while let Some(Ok(piece)) = pieces.next().await {
        left = match left.checked_sub(piece.len()) {
            Some(left) => left,
            None => {
                tokio::time::sleep(REST).await;
                TURN
            }
        };
    }
}
