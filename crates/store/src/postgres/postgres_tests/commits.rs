//! Tests which batches are written by a commit and which are rejected.

use std::num::NonZeroU64;
use std::time::Duration;

use bytes::Bytes;
use throughline_core::{
    ElisionReason, Fence, LogOpening, PendingRequest, PendingStatus, Receipt, Rewind, StoreError,
    TurnId, WrittenRange,
};
use throughline_json::Name;

use super::*;
use crate::query::{Listing, Order};
use crate::row::ErasureReason;
use crate::sealed_batch::{Erasure, KeyKind, SealedBlob, SealedKey, SealedTurn};

fn written(name: &str, first: u64, last: u64, events: u64) -> WrittenRange {
    WrittenRange { log: log(name), first, last, events }
}

#[tokio::test]
async fn records_are_numbered_and_linked() {
    let node = node(&database().await, "w1").await;
    let events = SealedRecord { events: 3, about: Some(-7), ..record("c") };
    let first = adding([opened("a", [record("a"), record("b"), events]), opened("b", [])]);
    let receipt = commit(&node, first).await.unwrap();
    let expected = vec![written("a", 1, 3, 3), written("b", 1, 0, 0)];
    assert_eq!(receipt, Receipt { written: expected, repeated: false });
    let more = SealedAppend {
        status: Some("running".into()),
        ..append("a", [SealedRecord { events: 2, at: Some(1000), ..record("déjà") }])
    };
    let receipt = commit(&node, adding([more])).await.unwrap();
    assert_eq!(receipt.written, [written("a", 4, 4, 5)]);

    assert_eq!(
        contents(&node, "a").await,
        [(1, "a".into()), (2, "b".into()), (3, "c".into()), (4, "déjà".to_owned())]
    );
    let head = node.log(&tenant(), &log("a")).await.unwrap().unwrap();
    assert_eq!((head.last, head.events, head.bytes), (4, 5, 9));
    assert_eq!(head.status.as_deref(), Some("running"));
    assert_eq!(node.place_of_event(&tenant(), &log("a"), 0).await.unwrap(), 2);
    assert_eq!(node.place_of_event(&tenant(), &log("a"), 3).await.unwrap(), 3);
    assert_eq!(node.place_of_event(&tenant(), &log("a"), 4).await.unwrap(), 3);
    assert_eq!(node.place_of_event(&tenant(), &log("a"), 5).await.unwrap(), 4);
    assert_eq!(node.about(&tenant(), -7).await.unwrap(), [(log("a"), 3)]);
    assert_eq!(node.log(&Tenant::from("other"), &log("a")).await.unwrap(), None);
    assert_eq!(node.tenants().await.unwrap(), [tenant()]);
    assert_sound(&node).await;
}

#[tokio::test]
async fn batch_with_idempotency_key_is_written_once() {
    let node = node(&database().await, "w1").await;
    let send = |name: &str| once(name, adding([append("a b", [record("x")])]));
    commit(&node, adding([opened("a b", [])])).await.unwrap();
    let first = commit(&node, once("two", send("one"))).await.unwrap();
    assert_eq!(first.written, [written("a b", 1, 1, 0)]);
    let repeated = commit(&node, once("two", send("one"))).await.unwrap();
    assert_eq!(repeated, Receipt { repeated: true, ..first });
    // Some of the names are unknown, or the names belong to different batches.
    assert_eq!(
        error_message(commit(&node, once("two", send("three"))).await),
        "idempotency key two was used in another request; use new keys in each new request"
    );
    commit(&node, send("four")).await.unwrap();
    assert!(matches!(
        commit(&node, once("four", send("one"))).await,
        Err(StoreError::MixedOnce { .. })
    ));
    assert_eq!(contents(&node, "a b").await.len(), 2);
}

