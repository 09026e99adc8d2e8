//! Tests decoding and encoding of whole and streamed responses.

use bytes::Bytes;
use throughline_core::{Body, Event, Item, ItemPosition, Reply, StopReason, Target, Usage};

use super::{foreign, gemini_3, reply_of, seals, target, tool_call};
use crate::{
    Codec, CodecError, DecodeContext, Framing, Gemini, StreamDecoder, StreamEncoder,
    events_from_reply,
};

fn stream(to: &Target, framing: Framing, bytes: &[u8]) -> (Vec<Event>, Reply) {
    let mut decoder = StreamDecoder::with_framing(&Gemini, &DecodeContext::of(to.clone()), framing);
    let mut events = decoder.push(bytes).unwrap();
    events.extend(decoder.finish().unwrap());
    let Some(Event::Ended(reply)) = events.last() else { panic!("the stream did not end") };
    let reply = Reply::clone(reply);
    (events, reply)
}

fn sse(chunks: &[&str]) -> Vec<u8> {
    chunks.iter().flat_map(|chunk| format!("data: {chunk}\n\n").into_bytes()).collect()
}

fn parts_chunk(parts: &str) -> String {
    format!(
        r#"{{"candidates":[{{"content":{{"parts":{parts},"role":"model"}}}}],"responseId":"s1"}}"#
    )
}

fn last_chunk(parts: &str) -> String {
    format!(
        r#"{{"candidates":[{{"content":{{"parts":{parts},"role":"model"}},"finishReason":"STOP"}}],"responseId":"s1"}}"#
    )
}

fn stream_of(to: &Target, chunks: &[String]) -> Reply {
    let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
    stream(to, Framing::Sse, &sse(&chunks)).1
}

fn natives(items: &[Item]) -> Vec<&str> {
    items.iter().map(|item| item.native.as_ref().unwrap().json.as_str()).collect()
}

#[test]
fn finish_and_block_reasons_map_to_stops() {
    let stop = |body: &str| {
        Gemini
            .decode_reply(&Bytes::from(body.to_owned()), &DecodeContext::of(gemini_3()))
            .unwrap()
            .stop
    };
    let finished = |reason: &str| {
        stop(&format!(
            r#"{{"candidates":[{{"content":{{"parts":[{{"text":"x"}}]}},"finishReason":"{reason}"}}]}}"#
        ))
    };
    assert_eq!(finished("STOP"), StopReason::Done);
    assert_eq!(finished("MAX_TOKENS"), StopReason::Length);
    assert_eq!(finished("SAFETY"), StopReason::Refused("SAFETY".into()));
    assert_eq!(
        finished("MALFORMED_FUNCTION_CALL"),
        StopReason::Other("MALFORMED_FUNCTION_CALL".into())
    );
    assert_eq!(
        stop(r#"{"promptFeedback":{"blockReason":"OTHER"}}"#),
        StopReason::Refused("OTHER".into())
    );
    assert_eq!(stop(r#"{"candidates":[{"content":{"parts":[{"text":"x"}]}}]}"#), StopReason::Cut);
}

#[test]
fn thoughts_count_as_output_and_tool_prompts_as_input() {
    let body = r#"{"candidates":[],"usageMetadata":{"promptTokenCount":10,"toolUsePromptTokenCount":5,"cachedContentTokenCount":4,"candidatesTokenCount":7,"thoughtsTokenCount":3}}"#;
    let reply = Gemini.decode_reply(&Bytes::from(body), &DecodeContext::of(gemini_3())).unwrap();
    let expected = Usage { input: 15, cached: 4, written: 0, output: 10, thought: 3 };
    assert_eq!(reply.usage, expected);
}

#[test]
fn failure_decodes_bare_or_in_a_list() {
    let error = r#"{"error":{"code":400,"message":"Corrupted thought signature.","status":"INVALID_ARGUMENT"}}"#;
    for body in [error.to_owned(), format!("[{error}]")] {
        let body = Bytes::from(body);
        let Err(CodecError::Provider(failure)) =
            Gemini.decode_reply(&body, &DecodeContext::of(gemini_3()))
        else {
            panic!("expected a failure");
        };
        let expected = throughline_core::Failure {
            status: Some(400),
            kind: Some("INVALID_ARGUMENT".into()),
            message: "Corrupted thought signature.".into(),
            body,
        };
        assert_eq!(*failure, expected);
    }
}

#[test]
fn reply_encodes_verbatim_or_translated() {
    let body = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"hi","thoughtSignature":"s1"}]},"finishReason":"STOP","index":0,"groundingMetadata":{}},{"index":1}],"usageMetadata":{"promptTokenCount":1},"modelVersion":"m","responseId":"r"}"#;
    let reply = Gemini.decode_reply(&Bytes::from(body), &DecodeContext::of(gemini_3())).unwrap();
    let extras: Vec<&str> = reply.extras.iter().map(|(key, _)| &**key).collect();
    assert_eq!(extras, ["candidates", "usageMetadata", "modelVersion", "responseId"]);
    assert_eq!(Gemini.encode_reply(&reply).unwrap(), Bytes::from(body));

    let origin = target("anthropic", "claude-sonnet-4-5").origin;
    let items = vec![foreign("a", ItemPosition::new(0, 0), tool_call("toolu_1", "f", "{}"), "{}")];
    let usage = Usage { input: 3, cached: 2, written: 0, output: 5, thought: 1 };
    let (id, extras) = (Some("msg".into()), Vec::new());
    let reply = Reply { id, items, stop: StopReason::Tools, usage, origin, extras };
    let expected = r#"{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":{},"id":"toolu_1"}}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":4,"totalTokenCount":8,"cachedContentTokenCount":2,"thoughtsTokenCount":1},"modelVersion":"claude-sonnet-4-5","responseId":"msg"}"#;
    assert_eq!(Gemini.encode_reply(&reply).unwrap(), Bytes::from(expected));
}

