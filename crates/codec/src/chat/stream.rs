//! Decodes and encodes streamed messages.
//!
//! The chat wire does not mark the end of a part. A thought ends where text or a call begins; a
//! text ends where a thought or a call begins. Calls end with the message, because their arguments
//! may be interleaved. A string that continues after its end becomes another Item of the same slot.
//! A detail that continues is joined in the final Reply.

use std::borrow::Cow;
use std::sync::Arc;

use throughline_core::{
    Body, Delta, Event, Item, ItemPosition, Origin, Reply, Role, StopReason, Usage, Wire,
};
use throughline_json::{self as json, Json, Label, Name, Node, Tree};

use crate::chat::decode::{self, CHOICE, CHOICE_MESSAGE, message};
use crate::chat::slot::{self, FIELDS};
use crate::chat::stream::part::{ChatOpenCall, ChatOpenPart, OpenChunk, OpenPartKind};
use crate::chat::tags::{TagPiece, TagSplitter};
use crate::chat::wire;
use crate::events;
use crate::frame::Frame;
use crate::item_reader::ItemReader;
use crate::{CodecError, DecodeContext, Decoder, draft};

mod part;
mod reasoning;
#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
pub(super) mod write;

/// Decodes a streamed message.
pub(super) struct ChatDecoder {
    context: DecodeContext,
    origin: Arc<Origin>,
    id: Option<Name>,
    parts: Vec<ChatOpenPart>,
    /// Field texts that may repeat the details.
    echoes: Vec<(&'static str, String)>,
    splitter: Option<TagSplitter>,
    reason: Option<Name>,
    sequence: Option<Name>,
    usage: Usage,
    extras: Vec<(Name, Json)>,
    has_begun: bool,
    has_failed: bool,
    has_ended: bool,
}

impl ChatDecoder {
    pub(super) fn new(context: DecodeContext) -> Self {
        let scope = message::tag_scope(&context);
        Self {
            origin: Arc::clone(&context.target.origin),
            context,
            id: None,
            parts: Vec::new(),
            echoes: Vec::new(),
            splitter: scope.map(TagSplitter::new),
            reason: None,
            sequence: None,
            usage: Usage::default(),
            extras: Vec::new(),
            has_begun: false,
            has_failed: false,
            has_ended: false,
        }
    }

    fn chunk(&mut self, root: Node<'_>) -> Vec<Event> {
        let is_native = wire::is_ollama_response(root);
        let choices = root.get("choices").filter(|choices| choices.is_array());
        if choices.is_none() && !is_native {
            return vec![Event::Alien(root.json())];
        }
        let choices = || choices.into_iter().flat_map(Node::elements);
        let mut events = self.begin(root, is_native || choices().next().is_some());
        for (key, value) in root.members() {
            if !key.is("choices") && !key.is("message") {
                self.record_member("", key, value);
            }
        }
        if is_native {
            let message = root.get("message").unwrap_or(root);
            events.extend(self.delta(message, "/message"));
            if root.get("done").and_then(Node::bool) == Some(true) {
                self.reason = root.name_of("done_reason").or_else(|| Some(Name::from("stop")));
                self.usage = wire::usage(root);
                events.push(Event::Usage(self.usage));
                events.extend(self.finish_reply());
            }
            return events;
        }
        let mut others = Vec::new();
        for choice in choices() {
            if choice.get("index").and_then(Node::u64).is_none_or(|index| index == 0) {
                append_events(&mut events, self.choice(choice));
            } else {
                others.push(choice.json());
            }
        }
        if !others.is_empty() {
            // Further choices are not mixed into the first; they are passed through raw.
            let others = json::array_of(&others);
            events.push(Event::Alien(draft::with_member(&root.json(), "choices", others)));
        }
        if let Some(usage) = root.present("usage") {
            self.usage = wire::usage(usage);
            events.push(Event::Usage(self.usage));
        }
        events
    }

    fn begin(&mut self, root: Node<'_>, says_something: bool) -> Vec<Event> {
        let id = root.name_of("id").filter(|id| !id.is_empty());
        if self.has_begun || (id.is_none() && !says_something) {
            return Vec::new();
        }
        self.has_begun = true;
        self.id = id;
        let model = root.text_of("model").filter(|model| !model.is_empty());
        self.origin = self.context.origin(model.as_deref(), root.name_of("provider"));
        vec![Event::Began { id: self.id.clone(), origin: Arc::clone(&self.origin) }]
    }

