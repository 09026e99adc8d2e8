//! Encodes streamed responses.
//!
//! Texts, thoughts and calls are emitted incrementally. Elements from other wires get generated
//! ids; elements from this wire keep their own ids (`native.rs`). Parts that cannot be split, or
//! whose id is unknown until they are complete, are emitted once complete, as the full sequence of
//! events (`whole.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use throughline_core::{Body, Delta, Event, Item, Origin, Reply, StopReason};
use throughline_json::{self as json, Json, Name};

use crate::frame::Frame;
use crate::responses::stream::native::NativeElement;
use crate::responses::wire::CONTENT;
use crate::responses::{WIRE, encode};
use crate::{CodecError, Encoder};

#[derive(Default)]
pub(in crate::responses) struct ResponsesEncoder {
    sequence: u64,
    pub(super) id: Option<Name>,
    /// Whether the reply came from this wire, so that its Items have wire JSON.
    pub(super) is_native: bool,
    pub(super) outputs: usize,
    /// The Items that are being emitted incrementally, by Item index.
    pub(super) live: BTreeMap<u32, LiveItem>,
    /// The open elements from this wire, by id.
    pub(super) native_elements: BTreeMap<Name, NativeElement>,
    /// The parts of a message that came from this wire but has no id, buffered until all parts have
    /// arrived.
    waiting: Vec<Item>,
    /// The frames to return for the current event.
    frames: Vec<Frame>,
}

/// The position of a part: the output index and id of its element, and its index in the element.
#[derive(Clone, Copy)]
pub(super) struct PartPlace<'i> {
    pub(super) at: usize,
    pub(super) id: &'i str,
    pub(super) number: usize,
}

/// An Item that is being emitted incrementally.
pub(super) struct LiveItem {
    pub(super) at: usize,
    pub(super) id: String,
    pub(super) kind: EventFamily,
    /// The index of the current part in the content or summary.
    pub(super) part: usize,
    /// The text of the current part that has been received.
    pub(super) text_so_far: String,
    pub(super) has_text: bool,
}

/// The family of stream events that represents an Item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventFamily {
    Text,
    Summary,
    Thinking,
    Arguments,
}

impl Encoder for ResponsesEncoder {
    fn push(&mut self, event: &Event) -> Result<Vec<Frame>, CodecError> {
        match event {
            Event::Began { id, origin } => self.write_began(id.as_ref(), origin),
            Event::Opened { index, body, .. } if !self.is_native => {
                self.write_opened(*index, body);
            }
            Event::Opened { index, id: Some(id), body } => {
                self.native_opened(*index, id, body);
            }
            Event::Delta { index, delta } => self.write_delta(*index, delta),
            Event::Closed { index, item } => self.write_closed(*index, item),
            Event::Opened { .. } | Event::Usage(_) => {}
            Event::Ended(reply) => self.write_ended(reply),
            Event::Failed(failure) => {
                let code = failure.kind.as_deref().unwrap_or("server_error");
                let error = members! { "code": code, "message": failure.message, "param": null };
                self.push_event("error", error);
            }
            Event::Alien(json) => {
                self.frames.push(Frame::json(json.tree().root().name_of("type"), json));
            }
        }
        Ok(std::mem::take(&mut self.frames))
    }
}

