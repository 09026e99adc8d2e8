//! A message, cut into Items slot by slot.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use throughline_core::{
    Body, Channel, Hosted, Item, ItemId, Json, Label, Name, Native, Node, Origin, Outcome, Part,
    Place, ReasoningFormat, Role, Side, Thought, ThoughtKind, ToolCall, ToolResult, Wire, json,
    work,
};

use crate::calls::Calls;
use crate::chat::decode::media;
use crate::chat::slot::{self, FIELDS, Slots};
use crate::chat::tags::{self, Piece, Scope, Splitter};
use crate::chat::wire;
use crate::{Asked, draft, sealed};

const WIRE: Wire = Wire::OPENAI_CHAT;

/// The shape of reasoning that stands between tags in the text.
pub(in crate::chat) const INLINE_TAGS: &str = "inline-tags";
/// The shape of Mistral's chunks.
pub(in crate::chat) const THINKING_CHUNK: &str = "mistral-thinking-chunk";

/// Reads messages. The same for both sides; only what is said of their origin differs.
pub(in crate::chat) struct Reader<'a> {
    asked: &'a Asked,
    origin: Arc<Origin>,
    side: Side,
    calls: Calls,
    reply: Name,
}

/// Where an Item goes: its place, who speaks, and the slot.
struct At {
    place: Place,
    role: Role,
    slot: Label,
}

impl<'a> Reader<'a> {
    pub(in crate::chat) fn new(asked: &'a Asked, origin: Arc<Origin>, side: Side) -> Self {
        Self { asked, origin, side, calls: Calls::default(), reply: Name::default() }
    }

    /// Item ids of a reply begin with the reply's.
    pub(in crate::chat) fn prefix_ids_with(&mut self, reply: Option<&Name>) {
        self.reply = reply.cloned().unwrap_or_else(|| Name::from("reply"));
    }

    /// Cuts a message into its Items. One that says nothing is kept whole.
    pub(in crate::chat) fn message(
        &mut self,
        index: usize,
        message: Node<'_>,
        items: &mut Vec<Item>,
    ) {
        let start = items.len();
        let slots = Slots::of(message);
        let role = match slots.role.and_then(Node::text).as_deref() {
            Some("assistant") => Role::Assistant,
            Some("system") => Role::System,
            Some("developer") => Role::Developer,
            Some("tool" | "function") => Role::Tool,
            None if self.side == Side::Response => Role::Assistant,
            Some(_) | None => Role::User,
        };
        let place = |items: &Vec<Item>| Place::new(index, items.len() - start);
        if role == Role::Tool {
            let body = self.result(message);
            items.push(self.item(
                place(items),
                role,
                body,
                Native::new(WIRE, self.side, message.json()),
            ));
            return;
        }
        if role == Role::Assistant {
            self.thoughts(index, &slots, items, start);
        }
        match slots.content {
            Some(text) if text.is_string() => {
                self.text(index, role, text, items, start);
            }
            Some(content) => {
                for (position, part) in content.elements().enumerate() {
                    let slot = slot::at(slot::CONTENT, position);
                    items.push(self.piece(place(items), role, slot, part));
                }
            }
            None => {}
        }
        for (position, image) in slots.images.into_iter().flat_map(Node::elements).enumerate() {
            items.push(self.piece(place(items), role, slot::at("images", position), image));
        }
        if role == Role::Assistant {
            self.rest(index, &slots, items, start);
        }
        if items.len() == start {
            let native = Native::new(WIRE, self.side, message.json());
            items.push(self.item(place(items), role, Body::Unknown, native));
        }
        lead_calls(items.get_mut(start..).unwrap_or_default());
    }

