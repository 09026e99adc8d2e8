//! Counts the bytes that a client sends on a WebSocket, so that a message reserves memory while it
//! arrives.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::access::Caller;
use crate::error::GatewayError;
use crate::gateway::websocket::SocketEnd;
use crate::sync::lock;
use crate::telemetry::{MIN_BYTES_PER_SECOND, MemoryReservation, Telemetry};

/// Number of bytes that a client may send before memory is reserved. Each socket has a read buffer
/// of this size.
pub(super) const FREE_BYTES: usize = 8 << 10;

/// Number of further bytes that each reservation admits.
const RESERVED_BYTES: usize = 64 << 10;

/// Size of the header of a control frame from a client.
const CONTROL_HEADER: usize = 6;

/// The bytes that a client has sent on a socket.
pub(super) struct ReceiveMeter {
    state: Mutex<MeterState>,
    /// Wakes the task that reserves memory.
    is_exhausted: Notify,
}

struct MeterState {
    /// Number of bytes since the last complete message.
    pending: usize,
    /// Number of pending bytes up to which the stream is read.
    admitted: usize,
    /// When the first pending byte arrived.
    started: Option<Instant>,
    /// When the last byte arrived.
    received: Instant,
    /// The reader that waits for memory.
    reader: Option<Waker>,
    room: Option<MemoryReservation>,
}

impl ReceiveMeter {
    pub(super) fn new() -> Self {
        let state = MeterState {
            pending: 0,
            admitted: FREE_BYTES,
            started: None,
            received: Instant::now(),
            reader: None,
            room: None,
        };
        Self { state: Mutex::new(state), is_exhausted: Notify::new() }
    }

    /// Returns when the last byte arrived.
    pub(super) fn last_received(&self) -> Instant {
        lock(&self.state).received
    }

    /// Returns whether a part of a message has arrived.
    pub(super) fn is_receiving(&self) -> bool {
        lock(&self.state).pending > 0
    }

    /// Records a ping or pong from the client, which may arrive between the parts of a message.
    pub(super) fn end_control_frame(&self, payload: usize) {
        let mut state = lock(&self.state);
        state.pending = state.pending.saturating_sub(CONTROL_HEADER + payload);
        if state.pending == 0 {
            state.started = None;
        }
    }

    /// Records that a message is complete. Returns the memory that was reserved for it; `None` for
    /// a short message.
    pub(super) fn end_message(&self) -> Option<MemoryReservation> {
        let mut state = lock(&self.state);
        (state.pending, state.admitted, state.started) = (0, FREE_BYTES, None);
        state.room.take()
    }

    /// Reserves memory for messages while they arrive. Returns the reason to close the socket when
    /// there is no memory, or when a message arrives too slowly.
    pub(super) async fn supervise(
        &self,
        operations: &Telemetry,
        caller: &Caller,
    ) -> (SocketEnd, GatewayError) {
        let (interval, patience) = (operations.limits.sockets.ping, operations.limits.body);
        let mut checks = interval_at(Instant::now() + interval, interval);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.is_exhausted.notified() => {
                    let Some((needed, room)) = self.next_reservation() else { continue };
                    let mut room = room.unwrap_or_else(|| operations.new_reservation(caller));
                    if let Err(problem) = room.resize_message(needed).await {
                        return (SocketEnd::NoMemory, problem);
                    }
                    self.admit(needed, room);
                }
                _ = checks.tick() => {
                    if self.is_too_slow(patience) {
                        let message =
                            "the message arrived too slowly; send at least 16 KiB per second";
                        return (SocketEnd::TooSlow, GatewayError::new(408, message));
                    }
                }
            }
        }
    }

    /// Returns the number of bytes to reserve, and the present reservation; `None` if the reader
    /// does not wait.
    fn next_reservation(&self) -> Option<(usize, Option<MemoryReservation>)> {
        let mut state = lock(&self.state);
        let is_waiting = state.pending >= state.admitted;
        is_waiting.then(|| (state.pending + RESERVED_BYTES, state.room.take()))
    }

    fn admit(&self, admitted: usize, room: MemoryReservation) {
        let mut state = lock(&self.state);
        (state.admitted, state.room) = (admitted, Some(room));
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Returns whether the pending bytes took longer than `patience` and the time that they take at
    /// the minimum transfer rate.
    fn is_too_slow(&self, patience: Duration) -> bool {
        let state = lock(&self.state);
        let seconds = u64::try_from(state.pending / MIN_BYTES_PER_SECOND).unwrap_or(u64::MAX);
        let allowed = patience.saturating_add(Duration::from_secs(seconds));
        state.started.is_some_and(|started| started.elapsed() > allowed)
    }

    /// Returns whether the stream may be read. If not, the reader is woken later.
    fn may_read(&self, reader: &Waker) -> bool {
        let mut state = lock(&self.state);
        if state.pending < state.admitted {
            return true;
        }
        state.reader = Some(reader.clone());
        drop(state);
        self.is_exhausted.notify_one();
        false
    }

    fn record(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let (mut state, now) = (lock(&self.state), Instant::now());
        state.pending += bytes;
        state.received = now;
        state.started.get_or_insert(now);
    }
}

/// A stream that is read only as far as memory is reserved.
pub(super) struct MeteredStream<S> {
    inner: S,
    meter: Arc<ReceiveMeter>,
}

impl<S> MeteredStream<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, meter: Arc::new(ReceiveMeter::new()) }
    }

    pub(super) fn meter(&self) -> Arc<ReceiveMeter> {
        Arc::clone(&self.meter)
    }

    /// Returns the stream itself, which is read without a limit.
    pub(super) fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for MeteredStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.meter.may_read(context.waker()) {
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(context, buffer))?;
        this.meter.record(buffer.filled().len().saturating_sub(before));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MeteredStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }
}
