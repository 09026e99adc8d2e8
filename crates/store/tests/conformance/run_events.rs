//! Tests of writing run events. Events are numerous and small, and callers do not await each write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use throughline_core::{Append, Fence, LogOpening, Store, StoreError, unpack_events};
use throughline_json::Name;
use throughline_store::{Journal, Options, RunEvents, open};

use crate::harness::*;

async fn begin(journal: &Journal, fence: Option<Fence>) -> RunEvents {
    thread(journal, "thread", &[]).await;
    let mut append = Append::new("run").opening(LogOpening::run("thread"));
    append.fence = fence;
    journal.commit(batch(append)).await.unwrap();
    RunEvents::new(journal.clone(), us(), log("run"), fence)
}

async fn events(journal: &Journal) -> Vec<(u64, Bytes)> {
    read(journal, "run").await.iter().flat_map(|record| unpack_events(record).unwrap()).collect()
}

fn deltas(numbers: std::ops::RangeInclusive<u64>) -> Vec<(u64, Bytes)> {
    numbers.map(|number| (number, Bytes::from(format!("delta {number}")))).collect()
}

async fn push(run: &RunEvents, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        run.push(format!("delta {number}").as_bytes(), None).await;
    }
}

pub(crate) async fn deltas_are_packed_without_waiting(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let run = begin(&journal, None).await;
    push(&run, 1..=5000).await;
    run.flush().await.unwrap();
    assert_eq!(events(&journal).await, deltas(1..=5000));
    let records = read(&journal, "run").await.len();
    assert!((2..=50).contains(&records), "{records} records for 5000 events");
    // Push more bytes than may be unwritten.
    let large = vec![b'x'; 100_000];
    for _ in 0..30 {
        run.push(&large, None).await;
    }
    run.flush().await.unwrap();
    let head = journal.log(&us(), &log("run")).await.unwrap().unwrap();
    assert_eq!(head.events, 5030);
    assert_eq!(events(&journal).await.last().unwrap(), &(5030, Bytes::from(large)));
}

pub(crate) async fn commit_is_ordered_after_earlier_pushes(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let run = begin(&journal, None).await;
    push(&run, 1..=3).await;
    let both = batch(items("run", &["decided"])).append(items("thread", &["item"]));
    let written = run.commit(both).await.unwrap();
    // The receipt covers the caller's records, but not the pack.
    assert_eq!(written, receipt(&[("run", 2, 2, 3), ("thread", 1, 1, 0)]));
    push(&run, 4..=4).await;
    let written = run.commit(batch(items("thread", &["next"]))).await.unwrap();
    assert_eq!(written, receipt(&[("thread", 2, 2, 0)]));
    let kinds: Vec<_> =
        read(&journal, "run").await.into_iter().map(|record| (record.seq, record.kind)).collect();
    let expected = [(1, "events"), (2, "item"), (3, "events")];
    assert_eq!(kinds, expected.map(|(seq, kind)| (seq, Name::from(kind))));
    // If no packs are queued, a commit adds nothing to the batch.
    let written = run.commit(batch(items("thread", &["last"]))).await.unwrap();
    assert_eq!(written, receipt(&[("thread", 3, 3, 0)]));
    assert_eq!(events(&journal).await, deltas(1..=4));
    // Events stay in order, regardless of other writes.
    for number in 5..=200 {
        push(&run, number..=number).await;
        if number % 10 == 0 {
            run.commit(batch(items("run", &["decided"]))).await.unwrap();
        }
    }
    run.flush().await.unwrap();
    assert_eq!(events(&journal).await, deltas(1..=200));
}

pub(crate) async fn old_pack_is_written(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let run = begin(&journal, None).await;
    for round in 1..=3 {
        push(&run, round..=round).await;
        soon(journal.wait(&us(), &log("run"), round - 1)).await.unwrap();
    }
    assert_eq!(events(&journal).await, deltas(1..=3));
}

pub(crate) async fn pack_is_written_on_close(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let run = begin(&journal, None).await;
    push(&run, 1..=2).await;
    run.close().await.unwrap();
    assert_eq!(events(&journal).await, deltas(1..=2));
}

