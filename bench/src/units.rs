//! Formats durations, sizes and rates for the output.

use std::time::Duration;

/// Formats a duration in microseconds, or from 10 milliseconds in milliseconds.
pub(crate) fn time(time: Duration) -> String {
    let microseconds = time.as_micros();
    if microseconds < 10_000 {
        format!("{microseconds} µs")
    } else {
        format!("{:.1} ms", time.as_secs_f64() * 1000.0)
    }
}

/// Formats a duration, or a dash if it was not measured.
pub(crate) fn time_or_dash(duration: Option<Duration>) -> String {
    duration.map_or_else(|| "-".to_owned(), time)
}

/// Formats the difference between two durations, which may be negative.
pub(crate) fn added_time(own: Duration, theirs: Duration) -> String {
    match own.checked_sub(theirs) {
        Some(added) => time(added),
        None => format!("-{}", time(theirs.saturating_sub(own))),
    }
}

pub(crate) fn kib(bytes: u64) -> String {
    format!("{:.0} KiB", bytes as f64 / 1024.0)
}
