//! Tests that crashes, retries, model switches and older Journals do not change the counts of a
//! run.

use jiff::Timestamp;
use throughline_json::Json;

use super::*;

fn fold(events: &[&str]) -> (RunFold, Vec<(u64, u64, AttemptEnd)>) {
    let (mut fold, mut ends) = (RunFold::default(), Vec::new());
    for (second, text) in (0..).zip(events) {
        let at = Timestamp::from_second(second).unwrap();
        let event = RunEvent::parse(&Json::parse((*text).to_owned()).unwrap()).unwrap();
        let change = fold.push(at, &event);
        let left = change.left.map(|attempt| (attempt, AttemptEnd::Left));
        for (attempt, end) in left.into_iter().chain(change.ended) {
            ends.push((attempt.turn, attempt.number, end));
        }
    }
    (fold, ends)
}

const START_1: &str = r#"{"type":"turn","phase":"start","turn":1,"model":"m"}"#;
const THOUGHT_1: &str = r#"{"type":"thought","phase":"end","turn":1,"text":"hm","sealedBytes":10}"#;
const END_1: &str = r#"{"type":"turn","phase":"end","turn":1}"#;
const START_2: &str = r#"{"type":"turn","phase":"start","turn":2,"model":"m"}"#;
const PIECE_2: &str = r#"{"type":"thought","phase":"delta","turn":2,"text":"half"}"#;
const GONE_2: &str = r#"{"type":"turn","phase":"discarded","turn":2,"reason":"gone"}"#;
const REPLAY_2: &str = r#"{"type":"replay","turn":2,"kept":1,"elided":2}"#;
const THOUGHT_2: &str =
    r#"{"type":"thought","phase":"end","turn":2,"text":"whole","sealedBytes":5}"#;
const END_2: &str = r#"{"type":"turn","phase":"end","turn":2}"#;
const GATE: &str = r#"{"type":"gate","phase":"retried","attempt":1}"#;

#[test]
fn resumed_attempt_counts_the_same_with_and_without_its_own_start() {
    let before = [START_1, THOUGHT_1, END_1, START_2, PIECE_2, GONE_2];
    let after = [REPLAY_2, THOUGHT_2, END_2];
    let (new, new_ends) = fold(&[&before[..], &[START_2], &after].concat());
    let (old, old_ends) = fold(&[&before[..], &after].concat());
    assert_eq!(new.counts(), old.counts());
    assert_eq!(new_ends, old_ends);
    let expected =
        [(1, 1, AttemptEnd::Accepted), (2, 1, AttemptEnd::Discarded), (2, 2, AttemptEnd::Accepted)];
    assert_eq!(new_ends, expected);
    let counts = RunCounts {
        turns: 2,
        attempts: 3,
        discarded: 1,
        thoughts: 2,
        sealed_bytes: 15,
        kept: 1,
        elided: 2,
        ..RunCounts::default()
    };
    assert_eq!(new.counts(), counts);
    assert_eq!(new.models().len(), 1);
}

#[test]
fn two_crashes_in_one_turn_are_two_discarded_attempts() {
    let (old, ends) = fold(&[START_1, END_1, START_2, GONE_2, GONE_2, END_2]);
    assert_eq!((old.counts().attempts, old.counts().discarded), (4, 2));
    assert_eq!(ends.last(), Some(&(2, 3, AttemptEnd::Accepted)));
}

#[test]
fn gate_retry_has_one_attempt_for_each_start() {
    let (retried, ends) = fold(&[START_2, REPLAY_2, GONE_2, GATE, START_2, REPLAY_2, END_2]);
    let counts = retried.counts();
    assert_eq!((counts.turns, counts.attempts, counts.discarded), (2, 2, 1));
    assert_eq!((counts.kept, counts.elided), (2, 4), "both requests sent thoughts");
    assert_eq!(ends, [(2, 1, AttemptEnd::Discarded), (2, 2, AttemptEnd::Accepted)]);
}

#[test]
fn turn_discarded_before_a_call_is_not_an_attempt() {
    // The model's breaker is open, so the gate calls another model.
    let (fold, ends) = fold(&[START_1, END_1, GONE_2, GATE, START_2, END_2]);
    assert_eq!((fold.counts().attempts, fold.counts().discarded), (2, 0));
    assert_eq!(ends.len(), 2);
}

#[test]
fn reflections_are_not_attempts_but_their_thoughts_count() {
    let aside = r#"{"type":"turn","phase":"start","turn":1,"model":"n","purpose":"reflection"}"#;
    let note = r#"{"type":"reflection","id":"r","turn":1,"text":"fine"}"#;
    let replay = r#"{"type":"replay","turn":1,"kept":3}"#;
    let (fold, ends) = fold(&[START_1, END_1, aside, replay, note, START_2, END_2]);
    assert_eq!((fold.counts().attempts, fold.counts().kept), (2, 3));
    assert_eq!(ends.get(1), Some(&(1, 1, AttemptEnd::Left)));
    assert_eq!(fold.models().iter().map(|model| &**model).collect::<Vec<_>>(), ["m", "n"]);
}

#[test]
fn tool_that_is_started_again_counts_once() {
    let start = r#"{"type":"tool_call","phase":"start","name":"t","id":"c"}"#;
    let end = r#"{"type":"tool_call","phase":"success","name":"t","id":"c"}"#;
    assert_eq!(fold(&[start, start, end]).0.counts().tools, 1);
}
