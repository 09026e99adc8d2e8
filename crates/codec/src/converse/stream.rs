//! Decodes and encodes streamed responses.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use throughline_core::{
    Body, Delta, Event, Item, ItemPosition, Origin, Reply, Role, StopReason, Usage, Wire,
};
use throughline_json::{self as json, Json, Name, Node, Tree};

use crate::converse::assemble::{ConverseOpenBlock, DeltaContent};
use crate::converse::decode;
use crate::converse::encode;
use crate::converse::wire::{self, ConverseEventKind};
use crate::events;
use crate::frame::Frame;
use crate::item_reader::ItemReader;
use crate::{CodecError, DecodeContext, Decoder, Encoder};

const WIRE: Wire = Wire::BEDROCK_CONVERSE;

/// Random padding that hides the length of an event.
const PADDING: &str = "p";

/// Decodes a streamed response.
pub(super) struct ConverseDecoder {
    context: DecodeContext,
    origin: Arc<Origin>,
    open: BTreeMap<u64, ConverseOpenBlock>,
    items: Vec<Item>,
    stop: Option<StopReason>,
    usage: Usage,
    extras: Vec<(Name, Json)>,
    has_metadata: bool,
    has_ended: bool,
}

impl ConverseDecoder {
    pub(super) fn new(context: DecodeContext) -> Self {
        Self {
            origin: context.origin(None, None),
            context,
            open: BTreeMap::new(),
            items: Vec::new(),
            stop: None,
            usage: Usage::default(),
            extras: Vec::new(),
            has_metadata: false,
            has_ended: false,
        }
    }

    fn event(
        &mut self,
        kind: ConverseEventKind,
        name: Option<&str>,
        event: Node<'_>,
    ) -> Vec<Event> {
        match kind {
            ConverseEventKind::MessageStart => {
                vec![Event::Began { id: None, origin: Arc::clone(&self.origin) }]
            }
            ConverseEventKind::BlockStart => self.on_block_start(event),
            ConverseEventKind::BlockDelta => self.on_block_delta(event),
            ConverseEventKind::BlockStop => self.on_block_stop(event),
            ConverseEventKind::MessageStop => self.on_message_stop(event),
            ConverseEventKind::Metadata => self.on_metadata(event),
            ConverseEventKind::Unknown => {
                // Keep the name, because the event cannot be identified without it.
                let event = event.json();
                vec![Event::Alien(name.map_or(event.clone(), |name| wrap_event(name, &event)))]
            }
        }
    }

    fn next_index(&self) -> u32 {
        u32::try_from(self.items.len() + self.open.len()).unwrap_or(u32::MAX)
    }

    fn on_block_start(&mut self, event: Node<'_>) -> Vec<Event> {
        let Some((at, start)) = index(event).zip(event.get("start")) else {
            return alien_event("contentBlockStart", event);
        };
        let mut events = self.close(at);
        let block = ConverseOpenBlock::new(self.next_index(), Some(start.json()));
        // An empty start leaves the type of the block to the first delta.
        if start.members().next().is_some() {
            events.push(self.opened_event(&block));
        }
        self.open.insert(at, block);
        events
    }

    fn opened_event(&self, block: &ConverseOpenBlock) -> Event {
        events::opened_event(block.index, &self.item(block, false))
    }

    fn on_block_delta(&mut self, event: Node<'_>) -> Vec<Event> {
        let Some((at, delta)) = index(event).zip(event.get("delta")) else {
            return alien_event("contentBlockDelta", event);
        };
        let next = self.next_index();
        let is_new = !self.open.contains_key(&at);
        let block = self.open.entry(at).or_insert_with(|| ConverseOpenBlock::new(next, None));
        let (index, is_told) = (block.index, block.has_known_type());
        let added = block.add(delta);
        let mut events = Vec::with_capacity(2);
        if let DeltaContent::Unknown = added {
            if is_new {
                self.open.remove(&at);
            }
            return alien_event("contentBlockDelta", event);
        }
        if let Some(block) = self.open.get(&at).filter(|_| !is_told) {
            events.push(self.opened_event(block));
        }
        let delta = match added {
            DeltaContent::Text(text) => Delta::Text(text),
            DeltaContent::Thought(text) => Delta::Thought(text),
            DeltaContent::Input(text) => Delta::Args(text),
            DeltaContent::Silent | DeltaContent::Unknown => return events,
        };
        events.push(Event::Delta { index, delta });
        events
    }

