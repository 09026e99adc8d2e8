//! The log: lines of JSON on standard error. Whoever does not read them holds nobody up; what cannot be written is counted.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use throughline_core::{Json, json};
use throughline_server::{Level, Log};

/// How many lines wait to be written.
const AHEAD: usize = 4096;
/// How long the last lines have at the end.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Lines on standard error.
pub(super) struct Lines {
    /// The least that is written; nothing is where there is none.
    level: Option<Level>,
    queue: SyncSender<Said>,
    left_out: AtomicU64,
}

enum Said {
    Line(Vec<u8>),
    /// Everything before was written.
    End(SyncSender<()>),
}

impl Lines {
    /// Writes lines of that level and above.
    pub(super) fn new(level: Option<Level>) -> Self {
        let (queue, said) = sync_channel(AHEAD);
        thread::spawn(move || write(&said));
        Self { level, queue, left_out: AtomicU64::new(0) }
    }

    /// Waits until what was said is written.
    pub(super) fn end(&self) {
        let (done, waiting) = sync_channel(1);
        if self.queue.try_send(Said::End(done)).is_ok() {
            // It is the last thing that is waited for, and not for ever.
            waiting.recv_timeout(LAST_WORDS).ok();
        }
    }

    fn say(&self, level: Level, line: &Json) -> bool {
        let head = json::object(|o| {
            o.string("time", &super::now().to_string()).string("level", level.as_str());
        });
        let head = head.as_str().trim_end_matches('}');
        let rest = line.as_str().trim_start_matches('{');
        let text = format!("{head},{rest}\n");
        self.queue.try_send(Said::Line(text.into_bytes())).is_ok()
    }
}

impl Log for Lines {
    fn wants(&self, level: Level) -> bool {
        self.level.is_some_and(|least| level <= least)
    }

    fn write(&self, level: Level, line: &Json) {
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        let told = left_out == 0 || {
            let line = json::object(|o| {
                o.string("event", "left_out").number("lines", left_out);
            });
            self.say(Level::Error, &line)
        };
        if !told {
            self.left_out.fetch_add(left_out, Ordering::Relaxed);
        }
        if !self.say(level, line) {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn write(said: &Receiver<Said>) {
    while let Ok(said) = said.recv() {
        match said {
            // Nobody is left to be told where this cannot be written.
            Said::Line(line) => drop(std::io::stderr().lock().write_all(&line)),
            Said::End(done) => drop(done.try_send(())),
        }
    }
}
