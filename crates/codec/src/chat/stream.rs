//! Decodes and encodes streamed messages.
//!
//! The chat wire does not mark the end of a part. A thought ends where text or a call begins, and a
//! text ends where a thought or a call begins. Calls end with the message, because their arguments
//! may be interleaved. If a string continues after its end, the rest becomes another Item in the
//! same slot. If a detail continues, its fragments are joined in the final Reply.

use std::sync::Arc;

use throughline_core::{Body, Delta, Event, Item, ItemPosition, Role, StopReason};
use throughline_json::{self as json, Label, Name, Node, Tree};

use crate::chat::decode::{self, CHOICE, CHOICE_MESSAGE, message};
use crate::chat::slot::{self, FIELDS};
use crate::chat::stream::part::{ChatOpenCall, ChatOpenPart, OpenChunk, OpenPartKind as Kind};
use crate::chat::tags::{TagPiece, TagSplitter};
use crate::chat::{WIRE, wire};
use crate::events::{self, StreamedReply};
use crate::frame::Frame;
use crate::{CodecError, DecodeContext, Decoder, draft};

mod part;
mod reasoning;
#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
pub(super) mod write;

pub(super) struct ChatDecoder {
    reply: StreamedReply,
    parts: Vec<ChatOpenPart>,
    /// The reasoning fields that may repeat the details, with the text received so far.
    echoes: Vec<(&'static str, String)>,
    splitter: Option<TagSplitter>,
    reason: Option<Name>,
    sequence: Option<Name>,
    has_failed: bool,
}

impl ChatDecoder {
    pub(super) fn new(context: DecodeContext) -> Self {
        Self {
            splitter: message::tag_scope(&context).map(TagSplitter::new),
            reply: StreamedReply::new(context, WIRE),
            parts: Vec::new(),
            echoes: Vec::new(),
            reason: None,
            sequence: None,
            has_failed: false,
        }
    }

    fn chunk(&mut self, root: Node<'_>) {
        let is_native = wire::is_ollama_response(root);
        let choices = root.get("choices").filter(|choices| choices.is_array());
        if choices.is_none() && !is_native {
            return self.reply.pass_on(root);
        }
        let choices = || choices.into_iter().flat_map(Node::elements);
        self.begin(root, is_native || choices().next().is_some());
        for (key, value) in root.members() {
            if !key.is("choices") && !key.is("message") {
                self.record_member("", key, value);
            }
        }
        if is_native {
            self.delta(root.get("message").unwrap_or(root), "/message");
            if root.get("done").and_then(Node::bool) == Some(true) {
                self.reason = root.name_of("done_reason").or_else(|| Some(Name::from("stop")));
                self.reply.set_usage(wire::usage(root));
                self.finish_reply();
            }
            return;
        }
        let mut others = Vec::new();
        for choice in choices() {
            if choice.get("index").and_then(Node::u64).is_none_or(|index| index == 0) {
                self.choice(choice);
            } else {
                others.push(choice.json());
            }
        }
        if !others.is_empty() {
            // Only the first choice becomes the Reply. Other choices are passed on as alien events.
            let others = draft::with_member(&root.json(), "choices", json::array_of(&others));
            self.reply.events.push(Event::Alien(others));
        }
        if let Some(usage) = root.present("usage") {
            self.reply.set_usage(wire::usage(usage));
        }
    }

    fn begin(&mut self, root: Node<'_>, says_something: bool) {
        let id = root.name_of("id").filter(|id| !id.is_empty());
        if !self.reply.has_begun && (id.is_some() || says_something) {
            let model = root.text_of("model").filter(|model| !model.is_empty());
            self.reply.begin(id, model.as_deref(), root.name_of("provider"));
        }
    }