    fn on_block_stop(&mut self, event: Node<'_>) -> Vec<Event> {
        match index(event).filter(|at| self.open.contains_key(at)) {
            Some(at) => self.close(at),
            None => alien_event("contentBlockStop", event),
        }
    }

    fn close(&mut self, at: u64) -> Vec<Event> {
        let Some(block) = self.open.remove(&at) else { return Vec::new() };
        let item = self.item(&block, true);
        self.items.push(item.clone());
        vec![Event::Closed { index: block.index, item: Box::new(item) }]
    }

    fn item(&self, block: &ConverseOpenBlock, is_whole: bool) -> Item {
        let context = Cow::Borrowed(&self.context);
        let mut reader = ItemReader::for_reply(context, WIRE, &self.origin, None);
        let json = block.assemble();
        let tree = json.tree();
        let place = ItemPosition { message: 0, part: block.index };
        let mut item = decode::read_block(&mut reader, place, Role::Assistant, tree.root(), None);
        if let Some(native) = &mut item.native {
            native.assembled = true;
        }
        if !is_whole {
            item.mark_truncated();
        }
        item
    }

    fn on_message_stop(&mut self, event: Node<'_>) -> Vec<Event> {
        self.store_members(event);
        let fields = event.get("additionalModelResponseFields");
        self.stop = event.text_of("stopReason").map(|reason| wire::stop(Some(&reason), fields));
        if self.has_metadata { self.finish_reply() } else { Vec::new() }
    }

    fn on_metadata(&mut self, event: Node<'_>) -> Vec<Event> {
        self.store_members(event);
        self.has_metadata = true;
        let mut events = Vec::new();
        if let Some(usage) = event.get("usage") {
            self.usage = wire::usage(usage);
            events.push(Event::Usage(self.usage));
        }
        if self.stop.is_some() {
            events.extend(self.finish_reply());
        }
        events
    }

    /// Stores the members of an event. A later value replaces an earlier one at its position.
    fn store_members(&mut self, event: Node<'_>) {
        for (key, value) in event.members().filter(|(key, _)| !key.is(PADDING)) {
            events::store_member(&mut self.extras, key, value);
        }
    }

    fn finish_reply(&mut self) -> Vec<Event> {
        if std::mem::replace(&mut self.has_ended, true) {
            return Vec::new();
        }
        let is_cut = !self.open.is_empty();
        for block in std::mem::take(&mut self.open).into_values() {
            let item = self.item(&block, false);
            self.items.push(item);
        }
        let stop = self.stop.take().filter(|_| !is_cut).unwrap_or(StopReason::Cut);
        let items = std::mem::take(&mut self.items);
        let extras = std::mem::take(&mut self.extras);
        let (id, usage, origin) = (None, self.usage, Arc::clone(&self.origin));
        vec![events::ended_event(Reply { id, items, stop, usage, origin, extras })]
    }
}

fn index(event: Node<'_>) -> Option<u64> {
    event.get("contentBlockIndex").and_then(Node::u64)
}

fn alien_event(name: &str, event: Node<'_>) -> Vec<Event> {
    vec![Event::Alien(wrap_event(name, &event.json()))]
}

fn wrap_event(name: &str, event: &Json) -> Json {
    object! { (name): event }
}

impl Decoder for ConverseDecoder {
    fn push(&mut self, frame: &Frame) -> Result<Vec<Event>, CodecError> {
        let tree = Tree::parse(frame.data.clone())?;
        let root = tree.root();
        if frame.exception {
            let failure = decode::decode_failure(root, frame.event.clone(), &frame.data);
            return Ok(vec![Event::Failed(failure)]);
        }
        // The name is in the frame. Without the frame it wraps the event or is lost.
        if let Some(name) = &frame.event
            && ConverseEventKind::from_name(name) != ConverseEventKind::Unknown
        {
            return Ok(self.event(ConverseEventKind::from_name(name), Some(name), root));
        }
        if let Some((kind, event)) = ConverseEventKind::unwrap(root) {
            let name = root.members().next().and_then(|(name, _)| name.name());
            if name.as_deref().is_some_and(|name| name.ends_with("Exception")) {
                let failure = decode::decode_failure(event, name, event.json().bytes());
                return Ok(vec![Event::Failed(failure)]);
            }
            if kind != ConverseEventKind::Unknown {
                return Ok(self.event(kind, name.as_deref(), event));
            }
        }
        let kind = if frame.event.is_none() {
            ConverseEventKind::detect(root)
        } else {
            ConverseEventKind::Unknown
        };
        Ok(self.event(kind, frame.event.as_deref(), root))
    }

