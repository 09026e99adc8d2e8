//! Decodes streamed responses.
//!
//! Each chunk holds whole parts, but a text may continue in the next chunk. The first part of a
//! chunk joins the last part of the previous chunk if both are bare texts of the same kind. Parts
//! of one chunk are never joined, and neither are parts with a signature or any other member.

use std::borrow::Cow;
use std::sync::Arc;

use throughline_core::{Body, Delta, Event, Item, ItemPosition, Origin, Reply, Role, Usage, Wire};
use throughline_json::{self as json, Json, Name, Node, Tree};

use crate::events::{self, store_member};
use crate::frame::Frame;
use crate::gemini::arguments::PartialArguments;
use crate::gemini::decode;
use crate::gemini::encode;
use crate::gemini::wire::{self, GeminiPartKind};
use crate::item_reader::ItemReader;
use crate::{CodecError, DecodeContext, Decoder, draft};

pub(super) mod write;

/// Decodes a streamed response.
pub(super) struct GeminiDecoder {
    context: DecodeContext,
    origin: Arc<Origin>,
    id: Option<Name>,
    has_begun: bool,
    open: Option<GeminiOpenPart>,
    items: Vec<Item>,
    reason: Option<Name>,
    blocked: Option<Name>,
    usage: Usage,
    /// The members of `usageMetadata`.
    counts: Vec<(Name, Json)>,
    extras: Vec<(Name, Json)>,
    /// The members of the candidate.
    candidate: Vec<(Name, Json)>,
    has_ended: bool,
}

/// A part that may continue.
enum GeminiOpenPart {
    Text(GeminiOpenText),
    Call(GeminiOpenCall),
}

struct GeminiOpenText {
    is_thought: bool,
    /// The first fragment, which is the whole part unless more follows.
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
            origin: Arc::clone(&context.target.origin),
            context,
            id: None,
            has_begun: false,
            open: None,
            items: Vec::new(),
            reason: None,
            blocked: None,
            usage: Usage::default(),
            counts: Vec::new(),
            extras: Vec::new(),
            candidate: Vec::new(),
            has_ended: false,
        }
    }

    fn chunk(&mut self, root: Node<'_>) -> Vec<Event> {
        let mut events = Vec::new();
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        if is_first {
            self.id = wire::name_of(root, "responseId");
            let model = wire::name_of(root, "modelVersion");
            self.origin = self.context.origin(model.as_deref(), None);
            let (id, origin) = (self.id.clone(), Arc::clone(&self.origin));
            events.push(Event::Began { id, origin });
        }
        let mut candidates = None;
        for (key, value) in root.members() {
            let name = key.text().unwrap_or_default();
            if name == "candidates" {
                candidates = Some(value);
                continue;
            }
            let is = |word: &str| wire::is_spelled(&name, word);
            if !is_first && (is("responseId") || is("modelVersion")) {
                // The first chunk determines the origin; later chunks only repeat it.
                continue;
            }
            if is("promptFeedback") {
                let blocked = wire::name_of(value, "blockReason");
                self.blocked = self.blocked.take().or(blocked);
            }
            if is("usageMetadata") {
                // Early chunks have few counts, and later ones may omit some.
                value.members().for_each(|(key, count)| store_member(&mut self.counts, key, count));
            }
            store_member(&mut self.extras, key, value);
        }
        for candidate in candidates.into_iter().flat_map(Node::elements) {
            // If the response has several candidates, the first one becomes the Reply.
            match candidate.get("index").and_then(Node::u64) {
                Some(0) | None => self.candidate(candidate, &mut events),
                Some(_) => events.push(Event::Alien(candidate.json())),
            }
        }
        let usage = wire::usage_by(|name| {
            let (_, count) = self.counts.iter().rfind(|(key, _)| wire::is_spelled(key, name))?;
            count.as_str().parse().ok()
        });
        if usage != self.usage {
            self.usage = usage;
            events.push(Event::Usage(usage));
        }
        events
    }

    fn candidate(&mut self, candidate: Node<'_>, events: &mut Vec<Event>) {
        for (key, value) in candidate.members().filter(|(key, _)| !key.is("content")) {
            store_member(&mut self.candidate, key, value);
        }
        let parts = candidate.at("/content/parts").into_iter().flat_map(Node::elements);
        for (position, part) in parts.enumerate() {
            self.part(part, position == 0, events);
        }
        self.reason = self.reason.take().or_else(|| wire::name_of(candidate, "finishReason"));
    }

    fn part(&mut self, part: Node<'_>, is_first: bool, events: &mut Vec<Event>) {
        if let Some(call) = wire::present(part, "functionCall").filter(|call| call.is_object())
            && self.call_piece(part, call, events)
        {
            return;
        }
        let bare = bare_text(part);
        if let (Some((is_thought, text)), Some(GeminiOpenPart::Text(open)), true) =
            (bare, &mut self.open, is_first)
            && open.is_thought == is_thought
        {
            let piece = text.text().unwrap_or_default();
            if !piece.is_empty() {
                open.is_joined = true;
                open.text.push_str(&piece);
                let delta = text_delta(is_thought, Arc::from(piece));
                events.push(Event::Delta { index: self.next_index(), delta });
            }
            return;
        }
        self.close(events);
        let index = self.next_index();
        let item = self.item(&part.json(), false);
        events.push(events::opened_event(index, &item));
        let delta = match &item.body {
            Body::Call(call) => Some(Delta::Args(Name::from(call.args.as_str()))),
            body => events::text_delta(body),
        };
        events.extend(delta.map(|delta| Event::Delta { index, delta }));
        if let Some((is_thought, text)) = bare {
            let text = text.text().unwrap_or_default().into_owned();
            let first = part.json();
            self.open = Some(GeminiOpenPart::Text(GeminiOpenText {
                is_thought,
                first,
                text,
                is_joined: false,
            }));
            return;
        }
        self.closed(item, events);
    }

    /// Handles a call that arrives in pieces. Returns `false` for a whole call, which is handled
    /// like other parts.
    fn call_piece(&mut self, part: Node<'_>, call: Node<'_>, events: &mut Vec<Event>) -> bool {
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
            self.close(events);
            let first = part.json();
            let index = self.next_index();
            events.push(events::opened_event(index, &self.item(&first, false)));
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
                events.push(match open.args.put(piece) {
                    Some(value) => Event::Delta { index, delta: Delta::ArgsAt { path, value } },
                    None => Event::Alien(piece.json()),
                });
            }
        }
        if !goes_on {
            self.close(events);
        }
        true
    }

    fn next_index(&self) -> u32 {
        u32::try_from(self.items.len()).unwrap_or(u32::MAX)
    }

    fn item(&self, part: &Json, is_assembled: bool) -> Item {
        let (context, id) = (Cow::Borrowed(&self.context), self.id.as_ref());
        let mut reader = ItemReader::for_reply(context, Wire::GEMINI, &self.origin, id);
        let tree = part.tree();
        let place = ItemPosition { message: 0, part: self.next_index() };
        let mut item = decode::read_part(&mut reader, place, Role::Assistant, tree.root(), None);
        if let Some(native) = &mut item.native {
            native.assembled = is_assembled;
        }
        item
    }

    /// Closes the open part.
    fn close(&mut self, events: &mut Vec<Event>) {
        let item = match self.open.take() {
            Some(GeminiOpenPart::Text(open)) if open.is_joined => self.item(&open.assemble(), true),
            Some(GeminiOpenPart::Text(open)) => self.item(&open.first, false),
            Some(GeminiOpenPart::Call(open)) => self.item(&open.assemble(), true),
            None => return,
        };
        self.closed(item, events);
    }

    fn closed(&mut self, item: Item, events: &mut Vec<Event>) {
        let index = self.next_index();
        self.items.push(item.clone());
        events.push(Event::Closed { index, item: Box::new(item) });
    }

    /// Returns the extras that the whole response would have.
    fn extras(&mut self) -> Vec<(Name, Json)> {
        let mut extras = std::mem::take(&mut self.extras);
        let usage = extras.iter_mut().find(|(key, _)| wire::is_spelled(key, "usageMetadata"));
        if let Some((_, usage)) = usage.filter(|_| !self.counts.is_empty()) {
            *usage = json::object(|o| put_all(o, &self.counts));
        }
        if !self.candidate.is_empty() || !self.items.is_empty() {
            let candidates = json::array(|a| {
                a.object(|o| {
                    o.object("content", members! { "role": "model" });
                    put_all(o, &self.candidate);
                });
            });
            extras.insert(0, (Name::from("candidates"), candidates));
        }
        extras
    }
}

