//! Enforces the limits of keys over all nodes.
//!
//! A call reserves its estimated cost before it is sent, and settles the actual cost afterwards. A
//! node reserves from a lease in memory and writes to the store only if the lease is too small,
//! about every five seconds while calls use the lease, and when the lease is idle. Leases of all
//! nodes never exceed a limit together with the recorded usage, because every grant is written
//! under the condition that no other node has written since the last read.
//!
//! Model calls of agent runs reserve in the same way. Usage exceeds a limit only if calls use more
//! than was estimated. If a node crashes, its lease expires after 30 seconds, and other nodes can
//! use the unused part again.
//!
//! | file | contents |
//! |---|---|
//! | `account.rs` | the state of a key's limits, and its records in the store |
//! | `slice.rs` | the lease of one node |

mod account;
mod slice;

#[cfg(test)]
#[path = "budget/budget_tests.rs"]
mod budget_tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use throughline_core::{
    Append, Batch, BudgetPeriod, Clock, LogOpening, NewRecord, Store, StoreError, Tenant, kind,
};
use throughline_json::{Json, Name};

use crate::object::{join_objects, object};
use crate::records::{RecordPages, StoreResult};
use crate::sync::lock;
pub use crate::telemetry::budget::account::budget_log;
use crate::telemetry::budget::account::budget_reset;
use crate::telemetry::budget::account::{
    BudgetAccount, BudgetChange, KIND, LeaseChange, ReservedAmount,
};
pub(crate) use crate::telemetry::budget::account::{BudgetDenial, BudgetLimit, BudgetUnit};
use crate::telemetry::budget::slice::BudgetSlice;
use crate::telemetry::log::{Level, Log};
use crate::telemetry::usage::UsageAmount;

/// Number of records between two checkpoints.
const CHECKPOINT_INTERVAL: u64 = 500;
/// Number of attempts to write while other nodes write.
const ATTEMPTS: usize = 100;

/// Receives a message when a key has used a given share of a budget.
pub trait BudgetAlerts: Send + Sync {
    /// Delivers a message. The call must not block.
    fn alert(&self, message: Json);
}

/// What a call has reserved. Dropping a reservation returns it.
pub(crate) struct BudgetReservation {
    budget: Arc<KeyBudget>,
    parts: Vec<ReservedAmount>,
}

impl BudgetReservation {
    /// Replaces the reservation with what the call has used.
    pub(crate) fn settle(mut self, used: &UsageAmount) {
        self.end(used);
    }

    fn end(&mut self, used: &UsageAmount) {
        let parts = std::mem::take(&mut self.parts);
        lock(&self.budget.slice).settle(&parts, used);
    }
}

impl Drop for BudgetReservation {
    fn drop(&mut self) {
        self.end(&UsageAmount::default());
    }
}

/// A node's view of one key's limits.
#[derive(Default)]
struct KeyBudget {
    slice: Mutex<BudgetSlice>,
    /// Serializes reads and writes of the log.
    turn: tokio::sync::Mutex<()>,
    /// The share of a budget, in percent, at which an alert is sent.
    soft_percent: Mutex<Option<u32>>,
}

/// The limits of all keys, as one node knows them.
pub(crate) struct Budgets {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    log: Arc<dyn Log>,
    alerts: Option<Arc<dyn BudgetAlerts>>,
    node: Name,
    keys: Mutex<HashMap<(Tenant, Name), Arc<KeyBudget>>>,
}

