//! A caller's body, neither too large nor too slow.

use std::time::Duration;

use axum::body::{Body, BodyDataStream, HttpBody as _};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use tokio::time::{Instant, timeout_at};

use crate::exchange::Problem;
use crate::operations::Room;

/// How many bytes the slowest line carries in a second.
const SLOWEST_LINE: usize = 16 << 10;

/// How much room is made for a body before it has come.
const MOST_ROOM: usize = 1 << 20;

/// How many bytes of one body are read before the others have their turn.
const TURN: usize = 256 << 10;

/// How long what is thrown away rests after each of those.
const REST: Duration = Duration::from_millis(2);

/// The whole body. It has that time, and what a slow line needs for what has come. Of one that is too large the rest is still
/// taken, for that time, and thrown away: many callers do not listen before they have said all.
pub(crate) async fn whole_body(
    body: Body,
    limit: usize,
    patience: Duration,
    room: &mut Room,
) -> Result<Bytes, Problem> {
    let too_large = || {
        let limit = limit >> 20;
        Problem::new(413, format!("the body is larger than {limit} MiB: send less"))
    };
    let started = Instant::now();
    // What is told to come finds its room, but nobody gets much by telling.
    let told = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX).min(MOST_ROOM);
    let mut pieces = body.into_data_stream();
    let mut whole = BytesMut::new();
    let mut only: Option<Bytes> = None;
    loop {
        let length = whole.len() + only.as_ref().map_or(0, Bytes::len);
        let needs = u64::try_from(length / SLOWEST_LINE).unwrap_or(u64::MAX);
        let deadline = started + patience + Duration::from_secs(needs);
        let piece = match timeout_at(deadline, pieces.next()).await {
            Ok(Some(Ok(piece))) => piece,
            Ok(Some(Err(_))) => return Err(Problem::new(400, "the body was cut: send all of it")),
            Ok(None) => break,
            Err(_) => {
                let message = "the body came too slowly: send it at 16 KiB in a second at least";
                return Err(Problem::new(408, message));
            }
        };
        if length.saturating_add(piece.len()) > limit {
            tokio::spawn(timeout_at(Instant::now() + patience, throw_away(pieces)));
            return Err(too_large());
        }
        room.reserve_text(length + piece.len()).await?;
        // A body that came in one piece is not copied.
        if whole.is_empty() && only.is_none() {
            only = Some(piece);
        } else {
            if let Some(first) = only.take() {
                whole.reserve(told.max(first.len() + piece.len()));
                whole.extend_from_slice(&first);
            }
            whole.extend_from_slice(&piece);
            // A body that comes as fast as it is read leaves the others their turn.
            if length / TURN != whole.len() / TURN {
                tokio::task::yield_now().await;
            }
        }
    }
    Ok(only.unwrap_or_else(|| whole.freeze()))
}

/// Reads what nobody wants, so that its sender comes to read the answer; in no hurry, for it may be endless.
async fn throw_away(mut pieces: BodyDataStream) {
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