#[tokio::test]
async fn invalid_batch_is_rejected_and_writes_nothing() {
    let node = node(&database().await, "w1").await;
    commit(&node, adding([opened("a", [record("1"), record("2")])])).await.unwrap();
    // Each batch has valid appends before and after the invalid one.
    let try_with = async |bad: SealedAppend| {
        commit(&node, adding([append("a", [record("x")]), bad, opened("new", [])])).await
    };
    let fork = |from: &str, at| SealedAppend {
        opening: Some(LogOpening::fork(from, at)),
        ..append("f", [])
    };
    let run = SealedAppend { opening: Some(LogOpening::run("missing")), ..append("r", []) };
    let conflict = commit(&node, adding([opened("a", [])])).await;
    assert!(
        matches!(conflict, Err(StoreError::Conflict { expected: 0, found: 2, .. })),
        "{conflict:?}"
    );
    let stale = SealedAppend { expect: Some(1), ..append("a", [record("x")]) };
    let conflict = commit(&node, adding([stale])).await;
    assert!(
        matches!(conflict, Err(StoreError::Conflict { expected: 1, found: 2, .. })),
        "{conflict:?}"
    );
    assert_eq!(error_message(try_with(append("b", [record("x")])).await), "there is no log b");
    assert_eq!(error_message(try_with(fork("missing", 1)).await), "there is no thread missing");
    assert_eq!(
        error_message(try_with(fork("a", 4)).await),
        "a ends at record 2; fork at that record or an earlier one"
    );
    assert_eq!(error_message(try_with(run).await), "there is no thread missing");
    let rewind = SealedAppend { rewind_to: Some(3), ..append("a", [record("x")]) };
    assert_eq!(
        error_message(commit(&node, adding([rewind])).await),
        "a ends at record 2; rewind to that record or an earlier one"
    );

    assert_eq!(contents(&node, "a").await.len(), 2);
    assert_eq!(node.log(&tenant(), &log("new")).await.unwrap(), None);
    assert_sound(&node).await;
}

#[tokio::test]
async fn forks_continue_at_their_fork_point_and_inherit_rewinds() {
    let node = node(&database().await, "w1").await;
    let mut thread = vec![opened("a", (0..6).map(|n| record(&n.to_string())))];
    // The run starts in the same batch.
    thread.push(SealedAppend { opening: Some(LogOpening::run("a")), ..append("run", []) });
    commit(&node, adding(thread)).await.unwrap();
    for to in [4, 2] {
        let rewind =
            SealedAppend { rewind_to: Some(to), ..append("a", [record("rewind"), record("on")]) };
        commit(&node, adding([rewind])).await.unwrap();
    }
    let fork = SealedAppend {
        opening: Some(LogOpening::fork("a", 8)),
        expect: Some(8),
        ..append("f", [record("own")])
    };
    let receipt = commit(&node, adding([fork])).await.unwrap();
    assert_eq!(receipt.written, [written("f", 9, 9, 0)]);
    let head = node.log(&tenant(), &log("a")).await.unwrap().unwrap();
    assert_eq!(head.rewinds, [Rewind { at: 7, to: 4 }, Rewind { at: 9, to: 2 }]);
    let head = node.log(&tenant(), &log("f")).await.unwrap().unwrap();
    assert_eq!((head.rewinds, head.last), (vec![Rewind { at: 7, to: 4 }], 9));
    assert_eq!(head.fork.map(|fork| (fork.log, fork.at)), Some((log("a"), 8)));

    let listing = |order| Listing {
        kind: None,
        of: None,
        forks_of: None,
        order,
        after: None,
        limit: 10,
        idle: None,
    };
    let names = async |listing| -> Vec<String> {
        node.logs(&tenant(), listing)
            .await
            .unwrap()
            .into_iter()
            .map(|head| head.log.to_string())
            .collect()
    };
    assert_eq!(names(Listing { of: Some(log("a")), ..listing(Order::Newest) }).await, ["run"]);
    assert_eq!(names(Listing { forks_of: Some(log("a")), ..listing(Order::Newest) }).await, ["f"]);
    let newest = names(listing(Order::Newest)).await;
    let mut oldest = names(listing(Order::Oldest)).await;
    oldest.reverse();
    assert_eq!((newest.len(), &newest), (3, &oldest));
    let after = Listing { after: Some(log(&newest[0])), limit: 1, ..listing(Order::Newest) };
    assert_eq!(names(after).await, newest[1..2]);
    assert_sound(&node).await;
}