    /// The Thoughts of a message: one for each detail, and one for each string that the details do not repeat.
    fn thoughts(&mut self, index: usize, slots: &Slots<'_>, items: &mut Vec<Item>, start: usize) {
        let details = slots.details;
        for (position, detail) in details.into_iter().flat_map(Node::elements).enumerate() {
            let place = Place::new(index, items.len() - start);
            let item =
                self.piece(place, Role::Assistant, slot::at(slot::DETAILS, position), detail);
            items.push(item);
        }
        let mut strings: Vec<(Vec<&'static str>, Node<'_>)> = Vec::new();
        let mut places: HashMap<Option<Cow<'_, str>>, usize> = HashMap::new();
        for (field, value) in slots.strings.iter().copied() {
            let place = *places.entry(value.text()).or_insert(strings.len());
            match strings.get_mut(place) {
                Some((fields, _)) => fields.push(field),
                None => strings.push((vec![field], value)),
            }
        }
        for (fields, value) in strings {
            if details.is_some_and(|details| repeats(value, details)) {
                for item in items.iter_mut().skip(start) {
                    echo(item, &fields);
                }
                continue;
            }
            let place = Place::new(index, items.len() - start);
            items.push(self.piece(place, Role::Assistant, slot::joined(&fields), value));
        }
    }

    /// A text, without the reasoning that it may hold between tags.
    fn text(
        &mut self,
        index: usize,
        role: Role,
        text: Node<'_>,
        items: &mut Vec<Item>,
        start: usize,
    ) {
        let place = |items: &Vec<Item>| Place::new(index, items.len() - start);
        let scope = self.tag_scope().filter(|_| role == Role::Assistant);
        // A tag begins with `<`, which a writer may have escaped.
        let may_tag = |scope: &Scope| {
            memchr::memchr2(b'<', b'\\', text.raw()).is_some()
                && text.text().is_some_and(|text| tags::may_hold(&text, *scope))
        };
        let Some(scope) = scope.filter(may_tag) else {
            // An assistant's empty text stands for none.
            if role != Role::Assistant || text.raw().len() > 2 {
                let slot = Label::Borrowed(slot::CONTENT);
                items.push(self.piece(place(items), role, slot, text));
            }
            return;
        };
        let mut splitter = Splitter::new(scope);
        let mut pieces = splitter.push(&text.text().unwrap_or_default());
        pieces.extend(splitter.finish());
        let is_plain = pieces.iter().all(|piece| matches!(piece, Piece::Text(_)));
        if is_plain {
            items.push(self.piece(place(items), role, Label::Borrowed(slot::CONTENT), text));
            return;
        }
        let mut said = String::new();
        let mut thought: Option<(String, String)> = None;
        for piece in pieces {
            match piece {
                Piece::Text(text) => said.push_str(&text),
                Piece::Open(tag) => {
                    self.say(place(items), &mut said, items);
                    thought = Some((tag, String::new()));
                }
                Piece::Thought(text) => {
                    if let Some((raw, inner)) = &mut thought {
                        raw.push_str(&text);
                        inner.push_str(&text);
                    }
                }
                Piece::Close(tag) => {
                    if let Some((raw, inner)) = thought.take() {
                        items.push(self.tagged(place(items), &(raw + &tag), &inner, true));
                    }
                }
            }
        }
        if let Some((raw, inner)) = thought {
            items.push(self.tagged(place(items), &raw, &inner, false));
        }
        self.say(place(items), &mut said, items);
    }

    fn say(&mut self, place: Place, said: &mut String, items: &mut Vec<Item>) {
        if !said.is_empty() {
            let tree = json::string(&std::mem::take(said)).tree();
            let slot = Label::Borrowed(slot::CONTENT);
            items.push(self.piece(place, Role::Assistant, slot, tree.root()));
        }
    }

    /// Where this endpoint's texts may hold reasoning between tags.
    pub(in crate::chat) fn tag_scope(&self) -> Option<Scope> {
        match self.asked.target.provider.dialect.channel {
            Channel::Tags => Some(Scope::Anywhere),
            Channel::AsEmitted => Some(Scope::Beginning),
            Channel::None
            | Channel::Details
            | Channel::ReasoningContent
            | Channel::Reasoning
            | Channel::Thinking
            | Channel::Chunks => None,
        }
    }