pub(crate) async fn failure_is_reported_to_the_next_commit(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let time = Duration::from_mins(10);
    let lease = journal.lease(&us(), &log("run"), "first", time).await.unwrap();
    let run = begin(&journal, Some(lease.fence)).await;
    journal.release(&us(), &log("run"), lease.fence).await.unwrap();
    push(&run, 1..=1).await;
    assert!(matches!(run.flush().await, Err(StoreError::Fenced { .. })));
    assert_eq!(read(&journal, "run").await, []);
    // If a background write fails, the next commit returns the error and writes nothing.
    push(&run, 2..=2).await;
    let outcome = soon(run.commit(batch(items("thread", &["decided"])))).await;
    assert!(matches!(outcome, Err(StoreError::Fenced { .. })), "{outcome:?}");
    assert_eq!(read(&journal, "thread").await, []);
}

pub(crate) async fn events_of_a_refused_commit_are_not_lost(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let run = begin(&journal, None).await;
    push(&run, 1..=2).await;
    let refused = run.commit(batch(items("thread", &["a"]).expect_last(7))).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })), "{refused:?}");
    push(&run, 3..=3).await;
    run.commit(batch(items("thread", &["a"]).expect_last(0))).await.unwrap();
    assert_eq!(events(&journal).await, deltas(1..=3));
}

pub(crate) async fn events_of_a_repeated_commit_are_not_lost(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let run = begin(&journal, None).await;
    push(&run, 1..=2).await;
    let keyed_batch = || batch(items("run", &["decided"])).with_idempotency_key("name");
    let first = run.commit(keyed_batch()).await.unwrap();
    assert_eq!(first, receipt(&[("run", 2, 2, 2)]));
    push(&run, 3..=3).await;
    let repeated = run.commit(keyed_batch()).await.unwrap();
    assert_eq!((repeated.written, repeated.repeated), (first.written, true));
    run.flush().await.unwrap();
    assert_eq!(events(&journal).await, deltas(1..=3));
}

pub(crate) async fn packs_are_split_by_item(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let run = begin(&journal, None).await;
    let (one, two) = (Name::from("thread/one"), Name::from("thread/two"));
    for (text, about) in [
        ("delta 1", None),
        ("delta 2", Some(&one)),
        ("delta 3", Some(&one)),
        ("delta 4", Some(&two)),
        ("delta 5", None),
    ] {
        run.push(text.as_bytes(), about).await;
    }
    run.flush().await.unwrap();
    assert_eq!(events(&journal).await, deltas(1..=5));
    journal.forget(&us(), &log("thread"), Some("one")).await.unwrap();
    let left: Vec<_> = read(&journal, "run")
        .await
        .iter()
        .filter_map(|record| unpack_events(record).ok())
        .flatten()
        .map(|(number, _)| number)
        .collect();
    assert_eq!(left, [1, 4, 5]);
}

pub(crate) async fn disconnecting_callers_lose_and_repeat_nothing(on: Database) {
    let harness = Harness::fresh(on);
    // The queue is short and full, so some callers are cancelled before their batch is queued, and
    // others after that.
    let journal = open(&harness.url(), &Options { queue: 1, ..harness.options() }).await.unwrap();
    let run = begin(&journal, None).await;
    let over = Arc::new(AtomicBool::new(false));
    let others: Vec<_> = (0..4)
        .map(|_| {
            let (journal, over) = (journal.clone(), over.clone());
            tokio::spawn(async move {
                while !over.load(Ordering::Acquire) {
                    add(&journal, "thread", &["busy"]).await;
                }
            })
        })
        .collect();
    for number in 1..=60 {
        push(&run, number..=number).await;
        let mut commit = Box::pin(run.commit(batch(Append::new("run").status("running"))));
        for _ in 0..=number % 4 {
            tokio::select! {
                biased;
                done = &mut commit => {
                    done.unwrap();
                    break;
                }
                () = tokio::task::yield_now() => {}
            }
        }
    }
    soon(run.flush()).await.unwrap();
    over.store(true, Ordering::Release);
    for other in others {
        soon(other).await.unwrap();
    }
    assert_eq!(events(&journal).await, deltas(1..=60));
    proven(&journal).await;
}

pub(crate) async fn early_disconnects_lose_no_events(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let run = begin(&journal, None).await;
    push(&run, 1..=2).await;
    drop(run);
    soon(journal.wait(&us(), &log("run"), 0)).await.unwrap();
    assert_eq!(events(&journal).await, deltas(1..=2));
}
