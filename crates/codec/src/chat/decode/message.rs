//! Splits a message into Items, one per slot or list element.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use throughline_core::{
    Body, Direction, HostedStep, Item, ItemId, ItemPosition, Origin, Outcome, Part,
    ReasoningChannel as Channel, ReasoningFormat, ReasoningSource, Role, Seal, Thought,
    ThoughtKind, ToolCall, ToolResult,
};
use throughline_json::{self as json, Json, Label, Name, Node, work};

use crate::chat::decode::media;
use crate::chat::slot::{self, FIELDS, Slots};
use crate::chat::tags::{self, TagPiece, TagScope, TagSplitter};
use crate::chat::{WIRE, wire};
use crate::item_reader::ItemReader;
use crate::{DecodeContext, draft};

/// The reasoning format of inline tags.
pub(in crate::chat) const INLINE_TAGS: &str = "inline-tags";
/// The reasoning format of Mistral's `thinking` chunks.
pub(crate) const THINKING_CHUNK: &str = "mistral-thinking-chunk";

/// Splits a message into its Items. An empty message becomes one Item that holds the whole
/// message.
pub(in crate::chat) fn read_message(
    reader: &mut ItemReader<'_>,
    index: usize,
    message: Node<'_>,
    items: &mut Vec<Item>,
) {
    let start = items.len();
    let slots = Slots::from_message(message);
    let role = match slots.role.and_then(Node::text).as_deref() {
        Some("assistant") => Role::Assistant,
        Some("system") => Role::System,
        Some("developer") => Role::Developer,
        Some("tool" | "function") => Role::Tool,
        None if reader.side == Direction::Response => Role::Assistant,
        Some(_) | None => Role::User,
    };
    let body = match role {
        Role::Tool => read_result(reader, message),
        Role::Assistant | Role::System | Role::Developer | Role::User => {
            let mut splitter = MessageSplitter { reader, index, role, items, start };
            splitter.read_slots(&slots);
            Body::Unknown
        }
    };
    if items.len() == start {
        let native = reader.native(message.json(), None);
        items.push(reader.item(ItemPosition::new(index, 0), role, body, native));
    }
    link_details_to_calls(items.get_mut(start..).unwrap_or_default());
}

/// Appends the Items of one message to `items`.
struct MessageSplitter<'r, 'a> {
    reader: &'r mut ItemReader<'a>,
    index: usize,
    role: Role,
    items: &'r mut Vec<Item>,
    /// The number of Items in `items` before this message.
    start: usize,
}

impl MessageSplitter<'_, '_> {
    fn place(&self) -> ItemPosition {
        ItemPosition::new(self.index, self.items.len() - self.start)
    }

    fn push(&mut self, slot: impl Into<Label>, node: Node<'_>) {
        let item = read_slot_item(self.reader, self.place(), self.role, slot.into(), node);
        self.items.push(item);
    }

    fn push_list(&mut self, member: &str, list: Option<Node<'_>>) {
        for (position, node) in list.into_iter().flat_map(Node::elements).enumerate() {
            self.push(slot::list_slot(member, position), node);
        }
    }

    fn read_slots(&mut self, slots: &Slots<'_>) {
        if self.role == Role::Assistant {
            self.read_thoughts(slots);
        }
        match slots.content {
            Some(text) if text.is_string() => self.read_text(text),
            content => self.push_list(slot::CONTENT, content),
        }
        self.push_list("images", slots.images);
        if self.role == Role::Assistant {
            self.read_other_slots(slots);
        }
    }