#[tokio::test]
async fn leased_log_accepts_only_its_fence() {
    let node = node(&database().await, "w1").await;
    commit(&node, adding([opened("a", [])])).await.unwrap();
    let (tenant, a) = (tenant(), log("a"));
    let with = async |guard| {
        commit(&node, adding([SealedAppend { guard, ..append("a", [record("x")]) }])).await
    };
    let long = Duration::from_mins(1);
    let first = node.lease(&tenant, &a, "one", long).await.unwrap();
    assert!(error_message(with(Guard::Free).await).starts_with("a is leased to one"));
    assert!(
        error_message(node.lease(&tenant, &a, "two", long).await).starts_with("a is leased to one")
    );
    with(Guard::Behind(first.fence)).await.unwrap();
    with(Guard::Operator).await.unwrap();
    let other = Fence(NonZeroU64::new(99).unwrap());
    assert!(matches!(with(Guard::Behind(other)).await, Err(StoreError::Fenced { .. })));

    // If the same owner takes a new lease, it has a higher fence.
    let second = node.lease(&tenant, &a, "one", long).await.unwrap();
    assert!(second.fence > first.fence);
    assert!(matches!(with(Guard::Behind(first.fence)).await, Err(StoreError::Fenced { .. })));
    assert!(matches!(
        node.renew(&tenant, &a, first.fence, long).await,
        Err(StoreError::Fenced { .. })
    ));
    let renewed = node.renew(&tenant, &a, second.fence, Duration::from_millis(200)).await.unwrap();
    assert_eq!(renewed.fence, second.fence);
    until(async || with(Guard::Behind(second.fence)).await.is_err()).await;
    assert!(matches!(with(Guard::Behind(second.fence)).await, Err(StoreError::Fenced { .. })));
    assert!(matches!(
        node.renew(&tenant, &a, second.fence, long).await,
        Err(StoreError::Fenced { .. })
    ));
    with(Guard::Free).await.unwrap();
    let third = node.lease(&tenant, &a, "two", long).await.unwrap();
    assert!(third.fence > second.fence);
    node.release(&tenant, &a, second.fence).await.unwrap();
    assert!(error_message(with(Guard::Free).await).starts_with("a is leased to two"));
    node.release(&tenant, &a, third.fence).await.unwrap();
    with(Guard::Free).await.unwrap();
    assert!(node.lease(&tenant, &a, "one", long).await.unwrap().fence > third.fence);
}

#[tokio::test]
async fn pending_request_is_resolved_once() {
    let node = node(&database().await, "w1").await;
    let request = |id: &str, expires_in| PendingRequest {
        id: id.into(),
        kind: "approval".into(),
        log: log("a"),
        expires_in,
    };
    let asks = vec![
        request("p", None),
        request("q", Some(Duration::from_millis(50))),
        request("r", Some(Duration::from_mins(1))),
    ];
    let batch_of = |asks| SealedBatch { asks, ..adding([append("a", [record("?")])]) };
    commit(&node, adding([opened("a", [])])).await.unwrap();
    commit(&node, batch_of(asks)).await.unwrap();
    assert_eq!(
        error_message(commit(&node, batch_of(vec![request("p", None)])).await),
        "pending request id p is already in use; choose another id"
    );
    until(async || {
        let waiting = node.pending(&tenant(), Some(&log("a"))).await.unwrap();
        waiting.iter().any(|pending| pending.status == PendingStatus::Expired)
    })
    .await;
    let waiting = node.pending(&tenant(), Some(&log("a"))).await.unwrap();
    let waiting: Vec<_> =
        waiting.iter().map(|pending| (&*pending.id, pending.seq, pending.status)).collect();
    assert_eq!(
        waiting,
        [
            ("p", 1, PendingStatus::Open),
            ("q", 1, PendingStatus::Expired),
            ("r", 1, PendingStatus::Open)
        ]
    );
    let take =
        |id: &str| SealedBatch { takes: vec![id.into()], ..adding([append("a", [record("!")])]) };
    commit(&node, take("p")).await.unwrap();
    assert_eq!(
        error_message(commit(&node, take("p")).await),
        "request p is not open; its status is taken"
    );
    assert_eq!(
        error_message(commit(&node, take("q")).await),
        "request q is not open; its status is expired"
    );
    assert_eq!(
        error_message(commit(&node, take("missing")).await),
        "there is no pending entry missing"
    );
    assert_eq!(node.pending(&tenant(), None).await.unwrap().len(), 2);
    assert_eq!(contents(&node, "a").await.len(), 2);
}

