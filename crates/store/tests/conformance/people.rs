//! Tests that pending requests can be resolved only once, and only before they expire.

use std::time::Duration;

use throughline_core::{Batch, PendingEntry, PendingRequest, PendingStatus, Store, StoreError};
use throughline_store::Journal;
use tokio::task::JoinSet;

use crate::harness::*;

fn asking(id: &str, text: &str, expires_in: Option<Duration>) -> Batch {
    let mut asking = batch(items("thread", &["before", text]));
    let (id, kind) = (id.into(), "approval".into());
    asking.asks.push(PendingRequest { id, kind, log: log("thread"), expires_in });
    asking
}

fn deciding(id: &str) -> Batch {
    let mut deciding = batch(items("thread", &["decided"]));
    deciding.takes.push(id.into());
    deciding
}

async fn pending(journal: &Journal) -> Vec<PendingEntry> {
    journal.pending(&us(), None).await.unwrap()
}

pub(crate) async fn pending_requests_are_listed(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &[]).await;
    thread(&journal, "other", &[]).await;
    journal.commit(asking("one", "may I?", None)).await.unwrap();
    let time = Duration::from_mins(10);
    until(|| async {
        // Open the next request at a later time, so that the order is certain.
        pending(&journal).await[0].opened < {
            add(&journal, "other", &["tick"]).await;
            journal.log(&us(), &log("other")).await.unwrap().unwrap().updated
        }
    })
    .await;
    journal.commit(asking("two", "and now?", Some(time))).await.unwrap();
    let records = read(&journal, "thread").await;
    let asked = |id: &str, seq: u64, expires| PendingEntry {
        id: id.into(),
        kind: "approval".into(),
        log: log("thread"),
        seq,
        opened: records[usize::try_from(seq).unwrap() - 1].at,
        expires,
        status: PendingStatus::Open,
    };
    let expires = records[3].at.checked_add(jiff::SignedDuration::from_mins(10)).unwrap();
    let both = [asked("one", 2, None), asked("two", 4, Some(expires))];
    assert_eq!(pending(&journal).await, both);
    assert_eq!(journal.pending(&us(), Some(&log("thread"))).await.unwrap(), both);
    assert_eq!(journal.pending(&us(), Some(&log("other"))).await.unwrap(), []);
    let again = journal.commit(asking("one", "may I?", None)).await;
    assert_eq!(sentence(again), "pending request id one is already in use; choose another id");
    let mut nowhere = asking("three", "where?", None);
    nowhere.asks[0].log = log("other");
    assert_eq!(sentence(journal.commit(nowhere).await), "the batch contains no append to other");
    journal.close().await.unwrap();
    assert_eq!(pending(&harness.open().await).await, both);
}

pub(crate) async fn one_of_two_deciders_wins(on: Database) {
    let harness = Harness::fresh(on);
    let nodes = [harness.open().await, harness.open().await];
    thread(&nodes[0], "thread", &[]).await;
    for round in 0..5 {
        let id = format!("question {round}");
        nodes[0].commit(asking(&id, "may I?", None)).await.unwrap();
        let mut deciders = JoinSet::new();
        for node in nodes.clone() {
            let id = id.clone();
            deciders.spawn(async move { node.commit(deciding(&id)).await });
        }
        let outcomes = soon(deciders.join_all()).await;
        let (won, lost): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        assert_eq!((won.len(), lost.len()), (1, 1));
        for outcome in lost {
            assert_eq!(sentence(outcome), format!("request {id} is not open; its status is taken"));
        }
    }
    assert_eq!(pending(&nodes[0]).await, [], "a resolved request is not pending");
    assert_eq!(read(&nodes[0], "thread").await.len(), 15);
}

pub(crate) async fn request_is_decided_once(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &[]).await;
    journal.commit(asking("one", "may I?", None)).await.unwrap();
    journal.commit(deciding("one")).await.unwrap();
    let again = journal.commit(deciding("one")).await;
    assert_eq!(sentence(again), "request one is not open; its status is taken");
    let nothing = journal.commit(deciding("none")).await;
    assert_eq!(sentence(nothing), "there is no pending entry none");
    assert_eq!(
        texts(&journal, "thread").await,
        numbered(&[(1, "before"), (2, "may I?"), (3, "decided")])
    );
}

pub(crate) async fn expired_requests_cannot_be_decided(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &[]).await;
    journal.commit(asking("one", "may I?", Some(Duration::from_millis(20)))).await.unwrap();
    until(|| async { pending(&journal).await[0].status == PendingStatus::Expired }).await;
    match journal.commit(deciding("one")).await {
        Err(StoreError::Taken { id, status }) => {
            assert_eq!((&*id, status), ("one", PendingStatus::Expired));
        }
        outcome => panic!("{outcome:?}"),
    }
    assert_eq!(texts(&journal, "thread").await, numbered(&[(1, "before"), (2, "may I?")]));
}
