//! Encodes events as stream chunks.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{Body, Delta, Event, Item, Origin, Reply, StopReason, Thought, ThoughtKind};
use throughline_json::{self as json, Name, Node, Tree};

use crate::chat::decode::message::{INLINE_TAGS, THINKING_CHUNK};
use crate::chat::encode::{custom, reply};
use crate::chat::{WIRE, slot, wire};
use crate::frame::Frame;
use crate::object::{copy_members, members_except};
use crate::{CodecError, Encoder};

/// Encodes a streamed message. Texts, thoughts and calls are emitted incrementally; other parts are
/// emitted once complete.
#[derive(Default)]
pub(in crate::chat) struct ChatEncoder {
    id: Option<Name>,
    model: Name,
    is_own: bool,
    parts: BTreeMap<u32, StreamedPart>,
    calls: u64,
    thoughts: u64,
    /// Whether the content is a list of parts.
    has_list: bool,
}

/// The output mode of a part, and the text emitted so far.
struct StreamedPart {
    mode: OutputMode,
    sent: String,
}

#[derive(Clone)]
enum OutputMode {
    /// The part is emitted in one chunk, once complete.
    Whole,
    Content,
    Fields(Vec<&'static str>),
    /// The part is emitted in fragments of a detail; `text` names the member with the readable
    /// text.
    Detail {
        text: &'static str,
        index: Option<u64>,
    },
    /// A thought from another wire with this number, which is emitted in fragments of a detail and
    /// of the strings that repeat the detail.
    Foreign(u64),
    Call(u64),
}

impl Encoder for ChatEncoder {
    fn push(&mut self, event: &Event) -> Result<Vec<Frame>, CodecError> {
        Ok(match event {
            Event::Began { id, origin } => self.write_began(id.as_ref(), origin),
            Event::Opened { index, body, .. } => self.write_opened(*index, body),
            Event::Delta { index, delta } => self.write_delta(*index, delta),
            Event::Closed { index, item } => self.write_closed(*index, item),
            Event::Usage(_) => Vec::new(),
            Event::Ended(reply) => self.write_ended(reply),
            Event::Failed(failure) => {
                let kind = failure.kind.as_deref().unwrap_or("api_error");
                let error = object! { "error": { "message": failure.message, "type": kind } };
                vec![Frame::json(None, &error)]
            }
            Event::Alien(json) => vec![Frame::json(None, json)],
        })
    }
}

impl ChatEncoder {
    fn write_began(&mut self, id: Option<&Name>, origin: &Arc<Origin>) -> Vec<Frame> {
        self.is_own = origin.wire == WIRE;
        self.id = id.cloned().or_else(|| (!self.is_own).then(|| Name::from("chatcmpl")));
        self.model = Name::clone(&origin.answered);
        let routed = origin.routed.clone();
        let choice = object! {
            "index": 0, "delta": { "role": "assistant", "content": "" }, "finish_reason": null,
        };
        vec![self.frame(members! { "provider": routed.as_deref(), "choices": [choice] })]
    }

    fn write_opened(&mut self, index: u32, body: &Body) -> Vec<Frame> {
        use Body::{Compaction, Hosted, Media, Result, Summary, Unknown};
        let mode = match body {
            Body::Text(_) if self.has_list => OutputMode::Whole,
            Body::Text(_) => OutputMode::Content,
            Body::Thought(thought) => self.thought_mode(thought),
            Body::Call(call) if call.custom => OutputMode::Whole,
            Body::Call(call) => match call.wire_id.as_ref().filter(|id| !id.is_empty()) {
                // Calls in Ollama's native API have no ids, and their arguments are objects.
                None if self.is_own => OutputMode::Whole,
                Some(_) | None => OutputMode::Call(self.next_call()),
            },
            Media(_) | Result(_) | Hosted(_) | Compaction | Summary { .. } | Unknown => {
                OutputMode::Whole
            }
        };
        let frames = match (&mode, body) {
            (OutputMode::Call(number), Body::Call(call)) => {
                let id = call.wire_id.as_ref().filter(|id| !id.is_empty()).unwrap_or(&call.id.0);
                vec![self.call(members! {
                    "index": *number, "id": id, "type": "function",
                    "function": { "name": call.name, "arguments": "" },
                })]
            }
            (_, _) => Vec::new(),
        };
        self.parts.insert(index, StreamedPart { mode, sent: String::new() });
        frames
    }

