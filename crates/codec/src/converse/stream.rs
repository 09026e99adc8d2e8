//! Streamed answers, read and written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use throughline_core::{
    Body, Delta, Event, Item, Json, Name, Node, Origin, Place, Reply, Role, Side, Stop, Tree,
    Usage, Wire, json,
};

use crate::converse::assemble::{Added, OpenBlock};
use crate::converse::decode::{self, Reader};
use crate::converse::encode;
use crate::converse::wire::{self, EventKind};
use crate::events;
use crate::frame::Frame;
use crate::{Asked, CodecError, Decoder, Encoder};

const WIRE: Wire = Wire::BEDROCK_CONVERSE;

/// Noise that hides how long an event is.
const PADDING: &str = "p";

/// Reads a streamed answer.
pub(super) struct ConverseDecoder {
    asked: Asked,
    origin: Arc<Origin>,
    open: BTreeMap<u64, OpenBlock>,
    items: Vec<Item>,
    stop: Option<Stop>,
    usage: Usage,
    extras: Vec<(Name, Json)>,
    has_metadata: bool,
    has_ended: bool,
}

impl ConverseDecoder {
    pub(super) fn new(asked: Asked) -> Self {
        Self {
            origin: asked.origin(None, None),
            asked,
            open: BTreeMap::new(),
            items: Vec::new(),
            stop: None,
            usage: Usage::default(),
            extras: Vec::new(),
            has_metadata: false,
            has_ended: false,
        }
    }

    fn event(&mut self, kind: EventKind, name: Option<&str>, event: Node<'_>) -> Vec<Event> {
        match kind {
            EventKind::MessageStart => {
                vec![Event::Began { id: None, origin: Arc::clone(&self.origin) }]
            }
            EventKind::BlockStart => self.opened(event),
            EventKind::BlockDelta => self.delta(event),
            EventKind::BlockStop => self.closed(event),
            EventKind::MessageStop => self.stopped(event),
            EventKind::Metadata => self.measured(event),
            EventKind::Unknown => {
                // Without its name nobody could tell what it was.
                let event = event.json();
                vec![Event::Alien(name.map_or(event.clone(), |name| wrapped(name, &event)))]
            }
        }
    }

    fn next_index(&self) -> u32 {
        u32::try_from(self.items.len() + self.open.len()).unwrap_or(u32::MAX)
    }

    fn opened(&mut self, event: Node<'_>) -> Vec<Event> {
        let Some((at, start)) = index(event).zip(event.get("start")) else {
            return alien("contentBlockStart", event);
        };
        let mut events = self.close(at);
        let block = OpenBlock::new(self.next_index(), Some(start.json()));
        // A beginning that says nothing leaves it to the first delta to tell what it is.
        if start.members().next().is_some() {
            events.push(self.opening(&block));
        }
        self.open.insert(at, block);
        events
    }

    fn opening(&self, block: &OpenBlock) -> Event {
        events::opened(block.index, &self.item(block, false))
    }

    fn delta(&mut self, event: Node<'_>) -> Vec<Event> {
        let Some((at, delta)) = index(event).zip(event.get("delta")) else {
            return alien("contentBlockDelta", event);
        };
        let next = self.next_index();
        let is_new = !self.open.contains_key(&at);
        let block = self.open.entry(at).or_insert_with(|| OpenBlock::new(next, None));
        let (index, is_told) = (block.index, block.is_told());
        let added = block.add(delta);
        let mut events = Vec::with_capacity(2);
        if let Added::Unknown = added {
            if is_new {
                self.open.remove(&at);
            }
            return alien("contentBlockDelta", event);
        }
        if let Some(block) = self.open.get(&at).filter(|_| !is_told) {
            events.push(self.opening(block));
        }
        let delta = match added {
            Added::Text(text) => Delta::Text(text),
            Added::Thought(text) => Delta::Thought(text),
            Added::Input(text) => Delta::Args(text),
            Added::Silent | Added::Unknown => return events,
        };
        events.push(Event::Delta { index, delta });
        events
    }

