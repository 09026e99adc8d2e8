//! Calls and Replies, written.

use std::collections::{HashMap, HashSet};

use throughline_core::{
    Body, Call, CallId, Did, Digest, Encoded, Envelope, Fate, How, Item, Json, Name, Native,
    Received, Role, Side, Target, Tool, Warning, Why, Wire, json,
};

use crate::calls::OutgoingIds;
use crate::chat::encode::message::Message;
use crate::chat::{contract, slot, wire};
use crate::crossing;
use crate::draft::{self, Draft};
use crate::gate::{self, CallersThought};
use crate::group::{Group, groups};
use crate::prefix::Prefix;

mod calls;
pub(super) mod custom;
mod fit;
mod media;
pub(super) mod message;
mod payload;
mod reasoning;
pub(super) mod reply;
mod settings;

const WIRE: Wire = Wire::OPENAI_CHAT;

/// Who says a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaker {
    System,
    Developer,
    User,
    Assistant,
    Tool,
}

impl Speaker {
    fn role(self) -> &'static str {
        match self {
            Speaker::System => "system",
            Speaker::Developer => "developer",
            Speaker::User => "user",
            Speaker::Assistant => "assistant",
            Speaker::Tool => "tool",
        }
    }
}

/// Writes a Call.
pub(super) fn encode(call: &Call) -> Encoded {
    let Some(source) = call.source_on(&WIRE).filter(|source| has_moved(call, source)) else {
        return write(call, Vec::new());
    };
    // The request that it was read from went to another endpoint, whose settings and path are not this one's.
    let mut moved = call.clone();
    moved.source = None;
    let mut warnings = Vec::new();
    moved.tools.retain(|tool| {
        let is_hosted = tool.hosted && tool.native.as_ref().is_some_and(|n| n.wire == WIRE);
        if is_hosted {
            let message = format!("`{}` is run by another provider; it was left out", tool.name);
            warnings.push(Warning::new("tools", message));
        }
        !is_hosted
    });
    moved.extras.retain(|extra| {
        let is_taken = extra.wire.as_ref() != Some(&WIRE)
            || contract::takes_extra(&source.target, &call.target, &extra.key);
        if !is_taken {
            let message = "this endpoint is not known to take it; it was left out";
            warnings.push(Warning::new(Name::clone(&extra.key), message));
        }
        is_taken
    });
    write(&moved, warnings)
}

/// Whether the Call was read from a request to another endpoint, or in another shape.
fn has_moved(call: &Call, source: &Received) -> bool {
    Draft::new(call, WIRE).has_moved()
        || wire::is_native_path(&source.request.path) && !wire::speaks_native(&call.target)
}

fn write(call: &Call, warnings: Vec<Warning>) -> Encoded {
    let mut draft = Draft::new(call, WIRE);
    draft.warnings = warnings;
    let model = call.target.model();
    if draft.was("model").is_none_or(|was| !was.tree().root().is(model)) {
        draft.put("model", json::string(model));
    }
    let is_native = wire::speaks_native(&call.target);
    let is_home = draft.source().is_some();
    let mut writer = Writer {
        call,
        prefix: call.target.profile.bound.prefix.then(Prefix::new),
        ids: OutgoingIds::for_target(&call.target),
        names: HashMap::new(),
        renamed: HashSet::new(),
        is_native,
        is_home,
    };
    let tools = writer.tools(&mut draft);
    let messages = writer.messages(&mut draft);
    draft.put_elements("messages", &messages);
    if draft.was("tools").is_some() || !tools.is_empty() {
        draft.put_elements("tools", &tools);
    }
    settings::put(&mut draft, call, &tools);
    draft.put_extras();
    draft.put_provider_extras();
    let prefix = writer.prefix.map(|prefix| prefix.digest());
    draft.finish(path(&call.target), &[], prefix)
}

/// Where requests go: Ollama's native API has its own place.
pub(super) fn path(target: &Target) -> &'static str {
    if wire::speaks_native(target) { "/chat" } else { "/chat/completions" }
}

