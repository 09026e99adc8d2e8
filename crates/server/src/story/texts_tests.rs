//! Texts are kept as they are, at the cost of what is new in them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

/// The texts of a conversation of so many turns, as another wire is sent it.
fn turns(count: usize) -> Texts {
    let said = |words: &str| {
        let all = (0..count).map(|turn| format!(r#"{{"{words}":"what was said in turn {turn}"}}"#));
        let all: Vec<_> = all.collect();
        Bytes::from(format!(r#"{{"messages":[{}],"stream":true}}"#, all.join(",")))
    };
    Texts {
        whole: said("content"),
        came: said("content"),
        sent: said("parts"),
        account: said("item"),
    }
}

fn base(tail: &Tail) -> Base<'_> {
    Base { tail, elsewhere: None }
}

fn read(before: &Texts, json: &Json) -> Texts {
    Texts::read(before, json.tree().root()).unwrap()
}

#[test]
fn a_call_costs_what_is_new_in_it() {
    let mut tail: Option<Tail> = None;
    let mut sizes = Vec::new();
    for count in 1..=400 {
        let texts = turns(count);
        let written = texts.write(tail.as_ref().map(base));
        let before = tail.map(|tail| tail.texts).unwrap_or_default();
        assert_eq!(read(&before, &written.json), texts);
        sizes.push(written.json.bytes().len());
        let full = written.tail.full.or(Some(count as u64));
        tail = Some(Tail { full, ..written.tail });
    }
    let (early, late): (usize, usize) = (sizes[50..150].iter().sum(), sizes[300..].iter().sum());
    assert!(late < early * 5 / 4, "100 turns cost {early} bytes, and later {late}");
}

#[test]
fn what_is_all_new_is_kept_in_full_now_and_then() {
    let texts = |number: usize| Texts::of(&Bytes::from(format!("{number}").repeat(500)));
    let first = texts(1).write(None);
    let tail = Tail { full: Some(1), ..first.tail };
    let next = texts(2).write(Some(base(&tail)));
    assert_eq!(next.tail.full, None, "a difference would be as long");
    assert_eq!(read(&Texts::default(), &next.json), texts(2));
}

#[test]
fn texts_that_are_the_same_are_said_once() {
    let body = Bytes::from_static(br#"{"input":"Hello"}"#);
    let texts = Texts { sent: body.clone(), ..Texts::of(&body) };
    let written = texts.write(None);
    assert_eq!(written.json.as_str(), r#"{"v":1,"whole":["{\"input\":\"Hello\"}"],"account":[]}"#);
    assert_eq!(read(&Texts::default(), &written.json), texts);
}

#[test]
fn what_is_no_text_is_kept_as_far_as_it_is_one() {
    let texts = Texts::of(&Bytes::from_static(b"\xff{}"));
    assert_eq!(&*texts.came, "\u{fffd}{}".as_bytes());
}
