//! Decodes and encodes streamed responses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use throughline_core::{Body, Delta, Event, StopReason};
use throughline_json::{Name, Node, Tree};

use crate::call_ids::CallTracker;
use crate::events::StreamedReply;
use crate::frame::Frame;
use crate::responses::WIRE;
use crate::responses::decode::{self, ResponsesReader};
use crate::responses::wire::{self, ResponsesElementKind as Kind, StopSignals};
use crate::{CodecError, DecodeContext, Decoder};

mod native;
mod open_element;
mod whole;
mod write;

use self::open_element::{MessagePartKind, ResponsesOpenElement};
pub(super) use self::write::ResponsesEncoder;

pub(super) struct ResponsesDecoder {
    reply: StreamedReply,
    calls: CallTracker,
    signals: StopSignals,
    /// The open elements, by output index.
    open: BTreeMap<u64, ResponsesOpenElement>,
    /// The output indexes of completed elements.
    done: BTreeSet<u64>,
    next_index: u32,
}

impl ResponsesDecoder {
    pub(super) fn new(context: DecodeContext) -> Self {
        Self {
            reply: StreamedReply::new(context, WIRE),
            calls: CallTracker::default(),
            signals: StopSignals::default(),
            open: BTreeMap::new(),
            done: BTreeSet::new(),
            next_index: 0,
        }
    }

    /// Records the members of the `response` object, which the first and the last event of a stream
    /// contain.
    fn record_response(&mut self, root: Node<'_>) {
        let Some(response) = root.get("response") else { return self.reply.pass_on(root) };
        self.reply.extras = decode::reply_extras(response);
        if !self.reply.has_begun {
            (self.calls, self.signals) = Default::default();
            let id = response.name_of("id");
            self.reply.begin(id, response.text_of("model").as_deref(), None);
        }
    }

    fn index(&mut self) -> u32 {
        let index = self.next_index;
        self.next_index = index.saturating_add(1);
        index
    }

    fn on_item_added(&mut self, root: Node<'_>) {
        let Some((at, item)) = place(root).zip(root.get("item")) else {
            return self.reply.pass_on(root);
        };
        let mut open = ResponsesOpenElement::new(item);
        // Parts of a message are opened individually, when they start.
        if open.kind != Kind::Message {
            let mut items = Vec::new();
            let mut preview = ResponsesReader::new(self.reply.reader());
            preview.output(usize::try_from(at).unwrap_or(usize::MAX), item, &mut items);
            let index = self.index();
            open.indices.insert(0, index);
            if let Some(item) = items.first() {
                self.reply.open(index, item);
            }
        }
        self.open.insert(at, open);
    }

    fn on_part_added(&mut self, root: Node<'_>) {
        let number = number(root, "content_index");
        let (Some((at, open)), Some(part)) = (self.at(root), root.get("part")) else {
            return self.reply.pass_on(root);
        };
        open.begin_part(number, part.json());
        self.open_parts(at);
    }

    /// Assigns Item indexes to message parts that have none, and emits their `Opened` events.
    fn open_parts(&mut self, at: u64) {
        while let Some((number, begun)) =
            self.open.get(&at).and_then(ResponsesOpenElement::part_without_index)
        {
            let body = match begun {
                MessagePartKind::Text | MessagePartKind::Refusal => Body::Text(Name::from("")),
                MessagePartKind::Other => Body::Unknown,
            };
            let index = self.index();
            let mut id = None;
            if let Some(open) = self.open.get_mut(&at) {
                open.indices.insert(number, index);
                // `Opened` does not distinguish a refusal from a text. Without an id, the encoder
                // waits for the complete part.
                id = open.id().filter(|_| begun != MessagePartKind::Refusal);
            }
            self.reply.events.push(Event::Opened { index, id, body });
        }
    }

    fn text(&mut self, root: Node<'_>) {
        let number = number(root, "content_index");
        let delta = root.text_of("delta").unwrap_or_default();
        let Some((at, open)) = self.at(root) else { return self.reply.pass_on(root) };
        open.add_text(number, &delta);
        self.open_parts(at);
        if let Some(index) = self.open.get(&at).and_then(|open| open.indices.get(&number)) {
            self.reply.add_delta(*index, Delta::Text(Arc::from(delta)));
        }
    }

    fn thought(&mut self, root: Node<'_>, list: &'static str, number: &str) {
        let number = self::number(root, number);
        let delta = root.text_of("delta").unwrap_or_default();
        let Some((_, open)) = self.at(root) else { return self.reply.pass_on(root) };
        // The parts of a Thought are separated in its text, so the deltas must contain the
        // separator too.
        let is_next = open.add_thought(list, number, &delta);
        let text = if is_next { format!("\n\n{delta}") } else { delta.into_owned() };
        if let Some(index) = open.indices.get(&0).copied() {
            self.reply.add_delta(index, Delta::Thought(Arc::from(text)));
        }
    }

    fn arguments(&mut self, root: Node<'_>) {
        let delta = root.text_of("delta").unwrap_or_default();
        let Some((_, open)) = self.at(root) else { return self.reply.pass_on(root) };
        open.arguments.push_str(&delta);
        // The input of a custom call is free text, not a JSON fragment, so it is emitted once
        // complete.
        let index = open.indices.get(&0).filter(|_| open.kind == Kind::Call);
        if let Some(index) = index.copied() {
            self.reply.add_delta(index, Delta::Args(Arc::from(delta)));
        }
    }

