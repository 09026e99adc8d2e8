//! A bar for work that takes long. It is there for who watches: not in a pipe, and not for programs.

use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::options::{Format, Printing};

/// What is done sooner needs no bar.
const SOON: Duration = Duration::from_millis(300);

/// How many steps a bar has.
const STEPS: u64 = 1000;

/// A bar on standard error, which goes away with the work.
pub(crate) struct Progress {
    bar: ProgressBar,
    is_watched: bool,
}

impl Progress {
    /// A bar for that work, as `verifying`.
    pub(crate) fn of(work: &'static str, printing: &Printing) -> Self {
        let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{msg} {bar:32} {percent:>3} %  {eta} left")
        {
            bar.set_style(style.progress_chars("━╸╌"));
        }
        let is_watched = matches!(printing.format, Format::Text) && std::io::stderr().is_terminal();
        Self { bar: bar.with_message(work), is_watched }
    }

    /// So much is done, from 0 to 1.
    pub(crate) fn share(&self, done: f64) {
        if self.is_watched && self.bar.is_hidden() && self.bar.elapsed() > SOON {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "it is between 0 and 1"
        )]
        self.bar.set_position((done.clamp(0.0, 1.0) * STEPS as f64) as u64);
    }

    /// Whether all was done, but for a last word.
    pub(crate) fn is_full(&self) -> bool {
        self.bar.position() >= STEPS
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Tells a bar how much was read of something.
pub(crate) struct Meter<'p> {
    progress: &'p Progress,
    read: AtomicU64,
    total: u64,
}

impl<'p> Meter<'p> {
    /// A meter for so many bytes in all.
    pub(crate) fn new(progress: &'p Progress, total: u64) -> Self {
        Self { progress, read: AtomicU64::new(0), total: total.max(1) }
    }

    /// So many bytes more were read.
    pub(crate) fn add(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(0);
        let read = self.read.fetch_add(bytes, Ordering::Relaxed) + bytes;
        #[expect(clippy::cast_precision_loss, reason = "a share for a progress bar")]
        self.progress.share(read as f64 / self.total as f64);
    }
}
