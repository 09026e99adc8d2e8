//! The laws, over every codec and every fixture, and over the recorded traffic where it is there.
//!
//! A fixture's name is `<provider>--<model>--<what>.<kind>`, in the folder of its wire. Kinds: `request.json`, `response.json`, and
//! streams as `stream.sse`, `stream.jsonl`, `stream.array.json`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints its figures"
)]

mod common;

use std::sync::Arc;

use bytes::Bytes;
use common::{codec_of, reply_in, request, stream_events, target};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use throughline_codec::{Asked, CODECS, Codec, Framing, StreamEncoder, events_of};
use throughline_core::{
    Body, Call, Event, Item, Json, Node, Reply, Request, Role, Stop, Target, Tree, Wire,
};
use throughline_testkit::{chunks, figure, proptest_config, recordings, split, workspace_root};

/// A document with what is needed to read it.
struct Sample {
    name: String,
    codec: &'static dyn Codec,
    asked: Asked,
    kind: Kind,
    path: String,
    bytes: Bytes,
}

enum Kind {
    Request,
    Response,
    Stream(Framing),
}

/// Our own fixtures, then the recorded exchanges where they are there.
fn samples() -> Vec<Sample> {
    let mut samples = fixtures();
    assert!(samples.len() >= 20, "only {} fixtures were found", samples.len());
    for recording in recordings().unwrap_or_default() {
        for (index, exchange) in
            recording.exchanges.iter().enumerate().filter(|(_, e)| e.status < 400)
        {
            let codec = codec_of(&exchange.wire);
            let asked = Asked::of(target(&exchange.provider, &exchange.wire, &exchange.model));
            let sample = |kind, bytes| Sample {
                name: format!("{} #{index}", recording.name),
                codec,
                asked: asked.clone(),
                kind,
                path: exchange.path.clone(),
                bytes,
            };
            samples.push(sample(Kind::Request, Bytes::from(exchange.request.clone())));
            let framing = exchange.content_type.as_deref().and_then(Framing::of_content_type);
            let kind = match framing {
                Some(framing) if exchange.stream => Kind::Stream(framing),
                Some(_) | None if exchange.stream => Kind::Stream(codec.framing()),
                Some(_) | None => Kind::Response,
            };
            samples.push(sample(kind, Bytes::from(exchange.response.clone())));
        }
    }
    samples
}

fn fixtures() -> Vec<Sample> {
    let root = workspace_root().join("crates/codec/tests/fixtures");
    let mut samples = Vec::new();
    for codec in CODECS {
        let wire = codec.wire();
        let mut files: Vec<_> = std::fs::read_dir(root.join(wire.as_str()))
            .unwrap_or_else(|error| panic!("no fixtures for {wire}: {error}"))
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        for file in files {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            let [provider, model, rest] = name.splitn(3, "--").collect::<Vec<_>>()[..] else {
                panic!("{name}: a fixture is called provider--model--what.kind")
            };
            let kind = match rest.split_once('.').map(|(_, kind)| kind) {
                Some("request.json") => Kind::Request,
                Some("response.json") => Kind::Response,
                Some("stream.sse") => Kind::Stream(Framing::Sse),
                Some("stream.jsonl") => Kind::Stream(Framing::JsonLines),
                Some("stream.array.json") => Kind::Stream(Framing::JsonArray),
                other => panic!("{name}: no such kind of fixture: {other:?}"),
            };
            samples.push(Sample {
                asked: Asked::of(target(provider, wire.as_str(), model)),
                codec: *codec,
                kind,
                path: default_path(wire.as_str(), model, rest.contains("streamed")),
                bytes: Bytes::from(std::fs::read(&file).unwrap()),
                name,
            });
        }
    }
    samples
}

fn default_path(wire: &str, model: &str, streamed: bool) -> String {
    match (wire, streamed) {
        ("anthropic-messages", _) => "/v1/messages".to_owned(),
        ("openai-responses", _) => "/v1/responses".to_owned(),
        ("openai-chat", _) => "/v1/chat/completions".to_owned(),
        ("gemini", false) => format!("/v1beta/models/{model}:generateContent"),
        ("gemini", true) => format!("/v1beta/models/{model}:streamGenerateContent?alt=sse"),
        (_, false) => format!("/model/{model}/converse"),
        (_, true) => format!("/model/{model}/converse-stream"),
    }
}

