//! Time that a process spends in each stage of its requests.
//!
//! The counters exist only with the cargo feature `profile`. Without it, the functions only run the
//! given work. A stage inside another stage interrupts it, so every moment counts for one stage.

use std::future::Future;

/// A stage of a request. Work outside all stages is HTTP, scheduling and bookkeeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Indexing and decoding requests and responses.
    Parse,
    /// Matching captured turns and restoring lost reasoning.
    Restore,
    /// Auditing and repairing requests.
    Audit,
    /// Encoding requests and responses.
    Encode,
    /// Building and sealing the records of a captured reply.
    Capture,
    /// Looking up and committing in the database.
    Store,
}

impl Stage {
    /// All stages, in the order of their counters.
    pub const ALL: [Stage; 6] =
        [Stage::Parse, Stage::Restore, Stage::Audit, Stage::Encode, Stage::Capture, Stage::Store];

    /// Returns the name of the stage in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Parse => "parse",
            Stage::Restore => "restore",
            Stage::Audit => "audit",
            Stage::Encode => "encode",
            Stage::Capture => "capture",
            Stage::Store => "store",
        }
    }

    /// Runs work as part of this stage.
    #[inline]
    pub fn run<T>(self, work: impl FnOnce() -> T) -> T {
        let _timer = timer::enter(self);
        work()
    }

    /// Counts the time in which a future is polled for this stage. The time between polls, in which
    /// the future waits, is not counted.
    pub fn run_async<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
        timer::polls(self, future)
    }

    /// Returns the microseconds spent in this stage so far; `None` without the feature `profile`.
    pub fn microseconds(self) -> Option<u64> {
        timer::microseconds(self)
    }
}

#[cfg(not(feature = "profile"))]
mod timer {
    use super::{Future, Stage};

    pub(super) struct Timer;

    #[inline]
    pub(super) fn enter(_: Stage) -> Timer {
        Timer
    }

    pub(super) fn polls<F: Future>(_: Stage, future: F) -> F {
        future
    }

    pub(super) fn microseconds(_: Stage) -> Option<u64> {
        None
    }
}

#[cfg(feature = "profile")]
mod timer {
    use std::cell::Cell;
    use std::pin::pin;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Instant;

    use super::{Future, Stage};

    /// Nanoseconds per stage, in the order of [`Stage::ALL`].
    static TOTALS: [AtomicU64; Stage::ALL.len()] = [const { AtomicU64::new(0) }; Stage::ALL.len()];

    thread_local! {
        /// The stage that this thread is in, and when its time was last added to the total.
        static CURRENT: Cell<Option<(Stage, Instant)>> = const { Cell::new(None) };
    }

    /// Returns to the previous stage when dropped.
    pub(super) struct Timer {
        before: Option<Stage>,
    }

    pub(super) fn enter(stage: Stage) -> Timer {
        Timer { before: switch(Some(stage)) }
    }

    impl Drop for Timer {
        fn drop(&mut self) {
            switch(self.before);
        }
    }

    /// Adds the time since the last switch to the current stage, and returns that stage.
    #[expect(clippy::disallowed_methods, reason = "measures durations, not the time of day")]
    fn switch(next: Option<Stage>) -> Option<Stage> {
        let now = Instant::now();
        let before = CURRENT.replace(next.map(|stage| (stage, now)));
        let (stage, since) = before?;
        let time = now.saturating_duration_since(since).as_nanos();
        if let Some(total) = TOTALS.get(stage as usize) {
            total.fetch_add(u64::try_from(time).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        Some(stage)
    }

    pub(super) async fn polls<F: Future>(stage: Stage, future: F) -> F::Output {
        let mut future = pin!(future);
        std::future::poll_fn(|context| {
            let _timer = enter(stage);
            future.as_mut().poll(context)
        })
        .await
    }

    pub(super) fn microseconds(stage: Stage) -> Option<u64> {
        TOTALS.get(stage as usize).map(|total| total.load(Ordering::Relaxed) / 1000)
    }
}
