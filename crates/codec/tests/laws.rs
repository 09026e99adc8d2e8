//! Checks the invariants for every codec and fixture and, if present, the recorded traffic.
//!
//! A fixture is named `<provider>--<model>--<what>.<kind>` and stored in the directory of its wire.
//! The kinds are `request.json`, `response.json` and, for streams, `stream.sse`, `stream.jsonl` and
//! `stream.array.json`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints its figures"
)]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use common::mix::{plain_thought, user_text, with_secret, with_thoughts};
use common::samples::{Sample, SampleKind, samples, targets};
use common::{reply_in, request, stream_events, strings};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::Value;
use throughline_codec::{
    Catalog, Codec, Framing, KnownBeginning, KnownRequest, StreamEncoder, events_from_reply,
};
use throughline_core::{
    Body, Call, Disposition, ElisionReason, EncodedRequest, Event, Item, ItemPosition, NativePart,
    Origin, Reply, Request, ReshapeKind, Role, SIDE_CHANNEL, StopReason, Target, Wire,
};
use throughline_json::{Json, Node, Tree};
use throughline_testkit::{cases, chunks, figure, proptest_config, split};

#[test]
fn law_1_request_encodes_byte_for_byte() {
    let samples = samples();
    let requests: Vec<_> = samples.iter().filter(|sample| sample.is_request()).collect();
    for sample in &requests {
        let encoded = sample.codec.encode(&sample.call()).unwrap();
        assert_eq!(encoded.request, sample.request(), "{}", sample.name);
        assert_eq!(encoded.warnings, [], "{}", sample.name);
    }
    figure("requests that encode to the same bytes", requests.len());
}

/// A request that continues a reply must contain the reply's Seals unchanged and in order. Each
/// Seal must be on the part that has the same text as in the reply.
#[test]
fn law_1_own_seals_survive_decode_and_encode() {
    let mut seals = 0;
    for sample in samples().iter().filter(|sample| !sample.is_request()) {
        let reply = sample.reply();
        let mut call = Call::new(sample.context.target.clone());
        call.extend([user_text("Go on.")]);
        call.extend(reply.items.clone());
        let encoded = sample.codec.encode(&call).unwrap();
        let again = sample.codec.decode_request(&encoded.request, &sample.context);
        let again = again.unwrap_or_else(|error| panic!("{}: {error}", sample.name));
        let sealed = |items: &[Item]| -> Vec<(Bytes, String)> {
            let seals =
                items.iter().flat_map(|item| item.seals.iter().map(move |seal| (item, seal)));
            seals.map(|(item, seal)| (seal.reveal_to_tenant().clone(), kind_of(item))).collect()
        };
        assert_eq!(sealed(&again.items), sealed(&reply.items), "{}", sample.name);
        seals += sealed(&reply.items).len();
    }
    figure("own Seals preserved", seals);
}

fn kind_of(item: &Item) -> String {
    match &item.body {
        Body::Text(text) => format!("text {text}"),
        Body::Thought(thought) => format!("thought {}", thought.content),
        Body::Call(call) => format!("call {}", call.name),
        Body::Hosted(hosted) => format!("hosted {}", hosted.name),
        Body::Media(_)
        | Body::Result(_)
        | Body::Compaction
        | Body::Summary { .. }
        | Body::Unknown => "other".to_owned(),
    }
}

/// Returns all endpoints of the sample's wire, and one endpoint of every other wire.
fn everywhere(sample: &Sample) -> Vec<(&'static dyn Codec, Target)> {
    let catalog = Catalog::builtin();
    let model = sample.context.target.model();
    let neighbours = catalog.providers().iter().filter(|row| row.wire == sample.codec.wire());
    let neighbours = neighbours.map(|row| (sample.codec, catalog.target(row, model, "test")));
    let others = targets().into_iter().filter(|(codec, _)| codec.wire() != sample.codec.wire());
    neighbours.chain(others).collect()
}

