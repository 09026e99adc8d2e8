//! Runs that nobody is at are taken up: their process is gone, and whoever began them may never ask for them again.

use std::collections::HashMap;
use std::sync::Arc;

use throughline_core::{LogId, StoreError, Tenant};
use tokio::time::{MissedTickBehavior, interval};

use crate::letta::drives::Drives;
use crate::letta::request::RunNote;

/// How many runs are looked up at a time.
const PAGE: u32 = 64;
/// A run that cannot be taken up is left alone for at most two to the power of that many looks.
const MOST_DOUBLINGS: u32 = 7;

/// The runs that nobody is at, and how often each was tried.
type Seen = HashMap<(Tenant, LogId), Tried>;

#[derive(Clone, Copy, Default)]
struct Tried {
    times: u32,
    /// How many looks it is left alone for.
    rest: u32,
}

impl Drives {
    /// Looks for runs that nobody is at, three times in each lease, and takes them up.
    pub(crate) async fn sweep(self: Arc<Self>) {
        let mut ticks = interval(self.runner.lease / 3);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = Seen::new();
        loop {
            ticks.tick().await;
            // A store that does not answer now may do so at the next look.
            if let Ok(now) = self.take_up(&seen).await {
                seen = now;
            }
        }
    }

    /// Takes up what nobody is at. What cannot be taken up is tried ever more seldom.
    async fn take_up(self: &Arc<Self>, seen: &Seen) -> Result<Seen, StoreError> {
        let (mut now, mut after) = (Seen::new(), 0);
        loop {
            let page = self.runner.store.unattended(self.runner.lease, after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(now) };
            after = last.place;
            for one in page {
                let key = (one.tenant, one.run);
                let mut tried = seen.get(&key).copied().unwrap_or_default();
                if tried.rest > 0 {
                    tried.rest -= 1;
                } else if self.has_room(&key.0) {
                    if self.is_for_us(&key.0, &key.1).await {
                        self.drive(&key.0, &key.1);
                    }
                    tried.times = (tried.times + 1).min(MOST_DOUBLINGS);
                    tried.rest = 1 << tried.times;
                }
                now.insert(key, tried);
            }
        }
    }

    /// Whether a run was begun over this API, and this process has all of its tools. Any other waits for who began it.
    async fn is_for_us(&self, tenant: &Tenant, run: &LogId) -> bool {
        let Ok((casting, _)) = self.runner.progress(tenant, run).await else { return false };
        let has = |name| self.runner.tools.contains_key(name);
        RunNote::is_in(&casting) && casting.tools.iter().all(|tool| tool.client || has(&tool.name))
    }
}
