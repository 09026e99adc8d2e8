//! The queue of chunks for the caller, with a limit for slow readers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;

use crate::response::StreamAborted;

/// Maximum number of bytes queued for a slow reader. A single larger chunk is still queued.
const AHEAD: u32 = 64 << 10;

pub(super) const DISCONNECTED: &str = "the caller disconnected";

/// The next bytes for the caller, or the error that aborts its stream.
pub(super) type ClientChunk = Result<Bytes, StreamAborted>;

/// `Ok` while the stream continues, otherwise the reason why the stream ended.
pub(super) type RelayResult = Result<(), &'static str>;

/// A queued chunk and the queue space it takes.
pub(super) struct QueuedChunk {
    pub(super) piece: ClientChunk,
    _room: OwnedSemaphorePermit,
}

/// The sending side of the queue to the caller.
pub(super) struct ClientSink {
    pieces: mpsc::UnboundedSender<QueuedChunk>,
    room: Arc<Semaphore>,
    slow_reader: Duration,
}

impl ClientSink {
    pub(super) fn new(pieces: mpsc::UnboundedSender<QueuedChunk>, slow_reader: Duration) -> Self {
        Self { pieces, room: Arc::new(Semaphore::new(AHEAD as usize)), slow_reader }
    }

    /// Waits until the caller disconnects.
    pub(super) async fn closed(&self) {
        self.pieces.closed().await;
    }

    /// Queues a chunk; fails if the caller disconnects or stops reading.
    pub(super) async fn send(&self, piece: ClientChunk) -> RelayResult {
        const DEAF: &str = "the caller stopped reading";
        let length = piece.as_ref().map_or(0, Bytes::len);
        if length == 0 && piece.is_ok() {
            return Ok(());
        }
        let length = u32::try_from(length).map_or(AHEAD, |length| length.min(AHEAD));
        let room = match Arc::clone(&self.room).try_acquire_many_owned(length) {
            Ok(room) => room,
            Err(_) => {
                let room = Arc::clone(&self.room).acquire_many_owned(length);
                let room = tokio::select! {
                    room = timeout(self.slow_reader, room) => room,
                    () = self.pieces.closed() => return Err(DISCONNECTED),
                };
                let Ok(Ok(room)) = room else { return Err(DEAF) };
                room
            }
        };
        self.pieces.send(QueuedChunk { piece, _room: room }).map_err(|_| DISCONNECTED)
    }
}
