//! Counts a key's requests within the last minute, on this node.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

const MINUTE: Duration = Duration::from_mins(1);

/// Times of a key's requests within the last minute.
#[derive(Default)]
pub(super) struct RateWindow(VecDeque<Instant>);

impl RateWindow {
    /// Counts a request, or returns how long to wait before the next request is allowed.
    pub(super) fn count(&mut self, most: u32, now: Instant) -> Result<(), Duration> {
        while self.0.front().is_some_and(|first| now.duration_since(*first) >= MINUTE) {
            self.0.pop_front();
        }
        if self.0.len() < most as usize {
            self.0.push_back(now);
            return Ok(());
        }
        let first = self.0.front().copied().unwrap_or(now);
        Err(MINUTE.saturating_sub(now.duration_since(first)))
    }

    /// Returns whether no requests were made in the minute before `now`.
    pub(super) fn is_empty_at(&self, now: Instant) -> bool {
        self.0.back().is_none_or(|last| now.duration_since(*last) >= MINUTE)
    }
}
