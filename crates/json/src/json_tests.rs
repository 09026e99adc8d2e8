//! Tests for reading and writing verbatim JSON.

use bytes::Bytes;
use proptest::prelude::*;

use crate as json;
use crate::{Json, JsonKind, SharedBeginning, Tree};

#[test]
fn value_keeps_its_spelling() {
    let text = r#" {"b": 1e2, "a": "\u00e9", "a": 18446744073709551616, "c":[ 1 ,2 ] } "#;
    let json = Json::parse(text).unwrap();
    assert_eq!(json.as_str(), text.trim());
    let tree = json.tree();
    assert_eq!(tree.root().get("a").unwrap().number(), Some("18446744073709551616"));
    assert_eq!(tree.root().at("/c/1").unwrap().u64(), Some(2));
    let keys: Vec<_> = tree.root().members().map(|(key, _)| key.text().unwrap()).collect();
    assert_eq!(keys, ["b", "a", "a", "c"]);
}

#[test]
fn canonical_forms_agree_when_the_values_do() {
    let one = Json::parse(r#"{"b":[1, {"y":"A","x":null}],"a":true}"#).unwrap();
    let other = Json::parse(r#"{ "a" : true, "b" : [1,{"x":null,"y":"\u0041"}] }"#).unwrap();
    assert_eq!(one.canonical(), r#"{"a":true,"b":[1,{"x":null,"y":"A"}]}"#);
    assert!(one.is_equivalent_to(&other));
    assert!(!one.is_equivalent_to(&Json::null()));
}

#[test]
fn deeply_nested_json_does_not_overflow_the_stack() {
    let deep = "[".repeat(10_000) + &"]".repeat(10_000);
    let tree = Tree::parse(deep.clone()).unwrap();
    assert_eq!(tree.root().shape(), JsonKind::Array);
    assert_eq!(tree.root().canonical(), deep);
}

#[test]
fn syntax_errors_report_line_and_column() {
    let cases = [
        ("", "the text is empty at line 1 column 1"),
        ("{\n \"a\": tru}", "expected a value at line 2 column 7"),
        ("[1,]", "expected a value at line 1 column 4"),
        ("[,1]", "expected a value at line 1 column 2"),
        ("{\"a\":1,}", "expected a member name in double quotes at line 1 column 8"),
        ("{\"a\" 1}", "expected `:` at line 1 column 6"),
        ("[1 2]", "expected `,` or `]` at line 1 column 4"),
        ("{\"a\":1", "the text ends inside an object or array at line 1 column 7"),
        ("{\"a\":\"x", "the text ends inside a string at line 1 column 8"),
        ("01", "unexpected text after the JSON value at line 1 column 2"),
        ("-", "expected a digit at line 1 column 2"),
        ("\"\\x\"", "invalid escape in a string at line 1 column 3"),
        ("\"a\nb\"", "unescaped control character in a string at line 1 column 3"),
        ("1 1", "unexpected text after the JSON value at line 1 column 3"),
    ];
    for (text, message) in cases {
        assert_eq!(Tree::parse(text).err().unwrap().to_string(), message, "{text:?}");
    }
    let error = Tree::parse(&b"\"\xff\""[..]).err().unwrap();
    assert_eq!(error.to_string(), "the text is not valid UTF-8 at line 1 column 2");
}

#[test]
fn a_lone_surrogate_is_kept_and_reads_as_a_replacement() {
    let json = Json::parse(r#""a\ud800b \ud83d\ude00""#).unwrap();
    assert_eq!(json.tree().root().text().unwrap(), "a\u{fffd}b \u{1f600}");
    assert_eq!(json.as_str(), r#""a\ud800b \ud83d\ude00""#);
}

#[test]
fn members_are_written_in_the_order_of_the_calls() {
    let json = json::object(|o| {
        o.string("b", "x\"\\\n\u{1}é").number("a", 7).bool("c", true).null("d");
        o.array("e", |a| {
            a.string("1").object(|_| {}).array(|_| {});
        });
    });
    assert_eq!(json.as_str(), r#"{"b":"x\"\\\n\u0001é","a":7,"c":true,"d":null,"e":["1",{},[]]}"#);
}

#[test]
fn debug_output_hides_the_value() {
    let json = Json::parse(r#"{"signature":"secret"}"#).unwrap();
    assert_eq!(format!("{json:?}"), "Json(22 B)");
}

proptest! {
    #[test]
    fn parser_accepts_exactly_what_serde_json_accepts(text in "[\\[\\]{}\",:0-9a-zA-Z .\\\\\\-+é\n]{0,60}") {
        let ours = Tree::parse(text.clone()).is_ok();
        let theirs = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
        prop_assert_eq!(ours, theirs, "{:?}", text);
    }

    #[test]
    fn any_string_survives_writing_and_reading(value in any::<String>()) {
        let json = json::string(&value);
        let tree = json.tree();
        prop_assert_eq!(&*tree.root().text().unwrap(), value.as_str());
        prop_assert_eq!(serde_json::from_str::<String>(json.as_str()).unwrap(), value);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(tree) = Tree::parse(bytes) {
            let _ = tree.root().canonical();
        }
    }
}

#[test]
fn parse_within_rejects_deeper_nesting() {
    let text = r#"{"a":[[1],[2]],"b":"[[[[["}"#;
    assert!(Tree::parse_within(3, text).is_ok());
    let error = Tree::parse_within(2, text).map(|_| ()).unwrap_err();
    assert!(error.is_too_deep());
    assert_eq!(error.offset, 6);
    // An earlier syntax error is reported first.
    assert!(!Tree::parse_within(2, "[}[[[").map(|_| ()).unwrap_err().is_too_deep());
    // The text after the error is not read.
    assert!(Tree::parse_within(2, "[[[nonsense").map(|_| ()).unwrap_err().is_too_deep());
}

#[test]
fn parse_bounded_stops_beyond_its_number_of_entries() {
    let text = r#"{"a":[1,{"b":2}],"c":"d"}"#;
    let entries = Tree::parse(text).unwrap().entries();
    let tree = Tree::parse_bounded(u32::MAX, entries, text).unwrap();
    assert_eq!(tree.map(|tree| tree.entries()), Some(entries));
    assert!(Tree::parse_bounded(u32::MAX, entries - 1, text).unwrap().is_none());
    // The rest of the text is not read.
    assert!(Tree::parse_bounded(u32::MAX, 3, "[1,2,3,4,nonsense").unwrap().is_none());
    assert!(Tree::parse_bounded(u32::MAX, 9, "[1,2,3,4,nonsense").is_err());
}

#[test]
fn control_characters_are_refused_only_inside_strings() {
    let indented = "{\n\t\"name\": \"value\"\r\n}";
    assert_eq!(Tree::parse(indented).unwrap().entries(), 3);
    for text in ["[\"a\u{1}b\"]", "[\n\"a\nb\"]", "[\"a long text before it, then a tab\t\"]"] {
        let error = Tree::parse(text).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("control character"), "{text:?}: {error}");
    }
}

/// Checks that parsing `text` after `known` gives the same result as parsing it alone. Returns
/// whether the index of `known` was used.
fn check_parse_after(known: &str, text: &str) -> bool {
    let known = Tree::parse_within(64, known.to_owned()).unwrap();
    let after = SharedBeginning::of(&known, &Bytes::from(text.to_owned())).parse(64, usize::MAX);
    match (Tree::parse_within(64, text.to_owned()), after) {
        (_, Ok(None)) => false,
        (Ok(alone), Ok(Some(after))) => {
            assert_eq!(after.entries(), alone.entries(), "{text:?}");
            for number in 0..u32::try_from(alone.entries()).unwrap() {
                let (left, right) = (alone.node(number), after.node(number));
                assert_eq!((left.shape(), left.range()), (right.shape(), right.range()), "{text}");
                assert_eq!(left.text(), right.text(), "{text}");
                assert_eq!(left.canonical(), right.canonical(), "{text}");
            }
            let names = |tree: &Tree| {
                let names = tree.root().all_members().map(|(key, _)| key.number_in_tree());
                names.collect::<Vec<_>>()
            };
            assert_eq!(names(&after), names(&alone), "{text}");
            true
        }
        (Err(alone), Err(after)) => {
            assert_eq!(after.to_string(), alone.to_string(), "{text:?}");
            true
        }
        (alone, after) => panic!("{text:?}: alone {}, after {}", alone.is_ok(), after.is_ok()),
    }
}

#[test]
fn a_text_is_parsed_after_an_earlier_text() {
    let cases = [
        (r#"{"m":[{"a":1},{"b":[2]}],"t":[{"x":"\n"},"y"],"s":true}"#, "grows in the middle"),
        (r#"{"t":["\u0041",{"x":{}}],"m":[{"a":"\\"},[]]}"#, "grows at the end"),
        ("{ \"m\" : [ 1 , 2 ]\n,\"t\": null }\n", "has white space"),
        ("[1,2]", "is an array"),
        (r#"{"m":[]}"#, "has no messages"),
    ];
    for (known, why) in cases {
        let end = known.find(']').unwrap();
        let separator = if known.contains("[]") { "" } else { "," };
        for new in ["3", "12", r#"{"role":"u\u00e9","c":["\"",{}]}"#, "[[[]]]", "\"é\"", "tru", ""]
        {
            let text = format!("{}{separator}{new}{}", &known[..end], &known[end..]);
            assert!(check_parse_after(known, &text), "the known text {why}: {text}");
        }
        assert!(check_parse_after(known, known), "{why}");
    }
    // The part that is left out makes these texts invalid.
    for (known, text) in [("[1,2]", "[,2]"), (r#"{"a":1,"b":2}"#, r#"{,"b":2}"#), ("[1,2]", "[12]")]
    {
        assert!(check_parse_after(known, text), "{text}");
    }
    let known = Tree::parse_within(64, r#"{"m":["\u00e9"],"s":1}"#).unwrap();
    let invalid = Bytes::from(&b"{\"m\":[\"\\u00e9\",\"\xe9\"],\"s\":1}"[..]);
    let error = SharedBeginning::of(&known, &invalid).parse(64, 99).err().unwrap();
    assert_eq!(error.to_string(), Tree::parse(invalid).err().unwrap().to_string());
    assert!(!check_parse_after("1", "12"));
    assert!(!check_parse_after("[1]", " [1]"));
}

#[test]
fn limits_hold_after_an_earlier_text() {
    let known = Tree::parse_within(8, r#"{"m":[[[1]]]}"#).unwrap();
    let parse = |deepest, most, text: &'static str| {
        SharedBeginning::of(&known, &Bytes::from(text)).parse(deepest, most)
    };
    assert!(parse(8, 9, r#"{"m":[[[1]],[]]}"#).unwrap().is_some());
    assert!(parse(8, 6, r#"{"m":[[[1]],[]]}"#).unwrap().is_none());
    assert!(parse(8, 99, r#"{"m":[[[1]],[[[[[[[]]]]]]]]}"#).err().unwrap().is_too_deep());
    // The known text may be nested more deeply than this limit allows.
    assert!(parse(3, 9, r#"{"m":[[[1]],[]]}"#).unwrap().is_none());
}

/// Generates JSON values of a conversation's shapes.
fn json_values() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("-1.5e3".to_owned()),
        any::<u8>().prop_map(|number| number.to_string()),
        "[a-z\\\\\"é\n]{0,6}".prop_map(|text| json::string(&text).as_str().to_owned()),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let array = proptest::collection::vec(inner.clone(), 0..4);
        let array = array.prop_map(|values| format!("[{}]", values.join(", ")));
        let object = proptest::collection::vec(("[a-c]", inner), 0..4).prop_map(|members| {
            let members = members.into_iter().map(|(key, value)| format!("\"{key}\": {value}"));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        });
        prop_oneof![array, object]
    })
}

proptest! {
    /// Any edit of a text gives the same index, or the same error, as without the earlier text.
    #[test]
    fn parsing_after_any_earlier_text_changes_nothing(
        known in json_values(),
        (from, length) in (0_usize..200, 0_usize..20),
        new in prop_oneof![json_values(), "[\\[\\]{},:\"0-9a é\\\\]{0,5}"],
    ) {
        let from = known.floor_char_boundary(from.min(known.len()));
        let to = known.ceil_char_boundary((from + length).min(known.len()));
        let text = [&known[..from], &*new, &known[to..]].concat();
        check_parse_after(&known, &text);
    }
}