    fn next_call(&mut self) -> u64 {
        self.calls += 1;
        self.calls - 1
    }

    /// Selects the output mode of a thought. For a thought from this wire, the thought's format
    /// names the slot.
    fn thought_mode(&mut self, thought: &Thought) -> OutputMode {
        if !self.is_own {
            self.thoughts += 1;
            return OutputMode::Foreign(self.thoughts - 1);
        }
        let format = thought.format.as_str();
        let fields: Vec<_> = slot::fields(format).collect();
        match (format, thought.kind) {
            (THINKING_CHUNK, _) => {
                self.has_list = true;
                OutputMode::Whole
            }
            (INLINE_TAGS, _) | (_, ThoughtKind::Encrypted) => OutputMode::Whole,
            (_, _) if !fields.is_empty() => OutputMode::Fields(fields),
            (_, kind) => {
                let text = if kind == ThoughtKind::Text { "text" } else { "summary" };
                OutputMode::Detail { text, index: thought.index }
            }
        }
    }

    fn write_delta(&mut self, index: u32, delta: &Delta) -> Vec<Frame> {
        let Some(part) = self.parts.get_mut(&index) else { return Vec::new() };
        let piece = match (delta, &part.mode) {
            (Delta::Text(piece), OutputMode::Content)
            | (
                Delta::Thought(piece),
                OutputMode::Fields(_) | OutputMode::Detail { .. } | OutputMode::Foreign(_),
            ) => piece,
            // The source may have omitted empty arguments, so wait for the complete call.
            (Delta::Args(piece), OutputMode::Call(_)) if !self.is_own || &**piece != "{}" => piece,
            // This wire sends arguments only as text, so other deltas are emitted when the call is
            // complete.
            (Delta::Text(_) | Delta::Thought(_) | Delta::Args(_) | Delta::ArgsAt { .. }, _) => {
                return Vec::new();
            }
        };
        part.sent.push_str(piece);
        let mode = part.mode.clone();
        vec![self.text_chunk(&mode, piece)]
    }

    /// Builds a chunk that continues a part.
    fn text_chunk(&self, mode: &OutputMode, piece: &str) -> Frame {
        match mode {
            OutputMode::Whole | OutputMode::Content => self.chunk(members! { "content": piece }),
            OutputMode::Fields(fields) => self.chunk(|o| {
                for field in fields {
                    o.string(field, piece);
                }
            }),
            OutputMode::Detail { text, index } => self.chunk(members! {
                (slot::DETAILS): [{
                    "type": format!("reasoning.{text}"), (text): piece, "index": index,
                }],
            }),
            OutputMode::Foreign(index) => self.chunk(|o| {
                for field in reply::FOREIGN_FIELDS {
                    o.string(field, piece);
                }
                let detail = object! { "type": "reasoning.text", "text": piece, "index": *index };
                o.list(slot::DETAILS, [&detail]);
            }),
            OutputMode::Call(number) => self.call(members! {
                "index": *number, "function": { "arguments": piece },
            }),
        }
    }

