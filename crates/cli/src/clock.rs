//! Reads the system clock. Other crates receive the clock as a parameter.

use std::time::Instant;

use jiff::Timestamp;
use throughline_core::Clock;

#[expect(clippy::disallowed_methods, reason = "only the cli reads the clock")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// Returns the current time of the monotonic clock, for measuring intervals.
#[expect(clippy::disallowed_methods, reason = "only the cli reads the clock")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}

pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        now()
    }
}
