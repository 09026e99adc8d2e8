//! The part of a key's limits that one node may use without the store.
//!
//! A node holds one lease per key. Calls reserve from the lease in memory. If the lease is too
//! small, the node requests more from the store: what the call needs, or a share of what is left.

use std::collections::BTreeMap;

use jiff::Timestamp;
use throughline_core::BudgetPeriod;
use throughline_json::Name;

use crate::telemetry::budget::account::{
    BudgetAccount, BudgetChange, BudgetDenial, BudgetLimit, BudgetUnit, LeaseAmount, LeaseChange,
    LimitWindow, ReservedAmount,
};
use crate::telemetry::usage::UsageAmount;

/// How long a lease lasts, in milliseconds. After a crash, the unused part of the lease is free
/// again after this time.
pub(super) const LEASE: u64 = 30_000;
/// Time before the end of a lease in which it is renewed before it is used, in milliseconds.
const MARGIN: u64 = 10_000;
/// Time without a reservation after which a node returns the unused part, in milliseconds.
const IDLE: u64 = 2_000;
/// Maximum age of usage that is not in the log yet, in milliseconds.
const REPORT: u64 = 5_000;
/// A lease grows by this fraction of what is left of the limit.
const SHARE: u64 = 10;

/// A node's lease of one key's limits.
#[derive(Default)]
pub(super) struct BudgetSlice {
    pub(super) account: BudgetAccount,
    /// The last record of the log that `account` contains; `None` before the first read.
    pub(super) seen: Option<u64>,
    /// The last checkpoint of the log.
    pub(super) summed: u64,
    limits: Vec<BudgetLimit>,
    /// The key's usage before its first lease; `None` until it is needed.
    before: Option<UsageAmount>,
    lease: Name,
    leases: u64,
    until: u64,
    rows: BTreeMap<LimitWindow, SliceRow>,
    /// When a call last reserved something, in milliseconds.
    touched: u64,
    /// When the log last received the state of this lease, in milliseconds.
    written: u64,
}

/// Amounts of this node in one window.
#[derive(Clone, Copy, Debug, Default)]
struct SliceRow {
    /// What the lease may use, including `spent`.
    granted: u64,
    /// What calls that ended have used.
    spent: u64,
    /// The part of `spent` that the log contains. The log forgets a lease some time after it
    /// expires, so the node remembers what it has reported.
    reported: u64,
    /// What calls in progress have reserved.
    reserved: u64,
}

impl SliceRow {
    fn free(self) -> u64 {
        self.granted.saturating_sub(self.spent).saturating_sub(self.reserved)
    }
}

/// Returns the milliseconds since 1970.
pub(super) fn millis(at: Timestamp) -> u64 {
    u64::try_from(at.as_millisecond()).unwrap_or_default()
}

impl BudgetSlice {
    /// Returns the limits that apply, as far as this node knows them.
    pub(super) fn limits(&self) -> &[BudgetLimit] {
        &self.limits
    }

    /// Returns the usage of a limit in the current window, including what this node has not
    /// reported yet.
    pub(super) fn spent(&self, limit: &BudgetLimit, at: Timestamp) -> u64 {
        let row = self.limit_window(limit, at);
        let recorded = self.base(limit).unwrap_or_else(|| self.account.spent(&row.0, row.1));
        recorded.saturating_add(self.unreported(&row))
    }

    /// Returns what this node and the other nodes may still use of a limit in the current window.
    pub(super) fn reserved(&self, limit: &BudgetLimit, at: Timestamp) -> u64 {
        let row = self.limit_window(limit, at);
        let own = self.rows.get(&row).map_or(0, |row| row.granted.saturating_sub(row.spent));
        self.account.claimed(&row, &self.lease, millis(at)).saturating_add(own)
    }

    /// Returns the usage before the first lease, if the limit is a total that the log does not
    /// contain yet.
    fn base(&self, limit: &BudgetLimit) -> Option<u64> {
        let is_new = limit.period == BudgetPeriod::Total && !self.account.contains(&limit.name());
        is_new.then(|| self.before.as_ref().map_or(0, |before| limit.unit.of(before)))
    }

