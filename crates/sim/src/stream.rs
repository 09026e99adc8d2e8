//! A whole answer as the stream that it would have come in.
//!
//! The answer is read by its wire's codec, told as Events, cut into pieces of the size that models speak in, and framed.

use std::sync::Arc;

use throughline_codec::{Asked, CodecError, FrameWriter, Framing, events_of};
use throughline_core::{Body, Delta, Event, Json, Name, Target, Wire};

use crate::digest::Mark;
use crate::wires::Endpoint;

/// The chunks of the stream: one for each frame.
pub(crate) fn chunks(
    endpoint: &dyn Endpoint,
    whole: &Json,
    target: &Target,
    framing: Framing,
    nonce: Mark,
) -> Result<Vec<Vec<u8>>, CodecError> {
    let codec = endpoint.codec();
    let reply = codec.decode_reply(whole.bytes(), &Asked::of(target.clone()))?;
    let mut encoder = codec.encoder();
    let mut frames = Vec::new();
    for event in in_pieces(events_of(&reply), &codec.wire(), nonce) {
        frames.extend(encoder.push(&event)?);
    }
    let mut writer = FrameWriter::new(framing);
    let mut chunks = Vec::new();
    for frame in endpoint.dress(frames, whole) {
        let mut chunk = Vec::new();
        writer.write(&frame, &mut chunk);
        chunks.push(chunk);
    }
    let mut end = Vec::new();
    writer.finish(&mut end);
    chunks.push(end);
    chunks.retain(|chunk| !chunk.is_empty());
    Ok(chunks)
}

/// The same events with every text in several deltas, and the arguments of calls as well where the wire has deltas of them.
fn in_pieces(events: Vec<Event>, wire: &Wire, nonce: Mark) -> Vec<Event> {
    let mut calls: Vec<(u32, Name)> = Vec::new();
    for event in &events {
        if let Event::Closed { index, item } = event
            && let Body::Call(call) = &item.body
            && *wire != Wire::GEMINI
            && !call.custom
        {
            calls.push((*index, Arc::from(call.args.as_str())));
        }
    }
    let mut told = Vec::with_capacity(events.len() * 4);
    for event in events {
        match event {
            Event::Delta { index, delta: Delta::Text(text) } => {
                told.extend(
                    pieces(&text, nonce)
                        .map(|piece| Event::Delta { index, delta: Delta::Text(piece) }),
                );
            }
            Event::Delta { index, delta: Delta::Thought(text) } => {
                told.extend(
                    pieces(&text, nonce)
                        .map(|piece| Event::Delta { index, delta: Delta::Thought(piece) }),
                );
            }
            Event::Opened { index, .. } => {
                told.push(event);
                let arguments = calls.iter().find(|(call, _)| *call == index);
                for piece in arguments.into_iter().flat_map(|(_, text)| pieces(text, nonce)) {
                    told.push(Event::Delta { index, delta: Delta::Args(piece) });
                }
            }
            Event::Began { .. }
            | Event::Delta { .. }
            | Event::Closed { .. }
            | Event::Usage(_)
            | Event::Ended(_)
            | Event::Failed(_)
            | Event::Alien(_) => told.push(event),
        }
    }
    told
}

/// A text in pieces of a few letters, cut by the nonce and never inside a letter.
fn pieces(text: &str, nonce: Mark) -> impl Iterator<Item = Arc<str>> {
    let mut letters = text.chars().peekable();
    let mut state = nonce;
    std::iter::from_fn(move || {
        letters.peek()?;
        state = state.and("piece");
        let length = 3 + state.below(24);
        let piece: String = letters.by_ref().take(length).collect();
        Some(Arc::from(piece))
    })
    .collect::<Vec<_>>()
    .into_iter()
}
