//! Progress bar for long operations. Shown only on a terminal and with text output.

use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::args::{Format, OutputArgs};

/// Delay before the bar appears.
const SOON: Duration = Duration::from_millis(300);

/// Resolution of the bar.
const STEPS: u64 = 1000;

/// A bar on standard error that is cleared when the work ends.
pub(crate) struct Progress {
    bar: ProgressBar,
    is_watched: bool,
}

impl Progress {
    /// Creates a bar with a label such as `verifying`.
    pub(crate) fn new(work: &'static str, printing: &OutputArgs) -> Self {
        let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{msg} {bar:32} {percent:>3} %  {eta} left")
        {
            bar.set_style(style.progress_chars("━╸╌"));
        }
        let is_watched = matches!(printing.format, Format::Text) && std::io::stderr().is_terminal();
        Self { bar: bar.with_message(work), is_watched }
    }

    /// Sets the progress, from 0 to 1.
    pub(crate) fn set_fraction(&self, done: f64) {
        if self.is_watched && self.bar.is_hidden() && self.bar.elapsed() > SOON {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "the value is between 0 and 1"
        )]
        self.bar.set_position((done.clamp(0.0, 1.0) * STEPS as f64) as u64);
    }

    /// Returns whether all steps are done and only the final answer is missing.
    pub(crate) fn is_full(&self) -> bool {
        self.bar.position() >= STEPS
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Reports the number of bytes read to a progress bar.
pub(crate) struct Meter<'p> {
    progress: &'p Progress,
    read: AtomicU64,
    total: u64,
}

impl<'p> Meter<'p> {
    /// Creates a meter for `total` bytes.
    pub(crate) fn new(progress: &'p Progress, total: u64) -> Self {
        Self { progress, read: AtomicU64::new(0), total: total.max(1) }
    }

    /// Adds bytes that were read.
    pub(crate) fn add(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(0);
        let read = self.read.fetch_add(bytes, Ordering::Relaxed) + bytes;
        #[expect(clippy::cast_precision_loss, reason = "a share for a progress bar")]
        self.progress.set_fraction(read as f64 / self.total as f64);
    }
}