    /// Records a member of the response. A later value replaces an earlier one, unless it is `null`
    /// or would change the id or model.
    fn record_member(&mut self, pointer: &str, key: Node<'_>, value: Node<'_>) {
        // Every chunk repeats most members, so known names are matched without allocation.
        let key = key.text().unwrap_or_default();
        let length = key.len() + if pointer.is_empty() { 0 } else { pointer.len() + 1 };
        let is_meant = |known: &str| {
            known.len() == length && known.ends_with(&*key) && known.starts_with(pointer)
        };
        let is_chunk = |name: &str| name == "object" && value.is("chat.completion.chunk");
        if let Some((name, known)) = self.extras.iter_mut().find(|(known, _)| is_meant(known)) {
            // Some routers switch to their upstream's names in the middle of a stream.
            let is_settled = matches!(&**name, "id" | "model") && known.as_str() != "\"\"";
            let is_same = value.is_null() || known.bytes() == value.raw();
            if !is_settled && !is_same && !is_chunk(name) {
                *known = value.json();
            }
            return;
        }
        let name = if pointer.is_empty() {
            Name::from(key)
        } else {
            Name::from(format!("{pointer}/{key}"))
        };
        let is_chunk = is_chunk(&name);
        let value = if is_chunk { json::string("chat.completion") } else { value.json() };
        self.extras.push((name, value));
    }

    fn choice(&mut self, choice: Node<'_>) -> Vec<Event> {
        let delta = choice.get("delta").or_else(|| choice.get("message"));
        let events = delta.map(|delta| self.delta(delta, CHOICE_MESSAGE)).unwrap_or_default();
        for (key, value) in choice.members() {
            if !key.is("delta") && !key.is("message") {
                self.record_member(CHOICE, key, value);
            }
        }
        let reason = choice.name_of("finish_reason").filter(|reason| !reason.is_empty());
        self.reason = reason.or_else(|| self.reason.take());
        self.sequence = choice.name_of("stop_reason").or_else(|| self.sequence.take());
        events
    }

    fn delta(&mut self, delta: Node<'_>, pointer: &'static str) -> Vec<Event> {
        let mut events = self.reasoning(delta);
        for (key, value) in delta.members() {
            let key_text = key.text().unwrap_or_default();
            match &*key_text {
                "role" | slot::DETAILS => {}
                slot::CONTENT if value.is_array() => {
                    for part in value.elements() {
                        events.extend(self.content_part(part));
                    }
                }
                slot::CONTENT => {
                    append_events(&mut events, self.content(&value.text().unwrap_or_default()));
                }
                slot::REFUSAL => {
                    events.extend(self.text(slot::REFUSAL, &value.text().unwrap_or_default()));
                }
                slot::CALLS => {
                    for fragment in value.elements() {
                        append_events(&mut events, self.call(fragment, false));
                    }
                }
                slot::FUNCTION_CALL if value.is_object() => events.extend(self.call(value, true)),
                slot::EXTRA_CONTENT if value.is_object() => {
                    let slot = Label::Borrowed(slot::EXTRA_CONTENT);
                    events.extend(self.whole(slot, value));
                }
                field if FIELDS.contains(&field) => {}
                _ => self.record_member(pointer, key, value),
            }
        }
        events
    }

    fn content(&mut self, piece: &str) -> Vec<Event> {
        let splitter = self.splitter.as_mut().filter(|splitter| !splitter.is_plain_text_only());
        let Some(splitter) = splitter else { return self.text(slot::CONTENT, piece) };
        let pieces = splitter.push(piece);
        self.pieces(pieces)
    }

    fn pieces(&mut self, pieces: Vec<TagPiece>) -> Vec<Event> {
        let mut events = Vec::new();
        for piece in pieces {
            match piece {
                TagPiece::Text(text) => events.extend(self.text(slot::CONTENT, &text)),
                TagPiece::Open(raw) => {
                    events.extend(self.close(|kind| kind.is_text() || kind.is_thought()));
                    let kind = OpenPartKind::Tagged { raw, inner: String::new(), is_whole: false };
                    events.extend(self.open(Label::Borrowed(slot::CONTENT), kind));
                }
                TagPiece::Thought(text) => {
                    if let Some((index, raw, inner, _)) = self.open_tag() {
                        raw.push_str(&text);
                        inner.push_str(&text);
                        events.push(Event::Delta { index, delta: Delta::Thought(text.into()) });
                    }
                }
                TagPiece::Close(tag) => {
                    if let Some((_, raw, _, is_whole)) = self.open_tag() {
                        raw.push_str(&tag);
                        *is_whole = true;
                    }
                    events.extend(self.close(|kind| matches!(kind, OpenPartKind::Tagged { .. })));
                }
            }
        }
        events
    }

    fn open_tag(&mut self) -> Option<(u32, &mut String, &mut String, &mut bool)> {
        self.parts.iter_mut().find_map(|part| match &mut part.kind {
            OpenPartKind::Tagged { raw, inner, is_whole } if part.is_open => {
                Some((part.index, raw, inner, is_whole))
            }
            _ => None,
        })
    }

