//! The tasks that drive runs. A run belongs to the store and not to its task: whoever is gone is replaced.
//!
//! What a run used while it was driven here is charged to the key that began it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use throughline_agent::{Casting, ModelSpent, Progress, Runner, Spent};
use throughline_core::{LogId, Name, Tenant, Usage};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::letta::request::RunNote;
use crate::operations::{Operations, Used, UsedFor};

/// The runs that this process drives.
pub(crate) struct Drives {
    pub(super) runner: Runner,
    /// How often a run was taken in hand.
    taken: AtomicU64,
    at_work: Mutex<AtWork>,
    /// Where it is written down what runs use.
    book: OnceLock<Arc<Operations>>,
}

#[derive(Default)]
struct AtWork {
    tasks: JoinSet<()>,
    /// Each run that a task drives, and whether it is to look once more when it is done.
    runs: HashMap<(Tenant, LogId), bool>,
    /// Whether no more are begun.
    is_closed: bool,
}

impl Drives {
    pub(crate) fn new(runner: Runner) -> Self {
        let (taken, book) = (AtomicU64::new(0), OnceLock::new());
        Self { runner, taken, at_work: Mutex::default(), book }
    }

    /// What runs use is written down there from now on.
    pub(crate) fn charge_to(&self, book: Arc<Operations>) {
        // There is one gateway, and so one book.
        drop(self.book.set(book));
    }

    /// The runner as somebody of its own: two hands of one process must not take each other for themselves.
    pub(crate) fn hand(&self) -> Runner {
        let number = self.taken.fetch_add(1, Ordering::Relaxed);
        let mut hand = self.runner.clone();
        hand.owner = Name::from(format!("{}.{number}", hand.owner));
        hand
    }

    /// Sees to it that somebody drives the run: a task of this process, unless another has it.
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
        let drives = Arc::clone(self);
        at_work.tasks.spawn(async move {
            loop {
                drives.drive_once(&key.0, &key.1).await;
                if !drives.is_wanted_again(&key) {
                    return;
                }
            }
        });
    }

    async fn drive_once(&self, tenant: &Tenant, run: &LogId) {
        let before = self.runner.progress(tenant, run).await;
        // Whether it came to rest, failed or is somebody else's: who waits for it looks at the store.
        let is_ours = self.hand().drive(tenant, run).await.is_ok();
        let after = self.runner.progress(tenant, run).await;
        if let (Ok((casting, before)), Ok((_, after)), true) = (before, after, is_ours) {
            self.charge(tenant, &casting, &before, &after);
        }
    }

    /// Each model is charged for its own answers, whoever was asked first.
    fn charge(&self, tenant: &Tenant, casting: &Casting, before: &Progress, after: &Progress) {
        let Some(book) = self.book.get() else { return };
        let meter = &book.meter;
        for now in &after.by_model {
            let is_it = |one: &&ModelSpent| one.account == now.account && one.model == now.model;
            let then = before.by_model.iter().find(is_it);
            let (spent, calls) = then.map_or((Spent::default(), 0), |one| (one.spent, one.answers));
            let calls = now.answers.saturating_sub(calls);
            if calls == 0 {
                continue;
            }
            let usage = Usage {
                input: now.spent.input.saturating_sub(spent.input),
                cached: now.spent.cached.saturating_sub(spent.cached),
                written: 0,
                output: now.spent.output.saturating_sub(spent.output),
                thought: now.spent.thought.saturating_sub(spent.thought),
            };
            let (provider, model) = (now.account.clone(), now.model.clone());
            let used = Used::of(calls, usage, meter.price(&provider, &model));
            let key = RunNote::of(casting).key;
            meter.charge(UsedFor { tenant: tenant.clone(), key, provider, model }, &used);
        }
    }

    /// Whether something happened to the run while it was driven. If not, it is driven no more.
    fn is_wanted_again(&self, key: &(Tenant, LogId)) -> bool {
        let mut at_work = self.at_work();
        match at_work.runs.get_mut(key) {
            Some(again) if *again => {
                *again = false;
                true
            }
            _ => {
                at_work.runs.remove(key);
                false
            }
        }
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