fn put_all(o: &mut json::Object<'_>, members: &[(Name, Json)]) {
    for (key, value) in members {
        o.raw(key, value);
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
    /// Assembles the part from its first fragment and the arguments.
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

/// Returns the text of a part without other members, and whether it is a thought.
fn bare_text(part: Node<'_>) -> Option<(bool, Node<'_>)> {
    let (kind, text) = GeminiPartKind::from_part(part);
    let is_bare = part.members().all(|(key, _)| key.is("text") || key.is("thought"));
    match kind {
        GeminiPartKind::Text if is_bare => Some((false, text)),
        GeminiPartKind::Thought if is_bare && text.is_string() => Some((true, text)),
        _ => None,
    }
}

fn text_delta(is_thought: bool, text: Name) -> Delta {
    if is_thought { Delta::Thought(text) } else { Delta::Text(text) }
}

impl Decoder for GeminiDecoder {
    fn push(&mut self, frame: &Frame) -> Result<Vec<Event>, CodecError> {
        let tree = Tree::parse(frame.data.clone())?;
        let root = tree.root();
        if let Some(failure) = decode::decode_failure(root, &frame.data) {
            return Ok(vec![Event::Failed(failure)]);
        }
        let is_chunk = ["candidates", "promptFeedback", "usageMetadata"]
            .iter()
            .any(|name| wire::get(root, name).is_some());
        Ok(if is_chunk { self.chunk(root) } else { vec![Event::Alien(root.json())] })
    }

    fn finish(&mut self) -> Result<Vec<Event>, CodecError> {
        let mut events = Vec::new();
        if std::mem::replace(&mut self.has_ended, true) {
            return Ok(events);
        }
        let is_cut = self.reason.is_none() && self.blocked.is_none();
        if is_cut {
            // An incomplete part gets no close event, but its content stays in the Reply.
            self.close(&mut Vec::new());
        } else {
            self.close(&mut events);
        }
        let extras = self.extras();
        let items = std::mem::take(&mut self.items);
        let has_calls = decode::has_calls(&items);
        let stop = wire::decode_stop(self.reason.as_deref(), self.blocked.take(), has_calls);
        let (id, usage, origin) = (self.id.clone(), self.usage, Arc::clone(&self.origin));
        events.push(events::ended_event(Reply { id, items, stop, usage, origin, extras }));
        Ok(events)
    }
}
