//! The tasks that drive runs. A run belongs to the store and not to its task: another process can take it over.
//!
//! What a run uses while it is driven here is charged to the key that started it, answer by answer, and every model call is
//! checked against that key. Each tenant has a share of runs that are driven at once; further ones wait for their turn, and
//! new ones are refused, so one tenant's runs do not keep another's waiting.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use throughline_agent::{AgentConfig, CallPermit, Listener, Runner};
use throughline_core::{LogId, Name, RunEvent, Tenant, Usage, UsageEvent};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::letta::denied::Denied;
use crate::letta::permits::{Accounts, RunPermit};
use crate::letta::request::RunNote;
use crate::operations::{Operations, Used, UsedFor};

/// How long a caller whose tenant has too many runs is asked to wait.
const RUNS_RETRY: Duration = Duration::from_secs(1);

/// The operator's caps on runs. Agents and requests cannot raise them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunCaps {
    /// The most steps (calls of tools) that a run may make.
    pub max_steps: u64,
    /// The most runs of one tenant that this process drives at once.
    pub max_runs_per_tenant: usize,
}

impl Default for RunCaps {
    fn default() -> Self {
        Self { max_steps: 1000, max_runs_per_tenant: 256 }
    }
}

impl RunCaps {
    /// Lowers the steps of an agent to what the operator allows.
    pub(crate) fn lower(&self, config: &mut AgentConfig) {
        let steps = config.resolved_limits().max_tool_calls.unwrap_or(self.max_steps);
        config.limits.max_tool_calls = Some(steps.min(self.max_steps));
    }
}

/// The runs that this process drives.
pub(crate) struct Drives {
    pub(super) runner: Runner,
    caps: RunCaps,
    /// How often a run was taken in hand.
    taken: AtomicU64,
    at_work: Mutex<AtWork>,
    /// Where usage is written down and keys are checked.
    accounts: OnceLock<Arc<Accounts>>,
}

#[derive(Default)]
struct AtWork {
    tasks: JoinSet<()>,
    /// Each run that a task drives, and whether it is to look once more when it is done.
    runs: HashMap<(Tenant, LogId), bool>,
    shares: HashMap<Tenant, Share>,
    /// Whether no more are begun.
    is_closed: bool,
}

/// A tenant's runs in this process.
struct Share {
    /// One for each run that may be driven at once.
    turns: Arc<Semaphore>,
    /// Runs that are driven or wait for their turn, and runs that are about to begin.
    runs: usize,
}

impl AtWork {
    fn share(&mut self, tenant: &Tenant, most: usize) -> &mut Share {
        let new = || Share { turns: Arc::new(Semaphore::new(most.max(1))), runs: 0 };
        self.shares.entry(tenant.clone()).or_insert_with(new)
    }

    fn leave(&mut self, tenant: &Tenant) {
        if let Some(share) = self.shares.get_mut(tenant) {
            share.runs = share.runs.saturating_sub(1);
            if share.runs == 0 {
                self.shares.remove(tenant);
            }
        }
    }
}

/// A place in a tenant's share for a run that is about to begin. Dropping it gives the place back.
pub(crate) struct StartingRun {
    drives: Arc<Drives>,
    tenant: Tenant,
}

impl Drop for StartingRun {
    fn drop(&mut self) {
        self.drives.at_work().leave(&self.tenant);
    }
}

/// A run that a task drives. Dropping it, also by a panic, gives its place back.
struct DrivenRun {
    drives: Arc<Drives>,
    key: (Tenant, LogId),
    is_over: bool,
}

impl DrivenRun {
    /// Whether something happened to the run while it was driven. If not, it is driven no more.
    fn is_wanted_again(&mut self) -> bool {
        let drives = Arc::clone(&self.drives);
        let mut at_work = drives.at_work();
        if let Some(again) = at_work.runs.get_mut(&self.key).filter(|again| **again) {
            *again = false;
            return true;
        }
        self.leave(&mut at_work);
        false
    }

    fn leave(&mut self, at_work: &mut AtWork) {
        if !std::mem::replace(&mut self.is_over, true) {
            at_work.runs.remove(&self.key);
            at_work.leave(&self.key.0);
        }
    }
}

impl Drop for DrivenRun {
    fn drop(&mut self) {
        let drives = Arc::clone(&self.drives);
        self.leave(&mut drives.at_work());
    }
}

impl Drives {
    pub(crate) fn new(runner: Runner, caps: RunCaps) -> Self {
        let (taken, accounts) = (AtomicU64::new(0), OnceLock::new());
        Self { runner, caps, taken, at_work: Mutex::default(), accounts }
    }

    /// Charges runs to these accounts from now on, and checks their keys there.
    pub(crate) fn charge_to(&self, accounts: Arc<Accounts>) {
        // There is one gateway, and so one set of accounts.
        drop(self.accounts.set(accounts));
    }

