//! Calls and Replies, written.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use throughline_core::{
    Body, Call, CallId, Digest, Encoded, Fate, How, Item, Json, Name, Role, Side, Target, Tool,
    ToolCall, Why, Wire, json,
};

use crate::calls::OutgoingIds;
use crate::crossing;
use crate::draft::{self, Draft};
use crate::gate;
use crate::prefix::Prefix;
use crate::responses::wire::CONTENT;

mod message;
mod native;
mod parts;
mod reply;
mod settings;

pub(super) use self::reply::{made_id, output, reply, shown_id, skeleton};

/// Where requests go.
pub(super) const PATH: &str = "/responses";

const WIRE: Wire = Wire::OPENAI_RESPONSES;

/// Writes a Call.
pub(super) fn encode(call: &Call) -> Encoded {
    let mut draft = Draft::new(call, WIRE);
    let model = call.target.model();
    if draft.was("model").is_none_or(|was| !was.tree().root().is(model)) {
        draft.put("model", json::string(model));
    }
    // Settings are laid over the extras: of some members both know a part.
    draft.put_extras();
    settings::put(&mut draft, call);
    let mut writer = Writer {
        call,
        storage: Storage::of(call, &draft),
        resumes: resumes(call, &draft),
        prefix: call.target.profile.bound.prefix.then(Prefix::new),
        ids: OutgoingIds::for_target(&call.target),
        sent: HashSet::new(),
        custom: HashSet::new(),
        renamed: HashSet::new(),
        is_orphaned: false,
    };
    writer.instructions(&mut draft);
    writer.tools(&mut draft);
    settings::put_calling(&mut draft, call);
    settings::put_kept(&mut draft, call, writer.resumes);
    let elements = writer.input(&mut draft);
    put_input(&mut draft, &elements);
    let was = draft.was("stream").and_then(|was| was.tree().root().bool()).unwrap_or(false);
    if was != call.stream {
        draft.put("stream", call.stream.into());
    }
    draft.put_provider_extras();
    let prefix = writer.prefix.map(|prefix| prefix.digest());
    draft.finish(PATH, &[], prefix)
}

/// A short request says its one message as a string, and goes on saying it so while there is nothing else to say.
fn put_input(draft: &mut Draft<'_>, elements: &[Json]) {
    // The source is looked at without reading it again: an input may be all there is of a large request.
    let opens_with = draft.source().and_then(|source| {
        let (_, range) = source.members.iter().rfind(|(name, _)| &**name == "input")?;
        source.request.body.get(range.start).copied()
    });
    match opens_with {
        Some(b'[') => draft.put_elements("input", elements),
        Some(b'"') => {
            let was = draft.was("input").map(|text| message::bare(&text));
            if was.as_slice() != elements {
                draft.put("input", json::array_of(elements));
            }
        }
        Some(_) | None if elements.is_empty() && draft.source().is_some() => {}
        Some(_) | None => draft.put("input", json::array_of(elements)),
    }
}

/// Whether the endpoint can find what it answered by its ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Storage {
    /// It keeps this conversation.
    Stored,
    /// It could keep it, and is told not to.
    Declined,
    /// It keeps nothing.
    Never,
}

impl Storage {
    fn of(call: &Call, draft: &Draft<'_>) -> Self {
        if !call.target.provider.dialect.stores {
            return Self::Never;
        }
        let reasoning = call.settings.reasoning.as_ref();
        let extras = reasoning.map(|reasoning| reasoning.provider_extras.as_slice());
        let last = extras.unwrap_or_default().iter().rfind(|(key, _)| &**key == "store");
        let store = last.map(|(_, value)| value.clone()).or_else(|| draft.latest("store"));
        match store.and_then(|store| store.tree().root().bool()) {
            Some(false) => Self::Declined,
            Some(true) | None => Self::Stored,
        }
    }
}

/// The answer to go on from, if the target has it: it gave that answer itself, or nothing says otherwise.
fn resumes<'c>(call: &'c Call, draft: &Draft<'_>) -> Option<&'c str> {
    let resumed = call.resumes.as_deref()?;
    let author = call.items.iter().rfind(|item| is_of(item, resumed) && item.origin.is_some());
    let is_kept = match author {
        Some(item) => stranger(item, &call.target).is_none(),
        None => {
            let was = draft.was("previous_response_id");
            let is_sources = was.is_some_and(|was| was.tree().root().is(resumed));
            !(is_sources && settings::is_elsewhere(draft, call))
        }
    };
    is_kept.then_some(resumed)
}

/// Whether an Item is part of that answer.
fn is_of(item: &Item, reply: &str) -> bool {
    item.id.0.strip_prefix(reply).is_some_and(|rest| rest.starts_with('.'))
}

