//! Streams elements that were decoded from the Responses wire.
//!
//! Element ids are known when the elements open, so incremental events use the final ids. The parts
//! of a message share its id. The first part that opens also opens the message, and the last part
//! that closes also closes it.

use throughline_core::{Body, CallId, Item, ThoughtKind, ToolCall};
use throughline_json::{Json, Name};

use crate::responses::stream::whole;
use crate::responses::stream::write::{
    EventFamily, LiveItem, PartPlace, ResponsesEncoder, opening_form_of, text_part,
};
use crate::responses::wire::CONTENT;
use crate::responses::{WIRE, encode};

/// The separator between the parts of a thought in the thought's text.
const APART: &str = "\n\n";

/// An open element that was decoded from the Responses wire: a message, or an element that is
/// emitted once complete.
pub(super) struct NativeElement {
    at: usize,
    /// The number of parts opened so far.
    parts: usize,
    /// Whether the message's opening event was emitted.
    is_opened: bool,
    /// The part numbers of Items that are not emitted incrementally, by Item index.
    numbers: Vec<(u32, usize)>,
    items: Vec<Item>,
}

impl ResponsesEncoder {
    /// Handles the `Opened` event of an Item from this wire.
    pub(super) fn native_opened(&mut self, index: u32, id: &Name, body: &Body) {
        let kind = match body {
            Body::Text(_) | Body::Summary { .. } => {
                let (at, number) = self.open_native_part(id);
                let is_opened = self.native_elements.get_mut(id).map(|state| &mut state.is_opened);
                if is_opened.is_some_and(|is_opened| !std::mem::replace(is_opened, true)) {
                    let element = opening_form_of(body, id);
                    self.item("response.output_item.added", at, &element);
                }
                let place = PartPlace { at, id, number };
                self.part("response.content_part.added", place, &text_part(""));
                self.live
                    .insert(index, LiveItem::new(at, id.to_string(), EventFamily::Text, number));
                return;
            }
            // A thought whose kind is not known yet is usually a summary.
            Body::Thought(thought) if thought.kind == ThoughtKind::Text => EventFamily::Thinking,
            Body::Thought(_) => EventFamily::Summary,
            Body::Call(call) if !call.custom => EventFamily::Arguments,
            _ => {
                let (_, number) = self.open_native_part(id);
                if let Some(state) = self.native_elements.get_mut(id) {
                    state.numbers.push((index, number));
                }
                return;
            }
        };
        let at = self.reserve_output_index();
        let mut body = body.clone();
        // Clients identify the call by its wire id, which may differ from the internal id.
        if let Body::Call(ToolCall { id, wire_id: Some(wire_id), .. }) = &mut body {
            *id = CallId(wire_id.clone());
        }
        self.item("response.output_item.added", at, &opening_form_of(&body, id));
        self.live.insert(index, LiveItem::new(at, id.to_string(), kind, 0));
    }

    /// Opens a part. The first part also opens the element. Returns the output index and the part
    /// number.
    fn open_native_part(&mut self, id: &Name) -> (usize, usize) {
        let next = self.outputs;
        let state = self.native_elements.entry(id.clone()).or_insert_with(|| {
            self.outputs += 1;
            let (numbers, items) = (Vec::new(), Vec::new());
            NativeElement { at: next, parts: 0, is_opened: false, numbers, items }
        });
        let number = state.parts;
        state.parts += 1;
        (state.at, number)
    }

    /// Returns the text of a delta that begins the next part of a thought; `None` if the delta
    /// continues the current part. A new part is recognised by the separator that the decoder puts
    /// before the first delta of each part.
    pub(super) fn next_part<'t>(&self, live: &LiveItem, piece: &'t str) -> Option<&'t str> {
        let is_thought = matches!(live.kind, EventFamily::Summary | EventFamily::Thinking);
        let rest = piece.strip_prefix(APART).filter(|rest| !rest.is_empty());
        rest.filter(|_| self.is_native && is_thought && live.has_text)
    }

    /// Ends a text that belongs to a message from this wire; returns `false` for any other Item.
    pub(super) fn native_part_done(&mut self, live: &LiveItem, item: &Item, text: &str) -> bool {
        if !self.native_elements.contains_key(live.id.as_str()) {
            return false;
        }
        let native = item.native_on(&WIRE).map(|native| native.json.clone());
        let is_text =
            |json: &Json| json.tree().root().get("type").is_some_and(|kind| kind.is("output_text"));
        let part = native.filter(is_text).unwrap_or_else(|| text_part(text));
        self.whole_text_done(live.place(), part.tree().root());
        self.close_native_part(&live.id, item);
        true
    }

    /// Emits a completed Item from this wire that was not emitted incrementally. Returns `false` if
    /// the element that contains the Item is not open.
    pub(super) fn native_closed(&mut self, index: u32, item: &Item) -> bool {
        let Some(native) = item.native_on(&WIRE) else { return false };
        let Some(id) = native.id.clone() else { return false };
        let Some(state) = self.native_elements.get_mut(&id) else { return false };
        let at = state.at;
        if native.slot != CONTENT {
            self.native_elements.remove(&id);
            self.write_whole_element(at, &[item]);
            return true;
        }
        let known = state.numbers.iter().find(|(opened, _)| *opened == index);
        let number = known.map_or(state.parts, |(_, number)| *number);
        state.parts = state.parts.max(number + 1);
        if !std::mem::replace(&mut state.is_opened, true)
            && let Some(envelope) = &native.envelope
        {
            let element = whole::opening_form(envelope.json.tree().root());
            self.item("response.output_item.added", at, &element);
        }
        self.message_part(PartPlace { at, id: &id, number }, native.json.tree().root());
        self.close_native_part(&id, item);
        true
    }

    /// Records a completed part. If it is the last part of its message, closes the message.
    fn close_native_part(&mut self, id: &str, item: &Item) {
        let Some(state) = self.native_elements.get_mut(id) else { return };
        state.items.push(item.clone());
        let native = item.native_on(&WIRE);
        let parts = native.and_then(|native| native.envelope.as_ref()).map(|e| e.parts);
        if state.items.len() < parts.unwrap_or(state.parts) {
            return;
        }
        if let Some(state) = self.native_elements.remove(id) {
            self.native_done(id, &state);
        }
    }

    fn native_done(&mut self, id: &str, state: &NativeElement) {
        let group: Vec<&Item> = state.items.iter().collect();
        if let Some(element) = encode::output(&group, |_| id.to_owned()) {
            self.item("response.output_item.done", state.at, &element);
        }
    }

    /// Closes messages whose remaining parts never arrived.
    pub(super) fn flush_native(&mut self) {
        let mut rest: Vec<_> = std::mem::take(&mut self.native_elements).into_iter().collect();
        rest.sort_by_key(|(_, state)| state.at);
        for (id, state) in rest {
            self.native_done(&id, &state);
        }
    }
}