    fn at(&mut self, root: Node<'_>) -> Option<(u64, &mut ResponsesOpenElement)> {
        let at = place(root)?;
        Some((at, self.open.get_mut(&at)?))
    }

    fn on_item_done(&mut self, root: Node<'_>) {
        match place(root).zip(root.get("item")) {
            Some((at, item)) => self.close(at, item, false),
            None => self.reply.pass_on(root),
        }
    }

    /// Closes the Items of a complete element and emits them.
    fn close(&mut self, at: u64, element: Node<'_>, is_assembled: bool) {
        let known = self.open.remove(&at).map(|open| open.indices).unwrap_or_default();
        self.done.insert(at);
        let mut items = Vec::new();
        let mut reader = ResponsesReader::new(self.reply.reader());
        reader.base.calls = std::mem::take(&mut self.calls);
        reader.signals = self.signals;
        reader.output(usize::try_from(at).unwrap_or(usize::MAX), element, &mut items);
        (self.calls, self.signals) = (reader.base.calls, reader.signals);
        for (number, mut item) in items.into_iter().enumerate() {
            if let Some(native) = &mut item.native {
                native.assembled = is_assembled;
            }
            let index = known.get(&number).copied().unwrap_or_else(|| {
                let index = self.index();
                self.reply.open(index, &item);
                index
            });
            self.reply.close(index, item);
        }
    }

    /// Handles the end of the response. Elements that were never closed are read from the final
    /// event's output.
    fn on_completed(&mut self, root: Node<'_>) {
        self.record_response(root);
        let Some(response) = root.get("response") else { return };
        let output = response.get("output").into_iter().flat_map(Node::elements);
        for (at, element) in (0_u64..).zip(output) {
            if !self.done.contains(&at) {
                self.close(at, element, false);
            }
        }
        if let Some(usage) = response.present("usage") {
            self.reply.set_usage(wire::usage(usage));
        }
        self.finish_reply(wire::decode_stop(response, self.signals));
    }

    fn fail(&mut self, root: Node<'_>, frame: &Frame) {
        let failure = decode::decode_failure(root, &frame.data);
        self.reply.events.push(Event::Failed(failure));
    }

    fn finish_reply(&mut self, stop: StopReason) {
        if self.reply.has_ended {
            return;
        }
        let stop = if self.open.is_empty() { stop } else { StopReason::Cut };
        let count = self.reply.events.len();
        for (at, open) in std::mem::take(&mut self.open) {
            self.close(at, open.assemble().tree().root(), true);
        }
        // Parts that are still open when the stream ends get no `Closed` event.
        self.reply.events.truncate(count);
        self.reply.end(stop);
    }
}

fn place(root: Node<'_>) -> Option<u64> {
    root.get("output_index").and_then(Node::u64)
}

fn number(root: Node<'_>, key: &str) -> usize {
    let number = root.get(key).and_then(Node::u64).unwrap_or(0);
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl Decoder for ResponsesDecoder {
    fn push(&mut self, frame: &Frame) -> Result<Vec<Event>, CodecError> {
        if frame.data.trim_ascii() == b"[DONE]" {
            return Ok(Vec::new());
        }
        let tree = Tree::parse(frame.data.clone())?;
        let root = tree.root();
        let kind = root.text_of("type").unwrap_or_default();
        match &*kind {
            "response.created" | "response.queued" | "response.in_progress" => {
                // A new response on the same connection resets the decoder.
                if self.reply.has_ended {
                    *self = Self::new(self.reply.context.clone());
                }
                self.record_response(root);
            }
            "response.output_item.added" => self.on_item_added(root),
            "response.output_item.done" => self.on_item_done(root),
            "response.content_part.added" => self.on_part_added(root),
            "response.output_text.delta" | "response.refusal.delta" => self.text(root),
            "response.reasoning_summary_text.delta" => {
                self.thought(root, "summary", "summary_index");
            }
            "response.reasoning_text.delta" => self.thought(root, "content", "content_index"),
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                self.arguments(root);
            }
            "response.completed" | "response.incomplete" => self.on_completed(root),
            "response.failed" => {
                self.record_response(root);
                self.fail(root.get("response").unwrap_or(root), frame);
            }
            "error" => self.fail(root, frame),
            kind if is_progress(kind) => {}
            _ => self.reply.pass_on(root),
        }
        Ok(self.reply.take_events())
    }

    fn finish(&mut self) -> Result<Vec<Event>, CodecError> {
        self.finish_reply(StopReason::Cut);
        Ok(self.reply.take_events())
    }
}

/// Returns whether an event only repeats content of `output_item.done`, or reports the progress of
/// a hosted step.
fn is_progress(kind: &str) -> bool {
    const PREFIXES: &[&str] = &[
        "response.content_part.done",
        "response.output_text.",
        "response.refusal.done",
        "response.reasoning_summary_part.",
        "response.reasoning_summary_text.done",
        "response.reasoning_text.done",
        "response.function_call_arguments.done",
        "response.custom_tool_call_input.done",
        "response.web_search_call.",
        "response.file_search_call.",
        "response.code_interpreter_call",
        "response.image_generation_call.",
        "response.mcp_call",
        "response.mcp_list_tools.",
        "response.tool_search_call.",
        "response.compaction.",
    ];
    PREFIXES.iter().any(|prefix| kind.starts_with(prefix))
}
