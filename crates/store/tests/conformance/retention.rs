//! Tests of retention: expired Threads are destroyed, and Threads in use are kept.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use throughline_core::{Append, Content, ElisionReason, LogHead, LogOpening, NewRecord, Store};
use throughline_store::{ErasureReport, Journal, Retention};
use tokio::runtime::Handle;

use crate::harness::*;

const WEEK: Retention =
    Retention { older_than: Some(Duration::from_hours(7 * 24)), at_most_bytes: None };

async fn head(journal: &Journal, name: &str) -> LogHead {
    journal.log(&us(), &log(name)).await.unwrap().unwrap()
}

fn destroyed(logs: &[&str], records: u64, bytes: u64) -> ErasureReport {
    let logs = logs.iter().map(|name| log(name)).collect();
    ErasureReport { logs, records, bytes, unreached: Vec::new(), damaged: 0 }
}

/// Returns midnight of a day in January 2020, in UTC.
fn day(day: i8) -> jiff::Timestamp {
    jiff::civil::date(2020, 1, day).in_tz("UTC").unwrap().timestamp()
}

/// Opens a log whose only write was on this day.
async fn old_log(journal: &Journal, name: &str, opening: LogOpening, at: i8, text: &str) {
    let record = NewRecord { at: Some(day(at)), ..item(text) };
    journal.commit(batch(Append::new(name).opening(opening).record(record))).await.unwrap();
    let head = head(journal, name).await;
    assert_eq!((head.created, head.updated), (day(at), day(at)));
}

async fn old(journal: &Journal, name: &str, at: i8, text: &str) {
    old_log(journal, name, LogOpening::thread(), at, text).await;
}

async fn prune(journal: &Journal, retention: Retention, at: i8) -> ErasureReport {
    journal.prune(&us(), (retention, &|_| false), day(at), &|_| {}).await.unwrap()
}

pub(crate) async fn thread_with_forks_is_retained(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    old(&journal, "thread", 1, "a").await;
    old_log(&journal, "fork", LogOpening::fork("thread", 1), 2, "b").await;
    old_log(&journal, "nested", LogOpening::fork("fork", 2), 20, "c").await;
    old_log(&journal, "branch", LogOpening::fork("thread", 1), 3, "d").await;
    // A fork that shares no records does not keep its parent from expiring.
    old(&journal, "other", 1, "e").await;
    old_log(&journal, "apart", LogOpening::fork("other", 0), 20, "f").await;
    // The nested fork is in use, so all records that it shares stay.
    assert_eq!(prune(&journal, WEEK, 21).await, destroyed(&["other", "branch"], 2, 2));
    assert_eq!(texts(&journal, "nested").await, numbered(&[(1, "a"), (2, "b"), (3, "c")]));
    assert_eq!(texts(&journal, "apart").await, numbered(&[(1, "f")]));
    // Forks expire before their parents.
    let outcome = prune(&journal, WEEK, 30).await;
    assert_eq!(outcome, destroyed(&["nested", "fork", "thread", "apart"], 4, 4));
    for name in ["nested", "fork", "thread", "apart"] {
        assert_eq!(head(&journal, name).await.gone, Some(ElisionReason::Expired), "{name}");
    }
    proven(&journal).await;
}

pub(crate) async fn forks_without_content_are_deleted_with_their_thread(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    old(&journal, "thread", 1, "a").await;
    journal.fork(&us(), &log("thread"), None, &log("fork")).await.unwrap();
    let no_space = Retention { older_than: None, at_most_bytes: Some(0) };
    let outcome = prune(&journal, no_space, 30).await;
    assert_eq!(outcome, destroyed(&["fork", "thread"], 1, 1));
    assert_eq!(head(&journal, "fork").await.gone, Some(ElisionReason::Expired));
    proven(&journal).await;
}

pub(crate) async fn threads_used_during_retention_are_kept(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    for (name, at) in [("first", 1), ("written", 2), ("run on", 3), ("forked", 4), ("last", 5)] {
        old(&journal, name, at, "a").await;
    }
    // After the first Thread has expired, some of the other Threads are used.
    let used = AtomicBool::new(false);
    let use_threads = |_| {
        if !used.swap(true, Ordering::AcqRel) {
            tokio::task::block_in_place(|| {
                Handle::current().block_on(async {
                    add(&journal, "written", &["b"]).await;
                    run(&journal, "run", "run on").await;
                    journal.fork(&us(), &log("forked"), None, &log("fork")).await.unwrap();
                });
            });
        }
    };
    let outcome = journal.prune(&us(), (WEEK, &|_| false), day(21), &use_threads).await.unwrap();
    assert_eq!(outcome, destroyed(&["first", "last"], 2, 2));
    assert_eq!(texts(&journal, "written").await, numbered(&[(1, "a"), (2, "b")]));
    for name in ["run on", "forked", "fork"] {
        assert_eq!(texts(&journal, name).await, numbered(&[(1, "a")]), "{name}");
    }
    add(&journal, "fork", &["goes on"]).await;
    proven(&journal).await;
}

pub(crate) async fn old_threads_expire(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    old(&journal, "old", 1, "a").await;
    old(&journal, "used", 1, "b").await;
    run(&journal, "run", "used").await;
    old(&journal, "young", 20, "c").await;
    assert_eq!(prune(&journal, WEEK, 21).await, destroyed(&["old"], 1, 1));
    let record = &read(&journal, "old").await[0];
    assert_eq!(record.content, Content::Gone(ElisionReason::Expired));
    assert_eq!(head(&journal, "old").await.gone, Some(ElisionReason::Expired));
    assert_eq!(texts(&journal, "young").await, numbered(&[(1, "c")]));
    assert_eq!(texts(&journal, "used").await, numbered(&[(1, "b")]));
    // Expired Threads do not expire again, and a policy without limits expires nothing.
    assert_eq!(prune(&journal, WEEK, 21).await, ErasureReport::default());
    assert_eq!(prune(&journal, Retention::default(), 21).await, ErasureReport::default());
    proven(&journal).await;
}

pub(crate) async fn oldest_threads_are_deleted_beyond_the_size_limit(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    for (name, day) in [("second", 2), ("first", 1), ("third", 3)] {
        old(&journal, name, day, &"x".repeat(100)).await;
    }
    let most = |bytes| Retention { older_than: None, at_most_bytes: Some(bytes) };
    assert_eq!(prune(&journal, most(300), 4).await, ErasureReport::default());
    let outcome = prune(&journal, most(150), 4).await;
    assert_eq!(outcome, destroyed(&["first", "second"], 2, 200));
    assert_eq!(texts(&journal, "third").await, numbered(&[(1, &"x".repeat(100))]));
    let outcome = prune(&journal, most(0), 4).await;
    assert_eq!(outcome, destroyed(&["third"], 1, 100));
    proven(&journal).await;
}
