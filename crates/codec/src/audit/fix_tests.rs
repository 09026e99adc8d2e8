//! Tests that edits leave all other JSON text unchanged.

use super::*;

const TEXT: &str = r#" {"a": [1, {"b":2},  3], "c" : "d",
  "e":[ ] } "#;

fn edited(text: &str, edits: impl FnOnce(&Tree) -> Vec<Edit>) -> String {
    let tree = Tree::parse(text.to_owned()).unwrap();
    let edits = edits(&tree);
    let bytes = apply(&tree, &edits.iter().collect::<Vec<_>>());
    Tree::parse(bytes.clone()).unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn place(tree: &Tree, pointer: &str) -> Range<usize> {
    tree.root().at(pointer).unwrap().range()
}

fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

#[test]
fn text_without_edits_is_unchanged() {
    assert_eq!(edited(TEXT, |_| Vec::new()), TEXT);
}

#[test]
fn an_element_is_removed_with_its_comma() {
    let removed = |at: &'static str| edited(TEXT, move |tree| vec![Edit::Remove(place(tree, at))]);
    assert_eq!(removed("/a/0"), TEXT.replace("[1, {", "[ {"));
    assert_eq!(removed("/a/1"), TEXT.replace(r#" {"b":2},"#, ""));
    assert_eq!(removed("/a/2"), TEXT.replace(",  3", ""));
}

#[test]
fn all_elements_can_be_removed() {
    let all = |tree: &Tree| {
        let elements = tree.root().get("a").unwrap().elements();
        elements.map(|element| Edit::Remove(element.range())).collect()
    };
    assert_eq!(edited(TEXT, all), TEXT.replace(r#"[1, {"b":2},  3]"#, "[]"));
}

#[test]
fn member_is_removed_by_the_range_of_its_value() {
    let removed = edited(TEXT, |tree| vec![Edit::Remove(place(tree, "/c"))]);
    assert_eq!(removed, TEXT.replace(r#", "c" : "d""#, ""));
}

#[test]
fn elements_are_inserted_before_and_after_others() {
    let edits = |tree: &Tree| {
        vec![
            Edit::InsertBefore(place(tree, "/a/0"), vec![json("0")]),
            Edit::InsertAfter(place(tree, "/a/2"), vec![json("4"), json("5")]),
        ]
    };
    assert_eq!(edited(TEXT, edits), TEXT.replace("[1,", "[0,1,").replace("  3]", "  3,  4,  5]"));
}

#[test]
fn members_are_set_and_added() {
    let edits = |tree: &Tree| {
        vec![
            Edit::Set(place(tree, "/a/1"), "b".into(), json("[]")),
            Edit::Set(place(tree, "/a/1"), "x".into(), json("true")),
            Edit::Replace(place(tree, "/c"), json("null")),
        ]
    };
    let expected = TEXT.replace(r#"{"b":2}"#, r#"{"b":[],"x":true}"#).replace(r#""d""#, "null");
    assert_eq!(edited(TEXT, edits), expected);
}

#[test]
fn overlapping_fixes_are_not_combined() {
    let removal = |start, end| Fix::new("removes it", vec![Edit::Remove(start..end)]);
    let (whole, inner, other) = (removal(0, 10), removal(2, 4), removal(12, 14));
    assert_eq!(select_compatible(&[&whole, &inner, &other]), [0, 2]);
    assert_eq!(select_compatible(&[&inner, &whole]), [0]);
}
