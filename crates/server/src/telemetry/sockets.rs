//! Limits the open WebSockets and the memory of their conversations, and closes them on shutdown.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::access::Caller;
use crate::error::{GatewayError, GatewayResult};
use crate::telemetry::fair_pool::{FairPool, OverSharePolicy, PoolPermit};
use crate::telemetry::{Level, Limits, RETRY_DELAY, Telemetry};

/// The part of `max_request_memory` that conversations on WebSockets may use: one of so many parts.
const MEMORY_PARTS: u64 = 4;

/// Time limits of a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketLimits {
    /// How long a WebSocket may be open. Its running responses may still end.
    pub lifetime: Duration,
    /// How long a WebSocket may be open without a request.
    pub idle: Duration,
    /// How often the gateway sends a ping. A client that sends nothing for several intervals is
    /// disconnected.
    pub ping: Duration,
}

impl Default for SocketLimits {
    fn default() -> Self {
        Self {
            lifetime: Duration::from_hours(1),
            idle: Duration::from_mins(15),
            ping: Duration::from_secs(20),
        }
    }
}

/// Whether WebSockets may start responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketPhase {
    Serving,
    /// The server shuts down: running responses may end, and no new response starts.
    Draining,
    /// All sockets close at once.
    Stopped,
}

/// The WebSockets of a gateway.
pub(crate) struct SocketPool {
    /// One unit for each open socket.
    places: Arc<FairPool>,
    /// One unit for each byte of a conversation that a socket holds.
    memory: Arc<FairPool>,
    phase: watch::Sender<SocketPhase>,
}

impl SocketPool {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            places: FairPool::new(limits.streams as u64, OverSharePolicy::Refuse),
            memory: FairPool::new(limits.memory / MEMORY_PARTS, OverSharePolicy::Refuse),
            phase: watch::Sender::new(SocketPhase::Serving),
        }
    }

    /// Returns a receiver of the phase.
    pub(crate) fn phase(&self) -> watch::Receiver<SocketPhase> {
        self.phase.subscribe()
    }

    /// Reserves memory for a conversation; `None` if all of the memory is in use.
    pub(crate) async fn reserve(&self, caller: &Caller, bytes: usize) -> Option<PoolPermit> {
        let (tenant, is_shared) = (&caller.tenant, caller.admission.is_key());
        self.memory.acquire(tenant, is_shared, bytes as u64, Duration::ZERO).await.ok()
    }

    /// Returns whether the server shuts down.
    pub(crate) fn is_draining(&self) -> bool {
        *self.phase.borrow() != SocketPhase::Serving
    }

    /// Starts no more responses.
    pub(crate) fn begin_drain(&self) {
        self.phase.send_replace(SocketPhase::Draining);
    }

    /// Starts no more responses, and waits until all sockets are closed.
    pub(crate) async fn drain(&self) {
        self.begin_drain();
        self.places.all_free().await;
    }

    /// Closes all sockets at once.
    pub(crate) fn stop(&self) {
        self.phase.send_replace(SocketPhase::Stopped);
    }
}

impl Telemetry {
    /// Admits a WebSocket. Its place is free again when the permit is dropped.
    pub(crate) async fn admit_socket(&self, caller: &Caller) -> GatewayResult<PoolPermit> {
        if self.sockets.is_draining() {
            let message = "the gateway is shutting down; connect again in a moment";
            return Err(GatewayError::new(503, message).after(RETRY_DELAY));
        }
        self.check_budget(&caller.admission)?;
        let (tenant, is_shared) = (&caller.tenant, caller.admission.is_key());
        let place = self.sockets.places.acquire(tenant, is_shared, 1, self.limits.queue).await;
        place.map_err(|_| {
            let message = format!(
                "the gateway has no free WebSocket for this caller (max_streams is {}, and tenants \
                 have equal shares of it): retry in a moment, or send the request over HTTP",
                self.limits.streams
            );
            GatewayError::new(503, message).after(RETRY_DELAY)
        })
    }

    /// Logs a WebSocket that was closed, with the number of its responses.
    pub(crate) fn log_socket(&self, caller: &Caller, responses: u64, reason: &str) {
        self.write_log(Level::Info, |o| {
            o.string("event", "websocket");
            o.maybe_string("key", caller.admission.key_id().map(|id| &**id));
            o.number("responses", responses).string("closed", reason);
        });
    }

    /// Returns the number of open WebSockets.
    pub(crate) fn open_sockets(&self) -> u64 {
        (self.limits.streams as u64).saturating_sub(self.sockets.places.free())
    }
}
