//! Delays new connections briefly after client disconnects.
//!
//! When a client disconnects during a call, new connections wait until the call's record is stored
//! and a short pause has passed. This delays clients that reconnect often, but does not affect open
//! connections.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Pause after each disconnect. It is negligible compared with a model's latency.
const MOMENT: Duration = Duration::from_millis(5);
/// Maximum time that a new connection waits.
const PATIENCE: Duration = Duration::from_millis(10);

/// Counts the abandoned calls whose records are being stored.
#[derive(Default)]
pub struct DisconnectLimiter(watch::Sender<usize>);

/// A guard that counts one abandoned call as pending until the guard is dropped.
pub struct Guard<'l>(&'l DisconnectLimiter);

impl DisconnectLimiter {
    /// Registers an abandoned call as pending.
    pub fn leaving(&self) -> Guard<'_> {
        self.0.send_modify(|count| *count += 1);
        Guard(self)
    }

    /// Waits until no abandoned call is pending, but for at most `PATIENCE`.
    pub async fn wait_until_drained(&self) {
        let mut count = self.0.subscribe();
        // The sender outlives this wait, so only the timeout can fail.
        drop(timeout(PATIENCE, count.wait_for(|count| *count == 0)).await);
    }
}

impl Guard<'_> {
    /// Pauses for `MOMENT`, then ends the wait. Call this after the record has been stored.
    pub async fn done(self) {
        sleep(MOMENT).await;
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn new_connections_wait_for_pending_disconnects_up_to_a_limit() {
        let limiter = DisconnectLimiter::default();
        assert!(limiter.wait_until_drained().now_or_never().is_some());
        let (one, other) = (limiter.leaving(), limiter.leaving());
        let mut waiting = Box::pin(limiter.wait_until_drained());
        assert!((&mut waiting).now_or_never().is_none());
        drop(one);
        assert!((&mut waiting).now_or_never().is_none());
        other.done().await;
        assert!(waiting.now_or_never().is_some());
        let _stays = limiter.leaving();
        limiter.wait_until_drained().await;
    }
}