    fn closed(&mut self, event: Node<'_>) -> Vec<Event> {
        match index(event).filter(|at| self.open.contains_key(at)) {
            Some(at) => self.close(at),
            None => alien("contentBlockStop", event),
        }
    }

    fn close(&mut self, at: u64) -> Vec<Event> {
        let Some(block) = self.open.remove(&at) else { return Vec::new() };
        let item = self.item(&block, true);
        self.items.push(item.clone());
        vec![Event::Closed { index: block.index, item: Box::new(item) }]
    }

    fn item(&self, block: &OpenBlock, is_whole: bool) -> Item {
        let mut reader = Reader::new(&self.asked, Arc::clone(&self.origin), Side::Response);
        let json = block.assemble();
        let tree = json.tree();
        let place = Place { message: 0, part: block.index };
        let mut item = reader.block(place, Role::Assistant, tree.root(), None);
        if let Some(native) = &mut item.native {
            native.assembled = true;
        }
        if !is_whole {
            item.cut_off();
        }
        item
    }

    fn stopped(&mut self, event: Node<'_>) -> Vec<Event> {
        self.note(event);
        let fields = event.get("additionalModelResponseFields");
        self.stop = event.text_of("stopReason").map(|reason| wire::stop(Some(&reason), fields));
        if self.has_metadata { self.ended() } else { Vec::new() }
    }

    fn measured(&mut self, event: Node<'_>) -> Vec<Event> {
        self.note(event);
        self.has_metadata = true;
        let mut events = Vec::new();
        if let Some(usage) = event.get("usage") {
            self.usage = wire::usage(usage);
            events.push(Event::Usage(self.usage));
        }
        if self.stop.is_some() {
            events.extend(self.ended());
        }
        events
    }

    /// Notes the members of an event: a later value replaces an earlier one in its place.
    fn note(&mut self, event: Node<'_>) {
        for (key, value) in event.members().filter(|(key, _)| !key.is(PADDING)) {
            let name = key.name().unwrap_or_default();
            match self.extras.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => *known = value.json(),
                None => self.extras.push((name, value.json())),
            }
        }
    }

    fn ended(&mut self) -> Vec<Event> {
        if std::mem::replace(&mut self.has_ended, true) {
            return Vec::new();
        }
        let is_cut = !self.open.is_empty();
        for block in std::mem::take(&mut self.open).into_values() {
            let item = self.item(&block, false);
            self.items.push(item);
        }
        let stop = self.stop.take().filter(|_| !is_cut).unwrap_or(Stop::Cut);
        let mut items = std::mem::take(&mut self.items);
        items.sort_by_key(|item| item.place);
        if stop == Stop::Cut {
            items.iter_mut().for_each(Item::cut_off);
        }
        vec![Event::Ended(Box::new(Reply {
            id: None,
            items,
            stop,
            usage: self.usage,
            origin: Arc::clone(&self.origin),
            extras: std::mem::take(&mut self.extras),
        }))]
    }
}

fn index(event: Node<'_>) -> Option<u64> {
    event.get("contentBlockIndex").and_then(Node::u64)
}

fn alien(name: &str, event: Node<'_>) -> Vec<Event> {
    vec![Event::Alien(wrapped(name, &event.json()))]
}

fn wrapped(name: &str, event: &Json) -> Json {
    json::object(|o| {
        o.raw(name, event);
    })
}

