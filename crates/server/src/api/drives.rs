//! Tasks that drive runs. A run belongs to the store, not to its task, so another process can take
//! over the run.
//!
//! Every model call of a run is checked against the key that started the run. The call reserves its
//! estimated usage from the limits of that key and is charged to that key. Each tenant has a share
//! of the runs that are driven at once. When a tenant's share is full, its resumed runs wait and
//! its new runs are refused, so one tenant cannot delay another.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use throughline_agent::{AgentConfig, Runner};
use throughline_core::{LogId, Tenant};
use throughline_json::Name;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::api::ApiResult;
use crate::api::RunNote;
use crate::api::error::ApiError;
use crate::api::permits::{Accounts, RunPermit};
use crate::sync::lock;

/// The `retry-after` for a tenant with too many runs.
const RUNS_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The operator's caps on runs. Agents and requests cannot raise them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunCaps {
    /// Maximum number of steps (tool calls) per run.
    pub max_steps: u64,
    /// Maximum number of runs per tenant that this process drives at once.
    pub max_runs_per_tenant: usize,
}

impl Default for RunCaps {
    fn default() -> Self {
        Self { max_steps: 1000, max_runs_per_tenant: 256 }
    }
}

impl RunCaps {
    /// Lowers the step limit of an agent to the operator's cap.
    pub(crate) fn apply_to(&self, config: &mut AgentConfig) {
        let steps = config.resolved_limits().max_tool_calls.unwrap_or(self.max_steps);
        config.limits.max_tool_calls = Some(steps.min(self.max_steps));
    }
}

/// Drives runs in tasks of this process, within each tenant's share.
pub(crate) struct RunPool {
    pub(super) runner: Runner,
    caps: RunCaps,
    /// Number of owner names assigned so far.
    taken: AtomicU64,
    at_work: Mutex<ActiveRuns>,
    /// Accounts for charging usage and checking keys; set once the gateway exists.
    accounts: Mutex<Option<Arc<Accounts>>>,
}

#[derive(Default)]
struct ActiveRuns {
    tasks: JoinSet<()>,
    /// Runs being driven, each with a flag that requests another pass after the current pass.
    runs: HashMap<(Tenant, LogId), bool>,
    shares: HashMap<Tenant, TenantShare>,
    /// Whether new runs are refused.
    is_closed: bool,
}

/// A tenant's runs in this process.
struct TenantShare {
    /// Has one permit for each run of the tenant that may be driven at once.
    turns: Arc<Semaphore>,
    /// Runs that are driven, queued, or about to start.
    runs: usize,
}

impl ActiveRuns {
    fn tenant_share(&mut self, tenant: &Tenant, most: usize) -> &mut TenantShare {
        let new = || TenantShare { turns: Arc::new(Semaphore::new(most.max(1))), runs: 0 };
        self.shares.entry(tenant.clone()).or_insert_with(new)
    }

    fn release_slot(&mut self, tenant: &Tenant) {
        if let Some(share) = self.shares.get_mut(tenant) {
            share.runs = share.runs.saturating_sub(1);
            if share.runs == 0 {
                self.shares.remove(tenant);
            }
        }
    }
}

/// A reserved slot for a run that is about to start. The slot is freed on drop.
pub(crate) struct RunReservation {
    drives: Arc<RunPool>,
    tenant: Tenant,
}

impl Drop for RunReservation {
    fn drop(&mut self) {
        lock(&self.drives.at_work).release_slot(&self.tenant);
    }
}

/// A run that a task is driving. The run's slot is freed on drop, even during a panic.
struct DrivenRun {
    drives: Arc<RunPool>,
    key: (Tenant, LogId),
    is_over: bool,
}

impl DrivenRun {
    /// Returns whether another pass was requested while the run was driven. If not, the run is
    /// released.
    fn take_rerun(&mut self) -> bool {
        let drives = Arc::clone(&self.drives);
        let mut at_work = lock(&drives.at_work);
        if let Some(again) = at_work.runs.get_mut(&self.key).filter(|again| **again) {
            *again = false;
            return true;
        }
        self.release(&mut at_work);
        false
    }

    fn release(&mut self, at_work: &mut ActiveRuns) {
        if !std::mem::replace(&mut self.is_over, true) {
            at_work.runs.remove(&self.key);
            at_work.release_slot(&self.key.0);
        }
    }
}