    /// Reasoning that stood between tags, with its tags.
    pub(in crate::chat) fn tagged(
        &mut self,
        place: Place,
        raw: &str,
        inner: &str,
        is_whole: bool,
    ) -> Item {
        let mut thought = issued(inner, ThoughtKind::Text, INLINE_TAGS);
        thought.whole = is_whole;
        let mut native = Native::new(WIRE, self.side, json::string(raw));
        native.slot = Label::Borrowed(slot::CONTENT);
        self.item(place, Role::Assistant, Body::Thought(thought), native)
    }

    /// Refusals, sounds, calls, and what Google adds to a message.
    fn rest(&mut self, index: usize, slots: &Slots<'_>, items: &mut Vec<Item>, start: usize) {
        let mut push = |reader: &mut Self, slot: Label, node: Node<'_>| {
            let place = Place::new(index, items.len() - start);
            items.push(reader.piece(place, Role::Assistant, slot, node));
        };
        let says =
            |key: &str, node: Node<'_>| node.text_of(key).is_some_and(|text| !text.is_empty());
        let refusal = slots.refusal.filter(|refusal| refusal.raw().len() > 2);
        if let Some(refusal) = refusal.filter(|refusal| refusal.is_string()) {
            push(self, Label::Borrowed(slot::REFUSAL), refusal);
        }
        if let Some(audio) = slots.audio.filter(|audio| says("id", *audio)) {
            push(self, Label::Borrowed(slot::AUDIO), audio);
        }
        let calls = slots.calls.into_iter().flat_map(Node::elements);
        for (position, call) in calls.enumerate() {
            push(self, slot::at(slot::CALLS, position), call);
        }
        if let Some(call) = slots.function_call.filter(|call| says("name", *call)) {
            push(self, Label::Borrowed(slot::FUNCTION_CALL), call);
        }
        if let Some(extra) = slots.extra_content.filter(|extra| extra.is_object())
            && !self.seals(slot::EXTRA_CONTENT, extra).is_empty()
        {
            push(self, Label::Borrowed(slot::EXTRA_CONTENT), extra);
        }
    }

    /// One Item, from what stands in its slot.
    pub(in crate::chat) fn piece(
        &mut self,
        place: Place,
        role: Role,
        slot: Label,
        node: Node<'_>,
    ) -> Item {
        let at = At { place, role, slot };
        let body = self.body(&at, node);
        let is_numbered = self.side == Side::Response
            && at.slot.starts_with(slot::CALLS)
            && node.get("index").is_some();
        // The number of a call is its place in the list, which the slot tells; a stream needs it, a request refuses it.
        let json = if is_numbered {
            draft::edited(Some(&node.json()), &[("index".into(), None)])
        } else {
            node.json()
        };
        let mut native = Native::new(WIRE, self.side, json);
        native.id = match &body {
            Body::Call(call) => call.wire_id.clone(),
            _ => node.name_of("id"),
        };
        let seals = if node.is_object() { self.seals(&at.slot, node) } else { Vec::new() };
        native.slot = at.slot;
        let mut item = self.item(at.place, at.role, body, native);
        item.seals = seals;
        item
    }

    fn seals(&self, slot: &str, node: Node<'_>) -> Vec<throughline_core::Seal> {
        let found = sealed::find(node, |key| wire::seal_format(key).is_some());
        let found = found.filter(|(pointer, _)| wire::is_sealed(slot, pointer));
        let sealed = found.filter_map(|(pointer, value)| {
            let format = wire::seal_format(pointer.rsplit('/').next()?)?;
            Some(self.asked.seal(value.text_bytes()?, format, &self.origin, pointer))
        });
        sealed.collect()
    }

    fn item(&self, place: Place, role: Role, body: Body, native: Native) -> Item {
        let mut item = Item::new(ItemId::at(&self.reply, place), place, role, body);
        item.native = Some(native);
        item.origin = (role == Role::Assistant).then(|| Arc::clone(&self.origin));
        item
    }

    fn body(&mut self, at: &At, node: Node<'_>) -> Body {
        match slot::member(&at.slot) {
            slot::CONTENT | slot::REFUSAL if node.is_string() => {
                Body::Text(node.name().unwrap_or_default())
            }
            slot::CONTENT => self.part(node),
            slot::DETAILS => detail(node),
            slot::CALLS => self.call(at.place, node, node.get("function")),
            slot::FUNCTION_CALL => self.call(at.place, node, Some(node)),
            slot::EXTRA_CONTENT => {
                Body::Thought(issued("", ThoughtKind::Encrypted, "google-gemini-v1"))
            }
            "images" => media::of_base64(node).map_or(Body::Unknown, Body::Media),
            member if FIELDS.contains(&member) => {
                let text = node.name().unwrap_or_default();
                Body::Thought(issued(text, ThoughtKind::Text, &at.slot))
            }
            _ => Body::Unknown,
        }
    }

    fn part(&self, part: Node<'_>) -> Body {
        match &*part.text_of("type").unwrap_or_default() {
            "text" => Body::Text(part.name_of("text").unwrap_or_default()),
            "thinking" => {
                let text = chunk_text(part);
                let kind = if text.is_empty() { ThoughtKind::Encrypted } else { ThoughtKind::Text };
                let mut thought = issued(text, kind, THINKING_CHUNK);
                thought.whole = part.get("closed").and_then(Node::bool) != Some(false);
                Body::Thought(thought)
            }
            _ => media::of_part(part, &self.origin).map_or(Body::Unknown, Body::Media),
        }
    }

    fn call(&mut self, place: Place, call: Node<'_>, function: Option<Node<'_>>) -> Body {
        let custom =
            call.get("custom").filter(|_| call.get("type").is_some_and(|t| t.is("custom")));
        let Some(function) = custom.or(function) else { return Body::Unknown };
        let wire_id = call.name_of("id");
        let name = function.name_of("name").unwrap_or_default();
        let id = self.calls.open(wire_id.as_ref(), &name, place);
        let args = match custom {
            Some(custom) => custom.get("input").map_or_else(Json::null, Node::json),
            None => function.get("arguments").map_or_else(|| json::object(|_| {}), arguments),
        };
        Body::Call(ToolCall { id, wire_id, name, args, custom: custom.is_some() })
    }

    fn result(&mut self, message: Node<'_>) -> Body {
        let wire_id = message.name_of("tool_call_id");
        let name = message.name_of("name").or_else(|| message.name_of("tool_name"));
        let content = message.present("content");
        let parts = match content.and_then(Node::name) {
            Some(text) => vec![Part::Text(text)],
            None => {
                let parts = content.into_iter().flat_map(Node::elements);
                parts.map(|part| result_part(part, &self.origin)).collect()
            }
        };
        Body::Result(ToolResult {
            call: self.calls.answer(wire_id.as_deref(), name.as_deref()),
            wire_id,
            name,
            outcome: Outcome::Ok,
            parts,
        })
    }
}