impl Decoder for ConverseDecoder {
    fn push(&mut self, frame: &Frame) -> Result<Vec<Event>, CodecError> {
        let tree = Tree::parse(frame.data.clone())?;
        let root = tree.root();
        if frame.exception {
            let failure = decode::failure(root, frame.event.clone(), &frame.data);
            return Ok(vec![Event::Failed(failure)]);
        }
        // The name is in the frame; where the frame is gone, it is round the event or it is lost.
        if let Some(name) = &frame.event
            && EventKind::of(name) != EventKind::Unknown
        {
            return Ok(self.event(EventKind::of(name), Some(name), root));
        }
        if let Some((kind, event)) = EventKind::wrapped(root) {
            let name = root.members().next().and_then(|(name, _)| name.name());
            if name.as_deref().is_some_and(|name| name.ends_with("Exception")) {
                let failure = decode::failure(event, name, event.json().bytes());
                return Ok(vec![Event::Failed(failure)]);
            }
            if kind != EventKind::Unknown {
                return Ok(self.event(kind, name.as_deref(), event));
            }
        }
        let kind = if frame.event.is_none() { EventKind::bare(root) } else { EventKind::Unknown };
        Ok(self.event(kind, frame.event.as_deref(), root))
    }

    fn finish(&mut self) -> Result<Vec<Event>, CodecError> {
        Ok(self.ended())
    }
}

/// Writes a streamed answer. Texts, thoughts and calls go out as they come; anything else goes out when whole.
#[derive(Default)]
pub(super) struct ConverseEncoder {
    /// The calls that were announced, and whose beginning was not written yet.
    waiting: BTreeMap<u32, Json>,
    /// The Items of which something was written.
    said: BTreeSet<u32>,
}

impl Encoder for ConverseEncoder {
    fn push(&mut self, event: &Event) -> Result<Vec<Frame>, CodecError> {
        Ok(match event {
            Event::Began { .. } => vec![frame("messageStart", |o| {
                o.string("role", "assistant");
            })],
            Event::Opened { index, body, .. } => self.opened(*index, body),
            Event::Delta { index, delta } => self.delta(*index, delta),
            Event::Closed { index, item } => self.closed(*index, item),
            Event::Usage(_) => Vec::new(),
            Event::Ended(reply) => ended(reply),
            Event::Failed(failure) => {
                let kind = failure.kind.as_deref().unwrap_or("internalServerException");
                let told = frame(kind, |o| {
                    o.string("message", &failure.message);
                });
                vec![Frame { exception: true, ..told }]
            }
            Event::Alien(json) => vec![unwrapped(json)],
        })
    }
}

/// The frame of an event that was wrapped in its name.
fn unwrapped(json: &Json) -> Frame {
    let tree = json.tree();
    let named = EventKind::wrapped(tree.root())
        .and_then(|(_, event)| Some((tree.root().members().next()?.0.name()?, event)));
    match named {
        Some((name, event)) => {
            Frame { event: Some(name), data: event.json().bytes().clone(), exception: false }
        }
        None => Frame { event: None, data: json.bytes().clone(), exception: false },
    }
}

impl ConverseEncoder {
    /// Only a call has a beginning of its own; a text or a thought begins with its first delta. A call's is written when
    /// it goes on: one that comes whole tells more of itself.
    fn opened(&mut self, index: u32, body: &Body) -> Vec<Frame> {
        if let Body::Call(call) = body {
            let beginning = json::object(|o| {
                o.object("toolUse", |o| {
                    let id = call.wire_id.as_ref().unwrap_or(&call.id.0);
                    o.string("toolUseId", id).string("name", &call.name);
                });
            });
            self.waiting.insert(index, beginning);
        }
        Vec::new()
    }

    fn delta(&mut self, index: u32, delta: &Delta) -> Vec<Frame> {
        let frame = match delta {
            Delta::Text(text) => block_delta(index, |o| {
                o.string("text", text);
            }),
            Delta::Thought(text) => reasoning_delta(index, "text", &json::string(text)),
            Delta::Args(text) if self.is_call(index) => input_delta(index, text),
            // A step that the provider ran, and arguments in pieces that this wire has no words for: they follow when
            // they are whole.
            Delta::Args(_) | Delta::ArgsAt { .. } => return Vec::new(),
        };
        self.said.insert(index);
        let beginning = self.waiting.remove(&index);
        beginning.map(|beginning| start(index, &beginning)).into_iter().chain([frame]).collect()
    }

