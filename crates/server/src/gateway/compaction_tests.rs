//! Tests how compaction requests are recognised and rewritten.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

fn text(body: &Bytes) -> &str {
    std::str::from_utf8(body).unwrap()
}

#[test]
fn summary_request_keeps_the_conversation_and_disables_tools() {
    let body = Bytes::from(
        r#"{"model":"m","input":[{"role":"user","content":"Hi"},{"type":"compaction_trigger"}],"tools":[{"type":"function","name":"f"}],"tool_choice":"required","text":{"format":{"type":"json_object"}},"stream":true}"#,
    );
    let request = rewritten(&body, Some("Summarise."), Some(CompactionForm::Trigger)).unwrap();
    assert_eq!(
        text(&request),
        r#"{"model":"m","tools":[{"type":"function","name":"f"}],"stream":true,"input":[{"role":"user","content":"Hi"},{"role":"user","content":"Summarise."}],"tool_choice":"none"}"#
    );
}

#[test]
fn native_request_only_loses_its_trigger() {
    let body = Bytes::from(
        r#"{"model":"m","input":[{"role":"user","content":"Hi"},{"type":"compaction_trigger"}],"tool_choice":"auto"}"#,
    );
    let request = rewritten(&body, None, Some(CompactionForm::Trigger)).unwrap();
    assert_eq!(
        text(&request),
        r#"{"model":"m","tool_choice":"auto","input":[{"role":"user","content":"Hi"}]}"#
    );
}

#[test]
fn request_to_the_endpoint_is_not_streamed() {
    let body = Bytes::from(r#"{"input":"Hi","stream":true,"stream_options":{"x":1}}"#);
    for instruction in [None, Some("Summarise.")] {
        let request = rewritten(&body, instruction, Some(CompactionForm::Endpoint)).unwrap();
        assert!(!text(&request).contains("stream"), "{request:?}");
    }
}

#[test]
fn compaction_requests_are_recognised_by_path_or_trigger() {
    let of = |wire: &Wire, path: &str, body: &'static str| {
        CompactionForm::of(wire, path, Tree::parse(body).ok().as_ref())
    };
    let (responses, chat) = (Wire::OPENAI_RESPONSES, Wire::OPENAI_CHAT);
    let trigger = r#"{"input":[{"type":"compaction_trigger"}]}"#;
    assert_eq!(of(&responses, "/v1/responses", trigger), Some(CompactionForm::Trigger));
    assert_eq!(of(&responses, "/v1/responses/compact?a=b", "{}"), Some(CompactionForm::Endpoint));
    assert_eq!(of(&responses, "/v1/responses", r#"{"input":"compaction_trigger"}"#), None);
    assert_eq!(of(&chat, "/v1/chat/completions", trigger), None);
}
