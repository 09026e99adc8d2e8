//! The gateway's log: JSON lines on standard error. Writing never blocks a request. If the queue is
//! full, lines are dropped and counted.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use throughline_json::{self as json, Json};
use throughline_server::{Level, Log};

/// Maximum number of queued lines.
const CAPACITY: usize = 4096;
/// Time limit for writing the remaining lines at shutdown.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(1);

/// Writes JSON lines to standard error from a background thread.
pub(super) struct JsonLog {
    /// Minimum level of the lines that are written; `None` disables the log.
    level: RwLock<Option<Level>>,
    queue: SyncSender<LogMessage>,
    /// Number of lines that were dropped because the queue was full.
    dropped: AtomicU64,
}

enum LogMessage {
    Line(Vec<u8>),
    /// Channel on which the writer replies after it has written all earlier lines.
    End(SyncSender<()>),
}

impl JsonLog {
    /// Starts the writer thread. Lines below `level` are discarded.
    pub(super) fn new(level: Option<Level>) -> Self {
        let (queue, messages) = sync_channel(CAPACITY);
        thread::spawn(move || write(&messages));
        Self { level: RwLock::new(level), queue, dropped: AtomicU64::new(0) }
    }

    /// Changes the minimum level of the lines that are written.
    pub(super) fn set_level(&self, level: Option<Level>) {
        *self.level.write().unwrap_or_else(PoisonError::into_inner) = level;
    }

    /// Waits until all queued lines are written, but no longer than `SHUTDOWN_LIMIT`.
    pub(super) fn end(&self) {
        let (done, waiting) = sync_channel(1);
        if self.queue.try_send(LogMessage::End(done)).is_ok() {
            // A timeout is ignored, because the process exits anyway.
            waiting.recv_timeout(SHUTDOWN_LIMIT).ok();
        }
    }

    /// Queues a line. Returns `false` if the queue is full.
    fn enqueue(&self, level: Level, line: &Json) -> bool {
        let head = json::object(|o| {
            o.string("time", &crate::clock::now().to_string()).string("level", level.as_str());
        });
        let head = head.as_str().trim_end_matches('}');
        let rest = line.as_str().trim_start_matches('{');
        let text = format!("{head},{rest}\n");
        self.queue.try_send(LogMessage::Line(text.into_bytes())).is_ok()
    }
}

impl Log for JsonLog {
    fn wants(&self, level: Level) -> bool {
        let least = *self.level.read().unwrap_or_else(PoisonError::into_inner);
        least.is_some_and(|least| level <= least)
    }

    fn write(&self, level: Level, line: &Json) {
        let mut dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            let report = json::object(|o| {
                o.string("event", "left_out").number("lines", dropped);
            });
            if self.enqueue(Level::Error, &report) {
                dropped = 0;
            }
        }
        dropped += u64::from(!self.enqueue(level, line));
        self.dropped.fetch_add(dropped, Ordering::Relaxed);
    }
}

fn write(messages: &Receiver<LogMessage>) {
    for message in messages {
        match message {
            // If standard error cannot be written, the failure cannot be reported either.
            LogMessage::Line(line) => drop(std::io::stderr().lock().write_all(&line)),
            LogMessage::End(done) => drop(done.try_send(())),
        }
    }
}
