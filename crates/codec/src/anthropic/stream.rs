//! Decodes and encodes streamed messages.

use std::collections::BTreeMap;
use std::sync::Arc;

use throughline_core::{Body, Delta, Event, Item, Reply, StopReason, ThoughtKind, Usage};
use throughline_json::{self as json, Json, Name, Node, Tree};

use crate::anthropic::{WIRE, decode, encode, wire};
use crate::events::{self, StreamedReply};
use crate::frame::Frame;
use crate::item_reader::named_member;
use crate::{CodecError, DecodeContext, Decoder, Encoder, draft};

pub(super) struct AnthropicDecoder {
    reply: StreamedReply,
    open: BTreeMap<u64, AnthropicOpenBlock>,
    stop: Option<(Name, Option<Name>)>,
}

/// A block whose `content_block_stop` event has not arrived yet.
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
        Self { reply: StreamedReply::new(context, WIRE), open: BTreeMap::new(), stop: None }
    }

    fn on_message_start(&mut self, root: Node<'_>) {
        let Some(message) = root.get("message") else { return self.reply.pass_on(root) };
        self.reply.begin(message.name_of("id"), message.text_of("model").as_deref(), None);
        for (key, value) in message.members().filter(|(key, _)| !key.is("content")) {
            self.store_member(key, value);
        }
        self.add_usage(message);
    }

    /// Stores a member of the message. If the member is repeated, it keeps its first position and
    /// gets the later value.
    fn store_member(&mut self, key: Node<'_>, value: Node<'_>) {
        // The final usage adds counts but may omit earlier counts, so merge the two objects.
        let extras = &mut self.reply.extras;
        match extras.iter_mut().find(|(known, _)| &**known == "usage" && key.is(known)) {
            Some((_, known)) => *known = draft::merge_objects(Some(known), &value.json()),
            None => events::store_member(extras, key, value),
        }
    }

    fn add_usage(&mut self, message: Node<'_>) {
        if let Some(usage) = message.get("usage") {
            self.reply.set_usage(wire::usage(usage, self.reply.usage));
        }
    }

    fn on_block_start(&mut self, root: Node<'_>) {
        let at = root.get("index").and_then(Node::u64);
        let Some((at, block)) = at.zip(root.get("content_block")) else {
            return self.reply.pass_on(root);
        };
        let index = u32::try_from(self.reply.items.len() + self.open.len()).unwrap_or(u32::MAX);
        let (start, (text, signature, citations, others)) = (block.json(), Default::default());
        let mut item = self.item(index, &start);
        item.mark_truncated();
        self.reply.open(index, &item);
        let block = AnthropicOpenBlock { index, start, text, signature, citations, others };
        self.open.insert(at, block);
    }

    fn on_block_delta(&mut self, root: Node<'_>) {
        let block = root.get("index").and_then(Node::u64).and_then(|at| self.open.get_mut(&at));
        let (Some(block), Some(delta)) = (block, root.get("delta")) else {
            return self.reply.pass_on(root);
        };
        let mut join = |key: &str, make: fn(Arc<str>) -> Delta| {
            if let Some(piece) = delta.text_of(key) {
                block.text.push_str(&piece);
                self.reply.add_delta(block.index, make(Arc::from(piece)));
            }
        };
        match &*delta.text_of("type").unwrap_or_default() {
            "text_delta" => join("text", Delta::Text),
            "thinking_delta" => join("thinking", Delta::Thought),
            "input_json_delta" => join("partial_json", Delta::Args),
            "signature_delta" => block.signature = delta.get("signature").map(Node::json),
            "citations_delta" => block.citations.extend(delta.get("citation").map(Node::json)),
            "compaction_delta" => {
                let members = delta.members().filter(|(key, _)| !key.is("type"));
                block.others.extend(members.map(named_member));
            }
            _ => self.reply.pass_on(root),
        }
    }

    fn on_block_stop(&mut self, root: Node<'_>) {
        let at = root.get("index").and_then(Node::u64);
        let Some(block) = at.and_then(|at| self.open.remove(&at)) else {
            return self.reply.pass_on(root);
        };
        let item = self.item(block.index, &block.assemble());
        self.reply.close(block.index, item);
    }

    fn item(&self, index: u32, block: &Json) -> Item {
        self.reply.item(index, block, true, decode::read_block)
    }

    fn on_message_delta(&mut self, root: Node<'_>) {
        let delta = root.get("delta");
        if let Some(reason) = delta.and_then(|delta| delta.name_of("stop_reason")) {
            self.stop = Some((reason, delta.and_then(|delta| delta.name_of("stop_sequence"))));
        }
        let others = root.members().filter(|(key, _)| !key.is("type") && !key.is("delta"));
        for (key, value) in delta.into_iter().flat_map(Node::members).chain(others) {
            self.store_member(key, value);
        }
        self.add_usage(root);
    }

    fn finish_reply(&mut self) {
        if self.reply.has_ended {
            return;
        }
        let is_cut = !self.open.is_empty();
        for block in std::mem::take(&mut self.open).into_values() {
            let item = self.item(block.index, &block.assemble());
            self.reply.items.push(item);
        }
        let stop = self.stop.take().filter(|_| !is_cut);
        let stop = stop.map(|(reason, sequence)| wire::stop(Some(&reason), sequence));
        self.reply.end(stop.unwrap_or(StopReason::Cut));
    }
}

