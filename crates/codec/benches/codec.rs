//! Measures decoding and encoding relative to `serde_json::from_slice::<Value>` on the same bytes
//! in the same run.
//!
//! Absolute times on shared machines are not comparable, so only the ratios matter. Each ratio
//! compares the best times of many rounds in which baseline and candidate alternate.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench is a program that measures and prints"
)]
#![allow(missing_docs, reason = "a benchmark has no public API")]

mod support;

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use throughline_codec::{Codec, DecodeContext, Framer, StreamDecoder, StreamEncoder, codec};
use throughline_core::{
    Body, Delta, Event, Item, ItemPosition, Origin, ReasoningFormat, Reply, Role, StopReason,
    Thought, ThoughtKind, Usage, Wire,
};
use throughline_json::Name;

use support::{BenchWire, ratio, rounds, subjects};

const SIZE: usize = 200_000;

fn main() {
    let rounds = rounds();
    println!(
        "ratios to serde_json::from_slice::<Value> of the same bytes; best of {rounds} rounds"
    );
    println!(
        "{:<20} {:>9} {:>14} {:>14} {:>14} {:>14}",
        "wire", "bytes", "request→Call", "Call→request", "  rebuilt", "stream→Events"
    );
    for subject in subjects() {
        measure(&subject, rounds);
    }
    println!(
        "{:<20} {:>9} {:>14} {:>14} {:>14} {:>14}",
        "target", "", "≤ 1.00", "≤ 0.60", "≤ 0.60", "≤ 1.50"
    );
}

fn measure(subject: &BenchWire, rounds: u32) {
    let codec = codec(&subject.wire).unwrap();
    let context = subject.context();
    let request = subject.request(SIZE);
    let body = request.body.clone();
    let call = codec.decode_request(&request, &context).unwrap();
    // The same conversation without source messages, so that every message is assembled from its
    // parts.
    let mut parts = call.clone();
    parts.source = None;
    for item in parts.items.iter_mut().chain(&mut parts.system) {
        if let Some(native) = &mut item.native {
            native.envelope = None;
        }
    }
    let mut parse = || drop(black_box(serde_json::from_slice::<Value>(&body).unwrap()));
    let decode = ratio(rounds, &mut parse, &mut || {
        drop(black_box(codec.decode_request(&request, &context).unwrap()));
    });
    let encode = ratio(rounds, &mut parse, &mut || drop(black_box(codec.encode(&call).unwrap())));
    let rebuild = ratio(rounds, &mut parse, &mut || drop(black_box(codec.encode(&parts).unwrap())));

    let stream = stream_of(codec, &context);
    let mut frames = Vec::new();
    Framer::new(codec.framing()).push(&stream, &mut frames).unwrap();
    let frames: Vec<Bytes> =
        frames.into_iter().map(|frame| frame.data).filter(|data| data.starts_with(b"{")).collect();
    let mut parse = || {
        for frame in &frames {
            black_box(serde_json::from_slice::<Value>(frame).unwrap());
        }
    };
    let mut read = || {
        let mut decoder = StreamDecoder::new(codec, &context);
        for chunk in stream.chunks(4096) {
            black_box(decoder.push(chunk).unwrap());
        }
        black_box(decoder.finish().unwrap());
    };
    let streamed = ratio(rounds, &mut parse, &mut read);
    println!(
        "{:<20} {:>9} {decode:>14.2} {encode:>14.2} {rebuild:>14.2} {streamed:>14.2}",
        subject.wire,
        body.len()
    );
}

/// Builds a streamed response of about 200 KB: a thought and a text, both in small deltas.
fn stream_of(codec: &dyn Codec, context: &DecodeContext) -> Vec<u8> {
    // Use an unknown wire as origin, so that every encoder emits the events incrementally.
    let origin = Origin { wire: Wire::new("bench"), ..Origin::clone(&context.target.origin) };
    let origin = Arc::new(origin);
    let piece: Arc<str> = Arc::from("twenty bytes of text");
    let mut encoder = StreamEncoder::new(codec);
    let mut bytes = Vec::new();
    let mut push = |event: Event, bytes: &mut Vec<u8>| encoder.push(&event, bytes).unwrap();
    push(Event::Began { id: Some(Name::from("reply")), origin: Arc::clone(&origin) }, &mut bytes);
    let thought = |string: &str| {
        Body::Thought(Thought::issued(string, ThoughtKind::Text, ReasoningFormat::unknown()))
    };
    let text = |string: &str| Body::Text(Arc::from(string));
    let mut items = Vec::new();
    let thinking: fn(Arc<str>) -> Delta = Delta::Thought;
    let bodies = [(thought(""), thinking), (text(""), Delta::Text)];
    for (index, (body, delta)) in (0_u32..).zip(bodies) {
        push(Event::Opened { index, id: None, body }, &mut bytes);
        let mut full_text = String::new();
        while bytes.len() < SIZE / 2 * (index as usize + 1) && full_text.len() < SIZE {
            full_text.push_str(&piece);
            push(Event::Delta { index, delta: delta(Arc::clone(&piece)) }, &mut bytes);
        }
        let body = if index == 0 { thought(&full_text) } else { text(&full_text) };
        let item = Item::new(
            format!("{index}"),
            ItemPosition { message: 0, part: index },
            Role::Assistant,
            body,
        );
        items.push(item.clone());
        push(Event::Closed { index, item: Box::new(item) }, &mut bytes);
    }
    let usage = Usage { input: 100, output: 200, ..Usage::default() };
    let reply = Reply {
        id: Some(Name::from("reply")),
        items,
        stop: StopReason::Done,
        usage,
        origin,
        extras: Vec::new(),
    };
    push(Event::Usage(usage), &mut bytes);
    push(Event::Ended(Box::new(reply)), &mut bytes);
    encoder.finish(&mut bytes);
    bytes
}
