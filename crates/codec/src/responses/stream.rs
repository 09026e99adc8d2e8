//! Decodes and encodes streamed responses.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use throughline_core::{Body, Delta, Event, Item, Origin, Reply, StopReason, Usage};
use throughline_json::{Json, Name, Node, Tree};

use crate::events;
use crate::frame::Frame;
use crate::responses::decode::{self, ResponsesReader};
use crate::responses::wire::{self, ResponsesElementKind};
use crate::{CodecError, DecodeContext, Decoder};

mod native;
mod open_element;
mod whole;
mod write;

use self::open_element::{MessagePartKind, ResponsesOpenElement};
pub(super) use self::write::ResponsesEncoder;

/// Decodes a streamed response.
pub(super) struct ResponsesDecoder {
    context: DecodeContext,
    origin: Arc<Origin>,
    reader: ResponsesReader<'static>,
    id: Option<Name>,
    has_begun: bool,
    /// Open elements by output index.
    open: BTreeMap<u64, ResponsesOpenElement>,
    /// Output indexes of completed elements.
    done: BTreeSet<u64>,
    items: Vec<Item>,
    next_index: u32,
    usage: Usage,
    extras: Vec<(Name, Json)>,
    has_ended: bool,
}

impl ResponsesDecoder {
    pub(super) fn new(context: DecodeContext) -> Self {
        let origin = Arc::clone(&context.target.origin);
        let reader = ResponsesReader::for_reply(Cow::Owned(context.clone()), &origin, None);
        Self {
            context,
            origin,
            reader,
            id: None,
            has_begun: false,
            open: BTreeMap::new(),
            done: BTreeSet::new(),
            items: Vec::new(),
            next_index: 0,
            usage: Usage::default(),
            extras: Vec::new(),
            has_ended: false,
        }
    }

    /// Records the response's own members, which are sent at the start and again at the end.
    fn record_response(&mut self, root: Node<'_>) -> Vec<Event> {
        let Some(response) = root.get("response") else { return vec![Event::Alien(root.json())] };
        self.extras = decode::reply_extras(response);
        if std::mem::replace(&mut self.has_begun, true) {
            return Vec::new();
        }
        self.id = response.name_of("id");
        self.origin = self.context.origin(response.text_of("model").as_deref(), None);
        let context = Cow::Owned(self.context.clone());
        self.reader = ResponsesReader::for_reply(context, &self.origin, self.id.as_ref());
        vec![Event::Began { id: self.id.clone(), origin: Arc::clone(&self.origin) }]
    }

    fn index(&mut self) -> u32 {
        let index = self.next_index;
        self.next_index = index.saturating_add(1);
        index
    }

    fn on_item_added(&mut self, root: Node<'_>) -> Vec<Event> {
        let (Some(at), Some(item)) = (place(root), root.get("item")) else {
            return vec![Event::Alien(root.json())];
        };
        let mut open = ResponsesOpenElement::new(item);
        // The parts of a message are announced one by one.
        if open.kind == ResponsesElementKind::Message {
            self.open.insert(at, open);
            return Vec::new();
        }
        let context = Cow::Borrowed(&self.context);
        let mut preview = ResponsesReader::for_reply(context, &self.origin, None);
        let mut items = Vec::new();
        preview.output(usize::try_from(at).unwrap_or(usize::MAX), item, &mut items);
        let index = self.index();
        open.indices.insert(0, index);
        self.open.insert(at, open);
        items.first().map(|item| events::opened_event(index, item)).into_iter().collect()
    }

    fn on_part_added(&mut self, root: Node<'_>) -> Vec<Event> {
        let (Some(at), Some(part)) = (place(root), root.get("part")) else {
            return vec![Event::Alien(root.json())];
        };
        let number = number(root, "content_index");
        let Some(open) = self.open.get_mut(&at) else { return vec![Event::Alien(root.json())] };
        open.begin_part(number, part.json());
        self.open_parts(at)
    }