/// Why what this Item's author stored cannot be found at the target.
fn stranger(item: &Item, target: &Target) -> Option<Why> {
    let (author, reader) = (item.origin.as_ref()?, &target.origin);
    if author.provider != reader.provider || author.endpoint != reader.endpoint {
        return Some(Why::Foreign);
    }
    (author.account != reader.account).then_some(Why::OtherAccount)
}

struct Writer<'c> {
    call: &'c Call,
    storage: Storage,
    /// The answer that the request goes on from, if the target has it.
    resumes: Option<&'c str>,
    prefix: Option<Prefix>,
    ids: OutgoingIds,
    /// The wire's own call ids that went out: some endpoints begin anew with every answer.
    sent: HashSet<Name>,
    /// The calls whose arguments are free text.
    custom: HashSet<CallId>,
    /// The calls that go out under an id of ours, for their answers to follow.
    renamed: HashSet<CallId>,
    /// Whether the reasoning that led to what is being written was left out.
    is_orphaned: bool,
}

/// The Items of one element: the parts of one message, or one Item by itself.
type Group<'i> = Vec<&'i Item>;

/// Puts Items together into the elements that they were or will be. Unlike other wires, this one wants no turns to
/// alternate, so only parts of the same message join.
fn groups<'i>(items: impl IntoIterator<Item = &'i Item>) -> Vec<Group<'i>> {
    let mut groups: Vec<Group<'i>> = Vec::new();
    for item in items {
        match groups.last_mut() {
            Some(group) if group.last().is_some_and(|last| joins(last, item)) => group.push(item),
            Some(_) | None => groups.push(vec![item]),
        }
    }
    groups
}

fn joins(left: &Item, right: &Item) -> bool {
    is_part(left)
        && is_part(right)
        && left.role == right.role
        && left.place.message == right.place.message
        && match (envelope(left), envelope(right)) {
            (Some(left), Some(right)) => Arc::ptr_eq(left, right) || left == right,
            (Some(_) | None, _) => true,
        }
}

/// Whether the Item stands in the content of a message.
fn is_part(item: &Item) -> bool {
    match (item.native_on(&WIRE), &item.body) {
        (Some(native), _) => native.slot == CONTENT,
        (None, Body::Text(_) | Body::Media(_) | Body::Summary { .. }) => true,
        (
            None,
            Body::Thought(_)
            | Body::Call(_)
            | Body::Result(_)
            | Body::Hosted(_)
            | Body::Compaction
            | Body::Unknown,
        ) => false,
    }
}

fn envelope(item: &Item) -> Option<&Arc<throughline_core::Envelope>> {
    item.native_on(&WIRE)?.envelope.as_ref()
}