/// Whether a string says what all the details say together.
fn repeats(value: Node<'_>, details: Node<'_>) -> bool {
    let texts = || details.elements().filter_map(readable_of);
    // Mostly there is one detail, and what repeats it was written by the same hand.
    match (texts().next(), texts().nth(1)) {
        (None, _) => false,
        (Some(one), None) if one.raw() == value.raw() => true,
        (Some(_), _) => {
            let readable: String = texts().filter_map(Node::text).collect();
            !readable.is_empty() && value.is(&readable)
        }
    }
}

/// What can be read of a detail.
fn readable_of(detail: Node<'_>) -> Option<Node<'_>> {
    detail.get("text").or_else(|| detail.get("summary")).filter(|text| text.is_string())
}

/// Notes that these members repeat what an Item's detail says.
pub(in crate::chat) fn echo(item: &mut Item, fields: &[&'static str]) {
    let is_readable = item.visible().is_some_and(|text| !text.is_empty());
    if let Some(native) = item.native.as_mut().filter(|_| is_readable) {
        native.slot = Label::Owned([&*native.slot, "+", &slot::joined(fields)].concat());
    }
}

/// An encrypted detail that has a call's id stands right before that call.
pub(in crate::chat) fn lead_calls(items: &mut [Item]) {
    let is_thought = |item: &Item| matches!(item.body, Body::Thought(_));
    if !items.iter().any(is_thought) {
        return;
    }
    // Where calls share an id, the first one counts.
    let mut calls: HashMap<&Name, &ItemId> = HashMap::new();
    for item in items.iter() {
        if let Some(id) = item.call().and_then(|call| call.wire_id.as_ref()) {
            calls.entry(id).or_insert(&item.id);
        }
    }
    let call_of = |thought: &Item| {
        work::step();
        calls.get(thought.native.as_ref()?.id.as_ref()?).map(|call| (*call).clone())
    };
    let thoughts = items.iter().enumerate().filter(|(_, item)| is_thought(item));
    let led: Vec<_> = thoughts.filter_map(|(at, item)| Some((at, call_of(item)?))).collect();
    for (at, call) in led {
        for seal in items.get_mut(at).into_iter().flat_map(|item| &mut item.seals) {
            seal.attached.leads = Some(call.clone());
        }
    }
}

fn issued(text: impl Into<Name>, kind: ThoughtKind, format: &str) -> Thought {
    Thought::issued(text, kind, ReasoningFormat::new(format))
}

fn detail(detail: Node<'_>) -> Body {
    let text = |key: &str| detail.name_of(key).unwrap_or_default();
    let (content, kind) = match &*detail.text_of("type").unwrap_or_default() {
        "reasoning.text" => (text("text"), ThoughtKind::Text),
        "reasoning.summary" => (text("summary"), ThoughtKind::Summary),
        "reasoning.encrypted" => (Name::default(), ThoughtKind::Encrypted),
        "reasoning.server_tool_call" => {
            return Body::Hosted(Hosted {
                name: detail.name_of("tool_name").unwrap_or_default(),
                pairs: detail.name_of("tool_call_id"),
                is_result: false,
                visible: Name::from(""),
            });
        }
        _ => return Body::Unknown,
    };
    // Nothing readable: only the signature counts.
    let is_empty = kind == ThoughtKind::Text && content.is_empty();
    let kind = if is_empty { ThoughtKind::Encrypted } else { kind };
    let format = detail.text_of("format");
    let mut thought = issued(content, kind, format.as_deref().unwrap_or("unknown"));
    thought.index = detail.get("index").and_then(Node::u64);
    Body::Thought(thought)
}

/// The readable text of a Mistral chunk: its `thinking` is a list of texts and references, or one string.
pub(in crate::chat) fn chunk_text(chunk: Node<'_>) -> String {
    let Some(thinking) = chunk.get("thinking") else { return String::new() };
    match thinking.text() {
        Some(text) => text.into_owned(),
        None => thinking.elements().filter_map(|part| part.text_of("text")).collect(),
    }
}

/// The arguments of a call: JSON within a string, or an object. What is not JSON stays the string that it was.
fn arguments(node: Node<'_>) -> Json {
    let Some(text) = node.text_bytes() else { return node.json() };
    Json::parse(text).unwrap_or_else(|_| {
        let is_silent = node.text().is_some_and(|text| text.trim().is_empty());
        if is_silent { json::object(|_| {}) } else { node.json() }
    })
}

fn result_part(part: Node<'_>, origin: &Arc<Origin>) -> Part {
    let text = || part.name_of("text").unwrap_or_default();
    if part.get("type").is_some_and(|kind| kind.is("text")) {
        return Part::Text(text());
    }
    media::of_part(part, origin).map_or_else(|| Part::Unknown(WIRE, part.json()), Part::Media)
}
