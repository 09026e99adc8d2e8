//! Decodes and encodes streamed messages.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use throughline_core::{
    Body, Delta, Event, Item, ItemPosition, Origin, Reply, Role, StopReason, Usage, Wire,
};
use throughline_json::{self as json, Json, Name, Node, Tree};

use crate::anthropic::decode;
use crate::anthropic::encode;
use crate::anthropic::wire;
use crate::events;
use crate::frame::Frame;
use crate::item_reader::{ItemReader, named_member};
use crate::{CodecError, DecodeContext, Decoder, Encoder, draft};

const WIRE: Wire = Wire::ANTHROPIC_MESSAGES;

/// Decodes a streamed message.
pub(super) struct AnthropicDecoder {
    context: DecodeContext,
    origin: Arc<Origin>,
    id: Option<Name>,
    open: BTreeMap<u64, AnthropicOpenBlock>,
    items: Vec<Item>,
    stop: Option<(Name, Option<Name>)>,
    usage: Usage,
    extras: Vec<(Name, Json)>,
    has_ended: bool,
}

/// A block that is not yet complete.
struct AnthropicOpenBlock {
    index: u32,
    start: Json,
    text: String,
    signature: Option<Json>,
    citations: Vec<Json>,
    others: Vec<(Name, Json)>,
}

impl AnthropicDecoder {
    pub(super) fn new(context: DecodeContext) -> Self {
        Self {
            origin: Arc::clone(&context.target.origin),
            context,
            id: None,
            open: BTreeMap::new(),
            items: Vec::new(),
            stop: None,
            usage: Usage::default(),
            extras: Vec::new(),
            has_ended: false,
        }
    }

    fn on_message_start(&mut self, root: Node<'_>) -> Vec<Event> {
        let Some(message) = root.get("message") else { return vec![Event::Alien(root.json())] };
        self.id = message.name_of("id");
        self.origin = self.context.origin(message.text_of("model").as_deref(), None);
        for (key, value) in message.members().filter(|(key, _)| !key.is("content")) {
            self.store_member(key, value);
        }
        let began = Event::Began { id: self.id.clone(), origin: Arc::clone(&self.origin) };
        self.add_usage(message.get("usage"), vec![began])
    }

    /// Stores a member of the message. A later value replaces an earlier one at its position.
    fn store_member(&mut self, key: Node<'_>, value: Node<'_>) {
        // The final usage adds counts and may omit the earlier ones, so merge both.
        match self.extras.iter_mut().find(|(known, _)| &**known == "usage" && key.is(known)) {
            Some((_, known)) => *known = draft::merge_objects(Some(known), &value.json()),
            None => events::store_member(&mut self.extras, key, value),
        }
    }

    fn add_usage(&mut self, usage: Option<Node<'_>>, mut events: Vec<Event>) -> Vec<Event> {
        if let Some(usage) = usage {
            self.usage = wire::usage(usage, self.usage);
            events.push(Event::Usage(self.usage));
        }
        events
    }

    fn on_block_start(&mut self, root: Node<'_>) -> Vec<Event> {
        let (Some(at), Some(block)) =
            (root.get("index").and_then(Node::u64), root.get("content_block"))
        else {
            return vec![Event::Alien(root.json())];
        };
        let index = u32::try_from(self.items.len() + self.open.len()).unwrap_or(u32::MAX);
        let opened = events::opened_event(index, &self.item(index, &block.json(), false));
        let (start, (text, signature, citations, others)) = (block.json(), Default::default());
        let block = AnthropicOpenBlock { index, start, text, signature, citations, others };
        self.open.insert(at, block);
        vec![opened]
    }

    fn on_block_delta(&mut self, root: Node<'_>) -> Vec<Event> {
        let block = root.get("index").and_then(Node::u64).and_then(|at| self.open.get_mut(&at));
        let (Some(block), Some(delta)) = (block, root.get("delta")) else {
            return vec![Event::Alien(root.json())];
        };
        let index = block.index;
        let kind = delta.text_of("type").unwrap_or_default();
        let mut joined = |key: &str, make: fn(Arc<str>) -> Delta| {
            let Some(piece) = delta.text_of(key) else { return Vec::new() };
            block.text.push_str(&piece);
            vec![Event::Delta { index, delta: make(Arc::from(piece)) }]
        };
        match &*kind {
            "text_delta" => joined("text", Delta::Text),
            "thinking_delta" => joined("thinking", Delta::Thought),
            "input_json_delta" => joined("partial_json", Delta::Args),
            "signature_delta" => {
                block.signature = delta.get("signature").map(Node::json);
                Vec::new()
            }
            "citations_delta" => {
                block.citations.extend(delta.get("citation").map(Node::json));
                Vec::new()
            }
            "compaction_delta" => {
                let members = delta.members().filter(|(key, _)| !key.is("type"));
                block.others.extend(members.map(named_member));
                Vec::new()
            }
            _ => vec![Event::Alien(root.json())],
        }
    }

