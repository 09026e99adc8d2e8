//! Encodes Calls as requests; the submodules also encode Replies as whole responses.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use throughline_core::{
    Body, Call, CallId, Digest, Direction, ElisionReason, EncodedRequest, Fate, Item, ReshapeKind,
    Role, Target, Tool, ToolCall,
};
use throughline_json::{self as json, Json, Name};

use crate::call_ids::CallIdAllocator;
use crate::draft::{self, Draft};
use crate::prefix::{PrefixHasher, absorb};
use crate::responses::WIRE;
use crate::responses::reasoning_items::caller_part;
use crate::responses::wire::{self, CONTENT};
use crate::{cross_wire, seal_policy};

mod message;
mod native;
mod parts;
mod reply;
mod settings;

pub(super) use self::reply::{encode_reply, generated_id, output, shown_id, skeleton};

pub(super) const PATH: &str = "/responses";

pub(super) fn encode(call: &Call) -> EncodedRequest {
    let mut draft = Draft::new(call, WIRE);
    draft.put_model();
    // Settings are applied after the extras, because some objects contain both.
    draft.put_extras();
    settings::put_settings(&mut draft, call);
    let mut writer = ResponsesWriter {
        call,
        storage: ResponseStorage::from_call(call, &draft),
        resumes: previous_response(call, &draft),
        prefix: call.target.profile.bound.prefix.then(PrefixHasher::new),
        ids: CallIdAllocator::for_target(&call.target),
        sent: HashSet::new(),
        custom: HashSet::new(),
        renamed: HashSet::new(),
        is_orphaned: false,
    };
    writer.instructions(&mut draft);
    writer.tools(&mut draft);
    settings::put_tool_settings(&mut draft, call);
    settings::put_stored_references(&mut draft, call, writer.resumes);
    let elements = writer.input(&mut draft);
    put_input(&mut draft, &elements);
    draft.put_stream(false);
    draft.put_provider_extras();
    let prefix = writer.prefix.map(|prefix| prefix.digest());
    draft.finish(PATH, &[], prefix)
}

/// Writes `input`. If the source `input` is a single string, it stays a string as long as the
/// conversation still consists of that one message.
fn put_input(draft: &mut Draft<'_>, elements: &[Json]) {
    // Check only the first byte of the source, because parsing a large input is expensive.
    let opens_with = draft.source().and_then(|source| {
        let (_, range) = source.members.iter().rfind(|(name, _)| &**name == "input")?;
        source.request.body.get(range.start).copied()
    });
    match opens_with {
        Some(b'[') => draft.put_elements("input", elements),
        Some(b'"') => {
            let was = draft.source_value("input").map(|text| message::bare_message(&text));
            if was.as_slice() != elements {
                draft.put("input", json::array_of(elements));
            }
        }
        Some(_) | None if elements.is_empty() && draft.source().is_some() => {}
        Some(_) | None => draft.put("input", json::array_of(elements)),
    }
}

/// Whether the endpoint can resolve earlier output items by id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseStorage {
    /// The endpoint stores this conversation and can resolve its ids.
    Stored,
    /// The endpoint can store the conversation, but the request disables storage.
    Declined,
    /// The endpoint never stores responses.
    Never,
}

impl ResponseStorage {
    fn from_call(call: &Call, draft: &Draft<'_>) -> Self {
        if !call.target.provider.dialect.stores {
            return Self::Never;
        }
        let reasoning = call.settings.reasoning.as_ref();
        let extras = reasoning.map(|reasoning| reasoning.provider_extras.as_slice());
        let last = extras.unwrap_or_default().iter().rfind(|(key, _)| &**key == "store");
        let store = last.map(|(_, value)| value.clone()).or_else(|| draft.current_value("store"));
        match store.and_then(|store| store.tree().root().bool()) {
            Some(false) => Self::Declined,
            Some(true) | None => Self::Stored,
        }
    }
}

