//! Tests that pending requests can be resolved only once, and only before they expire.

use std::time::Duration;

use throughline_core::{Batch, PendingEntry, PendingRequest, PendingStatus, Store, StoreError};
use throughline_store::Journal;
use tokio::task::JoinSet;

use crate::harness::*;

fn request_batch(id: &str, text: &str, expires_in: Option<Duration>) -> Batch {
    let mut batch = batch(items("thread", &["before", text]));
    let (id, kind) = (id.into(), "approval".into());
    batch.asks.push(PendingRequest { id, kind, log: log("thread"), expires_in });
    batch
}

fn decision_batch(id: &str) -> Batch {
    let mut batch = batch(items("thread", &["decided"]));
    batch.takes.push(id.into());
    batch
}

async fn pending(journal: &Journal) -> Vec<PendingEntry> {
    journal.pending(&us(), None).await.unwrap()
}

pub(crate) async fn pending_requests_are_listed(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &[]).await;
    thread(&journal, "other", &[]).await;
    journal.commit(request_batch("one", "may I?", None)).await.unwrap();
    let time = Duration::from_mins(10);
    until(|| async {
        // Open the next request at a later time, so that the order is certain.
        pending(&journal).await[0].opened < {
            add(&journal, "other", &["tick"]).await;
            journal.log(&us(), &log("other")).await.unwrap().unwrap().updated
        }
    })
    .await;
    journal.commit(request_batch("two", "and now?", Some(time))).await.unwrap();
    let records = read(&journal, "thread").await;
    let entry = |id: &str, seq: u64, expires| PendingEntry {
        id: id.into(),
        kind: "approval".into(),
        log: log("thread"),
        seq,
        opened: records[usize::try_from(seq).unwrap() - 1].at,
        expires,
        status: PendingStatus::Open,
    };
    let expires = records[3].at.checked_add(jiff::SignedDuration::from_mins(10)).unwrap();
    let both = [entry("one", 2, None), entry("two", 4, Some(expires))];
    assert_eq!(pending(&journal).await, both);
    assert_eq!(journal.pending(&us(), Some(&log("thread"))).await.unwrap(), both);
    assert_eq!(journal.pending(&us(), Some(&log("other"))).await.unwrap(), []);
    let outcome = journal.commit(request_batch("one", "may I?", None)).await;
    assert_eq!(
        error_message(outcome),
        "pending request id one is already in use; choose another id"
    );
    let mut misplaced = request_batch("three", "where?", None);
    misplaced.asks[0].log = log("other");
    assert_eq!(
        error_message(journal.commit(misplaced).await),
        "the batch contains no append to other"
    );
    journal.close().await.unwrap();
    assert_eq!(pending(&harness.open().await).await, both);
}

pub(crate) async fn one_of_two_deciders_wins(on: Database) {
    let harness = Harness::fresh(on);
    let nodes = [harness.open().await, harness.open().await];
    thread(&nodes[0], "thread", &[]).await;
    for round in 0..5 {
        let id = format!("question {round}");
        nodes[0].commit(request_batch(&id, "may I?", None)).await.unwrap();
        let mut deciders = JoinSet::new();
        for node in nodes.clone() {
            let id = id.clone();
            deciders.spawn(async move { node.commit(decision_batch(&id)).await });
        }
        let outcomes = soon(deciders.join_all()).await;
        let (won, lost): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        assert_eq!((won.len(), lost.len()), (1, 1));
        for outcome in lost {
            assert_eq!(
                error_message(outcome),
                format!("request {id} is not open; its status is taken")
            );
        }
    }
    assert_eq!(pending(&nodes[0]).await, [], "a resolved request is not pending");
    assert_eq!(read(&nodes[0], "thread").await.len(), 15);
}

pub(crate) async fn request_is_decided_once(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &[]).await;
    journal.commit(request_batch("one", "may I?", None)).await.unwrap();
    journal.commit(decision_batch("one")).await.unwrap();
    let outcome = journal.commit(decision_batch("one")).await;
    assert_eq!(error_message(outcome), "request one is not open; its status is taken");
    let outcome = journal.commit(decision_batch("none")).await;
    assert_eq!(error_message(outcome), "there is no pending entry none");
    assert_eq!(
        texts(&journal, "thread").await,
        numbered(&[(1, "before"), (2, "may I?"), (3, "decided")])
    );
}

pub(crate) async fn expired_requests_cannot_be_decided(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &[]).await;
    journal.commit(request_batch("one", "may I?", Some(Duration::from_millis(20)))).await.unwrap();
    until(|| async { pending(&journal).await[0].status == PendingStatus::Expired }).await;
    match journal.commit(decision_batch("one")).await {
        Err(StoreError::Taken { id, status }) => {
            assert_eq!((&*id, status), ("one", PendingStatus::Expired));
        }
        outcome => panic!("{outcome:?}"),
    }
    assert_eq!(texts(&journal, "thread").await, numbered(&[(1, "before"), (2, "may I?")]));
}

pub(crate) async fn requests_of_erased_logs_are_not_listed(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &[]).await;
    thread(&journal, "other", &[]).await;
    journal.commit(request_batch("one", "may I?", None)).await.unwrap();
    let (id, kind) = ("two".into(), "question".into());
    let mut remaining = batch(items("other", &["which one?"]));
    remaining.asks.push(PendingRequest { id, kind, log: log("other"), expires_in: None });
    journal.commit(remaining).await.unwrap();
    assert_eq!(journal.stats().await.unwrap().pending, 2);
    journal.forget(&us(), &log("thread"), None).await.unwrap();
    let entries = pending(&journal).await;
    assert_eq!((entries.len(), &*entries[0].id), (1, "two"));
    assert_eq!(journal.pending(&us(), Some(&log("thread"))).await.unwrap(), []);
    assert_eq!(journal.stats().await.unwrap().pending, 1);
}