impl AnthropicOpenBlock {
    /// Assembles the whole block from the members of its start event and the deltas.
    fn assemble(&self) -> Json {
        let tree = self.start.tree();
        let start = tree.root();
        let kind = start.text_of("type").unwrap_or_default();
        let is_text = matches!(&*kind, "text" | "thinking");
        let mut grown: Vec<(&str, Json)> = Vec::new();
        if let Some(before) = start.get(&kind).filter(|_| is_text) {
            let text = before.text().unwrap_or_default().into_owned() + &self.text;
            grown.push((&kind, json::string(&text)));
        }
        if !is_text && !self.text.is_empty() && start.get("input").is_some() {
            let input = Json::parse(self.text.clone());
            grown.push(("input", input.unwrap_or_else(|_| json::string(&self.text))));
        }
        grown.extend(self.signature.clone().map(|signature| ("signature", signature)));
        if !self.citations.is_empty() {
            let before = start.get("citations").into_iter().flat_map(Node::elements);
            let all = before.map(Node::json).chain(self.citations.iter().cloned());
            grown.push(("citations", json::array_of(&all.collect::<Vec<_>>())));
        }
        let grown = || grown.iter().map(|(key, value)| (*key, value));
        let others = || self.others.iter().map(|(key, value)| (&**key, value));
        json::object(|o| {
            for (key, value) in start.members() {
                let name = key.text().unwrap_or_default();
                // If several deltas set the same member, the last value counts.
                match grown().chain(others().rev()).find(|(known, _)| *known == name) {
                    Some((_, value)) => o.raw(&name, value),
                    None => o.node(&name, value),
                };
            }
            for (key, value) in grown().chain(others()) {
                if start.get(key).is_none() {
                    o.raw(key, value);
                }
            }
        })
    }
}

impl Decoder for AnthropicDecoder {
    fn push(&mut self, frame: &Frame) -> Result<Vec<Event>, CodecError> {
        let tree = Tree::parse(frame.data.clone())?;
        let root = tree.root();
        match &*root.text_of("type").unwrap_or_default() {
            "message_start" => self.on_message_start(root),
            "content_block_start" => self.on_block_start(root),
            "content_block_delta" => self.on_block_delta(root),
            "content_block_stop" => self.on_block_stop(root),
            "message_delta" => self.on_message_delta(root),
            "message_stop" => self.finish_reply(),
            "ping" => {}
            "error" => {
                let failure = decode::decode_failure(root, &frame.data);
                self.reply.events.push(Event::Failed(failure));
            }
            _ => self.reply.pass_on(root),
        }
        Ok(self.reply.take_events())
    }

