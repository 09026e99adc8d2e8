//! Tests of budgets over several nodes, with a clock that the test sets.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use throughline_core::{Store, Usage};
use throughline_store::{Durability, Journal, Options};
use throughline_testkit::{Folder, figure};
use tokio::task::JoinSet;

use super::*;
use crate::telemetry::budget::slice::LEASE;
use crate::telemetry::log::NullLog;

struct TestClock(Mutex<Timestamp>);

impl TestClock {
    fn at(text: &str) -> Arc<Self> {
        Arc::new(Self(Mutex::new(text.parse().unwrap())))
    }

    fn set(&self, text: &str) {
        *lock(&self.0) = text.parse().unwrap();
    }

    fn advance(&self, time: Duration) {
        let mut now = lock(&self.0);
        *now += time;
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        *lock(&self.0)
    }
}

struct Alerts(Mutex<Vec<String>>);

impl Log for Alerts {
    fn wants(&self, _: Level) -> bool {
        true
    }

    fn write(&self, _: Level, line: &Json) {
        lock(&self.0).push(line.as_str().to_owned());
    }
}

impl BudgetAlerts for Alerts {
    fn alert(&self, message: Json) {
        lock(&self.0).push(message.as_str().to_owned());
    }
}

const KEY: &str = "key_1";

fn tokens(period: BudgetPeriod, most: u64) -> BudgetLimit {
    BudgetLimit { unit: BudgetUnit::Tokens, period, most }
}

fn amount(tokens: u64) -> UsageAmount {
    let tokens = Usage { input: tokens, ..Usage::default() };
    UsageAmount { calls: 1, tokens, ..UsageAmount::default() }
}

async fn open(folder: &Folder) -> Journal {
    open_url(&format!("sqlite://{}", folder.join("store.db").display())).await
}

async fn open_url(url: &str) -> Journal {
    let options = Options { durability: Durability::Relaxed, ..Options::default() };
    throughline_store::open(url, &options).await.unwrap()
}

fn node(store: &Journal, clock: &Arc<TestClock>, name: &str) -> Budgets {
    node_with_log(store, clock, name, Arc::new(NullLog))
}

fn node_with_log(
    store: &Journal,
    clock: &Arc<TestClock>,
    name: &str,
    log: Arc<dyn Log>,
) -> Budgets {
    let store: Arc<dyn Store> = Arc::new(store.clone());
    Budgets::new(store, Arc::clone(clock) as Arc<dyn Clock>, log, name.into())
}

async fn reserve(
    node: &Budgets,
    limit: BudgetLimit,
    need: u64,
) -> Result<BudgetReservation, BudgetDenial> {
    let (tenant, key) = (Tenant::from("acme"), Name::from(KEY));
    let before = UsageAmount::default();
    node.reserve((&tenant, &key), &[limit], &amount(need), &before).await.unwrap()
}

/// Returns the recorded usage and what is reserved, as a node that has just started reads it.
async fn status(store: &Journal, clock: &Arc<TestClock>, limit: BudgetLimit) -> (u64, u64) {
    let (tenant, key) = (Tenant::from("acme"), Name::from(KEY));
    let node = node(store, clock, "reader");
    let status = node.status((&tenant, &key), &[limit], &UsageAmount::default()).await.unwrap();
    status[0].1
}

async fn reset(store: &Journal) {
    let (owner, log) = budget_log(&"acme".into(), KEY);
    let (kind, record) = budget_reset();
    let append = Append::new(log).record(NewRecord::new(kind, record.bytes().clone()));
    store.commit(Batch::new(owner).append(append)).await.unwrap();
}

fn is_spent<T>(result: &Result<T, BudgetDenial>) -> bool {
    matches!(result, Err(BudgetDenial::Spent { .. }))
}