    /// Records a member of the response. A later value replaces an earlier value unless the later
    /// value is `null`. The id and model never change.
    fn record_member(&mut self, pointer: &str, key: Node<'_>, value: Node<'_>) {
        // Every chunk repeats most members, so known names are compared without allocation.
        let key = key.text().unwrap_or_default();
        let length = key.len() + if pointer.is_empty() { 0 } else { pointer.len() + 1 };
        let is_meant = |known: &str| {
            known.len() == length && known.ends_with(&*key) && known.starts_with(pointer)
        };
        let is_chunk = |name: &str| name == "object" && value.is("chat.completion.chunk");
        if let Some((name, known)) = self.reply.extras.iter_mut().find(|(known, _)| is_meant(known))
        {
            // Some routers switch to their upstream's id or model name in the middle of a stream.
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
        self.reply.extras.push((name, value));
    }

    fn choice(&mut self, choice: Node<'_>) {
        if let Some(delta) = choice.get("delta").or_else(|| choice.get("message")) {
            self.delta(delta, CHOICE_MESSAGE);
        }
        for (key, value) in choice.members() {
            if !key.is("delta") && !key.is("message") {
                self.record_member(CHOICE, key, value);
            }
        }
        let reason = choice.name_of("finish_reason").filter(|reason| !reason.is_empty());
        self.reason = reason.or_else(|| self.reason.take());
        self.sequence = choice.name_of("stop_reason").or_else(|| self.sequence.take());
    }

    fn delta(&mut self, delta: Node<'_>, pointer: &'static str) {
        self.reasoning(delta);
        for (key, value) in delta.members() {
            match &*key.text().unwrap_or_default() {
                "role" | slot::DETAILS => {}
                slot::CONTENT if value.is_array() => {
                    value.elements().for_each(|part| self.content_part(part));
                }
                slot::CONTENT => self.content(&value.text().unwrap_or_default()),
                slot::REFUSAL => self.text(slot::REFUSAL, &value.text().unwrap_or_default()),
                slot::CALLS => value.elements().for_each(|fragment| self.call(fragment, false)),
                slot::FUNCTION_CALL if value.is_object() => self.call(value, true),
                slot::EXTRA_CONTENT if value.is_object() => {
                    self.push_complete(Label::Borrowed(slot::EXTRA_CONTENT), value);
                }
                field if FIELDS.contains(&field) => {}
                _ => self.record_member(pointer, key, value),
            }
        }
    }

    fn content(&mut self, piece: &str) {
        let splitter = self.splitter.as_mut().filter(|splitter| !splitter.is_plain_text_only());
        match splitter.map(|splitter| splitter.push(piece)) {
            Some(pieces) => self.pieces(pieces),
            None => self.text(slot::CONTENT, piece),
        }
    }

    fn pieces(&mut self, pieces: Vec<TagPiece>) {
        for piece in pieces {
            match piece {
                TagPiece::Text(text) => self.text(slot::CONTENT, &text),
                TagPiece::Open(raw) => {
                    self.close(|kind| kind.is_text() || kind.is_thought());
                    let kind = Kind::Tagged { raw, inner: String::new(), is_whole: false };
                    self.open(Label::Borrowed(slot::CONTENT), kind);
                }
                TagPiece::Thought(text) => {
                    if let Some((index, raw, inner, _)) = self.open_tag() {
                        raw.push_str(&text);
                        inner.push_str(&text);
                        self.reply.add_delta(index, Delta::Thought(text.into()));
                    }
                }
                TagPiece::Close(tag) => {
                    if let Some((_, raw, _, is_whole)) = self.open_tag() {
                        raw.push_str(&tag);
                        *is_whole = true;
                    }
                    self.close(|kind| matches!(kind, Kind::Tagged { .. }));
                }
            }
        }
    }

    fn open_tag(&mut self) -> Option<(u32, &mut String, &mut String, &mut bool)> {
        self.parts.iter_mut().find_map(|part| match &mut part.kind {
            Kind::Tagged { raw, inner, is_whole } if part.is_open => {
                Some((part.index, raw, inner, is_whole))
            }
            _ => None,
        })
    }

    fn text(&mut self, slot: &'static str, piece: &str) {
        if piece.is_empty() {
            return;
        }
        let existing = self.parts.iter_mut().find_map(|part| match &mut part.kind {
            Kind::Text(text) if part.is_open && part.slot == slot => Some((part.index, text)),
            _ => None,
        });
        if let Some((index, text)) = existing {
            text.push_str(piece);
            return self.reply.add_delta(index, Delta::Text(Arc::from(piece)));
        }
        self.close(Kind::is_thought);
        self.open(Label::Borrowed(slot), Kind::Text(piece.to_owned()));
    }

    /// Handles one part of a content list. Only Mistral's chunks arrive in fragments.
    fn content_part(&mut self, part: Node<'_>) {
        let is_chunk = part.get("type").is_some_and(|kind| kind.is("thinking"));
        let existing = self.parts.iter_mut().find_map(|open| match &mut open.kind {
            Kind::Chunk(chunk) if open.is_open => Some((open.index, chunk)),
            _ => None,
        });
        if let (true, Some((index, chunk))) = (is_chunk, existing) {
            let piece = chunk.add(part);
            return self.reply.add_delta(index, Delta::Thought(Arc::from(piece)));
        }
        let slot = self.next_slot(slot::CONTENT);
        self.close(|kind| kind.is_text() || kind.is_thought());
        if is_chunk {
            let mut chunk = OpenChunk::default();
            chunk.add(part);
            self.open(slot, Kind::Chunk(chunk));
        } else {
            self.push_complete(slot, part);
        }
    }

    /// Returns the slot of the next element of a list member.
    fn next_slot(&self, member: &str) -> Label {
        let is_in_list = |part: &&ChatOpenPart| {
            part.slot.strip_prefix(member).is_some_and(|rest| rest.starts_with('/'))
        };
        slot::list_slot(member, self.parts.iter().filter(is_in_list).count())
    }

    fn call(&mut self, fragment: Node<'_>, is_bare: bool) {
        let last = self.parts.iter().rposition(|part| matches!(part.kind, Kind::Call(_)));
        let mut matching = self.parts.iter().enumerate().rev().filter_map(|(at, part)| {
            let Kind::Call(call) = &part.kind else { return None };
            let goes_on = call.is_continued_by(fragment, Some(at) == last) && !is_bare;
            (goes_on || is_bare && call.is_bare).then_some(at)
        });
        let at = match matching.next() {
            Some(at) => at,
            None => {
                let held = self.splitter.as_mut().map(TagSplitter::pause).unwrap_or_default();
                self.pieces(held);
                self.close(|kind| kind.is_text() || kind.is_thought());
                let bare = is_bare.then_some(Label::Borrowed(slot::FUNCTION_CALL));
                let slot = bare.unwrap_or_else(|| self.next_slot(slot::CALLS));
                let kind = Kind::Call(ChatOpenCall::new(fragment, is_bare));
                let index = self.next_index();
                self.parts.push(ChatOpenPart { index, slot, kind, is_open: true });
                self.parts.len() - 1
            }
        };
        let Some(ChatOpenPart { kind: Kind::Call(call), index, .. }) = self.parts.get_mut(at)
        else {
            return;
        };
        let added = call.add(fragment);
        // Emit `Opened` only once the name is known, because clients need the name.
        if !call.is_announced && !call.name.is_empty() {
            self.emit_call_opened(at);
        } else if call.is_announced && !added.is_empty() {
            self.reply.add_delta(*index, Delta::Args(added.into()));
        }
    }

    fn emit_call_opened(&mut self, at: usize) {
        let Some(part) = self.parts.get_mut(at) else { return };
        let Kind::Call(call) = &mut part.kind else { return };
        call.is_announced = true;
        let arguments = Name::from(call.arguments.as_str());
        let Some(part) = self.parts.get(at) else { return };
        let mut item = self.item(part);
        if let (Body::Call(call), false) = (&mut item.body, arguments.is_empty()) {
            call.args = object! {};
        }
        self.reply.open(part.index, &item);
        if !arguments.is_empty() {
            self.reply.add_delta(part.index, Delta::Args(arguments));
        }
    }

    fn next_index(&self) -> u32 {
        u32::try_from(self.parts.len()).unwrap_or(u32::MAX)
    }

    /// Opens a part and emits the content received so far.
    fn open(&mut self, slot: Label, kind: Kind) {
        let index = self.next_index();
        let part = ChatOpenPart { index, slot, kind, is_open: true };
        let item = self.item(&part);
        self.parts.push(part);
        self.reply.open(index, &item);
        let delta = events::text_delta(&item.body);
        self.reply.events.extend(delta.map(|delta| Event::Delta { index, delta }));
    }

    /// Opens and immediately closes a part that arrived in a single fragment.
    fn push_complete(&mut self, slot: Label, node: Node<'_>) {
        self.open(slot, Kind::Raw(node.json()));
        self.close(|kind| matches!(kind, Kind::Raw(_)));
    }

    fn close(&mut self, ends: impl Fn(&Kind) -> bool) {
        for at in 0..self.parts.len() {
            let part = self.parts.get_mut(at);
            let Some(part) = part.filter(|part| part.is_open && ends(&part.kind)) else { continue };
            part.is_open = false;
            if matches!(&part.kind, Kind::Call(call) if !call.is_announced) {
                self.emit_call_opened(at);
            }
            if let Some(part) = self.parts.get(at) {
                let item = Box::new(self.item(part));
                self.reply.events.push(Event::Closed { index: part.index, item });
            }
        }
    }

    /// Builds an Item from the content of a part received so far.
    fn item(&self, part: &ChatOpenPart) -> Item {
        let mut reader = self.reply.reader();
        let place = ItemPosition { message: 0, part: part.index };
        let mut item = match &part.kind {
            Kind::Tagged { raw, inner, is_whole } => {
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
        if matches!(part.kind, Kind::Detail(_)) {
            let repeated: Vec<_> = self.echoing_fields().collect();
            if !repeated.is_empty() {
                message::add_echo_slots(&mut item, &repeated);
            }
        }
        item
    }

    fn finish_reply(&mut self) {
        if self.reply.has_ended {
            return;
        }
        if let Some(mut splitter) = self.splitter.take() {
            self.pieces(splitter.finish());
        }
        let repeating: Vec<_> = self.echoing_fields().collect();
        for (field, text) in std::mem::take(&mut self.echoes) {
            if repeating.contains(&field) {
                self.echoes.push((field, text));
            } else {
                self.open(Label::Borrowed(field), Kind::Field(text));
            }
        }
        let is_cut = self.reason.is_none() || self.has_failed;
        if !is_cut {
            self.close(|_| true);
        }
        let mut items: Vec<Item> = self.parts.iter().map(|part| self.item(part)).collect();
        message::link_details_to_calls(&mut items);
        let has_calls = items.iter().any(|item| matches!(item.body, Body::Call(_)));
        self.reply.items = items;
        self.reply.end(if is_cut {
            StopReason::Cut
        } else {
            wire::decode_stop(self.reason.as_deref(), self.sequence.take(), has_calls)
        });
    }
}

impl Decoder for ChatDecoder {
    fn push(&mut self, frame: &Frame) -> Result<Vec<Event>, CodecError> {
        if frame.data.trim_ascii() == b"[DONE]" {
            return self.finish();
        }
        let tree = Tree::parse(frame.data.clone())?;
        let root = tree.root();
        if decode::is_failure(root) {
            self.has_failed = true;
            return Ok(vec![Event::Failed(decode::decode_failure(root, &frame.data))]);
        }
        if self.reply.has_ended {
            self.reply.pass_on(root);
        } else {
            self.chunk(root);
        }
        Ok(self.reply.take_events())
    }

    fn finish(&mut self) -> Result<Vec<Event>, CodecError> {
        self.finish_reply();
        Ok(self.reply.take_events())
    }
}