    fn text(&mut self, slot: &'static str, piece: &str) -> Vec<Event> {
        if piece.is_empty() {
            return Vec::new();
        }
        let known = self.parts.iter_mut().find_map(|part| match &mut part.kind {
            OpenPartKind::Text(text) if part.is_open && part.slot == slot => {
                Some((part.index, text))
            }
            _ => None,
        });
        if let Some((index, text)) = known {
            text.push_str(piece);
            return vec![Event::Delta { index, delta: Delta::Text(Arc::from(piece)) }];
        }
        let mut events = self.close(OpenPartKind::is_thought);
        events.extend(self.open(Label::Borrowed(slot), OpenPartKind::Text(piece.to_owned())));
        events
    }

    /// Handles a part of a content list. Only Mistral's chunks arrive in fragments.
    fn content_part(&mut self, part: Node<'_>) -> Vec<Event> {
        let is_chunk = part.get("type").is_some_and(|kind| kind.is("thinking"));
        let known = self.parts.iter_mut().find_map(|open| match &mut open.kind {
            OpenPartKind::Chunk(chunk) if open.is_open => Some((open.index, chunk)),
            _ => None,
        });
        if let (true, Some((index, chunk))) = (is_chunk, known) {
            let piece = chunk.add(part);
            let delta = Delta::Thought(Arc::from(piece));
            return vec![Event::Delta { index, delta }];
        }
        let position = self.parts.iter().filter(|part| part.slot.starts_with("content/")).count();
        let slot = slot::list_slot(slot::CONTENT, position);
        let mut events = self.close(|kind| kind.is_text() || kind.is_thought());
        if is_chunk {
            let mut chunk = OpenChunk::default();
            chunk.add(part);
            events.extend(self.open(slot, OpenPartKind::Chunk(chunk)));
        } else {
            events.extend(self.whole(slot, part));
        }
        events
    }

    fn call(&mut self, fragment: Node<'_>, is_bare: bool) -> Vec<Event> {
        let last = self.parts.iter().rposition(|part| matches!(part.kind, OpenPartKind::Call(_)));
        let mut known = self.parts.iter().enumerate().rev().filter_map(|(at, part)| {
            let OpenPartKind::Call(call) = &part.kind else { return None };
            let goes_on = call.is_continued_by(fragment, Some(at) == last) && !is_bare;
            (goes_on || is_bare && call.is_bare()).then_some(at)
        });
        let mut events = Vec::new();
        let at = match known.next() {
            Some(at) => at,
            None => {
                let held = self.splitter.as_mut().map(TagSplitter::pause).unwrap_or_default();
                events.extend(self.pieces(held));
                events.extend(self.close(|kind| kind.is_text() || kind.is_thought()));
                let calls = self.parts.iter().filter(|part| part.slot.starts_with(slot::CALLS));
                let slot = if is_bare {
                    Label::Borrowed(slot::FUNCTION_CALL)
                } else {
                    slot::list_slot(slot::CALLS, calls.count())
                };
                let kind = OpenPartKind::Call(ChatOpenCall::new(fragment, is_bare));
                self.parts.push(ChatOpenPart {
                    index: self.next_index(),
                    slot,
                    kind,
                    is_open: true,
                });
                self.parts.len() - 1
            }
        };
        let Some(ChatOpenPart { kind: OpenPartKind::Call(call), index, .. }) =
            self.parts.get_mut(at)
        else {
            return events;
        };
        let (index, added) = (*index, call.add(fragment));
        if call.is_told {
            if !added.is_empty() {
                events.push(Event::Delta { index, delta: Delta::Args(added.into()) });
            }
            return events;
        }
        // A call is announced once its name is known, because clients cannot use it earlier.
        if !call.name.is_empty() {
            events.extend(self.emit_call_opened(at));
        }
        events
    }

    fn emit_call_opened(&mut self, at: usize) -> Vec<Event> {
        let Some(part) = self.parts.get_mut(at) else { return Vec::new() };
        let OpenPartKind::Call(call) = &mut part.kind else { return Vec::new() };
        call.is_told = true;
        let (index, arguments) = (part.index, Name::from(call.arguments()));
        let Some(mut item) = self.parts.get(at).map(|part| self.item(part)) else {
            return Vec::new();
        };
        if let (Body::Call(call), false) = (&mut item.body, arguments.is_empty()) {
            call.args = object! {};
        }
        let mut events = vec![events::opened_event(index, &item)];
        if !arguments.is_empty() {
            events.push(Event::Delta { index, delta: Delta::Args(arguments) });
        }
        events
    }

    fn next_index(&self) -> u32 {
        u32::try_from(self.parts.len()).unwrap_or(u32::MAX)
    }

