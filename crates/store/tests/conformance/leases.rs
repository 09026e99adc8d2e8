//! Tests that only the lease holder can write, and that leases follow the database's clock.

use std::time::Duration;

use throughline_core::{
    Append, Batch, Fence, Lease, LogId, LogOpening, PendingRequest, RUNNING, Store, StoreError,
    Tenant,
};
use throughline_store::Journal;
use tokio::task::JoinSet;

use crate::harness::*;

const LONG: Duration = Duration::from_mins(10);
const SHORT: Duration = Duration::from_millis(40);

async fn hold(journal: &Journal, time: Duration) -> Lease {
    journal.lease(&us(), &log("thread"), "holder", time).await.unwrap()
}

/// Takes the lease as soon as the other holder's lease has expired.
async fn acquired(journal: &Journal) -> Lease {
    soon(async {
        loop {
            match journal.lease(&us(), &log("thread"), "next", LONG).await {
                Ok(lease) => return lease,
                Err(StoreError::Held { left_ms, .. }) => {
                    tokio::time::sleep(Duration::from_millis(left_ms.min(5))).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await
}

async fn write(journal: &Journal, text: &str, fence: Option<Fence>) -> Result<u64, StoreError> {
    let mut append = items("thread", &[text]);
    append.fence = fence;
    Ok(journal.commit(batch(append)).await?.written[0].last)
}

fn is_fenced<T>(outcome: Result<T, StoreError>) -> bool {
    matches!(outcome, Err(StoreError::Fenced { log: found }) if found == log("thread"))
}

pub(crate) async fn leased_log_accepts_only_its_holder(on: Database) {
    let harness = Harness::fresh(on);
    let (journal, other) = (harness.open().await, harness.open().await);
    thread(&journal, "thread", &[]).await;
    let lease = hold(&journal, LONG).await;
    for node in [&journal, &other] {
        match write(node, "free", None).await {
            Err(StoreError::Held { log: held, owner, left_ms }) => {
                assert_eq!((held, &*owner), (log("thread"), "holder"));
                assert!((1..=600_000).contains(&left_ms), "{left_ms}");
            }
            outcome => panic!("{outcome:?}"),
        }
        let taken = node.lease(&us(), &log("thread"), "other", LONG).await;
        assert!(matches!(taken, Err(StoreError::Held { .. })), "{taken:?}");
    }
    assert_eq!(write(&journal, "a", Some(lease.fence)).await.unwrap(), 1);
    // Any node that passes the fence acts as the lease holder.
    assert_eq!(write(&other, "b", Some(lease.fence)).await.unwrap(), 2);
    let higher = Fence(lease.fence.0.checked_add(1).unwrap());
    let refused = write(&journal, "c", Some(higher)).await;
    assert_eq!(
        error_message(refused),
        "this writer does not hold the lease on thread; acquire a lease and read the log again"
    );
    assert_eq!(texts(&journal, "thread").await, numbered(&[(1, "a"), (2, "b")]));
}

pub(crate) async fn paused_holder_cannot_write_after_its_lease_expired(on: Database) {
    let harness = Harness::fresh(on);
    let (paused, other) = (harness.open().await, harness.open().await);
    thread(&paused, "thread", &[]).await;
    let lease = hold(&paused, SHORT).await;
    let next = acquired(&other).await;
    // The paused holder has not noticed yet that its lease expired.
    assert!(is_fenced(write(&paused, "late", Some(lease.fence)).await));
    assert!(is_fenced(paused.renew(&us(), &log("thread"), lease.fence, LONG).await));
    paused.release(&us(), &log("thread"), lease.fence).await.unwrap();
    assert_eq!(write(&other, "in time", Some(next.fence)).await.unwrap(), 1);
    assert_eq!(texts(&paused, "thread").await, numbered(&[(1, "in time")]));
}

pub(crate) async fn each_lease_has_a_higher_fence(on: Database) {
    let harness = Harness::fresh(on);
    let mut journal = harness.open().await;
    thread(&journal, "thread", &[]).await;
    let mut before = 0;
    for round in 0..6 {
        let lease = hold(&journal, LONG).await;
        assert!(lease.fence.0.get() > before);
        before = lease.fence.0.get();
        journal.release(&us(), &log("thread"), lease.fence).await.unwrap();
        if round == 2 {
            journal.close().await.unwrap();
            journal = harness.open().await;
        }
    }
}

pub(crate) async fn a_lease_expires(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &[]).await;
    let lease = hold(&journal, SHORT).await;
    until(|| async { write(&journal, "free", None).await.is_ok() }).await;
    // The lease expired, even though no new holder has taken one.
    assert!(is_fenced(write(&journal, "late", Some(lease.fence)).await));
    let written = &read(&journal, "thread").await[0];
    assert!(written.at >= lease.until, "{} {}", written.at, lease.until);
}

pub(crate) async fn renewed_lease_stays_valid(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &[]).await;
    let lease = hold(&journal, Duration::from_secs(20)).await;
    let renewed = journal.renew(&us(), &log("thread"), lease.fence, LONG).await.unwrap();
    assert_eq!(renewed.fence, lease.fence);
    assert!(renewed.until > lease.until);
    assert_eq!(write(&journal, "a", Some(lease.fence)).await.unwrap(), 1);
    let shortened = journal.renew(&us(), &log("thread"), lease.fence, SHORT).await.unwrap();
    assert!(shortened.until < renewed.until);
    assert!(acquired(&journal).await.fence > lease.fence);
    // The maximum duration is accepted.
    let ever = journal.lease(&us(), &log("other"), "holder", Duration::MAX).await.unwrap();
    assert!(ever.until > renewed.until);
}

pub(crate) async fn a_released_log_is_free(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &[]).await;
    let lease = hold(&journal, LONG).await;
    journal.release(&us(), &log("thread"), lease.fence).await.unwrap();
    assert_eq!(write(&journal, "free", None).await.unwrap(), 1);
    assert!(is_fenced(write(&journal, "late", Some(lease.fence)).await));
    // Releasing an expired lease is not an error and does not affect another holder's lease.
    let next = hold(&journal, LONG).await;
    journal.release(&us(), &log("thread"), lease.fence).await.unwrap();
    assert!(matches!(write(&journal, "free", None).await, Err(StoreError::Held { .. })));
    assert_eq!(write(&journal, "held", Some(next.fence)).await.unwrap(), 2);
}

pub(crate) async fn log_can_be_leased_before_it_exists(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let lease = hold(&journal, LONG).await;
    let opening = || Append::new("thread").opening(LogOpening::thread());
    let refused = journal.commit(batch(opening())).await;
    assert!(matches!(refused, Err(StoreError::Held { .. })), "{refused:?}");
    journal.commit(batch(opening().with_fence(lease.fence))).await.unwrap();
    assert_eq!(write(&journal, "a", Some(lease.fence)).await.unwrap(), 1);
}

pub(crate) async fn one_of_many_candidates_gets_the_lease(on: Database) {
    let harness = Harness::fresh(on);
    let nodes = [harness.open().await, harness.open().await];
    thread(&nodes[0], "thread", &[]).await;
    let mut tries = JoinSet::new();
    for number in 0..8 {
        let journal = nodes[number % 2].clone();
        tries.spawn(async move {
            journal.lease(&us(), &log("thread"), &format!("node {number}"), LONG).await.is_ok()
        });
    }
    let held = soon(tries.join_all()).await.into_iter().filter(|held| *held).count();
    assert_eq!(held, 1);
}

/// Opens a run of this tenant with the status `running`.
async fn running(journal: &Journal, tenant: &Tenant, name: &str) {
    let (thread, run) = (log(&format!("{name}.thread")), log(name));
    let thread = Append::new(thread.clone()).opening(LogOpening::thread());
    let own = Append::new(run).opening(LogOpening::run(thread.log.clone())).status(RUNNING);
    journal.commit(Batch::new(tenant.clone()).append(thread).append(own)).await.unwrap();
}

/// Returns the stale runs: those without a lease and without a write for at least `idle`. Reads
/// them in pages of one run.
async fn unattended(journal: &Journal, idle: Duration) -> Vec<(Tenant, LogId)> {
    let (mut found, mut after) = (Vec::new(), 0);
    loop {
        let page = journal.stale_runs(idle, after, 1).await.unwrap();
        let Some(last) = page.last() else { return found };
        after = last.place;
        found.extend(page.into_iter().map(|run_entry| (run_entry.tenant, run_entry.run)));
    }
}

pub(crate) async fn runs_without_a_lease_are_found(on: Database) {
    let harness = Harness::fresh(on);
    let (journal, other) = (harness.open().await, harness.open().await);
    let other_tenant = Tenant::from("them");
    running(&journal, &us(), "begun").await;
    running(&journal, &other_tenant, "left").await;
    running(&journal, &us(), "lost").await;
    let lease = journal.lease(&other_tenant, &log("left"), "holder", LONG).await.unwrap();
    journal.release(&other_tenant, &log("left"), lease.fence).await.unwrap();
    journal.lease(&us(), &log("lost"), "holder", SHORT).await.unwrap();
    let all = vec![(us(), log("begun")), (other_tenant, log("left")), (us(), log("lost"))];
    soon(async { while unattended(&other, Duration::ZERO).await != all {} }).await;
    // No run has been idle for this long.
    assert_eq!(unattended(&other, LONG).await, []);
}

pub(crate) async fn leased_runs_are_not_reported_as_stale(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    running(&journal, &us(), "held").await;
    running(&journal, &us(), "waits").await;
    running(&journal, &us(), "forgotten").await;
    thread(&journal, "a thread", &["a"]).await;
    journal.lease(&us(), &log("held"), "holder", LONG).await.unwrap();
    let waits = Append::new(log("waits")).status("waiting");
    journal.commit(batch(waits)).await.unwrap();
    journal.forget_run(&us(), &log("forgotten")).await.unwrap();
    assert_eq!(unattended(&journal, Duration::ZERO).await, []);
}

pub(crate) async fn run_with_an_expired_request_is_found(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    for (name, expires_in) in [("soon", Some(SHORT)), ("late", Some(LONG)), ("never", None)] {
        running(&journal, &us(), name).await;
        let mut waiting = batch(Append::new(log(name)).status("waiting"));
        let (id, kind) = (name.into(), "approval".into());
        waiting.asks = vec![PendingRequest { id, kind, log: log(name), expires_in }];
        journal.commit(waiting).await.unwrap();
    }
    let expired = vec![(us(), log("soon"))];
    soon(async { while unattended(&journal, LONG).await != expired {} }).await;
    // A leased run is not returned, and a settled run is not returned again.
    let lease = journal.lease(&us(), &log("soon"), "holder", LONG).await.unwrap();
    assert_eq!(unattended(&journal, LONG).await, []);
    let mut settled = Append::new(log("soon")).status("waiting");
    settled.fence = Some(lease.fence);
    journal.commit(batch(settled)).await.unwrap();
    journal.release(&us(), &log("soon"), lease.fence).await.unwrap();
    assert_eq!(unattended(&journal, LONG).await, []);
}