/// Whether the endpoint that is asked made the Item.
fn is_own(call: &Call, item: &Item) -> bool {
    let to = &call.target.origin;
    item.origin
        .as_ref()
        .is_some_and(|origin| origin.provider == to.provider && origin.endpoint == to.endpoint)
}

struct Writer<'c> {
    call: &'c Call,
    prefix: Option<Prefix>,
    ids: OutgoingIds,
    /// The tools that were called: Ollama's native API has answers by tool name.
    names: HashMap<CallId, Name>,
    /// The calls that go out under another id than they had on this wire.
    renamed: HashSet<CallId>,
    is_native: bool,
    /// Whether the request that the Call was read from went to this endpoint.
    is_home: bool,
}

impl<'c> Writer<'c> {
    /// Whether the endpoint refuses what it does not list, and nothing was written with it in mind.
    fn is_strict(&self) -> bool {
        !self.is_home && contract::is_strict(&self.call.target)
    }

    /// Whether tools may take a text of any form.
    fn takes_custom(&self) -> bool {
        !self.is_native && (self.is_home || contract::takes_custom_tools(&self.call.target))
    }

    fn absorb(&mut self, name: &str, element: &Json) {
        if let Some(prefix) = &mut self.prefix {
            prefix.absorb(name, element);
        }
    }

    fn tools(&mut self, draft: &mut Draft<'_>) -> Vec<Json> {
        let tools = self.call.tools.iter().filter_map(|tool| {
            let custom = custom::declared(tool);
            let is_taken = custom.is_none() || self.takes_custom();
            match tool.native_on(&WIRE) {
                Some(native) if is_taken => Some(self.unmarked(draft, &native.json)),
                Some(_) | None => crossing::tool(draft, tool, |draft| match custom {
                    Some(custom) if is_taken => custom.json(tool),
                    Some(custom) => custom.as_function(draft, tool),
                    None => function(tool),
                }),
            }
        });
        let tools: Vec<Json> = tools.collect();
        for tool in &tools {
            self.absorb("tool", tool);
        }
        tools
    }

    fn messages(&mut self, draft: &mut Draft<'_>) -> Vec<Json> {
        let call = self.call;
        let mut messages = Vec::new();
        let settled = draft.settle(&call.items, |item| gate::is_said_aside(call, item, &WIRE));
        let items = call.system.iter().chain(settled);
        for group in groups(items, &WIRE, |item| speaker(call, item)) {
            for message in self.message(draft, &group) {
                self.absorb("message", &message);
                messages.push(message);
            }
        }
        messages
    }

    fn message(&mut self, draft: &mut Draft<'_>, group: &Group<'c, Speaker>) -> Vec<Json> {
        let prefix = self.prefix.as_ref().map(Prefix::digest);
        if let Some(envelope) = draft::intact_envelope(&group.items, &WIRE)
            && group.items.iter().all(|item| self.goes_as_it_is(item, prefix.as_ref()))
            && self.is_listed(envelope)
        {
            for item in &group.items {
                self.note_call(item);
                draft.fates.push(draft::kept(item));
            }
            return vec![envelope.json.clone()];
        }
        let mut message = Message::default();
        let mut answers = Vec::new();
        let first_fate = draft.fates.len();
        for item in &group.items {
            draft.warn_of_markers(item.native.as_ref());
            let fate = match &item.body {
                Body::Result(result) => {
                    answers.push(self.result(draft, item, result));
                    said(self.call, item)
                }
                Body::Text(_)
                | Body::Media(_)
                | Body::Thought(_)
                | Body::Call(_)
                | Body::Hosted(_)
                | Body::Compaction
                | Body::Summary { .. }
                | Body::Unknown => {
                    self.add(draft, group.speaker, item, prefix.as_ref(), &mut message)
                }
            };
            draft.fates.push(fate);
        }
        if group.speaker == Speaker::Assistant {
            let fates = draft.fates.get_mut(first_fate..).unwrap_or_default();
            self.stand_in(&group.items, fates, &mut message);
        }
        if message.is_empty() {
            return answers;
        }
        let envelope = self.envelope(draft, &group.items, &mut message);
        let mut members = message.members(self.is_native);
        let is_misaddressed =
            group.speaker == Speaker::Developer && self.is_misaddressed(Role::Developer);
        let role = if is_misaddressed { Speaker::System } else { group.speaker }.role();
        answers.push(match envelope {
            Some(envelope) => {
                if is_misaddressed {
                    members.push(("role".into(), Some(json::string(role))));
                }
                message::edited(&envelope.json, members)
            }
            None => message::fresh(role, &members),
        });
        answers
    }