    /// Opens a part with the content received so far.
    fn open(&mut self, slot: Label, kind: OpenPartKind) -> Vec<Event> {
        let index = self.next_index();
        let part = ChatOpenPart { index, slot, kind, is_open: true };
        let item = self.item(&part);
        self.parts.push(part);
        let mut events = vec![events::opened_event(index, &item)];
        events.extend(events::text_delta(&item.body).map(|delta| Event::Delta { index, delta }));
        events
    }

    /// Opens and closes a part that arrived whole.
    fn whole(&mut self, slot: Label, node: Node<'_>) -> Vec<Event> {
        let mut events = self.open(slot, OpenPartKind::Raw(node.json()));
        events.extend(self.close(|kind| matches!(kind, OpenPartKind::Raw(_))));
        events
    }

    fn close(&mut self, ends: impl Fn(&OpenPartKind) -> bool) -> Vec<Event> {
        let mut events = Vec::new();
        for at in 0..self.parts.len() {
            let is_ending = self.parts.get(at).is_some_and(|part| part.is_open && ends(&part.kind));
            if !is_ending {
                continue;
            }
            let is_untold = self.parts.get(at).is_some_and(
                |part| matches!(&part.kind, OpenPartKind::Call(call) if !call.is_told),
            );
            if is_untold {
                events.extend(self.emit_call_opened(at));
            }
            if let Some(part) = self.parts.get_mut(at) {
                part.is_open = false;
            }
            if let Some(part) = self.parts.get(at) {
                let item = Box::new(self.item(part));
                events.push(Event::Closed { index: part.index, item });
            }
        }
        events
    }

    /// Builds the Item of a part from the content received so far.
    fn item(&self, part: &ChatOpenPart) -> Item {
        let (context, id) = (Cow::Borrowed(&self.context), self.id.as_ref());
        let mut reader = ItemReader::for_reply(context, Wire::OPENAI_CHAT, &self.origin, id);
        let place = ItemPosition { message: 0, part: part.index };
        let mut item = match &part.kind {
            OpenPartKind::Tagged { raw, inner, is_whole } => {
                message::read_tagged_thought(&mut reader, place, raw, inner, *is_whole)
            }
            kind => {
                let (tree, slot) = (kind.json().tree(), part.slot.clone());
                message::read_slot_item(&mut reader, place, Role::Assistant, slot, tree.root())
            }
        };
        if let Some(native) = &mut item.native {
            native.assembled = true;
        }
        if matches!(part.kind, OpenPartKind::Detail(_)) {
            let repeated: Vec<_> = self.echoing_fields().collect();
            if !repeated.is_empty() {
                message::add_echo_slots(&mut item, &repeated);
            }
        }
        item
    }

    fn finish_reply(&mut self) -> Vec<Event> {
        if std::mem::replace(&mut self.has_ended, true) {
            return Vec::new();
        }
        let mut events = Vec::new();
        if let Some(mut splitter) = self.splitter.take() {
            events.extend(self.pieces(splitter.finish()));
        }
        let repeating: Vec<_> = self.echoing_fields().collect();
        for (field, text) in std::mem::take(&mut self.echoes) {
            if repeating.contains(&field) {
                self.echoes.push((field, text));
            } else {
                events.extend(self.open(Label::Borrowed(field), OpenPartKind::Field(text)));
            }
        }
        let is_cut = self.reason.is_none() || self.has_failed;
        if !is_cut {
            events.extend(self.close(|_| true));
        }
        let mut items: Vec<Item> = self.parts.iter().map(|part| self.item(part)).collect();
        message::link_details_to_calls(&mut items);
        let has_calls = items.iter().any(|item| matches!(item.body, Body::Call(_)));
        let stop = if is_cut {
            StopReason::Cut
        } else {
            wire::decode_stop(self.reason.as_deref(), self.sequence.take(), has_calls)
        };
        let (id, usage, origin) = (self.id.clone(), self.usage, Arc::clone(&self.origin));
        let extras = std::mem::take(&mut self.extras);
        events.push(events::ended_event(Reply { id, items, stop, usage, origin, extras }));
        events
    }
}

/// Appends events, without copying if there were none.
fn append_events(events: &mut Vec<Event>, more: Vec<Event>) {
    if events.is_empty() {
        *events = more;
    } else {
        events.extend(more);
    }
}

impl Decoder for ChatDecoder {
    fn push(&mut self, frame: &Frame) -> Result<Vec<Event>, CodecError> {
        if frame.data.trim_ascii() == b"[DONE]" {
            return Ok(self.finish_reply());
        }
        let tree = Tree::parse(frame.data.clone())?;
        let root = tree.root();
        if decode::is_failure(root) {
            self.has_failed = true;
            return Ok(vec![Event::Failed(decode::decode_failure(root, &frame.data))]);
        }
        Ok(if self.has_ended { vec![Event::Alien(root.json())] } else { self.chunk(root) })
    }

    fn finish(&mut self) -> Result<Vec<Event>, CodecError> {
        Ok(self.finish_reply())
    }
}
