//! Deletes expired data in the background, as `[retention]` configures it.
//!
//! A lease in the store ensures that only one node at a time deletes data from the store. Each node
//! deletes the traces in its own folders.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use throughline_core::{LogId, Store as _, StoreError, Tenant};
use throughline_json as json;
use throughline_replay::Claims;
use throughline_server::{Level, Log as _, RetentionResult, Telemetry};
use throughline_store::{DataCount, Journal, RetentionClass};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::lines::JsonLog;
use crate::clock::now;
use crate::config::RetentionSettings;
use crate::config::retention::TRACES;
use crate::retention::{OWN_TENANT_PREFIX, expire, trace_stats};

/// Duration of the lease. If the node stops, another node can continue after this time.
const LEASE: Duration = Duration::from_secs(30);
/// Longest delay before a failed pass is repeated.
const RETRY_DELAY: Duration = Duration::from_mins(5);

/// Deletes expired data at intervals.
pub(super) struct RetentionJob {
    pub(super) journal: Journal,
    pub(super) operations: Arc<Telemetry>,
    pub(super) log: Arc<JsonLog>,
    pub(super) folders: Vec<PathBuf>,
    /// The settings in effect. A reload of the configuration changes them.
    pub(super) settings: watch::Receiver<RetentionSettings>,
}

/// What a pass deleted, and how it ended.
struct RetentionPass {
    deleted: Vec<(RetentionClass, DataCount)>,
    /// Backups and key files that could not be reached.
    unreached: Vec<json::Name>,
    result: Result<RetentionResult, StoreError>,
}

impl RetentionJob {
    /// Runs a pass at startup, after each interval and after each change of the settings; runs
    /// until it is dropped.
    pub(super) async fn run(mut self) {
        loop {
            let settings = self.settings.borrow_and_update().clone();
            let mut delay = settings.interval;
            if !settings.keeps_everything() {
                let is_complete = self.delete_traces(&settings).await & self.pass(&settings).await;
                if !is_complete {
                    delay = delay.min(RETRY_DELAY);
                }
            }
            tokio::select! {
                () = sleep(delay) => {}
                Ok(()) = self.settings.changed() => {}
            }
        }
    }

    /// Deletes the expired data of the store. Returns whether the pass did not fail.
    async fn pass(&self, settings: &RetentionSettings) -> bool {
        let pass = self.expire(settings).await;
        for (class, count) in &pass.deleted {
            self.operations.record_deleted(class.as_str(), count.logs, count.bytes);
        }
        let result = *pass.result.as_ref().unwrap_or(&RetentionResult::Failed);
        self.operations.record_retention(result);
        let is_complete = pass.result.is_ok() && pass.unreached.is_empty();
        let level = if is_complete { Level::Info } else { Level::Error };
        if self.log.wants(level) {
            let line = json::object(|o| {
                o.string("event", "retention").string("result", result.as_str());
                for (class, count) in &pass.deleted {
                    o.number(class.as_str(), count.logs);
                }
                o.number("bytes", pass.deleted.iter().map(|(_, count)| count.bytes).sum::<u64>());
                if let Err(error) = &pass.result {
                    o.string("problem", &error.to_string());
                }
                let unreached = pass.unreached.join(", ");
                let unreached = (!unreached.is_empty()).then_some(unreached);
                o.maybe_string("unreached", unreached.as_deref());
            });
            self.log.write(level, &line);
        }
        pass.result.is_ok()
    }

    /// Deletes expired data while this node holds the lease.
    async fn expire(&self, settings: &RetentionSettings) -> RetentionPass {
        let mut pass = RetentionPass {
            deleted: Vec::new(),
            unreached: Vec::new(),
            result: Ok(RetentionResult::Completed),
        };
        let tenant = Tenant::from(format!("{OWN_TENANT_PREFIX}retention"));
        let log = LogId::from("retention");
        let lease = match Claims::new_turn_id() {
            Ok(owner) => self.journal.lease(&tenant, &log, &owner.0, LEASE).await,
            Err(error) => Err(StoreError::invalid(error.to_string())),
        };
        let fence = match lease {
            Ok(lease) => lease.fence,
            Err(StoreError::Held { .. }) => {
                pass.result = Ok(RetentionResult::Skipped);
                return pass;
            }
            Err(error) => {
                pass.result = Err(error);
                return pass;
            }
        };
        let (deleted, unreached) = (&mut pass.deleted, &mut pass.unreached);
        let work = async {
            let expired = expire(&self.journal, settings, now(), deleted).await;
            // What was destroyed before a failure is removed from the files, too.
            *unreached = self.journal.complete_expiry().await?;
            expired
        };
        let renewing = async {
            loop {
                sleep(LEASE / 3).await;
                if let Err(error) = self.journal.renew(&tenant, &log, fence, LEASE).await {
                    return error;
                }
            }
        };
        let done = tokio::select! {
            done = work => done,
            error = renewing => Err(error),
        };
        // A lease that is not released expires.
        drop(self.journal.release(&tenant, &log, fence).await);
        pass.result = done.map(|()| RetentionResult::Completed);
        pass
    }

    /// Deletes expired sessions from the trace folders. Returns whether all of them were deleted.
    async fn delete_traces(&self, settings: &RetentionSettings) -> bool {
        let Some(age) = settings.traces else { return true };
        let folders = self.folders.clone();
        let deleting = spawn_blocking(move || trace_stats(&folders, Some(age), now(), true));
        let problem = match deleting.await {
            Ok(Ok(stats)) => {
                let deleted = stats.expired;
                self.operations.record_deleted(TRACES, deleted.logs, deleted.bytes);
                return true;
            }
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        let line = json::object(|o| {
            o.string("event", "retention").string("result", RetentionResult::Failed.as_str());
            o.string("problem", &format!("cannot delete expired traces: {problem}"));
        });
        self.log.write(Level::Error, &line);
        false
    }
}
