//! Tests decoding and encoding of streams on the Responses wire.

use bytes::Bytes;
use throughline_core::{Call, Disposition, ElisionReason, Event, Item, Reply, StopReason, Target};

use crate::responses::OpenAiResponses;
use crate::responses::tests::{MESSAGE, body, input, openai, target, text};
use crate::{
    AnthropicMessages, Codec, DecodeContext, StreamDecoder, StreamEncoder, events_from_reply,
};

fn events(stream: &str, target: Target) -> Vec<Event> {
    let mut decoder = StreamDecoder::new(&OpenAiResponses, &DecodeContext::of(target));
    let mut events = decoder.push(stream.as_bytes()).unwrap();
    events.extend(decoder.finish().unwrap());
    events
}

fn ended(events: &[Event]) -> Reply {
    let reply = events.iter().find_map(|event| match event {
        Event::Ended(reply) => Some(Reply::clone(reply)),
        _ => None,
    });
    reply.unwrap()
}

fn sse(frames: &[&str]) -> String {
    format!("data: {}\n\n", frames.join("\n\ndata: "))
}

const CREATED: &str =
    r#"{"type":"response.created","response":{"id":"resp_1","model":"gpt-5.6","output":[]}}"#;

#[test]
fn stream_seal_comes_from_the_done_event() {
    let stream = sse(&[
        CREATED,
        r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"Zmlyc3Q="}}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"c2Vjb25k"}}"#,
        r#"{"type":"response.completed","response":{"id":"resp_1","status":"completed","output":[{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"dGhpcmQ="}]}}"#,
    ]);
    let reply = ended(&events(&stream, openai()));
    let [item] = reply.items.as_slice() else { panic!("{:?}", reply.items) };
    assert_eq!(item.seals[0].reveal_to_tenant(), "c2Vjb25k");
    assert_eq!(reply.stop, StopReason::Done);
}

#[test]
fn truncated_stream_yields_nothing_replayable() {
    let stream = sse(&[
        CREATED,
        r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"c2VhbA=="}}"#,
        r#"{"type":"response.output_item.added","output_index":1,"item":{"id":"rs_2","type":"reasoning","summary":[],"encrypted_content":"Zmlyc3Q="}}"#,
        r#"{"type":"response.reasoning_summary_text.delta","output_index":1,"summary_index":0,"delta":"Ha"}"#,
        r#"{"type":"response.output_item.added","output_index":2,"item":{"id":"msg_1","type":"message","role":"assistant","content":[]}}"#,
        r#"{"type":"response.output_text.delta","output_index":2,"content_index":0,"delta":"Ye"}"#,
    ]);
    let reply = ended(&events(&stream, openai()));
    assert_eq!(reply.stop, StopReason::Cut);
    assert_eq!(reply.items.iter().filter_map(Item::visible).collect::<Vec<_>>(), ["", "Ha", "Ye"]);
    assert!(reply.items.iter().all(|item| item.seals.is_empty()));
    let mut call = Call::new(openai());
    call.extend(reply.items);
    let cut = Disposition::Elided(ElisionReason::Cut);
    assert_eq!(input(&call).1[..2], [cut.clone(), cut]);
    assert!(!body(&call).contains("c2VhbA==") && !body(&call).contains("Zmlyc3Q="));
}

#[test]
fn unclosed_elements_are_taken_from_the_completed_event() {
    let completed = format!(
        r#"{{"type":"response.completed","response":{{"id":"resp_1","status":"completed","output":[{MESSAGE}]}}}}"#
    );
    let reply = ended(&events(&sse(&[CREATED, &completed, "[DONE]"]), openai()));
    assert_eq!(reply.items[0].visible(), Some("Yes."));
    assert_eq!(reply.stop, StopReason::Done);
}

#[test]
fn unknown_event_is_passed_on() {
    let alien = r#"{"type":"response.dreaming","depth":3}"#;
    let events = events(&sse(&[CREATED, alien]), openai());
    let found =
        events.iter().any(|event| matches!(event, Event::Alien(json) if *json == text(alien)));
    assert!(found);
}

