//! Takes over runs whose driving process has stopped, because the clients of these runs may never
//! send another request.

use std::collections::HashMap;
use std::sync::Arc;

use throughline_core::{LogId, Tenant};
use tokio::time::{MissedTickBehavior, interval};

use crate::api::RunNote;
use crate::api::drives::RunPool;
use crate::records::StoreResult;

/// Number of runs per store query.
const PAGE: u32 = 64;
/// Maximum number of backoff doublings: a run that cannot be taken over is retried after at most
/// 2^7 sweeps.
const MAX_DOUBLINGS: u32 = 7;

/// Runs without a driver, each with the backoff of its takeover attempts.
type StaleRuns = HashMap<(Tenant, LogId), ReclaimBackoff>;

#[derive(Clone, Copy, Default)]
struct ReclaimBackoff {
    times: u32,
    /// Number of sweeps to skip before the next attempt.
    rest: u32,
}

impl RunPool {
    /// Searches for runs without a driver three times per lease duration, and takes them over.
    pub(crate) async fn sweep(self: Arc<Self>) {
        let mut ticks = interval(self.runner.lease / 3);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = StaleRuns::new();
        loop {
            ticks.tick().await;
            // If the store fails, the next sweep tries again.
            if let Ok(now) = self.reclaim_stale_runs(&seen).await {
                seen = now;
            }
        }
    }

    /// Takes over the runs without a driver. Failed attempts back off exponentially.
    async fn reclaim_stale_runs(self: &Arc<Self>, seen: &StaleRuns) -> StoreResult<StaleRuns> {
        let (mut now, mut after) = (StaleRuns::new(), 0);
        loop {
            let page = self.runner.store.stale_runs(self.runner.lease, after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(now) };
            after = last.place;
            for one in page {
                let key = (one.tenant, one.run);
                let mut tried = seen.get(&key).copied().unwrap_or_default();
                if tried.rest > 0 {
                    tried.rest -= 1;
                } else if self.has_room(&key.0) {
                    if self.can_drive(&key.0, &key.1).await {
                        self.drive(&key.0, &key.1);
                    }
                    tried.times = (tried.times + 1).min(MAX_DOUBLINGS);
                    tried.rest = 1 << tried.times;
                }
                now.insert(key, tried);
            }
        }
    }

    /// Returns whether a run was started through this API and this process has all of the run's
    /// tools. Any other run waits for the application that started it.
    async fn can_drive(&self, tenant: &Tenant, run: &LogId) -> bool {
        let Ok((casting, _)) = self.runner.progress(tenant, run).await else { return false };
        let has = |name| self.runner.tools.contains_key(name);
        RunNote::is_present(&casting)
            && casting.tools.iter().all(|tool| tool.client || has(&tool.name))
    }
}