    /// The runner as an owner of its own: two hands of one process must not hold each other's leases.
    pub(crate) fn hand(&self) -> Runner {
        let number = self.taken.fetch_add(1, Ordering::Relaxed);
        let mut hand = self.runner.clone();
        hand.owner = Name::from(format!("{}.{number}", hand.owner));
        hand
    }

    /// Takes a place for a run that is about to begin, unless the tenant's share is full.
    pub(crate) fn start_run(self: &Arc<Self>, tenant: &Tenant) -> Result<StartingRun, Denied> {
        let most = self.caps.max_runs_per_tenant.max(1);
        let mut at_work = self.at_work();
        let share = at_work.share(tenant, most);
        if share.runs >= most {
            let message = format!(
                "{most} runs of this tenant are at work, and that is the most at once: try again in a moment, or raise \
                 max_runs_per_tenant of [agents]"
            );
            return Err(Denied::new(429, message).after(RUNS_RETRY));
        }
        share.runs += 1;
        drop(at_work);
        Ok(StartingRun { drives: Arc::clone(self), tenant: tenant.clone() })
    }

    /// Whether the tenant's share has room for another run.
    pub(super) fn has_room(&self, tenant: &Tenant) -> bool {
        let most = self.caps.max_runs_per_tenant.max(1);
        self.at_work().shares.get(tenant).is_none_or(|share| share.runs < most)
    }

    /// Drives a run in a task of this process, unless another process has it. It waits for a turn in its tenant's share.
    pub(crate) fn drive(self: &Arc<Self>, tenant: &Tenant, run: &LogId) {
        let mut at_work = self.at_work();
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
        let share = at_work.share(tenant, self.caps.max_runs_per_tenant);
        share.runs += 1;
        let turns = Arc::clone(&share.turns);
        let mut driven = DrivenRun { drives: Arc::clone(self), key, is_over: false };
        at_work.tasks.spawn(async move {
            let Ok(_turn) = turns.acquire_owned().await else { return };
            loop {
                driven.drives.drive_once(&driven.key.0, &driven.key.1).await;
                if !driven.is_wanted_again() {
                    return;
                }
            }
        });
    }

    async fn drive_once(&self, tenant: &Tenant, run: &LogId) {
        let mut hand = self.hand();
        if let Some(accounts) = self.accounts.get() {
            // A run whose key cannot be read is not driven: it could use what its key may not.
            let Ok((casting, _)) = self.runner.progress(tenant, run).await else { return };
            let key = RunNote::of(&casting).key;
            hand.permit = key.clone().map(|key| {
                let (accounts, tenant) = (Arc::clone(accounts), tenant.clone());
                Arc::new(RunPermit { accounts, tenant, key }) as Arc<dyn CallPermit>
            });
            hand.listener = Some(Arc::new(Charging {
                book: Arc::clone(&accounts.operations),
                tenant: tenant.clone(),
                key,
                besides: hand.listener.take(),
            }));
        }
        // Whether it came to rest, failed or belongs to another process: who waits for it reads the store.
        drop(hand.drive(tenant, run).await);
    }

    /// Begins no more, and lets those that there are come to rest for a while.
    pub(crate) async fn stop(&self, patience: Duration) {
        let mut tasks = {
            let mut at_work = self.at_work();
            at_work.is_closed = true;
            std::mem::take(&mut at_work.tasks)
        };
        let rest = async { while tasks.join_next().await.is_some() {} };
        drop(timeout(patience, rest).await);
        tasks.shutdown().await;
    }

    fn at_work(&self) -> MutexGuard<'_, AtWork> {
        self.at_work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Charges each answer that is kept, at the price of whoever gave it.
struct Charging {
    book: Arc<Operations>,
    tenant: Tenant,
    /// The key that began the run.
    key: Option<Name>,
    /// Who listens besides.
    besides: Option<Arc<dyn Listener>>,
}

impl Charging {
    fn charge(&self, event: &UsageEvent) {
        let (Some(used), Some(provider), Some(model)) =
            (&event.usage, &event.account, &event.asked)
        else {
            return;
        };
        let usage = Usage {
            input: used.input_tokens.unwrap_or(0),
            cached: used.cached_input_tokens.unwrap_or(0),
            written: 0,
            output: used.output_tokens.unwrap_or(0),
            thought: used.reasoning_tokens.unwrap_or(0),
        };
        let meter = &self.book.meter;
        let used = Used::of(1, usage, meter.price(provider, model));
        let (provider, model) = (provider.clone(), model.clone());
        let (tenant, key) = (self.tenant.clone(), self.key.clone());
        meter.charge(UsedFor { tenant, key, provider, model }, &used);
    }
}

impl Listener for Charging {
    fn on_event(&self, run: &Name, event: &RunEvent) {
        if let RunEvent::Usage(event) = event {
            self.charge(event);
        }
        if let Some(besides) = &self.besides {
            besides.on_event(run, event);
        }
    }
}
