//! Encodes streamed responses as chunks of whole parts; the last chunk has the finish reason.

use bytes::Bytes;
use std::sync::Arc;
use throughline_core::{Body, Delta, Event, Failure, Item, Origin, Wire};
use throughline_json::{self as json, Json, Name};

use crate::frame::Frame;
use crate::gemini::encode::parts::text_part;
use crate::gemini::encode::reply;
use crate::gemini::wire;
use crate::{CodecError, Encoder};

/// Encodes a streamed response. Each part is held until the next one arrives, for two reasons: the
/// signature of a text is known only when it closes, and the last part shares its chunk with the
/// finish reason.
#[derive(Default)]
pub(in crate::gemini) struct GeminiEncoder {
    id: Option<Name>,
    origin: Option<Arc<Origin>>,
    held: Option<HeldPart>,
    /// For the last bare text written: whether it is a thought. The next part would join it.
    open: Option<bool>,
    /// The Item whose text is open, and whether some of it was written.
    under_way: Option<(u32, bool)>,
}

struct HeldPart {
    index: u32,
    part: Json,
    /// For a bare text: whether it is a thought.
    bare: Option<bool>,
    /// Whether the part starts an Item.
    begins: bool,
}

impl Encoder for GeminiEncoder {
    fn push(&mut self, event: &Event) -> Result<Vec<Frame>, CodecError> {
        Ok(match event {
            Event::Began { id, origin } => {
                self.id.clone_from(id);
                self.origin = Some(Arc::clone(origin));
                Vec::new()
            }
            Event::Opened { .. } | Event::Usage(_) => Vec::new(),
            Event::Delta { index, delta } => match delta {
                Delta::Text(text) => self.write_text(*index, text_part(text), false),
                Delta::Thought(text) => self.write_text(*index, reply::thought_part(text), true),
                // Arguments are emitted when the call is complete.
                Delta::Args(_) | Delta::ArgsAt { .. } => Vec::new(),
            },
            Event::Closed { index, item } => self.write_closed(*index, item),
            Event::Ended(ended) => {
                self.id.clone_from(&ended.id);
                self.origin = Some(Arc::clone(&ended.origin));
                let parts = self.release();
                let is_empty = parts.is_empty() && ended.stop == throughline_core::StopReason::Cut;
                let last = json::object(|o| {
                    let (id, model) = (self.id.as_deref(), &ended.origin.answered);
                    reply::write_chunk(o, id, model, Some(ended), &parts);
                });
                if is_empty { Vec::new() } else { vec![frame(&last)] }
            }
            Event::Failed(failure) => self.write(vec![frame(&failure_json(failure))]),
            Event::Alien(json) => self.write(vec![frame(json)]),
        })
    }
}

impl GeminiEncoder {
    fn write_text(&mut self, index: u32, part: Json, is_thought: bool) -> Vec<Frame> {
        let frames = self.write(Vec::new());
        let begins = self.under_way.is_none_or(|(open, _)| open != index);
        self.under_way = Some((index, !begins));
        self.held = Some(HeldPart { index, part, bare: Some(is_thought), begins });
        frames
    }

    fn write_closed(&mut self, index: u32, item: &Item) -> Vec<Frame> {
        let is_under_way = self.under_way.take_if(|(open, _)| *open == index);
        let is_bare = !has_other_members(item);
        match (&mut self.held, is_under_way) {
            // None of the text was written, so the complete part replaces the held one.
            (Some(held), Some((_, false))) if held.index == index => {
                held.part = reply::response_part(item).unwrap_or_else(|| held.part.clone());
                held.bare = held.bare.filter(|_| is_bare);
                Vec::new()
            }
            // Some text was already written, so only the rest can be signed.
            (Some(held), Some((_, true))) if held.index == index => {
                let signature = item.native_on(&Wire::GEMINI).and_then(|native| {
                    let tree = native.json.tree();
                    let value = wire::get(tree.root(), "thoughtSignature")?;
                    value.name()
                });
                if let Some(signature) = signature {
                    held.part = wire::signed_with(&held.part, Some(&signature));
                    held.bare = None;
                }
                Vec::new()
            }
            _ => {
                let Some(part) = reply::response_part(item) else { return Vec::new() };
                let frames = self.write(Vec::new());
                let bare = match &item.body {
                    Body::Text(_) if is_bare => Some(false),
                    Body::Thought(_) if is_bare => Some(true),
                    _ => None,
                };
                self.held = Some(HeldPart { index, part, bare, begins: true });
                frames
            }
        }
    }

    /// Returns the held part for a chunk. An empty text precedes a part that would otherwise join
    /// the previous one, because only the first part of a chunk is joined.
    fn release(&mut self) -> Vec<Json> {
        let Some(held) = self.held.take() else { return Vec::new() };
        let joins = held.begins && held.bare.is_some() && held.bare == self.open;
        self.open = held.bare;
        let end = match held.bare {
            Some(true) => reply::thought_part(""),
            Some(false) | None => text_part(""),
        };
        joins.then_some(end).into_iter().chain([held.part]).collect()
    }

    /// Returns the held part as a frame, followed by these frames.
    fn write(&mut self, frames: Vec<Frame>) -> Vec<Frame> {
        let parts = self.release();
        let held = (!parts.is_empty()).then(|| {
            let model = self.origin.as_ref().map(|origin| Name::clone(&origin.answered));
            frame(&json::object(|o| {
                reply::write_chunk(o, self.id.as_deref(), &model.unwrap_or_default(), None, &parts);
            }))
        });
        held.into_iter().chain(frames).collect()
    }
}

/// Returns whether an Item's part has members besides its text.
fn has_other_members(item: &Item) -> bool {
    item.native_on(&Wire::GEMINI).is_some_and(|native| {
        let tree = native.json.tree();
        let mut members = tree.root().members();
        members.any(|(key, _)| !key.is("text") && !key.is("thought"))
    })
}

fn failure_json(failure: &Failure) -> Json {
    object! {
        "error": {
            "code": u64::from(failure.status.unwrap_or(500)), "message": failure.message,
            "status": failure.kind.as_deref().unwrap_or("INTERNAL"),
        },
    }
}

fn frame(json: &Json) -> Frame {
    let data: Bytes = json.bytes().clone();
    Frame { event: None, data, exception: false }
}
