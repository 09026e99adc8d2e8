//! Encodes streamed responses. Chunks contain whole parts, and the last chunk has the finish
//! reason.

use std::sync::Arc;

use throughline_core::{Body, Delta, Event, Failure, Item, Origin, Reply, StopReason};
use throughline_json::{self as json, Json, Name};

use crate::frame::Frame;
use crate::gemini::encode::parts::text_part;
use crate::gemini::encode::reply;
use crate::gemini::{WIRE, wire};
use crate::{CodecError, Encoder};

/// Encodes a streamed response. Each part is buffered until the next part arrives, for two reasons.
/// A text's signature is known only when the text closes, and the last part must share its chunk
/// with the finish reason.
#[derive(Default)]
pub(in crate::gemini) struct GeminiEncoder {
    id: Option<Name>,
    origin: Option<Arc<Origin>>,
    held: Option<HeldPart>,
    /// Whether the last written part is a bare thought (`true`) or a bare text (`false`). A client
    /// would join such a part with a following part of the same kind.
    open: Option<bool>,
    /// The index of the Item whose text is open, and whether some of its text was already written.
    under_way: Option<(u32, bool)>,
    /// The frames to return for the current event.
    frames: Vec<Frame>,
}

struct HeldPart {
    index: u32,
    part: Json,
    /// Whether a bare text is a thought; `None` if the part is not a bare text.
    bare: Option<bool>,
    /// Whether the part starts an Item.
    begins: bool,
}

impl Encoder for GeminiEncoder {
    fn push(&mut self, event: &Event) -> Result<Vec<Frame>, CodecError> {
        match event {
            Event::Began { id, origin } => {
                self.id.clone_from(id);
                self.origin = Some(Arc::clone(origin));
            }
            Event::Opened { .. } | Event::Usage(_) => {}
            Event::Delta { index, delta } => match delta {
                Delta::Text(text) => self.write_text(*index, text_part(text), false),
                Delta::Thought(text) => self.write_text(*index, reply::thought_part(text), true),
                // Arguments are emitted when the call is complete.
                Delta::Args(_) | Delta::ArgsAt { .. } => {}
            },
            Event::Closed { index, item } => self.write_closed(*index, item),
            Event::Ended(ended) => {
                let parts = self.release();
                if !parts.is_empty() || ended.stop != StopReason::Cut {
                    let (id, model) = (ended.id.as_deref(), &ended.origin.answered);
                    self.write_chunk(id, model, Some(ended), &parts);
                }
            }
            Event::Failed(failure) => {
                self.flush();
                self.frames.push(Frame::json(None, &failure_json(failure)));
            }
            Event::Alien(json) => {
                self.flush();
                self.frames.push(Frame::json(None, json));
            }
        }
        Ok(std::mem::take(&mut self.frames))
    }
}

impl GeminiEncoder {
    fn write_text(&mut self, index: u32, part: Json, is_thought: bool) {
        self.flush();
        let begins = self.under_way.is_none_or(|(open, _)| open != index);
        self.under_way = Some((index, !begins));
        self.held = Some(HeldPart { index, part, bare: Some(is_thought), begins });
    }

    fn write_closed(&mut self, index: u32, item: &Item) {
        let is_under_way = self.under_way.take_if(|(open, _)| *open == index);
        let is_bare = !has_other_members(item);
        match (&mut self.held, is_under_way) {
            // None of the text was written, so the complete part replaces the buffered part.
            (Some(held), Some((_, false))) if held.index == index => {
                held.part = reply::response_part(item).unwrap_or_else(|| held.part.clone());
                held.bare = held.bare.filter(|_| is_bare);
            }
            // Some of the text was already written, so only the rest can be signed.
            (Some(held), Some((_, true))) if held.index == index => {
                let tree = item.native_on(&WIRE).map(|native| native.json.tree());
                let signature =
                    tree.as_ref().and_then(|tree| wire::name_of(tree.root(), "thoughtSignature"));
                if signature.is_some() {
                    held.part = wire::signed_with(&held.part, signature.as_deref());
                    held.bare = None;
                }
            }
            _ => {
                let Some(part) = reply::response_part(item) else { return };
                self.flush();
                let bare = match &item.body {
                    Body::Text(_) if is_bare => Some(false),
                    Body::Thought(_) if is_bare => Some(true),
                    _ => None,
                };
                self.held = Some(HeldPart { index, part, bare, begins: true });
            }
        }
    }

    /// Returns the buffered part as the parts of a chunk. Clients join the first part of a chunk
    /// with the last part of the previous chunk. If the two are separate Items, an empty text is
    /// inserted to keep them apart.
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

    /// Writes the buffered part as a chunk.
    fn flush(&mut self) {
        let parts = self.release();
        if !parts.is_empty() {
            let model = self.origin.as_ref().map(|origin| Name::clone(&origin.answered));
            let id = self.id.clone();
            self.write_chunk(id.as_deref(), &model.unwrap_or_default(), None, &parts);
        }
    }

    fn write_chunk(
        &mut self,
        id: Option<&str>,
        model: &str,
        ended: Option<&Reply>,
        parts: &[Json],
    ) {
        let chunk = json::object(|o| reply::write_chunk(o, id, model, ended, parts));
        self.frames.push(Frame::json(None, &chunk));
    }
}

/// Returns whether an Item's part has members besides its text.
fn has_other_members(item: &Item) -> bool {
    item.native_on(&WIRE).is_some_and(|native| {
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
