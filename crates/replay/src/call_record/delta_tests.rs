//! Tests that differences reproduce the text, and are short if little of the text is new.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use proptest::prelude::*;
use throughline_json::{self as json, Json};

fn difference(base: &str, text: &str) -> Json {
    json::array(|a| super::write(base.as_bytes(), text.as_bytes(), a))
}

fn applied(base: &str, difference: &Json) -> Option<Bytes> {
    super::read(&Bytes::from(base.to_owned()), difference.tree().root())
}

#[test]
fn common_prefix_and_suffix_are_copied() {
    let cases = [
        ("", "", "[]"),
        ("", "new", r#"["new"]"#),
        ("same", "same", "[[0,4]]"),
        ("[1,2]", "[1,2,3]", r#"[[0,4],",3",[4,1]]"#),
        // Half of a multi-byte character does not count as equal.
        ("ä", "ö", r#"["ö"]"#),
        ("aä", "aö", r#"[[0,1],"ö"]"#),
    ];
    for (base, text, expected) in cases {
        let difference = difference(base, text);
        assert_eq!(difference.as_str(), expected, "{base} → {text}");
        assert_eq!(applied(base, &difference).unwrap(), text);
    }
}

#[test]
fn moved_pieces_are_copied() {
    let turn = |number: u32| format!(r#"{{"role":"user","content":"the {number}th of many"}}"#);
    let turns = |count| (0..count).map(turn).collect::<Vec<_>>().join(",");
    let body = |at: u32, count| format!(r#"{{"at":{at},"messages":[{}],"n":{at}}}"#, turns(count));
    let (before, now) = (body(1, 200), body(2, 201));
    let difference = difference(&before, &now);
    assert_eq!(applied(&before, &difference).unwrap(), now);
    assert!(difference.bytes().len() < 200, "{}", difference.as_str());
}

#[test]
fn invalid_differences_are_rejected() {
    for damaged in ["[[0,9]]", "[[9,1]]", "[[0]]", "[[-1,1]]", "[18446744073709551615]", "[null]"] {
        assert_eq!(applied("short", &Json::parse(damaged.to_owned()).unwrap()), None, "{damaged}");
    }
}

proptest! {
    #[test]
    fn difference_reproduces_the_text(base in "[a-cäö{}\\[\\],\"]{0,600}", text in "[a-cäö{}\\[\\],\"]{0,600}") {
        prop_assert_eq!(applied(&base, &difference(&base, &text)).unwrap(), text);
    }

    #[test]
    fn difference_reproduces_an_edited_text(
        base in "([a-c]{0,40}[}\\]]|[äö]{0,9}){0,60}",
        new in "[a-cä}]{0,50}",
        cut in any::<(prop::sample::Index, prop::sample::Index)>(),
    ) {
        let places: Vec<usize> = base.char_indices().map(|(at, _)| at).chain([base.len()]).collect();
        let (one, other) = (*cut.0.get(&places), *cut.1.get(&places));
        let text = [&base[..one.min(other)], &new, &base[one.max(other)..]].concat();
        prop_assert_eq!(applied(&base, &difference(&base, &text)).unwrap(), text);
    }
}
