//! Decodes streamed responses.
//!
//! Each chunk holds whole parts, but a text may continue in the next chunk. The first part of a
//! chunk joins the last part of the previous chunk if both are bare texts of the same kind. Parts
//! of the same chunk, and parts with a signature or any other member, are never joined.

use std::borrow::Cow;
use std::sync::Arc;

use throughline_core::{Body, Delta, Event, Item};
use throughline_json::{self as json, Json, Name, Node, Tree};

use crate::events::{self, StreamedReply, store_member};
use crate::frame::Frame;
use crate::gemini::arguments::PartialArguments;
use crate::gemini::wire::{self, GeminiPartKind as Kind};
use crate::gemini::{WIRE, decode, encode};
use crate::object::put_all;
use crate::{CodecError, DecodeContext, Decoder, draft};

pub(super) mod write;

pub(super) struct GeminiDecoder {
    reply: StreamedReply,
    open: Option<GeminiOpenPart>,
    reason: Option<Name>,
    blocked: Option<Name>,
    /// The latest value of each `usageMetadata` member.
    counts: Vec<(Name, Json)>,
    /// The latest value of each candidate member.
    candidate: Vec<(Name, Json)>,
}

/// A part that the next chunk may continue.
enum GeminiOpenPart {
    Text(GeminiOpenText),
    Call(GeminiOpenCall),
}

struct GeminiOpenText {
    is_thought: bool,
    /// The JSON of the first fragment. If no fragment follows, this is the whole part.
    first: Json,
    text: String,
    is_joined: bool,
}

struct GeminiOpenCall {
    first: Json,
    signature: Option<Json>,
    id: Option<Name>,
    args: PartialArguments,
}

impl GeminiDecoder {
    pub(super) fn new(context: DecodeContext) -> Self {
        Self {
            reply: StreamedReply::new(context, WIRE),
            open: None,
            reason: None,
            blocked: None,
            counts: Vec::new(),
            candidate: Vec::new(),
        }
    }

    fn chunk(&mut self, root: Node<'_>) {
        let is_first = !self.reply.has_begun;
        if is_first {
            let model = wire::name_of(root, "modelVersion");
            self.reply.begin(wire::name_of(root, "responseId"), model.as_deref(), None);
        }
        let mut candidates = None;
        for (key, value) in root.members() {
            let name = key.text().unwrap_or_default();
            if name == "candidates" {
                candidates = Some(value);
                continue;
            }
            let is = |spelling: &str| wire::is_spelled(&name, spelling);
            if !is_first && (is("responseId") || is("modelVersion")) {
                // The first chunk determines the Origin; later chunks repeat the same values.
                continue;
            }
            if is("promptFeedback") {
                let blocked = wire::name_of(value, "blockReason");
                self.blocked = self.blocked.take().or(blocked);
            }
            if is("usageMetadata") {
                // Early chunks have few counts, and later chunks may omit some, so counts are
                // merged.
                value.members().for_each(|(key, count)| store_member(&mut self.counts, key, count));
            }
            store_member(&mut self.reply.extras, key, value);
        }
        for candidate in candidates.into_iter().flat_map(Node::elements) {
            // If the response has several candidates, only the first candidate becomes the Reply.
            match candidate.get("index").and_then(Node::u64) {
                Some(0) | None => self.candidate(candidate),
                Some(_) => self.reply.pass_on(candidate),
            }
        }
        let usage = wire::usage_by(|name| {
            let (_, count) = self.counts.iter().rfind(|(key, _)| wire::is_spelled(key, name))?;
            count.as_str().parse().ok()
        });
        if usage != self.reply.usage {
            self.reply.set_usage(usage);
        }
    }

    fn candidate(&mut self, candidate: Node<'_>) {
        for (key, value) in candidate.members().filter(|(key, _)| !key.is("content")) {
            store_member(&mut self.candidate, key, value);
        }
        let parts = candidate.at("/content/parts").into_iter().flat_map(Node::elements);
        for (position, part) in parts.enumerate() {
            self.part(part, position == 0);
        }
        self.reason = self.reason.take().or_else(|| wire::name_of(candidate, "finishReason"));
    }