/// Returns a Call for the sample: decoded from its request, or continuing its reply. Thoughts
/// created by the caller are inserted into the Call.
fn sample_call(sample: &Sample) -> Call {
    let mut call = if sample.is_request() {
        sample.call()
    } else {
        let mut call = Call::new(sample.context.target.clone());
        call.extend([user_text("Go on.")]);
        call.extend(sample.reply().items);
        call
    };
    call.items = with_thoughts(&call.items);
    if let Some(place) = call.items.last().map(|item| item.place) {
        call.items
            .push(plain_thought(1_000_000, ItemPosition { message: place.message + 1, part: 0 }));
    }
    with_secret(call)
}

/// Returns two variants of a Call for the target `to`: one rebuilt without its source request, and
/// one with only the target changed.
fn sent_to(call: &Call, to: &Target) -> [Call; 2] {
    let mut fresh = Call::new(to.clone());
    fresh.system.clone_from(&call.system);
    fresh.items.clone_from(&call.items);
    [with_secret(fresh), Call { target: to.clone(), ..call.clone() }]
}

#[test]
fn law_2_foreign_seals_and_thoughts_never_reach_another_provider() {
    let mut pairs = 0;
    let mut wrong = BTreeMap::new();
    for sample in samples() {
        let call = sample_call(&sample);
        let from = &sample.context.target.origin;
        for (codec, to) in everywhere(&sample) {
            if to.origin.provider == from.provider && to.origin.endpoint == from.endpoint {
                continue;
            }
            for (call, way) in sent_to(&call, &to).iter().zip(["fresh", "moved"]) {
                let body = codec.encode(call).unwrap().request.body;
                pairs += 1;
                for leak in leaks(call, &to, &body) {
                    let kind = format!("{} to {} {way}: {leak}", from.provider, to.origin.provider);
                    wrong.entry(kind).or_insert_with(|| sample.name.clone());
                }
            }
        }
    }
    figure("foreign requests searched for seals and thoughts", pairs);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns the Seals and provider thoughts that a request sends to an endpoint that did not issue
/// them.
fn leaks(call: &Call, to: &Target, body: &[u8]) -> Vec<String> {
    let holds = |needle: &[u8]| needle.len() >= 12 && find(body, needle);
    let is_own = |origin: &Origin| {
        origin.provider == to.origin.provider && origin.endpoint == to.origin.endpoint
    };
    let mut leaks = Vec::new();
    for item in &call.items {
        let seals = item.seals.iter().filter(|seal| !is_own(&seal.owner));
        let seals = seals.filter(|seal| holds(seal.reveal_to_tenant()));
        leaks.extend(seals.map(|seal| seal.format.to_string()));
        let Body::Thought(thought) = &item.body else { continue };
        if item.origin.as_ref().is_none_or(|origin| is_own(origin)) {
            continue;
        }
        let escaped = throughline_json::string(&thought.content);
        let thought_text = escaped.as_str().trim_matches('"').as_bytes();
        let is_in = |native: &NativePart| find(native.json.bytes(), thought_text);
        let is_also_text = || {
            let others = call.items.iter().filter(|other| !matches!(other.body, Body::Thought(_)));
            let mut natives = others.filter_map(|other| other.native.as_ref());
            natives.any(is_in)
        };
        if holds(thought_text) && !is_also_text() {
            leaks.push("a thought".to_owned());
        }
    }
    leaks
}

fn find(haystack: &[u8], needle: &[u8]) -> bool {
    memchr::memmem::find(haystack, needle).is_some()
}

#[test]
fn law_3_every_item_and_seal_has_a_fate() {
    let mut wrong = BTreeMap::new();
    let mut found = 0;
    for sample in samples() {
        let call = sample_call(&sample);
        let mut wires = targets();
        wires.push((sample.codec, sample.context.target.clone()));
        for (codec, to) in wires {
            for (call, way) in sent_to(&call, &to).iter().zip(["fresh", "moved"]) {
                let encoded = codec.encode(call).unwrap();
                let fates = encoded.fates.iter().map(|fate| (&fate.item, fate.seals.len()));
                let items = call.system.iter().chain(&call.items);
                let expected = items.map(|item| (&item.id, item.seals.len()));
                assert!(fates.eq(expected), "{} to {} {way}", sample.name, codec.wire());
                assert_eq!(
                    codec.encode(call).unwrap().request,
                    encoded.request,
                    "encode is deterministic"
                );
                let from = sample.codec.wire();
                for missing in missing_items(call, &encoded) {
                    let kind = format!("{from} to {} {way}: {missing}", codec.wire());
                    wrong.entry(kind).or_insert_with(|| sample.name.clone());
                }
                found += 1;
            }
        }
    }
    figure("requests that contain everything their Fates report", found);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns the Items that their Fates report as sent but that the request does not contain.
fn missing_items(call: &Call, encoded: &EncodedRequest) -> Vec<String> {
    let tree = Tree::parse(encoded.request.body.clone()).unwrap();
    let mut sent_text = Vec::new();
    for (_, text) in strings(&tree) {
        sent_text.extend_from_slice(&text);
        sent_text.push(0);
    }
    let items = call.system.iter().chain(&call.items);
    let sent = encoded.fates.iter().zip(items).filter(|(fate, item)| match &item.body {
        Body::Text(text) => {
            text.len() >= 8
                && matches!(
                    fate.visible,
                    Disposition::Kept | Disposition::Reshaped(ReshapeKind::OtherWire)
                )
        }
        Body::Thought(_) => fate.visible == Disposition::Reshaped(ReshapeKind::Enveloped),
        _ => false,
    });
    let missing =
        sent.filter(|(_, item)| !find(&sent_text, item.visible().unwrap_or_default().as_bytes()));
    missing.map(|(fate, item)| format!("{} {:?} {}", item.id, item.role, fate.visible)).collect()
}

#[test]
fn law_3_caller_payload_reaches_only_targets_that_declare_its_tag() {
    let payload = r#"{"handle": 7}"#;
    let mut opaque = plain_thought(7, ItemPosition::new(1, 0));
    if let Body::Thought(thought) = &mut opaque.body {
        thought.payload = Some(Json::parse(payload.to_owned()).unwrap());
        thought.replay_compatibility = Some("own-handle-v1".into());
    }
    for (codec, target) in targets() {
        let mut call = with_secret(Call::new(target));
        call.items = vec![user_text("Go on."), opaque.clone()];
        let sent = |call: &Call| {
            let EncodedRequest { request, fates, .. } = codec.encode(call).unwrap();
            let body = String::from_utf8(request.body.to_vec()).unwrap();
            assert!(
                !body.contains("A caller's own thought"),
                "the thought must never be inlined: {body}"
            );
            let aside = Tree::parse(body).unwrap().root().get(SIDE_CHANNEL).map(Node::json);
            (aside.map(|aside| aside.as_str().to_owned()), fates[1].visible.clone())
        };
        assert_eq!(
            sent(&call),
            (None, Disposition::Elided(ElisionReason::ByPolicy)),
            "{}",
            codec.wire()
        );
        call.replay.takes = vec!["own-handle-v1".into()];
        let aside = format!(
            r#"[{{"id":"plain-7","replayCompatibility":"own-handle-v1","payload":{payload}}}]"#
        );
        assert_eq!(
            sent(&call),
            (Some(aside), Disposition::Reshaped(ReshapeKind::SideChannel)),
            "{}",
            codec.wire()
        );
    }
}

/// The source request only speeds up encoding: without the source, the Call must encode to the same
/// content.
#[test]
fn law_3_call_encodes_the_same_without_its_source() {
    let mut wrong = BTreeMap::new();
    let mut same = 0;
    for sample in samples().iter().filter(|sample| sample.is_request()) {
        let call = sample.call();
        let texts_by_role = |call: &Call| -> Vec<(Role, String)> {
            let encoded = sample.codec.encode(call).unwrap();
            let again = sample.codec.decode_request(&encoded.request, &sample.context).unwrap();
            let mut texts: Vec<(Role, String)> = Vec::new();
            for item in again.system.iter().chain(&again.items) {
                let Body::Text(text) = &item.body else { continue };
                match texts.last_mut() {
                    Some((role, so_far)) if *role == item.role => so_far.push_str(text),
                    _ => texts.push((item.role, text.to_string())),
                }
            }
            texts.retain(|(_, text)| !text.is_empty());
            texts
        };
        let (with, without) =
            (texts_by_role(&call), texts_by_role(&Call { source: None, ..call.clone() }));
        if with == without {
            same += 1;
        } else {
            let at = with.iter().zip(&without).position(|(a, b)| a != b);
            let at = at.unwrap_or(with.len().min(without.len()));
            let difference = format!("{:?} became {:?}", with.get(at), without.get(at));
            let difference = difference.chars().take(200).collect::<String>();
            let found = wrong.entry(sample.codec.wire().to_string()).or_insert((0, difference));
            found.0 += 1;
        }
    }
    figure("Calls that encode the same without their source", same);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Distributes the configured number of cases over the samples.
fn spread(each: u32, samples: usize) -> Config {
    let samples = u32::try_from(samples).unwrap();
    let all = cases(each * samples);
    Config { cases: (all / samples).max(1), ..proptest_config(each) }
}

#[test]
fn law_5_any_stream_chunking_yields_the_same_events() {
    let samples: Vec<_> =
        samples().into_iter().filter(|s| matches!(s.kind, SampleKind::Stream(_))).collect();
    let mut runner = TestRunner::new(spread(4, samples.len()));
    for sample in &samples {
        let SampleKind::Stream(framing) = sample.kind else { continue };
        let read = |chunks: Vec<&[u8]>| {
            stream_events(sample.codec, &sample.context, framing, chunks).unwrap()
        };
        let unsplit = read(vec![&sample.bytes[..]]);
        let bytewise = read(sample.bytes.chunks(1).collect());
        assert!(bytewise == unsplit, "{}: byte by byte", sample.name);
        runner
            .run(&chunks(sample.bytes.len()), |cuts| {
                prop_assert!(read(split(&sample.bytes, &cuts)) == unsplit, "{}", sample.name);
                Ok(())
            })
            .unwrap();
    }
    figure("streams split at random", samples.len());
}

#[test]
fn law_5_reply_round_trips_through_a_stream() {
    let mut replies = 0;
    for sample in samples().iter().filter(|sample| !sample.is_request()) {
        let reply = sample.reply();
        if reply.stop == StopReason::Cut {
            continue;
        }
        let mut bytes = Vec::new();
        let mut encoder = StreamEncoder::new(sample.codec);
        for event in events_from_reply(&reply) {
            encoder.push(&event, &mut bytes).unwrap();
        }
        encoder.finish(&mut bytes);
        let context = &sample.context;
        let events = stream_events(sample.codec, context, sample.codec.framing(), [&bytes[..]]);
        let events = events.unwrap_or_else(|error| panic!("{}: {error}", sample.name));
        same_reply(reply_in(&events).unwrap(), &reply, &sample.name);
        replies += 1;
    }
    figure("replies preserved by their own stream", replies);
}

#[test]
fn law_5_reply_round_trips_through_a_response() {
    for sample in samples().iter().filter(|sample| !sample.is_request()) {
        let reply = sample.reply();
        if reply.stop == StopReason::Cut {
            continue;
        }
        let body = sample.codec.encode_reply(&reply).unwrap();
        let again = sample.codec.decode_reply(&body, &sample.context);
        let again = again.unwrap_or_else(|error| panic!("{}: {error}", sample.name));
        if sample.codec.wire() == Wire::OPENAI_CHAT {
            // A whole chat message has one slot per part kind, so the order of parts is lost.
            same_reply(&by_slot(again), &by_slot(reply), &sample.name);
        } else {
            same_reply(&again, &reply, &sample.name);
        }
    }
}

/// Moves calls after the other Items of a Reply, and joins all texts into one text at the end.
fn by_slot(mut reply: Reply) -> Reply {
    let (texts, mut others): (Vec<_>, Vec<_>) =
        reply.items.into_iter().partition(|item| matches!(item.body, Body::Text(_)));
    let joined: String = texts.iter().filter_map(|item| item.visible()).collect();
    others.sort_by_key(|item| matches!(item.body, Body::Call(_)));
    others.push(user_text(&joined));
    reply.items = others;
    reply
}

/// Checks that two replies have the same content, Seals, Seal positions, order and stop reason.
fn same_reply(ours: &Reply, theirs: &Reply, name: &str) {
    let contents = |reply: &Reply| -> Vec<_> {
        let items = reply.items.iter();
        items
            .map(|item| {
                let native = item.native.as_ref().map(|native| native.json.canonical());
                let seals: Vec<_> = item
                    .seals
                    .iter()
                    .map(|seal| (seal.reveal_to_tenant().clone(), seal.attached.at.clone()))
                    .collect();
                (kind_of(item), native, seals)
            })
            .collect()
    };
    assert_eq!(contents(ours), contents(theirs), "{name}");
    assert_eq!(
        (&ours.stop, ours.usage, &ours.id),
        (&theirs.stop, theirs.usage, &theirs.id),
        "{name}"
    );
}

#[test]
fn law_5_truncated_stream_yields_nothing_replayable() {
    let samples = samples();
    let mut runner = TestRunner::new(spread(8, samples.len()));
    for sample in samples.iter().filter(|sample| matches!(sample.kind, SampleKind::Stream(_))) {
        let SampleKind::Stream(framing) = sample.kind else { continue };
        runner
            .run(&(0..sample.bytes.len()), |end| {
                let cut = &sample.bytes[..end];
                let Ok(events) = stream_events(sample.codec, &sample.context, framing, [cut])
                else {
                    return Ok(());
                };
                let reply = reply_in(&events).expect("a stream ends in a reply");
                if reply.stop != StopReason::Cut {
                    return Ok(());
                }
                for item in &reply.items {
                    prop_assert!(
                        item.seals.is_empty(),
                        "{} cut at {end}: {}",
                        sample.name,
                        item.id
                    );
                    if let Body::Thought(thought) = &item.body {
                        prop_assert!(!thought.whole, "{} cut at {end}: {}", sample.name, item.id);
                    }
                }
                Ok(())
            })
            .unwrap();
    }
}

/// The request of a longer conversation must start with the messages of the shorter conversation.
#[test]
fn law_9_next_request_extends_the_last() {
    let mut extended = 0;
    for sample in samples().iter().filter(|sample| sample.is_request()) {
        let mut call = sample.call();
        call.items = with_thoughts(&call.items);
        let mut wires = targets();
        wires.push((sample.codec, sample.context.target.clone()));
        for (codec, to) in wires {
            let messages = |items: &[Item]| -> Vec<Json> {
                let mut part = with_secret(Call::new(to.clone()));
                part.system.clone_from(&call.system);
                part.items = items.to_vec();
                let body = Tree::parse(codec.encode(&part).unwrap().request.body).unwrap();
                let key = ["messages", "input", "contents"]
                    .into_iter()
                    .find_map(|key| body.root().get(key));
                key.unwrap().elements().map(Node::json).collect()
            };
            let complete = messages(&call.items);
            // Each request ends directly before the model's next message.
            let ends = call.items.windows(2).enumerate().filter(|(_, pair)| {
                pair[0].role != Role::Assistant && pair[1].role == Role::Assistant
            });
            for (end, _) in ends {
                let part = messages(&call.items[..=end]);
                let begins =
                    complete.iter().zip(&part).all(|(a, b)| a == b) && part.len() <= complete.len();
                assert!(begins, "{} to {} up to item {end}", sample.name, codec.wire());
                extended += 1;
            }
        }
    }
    figure("requests extended by the next one", extended);
}

/// Unknown members in any object of a request must survive decoding and encoding.
#[test]
fn law_14_unknown_members_survive() {
    let samples = samples();
    let mut runner = TestRunner::new(spread(4, samples.len()));
    for sample in samples.iter().filter(|sample| sample.is_request()) {
        if sample.bytes.len() > 100_000 {
            continue;
        }
        let opens: Vec<usize> = objects(&sample.bytes);
        runner
            .run(&proptest::collection::vec(0..opens.len(), 1..4), |places| {
                let mut places: Vec<usize> = places.into_iter().map(|place| opens[place]).collect();
                places.sort_unstable();
                places.dedup();
                let mut text = sample.bytes.to_vec();
                for place in places.into_iter().rev() {
                    let rest = text[place + 1..].trim_ascii_start();
                    let comma = if rest.first() == Some(&b'}') { "" } else { "," };
                    let member = format!("\"x_unknown\" :[1.50, {{\"deep\":\"\\u00e9\"}}]{comma}");
                    let at = place + 1;
                    text.splice(at..at, member.into_bytes());
                }
                let text = String::from_utf8(text).unwrap();
                let sent = request(&sample.path, &text);
                let call = sample.codec.decode_request(&sent, &sample.context).unwrap();
                prop_assert!(
                    sample.codec.encode(&call).unwrap().request == sent,
                    "{}: {text}",
                    sample.name
                );
                Ok(())
            })
            .unwrap();
    }
}

/// Unknown members in any object of a model's output must survive decoding and encoding.
#[test]
fn law_14_unknown_members_of_a_response_survive() {
    let mut wrong = BTreeMap::new();
    let mut tried = 0;
    for sample in samples().iter().filter(|sample| matches!(sample.kind, SampleKind::Response)) {
        let Ok(original) = serde_json::from_slice::<Value>(&sample.bytes) else { continue };
        let wire = sample.codec.wire();
        let is_ollama = original.get("message").is_some();
        let home = match wire.as_str() {
            "anthropic-messages" => "/content",
            "openai-responses" => "/output",
            "openai-chat" if is_ollama => "/message",
            "openai-chat" => "/choices/0/message",
            "gemini" => "/candidates/0/content/parts",
            _ => "/output/message/content",
        };
        let Some(content) = original.pointer(home) else { continue };
        if sample.bytes.len() > 50_000 {
            continue;
        }
        for place in objects_in(content, home) {
            let mut response = original.clone();
            let object = response.pointer_mut(&place).unwrap().as_object_mut().unwrap();
            object.insert("x_unknown".to_owned(), serde_json::json!(["kept", {"deep": 1}]));
            let bytes = Bytes::from(response.to_string());
            let Ok(reply) = sample.codec.decode_reply(&bytes, &sample.context) else { continue };
            tried += 1;
            let needle = br#""x_unknown":["kept",{"deep":1}]"#;
            let mut natives = reply.items.iter().filter_map(|item| item.native.as_ref());
            // Other members of a chat message do not belong to an Item.
            let slots = ["/content", "/tool_calls", "/reasoning_details"];
            let is_frame = wire == Wire::OPENAI_CHAT
                && !slots.iter().any(|slot| place[home.len()..].starts_with(slot));
            let holds = |native: &NativePart| {
                let envelope = native.envelope.as_ref().map(|envelope| envelope.json.bytes());
                find(native.json.bytes(), needle) || envelope.is_some_and(|json| find(json, needle))
            };
            let is_native = is_frame || natives.any(holds);
            let body = sample.codec.encode_reply(&reply).unwrap();
            let kind = |problem: &str| {
                let place = place.replace(|c: char| c.is_ascii_digit(), "N");
                format!("{wire} {place}: {problem}")
            };
            if !is_native {
                wrong.entry(kind("not in the Item")).or_insert_with(|| sample.name.clone());
            }
            if !find(&body, needle) {
                wrong.entry(kind("not in the response")).or_insert_with(|| sample.name.clone());
            }
        }
    }
    figure("unknown members of responses", tried);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns the JSON pointers of all objects in a value.
fn objects_in(value: &Value, path: &str) -> Vec<String> {
    match value {
        Value::Object(members) => {
            let inner = members.iter().flat_map(|(key, value)| {
                let key = key.replace('~', "~0").replace('/', "~1");
                objects_in(value, &format!("{path}/{key}"))
            });
            std::iter::once(path.to_owned()).chain(inner).collect()
        }
        Value::Array(elements) => {
            let elements = elements.iter().enumerate();
            elements.flat_map(|(at, value)| objects_in(value, &format!("{path}/{at}"))).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the offsets of opening braces outside strings.
fn objects(text: &[u8]) -> Vec<usize> {
    let (mut places, mut in_string, mut escaped) = (Vec::new(), false, false);
    for (at, byte) in text.iter().enumerate() {
        match (in_string, escaped, byte) {
            (true, true, _) => escaped = false,
            (true, false, b'\\') => escaped = true,
            (_, _, b'"') => in_string = !in_string,
            (false, _, b'{') => places.push(at),
            _ => {}
        }
    }
    places
}

#[test]
fn unknown_frames_are_passed_on() {
    for sample in samples().iter().filter(|s| matches!(s.kind, SampleKind::Stream(Framing::Sse))) {
        let mut bytes = b"data: {\"type\":\"x.unknown\",\"x\":1}\n\n".to_vec();
        bytes.extend_from_slice(&sample.bytes);
        let events =
            stream_events(sample.codec, &sample.context, Framing::Sse, [&bytes[..]]).unwrap();
        let unknown_frames: Vec<_> =
            events.iter().filter(|event| matches!(event, Event::Alien(_))).collect();
        assert!(!unknown_frames.is_empty(), "{}", sample.name);
    }
}

/// Decoding a request after an earlier request of the conversation gives the same Items as decoding
/// it alone, and the Items share no memory with the earlier request.
#[test]
fn items_of_an_earlier_request_are_reused_exactly() {
    let (mut reused, mut requests) = (BTreeMap::<String, usize>::new(), 0);
    for sample in samples().iter().filter(|sample| sample.is_request()) {
        let (request, codec) = (sample.request(), sample.codec);
        let tree = Tree::parse(request.body.clone()).unwrap();
        let lists = ["messages", "input"].iter().filter_map(|name| tree.root().get(name));
        let Some(list) = lists.into_iter().find(|list| list.is_array()) else { continue };
        let alone = sample.call();
        let elements: Vec<_> = list.elements().collect();
        // The earlier request has fewer messages, or another last message.
        let texts = elements.iter().skip(1).flat_map(|next| {
            let (before, after) = (&request.body[..next.range().start], list.range().end - 1);
            let cut = before.trim_ascii_end().strip_suffix(b",").unwrap_or(before);
            let other = br#"{"role":"user","content":"other"}"#;
            let end = &request.body[after..];
            [[cut, end].concat(), [before, other, end].concat()]
        });
        for text in texts.collect::<Vec<_>>() {
            let earlier = Request { body: Bytes::from(text), ..request.clone() };
            let body = Tree::parse(earlier.body.clone()).unwrap();
            let call = codec.decode_request(&earlier, &sample.context).unwrap();
            let target = sample.context.target.clone();
            let known = Arc::new(KnownRequest::new(codec.wire(), body, target, &call));
            let shared = throughline_json::common_prefix(&earlier.body, &request.body);
            let mut context = sample.context.clone();
            context.known = Some(KnownBeginning::new(known, shared));
            let mut after = codec.decode_request(&request, &context).unwrap();
            assert_eq!(after.items, alone.items, "{}", sample.name);
            assert_eq!((&after.system, &after.tools), (&alone.system, &alone.tools));
            let memory = earlier.body.as_ptr_range();
            for item in &mut after.items {
                let is_earlier =
                    |bytes: &Bytes| !bytes.is_empty() && memory.contains(&bytes.as_ptr());
                item.for_each_slice(&mut |slice| assert!(!is_earlier(slice), "{}", sample.name));
                let envelope = item.native.as_ref().and_then(|native| native.envelope.as_ref());
                assert!(envelope.is_none_or(|envelope| !is_earlier(envelope.json.bytes())));
            }
            let text = |item: &Item| match &item.body {
                Body::Text(text) if !text.is_empty() => Some(Arc::clone(text)),
                _ => None,
            };
            let texts = call.items.iter().filter_map(text);
            let pairs = texts.zip(after.items.iter().filter_map(text));
            *reused.entry(codec.wire().to_string()).or_default() +=
                pairs.filter(|(left, right)| Arc::ptr_eq(left, right)).count();
            requests += 1;
        }
    }
    let wires = ["anthropic-messages", "openai-chat", "openai-responses"];
    assert!(wires.iter().all(|wire| reused.get(*wire).is_some_and(|texts| *texts > 0)));
    figure("requests decoded after an earlier request", requests);
    figure("texts that were reused", format!("{reused:?}"));
}