impl Sample {
    fn request(&self) -> Request {
        request(&self.path, std::str::from_utf8(&self.bytes).unwrap())
    }

    fn call(&self) -> Call {
        let call = self.codec.decode_request(&self.request(), &self.asked);
        call.unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    fn reply(&self) -> Reply {
        let reply = match self.kind {
            Kind::Request => panic!("{}: not a response", self.name),
            Kind::Response => self.codec.decode_reply(&self.bytes, &self.asked),
            Kind::Stream(framing) => {
                stream_events(self.codec, &self.asked, framing, [&self.bytes[..]])
                    .map(|events| reply_in(&events).expect("a stream ends in a reply").clone())
            }
        };
        reply.unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    fn is_request(&self) -> bool {
        matches!(self.kind, Kind::Request)
    }
}

/// One target of every wire, each at a provider and model of its own.
fn targets() -> Vec<(&'static dyn Codec, Target)> {
    let target_of = |wire: &str| match wire {
        "anthropic-messages" => target("anthropic", wire, "claude-sonnet-4-5"),
        "openai-responses" => target("openai", wire, "gpt-5.2"),
        "openai-chat" => target("deepseek", wire, "deepseek-reasoner"),
        "gemini" => target("gemini", wire, "gemini-3-pro-preview"),
        _ => target("bedrock", wire, "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
    };
    CODECS.iter().map(|codec| (*codec, target_of(codec.wire().as_str()))).collect()
}

#[test]
fn law_1_a_request_goes_back_byte_for_byte() {
    let samples = samples();
    let requests: Vec<_> = samples.iter().filter(|sample| sample.is_request()).collect();
    for sample in &requests {
        let encoded = sample.codec.encode(&sample.call()).unwrap();
        assert_eq!(encoded.request, sample.request(), "{}", sample.name);
        assert_eq!(encoded.warnings, [], "{}", sample.name);
    }
    figure("requests that went back byte for byte", requests.len());
}

/// Own Seals come out of a request that goes on from their reply, equal and in order; each on the part that holds the same words.
#[test]
fn law_1_own_seals_survive_decode_and_encode() {
    let mut seals = 0;
    for sample in samples().iter().filter(|sample| !sample.is_request()) {
        let reply = sample.reply();
        let mut call = Call::new(sample.asked.target.clone());
        call.extend([user_text("Go on.")]);
        call.extend(reply.items.clone());
        let encoded = sample.codec.encode(&call).unwrap();
        let again = sample.codec.decode_request(&encoded.request, &sample.asked);
        let again = again.unwrap_or_else(|error| panic!("{}: {error}", sample.name));
        let sealed = |items: &[Item]| -> Vec<(Bytes, String)> {
            let seals =
                items.iter().flat_map(|item| item.seals.iter().map(move |seal| (item, seal)));
            seals.map(|(item, seal)| (seal.reveal_to_tenant().clone(), kind_of(item))).collect()
        };
        assert_eq!(sealed(&again.items), sealed(&reply.items), "{}", sample.name);
        seals += sealed(&reply.items).len();
    }
    figure("own Seals that survived", seals);
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

fn user_text(text: &str) -> Item {
    Item::new("said", throughline_core::Place::default(), Role::User, Body::Text(Arc::from(text)))
}

#[test]
fn law_2_foreign_seals_and_thoughts_never_reach_another_provider() {
    let mut pairs = 0;
    for sample in samples() {
        let items = if sample.is_request() { sample.call().items } else { sample.reply().items };
        for (codec, to) in targets() {
            if to.origin.provider == sample.asked.target.origin.provider {
                continue;
            }
            let mut call = Call::new(to);
            call.extend(items.clone());
            let body = codec.encode(&call).unwrap().request.body;
            pairs += 1;
            let holds = |needle: &[u8]| needle.len() >= 12 && find(&body, needle);
            for item in &call.items {
                for seal in &item.seals {
                    assert!(
                        !holds(seal.reveal_to_tenant()),
                        "{} to {}: {seal}",
                        sample.name,
                        codec.wire()
                    );
                }
                if let Body::Thought(thought) = &item.body
                    && item.origin.is_some()
                {
                    let said = throughline_core::json::string(&thought.content);
                    let words = said.as_str().trim_matches('"').as_bytes().to_vec();
                    let is_also_text = call.items.iter().any(|other| {
                        !matches!(other.body, Body::Thought(_))
                            && other
                                .native
                                .as_ref()
                                .is_some_and(|native| find(native.json.bytes(), &words))
                    });
                    assert!(
                        is_also_text || !holds(&words),
                        "{} to {}: a thought",
                        sample.name,
                        codec.wire()
                    );
                }
            }
        }
    }
    figure("foreign requests searched for seals and thoughts", pairs);
}

fn find(haystack: &[u8], needle: &[u8]) -> bool {
    memchr::memmem::find(haystack, needle).is_some()
}

#[test]
fn law_3_every_item_and_seal_has_a_fate() {
    for sample in samples() {
        let (system, items) = if sample.is_request() {
            let call = sample.call();
            (call.system, call.items)
        } else {
            (Vec::new(), sample.reply().items)
        };
        for (codec, to) in targets() {
            let mut call = Call::new(to);
            call.system.clone_from(&system);
            call.items.clone_from(&items);
            let encoded = codec.encode(&call).unwrap();
            let fates = encoded.fates.iter().map(|fate| (&fate.item, fate.seals.len()));
            let expected =
                call.system.iter().chain(&call.items).map(|item| (&item.id, item.seals.len()));
            assert!(fates.eq(expected), "{} to {}", sample.name, codec.wire());
            assert_eq!(
                codec.encode(&call).unwrap().request,
                encoded.request,
                "encode is deterministic"
            );
        }
    }
}

#[test]
fn law_5_any_split_of_a_stream_gives_the_same_events() {
    let samples: Vec<_> =
        samples().into_iter().filter(|s| matches!(s.kind, Kind::Stream(_))).collect();
    let mut runner = TestRunner::new(proptest_config(4));
    for sample in &samples {
        let Kind::Stream(framing) = sample.kind else { continue };
        let read = |chunks: Vec<&[u8]>| {
            stream_events(sample.codec, &sample.asked, framing, chunks).unwrap()
        };
        let whole = read(vec![&sample.bytes[..]]);
        let bytewise = read(sample.bytes.chunks(1).collect());
        assert!(bytewise == whole, "{}: byte by byte", sample.name);
        runner
            .run(&chunks(sample.bytes.len()), |cuts| {
                prop_assert!(read(split(&sample.bytes, &cuts)) == whole, "{}", sample.name);
                Ok(())
            })
            .unwrap();
    }
    figure("streams cut at random", samples.len());
}

#[test]
fn law_5_a_reply_survives_its_own_stream() {
    let mut replies = 0;
    for sample in samples().iter().filter(|sample| !sample.is_request()) {
        let reply = sample.reply();
        if reply.stop == Stop::Cut {
            continue;
        }
        let mut bytes = Vec::new();
        let mut encoder = StreamEncoder::new(sample.codec);
        for event in events_of(&reply) {
            encoder.push(&event, &mut bytes).unwrap();
        }
        encoder.finish(&mut bytes);
        let asked = &sample.asked;
        let events = stream_events(sample.codec, asked, sample.codec.framing(), [&bytes[..]]);
        let events = events.unwrap_or_else(|error| panic!("{}: {error}", sample.name));
        same_reply(reply_in(&events).unwrap(), &reply, &sample.name);
        replies += 1;
    }
    figure("replies that survived their own stream", replies);
}

#[test]
fn law_5_a_reply_survives_its_own_response() {
    for sample in samples().iter().filter(|sample| !sample.is_request()) {
        let reply = sample.reply();
        if reply.stop == Stop::Cut {
            continue;
        }
        let body = sample.codec.encode_reply(&reply).unwrap();
        let again = sample.codec.decode_reply(&body, &sample.asked);
        let again = again.unwrap_or_else(|error| panic!("{}: {error}", sample.name));
        if sample.codec.wire() == Wire::OPENAI_CHAT {
            // A chat message has a slot for each kind of part, so a whole one cannot tell in which order they came.
            same_reply(&by_slot(again), &by_slot(reply), &sample.name);
        } else {
            same_reply(&again, &reply, &sample.name);
        }
    }
}

/// The Reply with its Items in the order of the slots, and its texts as one.
fn by_slot(mut reply: Reply) -> Reply {
    let (texts, mut others): (Vec<_>, Vec<_>) =
        reply.items.into_iter().partition(|item| matches!(item.body, Body::Text(_)));
    let said: String = texts.iter().filter_map(|item| item.visible()).collect();
    others.sort_by_key(|item| matches!(item.body, Body::Call(_)));
    others.push(user_text(&said));
    reply.items = others;
    reply
}

/// Equal in everything that a reader can tell: what was said, sealed and where, in which order, and how it ended.
fn same_reply(ours: &Reply, theirs: &Reply, name: &str) {
    let told = |reply: &Reply| -> Vec<_> {
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
    assert_eq!(told(ours), told(theirs), "{name}");
    assert_eq!(
        (&ours.stop, ours.usage, &ours.id),
        (&theirs.stop, theirs.usage, &theirs.id),
        "{name}"
    );
}

#[test]
fn law_5_a_stream_that_ended_early_yields_nothing_replayable() {
    let mut runner = TestRunner::new(proptest_config(8));
    for sample in samples().iter().filter(|sample| matches!(sample.kind, Kind::Stream(_))) {
        let Kind::Stream(framing) = sample.kind else { continue };
        runner
            .run(&(0..sample.bytes.len()), |end| {
                let cut = &sample.bytes[..end];
                let Ok(events) = stream_events(sample.codec, &sample.asked, framing, [cut]) else {
                    return Ok(());
                };
                let reply = reply_in(&events).expect("a stream ends in a reply");
                if reply.stop != Stop::Cut {
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

/// The request of a longer conversation begins with the messages of the shorter one.
#[test]
fn law_9_the_next_request_extends_the_last() {
    let mut extended = 0;
    for sample in samples().iter().filter(|sample| sample.is_request()) {
        let call = sample.call();
        let mut wires = targets();
        wires.push((sample.codec, sample.asked.target.clone()));
        for (codec, to) in wires {
            let messages = |items: &[Item]| -> Vec<Json> {
                let mut part = Call::new(to.clone());
                part.system.clone_from(&call.system);
                part.items = items.to_vec();
                let body = Tree::parse(codec.encode(&part).unwrap().request.body).unwrap();
                let key = ["messages", "input", "contents"]
                    .into_iter()
                    .find_map(|key| body.root().get(key));
                key.unwrap().elements().map(Node::json).collect()
            };
            let whole = messages(&call.items);
            // A request ends where the model speaks next.
            let ends = call.items.windows(2).enumerate().filter(|(_, pair)| {
                pair[0].role != Role::Assistant && pair[1].role == Role::Assistant
            });
            for (end, _) in ends {
                let part = messages(&call.items[..=end]);
                let begins =
                    whole.iter().zip(&part).all(|(a, b)| a == b) && part.len() <= whole.len();
                assert!(begins, "{} to {} up to item {end}", sample.name, codec.wire());
                extended += 1;
            }
        }
    }
    figure("requests that the next one extends", extended);
}

/// Members that nobody knows, in every object of a request, survive.
#[test]
fn law_14_unknown_members_survive() {
    let mut runner = TestRunner::new(proptest_config(4));
    for sample in samples().iter().filter(|sample| sample.is_request()) {
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
                let call = sample.codec.decode_request(&sent, &sample.asked).unwrap();
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

/// Where objects open, outside strings.
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
    for sample in samples().iter().filter(|s| matches!(s.kind, Kind::Stream(Framing::Sse))) {
        let mut bytes = b"data: {\"type\":\"x.unknown\",\"x\":1}\n\n".to_vec();
        bytes.extend_from_slice(&sample.bytes);
        let events =
            stream_events(sample.codec, &sample.asked, Framing::Sse, [&bytes[..]]).unwrap();
        let aliens: Vec<_> =
            events.iter().filter(|event| matches!(event, Event::Alien(_))).collect();
        assert!(!aliens.is_empty(), "{}", sample.name);
    }
}