    fn part(&mut self, part: Node<'_>, is_first: bool) {
        if let Some(call) = wire::present(part, "functionCall").filter(|call| call.is_object())
            && self.call_piece(part, call)
        {
            return;
        }
        let bare = bare_text(part);
        let index = self.next_index();
        if let (Some((is_thought, text)), Some(GeminiOpenPart::Text(open)), true) =
            (bare, &mut self.open, is_first)
            && open.is_thought == is_thought
        {
            let piece = text.text().unwrap_or_default();
            if !piece.is_empty() {
                open.is_joined = true;
                open.text.push_str(&piece);
                let make = if is_thought { Delta::Thought } else { Delta::Text };
                self.reply.add_delta(index, make(Arc::from(piece)));
            }
            return;
        }
        self.close();
        let index = self.next_index();
        let first = part.json();
        let item = self.item(&first, false);
        self.reply.open(index, &item);
        let delta = match &item.body {
            Body::Call(call) => Some(Delta::Args(Name::from(call.args.as_str()))),
            body => events::text_delta(body),
        };
        self.reply.events.extend(delta.map(|delta| Event::Delta { index, delta }));
        let Some((is_thought, text)) = bare else { return self.reply.close(index, item) };
        let text = text.text().unwrap_or_default().into_owned();
        let open = GeminiOpenText { is_thought, first, text, is_joined: false };
        self.open = Some(GeminiOpenPart::Text(open));
    }

    /// Handles a call that arrives in pieces. Returns `false` for a call that arrived whole; the
    /// caller then handles it like any other part.
    fn call_piece(&mut self, part: Node<'_>, call: Node<'_>) -> bool {
        let pieces = wire::get(call, "partialArgs").filter(|pieces| pieces.is_array());
        let goes_on = wire::get(call, "willContinue").and_then(Node::bool) == Some(true);
        let (name, id) = (call.name_of("name"), call.name_of("id"));
        let is_continued = match (&self.open, &name) {
            (Some(GeminiOpenPart::Call(_)), None) => true,
            (Some(GeminiOpenPart::Call(open)), Some(_)) => id.is_some() && id == open.id,
            (Some(GeminiOpenPart::Text(_)) | None, _) => false,
        };
        if !is_continued {
            if name.is_none() || (pieces.is_none() && !goes_on) {
                return false;
            }
            self.close();
            let first = part.json();
            let item = self.item(&first, false);
            self.reply.open(self.next_index(), &item);
            let args = PartialArguments::from_members(wire::present(call, "args"));
            self.open =
                Some(GeminiOpenPart::Call(GeminiOpenCall { first, signature: None, id, args }));
        }
        let index = self.next_index();
        if let Some(GeminiOpenPart::Call(open)) = &mut self.open {
            let signature = wire::get(part, "thoughtSignature").filter(|_| is_continued);
            open.signature = signature.map(Node::json).or(open.signature.take());
            for piece in pieces.into_iter().flat_map(Node::elements) {
                let path = wire::name_of(piece, "jsonPath").unwrap_or_default();
                match open.args.put(piece) {
                    Some(value) => self.reply.add_delta(index, Delta::ArgsAt { path, value }),
                    None => self.reply.pass_on(piece),
                }
            }
        }
        if !goes_on {
            self.close();
        }
        true
    }

    fn next_index(&self) -> u32 {
        u32::try_from(self.reply.items.len()).unwrap_or(u32::MAX)
    }

    fn item(&self, part: &Json, is_assembled: bool) -> Item {
        self.reply.item(self.next_index(), part, is_assembled, decode::read_part)
    }