    /// Assigns Item indexes to the parts of a message that have none.
    fn open_parts(&mut self, at: u64) -> Vec<Event> {
        let mut events = Vec::new();
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
                // The opening event does not show that a text is a refusal, so the encoder must
                // wait for the complete part.
                id = open.id().filter(|_| begun != MessagePartKind::Refusal);
            }
            events.push(Event::Opened { index, id, body });
        }
        events
    }

    fn text(&mut self, root: Node<'_>) -> Vec<Event> {
        let number = number(root, "content_index");
        let delta = root.text_of("delta").unwrap_or_default();
        let Some((at, open)) = self.at(root) else { return vec![Event::Alien(root.json())] };
        open.add_text(number, &delta);
        let mut events = self.open_parts(at);
        let index = self.open.get(&at).and_then(|open| open.indices.get(&number).copied());
        let delta = Delta::Text(Arc::from(delta));
        events.extend(index.map(|index| Event::Delta { index, delta }));
        events
    }

    fn thought(&mut self, root: Node<'_>, list: &'static str, number: &str) -> Vec<Event> {
        let number = self::number(root, number);
        let delta = root.text_of("delta").unwrap_or_default();
        let Some((_, open)) = self.at(root) else { return vec![Event::Alien(root.json())] };
        // The Thought's text separates its parts, so the deltas do too.
        let is_next = open.add_thought(list, number, &delta);
        let said = if is_next { format!("\n\n{delta}") } else { delta.into_owned() };
        let delta = Delta::Thought(Arc::from(said));
        open.indices
            .get(&0)
            .map(|index| Event::Delta { index: *index, delta })
            .into_iter()
            .collect()
    }

    fn arguments(&mut self, root: Node<'_>) -> Vec<Event> {
        let delta = root.text_of("delta").unwrap_or_default();
        let Some((_, open)) = self.at(root) else { return vec![Event::Alien(root.json())] };
        open.add_arguments(&delta);
        // Free text is not a fragment of JSON, so it is emitted when complete.
        let index = open.indices.get(&0).filter(|_| open.kind == ResponsesElementKind::Call);
        let delta = Delta::Args(Arc::from(delta));
        index.map(|index| Event::Delta { index: *index, delta }).into_iter().collect()
    }

    fn at(&mut self, root: Node<'_>) -> Option<(u64, &mut ResponsesOpenElement)> {
        let at = place(root)?;
        Some((at, self.open.get_mut(&at)?))
    }

    fn on_item_done(&mut self, root: Node<'_>) -> Vec<Event> {
        match (place(root), root.get("item")) {
            (Some(at), Some(item)) => self.close(at, item, false),
            (Some(_) | None, _) => vec![Event::Alien(root.json())],
        }
    }

    /// Closes the Items of a complete element.
    fn close(&mut self, at: u64, element: Node<'_>, is_assembled: bool) -> Vec<Event> {
        let known = self.open.remove(&at).map(|open| open.indices).unwrap_or_default();
        self.done.insert(at);
        let mut items = Vec::new();
        self.reader.output(usize::try_from(at).unwrap_or(usize::MAX), element, &mut items);
        let mut events = Vec::new();
        for (number, mut item) in items.into_iter().enumerate() {
            let index = match known.get(&number) {
                Some(index) => *index,
                None => {
                    let index = self.index();
                    events.push(events::opened_event(index, &item));
                    index
                }
            };
            if let Some(native) = &mut item.native {
                native.assembled = is_assembled;
            }
            self.items.push(item.clone());
            events.push(Event::Closed { index, item: Box::new(item) });
        }
        events
    }

    /// Handles the end of the response. Elements that were not closed are taken from the repeated
    /// output.
    fn on_completed(&mut self, root: Node<'_>) -> Vec<Event> {
        let mut events = self.record_response(root);
        let Some(response) = root.get("response") else { return events };
        let output = response.get("output").into_iter().flat_map(Node::elements);
        for (at, element) in (0_u64..).zip(output) {
            if !self.done.contains(&at) {
                events.extend(self.close(at, element, false));
            }
        }
        if let Some(usage) = response.present("usage") {
            self.usage = wire::usage(usage);
            events.push(Event::Usage(self.usage));
        }
        let stop = wire::decode_stop(response, self.reader.signals);
        events.extend(self.finish_reply(stop));
        events
    }

    fn on_failed(&mut self, root: Node<'_>, frame: &Frame) -> Vec<Event> {
        let mut events = self.record_response(root);
        let failed = root.get("response").unwrap_or(root);
        events.push(Event::Failed(decode::decode_failure(failed, &frame.data)));
        events
    }

    fn finish_reply(&mut self, stop: StopReason) -> Vec<Event> {
        if std::mem::replace(&mut self.has_ended, true) {
            return Vec::new();
        }
        let stop = if self.open.is_empty() { stop } else { StopReason::Cut };
        for (at, open) in std::mem::take(&mut self.open) {
            let element = open.assemble();
            // Parts that are open at the end of a stream never closed, so no close event is
            // emitted.
            drop(self.close(at, element.tree().root(), true));
        }
        let items = std::mem::take(&mut self.items);
        let extras = std::mem::take(&mut self.extras);
        let (id, usage, origin) = (self.id.clone(), self.usage, Arc::clone(&self.origin));
        vec![events::ended_event(Reply { id, items, stop, usage, origin, extras })]
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
        Ok(match &*kind {
            "response.created" | "response.queued" | "response.in_progress" => {
                // Another response on the same connection resets the decoder.
                if self.has_ended {
                    *self = Self::new(self.context.clone());
                }
                self.record_response(root)
            }
            "response.output_item.added" => self.on_item_added(root),
            "response.output_item.done" => self.on_item_done(root),
            "response.content_part.added" => self.on_part_added(root),
            "response.output_text.delta" | "response.refusal.delta" => self.text(root),
            "response.reasoning_summary_text.delta" => {
                self.thought(root, "summary", "summary_index")
            }
            "response.reasoning_text.delta" => self.thought(root, "content", "content_index"),
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                self.arguments(root)
            }
            "response.completed" | "response.incomplete" => self.on_completed(root),
            "response.failed" => self.on_failed(root, frame),
            "error" => vec![Event::Failed(decode::decode_failure(root, &frame.data))],
            kind if is_progress(kind) => Vec::new(),
            _ => vec![Event::Alien(root.json())],
        })
    }

    fn finish(&mut self) -> Result<Vec<Event>, CodecError> {
        Ok(self.finish_reply(StopReason::Cut))
    }
}

/// Returns whether an event only repeats content of `output_item.done` or reports the progress of a
/// hosted step.
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
