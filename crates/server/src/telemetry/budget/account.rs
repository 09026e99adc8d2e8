//! The stored state of one key's limits.
//!
//! All nodes append to one log per key. Each record is the latest state of one lease, so a record
//! that is written twice counts once:
//!
//! - `spent` is what the calls of the lease have used so far in a window;
//! - `granted` is how much the lease may use in that window, including `spent`.
//!
//! For each limit, the log contains the usage in the current window. A record whose window is later
//! starts that window. The unused part of a lease counts against the limit until the lease expires.

use std::collections::BTreeMap;

use bytes::Bytes;
use throughline_core::{BudgetPeriod, LogId, Tenant};
use throughline_json::{self as json, Json, Name, Node, Tree, words};

use crate::telemetry::usage::{UsageAmount, usage_log};

/// The kind of the records.
pub(super) const KIND: &str = "budget";

/// How long an expired lease is remembered, in milliseconds, so that its node can still report what
/// its calls used.
const REMEMBERED: u64 = 10 * 60 * 1000;

words! {
    /// What a limit counts.
    BudgetUnit {
        /// Trillionths of a dollar.
        PicoUsd = "pico_usd",
        /// Input and output tokens.
        Tokens = "tokens",
        /// Requests.
        Requests = "requests",
    }
}

impl BudgetUnit {
    /// Returns the part of `used` that this unit counts.
    pub(super) fn of(self, used: &UsageAmount) -> u64 {
        match self {
            BudgetUnit::PicoUsd => used.pico_usd,
            BudgetUnit::Tokens => used.tokens.total(),
            BudgetUnit::Requests => used.calls,
        }
    }
}

/// A limit of a key: at most `most` units in each window of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BudgetLimit {
    pub(crate) unit: BudgetUnit,
    pub(crate) period: BudgetPeriod,
    pub(crate) most: u64,
}

impl BudgetLimit {
    /// Returns the name of the limit in the log, such as `tokens/day`.
    pub(super) fn name(&self) -> Name {
        limit_name(self.unit, self.period)
    }
}

fn limit_name(unit: BudgetUnit, period: BudgetPeriod) -> Name {
    Name::from(format!("{unit}/{period}"))
}

/// A limit and the first second of a window.
pub(super) type LimitWindow = (Name, u64);

/// Why a reservation was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BudgetDenial {
    /// The limit does not cover the call in this window.
    Spent { limit: BudgetLimit, spent: u64, need: u64 },
    /// Calls in progress have reserved what is left of the limit.
    Busy { limit: BudgetLimit },
}

/// An amount that a call has reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReservedAmount {
    pub(super) row: LimitWindow,
    pub(super) unit: BudgetUnit,
    pub(super) amount: u64,
}

/// Amounts of a lease in one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeaseAmount {
    pub(super) granted: u64,
    pub(super) spent: u64,
}

impl LeaseAmount {
    fn unused(self) -> u64 {
        self.granted.saturating_sub(self.spent)
    }
}

/// One record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BudgetChange {
    /// Sets the usage of the current windows to zero.
    Reset,
    /// Replaces the state of a lease.
    Lease(LeaseChange),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LeaseChange {
    pub(super) lease: Name,
    /// When the lease expires, in milliseconds since 1970.
    pub(super) until: u64,
    /// The usage before the first lease, for total limits that the log does not contain yet.
    pub(super) base: BTreeMap<Name, u64>,
    pub(super) amounts: BTreeMap<LimitWindow, LeaseAmount>,
}

/// The state of a key's limits, computed from the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BudgetAccount {
    /// The current window and its usage, by limit.
    counters: BTreeMap<Name, (u64, u64)>,
    leases: BTreeMap<Name, LeaseState>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LeaseState {
    until: u64,
    amounts: BTreeMap<LimitWindow, LeaseAmount>,
}

impl BudgetAccount {
    pub(super) fn apply(&mut self, change: &BudgetChange) {
        let change = match change {
            BudgetChange::Lease(change) => change,
            BudgetChange::Reset => {
                for (_, spent) in self.counters.values_mut() {
                    *spent = 0;
                }
                // Without these entries, the usage before the first lease would count again.
                for unit in [BudgetUnit::PicoUsd, BudgetUnit::Tokens] {
                    self.counters.entry(limit_name(unit, BudgetPeriod::Total)).or_default();
                }
                return;
            }
        };
        for (limit, spent) in &change.base {
            self.counters.entry(limit.clone()).or_insert((0, *spent));
        }
        let state = self.leases.entry(change.lease.clone()).or_default();
        let before = std::mem::replace(&mut state.amounts, change.amounts.clone());
        state.until = change.until;
        for ((limit, window), amount) in &change.amounts {
            let known = before.get(&(limit.clone(), *window)).copied().unwrap_or_default();
            let counter = self.counters.entry(limit.clone()).or_insert((*window, 0));
            if counter.0 < *window {
                *counter = (*window, 0);
            }
            if counter.0 == *window {
                counter.1 = counter.1.saturating_add(amount.spent.saturating_sub(known.spent));
            }
        }
        self.leases.retain(|_, lease| lease.until.saturating_add(REMEMBERED) > change.until);
    }

    /// Returns whether the log contains the limit.
    pub(super) fn contains(&self, limit: &Name) -> bool {
        self.counters.contains_key(limit)
    }