    /// Sets the limits that apply. After a change of the limits, the usage before the first lease
    /// is set again, and the unused part of the lease is returned.
    pub(super) fn adopt(&mut self, limits: &[BudgetLimit], before: &UsageAmount) {
        self.before.get_or_insert(*before);
        if self.limits != limits {
            self.limits = limits.to_vec();
            self.before = Some(*before);
            for row in self.rows.values_mut() {
                row.granted = row.spent + row.reserved;
            }
        }
    }

    /// Returns a budget that is used up.
    pub(super) fn used_up(&self, at: Timestamp) -> Option<BudgetDenial> {
        let budgets = self.limits.iter().filter(|limit| limit.period != BudgetPeriod::Minute);
        budgets.copied().find_map(|limit| {
            let spent = self.spent(&limit, at);
            (spent >= limit.most).then_some(BudgetDenial::Spent { limit, spent, need: 0 })
        })
    }

    /// Returns what calls of this node have used and the log does not contain yet.
    fn unreported(&self, key: &LimitWindow) -> u64 {
        self.rows.get(key).map_or(0, |row| row.spent.saturating_sub(row.reported))
    }

    /// Returns the name of the node's lease; empty before the first lease.
    pub(super) fn lease(&self) -> &Name {
        &self.lease
    }

    /// Remembers what the log contains of this node's lease.
    pub(super) fn confirm(&mut self, change: &LeaseChange) {
        for (key, amount) in &change.amounts {
            if let Some(row) = self.rows.get_mut(key) {
                row.reported = row.reported.max(amount.spent);
            }
        }
    }

    fn has_news(&self) -> bool {
        self.rows.keys().any(|key| self.unreported(key) > 0)
    }

    fn limit_window(&self, limit: &BudgetLimit, at: Timestamp) -> LimitWindow {
        let (name, window) = (limit.name(), limit.period.window(at).start);
        let window = self.account.window(&name, window);
        (name, window)
    }

    /// Reserves what a call needs if the lease is large enough.
    pub(super) fn reserve(
        &mut self,
        limits: &[BudgetLimit],
        need: &UsageAmount,
        at: Timestamp,
    ) -> Option<Vec<ReservedAmount>> {
        let now = millis(at);
        if self.limits != limits || now.saturating_add(MARGIN) > self.until {
            return None;
        }
        let parts: Vec<_> = limits
            .iter()
            .map(|limit| {
                let (row, amount) = (self.limit_window(limit, at), limit.unit.of(need));
                ReservedAmount { row, unit: limit.unit, amount }
            })
            .collect();
        let is_free = |part: &ReservedAmount| {
            self.rows.get(&part.row).is_some_and(|row| row.free() >= part.amount)
        };
        if !parts.iter().all(is_free) {
            return None;
        }
        for part in &parts {
            if let Some(row) = self.rows.get_mut(&part.row) {
                row.reserved += part.amount;
            }
        }
        self.touched = now;
        Some(parts)
    }

    /// Ends a reservation and adds what the call has used. A request counts even if it failed.
    pub(super) fn settle(&mut self, parts: &[ReservedAmount], used: &UsageAmount) {
        for part in parts {
            if let Some(row) = self.rows.get_mut(&part.row) {
                row.reserved = row.reserved.saturating_sub(part.amount);
                row.spent = row.spent.saturating_add(match part.unit {
                    BudgetUnit::Requests => part.amount,
                    BudgetUnit::PicoUsd | BudgetUnit::Tokens => part.unit.of(used),
                });
            }
        }
    }

    /// Prepares the slice for a change of the lease. A lease that has expired and is not in use
    /// gets a new name, and so does a lease that the log has forgotten: with the old name, the log
    /// would count the reported usage again.
    fn prepare(&mut self, node: &str, now: u64) {
        let is_in_use = self.rows.values().any(|row| row.reserved > 0) || self.has_news();
        let is_expired = self.until < now;
        if self.lease.is_empty() || (is_expired && !is_in_use) {
            self.leases += 1;
            self.lease = Name::from(format!("{node}-{}", self.leases));
            self.rows.clear();
        } else if !self.account.has_lease(&self.lease)
            && self.rows.values().any(|row| row.reported > 0)
        {
            self.leases += 1;
            self.lease = Name::from(format!("{node}-{}", self.leases));
            for row in self.rows.values_mut() {
                row.spent = row.spent.saturating_sub(row.reported);
                row.granted = row.granted.saturating_sub(row.reported);
                row.reported = 0;
            }
        }
        for row in self.rows.values_mut() {
            let used = row.spent + row.reserved;
            // Usage can exceed an estimate, so a lease can need more than it was granted.
            row.granted = if is_expired { used } else { row.granted.max(used) };
        }
    }