    fn is_call(&self, index: u32) -> bool {
        self.waiting.contains_key(&index) || self.said.contains(&index)
    }

    fn closed(&mut self, index: u32, item: &Item) -> Vec<Frame> {
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
                    frames.push(block_delta(index, |o| {
                        o.string("text", text);
                    }));
                }
                for citation in citations.into_iter().flat_map(Node::elements) {
                    frames.push(block_delta(index, |o| {
                        o.node("citation", citation);
                    }));
                }
            }
            Body::Thought(_) => {
                let redacted = node.at("/reasoningContent/redactedContent");
                let text = node.at("/reasoningContent/reasoningText");
                let signature = text.and_then(|text| text.get("signature"));
                if !is_said && text.is_none() && redacted.is_none() {
                    frames.push(start(index, &block));
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
                frames.push(start(index, &block));
            }
        }
        frames.push(frame("contentBlockStop", |o| {
            o.number("contentBlockIndex", u64::from(index));
        }));
        frames
    }
}

/// A call, or a step that the provider ran: its beginning, and what it was given or gave.
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
    let mut frames = vec![start(index, &beginning)];
    frames.extend(inner.and_then(|inner| inner.get(key)).map(|value| {
        if key == "input" {
            return input_delta(index, value.json().as_str());
        }
        block_delta(index, |o| {
            o.node(kind, value);
        })
    }));
    frames
}

/// The end: why, and what it cost. An answer of this wire says what else it said.
fn ended(reply: &Reply) -> Vec<Frame> {
    if reply.stop == Stop::Cut {
        return Vec::new();
    }
    let extras = if reply.origin.wire == WIRE { reply.extras.as_slice() } else { &[] };
    let extra = |key: &str| extras.iter().find(|(name, _)| &**name == key).map(|(_, value)| value);
    let is_of_stop = |key: &str| matches!(key, "stopReason" | "additionalModelResponseFields");
    let stop = frame("messageStop", |o| {
        match extra("stopReason") {
            Some(reason) => o.raw("stopReason", reason),
            None => o.string("stopReason", wire::stop_word(&reply.stop)),
        };
        match extra("additionalModelResponseFields") {
            Some(fields) => {
                o.raw("additionalModelResponseFields", fields);
            }
            None => encode::reply_fields(o, reply),
        }
    });
    let metadata = frame("metadata", |o| {
        if extra("usage").is_none() {
            o.raw("usage", &wire::usage_json(&reply.usage));
        }
        if extra("metrics").is_none() {
            o.raw("metrics", &encode::unmeasured());
        }
        let others = extras.iter().filter(|(key, _)| !is_of_stop(key) && &**key != "output");
        for (key, value) in others {
            o.raw(key, value);
        }
    });
    vec![stop, metadata]
}

fn start(index: u32, block: &Json) -> Frame {
    frame("contentBlockStart", |o| {
        o.number("contentBlockIndex", u64::from(index)).raw("start", block);
    })
}

fn block_delta(index: u32, fill: impl FnOnce(&mut json::Object<'_>)) -> Frame {
    frame("contentBlockDelta", |o| {
        o.number("contentBlockIndex", u64::from(index)).object("delta", fill);
    })
}

fn reasoning_delta(index: u32, key: &str, value: &Json) -> Frame {
    block_delta(index, |o| {
        o.object("reasoningContent", |o| {
            o.raw(key, value);
        });
    })
}

fn input_delta(index: u32, text: &str) -> Frame {
    block_delta(index, |o| {
        o.object("toolUse", |o| {
            o.string("input", text);
        });
    })
}

fn frame(name: &str, fill: impl FnOnce(&mut json::Object<'_>)) -> Frame {
    let data = json::object(fill).bytes().clone();
    Frame { event: Some(Arc::from(name)), data, exception: false }
}