    /// Returns the window to use now: the current window, or a later one that another node with a
    /// faster clock has started.
    pub(super) fn window(&self, limit: &Name, current: u64) -> u64 {
        self.counters.get(limit).map_or(current, |(window, _)| current.max(*window))
    }

    /// Returns the recorded usage in a window.
    pub(super) fn spent(&self, limit: &Name, window: u64) -> u64 {
        let counter = self.counters.get(limit).filter(|(current, _)| *current == window);
        counter.map_or(0, |(_, spent)| *spent)
    }

    /// Returns what leases other than `own` may still use in a window.
    pub(super) fn claimed(&self, limit: &LimitWindow, own: &Name, now: u64) -> u64 {
        let others = self.leases.iter().filter(|(name, lease)| *name != own && lease.until > now);
        let unused = others.filter_map(|(_, lease)| lease.amounts.get(limit));
        unused.fold(0, |sum: u64, amount| sum.saturating_add(amount.unused()))
    }

    /// Returns whether the state contains a lease. Old leases are forgotten.
    pub(super) fn has_lease(&self, lease: &Name) -> bool {
        self.leases.contains_key(lease)
    }

    /// Returns the amounts of a lease in a window, according to the log.
    pub(super) fn amount(&self, lease: &Name, limit: &LimitWindow) -> LeaseAmount {
        let lease = self.leases.get(lease).and_then(|lease| lease.amounts.get(limit));
        lease.copied().unwrap_or_default()
    }

    /// Encodes the state as a checkpoint.
    pub(super) fn checkpoint(&self) -> Json {
        json::object(|o| {
            o.number("v", 1).array("counters", |a| {
                for (limit, (window, spent)) in &self.counters {
                    a.object(|o| {
                        o.string("limit", limit).number("window", *window).number("spent", *spent);
                    });
                }
            });
            o.array("leases", |a| {
                for (lease, LeaseState { until, amounts }) in &self.leases {
                    a.object(|o| write_lease(o, lease, *until, amounts));
                }
            });
        })
    }

    /// Decodes a checkpoint; `None` if it is invalid.
    pub(super) fn parse(checkpoint: &Bytes) -> Option<Self> {
        let tree = Tree::parse(checkpoint.clone()).ok()?;
        let mut account = Self::default();
        for row in tree.root().get("counters")?.elements() {
            let counter = (number(row, "window")?, number(row, "spent")?);
            account.counters.insert(row.name_of("limit")?, counter);
        }
        for row in tree.root().get("leases")?.elements() {
            let LeaseChange { lease, until, amounts, .. } = read_lease(row)?;
            account.leases.insert(lease, LeaseState { until, amounts });
        }
        Some(account)
    }
}

impl BudgetChange {
    /// Encodes the record.
    pub(super) fn record(&self) -> Json {
        json::object(|o| match self {
            BudgetChange::Reset => {
                o.number("v", 1).flag("reset", true);
            }
            BudgetChange::Lease(LeaseChange { lease, until, base, amounts }) => {
                o.number("v", 1);
                write_lease(o, lease, *until, amounts);
                if !base.is_empty() {
                    o.array("base", |a| {
                        for (limit, spent) in base {
                            a.object(|o| {
                                o.string("limit", limit).number("spent", *spent);
                            });
                        }
                    });
                }
            }
        })
    }

    /// Decodes a record; `None` if it is invalid.
    pub(super) fn parse(record: &Bytes) -> Option<Self> {
        let tree = Tree::parse(record.clone()).ok()?;
        let root = tree.root();
        if root.get("reset").is_some() {
            return Some(BudgetChange::Reset);
        }
        let mut change = read_lease(root)?;
        for row in root.get("base").into_iter().flat_map(Node::elements) {
            change.base.insert(row.name_of("limit")?, number(row, "spent")?);
        }
        Some(BudgetChange::Lease(change))
    }
}

fn write_lease(
    o: &mut json::Object<'_>,
    lease: &str,
    until: u64,
    amounts: &BTreeMap<LimitWindow, LeaseAmount>,
) {
    o.string("lease", lease).number("until", until).array("rows", |a| {
        for ((limit, window), LeaseAmount { granted, spent }) in amounts {
            a.object(|o| {
                o.string("limit", limit).number("window", *window);
                o.number("granted", *granted).number("spent", *spent);
            });
        }
    });
}

fn read_lease(row: Node<'_>) -> Option<LeaseChange> {
    let mut amounts = BTreeMap::new();
    for row in row.get("rows")?.elements() {
        let amount = LeaseAmount { granted: number(row, "granted")?, spent: number(row, "spent")? };
        amounts.insert((row.name_of("limit")?, number(row, "window")?), amount);
    }
    let (lease, until) = (row.name_of("lease")?, number(row, "until")?);
    Some(LeaseChange { lease, until, amounts, ..LeaseChange::default() })
}

fn number(row: Node<'_>, name: &str) -> Option<u64> {
    row.get(name).and_then(Node::u64)
}

/// Returns the tenant and the log that contain the state of a key's limits.
pub fn budget_log(tenant: &Tenant, key: &str) -> (Tenant, LogId) {
    let name = blake3::hash(format!("{}\n{key}", tenant.0).as_bytes()).to_hex();
    (usage_log().0, LogId::from(format!("budget-{}", &name[..32])))
}

/// Returns the kind and the content of the record that resets the usage of a key.
pub(super) fn budget_reset() -> (&'static str, Json) {
    (KIND, BudgetChange::Reset.record())
}