    fn finish(&mut self) -> Result<Vec<Event>, CodecError> {
        if !self.reply.has_ended {
            self.stop = None;
        }
        self.finish_reply();
        Ok(self.reply.take_events())
    }
}

/// Encodes a streamed message. Texts, thoughts and calls are emitted incrementally; other Items are
/// emitted once complete.
#[derive(Default)]
pub(super) struct AnthropicEncoder {
    /// The indexes of the Items whose start event was written.
    streaming: Vec<u32>,
    /// Calls and thoughts that were opened but whose start event is not written yet, by Item index.
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
        match body {
            // Delay the start event of a call, because a complete call has more members than its
            // name.
            Body::Call(call) => {
                self.waiting.insert(index, encode::call_block(call, &object! {}));
                Vec::new()
            }
            // A sealed thought without text may be a redacted thought, which must be written whole.
            // On other wires, the text may still follow.
            Body::Thought(thought) if thought.kind == ThoughtKind::Encrypted => {
                self.waiting.extend(encode::body_block(body).map(|block| (index, block)));
                Vec::new()
            }
            Body::Text(_) | Body::Thought(_) => {
                self.streaming.push(index);
                let block = encode::body_block(body);
                block.iter().map(|block| block_start_frame(index, block)).collect()
            }
            _ => Vec::new(),
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
            // This wire sends arguments only as text, so deltas by path are written when the call
            // is complete.
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
        let mut frames = Vec::new();
        self.waiting.remove(&index);
        if !self.streaming.contains(&index) {
            let Some(block) = encode::reply_block(item) else { return Vec::new() };
            if let Body::Call(_) = &item.body {
                return call_frames(index, &block, stop);
            }
            let is_thinking = node.is_some_and(|n| n.get("type").is_some_and(|t| t.is("thinking")));
            if !is_thinking {
                return vec![block_start_frame(index, &block), stop];
            }
            // A block that has only a signature is sent as a signature delta, as the provider sends
            // it.
            let empty = object! { "type": "thinking", "thinking": "", "signature": "" };
            frames.push(block_start_frame(index, &empty));
            let text = item.visible().filter(|text| !text.is_empty());
            frames.extend(
                text.map(|text| {
                    content_delta(index, "thinking_delta", members! { "thinking": text })
                }),
            );
        }
        if let Body::Text(_) = &item.body {
            let citations = node.and_then(|node| node.get("citations"));
            for citation in citations.into_iter().flat_map(Node::elements) {
                let delta = members! { "citation": citation };
                frames.push(content_delta(index, "citations_delta", delta));
            }
        }
        if let Body::Thought(_) = &item.body {
            frames.extend(signature_frame(index, node));
        }
        frames.push(stop);
        frames
    }
}

/// Encodes a complete call as a start event without arguments, followed by the arguments as text.
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
    let sequence = sequence.map_or_else(Json::null, json::string);
    let changed = members! {
        "delta": { "stop_reason": reason, "stop_sequence": sequence },
        "usage": wire::usage_json(&reply.usage),
    };
    vec![event_frame("message_delta", changed), event_frame("message_stop", members! {})]
}

fn block_start_frame(index: u32, block: &Json) -> Frame {
    let start = members! { "index": u64::from(index), "content_block": block };
    event_frame("content_block_start", start)
}

fn content_delta(index: u32, kind: &str, fill: impl FnOnce(&mut json::Object<'_>)) -> Frame {
    event_frame("content_block_delta", |o| {
        o.number("index", u64::from(index)).object("delta", |o| fill(o.string("type", kind)));
    })
}

fn event_frame(kind: &str, fill: impl FnOnce(&mut json::Object<'_>)) -> Frame {
    Frame::json(Some(Arc::from(kind)), &json::object(|o| fill(o.string("type", kind))))
}
