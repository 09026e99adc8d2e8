//! Streamed responses, read and written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use throughline_core::{
    Body, Delta, Event, Item, Json, Name, Node, Origin, Reply, Side, Stop, Tree, Usage,
};

use crate::events;
use crate::frame::Frame;
use crate::responses::decode::{self, Reader};
use crate::responses::wire::{self, Kind};
use crate::{Asked, CodecError, Decoder};

mod open;
mod own;
mod whole;
mod write;

use self::open::{Begun, Open};
pub(super) use self::write::ResponseEncoder;

/// Reads a streamed response.
pub(super) struct ResponseDecoder {
    asked: Asked,
    origin: Arc<Origin>,
    reader: Reader,
    id: Option<Name>,
    has_begun: bool,
    /// The elements that have begun and not ended, by their place in the output.
    open: BTreeMap<u64, Open>,
    /// The places of the elements that have ended.
    done: BTreeSet<u64>,
    items: Vec<Item>,
    next_index: u32,
    usage: Usage,
    extras: Vec<(Name, Json)>,
    has_ended: bool,
}

impl ResponseDecoder {
    pub(super) fn new(asked: Asked) -> Self {
        let origin = Arc::clone(&asked.target.origin);
        let mut reader = Reader::new(asked.clone(), Arc::clone(&origin), Side::Response);
        reader.prefix_ids_with(None);
        Self {
            asked,
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

    /// Notes what a response says of itself, which it does at the beginning and again at the end.
    fn noted(&mut self, root: Node<'_>) -> Vec<Event> {
        let Some(response) = root.get("response") else { return vec![Event::Alien(root.json())] };
        self.extras = decode::extras_of(response);
        if std::mem::replace(&mut self.has_begun, true) {
            return Vec::new();
        }
        self.id = response.name_of("id");
        self.origin = self.asked.origin(response.text_of("model").as_deref(), None);
        let origin = Arc::clone(&self.origin);
        self.reader = Reader::new(self.asked.clone(), Arc::clone(&origin), Side::Response);
        self.reader.prefix_ids_with(self.id.as_ref());
        vec![Event::Began { id: self.id.clone(), origin }]
    }

    fn index(&mut self) -> u32 {
        let index = self.next_index;
        self.next_index = index.saturating_add(1);
        index
    }

    fn added(&mut self, root: Node<'_>) -> Vec<Event> {
        let (Some(at), Some(item)) = (place(root), root.get("item")) else {
            return vec![Event::Alien(root.json())];
        };
        let mut open = Open::new(item);
        // The parts of a message are told one by one.
        if open.kind == Kind::Message {
            self.open.insert(at, open);
            return Vec::new();
        }
        let origin = Arc::clone(&self.origin);
        let mut glance = Reader::new(self.asked.clone(), origin, Side::Response);
        let mut items = Vec::new();
        glance.output(usize::try_from(at).unwrap_or(usize::MAX), item, &mut items);
        let index = self.index();
        open.indices.insert(0, index);
        self.open.insert(at, open);
        items.first().map(|item| events::opened(index, item)).into_iter().collect()
    }

    fn part_added(&mut self, root: Node<'_>) -> Vec<Event> {
        let (Some(at), Some(part)) = (place(root), root.get("part")) else {
            return vec![Event::Alien(root.json())];
        };
        let number = number(root, "content_index");
        let Some(open) = self.open.get_mut(&at) else { return vec![Event::Alien(root.json())] };
        open.begin_part(number, part.json());
        self.open_parts(at)
    }

    /// Gives the parts of a message that have none their numbers in the answer.
    fn open_parts(&mut self, at: u64) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some((number, begun)) = self.open.get(&at).and_then(Open::part_without_index) {
            let body = match begun {
                Begun::Text | Begun::Refusal => Body::Text(Name::from("")),
                Begun::Other => Body::Unknown,
            };
            let index = self.index();
            let mut id = None;
            if let Some(open) = self.open.get_mut(&at) {
                open.indices.insert(number, index);
                // Nothing in a text says that it is a refusal, so whoever writes it here must wait until it is whole.
                id = open.id().filter(|_| begun != Begun::Refusal);
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
        // The thought's text has its parts apart, so what is told of it has, too.
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
        // Free text is no piece of JSON, so it is told when it is whole.
        let index = open.indices.get(&0).filter(|_| open.kind == Kind::Call);
        let delta = Delta::Args(Arc::from(delta));
        index.map(|index| Event::Delta { index: *index, delta }).into_iter().collect()
    }

    fn at(&mut self, root: Node<'_>) -> Option<(u64, &mut Open)> {
        let at = place(root)?;
        Some((at, self.open.get_mut(&at)?))
    }

    fn closed(&mut self, root: Node<'_>) -> Vec<Event> {
        match (place(root), root.get("item")) {
            (Some(at), Some(item)) => self.close(at, item, false),
            (Some(_) | None, _) => vec![Event::Alien(root.json())],
        }
    }

    /// Closes the Items of an element that is whole.
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
                    events.push(events::opened(index, &item));
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

    /// The response is whole. An element that nobody closed is taken from the response's own account of itself.
    fn completed(&mut self, root: Node<'_>) -> Vec<Event> {
        let mut events = self.noted(root);
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
        let stop = wire::stop(response, self.reader.signs);
        events.extend(self.ended(stop));
        events
    }

    fn failed(&mut self, root: Node<'_>, frame: &Frame) -> Vec<Event> {
        let mut events = self.noted(root);
        let failed = root.get("response").unwrap_or(root);
        events.push(Event::Failed(decode::failure(failed, &frame.data)));
        events
    }

    fn ended(&mut self, stop: Stop) -> Vec<Event> {
        if std::mem::replace(&mut self.has_ended, true) {
            return Vec::new();
        }
        let stop = if self.open.is_empty() { stop } else { Stop::Cut };
        for (at, open) in std::mem::take(&mut self.open) {
            let element = open.assemble();
            // What is still open when a stream ends was never closed, and nobody is told that it was.
            drop(self.close(at, element.tree().root(), true));
        }
        let mut items = std::mem::take(&mut self.items);
        items.sort_by_key(|item| item.place);
        if stop == Stop::Cut {
            items.iter_mut().for_each(Item::cut_off);
        }
        vec![Event::Ended(Box::new(Reply {
            id: self.id.clone(),
            items,
            stop,
            usage: self.usage,
            origin: Arc::clone(&self.origin),
            extras: std::mem::take(&mut self.extras),
        }))]
    }
}

fn place(root: Node<'_>) -> Option<u64> {
    root.get("output_index").and_then(Node::u64)
}

fn number(root: Node<'_>, key: &str) -> usize {
    let number = root.get(key).and_then(Node::u64).unwrap_or(0);
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl Decoder for ResponseDecoder {
    fn push(&mut self, frame: &Frame) -> Result<Vec<Event>, CodecError> {
        if frame.data.trim_ascii() == b"[DONE]" {
            return Ok(Vec::new());
        }
        let tree = Tree::parse(frame.data.clone())?;
        let root = tree.root();
        let kind = root.text_of("type").unwrap_or_default();
        Ok(match &*kind {
            "response.created" | "response.queued" | "response.in_progress" => {
                // Another response on the same connection begins afresh.
                if self.has_ended {
                    *self = Self::new(self.asked.clone());
                }
                self.noted(root)
            }
            "response.output_item.added" => self.added(root),
            "response.output_item.done" => self.closed(root),
            "response.content_part.added" => self.part_added(root),
            "response.output_text.delta" | "response.refusal.delta" => self.text(root),
            "response.reasoning_summary_text.delta" => {
                self.thought(root, "summary", "summary_index")
            }
            "response.reasoning_text.delta" => self.thought(root, "content", "content_index"),
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                self.arguments(root)
            }
            "response.completed" | "response.incomplete" => self.completed(root),
            "response.failed" => self.failed(root, frame),
            "error" => vec![Event::Failed(decode::failure(root, &frame.data))],
            kind if is_progress(kind) => Vec::new(),
            _ => vec![Event::Alien(root.json())],
        })
    }

    fn finish(&mut self) -> Result<Vec<Event>, CodecError> {
        Ok(self.ended(Stop::Cut))
    }
}

/// Whether an event only repeats what its element says when it is done, or tells how far a hosted step has come.
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