#[tokio::test(flavor = "multi_thread")]
async fn budgets_start_again_with_each_period() {
    let cases = [
        (BudgetPeriod::Day, "2026-11-18T23:59:59Z", "2026-11-19T00:00:00Z", true),
        (BudgetPeriod::Day, "2026-11-18T00:00:01Z", "2026-11-18T23:59:59Z", false),
        (BudgetPeriod::Week, "2026-11-22T23:59:59Z", "2026-11-23T00:00:00Z", true),
        (BudgetPeriod::Week, "2026-11-18T23:59:59Z", "2026-11-19T00:00:00Z", false),
        (BudgetPeriod::Month, "2028-02-29T23:59:59Z", "2028-03-01T00:00:00Z", true),
        (BudgetPeriod::Month, "2026-12-31T23:59:59Z", "2027-01-01T00:00:00Z", true),
        (BudgetPeriod::Month, "2026-11-18T23:59:59Z", "2026-11-30T23:59:59Z", false),
        (BudgetPeriod::Total, "2026-12-31T23:59:59Z", "2027-01-01T00:00:00Z", false),
        (BudgetPeriod::Minute, "2026-11-18T07:00:59Z", "2026-11-18T07:01:00Z", true),
    ];
    for (period, first, second, starts_again) in cases {
        let (folder, clock) = (Folder::new("period"), TestClock::at(first));
        let store = open(&folder).await;
        let (limit, node) = (tokens(period, 100), node(&store, &clock, "one"));
        reserve(&node, limit, 100).await.unwrap().settle(&amount(90));
        assert!(is_spent(&reserve(&node, limit, 50).await), "{period} at {first}");
        clock.set(second);
        let again = reserve(&node, limit, 50).await;
        assert_eq!(again.is_ok(), starts_again, "{period} at {second}");
        if let Ok(again) = again {
            again.settle(&amount(40));
            assert!(is_spent(&reserve(&node, limit, 61).await), "{period} at {second}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn call_is_charged_to_the_period_in_which_it_started() {
    let (folder, clock) = (Folder::new("over"), TestClock::at("2026-11-18T23:59:50Z"));
    let store = open(&folder).await;
    let (limit, node) = (tokens(BudgetPeriod::Day, 100), node(&store, &clock, "one"));
    let call = reserve(&node, limit, 100).await.unwrap();
    clock.set("2026-11-19T00:00:10Z");
    call.settle(&amount(100));
    reserve(&node, limit, 100).await.unwrap().settle(&amount(7));
    node.report(true).await.unwrap();
    assert_eq!(status(&store, &clock, limit).await, (7, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn total_budget_counts_the_usage_before_the_first_lease() {
    let (folder, clock) = (Folder::new("base"), TestClock::at("2026-11-18T12:00:00Z"));
    let store = open(&folder).await;
    let (limit, one) = (tokens(BudgetPeriod::Total, 100), node(&store, &clock, "one"));
    let (tenant, key) = (Tenant::from("acme"), Name::from(KEY));
    let reserve_after = async |node: &Budgets, need: u64, before: u64| {
        node.reserve((&tenant, &key), &[limit], &amount(need), &amount(before)).await.unwrap()
    };
    assert!(is_spent(&reserve_after(&one, 41, 60).await));
    reserve_after(&one, 40, 60).await.unwrap().settle(&amount(10));
    one.report(true).await.unwrap();
    assert_eq!(status(&store, &clock, limit).await, (70, 0));
    // A reset counts from zero, even if the ledger still contains the usage.
    reset(&store).await;
    assert_eq!(status(&store, &clock, limit).await, (0, 0));
    let two = node(&store, &clock, "two");
    assert!(reserve_after(&two, 100, 70).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_can_be_raised_lowered_and_reset() {
    let (folder, clock) = (Folder::new("raise"), TestClock::at("2026-11-18T12:00:00Z"));
    let store = open(&folder).await;
    let node = node(&store, &clock, "one");
    let total = |most| tokens(BudgetPeriod::Total, most);
    reserve(&node, total(100), 90).await.unwrap().settle(&amount(90));
    assert!(is_spent(&reserve(&node, total(100), 20).await));
    reserve(&node, total(200), 20).await.unwrap().settle(&amount(20));
    assert!(is_spent(&reserve(&node, total(100), 1).await), "lowered below the usage");
    // Usage that a node reports after a reset counts after the reset.
    node.report(true).await.unwrap();
    reset(&store).await;
    assert!(is_spent(&reserve(&node, total(100), 101).await));
    reserve(&node, total(100), 100).await.unwrap().settle(&amount(100));
    assert!(is_spent(&reserve(&node, total(100), 1).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_of_a_crashed_node_is_free_again_after_it_expires() {
    let (folder, clock) = (Folder::new("crash"), TestClock::at("2026-11-18T12:00:00Z"));
    let store = open(&folder).await;
    let limit = tokens(BudgetPeriod::Total, 100);
    let (one, two) = (node(&store, &clock, "one"), node(&store, &clock, "two"));
    let call = reserve(&one, limit, 80).await.unwrap();
    let refused = reserve(&two, limit, 30).await;
    assert!(matches!(refused, Err(BudgetDenial::Busy { .. })), "the rest is reserved");
    // The node stops without a report.
    std::mem::forget(call);
    drop(one);
    clock.advance(Duration::from_millis(LEASE - 1));
    assert!(reserve(&two, limit, 30).await.is_err());
    clock.advance(Duration::from_millis(2));
    assert!(reserve(&two, limit, 100).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn lease_in_use_is_renewed_and_idle_lease_is_returned() {
    let (folder, clock) = (Folder::new("renew"), TestClock::at("2026-11-18T12:00:00Z"));
    let store = open(&folder).await;
    let limit = tokens(BudgetPeriod::Total, 100);
    let (one, two) = (node(&store, &clock, "one"), node(&store, &clock, "two"));
    let call = reserve(&one, limit, 80).await.unwrap();
    for _ in 0..20 {
        clock.advance(Duration::from_secs(10));
        one.report(false).await.unwrap();
        assert!(reserve(&two, limit, 30).await.is_err(), "the call is in progress");
    }
    call.settle(&amount(60));
    clock.advance(Duration::from_secs(3));
    one.report(false).await.unwrap();
    assert_eq!(status(&store, &clock, limit).await, (60, 0));
    reserve(&two, limit, 40).await.unwrap().settle(&amount(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn spent_and_reserved_never_exceed_the_budget_on_two_nodes_with_sqlite() {
    let folder = Folder::new("both");
    call_on_two_nodes([open(&folder).await, open(&folder).await], "SQLite").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spent_and_reserved_never_exceed_the_budget_on_two_nodes_with_postgres() {
    let url = throughline_testkit::postgres_database();
    call_on_two_nodes([open_url(&url).await, open_url(&url).await], "PostgreSQL").await;
}

/// Sends 640 calls of one key from 16 callers through two nodes.
async fn call_on_two_nodes(stores: [Journal; 2], database: &str) {
    const MOST: u64 = 20_000;
    let clock = TestClock::at("2026-11-18T12:00:00Z");
    let limit = tokens(BudgetPeriod::Day, MOST);
    let nodes = [node(&stores[0], &clock, "one"), node(&stores[1], &clock, "two")].map(Arc::new);
    let (reserved_now, most_reserved) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut calls = JoinSet::new();
    for caller in 0..16_u64 {
        let node = Arc::clone(&nodes[usize::try_from(caller % 2).unwrap()]);
        let (now, most) = (Arc::clone(&reserved_now), Arc::clone(&most_reserved));
        calls.spawn(async move {
            let (mut used, mut excess, mut refused) = (0, 0, 0);
            for call in 0..40 {
                let estimate = 50 + (caller * 7 + call * 13) % 50;
                let Ok(reservation) = reserve(&node, limit, estimate).await else {
                    refused += 1;
                    continue;
                };
                // Spent and reserved amounts of all nodes together.
                let total = now.fetch_add(estimate, Ordering::SeqCst) + estimate;
                most.fetch_max(total, Ordering::SeqCst);
                tokio::task::yield_now().await;
                // One call in eight uses more than estimated, and the others use less.
                let actual = if call % 8 == 0 { estimate + 5 } else { estimate - 10 };
                if actual < estimate {
                    now.fetch_sub(estimate - actual, Ordering::SeqCst);
                }
                excess += actual.saturating_sub(estimate);
                used += actual;
                reservation.settle(&amount(actual));
            }
            (used, excess, refused)
        });
    }
    let (mut used, mut excess, mut refused) = (0, 0, 0);
    for (more, over, denied) in calls.join_all().await {
        used += more;
        excess += over;
        refused += denied;
    }
    for node in &nodes {
        node.report(true).await.unwrap();
    }
    assert_eq!(status(&stores[0], &clock, limit).await, (used, 0), "all usage is recorded");
    let most = most_reserved.load(Ordering::SeqCst);
    assert!(most <= MOST, "{most} reserved and spent");
    assert!(refused > 0 && used > MOST / 10 * 9, "{used} used, {refused} refused");
    assert!(used <= MOST + excess, "{used} used, {excess} above the estimates");
    figure(
        &format!("a budget of 20,000 tokens on two nodes, {database}"),
        format!(
            "{used} used, {} over the budget, {excess} above the estimates, {refused} calls refused",
            used.saturating_sub(MOST)
        ),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_need_few_writes() {
    let (folder, clock) = (Folder::new("writes"), TestClock::at("2026-11-18T12:00:00Z"));
    let store = open(&folder).await;
    let (limit, node) = (tokens(BudgetPeriod::Day, 1_000_000), node(&store, &clock, "one"));
    for _ in 0..1000 {
        reserve(&node, limit, 100).await.unwrap().settle(&amount(50));
    }
    let (owner, log) = budget_log(&"acme".into(), KEY);
    let records = store.log(&owner, &log).await.unwrap().unwrap().last;
    figure("writes for 1,000 calls of a key with a budget", records);
    assert!(records <= 3, "{records}");
}

#[tokio::test(flavor = "multi_thread")]
async fn soft_limit_sends_one_alert_per_period() {
    let (folder, clock) = (Folder::new("soft"), TestClock::at("2026-11-18T12:00:00Z"));
    let store = open(&folder).await;
    let alerts = Arc::new(Alerts(Mutex::default()));
    let limit = tokens(BudgetPeriod::Day, 100);
    let mut nodes = [node(&store, &clock, "one"), node(&store, &clock, "two")];
    for node in &mut nodes {
        node.set_alerts(Arc::clone(&alerts) as Arc<dyn BudgetAlerts>);
        node.set_soft_percent(&"acme".into(), &KEY.into(), Some(80));
    }
    for used in [50, 29, 1, 5, 5] {
        for node in &nodes {
            let half = amount(used / 2 + used % 2);
            if let Ok(call) = reserve(node, limit, used).await {
                call.settle(&half);
            }
            node.report(true).await.unwrap();
        }
    }
    let sent = lock(&alerts.0).clone();
    assert_eq!(sent.len(), 1, "{sent:?}");
    for expected in [
        r#""type":"budget.soft_limit""#,
        r#""tenant":"acme","key":"key_1","unit":"tokens","period":"day","limit":100"#,
        r#""window_start":1794960000,"window_end":1795046400"#,
    ] {
        assert!(sent[0].contains(expected), "{expected} is not in {}", sent[0]);
    }
    clock.set("2026-11-19T12:00:00Z");
    reserve(&nodes[0], limit, 90).await.unwrap().settle(&amount(90));
    nodes[0].report(true).await.unwrap();
    assert_eq!(lock(&alerts.0).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn soft_limit_is_logged_without_a_webhook() {
    let (folder, clock) = (Folder::new("soft-log"), TestClock::at("2026-11-18T12:00:00Z"));
    let (store, lines) = (open(&folder).await, Arc::new(Alerts(Mutex::default())));
    let log = Arc::clone(&lines) as Arc<dyn Log>;
    let (limit, node) = (tokens(BudgetPeriod::Day, 100), node_with_log(&store, &clock, "one", log));
    node.set_soft_percent(&"acme".into(), &KEY.into(), Some(80));
    reserve(&node, limit, 90).await.unwrap().settle(&amount(90));
    node.report(true).await.unwrap();
    let written = lock(&lines.0).clone();
    assert_eq!(written.len(), 1, "{written:?}");
    assert!(written[0].contains(r#""type":"budget.soft_limit""#), "{written:?}");
}

/// The log forgets a lease ten minutes after it expires, but the node still has the lease.
#[tokio::test(flavor = "multi_thread")]
async fn usage_of_a_forgotten_lease_counts_once() {
    let (folder, clock) = (Folder::new("forgotten"), TestClock::at("2026-11-18T12:00:00Z"));
    let store = open(&folder).await;
    let limit = tokens(BudgetPeriod::Day, 1000);
    let (one, two) = (node(&store, &clock, "one"), node(&store, &clock, "two"));
    let call_two = async |used: u64| {
        reserve(&two, limit, used).await.unwrap().settle(&amount(used));
        two.report(true).await.unwrap();
    };
    reserve(&one, limit, 30).await.unwrap().settle(&amount(30));
    one.report(true).await.unwrap();
    clock.advance(Duration::from_mins(11));
    call_two(10).await;
    reserve(&one, limit, 5).await.unwrap().settle(&amount(5));
    one.report(true).await.unwrap();
    assert_eq!(status(&store, &clock, limit).await, (45, 0), "a call after the pause");
    clock.advance(Duration::from_mins(11));
    call_two(10).await;
    reserve(&one, limit, 7).await.unwrap().settle(&amount(7));
    one.report(true).await.unwrap();
    assert_eq!(status(&store, &clock, limit).await, (62, 0), "a call after the second pause");
    // A call that lasts longer than the log remembers the lease.
    let call = reserve(&one, limit, 20).await.unwrap();
    reserve(&one, limit, 1).await.unwrap().settle(&amount(1));
    one.report(true).await.unwrap();
    clock.advance(Duration::from_mins(11));
    call_two(10).await;
    call.settle(&amount(15));
    one.report(true).await.unwrap();
    one.report(true).await.unwrap();
    assert_eq!(status(&store, &clock, limit).await, (88, 0), "a call during the pause");
}

#[tokio::test(flavor = "multi_thread")]
async fn total_budget_that_is_added_later_counts_the_usage_before_it() {
    let (folder, clock) = (Folder::new("later"), TestClock::at("2026-11-18T12:00:00Z"));
    let (store, tenant, key) = (open(&folder).await, Tenant::from("acme"), Name::from(KEY));
    let node = node(&store, &clock, "one");
    let reserve_after = async |limit, need: u64, before: u64| {
        node.reserve((&tenant, &key), &[limit], &amount(need), &amount(before)).await.unwrap()
    };
    let day = tokens(BudgetPeriod::Day, 1000);
    reserve_after(day, 80, 0).await.unwrap().settle(&amount(80));
    let total = tokens(BudgetPeriod::Total, 100);
    assert!(is_spent(&reserve_after(total, 21, 80).await));
    assert!(reserve_after(total, 20, 80).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_attempt_is_not_refused_by_the_request_rate() {
    let (folder, clock) = (Folder::new("repeated"), TestClock::at("2026-11-18T12:00:00Z"));
    let (store, tenant, key) = (open(&folder).await, Tenant::from("acme"), Name::from(KEY));
    let node = node(&store, &clock, "one");
    let rate = BudgetLimit { unit: BudgetUnit::Requests, period: BudgetPeriod::Minute, most: 1 };
    let limits = [rate, tokens(BudgetPeriod::Total, 1000)];
    let reserve_calls = async |calls: u64| {
        let need = UsageAmount { calls, ..amount(100) };
        let before = UsageAmount::default();
        node.reserve((&tenant, &key), &limits, &need, &before).await.unwrap()
    };
    drop(reserve_calls(1).await.unwrap());
    assert!(reserve_calls(0).await.is_ok(), "the same request to another target");
    assert!(is_spent(&reserve_calls(1).await), "another request");
    // The lease has expired, so the node must plan it again.
    clock.advance(Duration::from_secs(40));
    assert!(reserve_calls(0).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_two_tenants_with_one_id_have_separate_budgets() {
    let (folder, clock) = (Folder::new("tenants"), TestClock::at("2026-11-18T12:00:00Z"));
    let store = open(&folder).await;
    let (limit, node) = (tokens(BudgetPeriod::Total, 100), node(&store, &clock, "one"));
    let reserve_for = async |tenant: &str| {
        let (tenant, key) = (Tenant::from(tenant), Name::from(KEY));
        let before = UsageAmount::default();
        node.reserve((&tenant, &key), &[limit], &amount(100), &before).await.unwrap()
    };
    reserve_for("acme").await.unwrap().settle(&amount(100));
    assert!(is_spent(&reserve_for("acme").await));
    assert!(reserve_for("other").await.is_ok());
}

#[test]
fn stored_state_round_trips() {
    let mut account = BudgetAccount::default();
    let lease = |lease: &str, granted, spent| {
        let amounts = [(("tokens/day".into(), 86_400), account::LeaseAmount { granted, spent })];
        let base = [("pico_usd/total".into(), 5)].into();
        let (lease, amounts) = (lease.into(), amounts.into());
        BudgetChange::Lease(LeaseChange { lease, until: 1000, base, amounts })
    };
    for change in [lease("a-1", 10, 0), lease("b-1", 20, 3), lease("a-1", 30, 9)] {
        let record = change.record();
        assert_eq!(BudgetChange::parse(record.bytes()).as_ref(), Some(&change));
        account.apply(&change);
        // A record that is read twice counts once.
        account.apply(&change);
    }
    let (limit, own) = (("tokens/day".into(), 86_400), Name::from("a-1"));
    assert_eq!(account.spent(&limit.0, limit.1), 12);
    assert_eq!(account.claimed(&limit, &own, 999), 17);
    assert_eq!(account.claimed(&limit, &own, 1000), 0, "the lease has expired");
    assert_eq!(BudgetAccount::parse(account.checkpoint().bytes()), Some(account.clone()));
    account.apply(&BudgetChange::Reset);
    assert_eq!(account.spent(&limit.0, limit.1), 0);
    assert_eq!(account.claimed(&limit, &own, 999), 17, "calls in progress stay reserved");
}