    fn finish(&mut self) -> Result<Vec<Event>, CodecError> {
        Ok(self.finish_reply())
    }
}

/// Encodes a streamed response. Texts, thoughts and calls are streamed; other Items are written
/// when complete.
#[derive(Default)]
pub(super) struct ConverseEncoder {
    /// Opened calls whose start was not written yet.
    waiting: BTreeMap<u32, Json>,
    /// The Items of which something was written.
    said: BTreeSet<u32>,
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
                let told = event_frame(kind, members! { "message": failure.message });
                vec![Frame { exception: true, ..told }]
            }
            Event::Alien(json) => vec![unwrap_frame(json)],
        })
    }
}

/// Returns the frame of an event that is wrapped in its name.
fn unwrap_frame(json: &Json) -> Frame {
    let tree = json.tree();
    let named = ConverseEventKind::unwrap(tree.root())
        .and_then(|(_, event)| Some((tree.root().members().next()?.0.name()?, event)));
    match named {
        Some((name, event)) => Frame::json(Some(name), &event.json()),
        None => Frame::json(None, json),
    }
}

impl ConverseEncoder {
    /// Opens an Item. Only a call has a start event; a text or a thought begins with its first
    /// delta. The start of a call is delayed until its next event, because a complete call has more
    /// members.
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
            // Steps that the provider ran, and argument deltas that this wire does not support, are
            // written when complete.
            Delta::Args(_) | Delta::ArgsAt { .. } => return Vec::new(),
        };
        self.said.insert(index);
        let beginning = self.waiting.remove(&index);
        beginning
            .map(|beginning| block_start_frame(index, &beginning))
            .into_iter()
            .chain([frame])
            .collect()
    }

    fn is_call(&self, index: u32) -> bool {
        self.waiting.contains_key(&index) || self.said.contains(&index)
    }

    fn write_closed(&mut self, index: u32, item: &Item) -> Vec<Frame> {
        let is_said = self.said.contains(&index);
        let Some(block) = encode::reply_block(item) else { return Vec::new() };
        let tree = block.tree();
        let node = tree.root();
        let mut frames = Vec::new();
        match &item.body {
            Body::Call(_) => {
                if !is_said {
                    frames.extend(tool_frames(index, node, "toolUse", "input"));
                }
            }
            Body::Text(text) | Body::Summary { text, .. } => {
                let citations = node.at("/citationsContent/citations");
                if !is_said && (citations.is_none() || !text.is_empty()) {
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
                if !is_said && text.is_none() && redacted.is_none() {
                    frames.push(block_start_frame(index, &block));
                } else if !is_said && signature.is_none() && redacted.is_none() {
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
            Body::Hosted(_) => frames.extend(tool_frames(index, node, "toolUse", "input")),
            Body::Media(_) | Body::Result(_) | Body::Compaction | Body::Unknown => {
                frames.push(block_start_frame(index, &block));
            }
        }
        let stop = members! { "contentBlockIndex": u64::from(index) };
        frames.push(event_frame("contentBlockStop", stop));
        frames
    }
}

/// Encodes a call or a provider-run step: its start, and its input or output.
fn tool_frames(index: u32, block: Node<'_>, kind: &str, key: &str) -> Vec<Frame> {
    let inner = block.get(kind);
    let beginning = json::object(|o| {
        o.object(kind, |o| {
            let members = inner.into_iter().flat_map(Node::members);
            for (name, value) in members.filter(|(name, _)| !name.is(key)) {
                o.node(&name.text().unwrap_or_default(), value);
            }
        });
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

/// Encodes the end: stop reason and usage. A reply of this wire also repeats its other members.
fn end_frames(reply: &Reply) -> Vec<Frame> {
    if reply.stop == StopReason::Cut {
        return Vec::new();
    }
    let extras = if reply.origin.wire == WIRE { reply.extras.as_slice() } else { &[] };
    let extra = |key: &str| extras.iter().find(|(name, _)| &**name == key).map(|(_, value)| value);
    let is_of_stop = |key: &str| matches!(key, "stopReason" | "additionalModelResponseFields");
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
    let metadata = event_frame("metadata", |o| {
        if extra("usage").is_none() {
            o.raw("usage", &wire::usage_json(&reply.usage));
        }
        if extra("metrics").is_none() {
            o.raw("metrics", &encode::empty_metrics());
        }
        let others = extras.iter().filter(|(key, _)| !is_of_stop(key) && &**key != "output");
        for (key, value) in others {
            o.raw(key, value);
        }
    });
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
