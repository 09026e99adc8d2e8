//! The system clock.

use jiff::Timestamp;
use throughline_core::Clock;

/// Returns the current time.
#[expect(clippy::disallowed_methods, reason = "only the cli reads the clock")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// The system clock.
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        now()
    }
}
