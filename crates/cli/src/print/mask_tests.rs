//! Tests of masking: which values are hidden on each wire, and which stay readable.

use super::masked;

#[test]
fn seals_are_shown_by_their_length_on_every_wire() {
    for (request, shown) in [
        (r#"{"signature": "RXhhbXBsZQ=="}"#, r#"{"signature": "‹seal 12 B›"}"#),
        (r#"[{"thoughtSignature":"AA"}]"#, r#"[{"thoughtSignature":"‹seal 2 B›"}]"#),
        (r#"{"encrypted_content":"gAAAA"}"#, r#"{"encrypted_content":"‹seal 5 B›"}"#),
        (r#"{"a":{"redactedContent":"x y"}}"#, r#"{"a":{"redactedContent":"‹seal 3 B›"}}"#),
        (
            r#"{"type":"redacted_thinking","data":"AA"}"#,
            r#"{"type":"redacted_thinking","data":"‹seal 2 B›"}"#,
        ),
        (
            r#"{"data":"AA","type":"reasoning.encrypted"}"#,
            r#"{"data":"‹seal 2 B›","type":"reasoning.encrypted"}"#,
        ),
        (
            r#"{"type":"compaction","content":"AA"}"#,
            r#"{"type":"compaction","content":"‹seal 2 B›"}"#,
        ),
    ] {
        assert_eq!(masked(request), shown);
    }
}

#[test]
fn readable_values_stay() {
    for request in [
        r#"{"signature": ""}"#,
        r#"{"signature": null, "data": "a plain argument"}"#,
        r#"{"thoughtSignature": "skip_thought_signature_validator"}"#,
        r#"{"text": "a long sentence, with spaces, that goes on and on and on for more than eighty letters in all"}"#,
        "not JSON",
    ] {
        assert_eq!(masked(request), request);
    }
}

#[test]
fn long_base64_values_are_masked_under_any_name() {
    let letters = "A".repeat(100);
    assert_eq!(masked(&format!(r#"{{"id": "call_{letters}"}}"#)), r#"{"id": "‹105 B›"}"#);
    assert_eq!(
        masked(&format!(r#"{{"url":"data:image/png;base64,{letters}"}}"#)),
        r#"{"url":"‹data:image/png 122 B›"}"#
    );
}
