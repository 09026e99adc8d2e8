//! Streamed answers, written as Google writes them: chunks with whole parts, the last of which tells how it ended.

use bytes::Bytes;
use std::sync::Arc;
use throughline_core::{Body, Delta, Event, Failure, Item, Json, Name, Origin, Wire, json};

use crate::frame::Frame;
use crate::gemini::encode::parts::text_part;
use crate::gemini::encode::reply;
use crate::gemini::wire;
use crate::{CodecError, Encoder};

/// Writes a streamed answer. A part is held until the next one comes: a text may turn out to be signed, which is told
/// when it closes, and the last part shares its chunk with the ending.
#[derive(Default)]
pub(in crate::gemini) struct ChunkEncoder {
    id: Option<Name>,
    origin: Option<Arc<Origin>>,
    held: Option<Held>,
    /// Of the bare text that was written last: whether it is thought. The next part would join it.
    open: Option<bool>,
    /// The Item whose text is under way, and whether some of it was written.
    under_way: Option<(u32, bool)>,
}

struct Held {
    index: u32,
    part: Json,
    /// For a bare text: whether it is thought.
    bare: Option<bool>,
    /// Whether an Item begins with it.
    begins: bool,
}

impl Encoder for ChunkEncoder {
    fn push(&mut self, event: &Event) -> Result<Vec<Frame>, CodecError> {
        Ok(match event {
            Event::Began { id, origin } => {
                self.id.clone_from(id);
                self.origin = Some(Arc::clone(origin));
                Vec::new()
            }
            Event::Opened { .. } | Event::Usage(_) => Vec::new(),
            Event::Delta { index, delta } => match delta {
                Delta::Text(text) => self.text(*index, text_part(text), false),
                Delta::Thought(text) => self.text(*index, reply::thought_part(text), true),
                // Arguments are told when the call is whole.
                Delta::Args(_) | Delta::ArgsAt { .. } => Vec::new(),
            },
            Event::Closed { index, item } => self.closed(*index, item),
            Event::Ended(ended) => {
                self.id.clone_from(&ended.id);
                self.origin = Some(Arc::clone(&ended.origin));
                let parts = self.release();
                let is_empty = parts.is_empty() && ended.stop == throughline_core::Stop::Cut;
                let last = json::object(|o| {
                    let (id, model) = (self.id.as_deref(), &ended.origin.answered);
                    reply::chunk(o, id, model, Some(ended), &parts);
                });
                if is_empty { Vec::new() } else { vec![frame(&last)] }
            }
            Event::Failed(failure) => self.write(vec![frame(&failed(failure))]),
            Event::Alien(json) => self.write(vec![frame(json)]),
        })
    }
}

impl ChunkEncoder {
    fn text(&mut self, index: u32, part: Json, is_thought: bool) -> Vec<Frame> {
        let frames = self.write(Vec::new());
        let begins = self.under_way.is_none_or(|(open, _)| open != index);
        self.under_way = Some((index, !begins));
        self.held = Some(Held { index, part, bare: Some(is_thought), begins });
        frames
    }

    fn closed(&mut self, index: u32, item: &Item) -> Vec<Frame> {
        let is_under_way = self.under_way.take_if(|(open, _)| *open == index);
        let is_bare = !has_more_to_tell(item);
        match (&mut self.held, is_under_way) {
            // All of the text is still here: the part goes out as it is.
            (Some(held), Some((_, false))) if held.index == index => {
                held.part = reply::part(item).unwrap_or_else(|| held.part.clone());
                held.bare = held.bare.filter(|_| is_bare);
                Vec::new()
            }
            // Some of it was written, so that only the rest can be signed.
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
                let Some(part) = reply::part(item) else { return Vec::new() };
                let frames = self.write(Vec::new());
                let bare = match &item.body {
                    Body::Text(_) if is_bare => Some(false),
                    Body::Thought(_) if is_bare => Some(true),
                    _ => None,
                };
                self.held = Some(Held { index, part, bare, begins: true });
                frames
            }
        }
    }

    /// What is held, as the parts of a chunk. Before a text that would be taken for the rest of the last one, an empty
    /// piece ends that one: only the first part of a chunk is joined.
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

    /// Writes what is held, and then these.
    fn write(&mut self, frames: Vec<Frame>) -> Vec<Frame> {
        let parts = self.release();
        let held = (!parts.is_empty()).then(|| {
            let model = self.origin.as_ref().map(|origin| Name::clone(&origin.answered));
            frame(&json::object(|o| {
                reply::chunk(o, self.id.as_deref(), &model.unwrap_or_default(), None, &parts);
            }))
        });
        held.into_iter().chain(frames).collect()
    }
}

/// Whether an Item's part has more than its text.
fn has_more_to_tell(item: &Item) -> bool {
    item.native_on(&Wire::GEMINI).is_some_and(|native| {
        let tree = native.json.tree();
        let mut members = tree.root().members();
        members.any(|(key, _)| !key.is("text") && !key.is("thought"))
    })
}

fn failed(failure: &Failure) -> Json {
    json::object(|o| {
        o.object("error", |o| {
            o.number("code", u64::from(failure.status.unwrap_or(500)));
            o.string("message", &failure.message);
            o.string("status", failure.kind.as_deref().unwrap_or("INTERNAL"));
        });
    })
}

fn frame(json: &Json) -> Frame {
    let data: Bytes = json.bytes().clone();
    Frame { event: None, data, exception: false }
}