/// Returns the id of the response to continue from, unless another endpoint or account produced
/// that response.
fn previous_response<'c>(call: &'c Call, draft: &Draft<'_>) -> Option<&'c str> {
    let resumed = call.resumes.as_deref()?;
    let author =
        call.items.iter().rfind(|item| belongs_to_reply(item, resumed) && item.origin.is_some());
    let is_kept = match author {
        Some(item) => foreign_reason(item, &call.target).is_none(),
        None => {
            let was = draft.source_value("previous_response_id");
            let is_sources = was.is_some_and(|was| was.tree().root().is(resumed));
            !(is_sources && settings::is_stored_elsewhere(draft, call))
        }
    };
    is_kept.then_some(resumed)
}

/// Returns whether an Item belongs to the reply with this id.
fn belongs_to_reply(item: &Item, reply: &str) -> bool {
    item.id.0.strip_prefix(reply).is_some_and(|rest| rest.starts_with('.'))
}

/// Returns why the target cannot resolve ids that were stored for this Item; `None` if the target
/// can resolve them.
fn foreign_reason(item: &Item, target: &Target) -> Option<ElisionReason> {
    let (author, reader) = (item.origin.as_ref()?, &target.origin);
    if !draft::is_same_endpoint(author, reader) {
        return Some(ElisionReason::Foreign);
    }
    (author.account != reader.account).then_some(ElisionReason::OtherAccount)
}

struct ResponsesWriter<'c> {
    call: &'c Call,
    storage: ResponseStorage,
    /// The id of the response that the request continues, if the target can resolve it.
    resumes: Option<&'c str>,
    prefix: Option<PrefixHasher>,
    ids: CallIdAllocator,
    /// The call ids that were already sent. A call id may occur twice, because some endpoints
    /// restart their numbering with every response.
    sent: HashSet<Name>,
    /// Calls whose arguments are free text.
    custom: HashSet<CallId>,
    /// Calls that are sent with a new id, which their results must use too.
    renamed: HashSet<CallId>,
    /// Whether the reasoning that led to the current element was omitted.
    is_orphaned: bool,
}

/// Groups Items into elements. An element is a message with its parts, or a single Item. The wire
/// does not require alternating turns, so only parts of the same message are joined.
fn group_elements<'i>(items: impl IntoIterator<Item = &'i Item>) -> Vec<Vec<&'i Item>> {
    let mut groups: Vec<Vec<&Item>> = Vec::new();
    for item in items {
        match groups.last_mut() {
            Some(group) if group.last().is_some_and(|last| is_same_element(last, item)) => {
                group.push(item);
            }
            Some(_) | None => groups.push(vec![item]),
        }
    }
    groups
}

fn is_same_element(left: &Item, right: &Item) -> bool {
    is_part(left)
        && is_part(right)
        && left.role == right.role
        && left.place.message == right.place.message
        && match (envelope(left), envelope(right)) {
            (Some(left), Some(right)) => Arc::ptr_eq(left, right) || left == right,
            (Some(_) | None, _) => true,
        }
}

/// Returns whether the Item is part of a message's content.
fn is_part(item: &Item) -> bool {
    match item.native_on(&WIRE) {
        Some(native) => native.slot == CONTENT,
        None => matches!(item.body, Body::Text(_) | Body::Media(_) | Body::Summary { .. }),
    }
}

fn envelope(item: &Item) -> Option<&Arc<throughline_core::Envelope>> {
    item.native_on(&WIRE)?.envelope.as_ref()
}

/// Returns the source element that these Items were decoded from, if all of its Items are present
/// and unchanged.
fn intact_element<'i>(group: &[&'i Item]) -> Option<(&'i Json, Direction)> {
    let (first, rest) = group.split_first()?;
    let native = first.native_on(&WIRE)?;
    let Some(shared) = envelope(first) else {
        return rest.is_empty().then_some((&native.json, native.side));
    };
    let is_same = |item: &&Item| {
        envelope(item).is_some_and(|other| Arc::ptr_eq(shared, other) || shared == other)
    };
    (rest.iter().all(is_same) && group.len() == shared.parts).then_some((&shared.json, native.side))
}