    /// The message that a group was cut from, if that can be edited.
    fn envelope<'i>(
        &self,
        draft: &mut Draft<'_>,
        items: &[&'i Item],
        message: &mut Message,
    ) -> Option<&'i Envelope> {
        let item = *items.first()?;
        let native = item.native_on(&WIRE).filter(|native| native.side == Side::Request)?;
        let envelope = native.envelope.as_deref()?;
        if item.origin.is_none() && !self.is_strict() || is_own(self.call, item) {
            return Some(envelope);
        }
        let tree = envelope.json.tree();
        for (key, value) in tree.root().members().filter(|(_, value)| !value.is_null()) {
            let key = key.text().unwrap_or_default();
            if &*key == "name" {
                message.add("name", value.json(), "");
            } else if !slot::is_known(&key) {
                let message = "only the endpoint that it came from knows it; it was left out";
                draft.warn(format!("messages.{key}"), message);
            }
        }
        None
    }

    fn note_call(&mut self, item: &Item) {
        if let Body::Call(call) = &item.body {
            self.names.insert(call.id.clone(), Name::clone(&call.name));
            if let Some(wire_id) = call.wire_id.as_ref().filter(|id| !id.is_empty()) {
                self.ids.native(&call.id, wire_id);
            }
        }
    }

    /// Adds an Item to its message, and says what became of it.
    fn add(
        &mut self,
        draft: &mut Draft<'_>,
        speaker: Speaker,
        item: &Item,
        prefix: Option<&Digest>,
        message: &mut Message,
    ) -> Fate {
        let seals = gate::seals(item, &self.call.target, prefix);
        let refusal = gate::refusal(&seals);
        if let Some(native) = item.native_on(&WIRE) {
            let why = match &item.body {
                Body::Thought(thought) => self.why_not(item, native, thought).or(refusal),
                Body::Hosted(_) | Body::Compaction | Body::Unknown
                    if item.origin.is_some() && !is_own(self.call, item) =>
                {
                    Some(Why::Foreign)
                }
                Body::Text(_)
                | Body::Media(_)
                | Body::Call(_)
                | Body::Result(_)
                | Body::Hosted(_)
                | Body::Compaction
                | Body::Summary { .. }
                | Body::Unknown => refusal,
            };
            // A message that says nothing has nothing to add to another.
            let why = why.or(native.slot.is_empty().then_some(Why::NotOnThisWire));
            // Another endpoint's refusal is what its model said; few know the member.
            let is_others = native.slot == slot::REFUSAL && !is_own(self.call, item);
            match (&item.body, why) {
                (_, None) if self.fits(item) && !is_others => {
                    self.add_native(draft, item, native, message);
                    return Fate { item: item.id.clone(), visible: Did::Kept, seals };
                }
                // What can be said without its seals is said.
                (Body::Text(_) | Body::Call(_) | Body::Media(_), _) => {}
                (_, why) => return draft::elided(item, why.unwrap_or(Why::NotOnThisWire)),
            }
        }
        let fate = said(self.call, item);
        let left = |why| draft::elided(item, why);
        match &item.body {
            Body::Text(text) | Body::Summary { text, .. } if text.is_empty() => {
                left(Why::NotOnThisWire)
            }
            Body::Text(text) | Body::Summary { text, .. } => {
                message.add_text(text);
                fate
            }
            Body::Media(media) => {
                let is_taken = speaker != Speaker::Assistant
                    && message.add_media(media, &self.call.target, self.is_native);
                if is_taken {
                    return fate;
                }
                draft.warn("media", "a kind of media that this wire cannot carry was left out");
                left(Why::NotOnThisWire)
            }
            Body::Call(call) => {
                let call = self.call_json(item, call, None);
                message.add_call(call);
                fate
            }
            Body::Thought(thought) if item.origin.is_none() => {
                let (way, fate) = gate::callers_thought(draft, self.call, item, thought, &WIRE);
                match way {
                    CallersThought::Typed(payload) => {
                        let channel = self.call.target.provider.dialect.channel;
                        if !payload::add(message, &payload, channel) {
                            return left(Why::NotOnThisWire);
                        }
                    }
                    CallersThought::Text(text) => message.add_text(&text),
                    CallersThought::Apart => {}
                }
                fate
            }
            Body::Thought(_)
            | Body::Result(_)
            | Body::Hosted(_)
            | Body::Compaction
            | Body::Unknown => left(gate::why_left(item, &self.call.target)),
        }
    }

    fn add_native(
        &mut self,
        draft: &mut Draft<'_>,
        item: &Item,
        native: &Native,
        message: &mut Message,
    ) {
        let part = match native.side {
            Side::Request => native.json.clone(),
            Side::Response => wire::project(&native.slot, &native.json),
        };
        let part = match &item.body {
            Body::Call(call) if native.slot.starts_with(slot::CALLS) => {
                self.call_json(item, call, Some(&part))
            }
            Body::Text(_)
            | Body::Media(_)
            | Body::Thought(_)
            | Body::Call(_)
            | Body::Result(_)
            | Body::Hosted(_)
            | Body::Compaction
            | Body::Summary { .. }
            | Body::Unknown => self.unmarked(draft, &part),
        };
        let slot = self.taken(&native.slot, native.side);
        message.add(&slot, part, item.visible().unwrap_or_default());
    }

    /// Puts the stand-in where reasoning is demanded and there is none. It depends on this message alone, so it is
    /// the same in every later request.
    fn stand_in(&self, items: &[&Item], fates: &mut [Fate], message: &mut Message) {
        let Some(field) = self.field() else { return };
        let is_owed = message.has_calls() && !message.has_field(field);
        if !is_owed || !contract::demands_reasoning(&self.call.target) {
            return;
        }
        let stand_in = self.call.target.provider.dialect.stand_in.as_deref().unwrap_or_default();
        message.add(field, json::string(stand_in), stand_in);
        for (item, fate) in items.iter().zip(fates) {
            let is_reasoning = matches!(item.body, Body::Thought(_)) && item.origin.is_some();
            if is_reasoning && matches!(fate.visible, Did::Elided(_)) {
                fate.visible = Did::Reshaped(How::StandIn);
            }
        }
    }
}