impl Budgets {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        log: Arc<dyn Log>,
        node: Name,
    ) -> Self {
        Self { store, clock, log, alerts: None, node, keys: Mutex::default() }
    }

    pub(crate) fn set_alerts(&mut self, alerts: Arc<dyn BudgetAlerts>) {
        self.alerts = Some(alerts);
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn key(&self, tenant: &Tenant, key: &Name) -> Arc<KeyBudget> {
        let id = (tenant.clone(), key.clone());
        Arc::clone(lock(&self.keys).entry(id).or_default())
    }

    /// Reserves `need` from a key's limits. `before` is the key's usage before its first lease.
    pub(crate) async fn reserve(
        &self,
        (tenant, key): (&Tenant, &Name),
        limits: &[BudgetLimit],
        need: &UsageAmount,
        before: &UsageAmount,
    ) -> StoreResult<Result<BudgetReservation, BudgetDenial>> {
        let budget = self.key(tenant, key);
        let try_reserve = || {
            let parts = lock(&budget.slice).reserve(limits, need, self.now())?;
            Some(BudgetReservation { budget: Arc::clone(&budget), parts })
        };
        if let Some(reservation) = try_reserve() {
            return Ok(Ok(reservation));
        }
        let _turn = budget.turn.lock().await;
        lock(&budget.slice).adopt(limits, before);
        for _ in 0..ATTEMPTS {
            // Another call may have requested a larger lease meanwhile.
            if let Some(reservation) = try_reserve() {
                return Ok(Ok(reservation));
            }
            self.refresh(tenant, key, &budget).await?;
            let change = lock(&budget.slice).plan(need, &self.node, self.now());
            let change = match change {
                Ok(change) => change,
                Err(denial) => return Ok(Err(denial)),
            };
            self.write(tenant, key, &budget, change).await?;
        }
        Ok(match limits.first() {
            Some(limit) => Err(BudgetDenial::Busy { limit: *limit }),
            None => Ok(BudgetReservation { budget: Arc::clone(&budget), parts: Vec::new() }),
        })
    }

    /// Returns whether a budget of a key is used up. The store is read before a key is refused.
    pub(crate) async fn check(
        &self,
        (tenant, key): (&Tenant, &Name),
        limits: &[BudgetLimit],
        before: &UsageAmount,
    ) -> StoreResult<Result<(), BudgetDenial>> {
        let budget = self.key(tenant, key);
        let used_up = || {
            let mut slice = lock(&budget.slice);
            slice.adopt(limits, before);
            slice.seen.map(|_| slice.used_up(self.now()))
        };
        if used_up() == Some(None) {
            return Ok(Ok(()));
        }
        let _turn = budget.turn.lock().await;
        self.refresh(tenant, key, &budget).await?;
        Ok(used_up().flatten().map_or(Ok(()), Err))
    }

    /// Sets the share of a key's budgets, in percent, at which an alert is sent.
    pub(crate) fn set_soft_percent(&self, tenant: &Tenant, key: &Name, percent: Option<u32>) {
        *lock(&self.key(tenant, key).soft_percent) = percent;
    }

    /// Returns the usage and the reserved amount of each limit in its current window.
    pub(crate) async fn status(
        &self,
        (tenant, key): (&Tenant, &Name),
        limits: &[BudgetLimit],
        before: &UsageAmount,
    ) -> StoreResult<Vec<(BudgetLimit, (u64, u64))>> {
        let budget = self.key(tenant, key);
        let _turn = budget.turn.lock().await;
        self.refresh(tenant, key, &budget).await?;
        let (mut slice, at) = (lock(&budget.slice), self.now());
        slice.adopt(limits, before);
        let amounts = |limit: &BudgetLimit| (slice.spent(limit, at), slice.reserved(limit, at));
        Ok(limits.iter().map(|limit| (*limit, amounts(limit))).collect())
    }

    /// Reports the usage of all keys and returns unused parts of leases. `is_last` is set on
    /// shutdown. If keys fail, the others are still reported, and the first error is returned.
    pub(crate) async fn report(&self, is_last: bool) -> StoreResult<()> {
        let keys: Vec<_> =
            lock(&self.keys).iter().map(|(id, key)| (id.clone(), Arc::clone(key))).collect();
        let mut reported = Ok(());
        for ((tenant, key), budget) in keys {
            let done = self.report_key(&tenant, &key, &budget, is_last).await;
            reported = reported.and(done);
        }
        reported
    }

    async fn report_key(
        &self,
        tenant: &Tenant,
        key: &Name,
        budget: &KeyBudget,
        is_last: bool,
    ) -> StoreResult<()> {
        let _turn = budget.turn.lock().await;
        for _ in 0..ATTEMPTS {
            let change = lock(&budget.slice).report(is_last, &self.node, self.now());
            let Some(change) = change else { break };
            if self.write(tenant, key, budget, change).await? {
                break;
            }
            self.refresh(tenant, key, budget).await?;
        }
        Ok(())
    }

    /// Reads the records that other nodes have written.
    async fn refresh(&self, tenant: &Tenant, key: &Name, budget: &KeyBudget) -> StoreResult<()> {
        let (owner, log) = budget_log(tenant, key);
        let (seen, mut account, mut summed, lease) = {
            let slice = lock(&budget.slice);
            (slice.seen, slice.account.clone(), slice.summed, slice.lease().clone())
        };
        // A write of this node that the store did not acknowledge.
        let mut own = None;
        let mut after = seen.unwrap_or_default();
        if seen.is_none() {
            let Some(head) = self.store.log(&owner, &log).await? else {
                lock(&budget.slice).seen = Some(0);
                return Ok(());
            };
            let checkpoint = self.store.checkpoint(&owner, &log, head.last).await?;
            let state = checkpoint.as_ref().and_then(|checkpoint| {
                Some((checkpoint.seq, BudgetAccount::parse(checkpoint.content.bytes()?)?))
            });
            if let Some((seq, state)) = state {
                (account, after, summed) = (state, seq, seq);
            }
        }
        let mut pages = RecordPages::new(&*self.store, &owner, &log, after);
        loop {
            let records = match pages.next().await {
                Err(StoreError::NotFound { .. }) => None,
                records => records?,
            };
            let Some(records) = records else { break };
            for record in &records {
                match (&*record.kind, record.content.bytes()) {
                    (KIND, Some(content)) => {
                        if let Some(change) = BudgetChange::parse(content) {
                            account.apply(&change);
                            if let BudgetChange::Lease(change) = change
                                && change.lease == lease
                            {
                                own = Some(change);
                            }
                        }
                    }
                    (kind::CHECKPOINT, _) => summed = record.seq,
                    _ => {}
                }
            }
        }
        let mut slice = lock(&budget.slice);
        (slice.account, slice.seen, slice.summed) = (account, Some(pages.after), summed);
        if let Some(own) = own {
            slice.confirm(&own);
        }
        Ok(())
    }

    /// Appends a change of the node's lease. Returns `false` if another node has written since the
    /// last read, so that nothing was written.
    async fn write(
        &self,
        tenant: &Tenant,
        key: &Name,
        budget: &KeyBudget,
        change: LeaseChange,
    ) -> StoreResult<bool> {
        let (owner, log) = budget_log(tenant, key);
        let (seen, checkpoint) = {
            let slice = lock(&budget.slice);
            let seen = slice.seen.unwrap_or_default();
            let is_due = seen.saturating_sub(slice.summed) >= CHECKPOINT_INTERVAL;
            (seen, is_due.then(|| slice.account.checkpoint()))
        };
        let mut append = Append::new(log);
        append = match seen {
            0 => append.opening(LogOpening::thread()),
            seen => append.expect_last(seen),
        };
        let has_checkpoint = checkpoint.is_some();
        if let Some(checkpoint) = checkpoint {
            append = append.record(NewRecord::new(kind::CHECKPOINT, checkpoint.bytes().clone()));
        }
        let record = BudgetChange::Lease(change.clone()).record();
        append = append.record(NewRecord::new(KIND, record.bytes().clone()));
        match self.store.commit(Batch::new(owner).append(append)).await {
            Ok(_) => {}
            Err(StoreError::Conflict { .. }) => return Ok(false),
            // Another node has created the log.
            Err(StoreError::Invalid(_)) if seen == 0 => return Ok(false),
            Err(error) => return Err(error),
        }
        let crossed = {
            let mut slice = lock(&budget.slice);
            let (at, percent) = (self.now(), *lock(&budget.soft_percent));
            if has_checkpoint {
                slice.summed = seen + 1;
            }
            slice.seen = Some(seen + 1 + u64::from(has_checkpoint));
            let soft = soft_limits(slice.limits(), percent);
            let reached = |slice: &BudgetSlice, limit: &BudgetLimit, soft: u64| {
                let name = limit.name();
                let window = slice.account.window(&name, limit.period.window(at).start);
                slice.account.spent(&name, window) >= soft
            };
            let below: Vec<_> =
                soft.into_iter().filter(|(limit, soft)| !reached(&slice, limit, *soft)).collect();
            slice.landed(&change, at);
            let crossed = below.into_iter().filter(|(limit, soft)| reached(&slice, limit, *soft));
            crossed.map(|(limit, _)| (limit, slice.spent(&limit, at))).collect::<Vec<_>>()
        };
        for (limit, spent) in crossed {
            self.alert(tenant, key, &limit, spent);
        }
        Ok(true)
    }

    /// Logs that a key has reached the soft limit of a budget, and sends an alert.
    fn alert(&self, tenant: &Tenant, key: &Name, limit: &BudgetLimit, spent: u64) {
        let window = limit.period.window(self.now());
        // Amounts in dollars are in millionths, as everywhere else in the API.
        let (unit, divisor) = match limit.unit {
            BudgetUnit::PicoUsd => ("micro_usd", 1_000_000),
            BudgetUnit::Tokens | BudgetUnit::Requests => (limit.unit.as_str(), 1),
        };
        let message = object! {
            "type": "budget.soft_limit", "tenant": tenant.0, "key": key, "unit": unit,
            "period": limit.period.as_str(), "limit": limit.most / divisor,
            "used": spent / divisor, "window_start": window.start, "window_end"? window.end,
        };
        if self.log.wants(Level::Warn) {
            let event = object! { "event": "budget.soft_limit" };
            let line = join_objects(&event, &message);
            self.log.write(Level::Warn, &line);
        }
        if let Some(alerts) = &self.alerts {
            alerts.alert(message);
        }
    }
}

/// Returns the budgets among the limits, each with the usage at which an alert is sent.
fn soft_limits(limits: &[BudgetLimit], percent: Option<u32>) -> Vec<(BudgetLimit, u64)> {
    let Some(percent) = percent else { return Vec::new() };
    let budgets = limits.iter().filter(|limit| limit.period != BudgetPeriod::Minute);
    let soft = |limit: &BudgetLimit| {
        let soft = u128::from(limit.most) * u128::from(percent) / 100;
        (*limit, u64::try_from(soft).unwrap_or(u64::MAX).max(1))
    };
    budgets.map(soft).collect()
}

/// Lets the budgets of a key count from zero.
pub async fn reset_budget(store: &dyn Store, tenant: &Tenant, key: &str) -> StoreResult<()> {
    let ((owner, log), (kind, record)) = (budget_log(tenant, key), budget_reset());
    let mut append = Append::new(log.clone());
    if store.log(&owner, &log).await?.is_none() {
        append = append.opening(LogOpening::thread());
    }
    append = append.record(NewRecord::new(kind, record.bytes().clone()));
    store.commit(Batch::new(owner).append(append)).await.map(drop)
}
