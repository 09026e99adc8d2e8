//! Decodes and encodes streamed responses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use throughline_core::{Body, Delta, Event, Item, Reply, StopReason};
use throughline_json::{self as json, Json, Node, Tree};

use crate::converse::assemble::{ConverseOpenBlock, DeltaContent};
use crate::converse::wire::{self, ConverseEventKind as Kind};
use crate::converse::{WIRE, decode, encode};
use crate::events::{self, StreamedReply};
use crate::frame::Frame;
use crate::object::copy_members;
use crate::{CodecError, DecodeContext, Decoder, Encoder};

/// The member with random padding that hides the length of an event.
const PADDING: &str = "p";

pub(super) struct ConverseDecoder {
    reply: StreamedReply,
    open: BTreeMap<u64, ConverseOpenBlock>,
    stop: Option<StopReason>,
    has_metadata: bool,
}

impl ConverseDecoder {
    pub(super) fn new(context: DecodeContext) -> Self {
        let mut reply = StreamedReply::new(context, WIRE);
        reply.origin = reply.context.origin(None, None);
        Self { reply, open: BTreeMap::new(), stop: None, has_metadata: false }
    }

    fn event(&mut self, kind: Kind, name: Option<&str>, event: Node<'_>) {
        match kind {
            Kind::MessageStart => self.reply.begin(None, None, None),
            Kind::BlockStart => self.on_block_start(event),
            Kind::BlockDelta => self.on_block_delta(event),
            Kind::BlockStop => match index(event) {
                Some(at) if self.open.contains_key(&at) => self.close(at),
                Some(_) | None => self.pass_on(Some("contentBlockStop"), event),
            },
            Kind::MessageStop => self.on_message_stop(event),
            Kind::Metadata => self.on_metadata(event),
            Kind::Unknown => self.pass_on(name, event),
        }
    }

    /// Emits an unknown event together with its name, because the payload does not identify the
    /// event.
    fn pass_on(&mut self, name: Option<&str>, event: Node<'_>) {
        let event = event.json();
        let named = name.map(|name| object! { (name): event });
        self.reply.events.push(Event::Alien(named.unwrap_or(event)));
    }

    fn next_index(&self) -> u32 {
        u32::try_from(self.reply.items.len() + self.open.len()).unwrap_or(u32::MAX)
    }

    fn on_block_start(&mut self, event: Node<'_>) {
        let Some((at, start)) = index(event).zip(event.get("start")) else {
            return self.pass_on(Some("contentBlockStart"), event);
        };
        self.close(at);
        let block = ConverseOpenBlock::new(self.next_index(), Some(start.json()));
        // If the start event is empty, the first delta determines the block's type.
        let has_type = start.members().next().is_some();
        self.open.insert(at, block);
        if has_type {
            self.emit_opened(at);
        }
    }

    fn emit_opened(&mut self, at: u64) {
        if let Some(block) = self.open.get(&at) {
            let mut item = self.item(block);
            item.mark_truncated();
            self.reply.open(block.index, &item);
        }
    }

    fn on_block_delta(&mut self, event: Node<'_>) {
        let Some((at, delta)) = index(event).zip(event.get("delta")) else {
            return self.pass_on(Some("contentBlockDelta"), event);
        };
        let next = self.next_index();
        let is_new = !self.open.contains_key(&at);
        let block = self.open.entry(at).or_insert_with(|| ConverseOpenBlock::new(next, None));
        let (index, has_type) = (block.index, block.has_known_type());
        let added = block.add(delta);
        if let DeltaContent::Unknown = added {
            if is_new {
                self.open.remove(&at);
            }
            return self.pass_on(Some("contentBlockDelta"), event);
        }
        if !has_type {
            self.emit_opened(at);
        }
        if let DeltaContent::Readable(delta) = added {
            self.reply.add_delta(index, delta);
        }
    }

    fn close(&mut self, at: u64) {
        if let Some(block) = self.open.remove(&at) {
            let item = self.item(&block);
            self.reply.close(block.index, item);
        }
    }

    fn item(&self, block: &ConverseOpenBlock) -> Item {
        self.reply.item(block.index, &block.assemble(), true, decode::read_block)
    }

    fn on_message_stop(&mut self, event: Node<'_>) {
        self.store_members(event);
        let fields = event.get("additionalModelResponseFields");
        self.stop = event.text_of("stopReason").map(|reason| wire::stop(Some(&reason), fields));
        if self.has_metadata {
            self.finish_reply();
        }
    }

    fn on_metadata(&mut self, event: Node<'_>) {
        self.store_members(event);
        self.has_metadata = true;
        if let Some(usage) = event.get("usage") {
            self.reply.set_usage(wire::usage(usage));
        }
        if self.stop.is_some() {
            self.finish_reply();
        }
    }

    /// Stores the members of an event. If a member name is repeated, the member keeps its position
    /// and gets the later value.
    fn store_members(&mut self, event: Node<'_>) {
        for (key, value) in event.members().filter(|(key, _)| !key.is(PADDING)) {
            events::store_member(&mut self.reply.extras, key, value);
        }
    }