#[tokio::test]
async fn captured_turns_are_found_by_their_keys() {
    let node = node(&database().await, "w1").await;
    let key = |kind, byte| SealedKey { kind, hash: [byte; 16] };
    let turn = |id: &str, keys: &[SealedKey]| SealedTurn {
        id: TurnId::from(id),
        parent: Some(TurnId::from("root")),
        keys: keys.to_vec(),
        log: log("a"),
        prefix: Some([9; 32]),
    };
    let with = |node| SealedBatch {
        vault: vec![node],
        ..adding([append("a", [record("x"), record("y")])])
    };
    commit(&node, adding([opened("a", [])])).await.unwrap();
    let (claim, id, shared, chain) =
        (key(KeyKind::Claim, 1), key(KeyKind::Id, 2), key(KeyKind::Id, 3), key(KeyKind::Chain, 1));
    commit(&node, with(turn("t1", &[claim, id, shared, chain, chain]))).await.unwrap();
    commit(&node, with(turn("t2", &[shared, chain]))).await.unwrap();
    assert_eq!(
        error_message(commit(&node, with(turn("t2", &[]))).await),
        "turn id t2 is already in use; choose another id"
    );
    let unknown = key(KeyKind::Claim, 7);
    let found = node.find(&tenant(), &[unknown, claim, id, shared, chain]).await.unwrap().found;
    let found: Vec<_> = found
        .iter()
        .map(|found| found.as_ref().map(|found| (&*found.turn.id.0, found.siblings)))
        .collect();
    assert_eq!(found, [None, Some(("t1", 0)), Some(("t1", 0)), None, Some(("t2", 1))]);
    let found = node.find(&tenant(), &[claim]).await.unwrap().found.remove(0).unwrap().turn;
    assert_eq!((found.first, found.last, found.prefix, found.gone), (1, 2, Some([9; 32]), None));
    let erases = vec![Erasure::records(log("a"), vec![2], ErasureReason::Forgotten)];
    commit(&node, SealedBatch { erases, ..batch() }).await.unwrap();
    let found = node.find(&tenant(), &[claim]).await.unwrap().found.remove(0).unwrap().turn;
    assert_eq!(found.gone, Some(ElisionReason::Forgotten));
}

#[tokio::test]
async fn turn_captured_twice_in_a_group_is_refused() {
    use crate::postgres::commit::{Columns, PreparedBatch, statement};
    let url = database().await;
    let node = node(&url, "w1").await;
    let id = node.shared.find_or_create_tenant(&tenant()).await.unwrap();
    let capture = |name: &str| {
        let (turn, parent) = (TurnId::from("t1"), None);
        let node = SealedTurn { id: turn, parent, keys: Vec::new(), log: log(name), prefix: None };
        SealedBatch { vault: vec![node], ..adding([opened(name, [record("x")])]) }
    };
    let group = ["a", "b"].map(|name| PreparedBatch::new(capture(name), id));
    let (client, columns) = (client(&url).await, Columns::from_group(&group));
    let params = columns.params([&"w9", &1_i64, &false, &KEY]);
    let answers = client.query_one(&statement(), &params).await.unwrap();
    let answers: Vec<String> = answers.get(0);
    assert!(answers[0].starts_with("ok"), "{answers:?}");
    assert_eq!(answers[1..], ["turn 0", "head 1"]);
    // The refused batch opened no log.
    assert_eq!(node.log(&tenant(), &log("b")).await.unwrap(), None);
    assert_sound(&node).await;
}