    fn on_block_stop(&mut self, root: Node<'_>) -> Vec<Event> {
        let at = root.get("index").and_then(Node::u64);
        let Some(block) = at.and_then(|at| self.open.remove(&at)) else {
            return vec![Event::Alien(root.json())];
        };
        let item = self.item(block.index, &block.assemble(), true);
        self.items.push(item.clone());
        vec![Event::Closed { index: block.index, item: Box::new(item) }]
    }

    fn item(&self, index: u32, block: &Json, is_whole: bool) -> Item {
        let (context, id) = (Cow::Borrowed(&self.context), self.id.as_ref());
        let mut reader = ItemReader::for_reply(context, WIRE, &self.origin, id);
        let tree = block.tree();
        let place = ItemPosition { message: 0, part: index };
        let mut item = decode::read_block(&mut reader, place, Role::Assistant, tree.root(), None);
        if let Some(native) = &mut item.native {
            native.assembled = true;
        }
        if !is_whole {
            item.mark_truncated();
        }
        item
    }

    fn on_message_delta(&mut self, root: Node<'_>) -> Vec<Event> {
        if let Some(delta) = root.get("delta") {
            for (key, value) in delta.members() {
                self.store_member(key, value);
            }
            if let Some(reason) = delta.name_of("stop_reason") {
                self.stop = Some((reason, delta.name_of("stop_sequence")));
            }
        }
        for (key, value) in root.members().filter(|(key, _)| !key.is("type") && !key.is("delta")) {
            self.store_member(key, value);
        }
        self.add_usage(root.get("usage"), Vec::new())
    }

    fn finish_reply(&mut self) -> Vec<Event> {
        if std::mem::replace(&mut self.has_ended, true) {
            return Vec::new();
        }
        let is_cut = !self.open.is_empty();
        for block in std::mem::take(&mut self.open).into_values() {
            let item = self.item(block.index, &block.assemble(), false);
            self.items.push(item);
        }
        let stop = match self.stop.take() {
            Some((reason, sequence)) if !is_cut => wire::stop(Some(&reason), sequence),
            Some(_) | None => StopReason::Cut,
        };
        let items = std::mem::take(&mut self.items);
        let extras = std::mem::take(&mut self.extras);
        let (id, usage, origin) = (self.id.clone(), self.usage, Arc::clone(&self.origin));
        vec![events::ended_event(Reply { id, items, stop, usage, origin, extras })]
    }
}

impl AnthropicOpenBlock {
    /// Assembles the whole block: the members of its start, completed with the deltas.
    fn assemble(&self) -> Json {
        let tree = self.start.tree();
        let start = tree.root();
        let kind = start.text_of("type").unwrap_or_default();
        let text_key = match &*kind {
            "thinking" => "thinking",
            "text" => "text",
            _ => "",
        };
        let input = (!self.text.is_empty() && text_key.is_empty())
            .then(|| Json::parse(self.text.clone()).unwrap_or_else(|_| json::string(&self.text)));
        json::object(|o| {
            let (mut has_signature, mut has_citations) = (false, false);
            for (key, value) in start.members() {
                let name = key.text().unwrap_or_default();
                let other = self.others.iter().rfind(|(other, _)| **other == *name);
                match (&*name, &self.signature, &input) {
                    (name, _, _) if name == text_key => {
                        let before = value.text().unwrap_or_default();
                        o.string(name, &(before.into_owned() + &self.text));
                    }
                    ("signature", Some(signature), _) => {
                        has_signature = true;
                        o.raw("signature", signature);
                    }
                    ("input", _, Some(input)) => {
                        o.raw("input", input);
                    }
                    ("citations", _, _) if !self.citations.is_empty() => {
                        has_citations = true;
                        self.put_citations(o, value);
                    }
                    (name, _, _) => {
                        match other {
                            Some((_, value)) => o.raw(name, value),
                            None => o.node(name, value),
                        };
                    }
                }
            }
            if let (Some(signature), false) = (&self.signature, has_signature) {
                o.raw("signature", signature);
            }
            if !has_citations && !self.citations.is_empty() {
                self.put_citations(o, start);
            }
            for (key, value) in &self.others {
                if start.get(key).is_none() {
                    o.raw(key, value);
                }
            }
        })
    }

