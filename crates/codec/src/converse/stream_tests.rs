//! Tests decoding and encoding of whole and streamed responses.

use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{Body, Call, Delta, Event, StopReason, Usage, Wire};
use throughline_json::{Json, Name};

use crate::converse::tests::{
    CLAUDE, SEALED, body, called, context, decode, ended, essence, reply, target, written,
};
use crate::frame::{Frame, Framing};
use crate::{BedrockConverse, Codec, CodecError, Document, StreamEncoder, events_from_reply};

#[test]
fn stop_reasons_and_usage_are_decoded() {
    let stop = |reason: &str, fields: &str| {
        let body = format!(
            r#"{{"output":{{"message":{{"content":[]}}}},"stopReason":"{reason}","additionalModelResponseFields":{fields},"usage":{{"inputTokens":3,"outputTokens":4,"totalTokens":37,"cacheReadInputTokens":10,"cacheWriteInputTokens":20}}}}"#
        );
        let reply = BedrockConverse.decode_reply(&body.into(), &context(CLAUDE)).unwrap();
        let usage = Usage { input: 33, cached: 10, written: 20, output: 4, thought: 0 };
        assert_eq!(reply.usage, usage);
        reply.stop
    };
    assert_eq!(stop("end_turn", "null"), StopReason::Done);
    assert_eq!(stop("tool_use", "null"), StopReason::Tools);
    assert_eq!(stop("max_tokens", "null"), StopReason::Length);
    assert_eq!(stop("model_context_window_exceeded", "null"), StopReason::Length);
    assert_eq!(stop("stop_sequence", "{}"), StopReason::Sequence(None));
    let sequence = StopReason::Sequence(Some("END".into()));
    assert_eq!(stop("stop_sequence", r#"{"stop_sequence":"END"}"#), sequence);
    assert_eq!(stop("stop_sequence", r#"{"delta":{"stop_sequence":"END"}}"#), sequence);
    let refused = |word: &str| StopReason::Refused(word.into());
    assert_eq!(stop("guardrail_intervened", "null"), refused("guardrail_intervened"));
    assert_eq!(stop("content_filtered", "null"), refused("content_filtered"));
    assert_eq!(stop("malformed_tool_use", "null"), StopReason::Other("malformed_tool_use".into()));
}

#[test]
fn failures_keep_the_provider_message() {
    let body = r#"{"__type":"com.amazon#ValidationException","message":"The model returned the following errors: messages.1.content.0.thinking.signature: Field required"}"#;
    let read = BedrockConverse.decode_reply(&body.into(), &context(CLAUDE));
    let Err(CodecError::Provider(failure)) = read else { panic!("a failure") };
    assert_eq!(failure.kind.as_deref(), Some("ValidationException"));
    assert!(failure.message.ends_with("thinking.signature: Field required"));
    assert_eq!(failure.body, body);
    let read = BedrockConverse.decode_reply(&r#"{"content":[]}"#.into(), &context(CLAUDE));
    assert!(matches!(read, Err(CodecError::Shape { .. })));
}

#[test]
fn a_reply_of_another_wire_is_written_without_seals() {
    let mut reply = reply(CLAUDE, SEALED);
    let mut origin = (*reply.origin).clone();
    origin.wire = Wire::ANTHROPIC_MESSAGES;
    reply.origin = Arc::new(origin);
    for item in &mut reply.items {
        item.native.as_mut().unwrap().wire = Wire::ANTHROPIC_MESSAGES;
    }
    reply.stop = StopReason::Sequence(Some("END".into()));
    reply.usage = Usage { input: 33, cached: 10, written: 20, output: 4, thought: 2 };
    let body = BedrockConverse.encode_reply(&reply).unwrap();
    let thought =
        |text: &str| format!(r#"{{"reasoningContent":{{"reasoningText":{{"text":"{text}"}}}}}}"#);
    let expected = format!(
        r#"{{"output":{{"message":{{"role":"assistant","content":[{},{{"text":"a"}},{},{{"toolUse":{{"toolUseId":"t1","name":"f","input":{{}}}}}},{}]}}}},"stopReason":"stop_sequence","additionalModelResponseFields":{{"stop_sequence":"END"}},"usage":{{"inputTokens":3,"outputTokens":4,"totalTokens":37,"cacheReadInputTokens":10,"cacheWriteInputTokens":20}},"metrics":{{"latencyMs":0}}}}"#,
        thought("hm"),
        thought(""),
        thought("")
    );
    assert_eq!(body, expected);
}

const STREAM: &str = r#"{"messageStart":{"role":"assistant"}}
{"contentBlockDelta":{"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"h"}},"p":"abc"}}
{"contentBlockDelta":{"contentBlockIndex":0,"delta":{"reasoningContent":{"text":"m"}}}}
{"contentBlockDelta":{"contentBlockIndex":0,"delta":{"reasoningContent":{"signature":"c2VhbC1vbmU="}}}}
{"contentBlockStop":{"contentBlockIndex":0}}
{"contentBlockDelta":{"contentBlockIndex":1,"delta":{"text":"a"}}}
{"contentBlockStop":{"contentBlockIndex":1}}
{"contentBlockDelta":{"contentBlockIndex":2,"delta":{"reasoningContent":{"redactedContent":"c2VhbC10d28="}}}}
{"contentBlockStop":{"contentBlockIndex":2}}
{"contentBlockStart":{"contentBlockIndex":3,"start":{"toolUse":{"toolUseId":"t1","name":"f"}}}}
{"contentBlockStop":{"contentBlockIndex":3}}
{"contentBlockDelta":{"contentBlockIndex":4,"delta":{"reasoningContent":{"signature":"c2VhbC10aHJlZQ=="}}}}
{"contentBlockStop":{"contentBlockIndex":4}}
{"messageStop":{"stopReason":"end_turn"}}
{"metadata":{"usage":{"inputTokens":1,"outputTokens":2,"totalTokens":3},"metrics":{"latencyMs":4}}}
"#;

#[test]
fn stream_and_whole_response_decode_equally() {
    let events = decode(CLAUDE, Framing::JsonLines, STREAM.as_bytes());
    let streamed = ended(&events);
    let original = reply(CLAUDE, &SEALED.replace(r#","extra":null"#, ""));
    assert_eq!(essence(&streamed.items), essence(&original.items));
    assert_eq!((&streamed.stop, streamed.usage), (&original.stop, original.usage));
    assert!(streamed.items.iter().all(|item| item.native.as_ref().unwrap().assembled));
    let opened = |event: &&Event| matches!(event, Event::Opened { .. });
    assert_eq!(events.iter().filter(opened).count(), 5);
    let deltas: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Delta { index, delta } => Some((*index, delta.clone())),
            _ => None,
        })
        .collect();
    let thought = |text: &str| (0, Delta::Thought(text.into()));
    assert_eq!(deltas, [thought("h"), thought("m"), (1, Delta::Text("a".into()))]);
}

#[test]
fn all_framings_decode_equally() {
    let lines = ended(&decode(CLAUDE, Framing::JsonLines, STREAM.as_bytes()));
    for framing in [Framing::EventStream, Framing::Sse, Framing::JsonLines, Framing::JsonArray] {
        let mut encoder = StreamEncoder::with_framing(&BedrockConverse, framing);
        let mut out = Vec::new();
        for event in events_from_reply(&lines) {
            encoder.push(&event, &mut out).unwrap();
        }
        encoder.finish(&mut out);
        let decoded = ended(&decode(CLAUDE, framing, &out));
        assert_eq!(essence(&decoded.items), essence(&lines.items));
        assert_eq!((&decoded.stop, decoded.usage), (&lines.stop, lines.usage));
        assert_eq!(decoded.extras.len(), lines.extras.len());
    }
}

#[test]
fn frames_contain_the_event_name_and_the_bare_event() {
    let reply =
        reply(CLAUDE, r#"[{"text":"a"},{"toolUse":{"toolUseId":"t1","name":"f","input":{}}}]"#);
    let mut encoder = BedrockConverse.encoder();
    let frames: Vec<Frame> =
        events_from_reply(&reply).iter().flat_map(|event| encoder.push(event).unwrap()).collect();
    let frames: Vec<_> = frames
        .iter()
        .map(|frame| {
            let data = String::from_utf8_lossy(&frame.data).into_owned();
            (frame.event.as_deref().unwrap_or_default(), data)
        })
        .collect();
    let expected = [
        ("messageStart", r#"{"role":"assistant"}"#),
        ("contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"text":"a"}}"#),
        ("contentBlockStop", r#"{"contentBlockIndex":0}"#),
        (
            "contentBlockStart",
            r#"{"contentBlockIndex":1,"start":{"toolUse":{"toolUseId":"t1","name":"f"}}}"#,
        ),
        ("contentBlockDelta", r#"{"contentBlockIndex":1,"delta":{"toolUse":{"input":"{}"}}}"#),
        ("contentBlockStop", r#"{"contentBlockIndex":1}"#),
        ("messageStop", r#"{"stopReason":"end_turn"}"#),
        (
            "metadata",
            r#"{"usage":{"inputTokens":1,"outputTokens":2,"totalTokens":3},"metrics":{"latencyMs":4}}"#,
        ),
    ];
    assert_eq!(frames, expected.map(|(name, data)| (name, data.to_owned())));
}

#[test]
fn call_is_written_incrementally() {
    let mut encoder = BedrockConverse.encoder();
    let item = called(0, "x", "f");
    let opened = Event::Opened { index: 0, id: None, body: item.body.clone() };
    let delta = |text: &str| Event::Delta { index: 0, delta: Delta::Args(text.into()) };
    let closed = Event::Closed { index: 0, item: Box::new(item) };
    let events = [opened, delta("{\"city\":"), delta("\"Oslo\"}"), closed];
    let counts: Vec<_> = events.iter().map(|event| encoder.push(event).unwrap().len()).collect();
    assert_eq!(counts, [0, 2, 1, 1]);
}

#[test]
fn truncated_stream_yields_no_replayable_items() {
    let lines: Vec<&str> = STREAM.split_inclusive('\n').collect();
    for end in 1..lines.len() - 2 {
        let cut = ended(&decode(CLAUDE, Framing::JsonLines, lines[..end].concat().as_bytes()));
        assert_eq!(cut.stop, StopReason::Cut);
        for item in &cut.items {
            assert_eq!(item.seals, []);
            assert!(!matches!(&item.body, Body::Thought(thought) if thought.whole));
        }
        let mut call = Call::new(target(CLAUDE));
        call.extend(cut.items);
        assert!(!body(&written(&call)).contains("c2VhbC"));
    }
    // The stop reason arrived, so the response is complete, although its usage is missing.
    let original =
        ended(&decode(CLAUDE, Framing::JsonLines, lines[..lines.len() - 1].concat().as_bytes()));
    assert_eq!((original.stop, original.usage), (StopReason::Done, Usage::default()));
    assert_eq!(original.items[0].seals.len(), 1);
}

#[test]
fn blob_pieces_are_joined_and_citations_join_their_text() {
    let stream = r#"{"contentBlockDelta":{"contentBlockIndex":0,"delta":{"reasoningContent":{"redactedContent":"c2VhbA=="}}}}
{"contentBlockDelta":{"contentBlockIndex":0,"delta":{"reasoningContent":{"redactedContent":"LXR3bw=="}}}}
{"contentBlockStop":{"contentBlockIndex":0}}
{"contentBlockStart":{"contentBlockIndex":1,"start":{}}}
{"contentBlockDelta":{"contentBlockIndex":1,"delta":{"text":"It "}}}
{"contentBlockDelta":{"contentBlockIndex":1,"delta":{"citation":{"title":"T"}}}}
{"contentBlockDelta":{"contentBlockIndex":1,"delta":{"text":"rains."}}}
{"contentBlockStop":{"contentBlockIndex":1}}
{"messageStop":{"stopReason":"end_turn"}}
"#;
    let reply = ended(&decode(CLAUDE, Framing::JsonLines, stream.as_bytes()));
    let natives: Vec<_> =
        reply.items.iter().map(|item| item.native.as_ref().unwrap().json.as_str()).collect();
    let expected = [
        r#"{"reasoningContent":{"redactedContent":"c2VhbC10d28="}}"#,
        r#"{"citationsContent":{"content":[{"text":"It rains."}],"citations":[{"title":"T"}]}}"#,
    ];
    assert_eq!(natives, expected);
    assert_eq!(reply.items[1].body, Body::Text("It rains.".into()));
}

#[test]
fn exceptions_and_unknown_events_are_forwarded() {
    let mut decoder = BedrockConverse.decoder(&context(CLAUDE));
    let frame = |event: Option<&str>, data: &str, exception| Frame {
        event: event.map(Name::from),
        data: Bytes::from(data.to_owned()),
        exception,
    };
    let fault = r#"{"message":"Too many requests"}"#;
    let by_name = decoder.push(&frame(Some("throttlingException"), fault, true)).unwrap();
    let wrapped = format!(r#"{{"throttlingException":{fault}}}"#);
    let wrapped = decoder.push(&frame(None, &wrapped, false)).unwrap();
    for events in [by_name, wrapped] {
        let [Event::Failed(failure)] = events.as_slice() else { panic!("a failure") };
        assert_eq!(failure.kind.as_deref(), Some("throttlingException"));
        assert_eq!(&*failure.message, "Too many requests");
        let frames = BedrockConverse.encoder().push(&events[0]).unwrap();
        assert_eq!(frames, [frame(Some("throttlingException"), fault, true)]);
    }
    let heartbeat = frame(Some("heartbeat"), r#"{"beat":1}"#, false);
    let events = decoder.push(&heartbeat).unwrap();
    let [Event::Alien(alien)] = events.as_slice() else { panic!("an alien") };
    assert_eq!(alien.as_str(), r#"{"heartbeat":{"beat":1}}"#);
    assert_eq!(BedrockConverse.encoder().push(&events[0]).unwrap(), [heartbeat]);
    assert!(
        matches!(decoder.finish().unwrap().as_slice(), [Event::Ended(reply)] if reply.stop == StopReason::Cut)
    );
}

#[test]
fn documents_of_this_wire_are_recognised() {
    let recognise =
        |text: &'static str| BedrockConverse.recognise(Json::parse(text).unwrap().tree().root());
    let request = Some(Document::Request);
    assert_eq!(recognise(r#"{"messages":[],"inferenceConfig":{}}"#), request);
    assert_eq!(recognise(r#"{"messages":[{"role":"user","content":[{"text":"x"}]}]}"#), request);
    assert_eq!(recognise(r#"{"messages":[{"role":"user","content":"x"}]}"#), None);
    let typed = r#"{"messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]}"#;
    assert_eq!(recognise(typed), None);
    let response = Some(Document::Response);
    assert_eq!(recognise(r#"{"output":{"message":{"content":[]}}}"#), response);
    assert_eq!(recognise(r#"{"__type":"ThrottlingException","message":"slow"}"#), response);
    assert_eq!(recognise(r#"{"messageStart":{"role":"assistant"}}"#), Some(Document::Event));
    assert_eq!(recognise(r#"{"type":"message_start","message":{}}"#), None);
}
