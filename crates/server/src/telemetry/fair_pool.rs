//! A pool of units that tenants share fairly, so that no tenant can exclude the others.
//!
//! Free units are granted first come, first served, so that one busy tenant can use nearly all of
//! an otherwise idle gateway. Two rules protect the other tenants:
//!
//! - If callers have keys, no tenant can take the last eighth of the pool.
//! - When the pool is full, callers wait for a limited time. Units that become free go to the
//!   waiting tenant that holds the fewest units. A pool may also [refuse](OverSharePolicy::Refuse)
//!   a caller immediately if its tenant already has an equal share. An equal share is the pool size
//!   divided by the number of tenants that hold or wait for units.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use throughline_core::Tenant;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

use crate::sync::lock;

/// A tenant with a key must leave `1 / RESERVED` of the pool to other tenants.
const RESERVED: u64 = 8;

/// What a full pool does with a caller whose tenant already has its equal share.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OverSharePolicy {
    Refuse,
    Wait,
}

pub(crate) struct FairPool {
    capacity: u64,
    over: OverSharePolicy,
    state: Mutex<PoolState>,
    /// Wakes the tasks that wait until all units are free.
    idle: Notify,
}

#[derive(Default)]
struct PoolState {
    used: u64,
    /// Number of grants so far.
    turns: u64,
    /// Number of waiting callers across all tenants.
    waiting: usize,
    tenants: HashMap<Tenant, TenantUsage>,
}

#[derive(Default)]
struct TenantUsage {
    held: u64,
    /// The value of `turns` when the tenant last got units.
    served: u64,
    waiting: VecDeque<Waiter>,
}

struct Waiter {
    amount: u64,
    /// Maximum number of units that the tenant may hold.
    most: u64,
    ready: oneshot::Sender<PoolPermit>,
}

/// Units held by a request. They are released on drop.
pub(crate) struct PoolPermit {
    pool: Arc<FairPool>,
    tenant: Tenant,
    amount: u64,
}

/// The pool refused units to a tenant, or the tenant waited too long for units.
#[derive(Debug)]
pub(crate) struct PoolExhausted;

impl FairPool {
    pub(crate) fn new(capacity: u64, over: OverSharePolicy) -> Arc<Self> {
        Arc::new(Self { capacity, over, state: Mutex::default(), idle: Notify::new() })
    }

    pub(crate) fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.state().used)
    }

    /// Takes units, waiting for up to `patience`. A request for more units than one tenant may hold
    /// takes that maximum. `is_shared` is set if the caller has a key, because other tenants may
    /// then use the pool too.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        tenant: &Tenant,
        is_shared: bool,
        amount: u64,
        patience: Duration,
    ) -> Result<PoolPermit, PoolExhausted> {
        let reserved = if is_shared { self.capacity / RESERVED } else { 0 };
        let most = self.capacity - reserved;
        let amount = amount.min(most);
        let waiting = {
            let mut state = self.state();
            let is_contended = state.waiting > 0;
            let held = state.tenants.get(tenant).map_or(0, |usage| usage.held);
            if !is_contended && held + amount <= most && state.used + amount <= self.capacity {
                return Ok(self.grant(&mut state, tenant, amount));
            }
            let others = state.tenants.keys().filter(|known| *known != tenant).count() as u64;
            let has_share = held + amount > (self.capacity / (others + 1)).max(1);
            if patience.is_zero() || has_share && self.over == OverSharePolicy::Refuse {
                return Err(PoolExhausted);
            }
            let (ready, waiting) = oneshot::channel();
            let usage = state.tenants.entry(tenant.clone()).or_default();
            usage.waiting.push_back(Waiter { amount, most, ready });
            state.waiting += 1;
            waiting
        };
        // Units may have become free since, for example if the pool only seemed full because other
        // callers waited.
        self.grant_waiting();
        match timeout(patience, waiting).await {
            Ok(Ok(share)) => Ok(share),
            Ok(Err(_)) | Err(_) => {
                self.grant_waiting();
                Err(PoolExhausted)
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

    fn grant(self: &Arc<Self>, state: &mut PoolState, tenant: &Tenant, amount: u64) -> PoolPermit {
        state.used += amount;
        state.turns += 1;
        let turn = state.turns;
        let usage = state.tenants.entry(tenant.clone()).or_default();
        usage.held += amount;
        usage.served = turn;
        PoolPermit { pool: Arc::clone(self), tenant: tenant.clone(), amount }
    }

    /// Gives free units to the waiting tenants that hold the fewest units, and removes callers that
    /// stopped waiting.
    fn grant_waiting(self: &Arc<Self>) {
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
            let share = self.grant(&mut state, &tenant, amount);
            if let Err(mut unwanted) = waiter.ready.send(share) {
                // Release the units here, because dropping the permit would take the lock again.
                state.release(&unwanted.tenant, std::mem::take(&mut unwanted.amount));
            }
        }
        state.tenants.retain(|_, usage| usage.held > 0 || !usage.waiting.is_empty());
    }

    fn release(self: &Arc<Self>, tenant: &Tenant, amount: u64) {
        let mut state = self.state();
        state.release(tenant, amount);
        let (is_idle, is_contended) = (state.used == 0, state.waiting > 0);
        drop(state);
        if is_contended {
            self.grant_waiting();
        }
        if is_idle {
            self.idle.notify_waiters();
        }
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        lock(&self.state)
    }
}

impl PoolState {
    /// Returns the next waiting tenant and the number of units its first caller waits for. Skips
    /// tenants that would exceed their maximum, and selects the tenant that holds the fewest units.
    /// Ties go to the tenant whose last grant is oldest.
    fn next_waiting(&self) -> Option<(Tenant, u64)> {
        let waiting = self.tenants.iter().filter_map(|(tenant, usage)| {
            let Waiter { amount, most, .. } = usage.waiting.front()?;
            (usage.held + amount <= *most).then_some((usage.held, usage.served, tenant, *amount))
        });
        let (.., tenant, amount) = waiting.min_by_key(|(held, served, ..)| (*held, *served))?;
        Some((tenant.clone(), amount))
    }

    fn release(&mut self, tenant: &Tenant, amount: u64) {
        self.used = self.used.saturating_sub(amount);
        if let Some(usage) = self.tenants.get_mut(tenant) {
            usage.held = usage.held.saturating_sub(amount);
            if usage.held == 0 && usage.waiting.is_empty() {
                self.tenants.remove(tenant);
            }
        }
    }
}

impl PoolPermit {
    /// Releases all units beyond `amount`.
    pub(crate) fn shrink_to(&mut self, amount: u64) {
        let freed = self.amount.saturating_sub(amount);
        self.amount -= freed;
        if freed > 0 {
            self.pool.release(&self.tenant, freed);
        }
    }

    pub(crate) fn amount(&self) -> u64 {
        self.amount
    }

    /// Merges units of the same pool and tenant.
    pub(crate) fn join(&mut self, mut other: Self) {
        self.amount += std::mem::take(&mut other.amount);
    }
}

impl Drop for PoolPermit {
    fn drop(&mut self) {
        if self.amount > 0 {
            self.pool.release(&self.tenant, self.amount);
        }
    }
}

#[cfg(test)]
#[path = "fair_pool_tests.rs"]
mod fair_pool_tests;