impl Drop for DrivenRun {
    fn drop(&mut self) {
        let drives = Arc::clone(&self.drives);
        self.release(&mut lock(&drives.at_work));
    }
}

impl RunPool {
    pub(crate) fn new(runner: Runner, caps: RunCaps) -> Self {
        let (taken, accounts) = (AtomicU64::new(0), Mutex::default());
        Self { runner, caps, taken, at_work: Mutex::default(), accounts }
    }

    /// Sets the accounts for charging runs and checking their keys. Runs that are being driven keep
    /// the accounts with which they started.
    pub(crate) fn charge_to(&self, accounts: Accounts) {
        *lock(&self.accounts) = Some(Arc::new(accounts));
    }

    /// Creates a runner with a new owner name, because two tasks of one process must not share
    /// leases.
    pub(crate) fn runner_with_new_owner(&self) -> Runner {
        let number = self.taken.fetch_add(1, Ordering::Relaxed);
        let mut hand = self.runner.clone();
        hand.owner = Name::from(format!("{}.{number}", hand.owner));
        hand
    }

    /// Reserves a slot for a run that is about to start. Fails if the tenant's share is full.
    pub(crate) fn reserve_run(self: &Arc<Self>, tenant: &Tenant) -> ApiResult<RunReservation> {
        let most = self.caps.max_runs_per_tenant.max(1);
        let mut at_work = lock(&self.at_work);
        let share = at_work.tenant_share(tenant, most);
        if share.runs >= most {
            let message = format!(
                "this tenant already has {most} active runs, which is the maximum: retry later, or raise \
                 max_runs_per_tenant of [agents]"
            );
            return Err(ApiError::new(429, message).after(RUNS_RETRY_AFTER));
        }
        share.runs += 1;
        drop(at_work);
        Ok(RunReservation { drives: Arc::clone(self), tenant: tenant.clone() })
    }

    /// Returns whether the tenant's share has a free slot.
    pub(super) fn has_room(&self, tenant: &Tenant) -> bool {
        let most = self.caps.max_runs_per_tenant.max(1);
        lock(&self.at_work).shares.get(tenant).is_none_or(|share| share.runs < most)
    }

    /// Drives a run in a task of this process, unless another process owns the run. The task first
    /// waits for a slot in the tenant's share.
    pub(crate) fn drive(self: &Arc<Self>, tenant: &Tenant, run: &LogId) {
        let mut at_work = lock(&self.at_work);
        while at_work.tasks.try_join_next().is_some() {}
        let key = (tenant.clone(), run.clone());
        if at_work.is_closed {
            return;
        }
        if let Some(again) = at_work.runs.get_mut(&key) {
            *again = true;
            return;
        }
        at_work.runs.insert(key.clone(), false);
        let share = at_work.tenant_share(tenant, self.caps.max_runs_per_tenant);
        share.runs += 1;
        let turns = Arc::clone(&share.turns);
        let mut driven = DrivenRun { drives: Arc::clone(self), key, is_over: false };
        at_work.tasks.spawn(async move {
            let Ok(_turn) = turns.acquire_owned().await else { return };
            loop {
                driven.drives.drive_once(&driven.key.0, &driven.key.1).await;
                if !driven.take_rerun() {
                    return;
                }
            }
        });
    }

    async fn drive_once(&self, tenant: &Tenant, run: &LogId) {
        let mut hand = self.runner_with_new_owner();
        let accounts = lock(&self.accounts).clone();
        if let Some(accounts) = accounts {
            // A run whose key cannot be read is not driven: it could exceed the limits of that key.
            let Ok((casting, _)) = self.runner.progress(tenant, run).await else { return };
            let (tenant, key) = (tenant.clone(), RunNote::parse(&casting).key);
            let shutdown_guard = accounts.operations.shutdown_guard();
            hand.permit = Some(Arc::new(RunPermit { accounts, tenant, key, shutdown_guard }));
        }
        // The outcome is ignored: clients read the run's state from the store.
        drop(hand.drive(tenant, run).await);
    }

    /// Refuses new runs and waits up to `patience` for the active runs to stop.
    pub(crate) async fn stop(&self, patience: Duration) {
        let mut tasks = {
            let mut at_work = lock(&self.at_work);
            at_work.is_closed = true;
            std::mem::take(&mut at_work.tasks)
        };
        let rest = async { while tasks.join_next().await.is_some() {} };
        drop(timeout(patience, rest).await);
        tasks.shutdown().await;
    }
}