    /// Returns the change that lets the lease cover `need`, or why that is not possible.
    pub(super) fn plan(
        &mut self,
        need: &UsageAmount,
        node: &str,
        at: Timestamp,
    ) -> Result<LeaseChange, BudgetDenial> {
        let now = millis(at);
        self.prepare(node, now);
        let mut grants = BTreeMap::new();
        for limit in self.limits.clone() {
            let key = self.limit_window(&limit, at);
            let row = *self.rows.entry(key.clone()).or_default();
            let spent = self.spent(&limit, at);
            let taken = spent.saturating_add(self.reserved(&limit, at));
            let left = limit.most.saturating_sub(taken);
            let need = limit.unit.of(need);
            let missing = need.saturating_sub(row.free());
            // A repeated attempt of a request is not another request.
            let is_repeated = limit.unit == BudgetUnit::Requests && need == 0;
            let is_spent = spent.saturating_add(need) > limit.most || spent >= limit.most;
            if is_spent && !is_repeated {
                return Err(BudgetDenial::Spent { limit, spent, need });
            }
            if missing > left {
                return Err(BudgetDenial::Busy { limit });
            }
            let more = if missing > 0 { missing.max(left / SHARE) } else { 0 };
            grants.insert(key, row.granted + more);
        }
        Ok(self.change(grants, now))
    }

    /// Returns the change that reports the usage and returns the unused part if no call needed it
    /// recently; `None` if nothing must be written. `is_last` is set on shutdown.
    pub(super) fn report(
        &mut self,
        is_last: bool,
        node: &str,
        at: Timestamp,
    ) -> Option<LeaseChange> {
        let now = millis(at);
        let is_idle = is_last || now.saturating_sub(self.touched) >= IDLE;
        let has_news = self.has_news();
        let has_unused = self.rows.iter().any(|(key, row)| {
            self.account.amount(&self.lease, key).granted > row.spent + row.reserved
        });
        let is_in_use = self.rows.values().any(|row| row.reserved > 0);
        let is_due = has_news && (is_idle || now.saturating_sub(self.written) >= REPORT)
            || has_unused && is_idle && self.until > now
            || is_in_use && now.saturating_add(LEASE / 2) > self.until;
        if !is_due {
            return None;
        }
        self.prepare(node, now);
        if is_idle {
            // The unused part is returned before the write, so that no call reserves it meanwhile.
            for row in self.rows.values_mut() {
                row.granted = row.spent + row.reserved;
            }
        }
        Some(self.change(BTreeMap::new(), now))
    }

    fn change(&self, mut grants: BTreeMap<LimitWindow, u64>, now: u64) -> LeaseChange {
        let amounts = self.rows.iter().map(|(key, row)| {
            let granted = grants.remove(key).unwrap_or(row.granted).max(row.spent);
            (key.clone(), LeaseAmount { granted, spent: row.spent })
        });
        let amounts = amounts.collect();
        let base = self.limits.iter().filter_map(|limit| Some((limit.name(), self.base(limit)?)));
        LeaseChange { lease: self.lease.clone(), until: now + LEASE, base: base.collect(), amounts }
    }

    /// Applies a change of this lease that is in the log now.
    pub(super) fn landed(&mut self, change: &LeaseChange, at: Timestamp) {
        (self.until, self.written) = (change.until, change.until.saturating_sub(LEASE));
        for (key, amount) in &change.amounts {
            if let Some(row) = self.rows.get_mut(key) {
                row.granted = amount.granted;
            }
        }
        self.confirm(change);
        self.account.apply(&BudgetChange::Lease(change.clone()));
        // Windows that are over are not needed once their calls have ended.
        let is_current = |key: &LimitWindow| {
            self.limits.iter().any(|limit| self.limit_window(limit, at) == *key)
        };
        let is_over = |(key, row): (&LimitWindow, &SliceRow)| {
            !is_current(key) && row.reserved == 0 && self.unreported(key) == 0
        };
        let over: Vec<LimitWindow> =
            self.rows.iter().filter(|row| is_over(*row)).map(|(key, _)| key.clone()).collect();
        self.rows.retain(|key, _| !over.contains(key));
    }
}