    /// Adds the Thoughts of a message: one per detail, and one per reasoning string that does not
    /// repeat the details.
    fn read_thoughts(&mut self, slots: &Slots<'_>) {
        self.push_list(slot::DETAILS, slots.details);
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
            if slots.details.is_some_and(|details| repeats_details(value, details)) {
                for item in self.items.iter_mut().skip(self.start) {
                    add_echo_slots(item, &fields);
                }
            } else {
                self.push(slot::joined_slot(&fields), value);
            }
        }
    }

    /// Adds a text. Reasoning between tags becomes separate Thoughts.
    fn read_text(&mut self, text: Node<'_>) {
        let scope = tag_scope(self.reader.context).filter(|_| self.role == Role::Assistant);
        // A tag begins with `<`, which may be written as a JSON escape.
        let may_tag = |scope: &TagScope| {
            memchr::memchr2(b'<', b'\\', text.raw()).is_some()
                && text.text().is_some_and(|text| tags::may_contain_tags(&text, *scope))
        };
        let Some(scope) = scope.filter(may_tag) else {
            // Endpoints write an empty string if the assistant produced no text.
            if self.role != Role::Assistant || text.raw().len() > 2 {
                self.push(slot::CONTENT, text);
            }
            return;
        };
        let mut splitter = TagSplitter::new(scope);
        let mut pieces = splitter.push(&text.text().unwrap_or_default());
        pieces.extend(splitter.finish());
        if pieces.iter().all(|piece| matches!(piece, TagPiece::Text(_))) {
            return self.push(slot::CONTENT, text);
        }
        let mut plain = String::new();
        let mut thought: Option<(String, String)> = None;
        for piece in pieces {
            match piece {
                TagPiece::Text(text) => plain.push_str(&text),
                TagPiece::Open(tag) => {
                    self.flush_text(&mut plain);
                    thought = Some((tag, String::new()));
                }
                TagPiece::Thought(text) => {
                    if let Some((raw, inner)) = &mut thought {
                        raw.push_str(&text);
                        inner.push_str(&text);
                    }
                }
                TagPiece::Close(tag) => {
                    if let Some((raw, inner)) = thought.take() {
                        self.push_tagged_thought(&(raw + &tag), &inner, true);
                    }
                }
            }
        }
        if let Some((raw, inner)) = thought {
            self.push_tagged_thought(&raw, &inner, false);
        }
        self.flush_text(&mut plain);
    }

    fn push_tagged_thought(&mut self, raw: &str, inner: &str, is_whole: bool) {
        let item = read_tagged_thought(self.reader, self.place(), raw, inner, is_whole);
        self.items.push(item);
    }

    fn flush_text(&mut self, plain: &mut String) {
        if !plain.is_empty() {
            self.push(slot::CONTENT, json::string(&std::mem::take(plain)).tree().root());
        }
    }

    /// Adds refusals, audio, calls, and Google's `extra_content`.
    fn read_other_slots(&mut self, slots: &Slots<'_>) {
        let has =
            |key: &str, node: Node<'_>| node.text_of(key).is_some_and(|text| !text.is_empty());
        let refusal = slots.refusal.filter(|refusal| refusal.raw().len() > 2);
        if let Some(refusal) = refusal.filter(|refusal| refusal.is_string()) {
            self.push(slot::REFUSAL, refusal);
        }
        if let Some(audio) = slots.audio.filter(|audio| has("id", *audio)) {
            self.push(slot::AUDIO, audio);
        }
        self.push_list(slot::CALLS, slots.calls);
        if let Some(call) = slots.function_call.filter(|call| has("name", *call)) {
            self.push(slot::FUNCTION_CALL, call);
        }
        if let Some(extra) = slots.extra_content.filter(|extra| extra.is_object())
            && !read_seals(self.reader, slot::EXTRA_CONTENT, extra).is_empty()
        {
            self.push(slot::EXTRA_CONTENT, extra);
        }
    }
}

/// Returns where in a text this endpoint may emit tagged reasoning; `None` if the endpoint emits no
/// tagged reasoning.
pub(in crate::chat) fn tag_scope(context: &DecodeContext) -> Option<TagScope> {
    match context.target.provider.dialect.channel {
        Channel::Tags => Some(TagScope::Anywhere),
        Channel::AsEmitted => Some(TagScope::Beginning),
        _ => None,
    }
}

/// Builds a Thought from tagged reasoning; `raw` includes the tags.
pub(in crate::chat) fn read_tagged_thought(
    reader: &mut ItemReader<'_>,
    place: ItemPosition,
    raw: &str,
    inner: &str,
    is_whole: bool,
) -> Item {
    let mut thought = issued_thought(inner, ThoughtKind::Text, INLINE_TAGS);
    thought.whole = is_whole;
    // A model that does not reason natively writes tags only because a prompt requested them.
    let target = &reader.context.target;
    if target.provider.dialect.channel != Channel::Tags && !target.profile.can_think() {
        thought.source = ReasoningSource::NonReasonerModel;
    }
    let mut native = reader.native(json::string(raw), None);
    native.slot = Label::Borrowed(slot::CONTENT);
    reader.item(place, Role::Assistant, Body::Thought(thought), native)
}