    fn write_closed(&mut self, index: u32, item: &Item) -> Vec<Frame> {
        let Some(StreamedPart { mode, sent }) = self.parts.remove(&index) else {
            return Vec::new();
        };
        let native = item.native_on(&WIRE).map(|native| native.json.tree());
        let node = native.as_ref().map(Tree::root);
        let slot_name = item.native_on(&WIRE).map_or("", |native| &native.slot);
        let text = match item.call() {
            Some(call) => {
                let written = node.and_then(|node| node.at("/function/arguments"));
                let written = written.and_then(Node::text);
                written.map_or_else(|| custom::arguments_text(call), Cow::into_owned)
            }
            None => item.visible().unwrap_or_default().to_owned(),
        };
        // The suffix of the text that no delta has emitted yet.
        let rest = text.strip_prefix(sent.as_str()).filter(|rest| !rest.is_empty());
        let mut frames = Vec::new();
        if !matches!(mode, OutputMode::Whole) {
            frames.extend(rest.map(|rest| self.text_chunk(&mode, rest)));
        }
        match mode {
            OutputMode::Whole => frames.extend(self.whole_chunk(item)),
            OutputMode::Foreign(_) if text.is_empty() => frames.extend(self.whole_chunk(item)),
            // The text is already sent. The last fragment of the detail has the other members.
            OutputMode::Foreign(_) => frames.extend(node.map(|node| {
                let others = json::object(|o| copy_members(o, members_except(node, &["text"])));
                self.chunk(|o| {
                    o.list(slot::DETAILS, [&others]);
                })
            })),
            OutputMode::Content | OutputMode::Fields(_) => {}
            OutputMode::Detail { text: text_key, .. } => {
                let fields: Vec<_> = slot::fields(slot_name).collect();
                frames.extend(node.map(|node| {
                    self.chunk(|o| {
                        for field in fields {
                            o.string(field, &text);
                        }
                        o.array(slot::DETAILS, |a| {
                            a.object(|o| copy_members(o, members_except(node, &[text_key])));
                        });
                    })
                }));
            }
            OutputMode::Call(number) => {
                let has_others = |node: &Node<'_>| {
                    members_except(*node, &["id", "type", "function"]).next().is_some()
                };
                frames.extend(node.filter(has_others).map(|node| {
                    let others = members_except(node, &["id", "type", "function", "index"]);
                    self.call(|o| copy_members(o.number("index", number), others))
                }));
            }
        }
        frames
    }

    /// Builds the chunk for a part that is emitted whole.
    fn whole_chunk(&mut self, item: &Item) -> Option<Frame> {
        let (slot_name, part) = reply::reply_part(item, self.thoughts.saturating_sub(1))?;
        let number = self.calls;
        Some(match slot::first_member(&slot_name) {
            slot::CONTENT if part.bytes().first() == Some(&b'"') => self.chunk(members! {
                (slot::CONTENT): part,
            }),
            slot::CALLS => {
                self.calls += 1;
                let tree = part.tree();
                let others = members_except(tree.root(), &["index"]);
                self.call(|o| copy_members(o.number("index", number), others))
            }
            list @ (slot::CONTENT | slot::DETAILS) => self.chunk(members! { (list): [part] }),
            member => self.chunk(members! { (member): part }),
        })
    }

    fn write_ended(&self, reply: &Reply) -> Vec<Frame> {
        let Some(reason) = wire::finish_reason(&reply.stop) else { return Vec::new() };
        let sequence = if let StopReason::Sequence(sequence) = &reply.stop {
            sequence.as_deref()
        } else {
            None
        };
        let last = self.frame(members! {
            "choices": [{
                "index": 0, "delta": {}, "finish_reason": reason, "stop_reason": sequence,
            }],
        });
        let known = reply.extras.iter().find(|(key, _)| self.is_own && &**key == "usage");
        let usage = known.map(|(_, usage)| usage.clone());
        let usage = usage.unwrap_or_else(|| wire::usage_json(&reply.usage));
        let usage = self.frame(members! { "choices": [], "usage": usage });
        vec![last, usage, Frame::data(Bytes::from_static(b"[DONE]"))]
    }

    fn call(&self, fill: impl FnOnce(&mut json::Object<'_>)) -> Frame {
        self.chunk(|o| {
            o.array(slot::CALLS, |a| {
                a.object(fill);
            });
        })
    }

    fn chunk(&self, fill: impl FnOnce(&mut json::Object<'_>)) -> Frame {
        self.frame(|o| {
            o.array("choices", |a| {
                a.object(|o| {
                    o.number("index", 0).object("delta", fill).null("finish_reason");
                });
            });
        })
    }

    fn frame(&self, fill: impl FnOnce(&mut json::Object<'_>)) -> Frame {
        let chunk = json::object(|o| {
            o.maybe_string("id", self.id.as_deref());
            o.string("object", "chat.completion.chunk").number("created", 0);
            fill(o.string("model", &self.model));
        });
        Frame::json(None, &chunk)
    }
}
