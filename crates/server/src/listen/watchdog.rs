//! Responds to health probes while all runtime workers are blocked.
//!
//! The gateway accepts connections on its asynchronous runtime. If all workers are blocked, no
//! connection is accepted, and an orchestrator whose probe gets no response would kill the process.
//! Therefore a separate thread shares the listening socket. While a task of the runtime sends
//! ticks, the thread only sleeps and adds no cost to requests. When the ticks stop, the thread
//! accepts connections itself. It responds to `/healthz` and `/readyz`, and queues all other
//! connections unread until the runtime can serve them.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{MissedTickBehavior, interval};

/// How often the runtime sends a tick.
const TICK: Duration = Duration::from_millis(100);
/// How long ticks may be missing before the thread accepts connections.
const STALL: Duration = Duration::from_millis(500);
/// How often the thread polls its connections while the runtime is blocked.
const LOOK: Duration = Duration::from_millis(5);
/// How long a connection may send nothing before the thread hands it to the runtime.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of connections that the thread reads from at once.
const MOST: usize = 256;

/// The probes and their responses.
const PROBES: [(&[u8], &str, &str); 2] = [
    (b"GET /healthz ", "200 OK", r#"{"status":"ok"}"#),
    (b"GET /readyz ", "503 Service Unavailable", r#"{"status":"all workers are busy"}"#),
];

/// The runtime's handle to the watchdog thread.
pub(super) struct Watchdog {
    shared: Arc<WatchdogState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct WatchdogState {
    ticks: AtomicU64,
    is_over: AtomicBool,
}

impl Watchdog {
    /// Starts the watchdog thread on a copy of the listening socket. The returned channel receives
    /// the connections that the thread hands to the runtime.
    pub(super) fn start(listener: &impl AsFd) -> io::Result<(Self, UnboundedReceiver<TcpStream>)> {
        let listener = TcpListener::from(listener.as_fd().try_clone_to_owned()?);
        let (hand_over, handed) = unbounded_channel();
        let shared = Arc::new(WatchdogState::default());
        let watch = WatchdogThread { listener, hand_over, shared: Arc::clone(&shared), seen: 0 };
        let thread = thread::Builder::new().name("watchdog".to_owned());
        let thread = thread.spawn(move || watch.run())?;
        Ok((Self { shared, thread: Some(thread) }, handed))
    }

    /// Returns a future that sends ticks to the thread for as long as the future is polled.
    pub(super) fn ticks(&self) -> impl Future<Output = ()> + Send + use<> {
        let shared = Arc::clone(&self.shared);
        async move {
            let mut ticks = interval(TICK);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                shared.ticks.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            drop(thread.join());
        }
    }
}

struct WatchdogThread {
    listener: TcpListener,
    hand_over: UnboundedSender<TcpStream>,
    shared: Arc<WatchdogState>,
    seen: u64,
}

/// A connection that the thread accepted from the listener.
struct AcceptedConnection {
    stream: TcpStream,
    since: Instant,
}

enum ClientKind {
    Probe(&'static str, &'static str),
    Other,
    Undecided,
    Gone,
}

#[expect(clippy::disallowed_methods, reason = "a stall is measured by a monotonic clock")]
fn now() -> Instant {
    Instant::now()
}

impl WatchdogThread {
    fn run(mut self) {
        let mut last = now();
        while !self.shared.is_over.load(Ordering::Relaxed) {
            thread::park_timeout(TICK);
            if self.has_ticked() {
                last = now();
            } else if last.elapsed() >= STALL {
                self.accept_until_tick();
                last = now();
            }
        }
    }

    /// Returns whether the runtime has ticked since the last check.
    fn has_ticked(&mut self) -> bool {
        let ticks = self.shared.ticks.load(Ordering::Relaxed);
        std::mem::replace(&mut self.seen, ticks) != ticks
    }

    /// Accepts connections until the runtime ticks again.
    fn accept_until_tick(&mut self) {
        let mut open: Vec<AcceptedConnection> = Vec::new();
        while !self.has_ticked() && !self.shared.is_over.load(Ordering::Relaxed) {
            while open.len() < MOST
                && let Ok((stream, _)) = self.listener.accept()
            {
                if stream.set_nonblocking(true).is_ok() {
                    open.push(AcceptedConnection { stream, since: now() });
                }
            }
            let mut undecided = Vec::with_capacity(open.len());
            for mut accepted in open.drain(..) {
                match accepted.client_kind() {
                    ClientKind::Probe(status, body) => accepted.answer_probe(status, body),
                    ClientKind::Undecided => undecided.push(accepted),
                    ClientKind::Other => drop(self.hand_over.send(accepted.stream)),
                    ClientKind::Gone => {}
                }
            }
            open = undecided;
            thread::park_timeout(LOOK);
        }
        for accepted in open {
            drop(self.hand_over.send(accepted.stream));
        }
    }
}

impl AcceptedConnection {
    /// Classifies the client by its first bytes, without consuming them.
    fn client_kind(&self) -> ClientKind {
        let mut first = [0; 32];
        match self.stream.peek(&mut first) {
            Ok(0) => ClientKind::Gone,
            Ok(count) => {
                let sent = first.get(..count).unwrap_or_default();
                let begins = |(probe, ..): &&(&[u8], &str, &str)| {
                    let shared = probe.len().min(sent.len());
                    probe.get(..shared) == sent.get(..shared)
                };
                match PROBES.iter().find(begins) {
                    Some((probe, status, body)) if sent.len() >= probe.len() => {
                        ClientKind::Probe(status, body)
                    }
                    Some(_) if self.since.elapsed() < READ_TIMEOUT => ClientKind::Undecided,
                    Some(_) | None => ClientKind::Other,
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if self.since.elapsed() < READ_TIMEOUT {
                    ClientKind::Undecided
                } else {
                    ClientKind::Other
                }
            }
            Err(_) => ClientKind::Gone,
        }
    }

    /// Responds to a probe. The request head is read first, because unread bytes would reset the
    /// connection.
    fn answer_probe(&mut self, status: &str, body: &str) {
        let mut head = [0; 8192];
        drop(self.stream.read(&mut head));
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
             connection: close\r\n\r\n{body}",
            body.len()
        );
        drop(self.stream.write_all(answer.as_bytes()));
        drop(self.stream.shutdown(Shutdown::Write));
    }
}