/// Builds an Item from the value of a slot.
pub(in crate::chat) fn read_slot_item(
    reader: &mut ItemReader<'_>,
    place: ItemPosition,
    role: Role,
    slot: Label,
    node: Node<'_>,
) -> Item {
    let body = read_body(reader, place, &slot, node);
    let is_numbered = reader.side == Direction::Response
        && slot.starts_with(slot::CALLS)
        && node.get("index").is_some();
    // Drop `index`, because the slot already records the call's position. A stream needs the
    // member, but a request must not contain it.
    let mut json = node.json();
    if is_numbered {
        json = draft::edit_object(Some(&json), &[("index", None)]);
    }
    let mut native = reader.native(json, None);
    native.id = match &body {
        Body::Call(call) => call.wire_id.clone(),
        _ => node.name_of("id"),
    };
    let seals = if node.is_object() { read_seals(reader, &slot, node) } else { Vec::new() };
    native.slot = slot;
    let mut item = reader.item(place, role, body, native);
    item.seals = seals;
    item
}

fn read_seals(reader: &ItemReader<'_>, slot: &str, node: Node<'_>) -> Vec<Seal> {
    let mut seals = reader.seals(node, wire::seal_format);
    seals.retain(|seal| wire::is_sealed(slot, &seal.attached.at));
    seals
}

fn read_body(reader: &mut ItemReader<'_>, place: ItemPosition, slot: &str, node: Node<'_>) -> Body {
    match slot::first_member(slot) {
        slot::CONTENT | slot::REFUSAL if node.is_string() => {
            Body::Text(node.name().unwrap_or_default())
        }
        slot::CONTENT => read_part(reader, node),
        slot::DETAILS => detail_body(node),
        slot::CALLS => read_call(reader, place, node, node.get("function")),
        slot::FUNCTION_CALL => read_call(reader, place, node, Some(node)),
        slot::EXTRA_CONTENT => {
            Body::Thought(issued_thought("", ThoughtKind::Encrypted, "google-gemini-v1"))
        }
        "images" => media::from_base64(node).map_or(Body::Unknown, Body::Media),
        member if FIELDS.contains(&member) => {
            let text = node.name().unwrap_or_default();
            Body::Thought(issued_thought(text, ThoughtKind::Text, slot))
        }
        _ => Body::Unknown,
    }
}

fn read_part(reader: &ItemReader<'_>, part: Node<'_>) -> Body {
    match &*part.text_of("type").unwrap_or_default() {
        "text" => Body::Text(part.name_of("text").unwrap_or_default()),
        "thinking" => {
            let text = chunk_text(part);
            let kind = if text.is_empty() { ThoughtKind::Encrypted } else { ThoughtKind::Text };
            let mut thought = issued_thought(text, kind, THINKING_CHUNK);
            thought.whole = part.get("closed").and_then(Node::bool) != Some(false);
            Body::Thought(thought)
        }
        _ => media::from_part(part, &reader.origin).map_or(Body::Unknown, Body::Media),
    }
}

fn read_call(
    reader: &mut ItemReader<'_>,
    place: ItemPosition,
    call: Node<'_>,
    function: Option<Node<'_>>,
) -> Body {
    let custom = call.get("custom").filter(|_| call.get("type").is_some_and(|t| t.is("custom")));
    let Some(function) = custom.or(function) else { return Body::Unknown };
    let wire_id = call.name_of("id");
    let name = function.name_of("name").unwrap_or_default();
    let id = reader.calls.open(wire_id.as_ref(), &name, place);
    let args = match custom {
        Some(custom) => custom.get("input").map_or_else(Json::null, Node::json),
        None => function.get("arguments").map_or_else(|| object! {}, arguments),
    };
    Body::Call(ToolCall { id, wire_id, name, args, custom: custom.is_some() })
}

fn read_result(reader: &mut ItemReader<'_>, message: Node<'_>) -> Body {
    let wire_id = message.name_of("tool_call_id");
    let name = message.name_of("name").or_else(|| message.name_of("tool_name"));
    let content = message.present("content");
    let parts = match content.and_then(Node::name) {
        Some(text) => vec![Part::Text(text)],
        None => {
            let parts = content.into_iter().flat_map(Node::elements);
            parts.map(|part| result_part(part, &reader.origin)).collect()
        }
    };
    let call = reader.calls.answer(wire_id.as_deref(), name.as_deref());
    Body::Result(ToolResult { call, wire_id, name, outcome: Outcome::Ok, parts })
}

