//! Tests decoding and encoding of streams.

use std::sync::Arc;

use throughline_core::{Body, Delta, Event, Origin, Reply, StopReason, Wire};

use crate::chat::OpenAiChat;
use crate::chat::tests::{SlotTexts, answer, call_with, context, pairs, reply};
use crate::{Codec, DecodeContext, Framing, StreamDecoder, StreamEncoder, events_from_reply};

fn decode_stream(context: &DecodeContext, bytes: &[u8], framing: Framing) -> (Vec<Event>, Reply) {
    let mut decoder = StreamDecoder::with_framing(&OpenAiChat, context, framing);
    let mut events = decoder.push(bytes).unwrap();
    events.extend(decoder.finish().unwrap());
    let ended = events.iter().find_map(|event| match event {
        Event::Ended(reply) => Some(Reply::clone(reply)),
        _ => None,
    });
    (events, ended.unwrap())
}

fn sse(deltas: &[&str], finish: &str) -> Vec<u8> {
    let mut out = String::new();
    for delta in deltas {
        out.push_str("data: {\"id\":\"s\",\"choices\":[{\"index\":0,\"delta\":");
        out.push_str(delta);
        out.push_str("}]}\n\n");
    }
    (out + finish).into_bytes()
}

#[test]
fn streamed_details_are_joined_with_the_last_signature() {
    let context = context("openrouter", "claude-sonnet-4.5");
    let stream = sse(
        &[
            r#"{"reasoning":"Two ","reasoning_details":[{"type":"reasoning.text","text":"Two ","signature":"","index":0}]}"#,
            r#"{"reasoning":"things","reasoning_details":[{"type":"reasoning.text","text":"things","signature":"","index":0}]}"#,
            r#"{"reasoning_details":[{"type":"reasoning.text","signature":"c2VhbC1vbmU=","index":0}]}"#,
            r#"{"reasoning_details":[{"type":"reasoning.encrypted","data":"c2VhbC10d28=","index":0}]}"#,
            r#"{"content":"Hi."}"#,
        ],
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
    );
    let (events, reply) = decode_stream(&context, &stream, Framing::Sse);
    let natives: Vec<_> = reply
        .items
        .iter()
        .map(|item| item.native.as_ref().unwrap().json.as_str().to_owned())
        .collect();
    assert_eq!(
        natives,
        [
            r#"{"type":"reasoning.text","text":"Two things","signature":"c2VhbC1vbmU=","index":0}"#,
            r#"{"type":"reasoning.encrypted","data":"c2VhbC10d28=","index":0}"#,
            r#""Hi.""#
        ]
    );
    assert_eq!(reply.items[0].native.as_ref().unwrap().slot, "reasoning_details/0+reasoning");
    let deltas: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Delta { index, delta } => Some((*index, delta.clone())),
            _ => None,
        })
        .collect();
    let thought = |text: &str| Delta::Thought(Arc::from(text));
    let text = Delta::Text(Arc::from("Hi."));
    assert_eq!(deltas, [(0, thought("Two ")), (0, thought("things")), (2, text)]);
}

#[test]
fn stream_without_finish_reason_is_truncated() {
    let stream = sse(
        &[
            r#"{"reasoning_details":[{"type":"reasoning.text","text":"T","signature":"c2VhbC1vbmU=","index":0}]}"#,
            r#"{"content":"Hi"}"#,
        ],
        "data: [DONE]\n\n",
    );
    let (_, reply) =
        decode_stream(&context("openrouter", "claude-sonnet-4.5"), &stream, Framing::Sse);
    let Body::Thought(thought) = &reply.items[0].body else { unreachable!() };
    assert_eq!(
        (reply.stop, thought.whole, reply.items[0].seals.len()),
        (StopReason::Cut, false, 0)
    );
}

