//! Tests that a batch with idempotency names is written once, regardless of retries and nodes.

use throughline_core::{Append, Batch, LogOpening, PendingRequest, Receipt, Store};
use tokio::task::JoinSet;

use crate::harness::*;

pub(crate) async fn repeated_batch_returns_the_same_receipt(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &[]).await;
    let both =
        batch(items("thread", &["a", "b"])).with_idempotency_key("one").with_idempotency_key("two");
    let first = journal.commit(both.clone()).await.unwrap();
    assert_eq!(first, receipt(&[("thread", 1, 2, 0)]));
    add(&journal, "thread", &["c"]).await;
    let repeated_receipt = Receipt { repeated: true, ..first };
    assert_eq!(journal.commit(both.clone()).await.unwrap(), repeated_receipt);
    // A batch that would now conflict returns its earlier receipt instead.
    let late = batch(items("thread", &["x"]).expect_last(0))
        .with_idempotency_key("one")
        .with_idempotency_key("two");
    assert_eq!(journal.commit(late).await.unwrap(), repeated_receipt);
    journal.close().await.unwrap();
    let journal = harness.open().await;
    assert_eq!(journal.commit(both).await.unwrap(), repeated_receipt);
    assert_eq!(texts(&journal, "thread").await, numbered(&[(1, "a"), (2, "b"), (3, "c")]));
    // Tenants have separate idempotency names.
    let mut other =
        batch(items("thread", &["a"]).opening(LogOpening::thread())).with_idempotency_key("one");
    other.tenant = other_tenant();
    assert_eq!(journal.commit(other).await.unwrap(), receipt(&[("thread", 1, 1, 0)]));
}

pub(crate) async fn mixed_idempotency_keys_are_refused(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &[]).await;
    journal.commit(batch(items("thread", &["a"])).with_idempotency_key("one")).await.unwrap();
    journal.commit(batch(items("thread", &["b"])).with_idempotency_key("two")).await.unwrap();
    let tail = "was used in another request; use new keys in each new request";
    for names in [["one", "two"], ["one", "new"], ["new", "one"]] {
        let mixed_batch = names
            .iter()
            .fold(batch(items("thread", &["c"])), |batch, name| batch.with_idempotency_key(*name));
        assert_eq!(
            error_message(journal.commit(mixed_batch).await),
            format!("idempotency key one {tail}"),
            "{names:?}"
        );
    }
    assert_eq!(texts(&journal, "thread").await, numbered(&[(1, "a"), (2, "b")]));
    // The rejected batch did not use up the new name.
    let new =
        journal.commit(batch(items("thread", &["c"])).with_idempotency_key("new")).await.unwrap();
    assert_eq!(new, receipt(&[("thread", 3, 3, 0)]));
}

pub(crate) async fn decisions_with_different_keys_are_distinct(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &[]).await;
    let mut requests = batch(items("thread", &["?"]));
    let kind = || "approval".into();
    for id in ["one", "two"] {
        requests.asks.push(PendingRequest {
            id: id.into(),
            kind: kind(),
            log: log("thread"),
            expires_in: None,
        });
    }
    journal.commit(requests).await.unwrap();
    // Batches that add no records are also written once.
    let decision =
        |id: &str| Batch { takes: vec![id.into()], ..Batch::new(us()).with_idempotency_key(id) };
    for id in ["one", "two"] {
        journal.commit(decision(id)).await.unwrap();
        assert!(journal.commit(decision(id)).await.unwrap().repeated);
    }
    let outcome = journal
        .commit(Batch::new(us()).with_idempotency_key("one").with_idempotency_key("two"))
        .await;
    let expected =
        "idempotency key one was used in another request; use new keys in each new request";
    assert_eq!(error_message(outcome), expected);
}

pub(crate) async fn repeated_receipt_has_the_order_of_the_first(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    let both = batch(Append::new("run").opening(LogOpening::run("thread")))
        .append(items("thread", &["a"]).opening(LogOpening::thread()))
        .with_idempotency_key("name");
    let first = journal.commit(both.clone()).await.unwrap();
    assert_eq!(first, receipt(&[("run", 1, 0, 0), ("thread", 1, 1, 0)]));
    let repeated = journal.commit(both).await.unwrap();
    assert_eq!(repeated, Receipt { repeated: true, ..first });
}

pub(crate) async fn repeated_batches_from_two_nodes_are_written_once(on: Database) {
    let harness = Harness::fresh(on);
    let nodes = [harness.open().await, harness.open().await];
    thread(&nodes[0], "thread", &[]).await;
    for round in 0..5 {
        let mut tries = JoinSet::new();
        for number in 0..8 {
            let journal = nodes[number % 2].clone();
            tries.spawn(async move {
                let batch =
                    batch(items("thread", &["a"])).with_idempotency_key(format!("round {round}"));
                journal.commit(batch).await.unwrap()
            });
        }
        let receipts = soon(tries.join_all()).await;
        assert_eq!(receipts.iter().filter(|receipt| !receipt.repeated).count(), 1);
        let written = receipt(&[("thread", round + 1, round + 1, 0)]).written;
        assert!(receipts.iter().all(|receipt| receipt.written == written), "{receipts:?}");
    }
    assert_eq!(read(&nodes[0], "thread").await.len(), 5);
}