/// Returns whether a string equals the concatenated texts of all details.
fn repeats_details(value: Node<'_>, details: Node<'_>) -> bool {
    let texts = || details.elements().filter_map(readable_text);
    // Usually there is one detail, and the string repeats it byte for byte.
    match (texts().next(), texts().nth(1)) {
        (None, _) => false,
        (Some(one), None) if one.raw() == value.raw() => true,
        (Some(_), _) => {
            let readable: String = texts().filter_map(Node::text).collect();
            !readable.is_empty() && value.is(&readable)
        }
    }
}

/// Returns the readable text of a detail.
fn readable_text(detail: Node<'_>) -> Option<Node<'_>> {
    detail.get("text").or_else(|| detail.get("summary")).filter(|text| text.is_string())
}

/// Adds `fields` to the Item's slot, because these fields repeat the text of the detail.
pub(in crate::chat) fn add_echo_slots(item: &mut Item, fields: &[&'static str]) {
    let is_readable = item.visible().is_some_and(|text| !text.is_empty());
    if let Some(native) = item.native.as_mut().filter(|_| is_readable) {
        native.slot = Label::Owned([&*native.slot, "+", &slot::joined_slot(fields)].concat());
    }
}

/// Links each encrypted detail whose id is a call's id to that call. Such a detail precedes its
/// call.
pub(in crate::chat) fn link_details_to_calls(items: &mut [Item]) {
    let is_thought = |item: &Item| matches!(item.body, Body::Thought(_));
    if !items.iter().any(is_thought) {
        return;
    }
    // If several calls share an id, link to the first call.
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

fn issued_thought(text: impl Into<Name>, kind: ThoughtKind, format: &str) -> Thought {
    Thought::issued(text, kind, ReasoningFormat::new(format))
}

fn detail_body(detail: Node<'_>) -> Body {
    let text = |key: &str| detail.name_of(key).unwrap_or_default();
    let (content, kind) = match &*detail.text_of("type").unwrap_or_default() {
        "reasoning.text" => (text("text"), ThoughtKind::Text),
        "reasoning.summary" => (text("summary"), ThoughtKind::Summary),
        "reasoning.encrypted" => (Name::default(), ThoughtKind::Encrypted),
        "reasoning.server_tool_call" => {
            let name = detail.name_of("tool_name").unwrap_or_default();
            let (pairs, visible) = (detail.name_of("tool_call_id"), Name::default());
            return Body::Hosted(HostedStep { name, pairs, is_result: false, visible });
        }
        _ => return Body::Unknown,
    };
    // A detail without readable text carries only a signature.
    let is_empty = kind == ThoughtKind::Text && content.is_empty();
    let kind = if is_empty { ThoughtKind::Encrypted } else { kind };
    let format = detail.text_of("format");
    let mut thought = issued_thought(content, kind, format.as_deref().unwrap_or("unknown"));
    thought.index = detail.get("index").and_then(Node::u64);
    Body::Thought(thought)
}

/// Returns the readable text of a Mistral chunk. Its `thinking` member is a string, or a list of
/// texts and references.
pub(in crate::chat) fn chunk_text(chunk: Node<'_>) -> String {
    let Some(thinking) = chunk.get("thinking") else { return String::new() };
    match thinking.text() {
        Some(text) => text.into_owned(),
        None => thinking.elements().filter_map(|part| part.text_of("text")).collect(),
    }
}

/// Reads the arguments of a call, which are an object or JSON inside a string. Invalid JSON is kept
/// as a string.
fn arguments(node: Node<'_>) -> Json {
    let Some(text) = node.text_bytes() else { return node.json() };
    Json::parse(text).unwrap_or_else(|_| {
        let is_silent = node.text().is_some_and(|text| text.trim().is_empty());
        if is_silent {
            object! {}
        } else {
            node.json()
        }
    })
}

fn result_part(part: Node<'_>, origin: &Arc<Origin>) -> Part {
    if part.get("type").is_some_and(|kind| kind.is("text")) {
        return Part::Text(part.name_of("text").unwrap_or_default());
    }
    media::from_part(part, origin).map_or_else(|| Part::Unknown(WIRE, part.json()), Part::Media)
}
