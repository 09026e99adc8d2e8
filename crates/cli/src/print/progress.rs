//! Progress bar, spinner and status line for long operations, on standard error and only on a
//! terminal.

use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::args::Format;
use crate::clock::instant;
use crate::print::text;

/// Delay before the progress bar appears.
const DELAY: Duration = Duration::from_millis(300);

/// Interval between two frames of the spinner.
const TICK: Duration = Duration::from_millis(100);

const STEPS: u64 = 1000;

/// Frames of the spinner.
const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// A progress bar that is cleared when the work ends. It is shown only with text output.
pub(crate) struct Progress {
    label: &'static str,
    started: Instant,
    is_watched: bool,
    steps: AtomicU64,
}

impl Progress {
    /// Creates a bar with a label such as `verifying`.
    pub(crate) fn new(label: &'static str, format: Format) -> Self {
        let is_watched = matches!(format, Format::Text) && std::io::stderr().is_terminal();
        Self { label, started: instant(), is_watched, steps: AtomicU64::new(0) }
    }

    /// Sets the progress, from 0 to 1.
    pub(crate) fn set_fraction(&self, done: f64) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000")]
        let steps = (done.clamp(0.0, 1.0) * 1000.0) as u64;
        let elapsed = self.started.elapsed();
        let is_new = self.steps.swap(steps, Ordering::Relaxed) != steps;
        if self.is_watched && is_new && steps > 0 && elapsed > DELAY {
            let cells = usize::try_from(steps * 32 / STEPS).unwrap_or(0);
            let bar = format!("{}{}", "━".repeat(cells), "╌".repeat(32 - cells));
            let left = elapsed.as_secs() * (STEPS - steps) / steps;
            draw(&format!("{} {bar} {:>3} %  {left} s left", self.label, steps / 10));
        }
    }

    /// Returns whether the bar is full: only the final step of the work remains.
    pub(crate) fn is_full(&self) -> bool {
        self.steps.load(Ordering::Relaxed) >= STEPS
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_watched {
            draw("");
        }
    }
}

/// Replaces the current terminal line. Write errors are ignored, so that they do not abort the
/// operation.
fn draw(line: &str) {
    drop(std::io::stderr().write_all(format!("\r\x1b[2K{line}").as_bytes()));
}

/// Runs `work` and shows a spinner until it returns.
pub(crate) fn with_spinner<T>(label: &str, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let (done, ended) = sync_channel::<()>(0);
    thread::scope(|scope| {
        scope.spawn(move || {
            for frame in FRAMES.into_iter().cycle() {
                draw(&format!("  {frame} {label}"));
                if ended.recv_timeout(TICK) == Err(RecvTimeoutError::Disconnected) {
                    break;
                }
            }
            draw("");
        });
        let result = work();
        drop(done);
        result
    })
}

/// A line below the output that shows what a command waits for. It is shown only with text output.
pub(crate) struct StatusLine {
    is_watched: bool,
    is_drawn: bool,
    frame: usize,
}

impl StatusLine {
    pub(crate) fn new(format: Format) -> Self {
        let is_watched = matches!(format, Format::Text) && std::io::stderr().is_terminal();
        Self { is_watched, is_drawn: false, frame: 0 }
    }

    /// Waits until the next frame is due. Waits forever if the line is not shown.
    pub(crate) async fn next_frame(&self) {
        if self.is_watched {
            tokio::time::sleep(2 * TICK).await;
        } else {
            std::future::pending::<()>().await;
        }
    }

    /// Replaces the line.
    pub(crate) fn draw(&mut self, line: &str) {
        if !self.is_watched {
            return;
        }
        let frame = FRAMES.get(self.frame % FRAMES.len()).copied().unwrap_or_default();
        self.frame += 1;
        self.is_drawn = true;
        let width = text::width(std::io::stderr()).saturating_sub(3);
        draw(&format!("{frame} {}", text::one_line(&text::plain(line), width)));
    }

    /// Clears the line before other output.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            draw("");
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Counts the bytes that were read and updates a progress bar.
pub(crate) struct Meter<'p> {
    progress: &'p Progress,
    read: AtomicU64,
    total: u64,
}

impl<'p> Meter<'p> {
    /// Creates a meter that is full after `total` bytes.
    pub(crate) fn new(progress: &'p Progress, total: u64) -> Self {
        Self { progress, read: AtomicU64::new(0), total: total.max(1) }
    }

    /// Records that `bytes` more bytes were read.
    pub(crate) fn add(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(0);
        let read = self.read.fetch_add(bytes, Ordering::Relaxed) + bytes;
        #[expect(clippy::cast_precision_loss, reason = "a share for a progress bar")]
        self.progress.set_fraction(read as f64 / self.total as f64);
    }
}