    fn put_citations(&self, o: &mut json::Object<'_>, before: Node<'_>) {
        o.array("citations", |a| {
            before.elements().for_each(|citation| {
                a.node(citation);
            });
            self.citations.iter().for_each(|citation| {
                a.raw(citation);
            });
        });
    }
}

impl Decoder for AnthropicDecoder {
    fn push(&mut self, frame: &Frame) -> Result<Vec<Event>, CodecError> {
        let tree = Tree::parse(frame.data.clone())?;
        let root = tree.root();
        Ok(match &*root.text_of("type").unwrap_or_default() {
            "message_start" => self.on_message_start(root),
            "content_block_start" => self.on_block_start(root),
            "content_block_delta" => self.on_block_delta(root),
            "content_block_stop" => self.on_block_stop(root),
            "message_delta" => self.on_message_delta(root),
            "message_stop" => self.finish_reply(),
            "ping" => Vec::new(),
            "error" => vec![Event::Failed(decode::decode_failure(root, &frame.data))],
            _ => vec![Event::Alien(root.json())],
        })
    }

    fn finish(&mut self) -> Result<Vec<Event>, CodecError> {
        if !self.has_ended {
            self.stop = None;
        }
        Ok(self.finish_reply())
    }
}

/// Encodes a streamed message. Texts, thoughts and calls are streamed; other Items are written when
/// complete.
#[derive(Default)]
pub(super) struct AnthropicEncoder {
    /// The Items whose start was written.
    streaming: Vec<u32>,
    /// Opened calls whose start was not written yet.
    waiting: BTreeMap<u32, Json>,
}

impl Encoder for AnthropicEncoder {
    fn push(&mut self, event: &Event) -> Result<Vec<Frame>, CodecError> {
        Ok(match event {
            Event::Began { id, origin } => {
                let started = members! { "message": {
                    "id": id.as_deref().unwrap_or("msg"), "type": "message", "role": "assistant",
                    "model": origin.answered, "content": [], "stop_reason": null,
                    "stop_sequence": null, "usage": wire::usage_json(&Usage::default()),
                } };
                vec![event_frame("message_start", started)]
            }
            Event::Opened { index, body, .. } => self.write_opened(*index, body),
            Event::Delta { index, delta } => self.write_delta(*index, delta),
            Event::Closed { index, item } => self.write_closed(*index, item),
            Event::Usage(_) => Vec::new(),
            Event::Ended(reply) => end_frames(reply),
            Event::Failed(failure) => {
                let kind = failure.kind.as_deref().unwrap_or("api_error");
                let error = members! { "error": { "type": kind, "message": failure.message } };
                vec![event_frame("error", error)]
            }
            Event::Alien(json) => vec![Frame::json(json.tree().root().name_of("type"), json)],
        })
    }
}

impl AnthropicEncoder {
    fn write_opened(&mut self, index: u32, body: &Body) -> Vec<Frame> {
        // The start block of a call contains its name. Build it from the body if there is no native
        // block.
        let item = Item::new("", ItemPosition::default(), Role::Assistant, body.clone());
        let block = match body {
            Body::Text(_) | Body::Thought(_) => encode::reply_block(&item),
            Body::Call(call) => Some(object! {
                "type": "tool_use", "id": call.wire_id.as_ref().unwrap_or(&call.id.0),
                "name": call.name, "input": {},
            }),
            Body::Media(_)
            | Body::Result(_)
            | Body::Hosted(_)
            | Body::Compaction
            | Body::Summary { .. }
            | Body::Unknown => None,
        };
        // A sealed thought without text may be a redacted one, which must be written whole.
        let waits =
            matches!(body, Body::Thought(t) if t.kind == throughline_core::ThoughtKind::Encrypted);
        match block.filter(|_| !waits) {
            // Wait with the start of a call, because a complete call has more members than its
            // name.
            Some(block) if matches!(body, Body::Call(_)) => {
                self.waiting.insert(index, block);
                Vec::new()
            }
            Some(block) => {
                self.streaming.push(index);
                vec![block_start_frame(index, &block)]
            }
            None => Vec::new(),
        }
    }

