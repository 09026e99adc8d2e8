//! Answers health probes while no worker of the runtime can.
//!
//! The gateway accepts connections on its asynchronous runtime. If all workers are blocked, nothing is accepted, and an
//! orchestrator that gets no answer to its probe would kill the process. So a thread shares the listening socket. As
//! long as a task of the runtime ticks, the thread only sleeps, and requests cost nothing more. When the ticks stop, the
//! thread accepts connections itself: it answers `/healthz` and `/readyz`, and keeps all other connections, unread, for
//! the runtime, which serves them once it runs again.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{MissedTickBehavior, interval};

/// How often the runtime shows that it runs.
const TICK: Duration = Duration::from_millis(100);
/// How long the runtime may show nothing before the thread accepts connections.
const STALL: Duration = Duration::from_millis(500);
/// How often the thread looks for connections and requests then.
const LOOK: Duration = Duration::from_millis(5);
/// How long a connection may stay silent before it is left to the runtime.
const SILENCE: Duration = Duration::from_secs(2);
/// The most connections that the thread reads from at once.
const MOST: usize = 256;

/// The probes that are answered, each with its answer.
const PROBES: [(&[u8], &str, &str); 2] = [
    (b"GET /healthz ", "200 OK", r#"{"status":"ok"}"#),
    (b"GET /readyz ", "503 Service Unavailable", r#"{"status":"all workers are busy"}"#),
];

/// The thread, and what connects the runtime with it.
pub(super) struct Watchdog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    ticks: AtomicU64,
    is_over: AtomicBool,
}

impl Watchdog {
    /// Watches over the runtime that accepts on that socket. The connections that the thread leaves to the runtime come
    /// through the channel.
    pub(super) fn start(listener: &impl AsFd) -> io::Result<(Self, UnboundedReceiver<TcpStream>)> {
        let listener = TcpListener::from(listener.as_fd().try_clone_to_owned()?);
        let (hand_over, handed) = unbounded_channel();
        let shared = Arc::new(Shared::default());
        let watch = Watch { listener, hand_over, shared: Arc::clone(&shared), seen: 0 };
        let thread = thread::Builder::new().name("watchdog".to_owned());
        let thread = thread.spawn(move || watch.run())?;
        Ok((Self { shared, thread: Some(thread) }, handed))
    }

    /// Ticks for as long as it is polled.
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

/// What the thread has.
struct Watch {
    listener: TcpListener,
    hand_over: UnboundedSender<TcpStream>,
    shared: Arc<Shared>,
    /// The tick that was seen last.
    seen: u64,
}

/// A connection that the thread accepted.
struct Accepted {
    stream: TcpStream,
    since: Instant,
}

/// What a connection turns out to be.
enum Caller {
    Probe(&'static str, &'static str),
    Other,
    Undecided,
    Gone,
}

#[expect(clippy::disallowed_methods, reason = "a stall is measured by a monotonic clock")]
fn instant() -> Instant {
    Instant::now()
}

impl Watch {
    fn run(mut self) {
        let mut last = instant();
        while !self.shared.is_over.load(Ordering::Relaxed) {
            thread::park_timeout(TICK);
            if self.has_ticked() {
                last = instant();
            } else if last.elapsed() >= STALL {
                self.stand_in();
                last = instant();
            }
        }
    }

    /// Whether the runtime has ticked since this was asked last.
    fn has_ticked(&mut self) -> bool {
        let ticks = self.shared.ticks.load(Ordering::Relaxed);
        std::mem::replace(&mut self.seen, ticks) != ticks
    }

    /// Accepts connections until the runtime ticks again.
    fn stand_in(&mut self) {
        let mut open: Vec<Accepted> = Vec::new();
        while !self.has_ticked() && !self.shared.is_over.load(Ordering::Relaxed) {
            while open.len() < MOST
                && let Ok((stream, _)) = self.listener.accept()
            {
                if stream.set_nonblocking(true).is_ok() {
                    open.push(Accepted { stream, since: instant() });
                }
            }
            let mut undecided = Vec::with_capacity(open.len());
            for mut accepted in open.drain(..) {
                match accepted.caller() {
                    Caller::Probe(status, body) => accepted.answer(status, body),
                    Caller::Undecided => undecided.push(accepted),
                    Caller::Other => drop(self.hand_over.send(accepted.stream)),
                    Caller::Gone => {}
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

impl Accepted {
    /// Who it is, by the first bytes, which stay where they are.
    fn caller(&self) -> Caller {
        let mut first = [0; 32];
        match self.stream.peek(&mut first) {
            Ok(0) => Caller::Gone,
            Ok(count) => {
                let said = first.get(..count).unwrap_or_default();
                let begins = |(probe, ..): &&(&[u8], &str, &str)| {
                    let shared = probe.len().min(said.len());
                    probe.get(..shared) == said.get(..shared)
                };
                match PROBES.iter().find(begins) {
                    Some((probe, status, body)) if said.len() >= probe.len() => {
                        Caller::Probe(status, body)
                    }
                    Some(_) if self.since.elapsed() < SILENCE => Caller::Undecided,
                    Some(_) | None => Caller::Other,
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if self.since.elapsed() < SILENCE { Caller::Undecided } else { Caller::Other }
            }
            Err(_) => Caller::Gone,
        }
    }

    /// Answers a probe. The head is read first: unread bytes would reset the connection.
    fn answer(&mut self, status: &str, body: &str) {
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
