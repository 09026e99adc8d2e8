//! Encodes streamed responses.
//!
//! Texts, thoughts and calls are emitted incrementally: elements of other wires with generated ids,
//! elements of this wire with their own ids (`native.rs`). Parts that cannot be split, or whose id
//! is unknown until they are complete, are emitted when complete, in the full sequence of events
//! (`whole.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use throughline_core::{Body, Delta, Event, Item, Origin, Reply, StopReason, Wire};
use throughline_json::{self as json, Json, Name};

use crate::frame::Frame;
use crate::responses::encode;
use crate::responses::stream::native::NativeElement;
use crate::responses::wire::CONTENT;
use crate::{CodecError, Encoder};

const WIRE: Wire = Wire::OPENAI_RESPONSES;

/// Encodes a streamed response.
#[derive(Default)]
pub(in crate::responses) struct ResponsesEncoder {
    sequence: u64,
    pub(super) id: Option<Name>,
    /// Whether the Items carry their wire JSON.
    pub(super) is_native: bool,
    /// Number of elements opened.
    pub(super) outputs: usize,
    /// Items that are emitted incrementally.
    pub(super) live: BTreeMap<u32, LiveItem>,
    /// Open elements of this wire, by id.
    pub(super) own: BTreeMap<Name, NativeElement>,
    /// Parts of a message of this wire that has no id, until all have arrived.
    waiting: Vec<Item>,
}

/// An Item that is emitted incrementally.
pub(super) struct LiveItem {
    pub(super) at: usize,
    pub(super) id: String,
    pub(super) kind: EventFamily,
    /// Number of the current part in the content or summary.
    pub(super) part: usize,
    /// Text of the current part.
    pub(super) said: String,
    pub(super) has_said: bool,
}

/// The event family in which an Item is emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventFamily {
    Text,
    Summary,
    Thinking,
    Arguments,
}

impl Encoder for ResponsesEncoder {
    fn push(&mut self, event: &Event) -> Result<Vec<Frame>, CodecError> {
        let mut out = Vec::new();
        match event {
            Event::Began { id, origin } => self.write_began(id.as_ref(), origin, &mut out),
            Event::Opened { index, body, .. } if !self.is_native => {
                self.write_opened(*index, body, &mut out);
            }
            Event::Opened { index, id: Some(id), body } => {
                self.native_opened(*index, id, body, &mut out);
            }
            Event::Delta { index, delta } => self.write_delta(*index, delta, &mut out),
            Event::Closed { index, item } => self.write_closed(*index, item, &mut out),
            Event::Opened { .. } | Event::Usage(_) => {}
            Event::Ended(reply) => self.write_ended(reply, &mut out),
            Event::Failed(failure) => {
                let failed = self.frame(
                    "error",
                    members! {
                        "code": failure.kind.as_deref().unwrap_or("server_error"),
                        "message": failure.message, "param": null,
                    },
                );
                out.push(failed);
            }
            Event::Alien(json) => {
                out.push(Frame::json(json.tree().root().name_of("type"), json));
            }
        }
        Ok(out)
    }
}