    fn write_delta(&mut self, index: u32, delta: &Delta) -> Vec<Frame> {
        let is_waiting = self.waiting.contains_key(&index);
        if !is_waiting && !self.streaming.contains(&index) {
            return Vec::new();
        }
        let (kind, key, text) = match delta {
            Delta::Text(text) => ("text_delta", "text", text),
            Delta::Thought(text) => ("thinking_delta", "thinking", text),
            Delta::Args(text) => ("input_json_delta", "partial_json", text),
            // This wire sends arguments only as text, so they are written when the call is
            // complete.
            Delta::ArgsAt { .. } => return Vec::new(),
        };
        let mut frames = Vec::new();
        if let Some(block) = self.waiting.remove(&index) {
            self.streaming.push(index);
            frames.push(block_start_frame(index, &block));
        }
        frames.push(content_delta(index, kind, members! { (key): text }));
        frames
    }

    fn write_closed(&mut self, index: u32, item: &Item) -> Vec<Frame> {
        let stop = event_frame("content_block_stop", members! { "index": u64::from(index) });
        let native = item.native_on(&WIRE).map(|native| native.json.tree());
        let node = native.as_ref().map(Tree::root);
        if !self.streaming.contains(&index) {
            let Some(block) = encode::reply_block(item) else { return Vec::new() };
            if let Body::Call(_) = &item.body {
                return call_frames(index, &block, stop);
            }
            let is_thinking = node.is_some_and(|n| n.get("type").is_some_and(|t| t.is("thinking")));
            if !is_thinking {
                return vec![block_start_frame(index, &block), stop];
            }
            // A block with only a signature is sent as a signature delta, as the provider does.
            let empty = object! { "type": "thinking", "thinking": "", "signature": "" };
            let mut frames = vec![block_start_frame(index, &empty)];
            frames.extend(signature_frame(index, node));
            frames.push(stop);
            return frames;
        }
        let mut frames = Vec::new();
        match &item.body {
            Body::Text(_) => {
                let citations = node.and_then(|node| node.get("citations"));
                for citation in citations.into_iter().flat_map(Node::elements) {
                    let delta = members! { "citation": citation };
                    frames.push(content_delta(index, "citations_delta", delta));
                }
            }
            Body::Thought(_) => frames.extend(signature_frame(index, node)),
            Body::Call(_)
            | Body::Media(_)
            | Body::Result(_)
            | Body::Hosted(_)
            | Body::Compaction
            | Body::Summary { .. }
            | Body::Unknown => {}
        }
        frames.push(stop);
        frames
    }
}

/// Encodes a complete call: a start with everything but the arguments, which follow as text.
fn call_frames(index: u32, block: &Json, stop: Frame) -> Vec<Frame> {
    let tree = block.tree();
    let args = tree.root().get("input").map_or_else(Json::null, Node::json);
    let args = members! { "partial_json": args.as_str() };
    let beginning = draft::with_member(block, "input", object! {});
    vec![block_start_frame(index, &beginning), content_delta(index, "input_json_delta", args), stop]
}

fn signature_frame(index: u32, block: Option<Node<'_>>) -> Option<Frame> {
    let signature = block?.get("signature")?;
    let delta = members! { "signature": signature };
    Some(content_delta(index, "signature_delta", delta))
}

fn end_frames(reply: &Reply) -> Vec<Frame> {
    if reply.stop == StopReason::Cut {
        return Vec::new();
    }
    let (reason, sequence) = wire::stop_reason(&reply.stop);
    let changed = event_frame("message_delta", |o| {
        o.object("delta", |o| {
            o.maybe_string("stop_reason", reason);
            match sequence {
                Some(sequence) => o.string("stop_sequence", sequence),
                None => o.null("stop_sequence"),
            };
        });
        o.raw("usage", &wire::usage_json(&reply.usage));
    });
    vec![changed, event_frame("message_stop", |_| {})]
}

fn block_start_frame(index: u32, block: &Json) -> Frame {
    let start = members! { "index": u64::from(index), "content_block": block };
    event_frame("content_block_start", start)
}

fn content_delta(index: u32, kind: &str, fill: impl FnOnce(&mut json::Object<'_>)) -> Frame {
    event_frame("content_block_delta", |o| {
        o.number("index", u64::from(index));
        o.object("delta", |o| {
            o.string("type", kind);
            fill(o);
        });
    })
}

fn event_frame(kind: &str, fill: impl FnOnce(&mut json::Object<'_>)) -> Frame {
    let object = json::object(|o| {
        o.string("type", kind);
        fill(o);
    });
    Frame::json(Some(Arc::from(kind)), &object)
}
