//! Differences give back what they are of, and are short where little is new.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use proptest::prelude::*;
use throughline_core::{Json, json};

fn difference(base: &str, text: &str) -> Json {
    json::array(|a| super::write(base.as_bytes(), text.as_bytes(), a))
}

fn applied(base: &str, difference: &Json) -> Option<Bytes> {
    super::read(&Bytes::from(base.to_owned()), difference.tree().root())
}

#[test]
fn what_both_have_is_taken_over() {
    let cases = [
        ("", "", "[]"),
        ("", "new", r#"["new"]"#),
        ("same", "same", "[[0,4]]"),
        ("[1,2]", "[1,2,3]", r#"[[0,4],",3",[4,1]]"#),
        // Half of a character is not the same.
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
fn pieces_are_found_wherever_they_stand() {
    let turn = |number: u32| format!(r#"{{"role":"user","content":"the {number}th of many"}}"#);
    let turns = |count| (0..count).map(turn).collect::<Vec<_>>().join(",");
    let body = |at: u32, count| format!(r#"{{"at":{at},"messages":[{}],"n":{at}}}"#, turns(count));
    let (before, now) = (body(1, 200), body(2, 201));
    let difference = difference(&before, &now);
    assert_eq!(applied(&before, &difference).unwrap(), now);
    assert!(difference.bytes().len() < 200, "{}", difference.as_str());
}

#[test]
fn what_does_not_fit_is_nothing() {
    for damaged in ["[[0,9]]", "[[9,1]]", "[[0]]", "[[-1,1]]", "[18446744073709551615]", "[null]"] {
        assert_eq!(applied("short", &Json::parse(damaged.to_owned()).unwrap()), None, "{damaged}");
    }
}

proptest! {
    #[test]
    fn a_difference_gives_the_text_back(base in "[a-cäö{}\\[\\],\"]{0,600}", text in "[a-cäö{}\\[\\],\"]{0,600}") {
        prop_assert_eq!(applied(&base, &difference(&base, &text)).unwrap(), text);
    }

    #[test]
    fn so_does_one_of_a_text_that_was_edited(
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