    fn finish_reply(&mut self) {
        if self.reply.has_ended {
            return;
        }
        let is_cut = !self.open.is_empty();
        for block in std::mem::take(&mut self.open).into_values() {
            let item = self.item(&block);
            self.reply.items.push(item);
        }
        let stop = self.stop.take().filter(|_| !is_cut).unwrap_or(StopReason::Cut);
        self.reply.end(stop);
    }

    /// Decodes a frame. In the binary framing, the frame carries the event name. In other framings,
    /// the payload is wrapped in an object keyed by the event name, or the name is missing.
    fn read_frame(&mut self, frame: &Frame, root: Node<'_>) {
        if frame.exception {
            let failure = decode::decode_failure(root, frame.event.clone(), &frame.data);
            return self.reply.events.push(Event::Failed(failure));
        }
        let kind = frame.event.as_deref().map(Kind::from_name);
        if let Some(kind) = kind.filter(|kind| *kind != Kind::Unknown) {
            return self.event(kind, frame.event.as_deref(), root);
        }
        if let Some((kind, event)) = Kind::unwrap(root) {
            let name = root.members().next().and_then(|(name, _)| name.name());
            if name.as_deref().is_some_and(|name| name.ends_with("Exception")) {
                let failure = decode::decode_failure(event, name, event.json().bytes());
                return self.reply.events.push(Event::Failed(failure));
            }
            if kind != Kind::Unknown {
                return self.event(kind, name.as_deref(), event);
            }
        }
        let kind = kind.unwrap_or_else(|| Kind::detect(root));
        self.event(kind, frame.event.as_deref(), root);
    }
}

fn index(event: Node<'_>) -> Option<u64> {
    event.get("contentBlockIndex").and_then(Node::u64)
}

impl Decoder for ConverseDecoder {
    fn push(&mut self, frame: &Frame) -> Result<Vec<Event>, CodecError> {
        let tree = Tree::parse(frame.data.clone())?;
        self.read_frame(frame, tree.root());
        Ok(self.reply.take_events())
    }

    fn finish(&mut self) -> Result<Vec<Event>, CodecError> {
        self.finish_reply();
        Ok(self.reply.take_events())
    }
}

/// Encodes a streamed response. Texts, thoughts and calls are emitted incrementally; other Items
/// are emitted once complete.
#[derive(Default)]
pub(super) struct ConverseEncoder {
    /// Calls that were opened but whose start event has not been written, by Item index.
    waiting: BTreeMap<u32, Json>,
    /// The indexes of Items for which at least one event has been written.
    started: BTreeSet<u32>,
}

impl Encoder for ConverseEncoder {
    fn push(&mut self, event: &Event) -> Result<Vec<Frame>, CodecError> {
        Ok(match event {
            Event::Began { .. } => {
                vec![event_frame("messageStart", members! { "role": "assistant" })]
            }
            Event::Opened { index, body, .. } => self.write_opened(*index, body),
            Event::Delta { index, delta } => self.write_delta(*index, delta),
            Event::Closed { index, item } => self.write_closed(*index, item),
            Event::Usage(_) => Vec::new(),
            Event::Ended(reply) => end_frames(reply),
            Event::Failed(failure) => {
                let kind = failure.kind.as_deref().unwrap_or("internalServerException");
                let frame = event_frame(kind, members! { "message": failure.message });
                vec![Frame { exception: true, ..frame }]
            }
            Event::Alien(json) => vec![unwrap_frame(json)],
        })
    }
}

/// Builds the frame for an event whose payload is wrapped in an object keyed by the event name.
fn unwrap_frame(json: &Json) -> Frame {
    let tree = json.tree();
    let named = Kind::unwrap(tree.root())
        .and_then(|(_, event)| Some((tree.root().members().next()?.0.name()?, event)));
    match named {
        Some((name, event)) => Frame::json(Some(name), &event.json()),
        None => Frame::json(None, json),
    }
}

impl ConverseEncoder {
    /// Opens an Item. A text or thought begins with its first delta. Only a call has a start event,
    /// which is delayed until the next event, because a complete call has more members.
    fn write_opened(&mut self, index: u32, body: &Body) -> Vec<Frame> {
        if let Body::Call(call) = body {
            let id = call.wire_id.as_ref().unwrap_or(&call.id.0);
            let beginning = object! { "toolUse": { "toolUseId": id, "name": call.name } };
            self.waiting.insert(index, beginning);
        }
        Vec::new()
    }

    fn write_delta(&mut self, index: u32, delta: &Delta) -> Vec<Frame> {
        let frame = match delta {
            Delta::Text(text) => block_delta(index, members! { "text": text }),
            Delta::Thought(text) => reasoning_delta(index, "text", &json::string(text)),
            Delta::Args(text) if self.is_call(index) => input_delta(index, text),
            // Argument deltas of provider-run steps, and deltas by path, are written when the Item
            // is complete.
            Delta::Args(_) | Delta::ArgsAt { .. } => return Vec::new(),
        };
        self.started.insert(index);
        let start = self.waiting.remove(&index).map(|start| block_start_frame(index, &start));
        start.into_iter().chain([frame]).collect()
    }

