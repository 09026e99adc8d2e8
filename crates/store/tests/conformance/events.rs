//! Tests that run events are numbered from 1 and can be read from any position.

use bytes::Bytes;
use throughline_core::{Append, LogOpening, Record, Store, StoreError};
use throughline_core::{LogFollower, pack_events, unpack_events};
use throughline_store::Journal;
use tokio::task::JoinSet;

use crate::harness::*;

/// Opens a run and writes these packs of events.
async fn run_with(journal: &Journal, packs: &[&[&str]]) {
    let mut append = Append::new("run").opening(LogOpening::run("thread"));
    append.records = packs.iter().map(|events| packed(events)).collect();
    let begin = batch(Append::new("thread").opening(LogOpening::thread())).append(append);
    journal.commit(begin).await.unwrap();
}

fn packed(events: &[&str]) -> throughline_core::NewRecord {
    pack_events(events.iter().map(|event| event.as_bytes()))
}

async fn add_events(journal: &Journal, events: &[&str]) {
    journal.commit(batch(Append::new("run").record(packed(events)))).await.unwrap();
}

fn events(records: &[Record]) -> Vec<(u64, Bytes)> {
    records.iter().flat_map(|record| unpack_events(record).unwrap()).collect()
}

fn numbered_events(numbers: std::ops::RangeInclusive<u64>) -> Vec<(u64, Bytes)> {
    numbers.map(|number| (number, Bytes::from(format!("event {number}")))).collect()
}

/// Follows the run's events after `after` until event `last`.
async fn follow(journal: &Journal, after: u64, last: u64) -> Vec<(u64, Bytes)> {
    let mut follow = LogFollower::events(journal, us(), log("run"), after).await.unwrap();
    let mut received = Vec::new();
    while received.last().is_none_or(|(number, _)| *number < last) {
        let records = soon(follow.next()).await.unwrap();
        received.extend(events(&records).into_iter().filter(|(number, _)| *number > after));
    }
    received
}

pub(crate) async fn events_are_numbered_from_one(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    run_with(&journal, &[&["a"], &["b", "", "c"]]).await;
    let more = batch(Append::new("run").record(item("not an event")).record(packed(&["d", "e"])));
    let written = journal.commit(more).await.unwrap();
    assert_eq!(written, receipt(&[("run", 3, 4, 6)]));
    let records = read(&journal, "run").await;
    let numbers: Vec<_> = records.iter().map(|record| (record.seq, record.events)).collect();
    assert_eq!(numbers, [(1, Some((1, 1))), (2, Some((2, 4))), (3, None), (4, Some((5, 6)))]);
    let all = [(1, "a"), (2, "b"), (3, ""), (4, "c"), (5, "d"), (6, "e")];
    let all: Vec<_> = all.map(|(number, text)| (number, Bytes::from(text))).into();
    assert_eq!(events(&records), all);
    assert_eq!(journal.log(&us(), &log("run")).await.unwrap().unwrap().events, 6);
}

pub(crate) async fn events_are_read_after_any_number(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    run_with(&journal, &[]).await;
    let mut number = 0;
    for size in [1, 3, 1, 7, 2] {
        let texts: Vec<String> =
            (number + 1..=number + size).map(|number| format!("event {number}")).collect();
        number += size;
        add_events(&journal, &texts.iter().map(String::as_str).collect::<Vec<_>>()).await;
        add(&journal, "run", &["something else"]).await;
    }
    for after in 0..14 {
        let seq = journal.seq_before_event(&us(), &log("run"), after).await.unwrap();
        let records = journal.read(&us(), &log("run"), seq, u32::MAX).await.unwrap();
        let found: Vec<_> =
            events(&records).into_iter().filter(|(number, _)| *number > after).collect();
        assert_eq!(found, numbered_events(after + 1..=14));
        // The first record that was read already contains a requested event.
        let first = records.first().and_then(|record| record.events).unwrap();
        assert!(first.0 <= after + 1 && after < first.1);
    }
    for after in [14, 15, u64::MAX] {
        let seq = journal.seq_before_event(&us(), &log("run"), after).await.unwrap();
        assert_eq!(seq, 10, "{after}");
    }
}

async fn assert_followed(writer: Journal, reader: Journal) {
    run_with(&writer, &[&["event 1", "event 2"]]).await;
    for after in [0, 1, 2] {
        let reader = reader.clone();
        let last = 2 + 10 * (after + 1);
        let following = tokio::spawn(async move { follow(&reader, after, last).await });
        for number in last - 9..=last {
            add_events(&writer, &[&format!("event {number}")]).await;
        }
        assert_eq!(soon(following).await.unwrap(), numbered_events(after + 1..=last));
    }
}

pub(crate) async fn a_run_is_followed_on_the_same_node(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    assert_followed(journal.clone(), journal).await;
}

pub(crate) async fn a_run_is_followed_from_another_node(on: Database) {
    let harness = Harness::fresh(on);
    assert_followed(harness.open().await, harness.open().await).await;
    // A wait that starts just before the only write does not miss it.
    let (writer, reader) = (harness.open().await, harness.open().await);
    for round in 0..20 {
        let name = format!("thread {round}");
        thread(&writer, &name, &[]).await;
        let waiting = {
            let (reader, name) = (reader.clone(), log(&name));
            tokio::spawn(async move { reader.wait(&us(), &name, 0).await })
        };
        tokio::task::yield_now().await;
        add(&writer, &name, &["only"]).await;
        soon(waiting).await.unwrap().unwrap();
    }
}

pub(crate) async fn many_readers_can_follow_one_run(on: Database) {
    let harness = Harness::fresh(on);
    let nodes = [harness.open().await, harness.open().await];
    run_with(&nodes[0], &[]).await;
    let mut readers = JoinSet::new();
    for number in 0..40 {
        let journal = nodes[number % 2].clone();
        readers.spawn(async move { follow(&journal, (number / 2) as u64, 60).await });
    }
    for number in 1..=60 {
        add_events(&nodes[0], &[&format!("event {number}")]).await;
    }
    let mut received = soon(readers.join_all()).await;
    received.sort_by_key(|events| std::cmp::Reverse(events.len()));
    let expected: Vec<_> = (0..40).map(|number| numbered_events(number / 2 + 1..=60)).collect();
    assert_eq!(received, expected);
}

pub(crate) async fn waiting_ends_when_the_store_closes(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &[]).await;
    let mut waiting = JoinSet::new();
    for _ in 0..8 {
        let journal = journal.clone();
        waiting.spawn(async move { journal.wait(&us(), &log("thread"), 0).await });
    }
    tokio::task::yield_now().await;
    journal.close().await.unwrap();
    for outcome in soon(waiting.join_all()).await {
        assert!(matches!(outcome, Err(StoreError::Closed)), "{outcome:?}");
    }
}
