//! Tests of assembling streams, and of the client's handling of reasoning.

use serde_json::{Value, json};

use super::parse_response;
use crate::cmd::fidelity::dialect::{Dialect, prompt_tokens};

fn streamed(dialect: Dialect, events: &[Value]) -> Value {
    let events: Vec<String> = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    let body = events.concat();
    parse_response(dialect, "text/event-stream; charset=utf-8", body.as_bytes()).unwrap()
}

#[test]
fn messages_stream_keeps_signatures_and_inputs() {
    let response = streamed(
        Dialect::Messages,
        &[
            json!({"type": "message_start", "message": {"content": []}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm"}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "S1"}}),
            json!({"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "t", "name": "n", "input": {}}}),
            json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{\"a\":"}}),
            json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "1}"}}),
            json!({"type": "message_stop"}),
        ],
    );
    let expected = json!({"content": [
        {"type": "thinking", "thinking": "Hm", "signature": "S1"},
        {"type": "tool_use", "id": "t", "name": "n", "input": {"a": 1}},
    ]});
    assert_eq!(response, expected);
}

#[test]
fn chat_stream_merges_reasoning_and_calls() {
    let delta = |delta: Value| json!({"choices": [{"index": 0, "delta": delta}]});
    let response = streamed(
        Dialect::Chat,
        &[
            delta(json!({"role": "assistant", "content": "", "reasoning_content": "Let "})),
            delta(
                json!({"reasoning_content": "me", "reasoning_details": [{"index": 0, "type": "reasoning.text", "text": "Let "}]}),
            ),
            delta(
                json!({"reasoning_details": [{"index": 0, "type": "reasoning.text", "text": "me", "signature": "S"}]}),
            ),
            delta(json!({"thinking_blocks": [{"type": "thinking", "thinking": "Let "}]})),
            delta(
                json!({"thinking_blocks": [{"type": "thinking", "thinking": "me", "signature": "S"}]}),
            ),
            delta(json!({"content_blocks": [{"index": 0, "delta": {"thinking": "Let "}}]})),
            delta(json!({"content_blocks": [{"index": 0, "delta": {"thinking": "me"}}]})),
            delta(json!({"content_blocks": [{"index": 0, "delta": {"signature": "S"}}]})),
            delta(
                json!({"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "n", "arguments": ""}}]}),
            ),
            delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]})),
        ],
    );
    let expected = json!({"choices": [{"message": {
        "role": "assistant",
        "content": "",
        "reasoning_content": "Let me",
        "reasoning_details": [{"index": 0, "type": "reasoning.text", "text": "Let me", "signature": "S"}],
        "thinking_blocks": [{"type": "thinking", "thinking": "Let me", "signature": "S"}],
        "content_blocks": [{"type": "thinking", "thinking": "Let me", "signature": "S"}],
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "n", "arguments": "{}"}}],
    }}]});
    assert_eq!(response, expected);
}

#[test]
fn gemini_stream_joins_texts_but_keeps_signed_parts() {
    let chunk = |part: Value| json!({"candidates": [{"content": {"parts": [part]}}]});
    let response = streamed(
        Dialect::Gemini,
        &[
            chunk(json!({"text": "Think", "thought": true})),
            chunk(json!({"text": "ing", "thought": true})),
            chunk(json!({"text": "So: "})),
            chunk(json!({"text": "yes"})),
            chunk(json!({"text": "", "thoughtSignature": "S"})),
        ],
    );
    let expected = json!([
        {"text": "Thinking", "thought": true},
        {"text": "So: yes"},
        {"text": "", "thoughtSignature": "S"},
    ]);
    assert_eq!(response.pointer("/candidates/0/content/parts"), Some(&expected));
}

#[test]
fn responses_stream_uses_the_completed_response() {
    let output = json!([{"type": "reasoning", "encrypted_content": "S", "summary": []}]);
    let response = streamed(
        Dialect::Responses,
        &[
            json!({"type": "response.created", "response": {"output": [], "error": null}}),
            json!({"type": "response.completed", "response": {"output": output}}),
        ],
    );
    assert_eq!(response.get("output"), Some(&output));
}

#[test]
fn errors_inside_a_stream_are_reported() {
    let body = "data: {\"type\":\"error\",\"error\":{\"message\":\"Overloaded\"}}\n\n";
    let parsed = parse_response(Dialect::Messages, "text/event-stream", body.as_bytes());
    assert!(parsed.unwrap_err().contains("Overloaded"));
    let parsed = parse_response(Dialect::Messages, "application/json", b"<html>");
    assert!(parsed.unwrap_err().starts_with("the response is not valid JSON"));
}

#[test]
fn lossy_client_removes_all_reasoning() {
    let cases = [
        (
            Dialect::Messages,
            json!({"role": "assistant", "content": [{"type": "thinking", "thinking": "", "signature": "S"}, {"type": "text", "text": "Hi"}]}),
            json!({"role": "assistant", "content": [{"type": "text", "text": "Hi"}]}),
        ),
        (
            Dialect::Chat,
            json!({"role": "assistant", "content": "Hi", "reasoning_content": "Hm", "thinking_blocks": []}),
            json!({"role": "assistant", "content": "Hi"}),
        ),
        (
            Dialect::Gemini,
            json!({"role": "model", "parts": [{"text": "Hm", "thought": true}, {"functionCall": {"name": "n"}, "thoughtSignature": "S"}, {"text": "", "thoughtSignature": "S"}]}),
            json!({"role": "model", "parts": [{"functionCall": {"name": "n"}}]}),
        ),
        (
            Dialect::Converse,
            json!({"role": "assistant", "content": [{"reasoningContent": {"reasoningText": {"text": ""}}}, {"text": "Hi"}]}),
            json!({"role": "assistant", "content": [{"text": "Hi"}]}),
        ),
    ];
    for (dialect, item, expected) in cases {
        assert_eq!(dialect.without_reasoning(&[item]), [expected], "{dialect:?}");
    }
    let items = [json!({"type": "reasoning"}), json!({"type": "message"})];
    assert_eq!(Dialect::Responses.without_reasoning(&items), [json!({"type": "message"})]);
}

#[test]
fn prompt_tokens_ignore_settings_and_white_space() {
    let one: Value = serde_json::from_str(r#"{"model":"a","messages":[{"x":"é","n":1}]}"#).unwrap();
    let two: Value =
        serde_json::from_str(r#"{ "messages": [ {"x": "\u00e9", "n": 1} ], "model": "b" }"#)
            .unwrap();
    let expected = [r#""messages""#, "[", "{", r#""x""#, "\"é\"", r#""n""#, "1", "}", "]"];
    assert_eq!(prompt_tokens(&one), expected);
    assert_eq!(prompt_tokens(&two), expected);
}
