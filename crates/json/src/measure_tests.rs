//! Tests for counting the values in a request and for the size limits.

use super::*;
use crate::Tree;

fn measure(text: &str) -> Measure {
    Measure::count(text.as_bytes(), &SizeLimits::NONE).unwrap()
}

#[test]
fn measured_entries_equal_indexed_entries() {
    for text in [
        "0",
        "[]",
        "{}",
        r#" { "a" : [ 1 , { "b" : "c\"d\\" } , null ] , "e\"" : { } , "f": [[], [[-1.5e3]]] } "#,
        r#"["a","b:c","{",true,false,null,[{"x":{"y":[0]}}]]"#,
    ] {
        let tree = Tree::parse(text.to_owned()).unwrap();
        assert_eq!(measure(text).entries, tree.entries(), "{text}");
    }
}

#[test]
fn messages_count_as_their_parts() {
    let text = r#"{"model":"m","messages":[{"role":"user","content":"a"},
        {"role":"user","content":[{"type":"text"},{"type":"text"},"c"]},{}]}"#;
    // Two members, one message without parts, three parts, and an empty message.
    assert_eq!(measure(text).items, 2 + 1 + 3 + 1);
    let text = r#"{"systemInstruction":{"parts":[{},{}]},"contents":[{"parts":[{}]}]}"#;
    // Two members, one nested member, two parts, and one part.
    assert_eq!(measure(text).items, 3 + 2 + 1);
    let text = r#"{"request":{"messages":[{"content":[{},{}]},{}],"tools":[{},{}]}}"#;
    assert_eq!(measure(text), Measure { items: 3 + 2 + 1, tools: 2, ..measure(text) });
}

#[test]
fn tools_and_declarations_are_counted_separately() {
    let text = r#"{"tools":[{"functionDeclarations":[{"name":"a","parameters":{"required":["x"]}},
        {"name":"b"}]},{"googleSearch":{}}],"messages":[]}"#;
    assert_eq!(measure(text), Measure { tools: 4, items: 2, ..measure(text) });
}

#[test]
fn counting_stops_at_the_first_limit() {
    let limits = SizeLimits { entries: 100, items: 10, tools: 5 };
    let of = |text: String| Measure::count(text.as_bytes(), &limits);
    let list = |name: &str, count: usize| format!("{{\"{name}\":[{}0]}}", "{},".repeat(count));
    assert_eq!(of(list("messages", 10)), Err(SizeLimitExceeded::Items(10)));
    assert_eq!(of(list("tools", 5)), Err(SizeLimitExceeded::Tools(5)));
    assert_eq!(of(format!("[{}0]", "0,".repeat(100))), Err(SizeLimitExceeded::Entries(100)));
    assert!(of(list("messages", 8)).is_ok());
    // Scanning stops at the limit, so the unterminated string is not reached.
    assert_eq!(of(format!("[{}{}", "0,".repeat(100), "\"")), Err(SizeLimitExceeded::Entries(100)));
}

#[test]
fn measuring_any_text_never_panics() {
    for text in ["", "\"", "\"\\", "]]]", "{{{", "}{", ",,,:", "{\"a\"", "[\"\\\"", "tru"] {
        measure(text);
    }
    measure(&"[".repeat(10_000));
    measure(&format!("{}{}", "{\"a\":".repeat(5_000), "}".repeat(6_000)));
}
