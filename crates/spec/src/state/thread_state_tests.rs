//! Tests for the folded Thread state.

use bytes::Bytes;
use jiff::Timestamp;
use throughline_core::{Content, Fold, FoldedLog, NewRecord, Record, kind};
use throughline_json::Json;

use crate::state::{StateChange, ThreadState};

fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

fn fold(records: Vec<NewRecord>) -> ThreadState {
    let mut state = ThreadState::default();
    for (seq, record) in (1..).zip(records) {
        let (at, content) = (Timestamp::UNIX_EPOCH, Content::Here(record.content));
        state.apply(&Record { seq, kind: record.kind, at, events: None, content }).unwrap();
    }
    state
}

#[test]
fn changes_fold_into_the_documented_state() {
    let reflection = r#"{"id":"r1","turn":1,"text":"fine","createdAt":"2026-11-15T00:00:00Z"}"#;
    let second = reflection.replace("r1", "r2");
    let state = fold(vec![
        NewRecord::new(kind::ITEM, "{}"),
        StateChange::new().set("planVersion", Json::from(1)).record(),
        StateChange::new().add("reflections", json(reflection)).record(),
        NewRecord::new(kind::ITEM, "{}"),
        StateChange::new()
            .set("planVersion", Json::from(2))
            .add("reflections", json(&second))
            .record(),
    ]);
    assert_eq!(state.items, 2);
    let state = state.to_smart_state(Vec::new()).unwrap();
    assert_eq!(
        state.json().as_str(),
        format!(r#"{{"messages":[],"planVersion":2,"reflections":[{reflection},{second}]}}"#)
    );
}

#[test]
fn list_can_grow_after_it_was_set() {
    let state = fold(vec![
        StateChange::new().set("summaries", json(r#"["one"]"#)).record(),
        StateChange::new().add("summaries", json(r#""two""#)).record(),
    ]);
    assert_eq!(
        state.to_smart_state(Vec::new()).unwrap().json().as_str(),
        r#"{"messages":[],"summaries":["one","two"]}"#
    );
}

#[test]
fn checkpoint_round_trips() {
    let state = fold(vec![
        NewRecord::new(kind::ITEM, "{}"),
        StateChange::new()
            .set("ctx", json(r#"{"a":[1,2]}"#))
            .add("summaries", json(r#""one""#))
            .record(),
        StateChange::new().set("plan", Json::null()).record(),
    ]);
    assert_eq!(ThreadState::load(&state.save()).unwrap(), state);
}

#[test]
fn invalid_checkpoints_are_rejected() {
    for wrong in ["", "[]", r#"{"items":-1,"state":{}}"#, r#"{"items":1}"#] {
        assert!(ThreadState::load(&Bytes::from(wrong)).is_err(), "{wrong}");
    }
}

#[test]
fn state_with_erased_content_writes_no_checkpoint() {
    let record = |seq, kind: &str| Record {
        seq,
        kind: kind.into(),
        at: Timestamp::UNIX_EPOCH,
        events: None,
        content: Content::Here(Bytes::from_static(b"{}")),
    };
    let mut folded = FoldedLog::<ThreadState>::default();
    for seq in 1..=100 {
        folded.apply(&record(seq, kind::ITEM)).unwrap();
    }
    assert!(folded.is_checkpoint_due());
    folded.apply(&record(101, kind::FORGOTTEN)).unwrap();
    assert!(folded.stale && !folded.is_checkpoint_due());
}