/// The element that these Items were cut from, if all of them are here and none has changed.
fn whole<'i>(group: &[&'i Item]) -> Option<(&'i Json, Side)> {
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

impl Writer<'_> {
    fn absorb(&mut self, name: &str, element: &Json) {
        if let Some(prefix) = &mut self.prefix {
            prefix.absorb(name, element);
        }
    }

    fn instructions(&mut self, draft: &mut Draft<'_>) {
        let items: Vec<&Item> = self.call.system.iter().collect();
        if let Some((json, _)) = whole(&items) {
            draft.fates.extend(items.iter().map(|item| draft::kept(item)));
            self.absorb("instructions", json);
            draft.put_as_it_came("instructions", json);
            return;
        }
        let mut texts = Vec::new();
        for item in &items {
            draft.warn_of_markers(item.native.as_ref());
            let (Body::Text(text) | Body::Summary { text, .. }) = &item.body else {
                draft.fates.push(draft::elided(item, Why::NotOnThisWire));
                continue;
            };
            texts.push(&**text);
            let how = if items.len() > 1 { How::Merged } else { How::OtherWire };
            let is_new = items.len() == 1 && item.native.is_none();
            draft.fates.push(if is_new {
                draft::kept(item)
            } else {
                draft::reshaped(item, how, Why::NotOnThisWire)
            });
        }
        if !texts.is_empty() {
            let instructions = json::string(&texts.join("\n\n"));
            self.absorb("instructions", &instructions);
            draft.put("instructions", instructions);
        } else if draft.was("instructions").is_some_and(|was| was != Json::null()) {
            draft.remove("instructions");
        }
    }

    fn tools(&mut self, draft: &mut Draft<'_>) {
        let tools = self.call.tools.iter().filter_map(|tool| match tool.native_on(&WIRE) {
            Some(native) if !(tool.hosted && draft.has_moved()) => Some(native.json.clone()),
            Some(_) | None => crossing::tool(draft, tool, |_| function(tool)),
        });
        let tools: Vec<Json> = tools.collect();
        if draft.was("tools").is_some_and(|was| was != Json::null()) || !tools.is_empty() {
            draft.put_elements("tools", &tools);
        }
        for tool in &tools {
            self.absorb("tool", tool);
        }
    }

    fn input(&mut self, draft: &mut Draft<'_>) -> Vec<Json> {
        let covered = self.covered();
        let (covered, said) = self.call.items.split_at(covered);
        draft.fates.extend(covered.iter().map(|item| draft::elided(item, Why::Covered)));
        let call = self.call;
        let said = draft.settle(said, |item| gate::is_said_aside(call, item, &WIRE));
        let groups = groups(said);
        let mut elements = Vec::with_capacity(groups.len());
        for (at, group) in groups.iter().enumerate() {
            let prefix = self.prefix.as_ref().map(Prefix::digest);
            let element = match group.as_slice() {
                [item] if !is_part(item) => {
                    let next = groups.get(at + 1).map(Vec::as_slice);
                    let (element, fate) = self.single(draft, item, next, prefix.as_ref());
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
                self.absorb("input", &element);
                elements.push(element);
            }
        }
        elements
    }

    /// How many Items the answer that the Call goes on from stands for: those up to its own last one. The provider has
    /// them, and would read them twice.
    fn covered(&self) -> usize {
        let Some(resumed) = self.resumes else { return 0 };
        let last = self.call.items.iter().rposition(|item| is_of(item, resumed));
        last.map_or(0, |last| last + 1)
    }

    /// Why what this Item's author stored cannot be found at the target.
    fn stranger(&self, item: &Item) -> Option<Why> {
        stranger(item, &self.call.target)
    }

    /// Whether an Item's ids must stay behind: nobody there knows them, or what they pair with is gone.
    fn drops_ids(&self, item: &Item) -> bool {
        let has_id = item.native_on(&WIRE).is_some_and(|native| native.id.is_some());
        let is_orphan = self.is_orphaned && self.storage == Storage::Stored;
        has_id && item.role == Role::Assistant && (self.stranger(item).is_some() || is_orphan)
    }

    /// One element that is one Item, and what became of it.
    fn single(
        &mut self,
        draft: &mut Draft<'_>,
        item: &Item,
        next: Option<&[&Item]>,
        prefix: Option<&Digest>,
    ) -> (Option<Json>, Fate) {
        if let Some(native) = item.native_on(&WIRE) {
            return self.native(draft, item, native, next, prefix);
        }
        draft.warn_of_markers(item.native.as_ref());
        let seals_why = gate::why_left(item, &self.call.target);
        let said = |element: Json| (Some(element), crossing::said(item, seals_why));
        match &item.body {
            Body::Thought(thought) if !thought.whole => (None, draft::elided(item, Why::Cut)),
            Body::Thought(_) if item.origin.is_some() => (None, draft::elided(item, seals_why)),
            Body::Thought(thought) => {
                let bare = |text: &str| message::bare(&json::string(text));
                crossing::thought(draft, self.call, (item, thought), &WIRE, bare)
            }
            Body::Call(call) => said(self.call_element(call)),
            Body::Result(result) => said(self.result(draft, result)),
            // Texts and media are parts of messages.
            Body::Text(_)
            | Body::Media(_)
            | Body::Summary { .. }
            | Body::Hosted(_)
            | Body::Compaction
            | Body::Unknown => (None, draft::elided(item, seals_why)),
        }
    }

    fn call_element(&mut self, call: &ToolCall) -> Json {
        let id = self.ids.call(&call.id);
        self.sent.insert(Arc::clone(&id));
        self.renamed.insert(call.id.clone());
        if call.custom {
            self.custom.insert(call.id.clone());
        }
        let (kind, key) = call_words(call);
        json::object(|o| {
            o.string("type", kind).string("call_id", &id);
            o.string("name", &call.name).string(key, &arguments(call));
        })
    }
}

fn function(tool: &Tool) -> Json {
    json::object(|o| {
        o.string("type", "function").string("name", &tool.name);
        o.maybe_string("description", tool.description.as_deref());
        match &tool.schema {
            Some(schema) => o.raw("parameters", schema),
            None => o.object("parameters", |o| {
                o.string("type", "object").object("properties", |_| {});
            }),
        };
        // Unsaid it would be strict, which refuses most schemas that were not written for it.
        o.bool("strict", false);
    })
}

/// The kind of a call, and the member that holds its arguments.
pub(super) fn call_words(call: &ToolCall) -> (&'static str, &'static str) {
    let is_text = call.args.bytes().first() == Some(&b'"');
    if call.custom && is_text {
        ("custom_tool_call", "input")
    } else {
        ("function_call", "arguments")
    }
}

/// The arguments of a call as text. A string is free text, or what a model wrote that is no JSON: it is said as it is.
pub(super) fn arguments(call: &ToolCall) -> Cow<'_, str> {
    let text = call.args.tree().root().text().map(Cow::into_owned);
    text.map_or(Cow::Borrowed(call.args.as_str()), Cow::Owned)
}

/// An element without these members.
fn without(element: &Json, keys: &[&'static str]) -> Json {
    let changes: Vec<_> = keys.iter().map(|key| (Cow::Borrowed(*key), None)).collect();
    draft::edited(Some(element), &changes)
}