#[test]
fn reply_from_another_wire_streams_the_full_event_sequence() {
    let body = r#"{"id":"msg_9","type":"message","role":"assistant","model":"claude","content":[{"type":"thinking","thinking":"Hm.","signature":"c2ln"},{"type":"text","text":"Yes."},{"type":"tool_use","id":"toolu_1","name":"look","input":{"a":1}}],"stop_reason":"tool_use","usage":{"input_tokens":3,"output_tokens":4}}"#;
    let context = DecodeContext::of(target("anthropic", "claude-sonnet-4-5"));
    let reply = AnthropicMessages.decode_reply(&Bytes::from(body), &context).unwrap();
    let mut out = Vec::new();
    let mut encoder = StreamEncoder::new(&OpenAiResponses);
    for event in events_from_reply(&reply) {
        encoder.push(&event, &mut out).unwrap();
    }
    let out = String::from_utf8(out).unwrap();
    let event_names: Vec<_> =
        out.lines().filter_map(|line| line.strip_prefix("event: response.")).collect();
    assert_eq!(
        event_names,
        [
            "created",
            "in_progress",
            "output_item.added",
            "reasoning_summary_part.added",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.done",
            "reasoning_summary_part.done",
            "output_item.done",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "output_item.added",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
            "completed",
        ]
    );
    assert!(out.contains(r#""sequence_number":18,"#) && !out.contains("c2ln"));
    let streamed = ended(&events(&out, openai()));
    let body = OpenAiResponses.encode_reply(&reply).unwrap();
    let decoded = OpenAiResponses.decode_reply(&body, &DecodeContext::of(openai())).unwrap();
    let natives = |reply: &Reply| {
        reply
            .items
            .iter()
            .map(|item| item.native.clone().unwrap().json.canonical())
            .collect::<Vec<_>>()
    };
    // The whole response has the same elements as the stream, including ids.
    assert_eq!(natives(&streamed), natives(&decoded));
    assert_eq!((streamed.stop, streamed.usage), (StopReason::Tools, reply.usage));
}

#[test]
fn failed_response_is_decoded_as_provider_failure() {
    let failed = r#"{"type":"response.failed","response":{"id":"r","error":{"code":"server_error","message":"Sorry."}}}"#;
    let failure = events(&sse(&[failed]), openai()).into_iter().find_map(|event| match event {
        Event::Failed(failure) => Some((failure.kind, failure.message)),
        _ => None,
    });
    assert_eq!(failure, Some((Some("server_error".into()), "Sorry.".into())));
}

/// A stream with every kind of element and all event members that clients need.
const LIVE: &[&str] = &[
    CREATED,
    r#"{"type":"response.in_progress","response":{"id":"resp_1","model":"gpt-5.6","output":[]}}"#,
    r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}"#,
    r#"{"type":"response.reasoning_summary_part.added","output_index":0,"item_id":"rs_1","summary_index":0,"part":{"type":"summary_text","text":""}}"#,
    r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"item_id":"rs_1","summary_index":0,"delta":"One"}"#,
    r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"item_id":"rs_1","summary_index":0,"delta":"\n\n"}"#,
    r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"item_id":"rs_1","summary_index":0,"delta":"more."}"#,
    r#"{"type":"response.reasoning_summary_text.done","output_index":0,"item_id":"rs_1","summary_index":0,"text":"One\n\nmore."}"#,
    r#"{"type":"response.reasoning_summary_part.done","output_index":0,"item_id":"rs_1","summary_index":0,"part":{"type":"summary_text","text":"One\n\nmore."}}"#,
    r#"{"type":"response.reasoning_summary_part.added","output_index":0,"item_id":"rs_1","summary_index":1,"part":{"type":"summary_text","text":""}}"#,
    r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"item_id":"rs_1","summary_index":1,"delta":"Two."}"#,
    r#"{"type":"response.reasoning_summary_text.done","output_index":0,"item_id":"rs_1","summary_index":1,"text":"Two."}"#,
    r#"{"type":"response.reasoning_summary_part.done","output_index":0,"item_id":"rs_1","summary_index":1,"part":{"type":"summary_text","text":"Two."}}"#,
    r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"One\n\nmore."},{"type":"summary_text","text":"Two."}],"encrypted_content":"c2VhbA=="}}"#,
    r#"{"type":"response.output_item.added","output_index":1,"item":{"id":"ws_1","type":"web_search_call","status":"in_progress"}}"#,
    r#"{"type":"response.output_item.done","output_index":1,"item":{"id":"ws_1","type":"web_search_call","status":"completed"}}"#,
    r#"{"type":"response.output_item.added","output_index":2,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]}}"#,
    r#"{"type":"response.content_part.added","output_index":2,"item_id":"msg_1","content_index":0,"part":{"type":"output_text","annotations":[],"logprobs":[],"text":""}}"#,
    r#"{"type":"response.output_text.delta","output_index":2,"item_id":"msg_1","content_index":0,"delta":"Ye","logprobs":[]}"#,
    r#"{"type":"response.output_text.delta","output_index":2,"item_id":"msg_1","content_index":0,"delta":"s.","logprobs":[]}"#,
    r#"{"type":"response.output_text.done","output_index":2,"item_id":"msg_1","content_index":0,"text":"Yes.","logprobs":[]}"#,
    r#"{"type":"response.content_part.done","output_index":2,"item_id":"msg_1","content_index":0,"part":{"type":"output_text","annotations":[],"logprobs":[],"text":"Yes."}}"#,
    r#"{"type":"response.content_part.added","output_index":2,"item_id":"msg_1","content_index":1,"part":{"type":"refusal","refusal":""}}"#,
    r#"{"type":"response.refusal.delta","output_index":2,"item_id":"msg_1","content_index":1,"delta":"No."}"#,
    r#"{"type":"response.refusal.done","output_index":2,"item_id":"msg_1","content_index":1,"refusal":"No."}"#,
    r#"{"type":"response.content_part.done","output_index":2,"item_id":"msg_1","content_index":1,"part":{"type":"refusal","refusal":"No."}}"#,
    r#"{"type":"response.output_item.done","output_index":2,"item":{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"Yes."},{"type":"refusal","refusal":"No."}]}}"#,
    r#"{"type":"response.output_item.added","output_index":3,"item":{"id":"fc_1","type":"function_call","status":"in_progress","call_id":"call_1","name":"look","arguments":""}}"#,
    r#"{"type":"response.function_call_arguments.delta","output_index":3,"item_id":"fc_1","delta":"{\"a\""}"#,
    r#"{"type":"response.function_call_arguments.delta","output_index":3,"item_id":"fc_1","delta":":1}"}"#,
    r#"{"type":"response.function_call_arguments.done","output_index":3,"item_id":"fc_1","arguments":"{\"a\":1}"}"#,
    r#"{"type":"response.output_item.done","output_index":3,"item":{"id":"fc_1","type":"function_call","status":"completed","call_id":"call_1","name":"look","arguments":"{\"a\":1}"}}"#,
];

