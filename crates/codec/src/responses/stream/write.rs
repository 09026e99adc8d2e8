//! Streamed responses, written.
//!
//! Texts, thoughts and calls go out as they come: another wire's under ids that are made for them, this wire's own
//! under the ids that they have (`own.rs`). What cannot be told in pieces, and what has no id before it is whole, goes
//! out when it is whole, in the full sequence of events (`whole.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use throughline_core::{Body, Delta, Event, Item, Json, Name, Origin, Reply, Stop, Wire, json};

use crate::frame::Frame;
use crate::responses::encode;
use crate::responses::stream::own::OwnElement;
use crate::responses::wire::CONTENT;
use crate::{CodecError, Encoder};

const WIRE: Wire = Wire::OPENAI_RESPONSES;

/// Writes a streamed response.
#[derive(Default)]
pub(in crate::responses) struct ResponseEncoder {
    sequence: u64,
    pub(super) id: Option<Name>,
    /// Whether the Items will say their own elements.
    pub(super) is_native: bool,
    /// How many elements have begun.
    pub(super) outputs: usize,
    /// The Items that are going out as they come.
    pub(super) live: BTreeMap<u32, Live>,
    /// This wire's own elements that have begun, by their ids.
    pub(super) own: BTreeMap<Name, OwnElement>,
    /// The parts of one of this wire's own messages that has no id, until all of them are there.
    waiting: Vec<Item>,
}

/// An Item that is going out as it comes.
pub(super) struct Live {
    pub(super) at: usize,
    pub(super) id: String,
    pub(super) kind: Flow,
    /// The number of the part that is going out, in the content or the summary.
    pub(super) part: usize,
    /// What that part has said.
    pub(super) said: String,
    pub(super) has_said: bool,
}

/// In which events an Item goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Text,
    Summary,
    Thinking,
    Arguments,
}

impl Encoder for ResponseEncoder {
    fn push(&mut self, event: &Event) -> Result<Vec<Frame>, CodecError> {
        let mut out = Vec::new();
        match event {
            Event::Began { id, origin } => self.began(id.as_ref(), origin, &mut out),
            Event::Opened { index, body, .. } if !self.is_native => {
                self.opened(*index, body, &mut out);
            }
            Event::Opened { index, id: Some(id), body } => {
                self.own_opened(*index, id, body, &mut out);
            }
            Event::Delta { index, delta } => self.delta(*index, delta, &mut out),
            Event::Closed { index, item } => self.closed(*index, item, &mut out),
            Event::Opened { .. } | Event::Usage(_) => {}
            Event::Ended(reply) => self.ended(reply, &mut out),
            Event::Failed(failure) => {
                let failed = self.frame("error", |o| {
                    o.string("code", failure.kind.as_deref().unwrap_or("server_error"));
                    o.string("message", &failure.message).null("param");
                });
                out.push(failed);
            }
            Event::Alien(json) => out.push(Frame {
                event: json.tree().root().name_of("type"),
                data: json.bytes().clone(),
                exception: false,
            }),
        }
        Ok(out)
    }
}