fn function(tool: &Tool) -> Json {
    json::object(|o| {
        o.string("type", "function").object("function", |o| {
            o.string("name", &tool.name);
            o.maybe_string("description", tool.description.as_deref());
            match &tool.schema {
                Some(schema) => o.raw("parameters", schema),
                None => o.object("parameters", |o| {
                    o.string("type", "object").object("properties", |_| {});
                }),
            };
        });
    })
}

/// The Fate of an Item that was said from what we know of it: what the wire said, and its seals, stay behind.
fn said(call: &Call, item: &Item) -> Fate {
    let Some(native) = &item.native else { return draft::kept(item) };
    if native.wire != WIRE {
        return draft::reshaped(item, How::OtherWire, gate::why_left(item, &call.target));
    }
    if item.seals.is_empty() {
        return draft::kept(item);
    }
    let left = |did| if did == Did::Kept { Did::Elided(Why::NotOnThisWire) } else { did };
    Fate {
        item: item.id.clone(),
        visible: Did::Reshaped(How::Flattened),
        seals: gate::seals(item, &call.target, None).into_iter().map(left).collect(),
    }
}

fn speaker(call: &Call, item: &Item) -> Speaker {
    match (item.role, &item.body) {
        (_, Body::Result(_)) => Speaker::Tool,
        (Role::Assistant, _) if !gate::is_said_aside(call, item, &WIRE) => Speaker::Assistant,
        (Role::System, _) => Speaker::System,
        (Role::Developer, _) => Speaker::Developer,
        (Role::Tool, _) if item.native_on(&WIRE).is_some() => Speaker::Tool,
        (Role::Assistant | Role::User | Role::Tool, _) => Speaker::User,
    }
}