impl ResponsesWriter<'_> {
    fn instructions(&mut self, draft: &mut Draft<'_>) {
        let items: Vec<&Item> = self.call.system.iter().collect();
        if let Some((json, _)) = intact_element(&items) {
            draft.fates.extend(items.iter().map(|item| draft::kept_fate(item)));
            absorb(&mut self.prefix, "instructions", [json]);
            draft.put_if_changed("instructions", json);
            return;
        }
        let mut texts = Vec::new();
        for item in &items {
            draft.warn_about_cache_markers(item.native.as_ref());
            let (Body::Text(text) | Body::Summary { text, .. }) = &item.body else {
                draft.fates.push(draft::elided_fate(item, ElisionReason::NotOnThisWire));
                continue;
            };
            texts.push(&**text);
            let how = if items.len() > 1 { ReshapeKind::Merged } else { ReshapeKind::OtherWire };
            let is_new = items.len() == 1 && item.native.is_none();
            draft.fates.push(if is_new {
                draft::kept_fate(item)
            } else {
                draft::reshaped_fate(item, how, ElisionReason::NotOnThisWire)
            });
        }
        if !texts.is_empty() {
            let instructions = json::string(&texts.join("\n\n"));
            absorb(&mut self.prefix, "instructions", [&instructions]);
            draft.put("instructions", instructions);
        } else if draft.source_value("instructions").is_some_and(|was| was != Json::null()) {
            draft.remove("instructions");
        }
    }

    fn tools(&mut self, draft: &mut Draft<'_>) {
        // The input itself contains the additional tools.
        let tools = self.call.tools.iter().filter(|tool| !wire::is_additional(tool));
        let tools = tools.filter_map(|tool| match tool.native_on(&WIRE) {
            Some(native) if !(tool.hosted && draft.has_other_endpoint()) => {
                Some(native.json.clone())
            }
            Some(_) | None => cross_wire::tool(draft, tool, |draft| {
                cross_wire::warn_about_input_format(draft, tool);
                function(tool)
            }),
        });
        let tools: Vec<Json> = tools.collect();
        if draft.source_value("tools").is_some_and(|was| was != Json::null()) || !tools.is_empty() {
            draft.put_elements("tools", &tools);
        }
        absorb(&mut self.prefix, "tool", &tools);
    }

    fn input(&mut self, draft: &mut Draft<'_>) -> Vec<Json> {
        let covered = self.covered_items();
        let (covered, sent) = self.call.items.split_at(covered);
        draft
            .fates
            .extend(covered.iter().map(|item| draft::elided_fate(item, ElisionReason::Covered)));
        let call = self.call;
        let sent = draft.order_items(sent, |item| seal_policy::is_caller_text(call, item, &WIRE));
        let groups = group_elements(sent);
        let mut elements = Vec::with_capacity(groups.len());
        for (at, group) in groups.iter().enumerate() {
            let prefix = self.prefix.as_ref().map(PrefixHasher::digest);
            let element = match group.as_slice() {
                [item] if !is_part(item) => {
                    let next = groups.get(at + 1).map(Vec::as_slice);
                    let (element, fate) = self.encode_single(draft, item, next, prefix.as_ref());
                    draft.fates.push(fate);
                    element
                }
                parts => self.message(draft, parts, prefix.as_ref()),
            };
            self.is_orphaned = match group.first() {
                Some(item) if item.role != Role::Assistant => false,
                Some(item) if matches!(item.body, Body::Thought(_)) && item.origin.is_some() => {
                    element.is_none()
                }
                Some(_) | None => self.is_orphaned,
            };
            if let Some(element) = element {
                absorb(&mut self.prefix, "input", [&element]);
                elements.push(element);
            }
        }
        elements
    }

    /// Returns the number of leading Items that the continued response already includes. These
    /// Items are not sent, because the provider would read them twice.
    fn covered_items(&self) -> usize {
        let Some(resumed) = self.resumes else { return 0 };
        let last = self.call.items.iter().rposition(|item| belongs_to_reply(item, resumed));
        last.map_or(0, |last| last + 1)
    }

    fn foreign_reason(&self, item: &Item) -> Option<ElisionReason> {
        foreign_reason(item, &self.call.target)
    }

    /// Returns whether an Item's ids must be dropped, because the target cannot resolve them or the
    /// paired reasoning was omitted.
    fn drops_ids(&self, item: &Item) -> bool {
        let has_id = item.native_on(&WIRE).is_some_and(|native| native.id.is_some());
        let is_orphan = self.is_orphaned && self.storage == ResponseStorage::Stored;
        has_id && item.role == Role::Assistant && (self.foreign_reason(item).is_some() || is_orphan)
    }

    /// Encodes an Item that forms a whole element and returns its Fate.
    fn encode_single(
        &mut self,
        draft: &mut Draft<'_>,
        item: &Item,
        next: Option<&[&Item]>,
        prefix: Option<&Digest>,
    ) -> (Option<Json>, Fate) {
        use Body::{Compaction, Hosted, Media, Summary, Text, Thought, Unknown};
        if let Some(native) = item.native_on(&WIRE) {
            return self.native(draft, item, native, next, prefix);
        }
        draft.warn_about_cache_markers(item.native.as_ref());
        let seals_why = seal_policy::elision_reason(item, &self.call.target);
        let sent = |element: Json| (Some(element), cross_wire::sent_fate(item, seals_why));
        match &item.body {
            Body::Thought(thought) if !thought.whole => {
                (None, draft::elided_fate(item, ElisionReason::Cut))
            }
            Body::Thought(thought) if item.origin.is_none() => {
                let bare = |text: &str| message::bare_message(&json::string(text));
                cross_wire::thought(draft, self.call, (item, thought), &WIRE, caller_part, bare)
            }
            Body::Call(call) => sent(self.call_element(call)),
            Body::Result(result) => sent(self.result(draft, result)),
            // Texts and media are encoded as message parts, not as elements.
            Text(_) | Media(_) | Thought(_) | Hosted(_) | Compaction | Summary { .. } | Unknown => {
                (None, draft::elided_fate(item, seals_why))
            }
        }
    }

    fn call_element(&mut self, call: &ToolCall) -> Json {
        let id = self.ids.assign(&call.id);
        self.sent.insert(Arc::clone(&id));
        self.renamed.insert(call.id.clone());
        if call.custom {
            self.custom.insert(call.id.clone());
        }
        let (kind, key) = call_type_and_member(call);
        object! { "type": kind, "call_id": id, "name": call.name, (key): arguments(call) }
    }
}

