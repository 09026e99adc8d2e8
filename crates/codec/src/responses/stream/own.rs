//! This wire's own elements, written as they come.
//!
//! Their ids are told when they open, so what goes out live is what the whole element will be called. The parts of a
//! message share its id: the first to open opens the message, and the last to close closes it.

use throughline_core::{Body, CallId, Item, Json, Name, ThoughtKind, ToolCall, Wire};

use crate::frame::Frame;
use crate::responses::encode;
use crate::responses::stream::whole;
use crate::responses::stream::write::{Flow, Live, ResponseEncoder, beginning_of, text_part};
use crate::responses::wire::CONTENT;

const WIRE: Wire = Wire::OPENAI_RESPONSES;

/// Between the parts of a thought, in its text.
const APART: &str = "\n\n";

/// One of this wire's own elements that has begun: a message, or one that is told when it is whole.
pub(super) struct OwnElement {
    at: usize,
    /// How many of its parts have begun.
    parts: usize,
    /// Whether a message has gone out as having begun.
    is_told: bool,
    /// The numbers of parts that are not live, by their Items' numbers in the answer.
    numbers: Vec<(u32, usize)>,
    /// The Items that are whole.
    items: Vec<Item>,
}

impl ResponseEncoder {
    /// One of this wire's own Items began.
    pub(super) fn own_opened(&mut self, index: u32, id: &Name, body: &Body, out: &mut Vec<Frame>) {
        let kind = match body {
            Body::Text(_) | Body::Summary { .. } => {
                let (at, number) = self.own_part(id);
                let is_told = self.own.get_mut(id).map(|own| &mut own.is_told);
                if is_told.is_some_and(|is_told| !std::mem::replace(is_told, true)) {
                    let element = beginning_of(body, id);
                    out.push(self.item("response.output_item.added", at, &element));
                }
                let part = text_part("");
                out.push(self.part("response.content_part.added", at, id, number, &part));
                self.live.insert(index, Live::new(at, id.to_string(), Flow::Text, number));
                return;
            }
            // A thought whose kind is not known yet will mostly be a summary.
            Body::Thought(thought) if thought.kind == ThoughtKind::Text => Flow::Thinking,
            Body::Thought(_) => Flow::Summary,
            Body::Call(call) if !call.custom => Flow::Arguments,
            Body::Call(_)
            | Body::Media(_)
            | Body::Result(_)
            | Body::Hosted(_)
            | Body::Compaction
            | Body::Unknown => {
                let (_, number) = self.own_part(id);
                if let Some(own) = self.own.get_mut(id) {
                    own.numbers.push((index, number));
                }
                return;
            }
        };
        let at = self.place();
        let mut body = body.clone();
        // The client knows the call by the wire's id for it, which need not be ours.
        if let Body::Call(ToolCall { id, wire_id: Some(wire_id), .. }) = &mut body {
            *id = CallId(wire_id.clone());
        }
        out.push(self.item("response.output_item.added", at, &beginning_of(&body, id)));
        self.live.insert(index, Live::new(at, id.to_string(), kind, 0));
    }

    /// Begins another part of an element, and the element with its first: the element's place, and the part's number.
    fn own_part(&mut self, id: &Name) -> (usize, usize) {
        let next = self.outputs;
        let own = self.own.entry(id.clone()).or_insert_with(|| {
            self.outputs += 1;
            let (numbers, items) = (Vec::new(), Vec::new());
            OwnElement { at: next, parts: 0, is_told: false, numbers, items }
        });
        let number = own.parts;
        own.parts += 1;
        (own.at, number)
    }

    /// What a piece says in the next part of a thought; nothing where it goes on with this one. The decoder puts what
    /// stands between two parts before the first piece of the second.
    pub(super) fn next_part<'t>(&self, live: &Live, piece: &'t str) -> Option<&'t str> {
        let is_thought = matches!(live.kind, Flow::Summary | Flow::Thinking);
        let rest = piece.strip_prefix(APART).filter(|rest| !rest.is_empty());
        rest.filter(|_| self.is_native && is_thought && live.has_said)
    }

    /// Ends a live text where it is a part of one of this wire's own messages; false where it is not.
    pub(super) fn own_part_done(
        &mut self,
        live: &Live,
        item: &Item,
        text: &str,
        out: &mut Vec<Frame>,
    ) -> bool {
        if !self.own.contains_key(live.id.as_str()) {
            return false;
        }
        let native = item.native_on(&WIRE).map(|native| native.json.clone());
        let is_text =
            |json: &Json| json.tree().root().get("type").is_some_and(|kind| kind.is("output_text"));
        let part = native.filter(is_text).unwrap_or_else(|| text_part(text));
        self.whole_text_done(live.at, &live.id, live.part, part.tree().root(), out);
        self.own_item(&live.id, item, out);
        true
    }

    /// Writes an Item of this wire's own that is whole and was not live; false where its element has not begun.
    pub(super) fn own_closed(&mut self, index: u32, item: &Item, out: &mut Vec<Frame>) -> bool {
        let Some(native) = item.native_on(&WIRE) else { return false };
        let Some(id) = native.id.clone() else { return false };
        let Some(own) = self.own.get_mut(&id) else { return false };
        let at = own.at;
        if native.slot != CONTENT {
            self.own.remove(&id);
            self.whole(at, &[item], out);
            return true;
        }
        let known = own.numbers.iter().find(|(opened, _)| *opened == index);
        let number = known.map_or(own.parts, |(_, number)| *number);
        own.parts = own.parts.max(number + 1);
        if !std::mem::replace(&mut own.is_told, true)
            && let Some(envelope) = &native.envelope
        {
            let element = whole::beginning(envelope.json.tree().root());
            out.push(self.item("response.output_item.added", at, &element));
        }
        self.message_part(at, &id, number, native.json.tree().root(), out);
        self.own_item(&id, item, out);
        true
    }

    /// Notes that a part of a message is whole, and closes the message with its last.
    fn own_item(&mut self, id: &str, item: &Item, out: &mut Vec<Frame>) {
        let Some(own) = self.own.get_mut(id) else { return };
        own.items.push(item.clone());
        let native = item.native_on(&WIRE);
        let parts = native.and_then(|native| native.envelope.as_ref()).map(|e| e.parts);
        if own.items.len() < parts.unwrap_or(own.parts) {
            return;
        }
        if let Some(own) = self.own.remove(id) {
            self.own_done(id, &own, out);
        }
    }

    fn own_done(&mut self, id: &str, own: &OwnElement, out: &mut Vec<Frame>) {
        let group: Vec<&Item> = own.items.iter().collect();
        if let Some(element) = encode::output(&group, |_| id.to_owned()) {
            out.push(self.item("response.output_item.done", own.at, &element));
        }
    }

    /// Closes the messages some of whose parts never came.
    pub(super) fn flush_own(&mut self, out: &mut Vec<Frame>) {
        let mut rest: Vec<_> = std::mem::take(&mut self.own).into_iter().collect();
        rest.sort_by_key(|(_, own)| own.at);
        for (id, own) in rest {
            self.own_done(&id, &own, out);
        }
    }
}