/// Parses an event and removes its sequence number, for comparison.
fn event_json(event: &str) -> serde_json::Value {
    let mut event: serde_json::Value = serde_json::from_str(event).unwrap();
    event.as_object_mut().unwrap().remove("sequence_number");
    event
}

/// Sorts events by element and part, because the encoder emits refusals and the texts before them
/// only at the end of their message.
fn by_place(events: impl Iterator<Item = serde_json::Value>) -> Vec<serde_json::Value> {
    let mut events: Vec<_> = events.collect();
    let key = |event: &serde_json::Value| {
        let is_done = event["type"] == "response.output_item.done";
        let part = event["content_index"].as_u64().unwrap_or(0);
        (event["output_index"].as_u64().map_or(0, |at| at + 1), is_done, part)
    };
    events.sort_by_key(key);
    events
}

#[test]
fn native_elements_stream_incrementally_with_their_own_ids() {
    let mut encoder = StreamEncoder::new(&OpenAiResponses);
    let mut decoder = StreamDecoder::new(&OpenAiResponses, &DecodeContext::of(openai()));
    let (mut out, mut lags) = (Vec::new(), Vec::new());
    for (count, frame) in LIVE.iter().enumerate() {
        for event in decoder.push(sse(&[frame]).as_bytes()).unwrap() {
            encoder.push(&event, &mut out).unwrap();
        }
        let written = String::from_utf8_lossy(&out).matches("event: ").count();
        lags.push((count + 1).saturating_sub(written));
    }
    let out = String::from_utf8(out).unwrap();
    let written = out.lines().filter_map(|line| line.strip_prefix("data: ")).map(event_json);
    let expected = LIVE.iter().map(|event| event_json(event));
    let skeleton = |event: &serde_json::Value| event.get("response").is_none();
    let (written, expected) = (written.filter(skeleton), expected.filter(skeleton));
    assert_eq!(by_place(written), by_place(expected));
    // Only the end of a part, the refusal and the hosted step are delayed until the end of their
    // element.
    assert_eq!(lags.iter().max(), Some(&6), "{lags:?}");
}

#[test]
fn whole_reply_streams_native_elements_with_their_own_ids() {
    let done: Vec<_> = LIVE.iter().filter(|event| event.contains("output_item.done")).collect();
    let items: Vec<_> = done.iter().map(|event| event_json(event)["item"].to_string()).collect();
    let body = format!(
        r#"{{"id":"resp_1","object":"response","status":"completed","model":"gpt-5.6","output":[{}]}}"#,
        items.join(",")
    );
    let context = DecodeContext::of(openai());
    let reply = OpenAiResponses.decode_reply(&Bytes::from(body), &context).unwrap();
    let mut out = Vec::new();
    let mut encoder = StreamEncoder::new(&OpenAiResponses);
    for event in events_from_reply(&reply) {
        encoder.push(&event, &mut out).unwrap();
    }
    let out = String::from_utf8(out).unwrap();
    let written: Vec<_> = out.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let done_again: Vec<_> = written
        .iter()
        .filter(|event| event.contains("output_item.done"))
        .map(|e| event_json(e))
        .collect();
    assert_eq!(done_again, done.iter().map(|event| event_json(event)).collect::<Vec<_>>());
    assert_eq!(ended(&events(&out, openai())).items.len(), reply.items.len());
}