impl ResponseEncoder {
    fn frame(&mut self, kind: &str, fill: impl FnOnce(&mut json::Object<'_>)) -> Frame {
        let number = self.sequence;
        self.sequence += 1;
        let object = json::object(|o| {
            o.string("type", kind).number("sequence_number", number);
            fill(o);
        });
        Frame { event: Some(Arc::from(kind)), data: object.bytes().clone(), exception: false }
    }

    fn began(&mut self, id: Option<&Name>, origin: &Origin, out: &mut Vec<Frame>) {
        self.id = id.cloned();
        self.is_native = origin.wire == WIRE;
        let words = ("in_progress", None);
        let id = encode::shown_id(id.map(|id| &**id), origin);
        let response = encode::skeleton(id, &origin.answered, words, |o| {
            o.array("output", |_| {}).null("usage");
        });
        for kind in ["response.created", "response.in_progress"] {
            out.push(self.frame(kind, |o| {
                o.raw("response", &response);
            }));
        }
    }

    fn made_id(&self, kind: &str, at: usize) -> String {
        encode::made_id(kind, self.id.as_deref(), at)
    }

    /// Takes the place of the next element.
    pub(super) fn place(&mut self) -> usize {
        let at = self.outputs;
        self.outputs += 1;
        at
    }

    fn opened(&mut self, index: u32, body: &Body, out: &mut Vec<Frame>) {
        let (kind, prefix) = match body {
            Body::Text(_) | Body::Summary { .. } => (Flow::Text, "msg"),
            Body::Thought(_) => (Flow::Summary, "rs"),
            // Free text is told when it is whole.
            Body::Call(call) if !call.custom => (Flow::Arguments, "fc"),
            Body::Call(_)
            | Body::Media(_)
            | Body::Result(_)
            | Body::Hosted(_)
            | Body::Compaction
            | Body::Unknown => return,
        };
        let at = self.place();
        let id = self.made_id(prefix, at);
        let element = beginning_of(body, &id);
        out.push(self.item("response.output_item.added", at, &element));
        if kind == Flow::Text {
            let part = text_part("");
            out.push(self.part("response.content_part.added", at, &id, 0, &part));
        }
        self.live.insert(index, Live::new(at, id, kind, 0));
    }

    fn delta(&mut self, index: u32, delta: &Delta, out: &mut Vec<Frame>) {
        let text = match delta {
            Delta::Text(text) | Delta::Thought(text) | Delta::Args(text) => text,
            // This wire sends arguments as text only: they follow when the call is whole.
            Delta::ArgsAt { .. } => return,
        };
        let Some(mut live) = self.live.remove(&index) else { return };
        match self.next_part(&live, text) {
            Some(rest) => {
                self.end_part(&live, out);
                live = Live::new(live.at, live.id, live.kind, live.part + 1);
                self.say(&mut live, rest, out);
            }
            None => self.say(&mut live, text, out),
        }
        self.live.insert(index, live);
    }

    /// Says a piece of an Item that is going out as it comes.
    fn say(&mut self, live: &mut Live, text: &str, out: &mut Vec<Frame>) {
        let is_first = !std::mem::replace(&mut live.has_said, true);
        if matches!(live.kind, Flow::Summary | Flow::Thinking) {
            live.said.push_str(text);
        }
        let (at, id, part) = (live.at, live.id.as_str(), live.part);
        match live.kind {
            Flow::Text => out.push(self.text_delta(at, id, part, text)),
            Flow::Summary => {
                if is_first {
                    let added = "response.reasoning_summary_part.added";
                    out.push(self.summary(added, at, id, part, |o| {
                        o.raw("part", &summary_part(""));
                    }));
                }
                let delta = "response.reasoning_summary_text.delta";
                out.push(self.summary(delta, at, id, part, |o| {
                    o.string("delta", text);
                }));
            }
            Flow::Thinking => {
                if is_first {
                    let added = "response.content_part.added";
                    out.push(self.part(added, at, id, part, &thinking_part("")));
                }
                out.push(self.of("response.reasoning_text.delta", at, id, |o| {
                    o.number("content_index", part as u64).string("delta", text);
                }));
            }
            Flow::Arguments => {
                out.push(self.of("response.function_call_arguments.delta", at, id, |o| {
                    o.string("delta", text);
                }));
            }
        }
    }

    fn closed(&mut self, index: u32, item: &Item, out: &mut Vec<Frame>) {
        if let Some(live) = self.live.remove(&index) {
            self.close_live(live, item, out);
            return;
        }
        if self.own_closed(index, item, out) {
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
        let at = self.place();
        self.whole(at, &[item], out);
    }

    /// Writes the message whose parts were waiting.
    fn flush(&mut self, out: &mut Vec<Frame>) {
        let waiting = std::mem::take(&mut self.waiting);
        if !waiting.is_empty() {
            let at = self.place();
            self.whole(at, &waiting.iter().collect::<Vec<_>>(), out);
        }
    }

    fn close_live(&mut self, mut live: Live, item: &Item, out: &mut Vec<Frame>) {
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
            self.say(&mut live, text, out);
        }
        match live.kind {
            Flow::Text if self.own_part_done(&live, item, text, out) => return,
            Flow::Text => self.text_done(live.at, &live.id, 0, &text_part(text), out),
            Flow::Summary | Flow::Thinking => self.end_part(&live, out),
            Flow::Arguments => {
                let done = "response.function_call_arguments.done";
                out.push(self.of(done, live.at, &live.id, |o| {
                    o.string("arguments", text);
                }));
            }
        }
        if let Some(element) = encode::output(&[item], |_| live.id.clone()) {
            out.push(self.item("response.output_item.done", live.at, &element));
        }
    }

    /// Ends the part of a thought that was going out.
    fn end_part(&mut self, live: &Live, out: &mut Vec<Frame>) {
        let (at, id, part) = (live.at, live.id.as_str(), live.part);
        match live.kind {
            Flow::Summary if live.has_said => self.summary_done(at, id, part, &live.said, out),
            Flow::Thinking if live.has_said => self.thinking_done(at, id, part, &live.said, out),
            Flow::Text | Flow::Summary | Flow::Thinking | Flow::Arguments => {}
        }
    }

    fn ended(&mut self, reply: &Reply, out: &mut Vec<Frame>) {
        self.flush(out);
        if reply.stop == Stop::Cut {
            return;
        }
        self.flush_own(out);
        let response = encode::reply(reply);
        let status = response.tree().root().name_of("status");
        let kind = match status.as_deref() {
            Some("incomplete") => "response.incomplete",
            Some(_) | None => "response.completed",
        };
        let frame = self.frame(kind, |o| {
            o.raw("response", &response);
        });
        out.push(frame);
    }

    pub(super) fn item(&mut self, kind: &str, at: usize, element: &Json) -> Frame {
        self.frame(kind, |o| {
            o.number("output_index", at as u64).raw("item", element);
        })
    }

    pub(super) fn of(
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
        self.of(kind, at, id, |o| {
            o.number("content_index", number as u64).raw("part", part);
        })
    }

    pub(super) fn summary(
        &mut self,
        kind: &str,
        at: usize,
        id: &str,
        number: usize,
        fill: impl FnOnce(&mut json::Object<'_>),
    ) -> Frame {
        self.of(kind, at, id, |o| {
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
        out.push(self.summary("response.reasoning_summary_text.done", at, id, number, |o| {
            o.string("text", text);
        }));
        out.push(self.summary("response.reasoning_summary_part.done", at, id, number, |o| {
            o.raw("part", &summary_part(text));
        }));
    }

    pub(super) fn thinking_done(
        &mut self,
        at: usize,
        id: &str,
        number: usize,
        text: &str,
        out: &mut Vec<Frame>,
    ) {
        out.push(self.of("response.reasoning_text.done", at, id, |o| {
            o.number("content_index", number as u64).string("text", text);
        }));
        out.push(self.part("response.content_part.done", at, id, number, &thinking_part(text)));
    }

    pub(super) fn text_delta(&mut self, at: usize, id: &str, number: usize, text: &str) -> Frame {
        self.of("response.output_text.delta", at, id, |o| {
            o.number("content_index", number as u64).string("delta", text);
            o.array("logprobs", |_| {});
        })
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
        out.push(self.of("response.output_text.done", at, id, |o| {
            o.number("content_index", number as u64).string("text", &text);
            o.array("logprobs", |_| {});
        }));
        out.push(self.part("response.content_part.done", at, id, number, part));
    }
}

impl Live {
    pub(super) fn new(at: usize, id: String, kind: Flow, part: usize) -> Self {
        Self { at, id, kind, part, said: String::new(), has_said: false }
    }
}

/// An element as it begins, where all that is known of it is what it will be.
pub(super) fn beginning_of(body: &Body, id: &str) -> Json {
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
    json::object(|o| {
        o.string("type", "reasoning_text").string("text", text);
    })
}

pub(super) fn text_part(text: &str) -> Json {
    json::object(|o| {
        o.string("type", "output_text").array("annotations", |_| {}).array("logprobs", |_| {});
        o.string("text", text);
    })
}

pub(super) fn summary_part(text: &str) -> Json {
    json::object(|o| {
        o.string("type", "summary_text").string("text", text);
    })
}