    fn is_call(&self, index: u32) -> bool {
        self.waiting.contains_key(&index) || self.started.contains(&index)
    }

    fn write_closed(&mut self, index: u32, item: &Item) -> Vec<Frame> {
        let is_started = self.started.contains(&index);
        let Some(block) = encode::reply_block(item) else { return Vec::new() };
        let tree = block.tree();
        let node = tree.root();
        let mut frames = Vec::new();
        match &item.body {
            Body::Call(_) if is_started => {}
            Body::Text(text) | Body::Summary { text, .. } => {
                let citations = node.at("/citationsContent/citations");
                if !is_started && (citations.is_none() || !text.is_empty()) {
                    frames.push(block_delta(index, members! { "text": text }));
                }
                for citation in citations.into_iter().flat_map(Node::elements) {
                    frames.push(block_delta(index, members! { "citation": citation }));
                }
            }
            Body::Thought(_) => {
                let redacted = node.at("/reasoningContent/redactedContent");
                let text = node.at("/reasoningContent/reasoningText");
                let signature = text.and_then(|text| text.get("signature"));
                if !is_started && text.is_none() && redacted.is_none() {
                    frames.push(block_start_frame(index, &block));
                } else if !is_started && signature.is_none() && redacted.is_none() {
                    frames.push(reasoning_delta(index, "text", &json::string("")));
                }
                let seals = [("signature", signature), ("redactedContent", redacted)];
                for (key, value) in seals.into_iter().filter_map(|(k, v)| Some((k, v?))) {
                    frames.push(reasoning_delta(index, key, &value.json()));
                }
            }
            Body::Hosted(hosted) if hosted.is_result => {
                frames.extend(tool_frames(index, node, "toolResult", "content"));
            }
            Body::Call(_) | Body::Hosted(_) => {
                frames.extend(tool_frames(index, node, "toolUse", "input"));
            }
            Body::Media(_) | Body::Result(_) | Body::Compaction | Body::Unknown => {
                frames.push(block_start_frame(index, &block));
            }
        }
        let stop = members! { "contentBlockIndex": u64::from(index) };
        frames.push(event_frame("contentBlockStop", stop));
        frames
    }
}

/// Encodes a call or a provider-run step as its start event and its input or output.
fn tool_frames(index: u32, block: Node<'_>, kind: &str, key: &str) -> Vec<Frame> {
    let inner = block.get(kind);
    let beginning = json::object(|o| {
        let members = inner.into_iter().flat_map(Node::members);
        o.object(kind, |o| copy_members(o, members.filter(|(name, _)| !name.is(key))));
    });
    let mut frames = vec![block_start_frame(index, &beginning)];
    frames.extend(inner.and_then(|inner| inner.get(key)).map(|value| {
        if key == "input" {
            return input_delta(index, value.json().as_str());
        }
        block_delta(index, members! { (kind): value })
    }));
    frames
}

/// Encodes the stop reason and the usage. A reply that was decoded from Converse also keeps its
/// other members.
fn end_frames(reply: &Reply) -> Vec<Frame> {
    if reply.stop == StopReason::Cut {
        return Vec::new();
    }
    let extras = events::own_extras(reply, &WIRE);
    let extra = |key: &str| extras.iter().find(|(name, _)| &**name == key).map(|(_, value)| value);
    let stop = event_frame("messageStop", |o| {
        match extra("stopReason") {
            Some(reason) => o.raw("stopReason", reason),
            None => o.string("stopReason", wire::stop_reason(&reply.stop)),
        };
        match extra("additionalModelResponseFields") {
            Some(fields) => {
                o.raw("additionalModelResponseFields", fields);
            }
            None => encode::reply_fields(o, reply),
        }
    });
    let but = ["stopReason", "additionalModelResponseFields", "output"];
    let metadata = event_frame("metadata", |o| encode::write_metadata(o, reply, &but));
    vec![stop, metadata]
}

fn block_start_frame(index: u32, block: &Json) -> Frame {
    let start = members! { "contentBlockIndex": u64::from(index), "start": block };
    event_frame("contentBlockStart", start)
}

fn block_delta(index: u32, fill: impl FnOnce(&mut json::Object<'_>)) -> Frame {
    event_frame("contentBlockDelta", |o| {
        o.number("contentBlockIndex", u64::from(index)).object("delta", fill);
    })
}

fn reasoning_delta(index: u32, key: &str, value: &Json) -> Frame {
    block_delta(index, members! { "reasoningContent": { (key): value } })
}

fn input_delta(index: u32, text: &str) -> Frame {
    block_delta(index, members! { "toolUse": { "input": text } })
}

fn event_frame(name: &str, fill: impl FnOnce(&mut json::Object<'_>)) -> Frame {
    Frame::json(Some(Arc::from(name)), &json::object(fill))
}
