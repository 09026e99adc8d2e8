//! A pool of units that all tenants share, and that no tenant can keep from the others.
//!
//! Free units go to the first request, so that one busy tenant can use nearly all of an idle gateway. Two rules keep
//! the others served:
//!
//! - With keys, one tenant never holds the last eighth of the pool.
//! - When the pool is full, callers wait for a while, and units that become free go to the waiting tenant that holds the
//!   least. A pool may also [refuse](OverShare::Refuse) callers at once whose tenant has its equal share already: the pool
//!   divided by the tenants that hold or wait for units.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use throughline_core::Tenant;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

/// The part of a pool that one tenant with a key leaves to the others.
const RESERVED: u64 = 8;

/// What happens to a caller of a full pool whose tenant has its equal share.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OverShare {
    Refuse,
    Wait,
}

/// A pool of units.
pub(crate) struct Shares {
    capacity: u64,
    over: OverShare,
    state: Mutex<State>,
    /// Wakes the tasks that wait until all units are free.
    idle: Notify,
}

#[derive(Default)]
struct State {
    used: u64,
    /// How often units were given out.
    turns: u64,
    /// How many callers wait, of all tenants.
    waiting: usize,
    tenants: HashMap<Tenant, Usage>,
}

#[derive(Default)]
struct Usage {
    held: u64,
    /// The turn in which it got units last.
    served: u64,
    waiting: VecDeque<Waiter>,
}

struct Waiter {
    amount: u64,
    /// The most that its tenant may hold.
    most: u64,
    ready: oneshot::Sender<Share>,
}

/// The units that a request holds. They are free again when it is dropped.
pub(crate) struct Share {
    pool: Arc<Shares>,
    tenant: Tenant,
    amount: u64,
}

/// There are no free units for this tenant.
#[derive(Debug)]
pub(crate) struct NoShare;

impl Shares {
    pub(crate) fn new(capacity: u64, over: OverShare) -> Arc<Self> {
        Arc::new(Self { capacity, over, state: Mutex::default(), idle: Notify::new() })
    }

    /// The free units.
    pub(crate) fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.state().used)
    }

    /// Takes units, and waits for them up to `patience`. A request that needs more than one tenant may ever hold takes all
    /// that one may. `is_shared` says that there are other tenants, which is so where callers have keys.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        tenant: &Tenant,
        is_shared: bool,
        amount: u64,
        patience: Duration,
    ) -> Result<Share, NoShare> {
        let most = self.most(is_shared);
        let amount = amount.min(most);
        let waiting = {
            let mut state = self.state();
            let is_contended = state.waiting > 0;
            let held = state.tenants.get(tenant).map_or(0, |usage| usage.held);
            if !is_contended && held + amount <= most && state.used + amount <= self.capacity {
                return Ok(self.share(&mut state, tenant, amount));
            }
            let others = state.tenants.keys().filter(|known| *known != tenant).count() as u64;
            let has_share = held + amount > (self.capacity / (others + 1)).max(1);
            if patience.is_zero() || has_share && self.over == OverShare::Refuse {
                return Err(NoShare);
            }
            let (ready, waiting) = oneshot::channel();
            let usage = state.tenants.entry(tenant.clone()).or_default();
            usage.waiting.push_back(Waiter { amount, most, ready });
            state.waiting += 1;
            waiting
        };
        // Something may have become free since, as when the pool only seemed full because others waited.
        self.serve();
        match timeout(patience, waiting).await {
            Ok(Ok(share)) => Ok(share),
            Ok(Err(_)) | Err(_) => {
                self.serve();
                Err(NoShare)
            }
        }
    }

    /// Waits until all units are free.
    pub(crate) async fn all_free(&self) {
        loop {
            let mut woken = std::pin::pin!(self.idle.notified());
            woken.as_mut().enable();
            if self.state().used == 0 {
                return;
            }
            woken.await;
        }
    }

    /// The most units that one tenant may hold.
    fn most(&self, is_shared: bool) -> u64 {
        if is_shared { self.capacity - self.capacity / RESERVED } else { self.capacity }
    }

    fn share(self: &Arc<Self>, state: &mut State, tenant: &Tenant, amount: u64) -> Share {
        state.used += amount;
        state.turns += 1;
        let turn = state.turns;
        let usage = state.tenants.entry(tenant.clone()).or_default();
        usage.held += amount;
        usage.served = turn;
        Share { pool: Arc::clone(self), tenant: tenant.clone(), amount }
    }

    /// Gives free units to the waiting tenants that hold the least. Callers that gave up are removed.
    fn serve(self: &Arc<Self>) {
        let mut state = self.state();
        let mut waiting = 0;
        for usage in state.tenants.values_mut() {
            usage.waiting.retain(|waiter| !waiter.ready.is_closed());
            waiting += usage.waiting.len();
        }
        state.waiting = waiting;
        while let Some((tenant, amount)) = state.next_waiting() {
            if state.used + amount > self.capacity {
                break;
            }
            let usage = state.tenants.get_mut(&tenant);
            let Some(waiter) = usage.and_then(|usage| usage.waiting.pop_front()) else { break };
            state.waiting = state.waiting.saturating_sub(1);
            let share = self.share(&mut state, &tenant, amount);
            if let Err(mut unwanted) = waiter.ready.send(share) {
                // Given back here, because dropping it would take the lock again.
                state.give_back(&unwanted.tenant, std::mem::take(&mut unwanted.amount));
            }
        }
        state.tenants.retain(|_, usage| usage.held > 0 || !usage.waiting.is_empty());
    }

    fn release(self: &Arc<Self>, tenant: &Tenant, amount: u64) {
        let mut state = self.state();
        state.give_back(tenant, amount);
        let (is_idle, is_contended) = (state.used == 0, state.waiting > 0);
        drop(state);
        if is_contended {
            self.serve();
        }
        if is_idle {
            self.idle.notify_waiters();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The tenant that holds the least of those that wait and may hold more, and how much its first caller waits for. Of
    /// several, the one that has waited longest since it got units.
    fn next_waiting(&self) -> Option<(Tenant, u64)> {
        let waiting = self.tenants.iter().filter_map(|(tenant, usage)| {
            let Waiter { amount, most, .. } = usage.waiting.front()?;
            (usage.held + amount <= *most).then_some((usage.held, usage.served, tenant, *amount))
        });
        let (.., tenant, amount) = waiting.min_by_key(|(held, served, ..)| (*held, *served))?;
        Some((tenant.clone(), amount))
    }

    fn give_back(&mut self, tenant: &Tenant, amount: u64) {
        self.used = self.used.saturating_sub(amount);
        if let Some(usage) = self.tenants.get_mut(tenant) {
            usage.held = usage.held.saturating_sub(amount);
            if usage.held == 0 && usage.waiting.is_empty() {
                self.tenants.remove(tenant);
            }
        }
    }
}

impl Share {
    /// Gives units back, but for that many.
    pub(crate) fn shrink_to(&mut self, amount: u64) {
        let freed = self.amount.saturating_sub(amount);
        self.amount -= freed;
        if freed > 0 {
            self.pool.release(&self.tenant, freed);
        }
    }

    /// How many units it holds.
    pub(crate) fn amount(&self) -> u64 {
        self.amount
    }

    /// Joins units of the same pool and tenant.
    pub(crate) fn join(&mut self, mut other: Self) {
        self.amount += std::mem::take(&mut other.amount);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.amount > 0 {
            self.pool.release(&self.tenant, self.amount);
        }
    }
}

#[cfg(test)]
#[path = "shares_tests.rs"]
mod shares_tests;
