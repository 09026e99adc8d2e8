//! Tests of forks, which share history by reference, and of rewinds.

use throughline_core::{Append, ForkPoint, LogHead, Rewind, Store};
use throughline_store::Journal;

use crate::harness::*;

async fn fork(journal: &Journal, of: &str, at: Option<u64>, new: &str) {
    journal.fork(&us(), &log(of), at, &log(new)).await.unwrap();
}

async fn head(journal: &Journal, name: &str) -> LogHead {
    journal.log(&us(), &log(name)).await.unwrap().unwrap()
}

async fn rewind(journal: &Journal, name: &str, to: u64, texts: &[&str]) {
    let mut append = items(name, texts);
    append.rewind_to = Some(to);
    journal.commit(batch(append)).await.unwrap();
}

pub(crate) async fn a_fork_shares_history_by_reference(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &["a", "b", "c"]).await;
    let before = journal.stats().await.unwrap();
    fork(&journal, "thread", Some(2), "fork").await;
    let after = journal.stats().await.unwrap();
    assert_eq!(
        (after.records, after.content_bytes, after.threads),
        (before.records, before.content_bytes, before.threads + 1)
    );
    add(&journal, "fork", &["d"]).await;
    add(&journal, "thread", &["e"]).await;
    let expected = numbered(&[(1, "a"), (2, "b"), (3, "d")]);
    assert_eq!(texts(&journal, "fork").await, expected);
    let expected = numbered(&[(1, "a"), (2, "b"), (3, "c"), (4, "e")]);
    assert_eq!(texts(&journal, "thread").await, expected);
    let fork = head(&journal, "fork").await;
    assert_eq!(fork.fork, Some(ForkPoint { log: log("thread"), at: 2 }));
    assert_eq!((fork.last, fork.bytes), (3, 1));
    // The shared records are identical in both logs.
    let (fork_records, thread_records) =
        (read(&journal, "fork").await, read(&journal, "thread").await);
    assert_eq!(fork_records[..2], thread_records[..2]);
    proven(&journal).await;
}

pub(crate) async fn forks_nest(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "0", &["0a", "0b", "0c"]).await;
    fork(&journal, "0", Some(2), "1").await;
    add(&journal, "1", &["1c", "1d"]).await;
    fork(&journal, "1", Some(3), "2").await;
    add(&journal, "2", &["2d"]).await;
    // Fork a fork at a record of the root Thread.
    fork(&journal, "2", Some(1), "3").await;
    add(&journal, "3", &["3b"]).await;
    fork(&journal, "2", None, "4").await;
    let expected = numbered(&[(1, "0a"), (2, "0b"), (3, "1c"), (4, "2d")]);
    assert_eq!(texts(&journal, "2").await, expected);
    assert_eq!(texts(&journal, "3").await, numbered(&[(1, "0a"), (2, "3b")]));
    assert_eq!(texts(&journal, "4").await, expected);
    // Any depth works, because history is not read recursively.
    let mut last = "4".to_owned();
    for depth in 5..60 {
        let next = depth.to_string();
        fork(&journal, &last, None, &next).await;
        last = next;
    }
    assert_eq!(texts(&journal, &last).await, expected);
    proven(&journal).await;
}

pub(crate) async fn a_fork_at_zero_shares_nothing(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &["a"]).await;
    fork(&journal, "thread", Some(0), "fork").await;
    assert_eq!(texts(&journal, "fork").await, []);
    assert_eq!(add(&journal, "fork", &["b"]).await, receipt(&[("fork", 1, 1, 0)]));
    assert_eq!(texts(&journal, "fork").await, numbered(&[(1, "b")]));
    proven(&journal).await;
}

pub(crate) async fn invalid_forks_are_refused(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &["a"]).await;
    run(&journal, "run", "thread").await;
    let outcome = journal.fork(&us(), &log("thread"), Some(2), &log("fork")).await;
    assert_eq!(
        error_message(outcome),
        "thread ends at record 1; fork at that record or an earlier one"
    );
    let outcome = journal.fork(&us(), &log("none"), None, &log("fork")).await;
    assert_eq!(error_message(outcome), "there is no thread none");
    let outcome = journal.fork(&us(), &log("run"), None, &log("fork")).await;
    assert_eq!(error_message(outcome), "run is a run; only threads can be forked");
    let outcome = journal.fork(&us(), &log("thread"), None, &log("thread")).await;
    assert_eq!(
        error_message(outcome),
        "thread is at record 1, not 0; read the new records and retry"
    );
}