impl ResponsesEncoder {
    fn push_event(&mut self, kind: &str, fill: impl FnOnce(&mut json::Object<'_>)) {
        let number = self.sequence;
        self.sequence += 1;
        let object =
            json::object(|o| fill(o.string("type", kind).number("sequence_number", number)));
        self.frames.push(Frame::json(Some(Arc::from(kind)), &object));
    }

    fn write_began(&mut self, id: Option<&Name>, origin: &Origin) {
        self.id = id.cloned();
        self.is_native = origin.wire == WIRE;
        let status = ("in_progress", None);
        let id = encode::shown_id(id.map(|id| &**id), origin);
        let empty = members! { "output": [], "usage": null };
        let response = encode::skeleton(id, &origin.answered, status, empty);
        for kind in ["response.created", "response.in_progress"] {
            self.push_event(kind, members! { "response": response });
        }
    }

    fn generated_id(&self, kind: &str, at: usize) -> String {
        encode::generated_id(kind, self.id.as_deref(), at)
    }

    pub(super) fn reserve_output_index(&mut self) -> usize {
        let at = self.outputs;
        self.outputs += 1;
        at
    }

    fn write_opened(&mut self, index: u32, body: &Body) {
        use Body::{Call, Compaction, Hosted, Media, Result, Unknown};
        let (kind, prefix) = match body {
            Body::Text(_) | Body::Summary { .. } => (EventFamily::Text, "msg"),
            Body::Thought(_) => (EventFamily::Summary, "rs"),
            // The free-text input of a custom call is emitted once complete.
            Body::Call(call) if !call.custom => (EventFamily::Arguments, "fc"),
            Call(_) | Media(_) | Result(_) | Hosted(_) | Compaction | Unknown => return,
        };
        let at = self.reserve_output_index();
        let id = self.generated_id(prefix, at);
        let element = opening_form_of(body, &id);
        self.item("response.output_item.added", at, &element);
        if kind == EventFamily::Text {
            let place = PartPlace { at, id: &id, number: 0 };
            self.part("response.content_part.added", place, &text_part(""));
        }
        self.live.insert(index, LiveItem::new(at, id, kind, 0));
    }

    fn write_delta(&mut self, index: u32, delta: &Delta) {
        let text = match delta {
            Delta::Text(text) | Delta::Thought(text) | Delta::Args(text) => text,
            // This wire sends arguments only as text, so deltas by path are emitted when the call
            // is complete.
            Delta::ArgsAt { .. } => return,
        };
        let Some(mut live) = self.live.remove(&index) else { return };
        match self.next_part(&live, text) {
            Some(rest) => {
                self.end_part(&live);
                live = LiveItem::new(live.at, live.id, live.kind, live.part + 1);
                self.write_piece(&mut live, rest);
            }
            None => self.write_piece(&mut live, text),
        }
        self.live.insert(index, live);
    }

    /// Emits a delta of an Item that is emitted incrementally.
    pub(super) fn write_piece(&mut self, live: &mut LiveItem, text: &str) {
        let is_first = !std::mem::replace(&mut live.has_text, true);
        if matches!(live.kind, EventFamily::Summary | EventFamily::Thinking) {
            live.text_so_far.push_str(text);
        }
        let place = live.place();
        match live.kind {
            EventFamily::Text => self.text_delta(place, text),
            EventFamily::Summary => {
                if is_first {
                    let part = members! { "part": summary_part("") };
                    self.part_event("response.reasoning_summary_part.added", place, part);
                }
                let delta = members! { "delta": text };
                self.part_event("response.reasoning_summary_text.delta", place, delta);
            }
            EventFamily::Thinking => {
                if is_first {
                    self.part("response.content_part.added", place, &thinking_part(""));
                }
                let delta = members! { "delta": text };
                self.part_event("response.reasoning_text.delta", place, delta);
            }
            EventFamily::Arguments => {
                let delta = "response.function_call_arguments.delta";
                self.element_event(delta, place, members! { "delta": text });
            }
        }
    }

    fn write_closed(&mut self, index: u32, item: &Item) {
        if let Some(live) = self.live.remove(&index) {
            self.close_live(live, item);
            return;
        }
        if self.native_closed(index, item) {
            return;
        }
        let part = item.native_on(&WIRE).filter(|native| native.slot == CONTENT);
        if let Some(envelope) = part.and_then(|native| native.envelope.as_ref()) {
            let is_other = |first: &Item| first.place.message != item.place.message;
            if self.waiting.first().is_some_and(is_other) {
                self.flush();
            }
            self.waiting.push(item.clone());
            if self.waiting.len() >= envelope.parts {
                self.flush();
            }
            return;
        }
        self.flush();
        let at = self.reserve_output_index();
        self.write_whole_element(at, &[item]);
    }

    /// Emits the message whose parts were buffered.
    fn flush(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        if !waiting.is_empty() {
            let at = self.reserve_output_index();
            self.write_whole_element(at, &waiting.iter().collect::<Vec<_>>());
        }
    }

    fn close_live(&mut self, mut live: LiveItem, item: &Item) {
        let arguments = item.call().map(encode::arguments);
        let text = arguments.as_deref().or(item.visible()).unwrap_or_default();
        if !live.has_text && !text.is_empty() {
            self.write_piece(&mut live, text);
        }
        match live.kind {
            EventFamily::Text if self.native_part_done(&live, item, text) => return,
            EventFamily::Text => {
                self.text_done(PartPlace { number: 0, ..live.place() }, &text_part(text));
            }
            EventFamily::Summary | EventFamily::Thinking => self.end_part(&live),
            EventFamily::Arguments => {
                let done = "response.function_call_arguments.done";
                self.element_event(done, live.place(), members! { "arguments": text });
            }
        }
        if let Some(element) = encode::output(&[item], |_| live.id.clone()) {
            self.item("response.output_item.done", live.at, &element);
        }
    }

    /// Emits the end of the current part of a thought.
    pub(super) fn end_part(&mut self, live: &LiveItem) {
        let (place, text) = (live.place(), &live.text_so_far);
        let done = members! { "text": text };
        match live.kind {
            EventFamily::Summary if live.has_text => {
                self.part_event("response.reasoning_summary_text.done", place, done);
                let part = members! { "part": summary_part(text) };
                self.part_event("response.reasoning_summary_part.done", place, part);
            }
            EventFamily::Thinking if live.has_text => {
                self.part_event("response.reasoning_text.done", place, done);
                self.part("response.content_part.done", place, &thinking_part(text));
            }
            _ => {}
        }
    }

    fn write_ended(&mut self, reply: &Reply) {
        self.flush();
        if reply.stop == StopReason::Cut {
            return;
        }
        self.flush_native();
        let response = encode::encode_reply(reply);
        let status = response.tree().root().name_of("status");
        let is_incomplete = status.as_deref() == Some("incomplete");
        let kind = if is_incomplete { "response.incomplete" } else { "response.completed" };
        self.push_event(kind, members! { "response": response });
    }

    pub(super) fn item(&mut self, kind: &str, at: usize, element: &Json) {
        self.push_event(kind, members! { "output_index": at as u64, "item": element });
    }

    pub(super) fn element_event(
        &mut self,
        kind: &str,
        place: PartPlace<'_>,
        fill: impl FnOnce(&mut json::Object<'_>),
    ) {
        self.push_event(kind, |o| {
            fill(o.string("item_id", place.id).number("output_index", place.at as u64));
        });
    }

    /// Adds an event for a part. The part's index is named `summary_index` in summary events, and
    /// `content_index` in all other events.
    pub(super) fn part_event(
        &mut self,
        kind: &str,
        place: PartPlace<'_>,
        fill: impl FnOnce(&mut json::Object<'_>),
    ) {
        let key = if kind.contains("summary") { "summary_index" } else { "content_index" };
        self.element_event(kind, place, |o| fill(o.number(key, place.number as u64)));
    }

    pub(super) fn part(&mut self, kind: &str, place: PartPlace<'_>, part: &Json) {
        self.part_event(kind, place, members! { "part": part });
    }

    pub(super) fn text_delta(&mut self, place: PartPlace<'_>, text: &str) {
        let delta = members! { "delta": text, "logprobs": [] };
        self.part_event("response.output_text.delta", place, delta);
    }

    pub(super) fn text_done(&mut self, place: PartPlace<'_>, part: &Json) {
        let text = part.tree().root().name_of("text").unwrap_or_default();
        let done = members! { "text": text, "logprobs": [] };
        self.part_event("response.output_text.done", place, done);
        self.part("response.content_part.done", place, part);
    }
}

impl LiveItem {
    pub(super) fn new(at: usize, id: String, kind: EventFamily, part: usize) -> Self {
        Self { at, id, kind, part, text_so_far: String::new(), has_text: false }
    }

    pub(super) fn place(&self) -> PartPlace<'_> {
        PartPlace { at: self.at, id: &self.id, number: self.part }
    }
}

/// Returns the form of an element for its opening event, before its content is known.
pub(super) fn opening_form_of(body: &Body, id: &str) -> Json {
    use Body::{Compaction, Hosted, Media, Result, Summary, Text, Unknown};
    json::object(|o| {
        o.string("id", id);
        match body {
            Body::Call(call) => {
                o.string("type", "function_call").string("status", "in_progress");
                o.string("call_id", &call.id.0).string("name", &call.name);
                o.string("arguments", "");
            }
            Body::Thought(_) => {
                o.string("type", "reasoning").array("summary", |_| {});
            }
            Text(_) | Summary { .. } | Media(_) | Result(_) | Hosted(_) | Compaction | Unknown => {
                o.string("type", "message").string("status", "in_progress");
                o.string("role", "assistant").array(CONTENT, |_| {});
            }
        }
    })
}

pub(super) fn thinking_part(text: &str) -> Json {
    object! { "type": "reasoning_text", "text": text }
}

pub(super) fn text_part(text: &str) -> Json {
    object! { "type": "output_text", "annotations": [], "logprobs": [], "text": text }
}

pub(super) fn summary_part(text: &str) -> Json {
    object! { "type": "summary_text", "text": text }
}