#[test]
fn texts_join_across_chunks_until_kind_or_signature_changes() {
    let reply = stream_of(
        &gemini_3(),
        &[
            parts_chunk(r#"[{"text":"h","thought":true}]"#),
            parts_chunk(r#"[{"text":"m","thought":true}]"#),
            parts_chunk(r#"[{"text":"one "}]"#),
            parts_chunk(r#"[{"text":"two"},{"text":"three"}]"#),
            parts_chunk(r#"[{"text":" four"}]"#),
            parts_chunk(r#"[{"text":" five","thoughtSignature":"s1"}]"#),
            parts_chunk(r#"[{"text":"six"}]"#),
            last_chunk(r#"[{"text":"","thoughtSignature":"s2"}]"#),
        ],
    );
    let expected = [
        r#"{"text":"hm","thought":true}"#,
        r#"{"text":"one two"}"#,
        r#"{"text":"three four"}"#,
        r#"{"text":" five","thoughtSignature":"s1"}"#,
        r#"{"text":"six"}"#,
        r#"{"text":"","thoughtSignature":"s2"}"#,
    ];
    assert_eq!(natives(&reply.items), expected);
    let assembled: Vec<bool> =
        reply.items.iter().map(|item| item.native.as_ref().unwrap().assembled).collect();
    assert_eq!(assembled, [true, true, true, false, false, false]);
    assert_eq!(reply.stop, StopReason::Done);
}

#[test]
fn partial_arguments_are_assembled() {
    let reply = stream_of(
        &gemini_3(),
        &[
            parts_chunk(
                r#"[{"functionCall":{"name":"cook","willContinue":true},"thoughtSignature":"s1"}]"#,
            ),
            parts_chunk(
                r#"[{"functionCall":{"partialArgs":[{"jsonPath":"$.a.b[0].c","stringValue":"x","willContinue":true}],"willContinue":true}}]"#,
            ),
            parts_chunk(
                r#"[{"functionCall":{"partialArgs":[{"jsonPath":"$.a.b[0].c","stringValue":"y"},{"jsonPath":"$.a.b[1]","numberValue":0.50},{"jsonPath":"$['k.e\\'y']","nullValue":"NULL_VALUE"}],"willContinue":true}}]"#,
            ),
            parts_chunk(r#"[{"functionCall":{}}]"#),
            parts_chunk(
                r#"[{"functionCall":{"name":"no_mark","partialArgs":[{"jsonPath":"$.on","boolValue":true}],"willContinue":true}}]"#,
            ),
            parts_chunk(r#"[{"functionCall":{"name":"no_args"}}]"#),
            last_chunk(r#"[{"functionCall":{"name":"open","willContinue":true}}]"#),
        ],
    );
    let expected = [
        r#"{"functionCall":{"name":"cook","args":{"a":{"b":[{"c":"xy"},0.50]},"k.e'y":null}},"thoughtSignature":"s1"}"#,
        r#"{"functionCall":{"name":"no_mark","args":{"on":true}}}"#,
        r#"{"functionCall":{"name":"no_args"}}"#,
        r#"{"functionCall":{"name":"open","args":{}}}"#,
    ];
    assert_eq!(natives(&reply.items), expected);
    assert_eq!(seals(&reply.items)[0], [("s1", "gemini.thought_signature", "/thoughtSignature")]);
    assert_eq!(reply.items[2].body, tool_call("s1.0.2", "no_args", "{}"));
    assert_eq!(reply.stop, StopReason::Tools);
}

#[test]
fn invalid_argument_piece_is_passed_on_and_uses_no_memory() {
    let pieces = [
        r#"{"jsonPath":"$.list[4000000000]","stringValue":"x"}"#,
        r#"{"jsonPath":"no path","stringValue":"x"}"#,
        r#"{"jsonPath":"$.a"}"#,
    ];
    for piece in pieces {
        let chunk =
            last_chunk(&format!(r#"[{{"functionCall":{{"name":"f","partialArgs":[{piece}]}}}}]"#));
        let (events, _) = stream(&gemini_3(), Framing::Sse, &sse(&[&chunk]));
        let unknown_frames: Vec<&str> = events
            .iter()
            .filter_map(|event| match event {
                Event::Alien(json) => Some(json.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(unknown_frames, [piece]);
    }
}

#[test]
fn truncated_stream_keeps_text_and_loses_seals() {
    let chunks = [
        parts_chunk(r#"[{"text":"hm","thought":true}]"#),
        parts_chunk(r#"[{"functionCall":{"name":"f","args":{}},"thoughtSignature":"s1"}]"#),
        parts_chunk(r#"[{"text":"half"}]"#),
    ];
    let reply = stream_of(&gemini_3(), &chunks);
    assert_eq!(reply.stop, StopReason::Cut);
    let native = |item: &Item| item.native.as_ref().map(|native| native.json.as_str().to_owned());
    let natives: Vec<_> = reply.items.iter().map(native).collect();
    let native_json = |text: &str| Some(text.to_owned());
    // Sealed parts of a truncated reply keep their text but not their signed JSON.
    assert_eq!(
        natives,
        [native_json(r#"{"text":"hm","thought":true}"#), None, native_json(r#"{"text":"half"}"#)]
    );
    assert!(matches!(&reply.items[1].body, Body::Call(call) if &*call.name == "f"));
    assert_eq!(seals(&reply.items), vec![vec![]; 3]);
    assert!(matches!(&reply.items[0].body, Body::Thought(thought) if !thought.whole));
}

#[test]
fn unknown_frames_are_passed_on_and_kept() {
    let other = r#"{"candidates":[{"index":1,"content":{"parts":[{"text":"other"}]}}]}"#;
    let failed = r#"{"error":{"code":503,"message":"Overloaded.","status":"UNAVAILABLE"}}"#;
    let last = last_chunk(r#"[{"text":"x"}]"#);
    let bytes = sse(&[r#"{"novel":1}"#, other, failed, &last]);
    let (events, reply) = stream(&gemini_3(), Framing::Sse, &bytes);
    let reports: Vec<String> = events
        .iter()
        .filter_map(|event| match event {
            Event::Alien(json) => Some(json.as_str().to_owned()),
            Event::Failed(failure) => Some(failure.message.to_string()),
            _ => None,
        })
        .collect();
    let candidate = r#"{"index":1,"content":{"parts":[{"text":"other"}]}}"#;
    assert_eq!(reports, [r#"{"novel":1}"#, candidate, "Overloaded."]);
    assert_eq!(natives(&reply.items), [r#"{"text":"x"}"#]);
}

#[test]
fn content_after_the_finish_reason_counts() {
    let last = last_chunk(r#"[{"text":"x"}]"#);
    let usage = r#"{"usageMetadata":{"promptTokenCount":2,"candidatesTokenCount":1}}"#;
    let array = format!("[{last}\n,\r\n{usage}]");
    let (_, reply) = stream(&gemini_3(), Framing::JsonArray, array.as_bytes());
    assert_eq!(reply.usage, Usage { input: 2, output: 1, ..Usage::default() });
    assert_eq!(reply.stop, StopReason::Done);
}

#[test]
fn reply_round_trips_through_frames() {
    let parts = r#"[{"text":"h","thought":true},{"text":"m","thought":true},{"text":"a"},{"text":"b"},{"text":""},{"text":"c","thoughtSignature":"s1"},{"text":"d"},{"functionCall":{"name":"f","args":{"x":[1]}},"thoughtSignature":"s2"},{"text":"","thought":true,"thoughtSignature":"s3"},{"toolCall":{"id":"t"}},{"thoughtSignature":"s4"},{"text":"","thoughtSignature":"s5"}]"#;
    let reply = reply_of(&gemini_3(), parts);
    for framing in [Framing::Sse, Framing::JsonArray, Framing::JsonLines] {
        let mut encoder = StreamEncoder::with_framing(&Gemini, framing);
        let mut bytes = Vec::new();
        for event in events_from_reply(&reply) {
            encoder.push(&event, &mut bytes).unwrap();
        }
        encoder.finish(&mut bytes);
        let (_, again) = stream(&gemini_3(), framing, &bytes);
        assert_eq!(again.items, reply.items);
        assert_eq!(
            (again.id, again.stop, again.usage),
            (reply.id.clone(), StopReason::Tools, reply.usage)
        );
    }
}

#[test]
fn last_chunk_has_the_last_part_and_the_finish_reason() {
    let mut reply = reply_of(&gemini_3(), r#"[{"text":"hello"}]"#);
    reply.extras.clear();
    reply.usage = Usage { input: 1, output: 2, ..Usage::default() };
    let mut encoder = StreamEncoder::new(&Gemini);
    let mut bytes = Vec::new();
    for event in events_from_reply(&reply) {
        encoder.push(&event, &mut bytes).unwrap();
    }
    let expected = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"hello\"}],\"role\":\"model\"},\"finishReason\":\"STOP\",\"index\":0}],\"usageMetadata\":{\"promptTokenCount\":1,\"candidatesTokenCount\":2,\"totalTokenCount\":3},\"modelVersion\":\"gemini-3-flash-preview\",\"responseId\":\"r1\"}\n\n";
    assert_eq!(String::from_utf8(bytes).unwrap(), expected);
}

/// Returns the kind and text of each part, as a client sees them.
fn blocks(items: &[Item]) -> Vec<(&'static str, String)> {
    let block = |item: &Item| {
        let kind = match &item.body {
            Body::Text(_) => "text",
            Body::Thought(_) => "thought",
            Body::Call(_) => "call",
            _ => "other",
        };
        (kind, item.call().map_or(item.visible().unwrap_or_default(), |call| &call.name).to_owned())
    };
    items.iter().map(block).collect()
}

/// Returns whether a client of this wire sees each response part as a separate block.
fn has_blocks(codec: &dyn Codec) -> bool {
    matches!(codec.wire().as_str(), "anthropic-messages" | "openai-responses")
}

/// Returns the blocks that a client of this wire sees in the whole response, and those it sees in
/// the streamed response.
fn blocks_on(
    codec: &dyn Codec,
    reply: &Reply,
    events: &[Event],
) -> [Vec<(&'static str, String)>; 2] {
    let context = DecodeContext::of(match codec.wire().as_str() {
        "anthropic-messages" => target("anthropic", "claude-sonnet-4-5"),
        "openai-responses" => target("openai", "gpt-5.2"),
        "openai-chat" => target("deepseek", "deepseek-v4-pro"),
        _ => target("bedrock", "anthropic.claude-sonnet-4-5-20250929-v1:0"),
    });
    let complete = codec.decode_reply(&codec.encode_reply(reply).unwrap(), &context).unwrap();
    let (mut encoder, mut bytes) = (StreamEncoder::new(codec), Vec::new());
    for event in events {
        encoder.push(event, &mut bytes).unwrap();
    }
    encoder.finish(&mut bytes);
    let mut decoder = StreamDecoder::new(codec, &context);
    let mut events = decoder.push(&bytes).unwrap();
    events.extend(decoder.finish().unwrap());
    let Some(Event::Ended(streamed)) = events.last() else { panic!("the stream did not end") };
    [blocks(&complete.items), blocks(&streamed.items)]
}

#[test]
fn empty_signed_text_is_no_block_in_other_dialects() {
    let chunks = [
        parts_chunk(r#"[{"text":"I think.","thought":true}]"#),
        parts_chunk(r#"[{"text":"Hello"}]"#),
        last_chunk(r#"[{"text":"","thoughtSignature":"c2ln"}]"#),
    ];
    let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
    let (events, reply) = stream(&gemini_3(), Framing::Sse, &sse(&chunks));
    let kept = reply.items.last().unwrap();
    assert_eq!(kept.seals.len(), 1, "the signature is kept for replay");
    for codec in crate::CODECS.iter().filter(|codec| codec.wire() != Gemini.wire()) {
        let expected = vec![("thought", "I think.".to_owned()), ("text", "Hello".to_owned())];
        for shown in blocks_on(*codec, &reply, &events) {
            let is_expected = shown == expected;
            let texts: Vec<_> = shown.iter().filter(|(kind, _)| *kind == "text").collect();
            assert_eq!(texts.len(), 1, "{}: {shown:?}", codec.wire());
            assert!(is_expected || !has_blocks(*codec), "{}: {shown:?}", codec.wire());
        }
    }
    assert_eq!(blocks(&reply.items).len(), 3, "Gemini's own clients get the part");
}

/// Tests that clients of other wires see the same blocks in whole and streamed responses, for every
/// sequence of Gemini parts.
#[test]
fn whole_and_streamed_replies_show_the_same_blocks() {
    const PARTS: [&str; 6] = [
        r#"{"text":"Thinking. ","thought":true}"#,
        r#"{"text":"Some text. "}"#,
        r#"{"text":"","thoughtSignature":"c2ln"}"#,
        r#"{"text":"Signed text. ","thoughtSignature":"c2lnMg=="}"#,
        r#"{"functionCall":{"name":"weather","args":{"city":"Paris"}},"thoughtSignature":"c2lnMw=="}"#,
        r#"{"text":""}"#,
    ];
    let mut rng = throughline_testkit::TestRng::new(19);
    for case in 0..throughline_testkit::cases(300) {
        let length = 1 + rng.below(6);
        let parts: Vec<String> =
            (0..length).map(|_| format!("[{}]", PARTS[rng.below(PARTS.len())])).collect();
        let (last, before) = parts.split_last().unwrap();
        let mut chunks: Vec<String> = before.iter().map(|parts| parts_chunk(parts)).collect();
        chunks.push(last_chunk(last));
        let chunks: Vec<&str> = chunks.iter().map(String::as_str).collect();
        let (events, reply) = stream(&gemini_3(), Framing::Sse, &sse(&chunks));
        for codec in crate::CODECS.iter().filter(|codec| codec.wire() != Gemini.wire()) {
            let [whole, streamed] = blocks_on(*codec, &reply, &events);
            let label = format!("case {case}, {}: {parts:?}", codec.wire());
            for kind in ["text", "call"] {
                let joined = |blocks: &[(&str, String)]| -> String {
                    let own = blocks.iter().filter(|(own, _)| *own == kind);
                    own.map(|(_, text)| text.as_str()).collect()
                };
                assert_eq!(joined(&whole), joined(&streamed), "{label}");
            }
            assert!(whole == streamed || !has_blocks(*codec), "{label}: {whole:?} {streamed:?}");
            let is_empty = |(kind, text): &(&str, String)| *kind == "text" && text.is_empty();
            assert!(!whole.iter().any(is_empty), "case {case}, {}: {parts:?}", codec.wire());
        }
    }
}