impl ResponsesEncoder {
    fn frame(&mut self, kind: &str, fill: impl FnOnce(&mut json::Object<'_>)) -> Frame {
        let number = self.sequence;
        self.sequence += 1;
        let object = json::object(|o| {
            o.string("type", kind).number("sequence_number", number);
            fill(o);
        });
        Frame::json(Some(Arc::from(kind)), &object)
    }

    fn write_began(&mut self, id: Option<&Name>, origin: &Origin, out: &mut Vec<Frame>) {
        self.id = id.cloned();
        self.is_native = origin.wire == WIRE;
        let words = ("in_progress", None);
        let id = encode::shown_id(id.map(|id| &**id), origin);
        let response = encode::skeleton(
            id,
            &origin.answered,
            words,
            members! {
                "output": [], "usage": null,
            },
        );
        for kind in ["response.created", "response.in_progress"] {
            out.push(self.frame(kind, members! { "response": response }));
        }
    }

    fn generated_id(&self, kind: &str, at: usize) -> String {
        encode::generated_id(kind, self.id.as_deref(), at)
    }

    /// Reserves the next output index.
    pub(super) fn reserve_output_index(&mut self) -> usize {
        let at = self.outputs;
        self.outputs += 1;
        at
    }

    fn write_opened(&mut self, index: u32, body: &Body, out: &mut Vec<Frame>) {
        let (kind, prefix) = match body {
            Body::Text(_) | Body::Summary { .. } => (EventFamily::Text, "msg"),
            Body::Thought(_) => (EventFamily::Summary, "rs"),
            // Free text is emitted when complete.
            Body::Call(call) if !call.custom => (EventFamily::Arguments, "fc"),
            Body::Call(_)
            | Body::Media(_)
            | Body::Result(_)
            | Body::Hosted(_)
            | Body::Compaction
            | Body::Unknown => return,
        };
        let at = self.reserve_output_index();
        let id = self.generated_id(prefix, at);
        let element = opening_form_of(body, &id);
        out.push(self.item("response.output_item.added", at, &element));
        if kind == EventFamily::Text {
            let part = text_part("");
            out.push(self.part("response.content_part.added", at, &id, 0, &part));
        }
        self.live.insert(index, LiveItem::new(at, id, kind, 0));
    }

    fn write_delta(&mut self, index: u32, delta: &Delta, out: &mut Vec<Frame>) {
        let text = match delta {
            Delta::Text(text) | Delta::Thought(text) | Delta::Args(text) => text,
            // This wire sends arguments as text only, so they are emitted when the call is
            // complete.
            Delta::ArgsAt { .. } => return,
        };
        let Some(mut live) = self.live.remove(&index) else { return };
        match self.next_part(&live, text) {
            Some(rest) => {
                self.end_part(&live, out);
                live = LiveItem::new(live.at, live.id, live.kind, live.part + 1);
                self.write_piece(&mut live, rest, out);
            }
            None => self.write_piece(&mut live, text, out),
        }
        self.live.insert(index, live);
    }

    /// Emits a piece of a live Item.
    fn write_piece(&mut self, live: &mut LiveItem, text: &str, out: &mut Vec<Frame>) {
        let is_first = !std::mem::replace(&mut live.has_said, true);
        if matches!(live.kind, EventFamily::Summary | EventFamily::Thinking) {
            live.said.push_str(text);
        }
        let (at, id, part) = (live.at, live.id.as_str(), live.part);
        match live.kind {
            EventFamily::Text => out.push(self.text_delta(at, id, part, text)),
            EventFamily::Summary => {
                if is_first {
                    let added = "response.reasoning_summary_part.added";
                    out.push(self.summary(
                        added,
                        at,
                        id,
                        part,
                        members! {
                            "part": summary_part(""),
                        },
                    ));
                }
                let delta = "response.reasoning_summary_text.delta";
                out.push(self.summary(delta, at, id, part, members! { "delta": text }));
            }
            EventFamily::Thinking => {
                if is_first {
                    let added = "response.content_part.added";
                    out.push(self.part(added, at, id, part, &thinking_part("")));
                }
                out.push(self.element_event(
                    "response.reasoning_text.delta",
                    at,
                    id,
                    members! {
                        "content_index": part as u64, "delta": text,
                    },
                ));
            }
            EventFamily::Arguments => {
                out.push(self.element_event(
                    "response.function_call_arguments.delta",
                    at,
                    id,
                    members! { "delta": text },
                ));
            }
        }
    }

    fn write_closed(&mut self, index: u32, item: &Item, out: &mut Vec<Frame>) {
        if let Some(live) = self.live.remove(&index) {
            self.close_live(live, item, out);
            return;
        }
        if self.native_closed(index, item, out) {
            return;
        }
        let part = item.native_on(&WIRE).filter(|native| native.slot == CONTENT);
        if let Some(envelope) = part.and_then(|native| native.envelope.as_ref()) {
            let is_other = |first: &Item| first.place.message != item.place.message;
            if self.waiting.first().is_some_and(is_other) {
                self.flush(out);
            }
            self.waiting.push(item.clone());
            if self.waiting.len() >= envelope.parts {
                self.flush(out);
            }
            return;
        }
        self.flush(out);
        let at = self.reserve_output_index();
        self.write_whole_element(at, &[item], out);
    }

    /// Emits the message whose parts were waiting.
    fn flush(&mut self, out: &mut Vec<Frame>) {
        let waiting = std::mem::take(&mut self.waiting);
        if !waiting.is_empty() {
            let at = self.reserve_output_index();
            self.write_whole_element(at, &waiting.iter().collect::<Vec<_>>(), out);
        }
    }

    fn close_live(&mut self, mut live: LiveItem, item: &Item, out: &mut Vec<Frame>) {
        let arguments;
        let text = match &item.body {
            Body::Call(call) => {
                arguments = encode::arguments(call);
                &*arguments
            }
            Body::Text(_)
            | Body::Media(_)
            | Body::Thought(_)
            | Body::Result(_)
            | Body::Hosted(_)
            | Body::Compaction
            | Body::Summary { .. }
            | Body::Unknown => item.visible().unwrap_or_default(),
        };
        if !live.has_said && !text.is_empty() {
            self.write_piece(&mut live, text, out);
        }
        match live.kind {
            EventFamily::Text if self.native_part_done(&live, item, text, out) => return,
            EventFamily::Text => self.text_done(live.at, &live.id, 0, &text_part(text), out),
            EventFamily::Summary | EventFamily::Thinking => self.end_part(&live, out),
            EventFamily::Arguments => {
                let done = "response.function_call_arguments.done";
                out.push(self.element_event(
                    done,
                    live.at,
                    &live.id,
                    members! {
                        "arguments": text,
                    },
                ));
            }
        }
        if let Some(element) = encode::output(&[item], |_| live.id.clone()) {
            out.push(self.item("response.output_item.done", live.at, &element));
        }
    }

    /// Ends the current part of a thought.
    fn end_part(&mut self, live: &LiveItem, out: &mut Vec<Frame>) {
        let (at, id, part) = (live.at, live.id.as_str(), live.part);
        match live.kind {
            EventFamily::Summary if live.has_said => {
                self.summary_done(at, id, part, &live.said, out);
            }
            EventFamily::Thinking if live.has_said => {
                self.thinking_done(at, id, part, &live.said, out);
            }
            EventFamily::Text
            | EventFamily::Summary
            | EventFamily::Thinking
            | EventFamily::Arguments => {}
        }
    }

    fn write_ended(&mut self, reply: &Reply, out: &mut Vec<Frame>) {
        self.flush(out);
        if reply.stop == StopReason::Cut {
            return;
        }
        self.flush_native(out);
        let response = encode::encode_reply(reply);
        let status = response.tree().root().name_of("status");
        let kind = match status.as_deref() {
            Some("incomplete") => "response.incomplete",
            Some(_) | None => "response.completed",
        };
        let frame = self.frame(kind, members! { "response": response });
        out.push(frame);
    }

    pub(super) fn item(&mut self, kind: &str, at: usize, element: &Json) -> Frame {
        self.frame(kind, members! { "output_index": at as u64, "item": element })
    }

    pub(super) fn element_event(
        &mut self,
        kind: &str,
        at: usize,
        id: &str,
        fill: impl FnOnce(&mut json::Object<'_>),
    ) -> Frame {
        self.frame(kind, |o| {
            o.string("item_id", id).number("output_index", at as u64);
            fill(o);
        })
    }

    pub(super) fn part(
        &mut self,
        kind: &str,
        at: usize,
        id: &str,
        number: usize,
        part: &Json,
    ) -> Frame {
        self.element_event(kind, at, id, members! { "content_index": number as u64, "part": part })
    }

    pub(super) fn summary(
        &mut self,
        kind: &str,
        at: usize,
        id: &str,
        number: usize,
        fill: impl FnOnce(&mut json::Object<'_>),
    ) -> Frame {
        self.element_event(kind, at, id, |o| {
            o.number("summary_index", number as u64);
            fill(o);
        })
    }

    pub(super) fn summary_done(
        &mut self,
        at: usize,
        id: &str,
        number: usize,
        text: &str,
        out: &mut Vec<Frame>,
    ) {
        out.push(self.summary(
            "response.reasoning_summary_text.done",
            at,
            id,
            number,
            members! {
                "text": text,
            },
        ));
        out.push(self.summary(
            "response.reasoning_summary_part.done",
            at,
            id,
            number,
            members! {
                "part": summary_part(text),
            },
        ));
    }

    pub(super) fn thinking_done(
        &mut self,
        at: usize,
        id: &str,
        number: usize,
        text: &str,
        out: &mut Vec<Frame>,
    ) {
        out.push(self.element_event(
            "response.reasoning_text.done",
            at,
            id,
            members! {
                "content_index": number as u64, "text": text,
            },
        ));
        out.push(self.part("response.content_part.done", at, id, number, &thinking_part(text)));
    }

    pub(super) fn text_delta(&mut self, at: usize, id: &str, number: usize, text: &str) -> Frame {
        self.element_event(
            "response.output_text.delta",
            at,
            id,
            members! {
                "content_index": number as u64, "delta": text, "logprobs": [],
            },
        )
    }

    pub(super) fn text_done(
        &mut self,
        at: usize,
        id: &str,
        number: usize,
        part: &Json,
        out: &mut Vec<Frame>,
    ) {
        let text = part.tree().root().name_of("text").unwrap_or_default();
        out.push(self.element_event(
            "response.output_text.done",
            at,
            id,
            members! {
                "content_index": number as u64, "text": text, "logprobs": [],
            },
        ));
        out.push(self.part("response.content_part.done", at, id, number, part));
    }
}

impl LiveItem {
    pub(super) fn new(at: usize, id: String, kind: EventFamily, part: usize) -> Self {
        Self { at, id, kind, part, said: String::new(), has_said: false }
    }
}

/// Returns the opening form of an element whose content is unknown.
pub(super) fn opening_form_of(body: &Body, id: &str) -> Json {
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
            Body::Text(_)
            | Body::Summary { .. }
            | Body::Media(_)
            | Body::Result(_)
            | Body::Hosted(_)
            | Body::Compaction
            | Body::Unknown => {
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