#[test]
fn streamed_calls_are_joined_by_index_even_if_names_arrive_late() {
    let stream = sse(
        &[
            r#"{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}},{"index":1,"function":{"arguments":"{\"x\""}}]}"#,
            r#"{"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":":1"}}]}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":"{}"}},{"index":1,"id":"b","function":{"name":"g","arguments":"}"}}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"h","arguments":"{}"}}]}"#,
        ],
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n",
    );
    let (_, reply) = decode_stream(&context("xai-chat", "grok-4"), &stream, Framing::Sse);
    let expected =
        [("tool_calls/0", "f{}"), ("tool_calls/1", r#"g{"x":1}"#), ("tool_calls/2", "h{}")];
    assert_eq!((reply.slot_texts(), reply.stop), (pairs(&expected), StopReason::Tools));
}

#[test]
fn further_choices_are_not_mixed_into_the_first() {
    let chunk = r#"{"id":"s","choices":[{"index":1,"delta":{"content":"Tails"}},{"index":0,"delta":{"content":"Heads"},"finish_reason":"stop"}]}"#;
    let stream = format!("data: {chunk}\n\ndata: [DONE]\n\n");
    let (events, reply) =
        decode_stream(&context("compatible", "m"), stream.as_bytes(), Framing::Sse);
    assert_eq!(reply.slot_texts(), pairs(&[("content", "Heads")]));
    let unknown_frames: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Alien(json) => Some(json.as_str().to_owned()),
            _ => None,
        })
        .collect();
    assert_eq!(
        unknown_frames,
        [r#"{"id":"s","choices":[{"index":1,"delta":{"content":"Tails"}}]}"#]
    );
}

#[test]
fn stream_error_fails_and_truncates_the_reply() {
    let stream = b"data: {\"id\":\"s\",\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\ndata: {\"error\":{\"message\":\"overloaded\",\"code\":502},\"choices\":[{\"delta\":{},\"finish_reason\":\"error\"}]}\n\n";
    let (events, reply) = decode_stream(&context("openrouter", "m"), stream, Framing::Sse);
    let failed =
        events.iter().any(|event| matches!(event, Event::Failed(f) if f.status == Some(502)));
    assert!(failed && reply.stop == StopReason::Cut);
}

#[test]
fn text_continued_after_a_thought_is_one_string_in_the_next_request() {
    let context = context("deepseek", "deepseek-reasoner");
    let stream = sse(
        &[r#"{"content":"A"}"#, r#"{"reasoning_content":"T"}"#, r#"{"content":"B"}"#],
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
    );
    let (_, reply) = decode_stream(&context, &stream, Framing::Sse);
    assert_eq!(
        reply.slot_texts(),
        pairs(&[("content", "A"), ("reasoning_content", "T"), ("content", "B")])
    );
    let call = call_with(context.target.clone(), reply.items);
    assert_eq!(answer(&call), r#"{"role":"assistant","content":"AB","reasoning_content":"T"}"#);
}

#[test]
fn reply_from_another_wire_is_shown_without_seals() {
    let mut shown = reply(
        &context("deepseek", "deepseek-reasoner"),
        r#"{"content":"Hi.","reasoning_content":"T"}"#,
    );
    for item in &mut shown.items {
        item.native = None;
    }
    let origin = Origin { wire: Wire::GEMINI, ..(*shown.origin).clone() };
    shown.origin = Arc::new(origin);
    let mut encoder = StreamEncoder::new(&OpenAiChat);
    let mut bytes = Vec::new();
    for event in events_from_reply(&shown) {
        encoder.push(&event, &mut bytes).unwrap();
    }
    // Clients read different members, so the thought is in each of them.
    let expected =
        pairs(&[("reasoning_details/0+reasoning_content+reasoning", "T"), ("content", "Hi.")]);
    let (_, again) = decode_stream(&context("compatible", "m"), &bytes, Framing::Sse);
    assert_eq!(again.slot_texts(), expected);
    let body = OpenAiChat.encode_reply(&shown).unwrap();
    let again = OpenAiChat.decode_reply(&body, &context("compatible", "m")).unwrap();
    assert_eq!(again.slot_texts(), expected);
}