fn function(tool: &Tool) -> Json {
    let schema = tool.schema.clone();
    let schema = schema.unwrap_or_else(|| object! { "type": "object", "properties": {} });
    // The API's default is strict mode, which rejects most schemas that were not written for it.
    object! {
        "type": "function", "name": tool.name, "description": tool.description,
        "parameters": schema, "strict": false,
    }
}

/// Returns the element type of a call and the name of the member that holds its arguments.
pub(super) fn call_type_and_member(call: &ToolCall) -> (&'static str, &'static str) {
    let is_text = call.args.bytes().first() == Some(&b'"');
    if call.custom && is_text {
        ("custom_tool_call", "input")
    } else {
        ("function_call", "arguments")
    }
}

/// Returns the arguments of a call as text. If the arguments are a JSON string, they are free text
/// or invalid JSON, and the string's content is returned.
pub(super) fn arguments(call: &ToolCall) -> Cow<'_, str> {
    let text = call.args.tree().root().text().map(Cow::into_owned);
    text.map_or(Cow::Borrowed(call.args.as_str()), Cow::Owned)
}

/// Returns a copy of an element without the members `keys`.
fn without_members(element: &Json, keys: &[&'static str]) -> Json {
    let changes: Vec<_> = keys.iter().map(|key| (*key, None)).collect();
    draft::edit_object(Some(element), &changes)
}