    fn close(&mut self) {
        let item = match self.open.take() {
            Some(GeminiOpenPart::Text(open)) if open.is_joined => self.item(&open.assemble(), true),
            Some(GeminiOpenPart::Text(open)) => self.item(&open.first, false),
            Some(GeminiOpenPart::Call(open)) => self.item(&open.assemble(), true),
            None => return,
        };
        self.reply.close(self.next_index(), item);
    }

    /// Completes the extras, so that they equal the extras of the equivalent whole response.
    fn complete_extras(&mut self) {
        let extras = &mut self.reply.extras;
        let usage = extras.iter_mut().find(|(key, _)| wire::is_spelled(key, "usageMetadata"));
        if let Some((_, usage)) = usage.filter(|_| !self.counts.is_empty()) {
            *usage = json::object(|o| put_all(o, &self.counts));
        }
        if !self.candidate.is_empty() || !self.reply.items.is_empty() {
            let candidates = json::array(|a| {
                a.object(|o| {
                    o.object("content", members! { "role": "model" });
                    put_all(o, &self.candidate);
                });
            });
            extras.insert(0, (Name::from("candidates"), candidates));
        }
    }
}

impl GeminiOpenText {
    fn assemble(&self) -> Json {
        if self.is_thought {
            encode::reply::thought_part(&self.text)
        } else {
            encode::parts::text_part(&self.text)
        }
    }
}

impl GeminiOpenCall {
    /// Assembles the whole call part from its first fragment and the collected arguments.
    fn assemble(&self) -> Json {
        let tree = self.first.tree();
        let Some((key, call)) = wire::member(tree.root(), "functionCall") else {
            return self.first.clone();
        };
        let spelled =
            |name: &str| wire::member(call, name).map(|(key, _)| Cow::Owned(key.into_owned()));
        let mut changes = vec![(Cow::Borrowed("args"), Some(self.args.json()))];
        let passing = ["partialArgs", "willContinue"];
        changes.extend(passing.into_iter().filter_map(spelled).map(|key| (key, None)));
        let call = draft::edit_object(Some(&call.json()), &changes);
        let signature = self.signature.clone().map(|value| ("thoughtSignature".to_owned(), value));
        let changes = [(key.into_owned(), call)].into_iter().chain(signature);
        let changes: Vec<_> = changes.map(|(key, value)| (key, Some(value))).collect();
        draft::edit_object(Some(&self.first), &changes)
    }
}

/// Returns the text of a part that has no other members, and whether the part is a thought.
fn bare_text(part: Node<'_>) -> Option<(bool, Node<'_>)> {
    let (kind, text) = Kind::from_part(part);
    let is_bare = part.members().all(|(key, _)| key.is("text") || key.is("thought"));
    match kind {
        Kind::Text if is_bare => Some((false, text)),
        Kind::Thought if is_bare && text.is_string() => Some((true, text)),
        _ => None,
    }
}

impl Decoder for GeminiDecoder {
    fn push(&mut self, frame: &Frame) -> Result<Vec<Event>, CodecError> {
        let tree = Tree::parse(frame.data.clone())?;
        let root = tree.root();
        let is_chunk = ["candidates", "promptFeedback", "usageMetadata"]
            .iter()
            .any(|name| wire::get(root, name).is_some());
        match decode::decode_failure(root, &frame.data) {
            Some(failure) => self.reply.events.push(Event::Failed(failure)),
            None if is_chunk => self.chunk(root),
            None => self.reply.pass_on(root),
        }
        Ok(self.reply.take_events())
    }

    fn finish(&mut self) -> Result<Vec<Event>, CodecError> {
        if self.reply.has_ended {
            return Ok(Vec::new());
        }
        self.close();
        if self.reason.is_none() && self.blocked.is_none() {
            // An incomplete part gets no `Closed` event, but its content stays in the Reply.
            self.reply.events.clear();
        }
        self.complete_extras();
        let has_calls = decode::has_calls(&self.reply.items);
        let blocked = self.blocked.take();
        self.reply.end(wire::decode_stop(self.reason.as_deref(), blocked, has_calls));
        Ok(self.reply.take_events())
    }
}
