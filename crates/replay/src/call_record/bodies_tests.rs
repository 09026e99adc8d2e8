//! Tests that bodies are stored without loss, in a size proportional to their new content.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

/// Returns the bodies of a conversation with `count` turns. The sent request uses a different wire
/// than the received request.
fn turns(count: usize) -> Bodies {
    let body = |key: &str| {
        let all = (0..count).map(|turn| format!(r#"{{"{key}":"what was said in turn {turn}"}}"#));
        let all: Vec<_> = all.collect();
        Bytes::from(format!(r#"{{"messages":[{}],"stream":true}}"#, all.join(",")))
    };
    Bodies {
        expanded: body("content"),
        received: body("content"),
        sent: body("parts"),
        account: body("item"),
    }
}

fn base(tail: &DeltaBase) -> DeltaSource<'_> {
    DeltaSource { tail, other_log: None }
}

fn read(before: &Bodies, json: &Json) -> Bodies {
    Bodies::read(before, json.tree().root()).unwrap()
}

#[test]
fn call_cost_is_proportional_to_new_content() {
    let mut tail: Option<DeltaBase> = None;
    let mut sizes = Vec::new();
    for count in 1..=400 {
        let texts = turns(count);
        let written = texts.write(tail.as_ref().map(base));
        let before = tail.map(|tail| tail.texts).unwrap_or_default();
        assert_eq!(read(&before, &written.json), texts);
        sizes.push(written.json.bytes().len());
        let full = written.tail.full.or(Some(count as u64));
        tail = Some(DeltaBase { full, ..written.tail });
    }
    let (early, late): (usize, usize) = (sizes[50..150].iter().sum(), sizes[300..].iter().sum());
    assert!(late < early * 5 / 4, "100 turns cost {early} bytes, and later {late}");
}

#[test]
fn entirely_new_bodies_are_stored_in_full() {
    let texts = |number: usize| Bodies::of(&Bytes::from(format!("{number}").repeat(500)));
    let first = texts(1).write(None);
    let tail = DeltaBase { full: Some(1), ..first.tail };
    let next = texts(2).write(Some(base(&tail)));
    assert_eq!(next.tail.full, None, "a difference would be as long");
    assert_eq!(read(&Bodies::default(), &next.json), texts(2));
}

#[test]
fn equal_bodies_are_stored_once() {
    let body = Bytes::from_static(br#"{"input":"Hello"}"#);
    let texts = Bodies { sent: body.clone(), ..Bodies::of(&body) };
    let written = texts.write(None);
    assert_eq!(written.json.as_str(), r#"{"v":1,"whole":["{\"input\":\"Hello\"}"],"account":[]}"#);
    assert_eq!(read(&Bodies::default(), &written.json), texts);
}

#[test]
fn invalid_utf8_is_stored_lossily() {
    let texts = Bodies::of(&Bytes::from_static(b"\xff{}"));
    assert_eq!(&*texts.received, "\u{fffd}{}".as_bytes());
}
