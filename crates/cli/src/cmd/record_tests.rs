//! Tests that displayed records contain readable text and no Seals.

use bytes::Bytes;
use jiff::Timestamp;
use throughline_core::{Content, Record, kind};
use throughline_spec::RedactionPolicy;

use super::{DisplayContent, RecordSummary, describe, shown};

fn record(kind: &str, content: &str) -> Record {
    Record {
        seq: 1,
        kind: kind.into(),
        at: Timestamp::UNIX_EPOCH,
        events: None,
        content: Content::Here(Bytes::from(content.to_owned())),
    }
}

fn describe_item(content: &str) -> (String, String, Vec<usize>) {
    let RecordSummary { label, text, seals, .. } =
        describe(&record(kind::ITEM, content), &RedactionPolicy::default());
    (label, text, seals)
}

#[test]
fn records_are_described_by_well_known_members() {
    for (content, label, text, seals) in [
        (r#"{"id":"a","role":"user","text":"Hello"}"#, "user", "Hello", vec![]),
        (
            r#"{"role":"assistant","type":"thinking","thinking":"Hm.","signature":"AAAA"}"#,
            "assistant thinking",
            "Hm.",
            vec![4],
        ),
        (
            r#"{"role":"assistant","content":[{"type":"text","text":"One"},{"type":"text","text":"two"}]}"#,
            "assistant",
            "One two",
            vec![],
        ),
        (r#"{"step": 3}"#, "", r#"{"step":3}"#, vec![]),
        ("plain words", "", "plain words", vec![]),
    ] {
        assert_eq!(describe_item(content), (label.to_owned(), text.to_owned(), seals), "{content}");
    }
}

#[test]
fn nested_seals_are_masked() {
    let inner = r#"{"type":"thinking","thinking":"Hm.","signature":"c2VhbGVk"}"#;
    let mut document = inner.to_owned();
    for _ in 0..6 {
        let (DisplayContent::Json(shown), _) =
            shown("", &Bytes::from(document.clone()), &RedactionPolicy::nothing())
        else {
            panic!("expected JSON");
        };
        assert!(!shown.as_str().contains("c2VhbGVk"), "{}", shown.as_str());
        document = serde_json::json!({ "native": document }).to_string();
    }
    let long = "A".repeat(120);
    assert_eq!(describe_item(&format!(r#"{{"text":"see {long} there"}}"#)).1, "see ‹120 B› there");
    assert_eq!(describe_item(&format!("see {long} there")).1, "see ‹120 B› there");
}

#[test]
fn common_secrets_are_redacted() {
    let key = format!("sk-{}", "a1B2".repeat(12));
    let (_, text, _) = describe_item(&format!(r#"{{"text":"my key is {key}, keep it"}}"#));
    assert_eq!(text, "my key is [REDACTED], keep it");
}
