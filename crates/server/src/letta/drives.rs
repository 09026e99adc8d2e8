//! The tasks that drive runs. A run belongs to the store and not to its task: whoever is gone is replaced.
//!
//! What a run uses while it is driven here is charged to the key that began it, answer by answer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use throughline_agent::{Listener, Runner};
use throughline_core::{LogId, Name, RunEvent, Tenant, Usage, UsageEvent};
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
        let mut hand = self.hand();
        if let (Some(book), Ok((casting, _))) =
            (self.book.get(), self.runner.progress(tenant, run).await)
        {
            hand.listener = Some(Arc::new(Charging {
                book: Arc::clone(book),
                tenant: tenant.clone(),
                key: RunNote::of(&casting).key,
                besides: hand.listener.take(),
            }));
        }
        // Whether it came to rest, failed or is somebody else's: who waits for it looks at the store.
        drop(hand.drive(tenant, run).await);
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