#[tokio::test]
async fn erasing_destroys_contents_and_keeps_the_chain() {
    let node = node(&database().await, "w1").await;
    let large = |id: u8| SealedRecord {
        blob: Some(SealedBlob { id: [id; 32], content: Bytes::from(vec![id; 3 << 20]) }),
        ..record("key")
    };
    commit(
        &node,
        adding([opened("a", [large(1), large(2), record("x")]), opened("b", [large(1)])]),
    )
    .await
    .unwrap();
    let span = Span { after: 0, up_to: 9, limit: 9 };
    let rows = node.rows(&tenant(), &log("a"), span).await.unwrap();
    let (one, two) = (rows[0].blob.unwrap(), rows[1].blob.unwrap());
    assert_eq!(
        node.rows(&tenant(), &log("b"), span).await.unwrap()[0].blob,
        Some(one),
        "kept once"
    );
    assert_eq!(node.blob(&tenant(), one).await.unwrap().unwrap().1, vec![1; 3 << 20]);
    assert_eq!(node.blob(&Tenant::from("other"), one).await.unwrap(), None);

    let operator = |records: Vec<SealedRecord>| SealedAppend {
        guard: Guard::Operator,
        ..append("a", records)
    };
    let erases = vec![Erasure::records(log("a"), vec![1, 2], ErasureReason::Expired)];
    commit(&node, SealedBatch { erases, ..adding([operator(vec![record("expired")])]) })
        .await
        .unwrap();
    let rows = node.rows(&tenant(), &log("a"), span).await.unwrap();
    let state: Vec<_> =
        rows.iter().map(|row| (row.content.is_some(), row.salt.is_some(), row.erased)).collect();
    let expired = (false, false, Some(ErasureReason::Expired));
    assert_eq!(state, [expired, expired, (true, true, None), (true, true, None)]);
    assert!(node.blob(&tenant(), one).await.unwrap().is_some(), "another record refers to it");
    assert_eq!(node.blob(&tenant(), two).await.unwrap(), None);

    let erases = vec![Erasure::all(log("a"), ErasureReason::Forgotten)];
    commit(&node, SealedBatch { erases, ..adding([operator(vec![record("forgotten")])]) })
        .await
        .unwrap();
    let head = node.log(&tenant(), &log("a")).await.unwrap().unwrap();
    assert_eq!(head.gone, Some(ElisionReason::Forgotten));
    assert_eq!(
        error_message(commit(&node, adding([append("a", [record("x")])])).await),
        "a was forgotten and accepts no more records"
    );
    let missing = vec![Erasure::all(log("missing"), ErasureReason::Forgotten)];
    assert_eq!(
        error_message(commit(&node, SealedBatch { erases: missing, ..batch() }).await),
        "there is no log missing"
    );
    node.scrub().await.unwrap();
    assert_sound(&node).await;
}

#[tokio::test]
async fn a_checkpoint_is_found_until_it_is_erased() {
    let node = node(&database().await, "w1").await;
    let checkpoint = |content| SealedRecord { kind: Name::from("checkpoint"), ..record(content) };
    commit(
        &node,
        adding([opened("a", [checkpoint("1"), record("2"), checkpoint("3"), record("4")])]),
    )
    .await
    .unwrap();
    let at = async |at_most| {
        node.checkpoint(&tenant(), &log("a"), at_most).await.unwrap().map(|row| row.seq)
    };
    assert_eq!(
        (at(0).await, at(2).await, at(3).await, at(9).await),
        (None, Some(1), Some(3), Some(3))
    );
    let erases = vec![Erasure::records(log("a"), vec![3], ErasureReason::Forgotten)];
    commit(&node, SealedBatch { erases, ..batch() }).await.unwrap();
    assert_eq!(at(9).await, Some(1));
}

#[tokio::test]
async fn append_after_erasure_in_same_group_stays() {
    use crate::postgres::commit::{Columns, PreparedBatch, statement};
    let url = database().await;
    let node = node(&url, "w1").await;
    let checkpoint = |content| SealedRecord { kind: "checkpoint".into(), ..record(content) };
    commit(&node, adding([opened("a", [record("1"), checkpoint("2")])])).await.unwrap();
    let id = node.shared.find_or_create_tenant(&tenant()).await.unwrap();
    let notice = SealedRecord { kind: "forgotten".into(), ..record("notice") };
    let mut erase = Erasure::records(log("a"), vec![1], ErasureReason::Forgotten);
    erase.checkpoints = true;
    let forgets = SealedBatch { erases: vec![erase], ..adding([append("a", [notice])]) };
    let continues = adding([append("a", [checkpoint("4"), record("5")])]);
    let group = [PreparedBatch::new(forgets, id), PreparedBatch::new(continues, id)];
    let (client, columns, statement) =
        (client(&url).await, Columns::from_group(&group), statement());
    client.query_one(&statement, &columns.params([&"w9", &1_i64, &false, &KEY])).await.unwrap();
    let remaining = contents(&node, "a").await;
    let erased = |seq| (seq, "-".to_owned());
    let stored = |seq, text: &str| (seq, text.to_owned());
    assert_eq!(
        remaining,
        [erased(1), erased(2), stored(3, "notice"), stored(4, "4"), stored(5, "5")]
    );
    assert_sound(&node).await;
}
