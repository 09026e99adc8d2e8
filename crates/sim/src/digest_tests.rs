//! Tests for digests, and for the canonical and written forms of JSON values.

use throughline_json::Tree;

use super::*;

fn both(text: &'static str) -> (String, String) {
    let tree = Tree::parse(text).unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(canonical_bytes(tree.root())), text(written_bytes(tree.root())))
}

#[test]
fn canonical_form_ignores_member_order_and_escapes() {
    let (said_one, written_one) = both(r#"{"b": [1, "\u00e9"], "a": null, "c": {}}"#);
    let (said_two, written_two) = both(r#"{"c":{},"b":[1,"é"]}"#);
    assert_eq!(said_one, said_two);
    assert_eq!(written_one, r#"{"b":[1,"é",],"a":null,"c":{},}"#);
    assert_ne!(written_one, written_two);
}

#[test]
fn cache_markers_are_ignored_in_both_forms() {
    let marked = r#"[{"text":"a","cache_control":{"type":"ephemeral"}},{"cachePoint":{}}]"#;
    assert_eq!(both(marked), both(r#"[{"text":"a"}]"#));
}

#[test]
fn ids_have_the_requested_format_and_are_deterministic() {
    let digest = Digest::new("test", "one");
    let id = digest.id("toolu_", 24);
    assert!(id.starts_with("toolu_") && id.len() == 30, "{id}");
    assert!(id.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_'));
    assert_eq!(id, digest.id("toolu_", 24));
    assert_ne!(id, digest.and("more").id("toolu_", 24));
    assert_eq!(digest.hex(40).len(), 40);
    assert_eq!(Digest::try_from(digest.to_string()), Ok(digest));
}
