//! Converts a complete response into an equivalent stream.
//!
//! The wire's codec decodes the response into events. The texts in the events are split into small
//! deltas, and the events are then encoded and framed.

use std::sync::Arc;

use serde_json::Value;
use throughline_codec::{CodecError, DecodeContext, FrameWriter, events_from_reply};
use throughline_core::{Body, Delta, Event, Wire};
use throughline_json::{Json, Name};

use crate::digest::Digest;
use crate::turn::{SimRequest, Turn};
use crate::wires::Endpoint;

/// Returns the chunks of the stream, one per frame.
pub(crate) fn chunks(
    endpoint: &Endpoint,
    request: &SimRequest,
    turn: &Turn,
    body: &Value,
) -> Result<Vec<Vec<u8>>, CodecError> {
    let codec = endpoint.codec;
    let context = DecodeContext::of(turn.target.clone());
    let reply = codec.decode_reply(Json::from(body).bytes(), &context)?;
    let mut encoder = codec.encoder();
    let mut frames = Vec::new();
    for event in split_deltas(events_from_reply(&reply), &codec.wire(), request.nonce) {
        frames.extend(encoder.push(&event)?);
    }
    let mut writer = FrameWriter::new((endpoint.framing)(request));
    let mut chunks = Vec::new();
    for frame in (endpoint.decorate)(frames, body) {
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

/// Splits each text into several deltas. Call arguments are split only if the wire streams them.
fn split_deltas(events: Vec<Event>, wire: &Wire, nonce: Digest) -> Vec<Event> {
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
    let deltas = |index: u32, text: &str, delta: fn(Name) -> Delta| {
        pieces(text, nonce)
            .into_iter()
            .map(move |piece| Event::Delta { index, delta: delta(piece) })
    };
    let mut split = Vec::with_capacity(events.len() * 4);
    for event in events {
        match event {
            Event::Delta { index, delta: Delta::Text(text) } => {
                split.extend(deltas(index, &text, Delta::Text));
            }
            Event::Delta { index, delta: Delta::Thought(text) } => {
                split.extend(deltas(index, &text, Delta::Thought));
            }
            Event::Opened { index, .. } => {
                split.push(event);
                if let Some((_, arguments)) = calls.iter().find(|(call, _)| *call == index) {
                    split.extend(deltas(index, arguments, Delta::Args));
                }
            }
            Event::Began { .. }
            | Event::Delta { .. }
            | Event::Closed { .. }
            | Event::Usage(_)
            | Event::Ended(_)
            | Event::Failed(_)
            | Event::Alien(_) => split.push(event),
        }
    }
    split
}

/// Splits a text into pieces of a few characters. The nonce determines the lengths of the pieces.
fn pieces(text: &str, nonce: Digest) -> Vec<Name> {
    let mut chars = text.chars().peekable();
    let mut state = nonce;
    let pieces = std::iter::from_fn(|| {
        chars.peek()?;
        state = state.and("piece");
        let length = 3 + state.below(24);
        let piece: String = chars.by_ref().take(length).collect();
        Some(Arc::from(piece))
    });
    pieces.collect()
}
