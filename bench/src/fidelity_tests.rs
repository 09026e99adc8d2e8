//! Tests of the check of Throughline's own results.

use serde_json::{Value, json};

use super::first_failed_case;

fn case() -> Value {
    json!({
        "wire": "chat", "case": "tool-loop", "unsupported": null,
        "kept": 8, "lost": 0, "altered": 0, "refused": 0, "errors": 0,
    })
}

#[test]
fn complete_results_have_no_failed_case() {
    assert_eq!(first_failed_case(&json!({"cases": [case(), case()]})), None);
}

#[test]
fn lossy_unsupported_and_empty_results_fail() {
    let failures = [
        ("lost", json!(1)),
        ("altered", json!(1)),
        ("refused", json!(1)),
        ("errors", json!(1)),
        ("unsupported", json!("the gateway returned 404")),
    ];
    for (name, value) in failures {
        let mut failed = case();
        failed[name] = value;
        let failure = first_failed_case(&json!({"cases": [case(), failed]}));
        let expected = "Throughline failed the case tool-loop on chat; see the raw results";
        assert_eq!(failure.as_deref(), Some(expected), "{name}");
    }
    assert!(first_failed_case(&json!({"cases": []})).is_some());
    assert!(first_failed_case(&json!({})).is_some());
}
