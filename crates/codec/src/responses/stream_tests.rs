//! What the Responses codec promises of streams.

use bytes::Bytes;
use throughline_core::{Call, Did, Event, Item, Reply, Stop, Target, Why};

use crate::responses::OpenAiResponses;
use crate::responses::tests::{MESSAGE, body, input, openai, target, text};
use crate::{AnthropicMessages, Asked, Codec, StreamDecoder, StreamEncoder, events_of};

fn events(stream: &str, target: Target) -> Vec<Event> {
    let mut decoder = StreamDecoder::new(&OpenAiResponses, &Asked::of(target));
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
fn a_streams_seal_is_the_one_that_came_with_done() {
    let stream = sse(&[
        CREATED,
        r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"Zmlyc3Q="}}"#,
        r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"c2Vjb25k"}}"#,
        r#"{"type":"response.completed","response":{"id":"resp_1","status":"completed","output":[{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"dGhpcmQ="}]}}"#,
    ]);
    let reply = ended(&events(&stream, openai()));
    let [item] = reply.items.as_slice() else { panic!("{:?}", reply.items) };
    assert_eq!(item.seals[0].reveal_to_tenant(), "c2Vjb25k");
    assert_eq!(reply.stop, Stop::Done);
}

#[test]
fn a_stream_that_was_cut_yields_nothing_that_can_be_replayed() {
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
    assert_eq!(reply.stop, Stop::Cut);
    assert_eq!(reply.items.iter().filter_map(Item::visible).collect::<Vec<_>>(), ["", "Ha", "Ye"]);
    assert!(reply.items.iter().all(|item| item.seals.is_empty()));
    let mut call = Call::new(openai());
    call.extend(reply.items);
    let cut = Did::Elided(Why::Cut);
    assert_eq!(input(&call).1[..2], [cut.clone(), cut]);
    assert!(!body(&call).contains("c2VhbA==") && !body(&call).contains("Zmlyc3Q="));
}

#[test]
fn what_nobody_closed_is_taken_from_the_end() {
    let completed = format!(
        r#"{{"type":"response.completed","response":{{"id":"resp_1","status":"completed","output":[{MESSAGE}]}}}}"#
    );
    let reply = ended(&events(&sse(&[CREATED, &completed, "[DONE]"]), openai()));
    assert_eq!(reply.items[0].visible(), Some("Yes."));
    assert_eq!(reply.stop, Stop::Done);
}

#[test]
fn an_unknown_event_is_handed_on() {
    let alien = r#"{"type":"response.dreaming","depth":3}"#;
    let events = events(&sse(&[CREATED, alien]), openai());
    let found =
        events.iter().any(|event| matches!(event, Event::Alien(json) if *json == text(alien)));
    assert!(found);
}

#[test]
fn a_reply_of_another_wire_streams_in_the_full_sequence_under_one_id_each() {
    let body = r#"{"id":"msg_9","type":"message","role":"assistant","model":"claude","content":[{"type":"thinking","thinking":"Hm.","signature":"c2ln"},{"type":"text","text":"Yes."},{"type":"tool_use","id":"toolu_1","name":"look","input":{"a":1}}],"stop_reason":"tool_use","usage":{"input_tokens":3,"output_tokens":4}}"#;
    let asked = Asked::of(target("anthropic", "claude-sonnet-4-5"));
    let reply = AnthropicMessages.decode_reply(&Bytes::from(body), &asked).unwrap();
    let mut out = Vec::new();
    let mut encoder = StreamEncoder::new(&OpenAiResponses);
    for event in events_of(&reply) {
        encoder.push(&event, &mut out).unwrap();
    }
    let out = String::from_utf8(out).unwrap();
    let told: Vec<_> =
        out.lines().filter_map(|line| line.strip_prefix("event: response.")).collect();
    assert_eq!(
        told,
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
    let whole = OpenAiResponses.encode_reply(&reply).unwrap();
    let whole = OpenAiResponses.decode_reply(&whole, &Asked::of(openai())).unwrap();
    let natives = |reply: &Reply| {
        reply
            .items
            .iter()
            .map(|item| item.native.clone().unwrap().json.canonical())
            .collect::<Vec<_>>()
    };
    // The whole response says the same elements as the stream, ids included.
    assert_eq!(natives(&streamed), natives(&whole));
    assert_eq!((streamed.stop, streamed.usage), (Stop::Tools, reply.usage));
}

#[test]
fn a_failed_response_is_told_as_the_providers_own_failure() {
    let failed = r#"{"type":"response.failed","response":{"id":"r","error":{"code":"server_error","message":"Sorry."}}}"#;
    let told = events(&sse(&[failed]), openai()).into_iter().find_map(|event| match event {
        Event::Failed(failure) => Some((failure.kind, failure.message)),
        _ => None,
    });
    assert_eq!(told, Some((Some("server_error".into()), "Sorry.".into())));
}
