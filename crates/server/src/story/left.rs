//! Calls whose callers went away. What they leave behind is put away, and a moment passes, before newcomers are let in: whoever
//! comes only to leave again pays for it, and not those who stay on their connections.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// How long newcomers wait behind each of them. It is nothing beside the time that a model thinks.
const MOMENT: Duration = Duration::from_millis(5);
/// How long a newcomer waits at most, whatever others leave behind.
const PATIENCE: Duration = Duration::from_millis(10);

/// How many such calls are being put away.
#[derive(Default)]
pub(crate) struct Left(watch::Sender<usize>);

/// A call that is being put away for as long as this is held.
pub(crate) struct Leaving<'l>(&'l Left);

impl Left {
    /// A caller has gone.
    pub(crate) fn leaving(&self) -> Leaving<'_> {
        self.0.send_modify(|count| *count += 1);
        Leaving(self)
    }

    /// Waits until all is put away, but not for ever.
    pub(crate) async fn put_away(&self) {
        let mut count = self.0.subscribe();
        // The sender is here.
        drop(timeout(PATIENCE, count.wait_for(|count| *count == 0)).await);
    }
}

impl Leaving<'_> {
    /// It is put away.
    pub(crate) async fn done(self) {
        sleep(MOMENT).await;
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn newcomers_wait_for_what_others_leave_behind_but_not_for_ever() {
        let left = Left::default();
        assert!(left.put_away().now_or_never().is_some());
        let (one, other) = (left.leaving(), left.leaving());
        let mut newcomer = Box::pin(left.put_away());
        assert!((&mut newcomer).now_or_never().is_none());
        drop(one);
        assert!((&mut newcomer).now_or_never().is_none());
        other.done().await;
        assert!(newcomer.now_or_never().is_some());
        let _stays = left.leaving();
        left.put_away().await;
    }
}
