//! Tests that references to stored objects are found in native parts.

use std::sync::Arc;

use throughline_core::{Direction, Envelope, NativePart, Wire};
use throughline_json::Json;

use super::is_reference;

fn part(wire: Wire, text: &str) -> NativePart {
    NativePart::new(wire, Direction::Request, Json::parse(text.to_owned()).unwrap())
}

#[test]
fn native_parts_with_references_are_found() {
    let cases = [
        (Wire::OPENAI_RESPONSES, r#"{"type":"item_reference","id":"rs_1"}"#, true),
        (Wire::OPENAI_RESPONSES, r#"{"id":"rs_1"}"#, true),
        (Wire::OPENAI_RESPONSES, r#"{"type":"reasoning","id":"rs_1","summary":[]}"#, true),
        (
            Wire::OPENAI_RESPONSES,
            r#"{"type":"reasoning","id":"rs_1","encrypted_content":"x","summary":[]}"#,
            false,
        ),
        (
            Wire::OPENAI_RESPONSES,
            r#"{"role":"user","content":[{"type":"input_file","file_id":"file-1"}]}"#,
            true,
        ),
        (
            Wire::OPENAI_RESPONSES,
            r#"{"type":"message","id":"msg_1","role":"assistant","content":[]}"#,
            false,
        ),
        (
            Wire::ANTHROPIC_MESSAGES,
            r#"{"type":"document","source":{"type":"file","file_id":"file_1"}}"#,
            true,
        ),
        (
            Wire::ANTHROPIC_MESSAGES,
            r#"{"type":"tool_use","id":"t","name":"f","input":{"file_id":"a"}}"#,
            false,
        ),
        (Wire::GEMINI, r#"{"fileData":{"fileUri":"files/a"}}"#, true),
        (Wire::GEMINI, r#"{"text":"a","thought":true}"#, false),
    ];
    for (wire, text, expected) in cases {
        assert_eq!(is_reference(&part(wire, text)), expected, "{text}");
    }
    // The message around a part is sent too.
    let mut text = part(Wire::OPENAI_RESPONSES, r#"{"type":"input_text","text":"a"}"#);
    assert!(!is_reference(&text));
    let json = r#"{"role":"user","content":[{"type":"input_file","file_id":"file-1"}]}"#;
    let json = Json::parse(json.to_owned()).unwrap();
    text.envelope = Some(Arc::new(Envelope { json, parts: 2 }));
    assert!(is_reference(&text));
}