pub(crate) async fn reading_crosses_fork_boundaries(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "0", &["0a", "0b", "0c"]).await;
    fork(&journal, "0", Some(3), "1").await;
    fork(&journal, "1", Some(3), "2").await;
    add(&journal, "2", &["2d", "2e"]).await;
    fork(&journal, "2", Some(4), "3").await;
    add(&journal, "3", &["3e"]).await;
    // Records that are added after a fork point belong only to their own log.
    for (name, text) in [("0", "0d"), ("1", "1d"), ("2", "2f")] {
        add(&journal, name, &[text, text, text]).await;
    }
    for (name, all) in [
        ("2", vec![(1, "0a"), (2, "0b"), (3, "0c"), (4, "2d"), (5, "2e"), (6, "2f"), (7, "2f")]),
        ("3", vec![(1, "0a"), (2, "0b"), (3, "0c"), (4, "2d"), (5, "3e")]),
    ] {
        for after in 0..9 {
            for limit in 0..9 {
                let found = journal.read(&us(), &log(name), after, limit).await.unwrap();
                let mut expected_records = expected(&all);
                if name == "2" {
                    expected_records.extend(expected(&[(8, "2f")]));
                }
                expected_records.retain(|(seq, ..)| *seq > after);
                expected_records.truncate(limit as usize);
                assert_eq!(
                    summaries(&found),
                    expected_records,
                    "{name} after {after}, {limit} of them"
                );
            }
        }
    }
}

pub(crate) async fn a_rewind_ends_a_span(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &["a", "b", "c"]).await;
    rewind(&journal, "thread", 1, &["d"]).await;
    let found = read(&journal, "thread").await;
    assert_eq!(found[..3], read(&journal, "thread").await[..3]);
    assert_eq!((&*found[3].kind, text(&found[3])), ("rewind", r#"{"to":1}"#.to_owned()));
    assert_eq!(text(&found[4]), "d");
    let thread = head(&journal, "thread").await;
    assert_eq!(thread.rewinds, [Rewind { at: 4, to: 1 }]);
    assert_eq!(thread.valid_ranges(thread.last), [1..=1, 4..=5]);
    rewind(&journal, "thread", 0, &[]).await;
    let thread = head(&journal, "thread").await;
    assert_eq!(thread.rewinds, [Rewind { at: 4, to: 1 }, Rewind { at: 6, to: 0 }]);
    assert_eq!(thread.valid_ranges(thread.last), [6..=6]);
    let mut far = Append::new("thread");
    far.rewind_to = Some(7);
    let outcome = journal.commit(batch(far)).await;
    assert_eq!(
        error_message(outcome),
        "thread ends at record 6; rewind to that record or an earlier one"
    );
    proven(&journal).await;
}

pub(crate) async fn a_fork_keeps_the_rewinds_before_it(on: Database) {
    let harness = Harness::fresh(on);
    let journal = harness.open().await;
    thread(&journal, "thread", &["a", "b", "c"]).await;
    rewind(&journal, "thread", 1, &["d"]).await;
    rewind(&journal, "thread", 2, &["e"]).await;
    // Fork before both rewinds, between them, and after both.
    fork(&journal, "thread", Some(3), "before").await;
    fork(&journal, "thread", Some(5), "between").await;
    fork(&journal, "thread", None, "after").await;
    assert_eq!(head(&journal, "before").await.rewinds, []);
    assert_eq!(head(&journal, "between").await.rewinds, [Rewind { at: 4, to: 1 }]);
    let both = [Rewind { at: 4, to: 1 }, Rewind { at: 6, to: 2 }];
    assert_eq!(head(&journal, "after").await.rewinds, both);
    // If a fork rewinds to a record before its fork point, its parent does not change.
    rewind(&journal, "between", 1, &["f"]).await;
    let between = head(&journal, "between").await;
    assert_eq!(between.valid_ranges(between.last), [1..=1, 6..=7]);
    assert_eq!(head(&journal, "thread").await.rewinds, both);
}
