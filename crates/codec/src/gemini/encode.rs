//! Calls, written.

use std::borrow::Cow;
use std::collections::HashMap;

use throughline_core::{
    Body, Call, CallId, Did, Digest, Encoded, Fate, How, Item, Json, Media, Name, Native, Part,
    Role, Side, Target, ToolCall, ToolResult, Why, Wire, json,
};

use crate::calls::OutgoingIds;
use crate::crossing;
use crate::draft::{self, Draft};
use crate::gate;
use crate::gemini::encode::parts::{call_part, media_part, response, text_part};
use crate::gemini::wire;
use crate::gemini::{contract, path, tools};
use crate::group::{self, Group, groups};
use crate::prefix::Prefix;

pub(super) mod parts;
pub(super) mod reply;
mod settings;

const WIRE: Wire = Wire::GEMINI;

/// Who says a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaker {
    User,
    Model,
}

/// Writes a Call.
pub(super) fn encode(call: &Call) -> Encoded {
    let mut draft = Draft::new(call, WIRE);
    let mut writer = Writer {
        call,
        prefix: call.target.profile.bound.prefix.then(Prefix::new),
        ids: OutgoingIds::for_target(&call.target),
        sent: HashMap::new(),
    };
    let (system, conversation) = group::split_leading_system(&call.items, &WIRE);
    writer.system(&mut draft, system);
    writer.tools(&mut draft);
    let contents = writer.contents(&mut draft, conversation);
    draft.put_elements("contents", &contents);
    draft.put_extras();
    settings::put(&mut draft, call);
    leave_what_is_kept_elsewhere(&mut draft);
    draft.put_provider_extras();
    let at_home = draft.source().filter(|_| !draft.has_moved());
    let source = at_home.map(|source| Name::clone(&source.request.path));
    let fresh = path::fresh(&call.target, call.stream);
    let prefix = writer.prefix.map(|prefix| prefix.digest());
    let mut encoded = draft.finish(&fresh, &[], prefix);
    if let Some(known) = source.as_deref().and_then(path::Path::parse) {
        let path = known.towards(&call.target, call.stream);
        encoded.request.path = Name::from(path);
    }
    encoded
}

/// What one endpoint keeps for its callers cannot be found at another.
fn leave_what_is_kept_elsewhere(draft: &mut Draft<'_>) {
    let key = spelling(draft, ["cachedContent", "cached_content"]);
    if draft.has_moved() && draft.was(key).is_some_and(|was| was != Json::null()) {
        draft.warn(key, "only the endpoint that keeps it knows it; it was left out");
        draft.remove(key);
    }
}

/// The spelling of a member that the source uses, or else the wire's own.
fn spelling(draft: &Draft<'_>, [camel, snake]: [&'static str; 2]) -> &'static str {
    let has = |key: &str| {
        draft.source().is_some_and(|s| s.members.iter().any(|(name, _)| **name == *key))
    };
    if has(snake) && !has(camel) { snake } else { camel }
}

/// How a call went out, for its answer to match.
struct Sent {
    name: Name,
    id: Option<Name>,
    /// How many calls went out before it.
    turn: usize,
    /// Whether it went out under an id of ours.
    is_renamed: bool,
}

struct Writer<'c> {
    call: &'c Call,
    prefix: Option<Prefix>,
    ids: OutgoingIds,
    sent: HashMap<CallId, Sent>,
}

impl<'c> Writer<'c> {
    fn absorb(&mut self, name: &str, element: &Json) {
        if let Some(prefix) = &mut self.prefix {
            prefix.absorb(name, element);
        }
    }

    fn system(&mut self, draft: &mut Draft<'_>, leading: &'c [Item]) {
        let key = spelling(draft, ["systemInstruction", "system_instruction"]);
        let items: Vec<&Item> = self.call.system.iter().chain(leading).collect();
        if let Some(envelope) = self.as_it_came(&items, None) {
            draft.fates.extend(items.iter().map(|item| draft::kept(item)));
            self.absorb("system", &envelope);
            draft.put_as_it_came(key, &envelope);
            return;
        }
        let mut parts = Vec::with_capacity(items.len());
        for item in &items {
            let (written, fate) = self.part(draft, item, None, None);
            parts.extend(written);
            draft.fates.push(fate);
        }
        if parts.is_empty() {
            if draft.was(key).is_some() {
                draft.remove(key);
            }
            return;
        }
        let system = in_envelope(&items, &json::array_of(&parts), None);
        self.absorb("system", &system);
        draft.put(key, system);
    }

    fn tools(&mut self, draft: &mut Draft<'_>) {
        let elements = tools::write(draft, self.call);
        if draft.was("tools").is_some() || !elements.is_empty() {
            draft.put_elements("tools", &elements);
        }
        for element in &elements {
            self.absorb("tool", element);
        }
    }

    fn contents(&mut self, draft: &mut Draft<'_>, items: &'c [Item]) -> Vec<Json> {
        let call = self.call;
        let mut contents = Vec::new();
        let items = draft.settle(items, |item| gate::is_said_aside(call, item, &WIRE));
        for group in groups(items, &WIRE, |item| speaker(call, item)) {
            let content = self.content(draft, &group);
            if let Some(content) = &content {
                self.absorb("content", content);
            }
            contents.extend(content);
        }
        contents
    }

    fn content(&mut self, draft: &mut Draft<'_>, group: &Group<'c, Speaker>) -> Option<Json> {
        let prefix = self.prefix.as_ref().map(Prefix::digest);
        if let Some(envelope) = self.as_it_came(&group.items, prefix.as_ref()) {
            for item in &group.items {
                self.note_native_call(item);
                draft.fates.push(draft::kept(item));
            }
            return Some(envelope);
        }
        let unsigned = self.unsigned_step(&group.items, prefix.as_ref());
        let (mut answers, mut others) = (Vec::new(), Vec::new());
        for item in &group.items {
            let stand_in =
                unsigned.filter(|(first, _)| std::ptr::eq(*first, *item)).map(|(_, word)| word);
            let (parts, fate) = self.part(draft, item, prefix.as_ref(), stand_in);
            let mut parts = parts.into_iter();
            if let Body::Result(result) = &item.body {
                let turn = self.sent.get(&result.call).map_or(usize::MAX, |sent| sent.turn);
                answers.extend(parts.next().map(|answer| (turn, answer)));
            }
            others.extend(parts);
            draft.fates.push(fate);
        }
        // Answers come first, in the order of their calls: they must follow them at once.
        answers.sort_by_key(|(turn, _)| *turn);
        let parts: Vec<Json> =
            answers.into_iter().map(|(_, answer)| answer).chain(others).collect();
        let role = match group.speaker {
            Speaker::User => "user",
            Speaker::Model => "model",
        };
        (!parts.is_empty()).then(|| in_envelope(&group.items, &json::array_of(&parts), Some(role)))
    }

    /// The content that these Items were cut from, if it can go out as it came.
    fn as_it_came(&self, items: &[&'c Item], prefix: Option<&Digest>) -> Option<Json> {
        let envelope = draft::intact_envelope(items, &WIRE)?;
        let target = &self.call.target;
        let passes = |item: &&Item| {
            gate::refusal(&gate::seals(item, target, prefix)).is_none()
                && !is_anothers_thought(item, target)
                && !is_anothers_file(&item.body, target)
                && self.new_id_of(item).is_none()
        };
        let is_as_it_was = items.iter().all(passes) && self.unsigned_step(items, prefix).is_none();
        is_as_it_was.then(|| envelope.json.clone())
    }

    /// The first call of a step, if it shows no signature where the model insists, and what it shows instead.
    fn unsigned_step(
        &self,
        items: &[&'c Item],
        prefix: Option<&Digest>,
    ) -> Option<(&'c Item, &'c str)> {
        let target = &self.call.target;
        let is_call =
            |item: &&Item| item.role == Role::Assistant && matches!(item.body, Body::Call(_));
        let first = items.iter().copied().find(is_call)?;
        let stand_in = contract::stand_in(target, first)?;
        let is_signed = first.native_on(&WIRE).is_some_and(|native| {
            let seals = gate::seals(first, target, prefix);
            let is_own = !seals.is_empty() && gate::refusal(&seals).is_none();
            is_own || wire::has_stand_in(native.json.tree().root())
        });
        (!is_signed).then_some((first, stand_in))
    }

    fn note_native_call(&mut self, item: &Item) {
        self.ids.note(item);
        if let Body::Call(call) = &item.body {
            self.note_sent(call, call.wire_id.clone(), false);
        }
    }

    fn note_sent(&mut self, call: &ToolCall, id: Option<Name>, is_renamed: bool) {
        let (name, turn) = (Name::clone(&call.name), self.sent.len());
        self.sent.insert(call.id.clone(), Sent { name, id, turn, is_renamed });
    }

    /// The parts of one Item, and what became of it.
    fn part(
        &mut self,
        draft: &mut Draft<'_>,
        item: &Item,
        prefix: Option<&Digest>,
        stand_in: Option<&str>,
    ) -> (Vec<Json>, Fate) {
        let target = &self.call.target;
        if is_anothers_file(&item.body, target) {
            draft.warn("media", "a file that another provider keeps was left out");
            return (Vec::new(), draft::elided(item, Why::Foreign));
        }
        if let Some(native) = item.native_on(&WIRE) {
            return self.native_part(item, native, prefix, stand_in);
        }
        draft.warn_of_markers(item.native.as_ref());
        let why = gate::why_left(item, target);
        let said = |parts: Vec<Json>| {
            let visible = match (stand_in, &item.native) {
                (Some(_), _) => Did::Reshaped(How::StandIn),
                (None, Some(_)) => Did::Reshaped(How::OtherWire),
                (None, None) => Did::Kept,
            };
            let seals = vec![Did::Elided(why); item.seals.len()];
            (parts, Fate { item: item.id.clone(), visible, seals })
        };
        let left = |why| (Vec::new(), draft::elided(item, why));
        match &item.body {
            Body::Text(text) | Body::Summary { text, .. } if text.is_empty() => {
                left(Why::NotOnThisWire)
            }
            Body::Text(text) | Body::Summary { text, .. } => said(vec![text_part(text)]),
            Body::Media(media) => match crossing::media(draft, media_part(media)) {
                Some(part) => said(vec![part]),
                None => left(Why::NotOnThisWire),
            },
            Body::Thought(_) if item.origin.is_some() => left(why),
            Body::Thought(thought) => {
                let thought = (item, thought);
                let (part, fate) = crossing::thought(draft, self.call, thought, &WIRE, text_part);
                (part.into_iter().collect(), fate)
            }
            Body::Call(call) => {
                let id = self.ids.call(&call.id);
                self.note_sent(call, Some(Name::clone(&id)), true);
                said(vec![call_part(call, &id, stand_in)])
            }
            Body::Result(result) => said(self.answer_parts(draft, result)),
            Body::Hosted(_) | Body::Compaction | Body::Unknown => left(why),
        }
    }

    /// A part that this wire said. Only a signature that opens for the target stays on it.
    fn native_part(
        &mut self,
        item: &Item,
        native: &Native,
        prefix: Option<&Digest>,
        stand_in: Option<&str>,
    ) -> (Vec<Json>, Fate) {
        let target = &self.call.target;
        let seals = gate::seals(item, target, prefix);
        let refusal = gate::refusal(&seals);
        let left = |why| (Vec::new(), draft::elided(item, why));
        if matches!(item.body, Body::Text(_)) && native.json.bytes().first() == Some(&b'"') {
            let text = json::object(|o| {
                o.raw("text", &native.json);
            });
            return (vec![text], draft::kept(item));
        }
        if native.envelope.as_ref().is_some_and(|envelope| envelope.json == native.json) {
            return left(Why::NotOnThisWire);
        }
        match (&item.body, refusal) {
            (Body::Thought(thought), _) if !thought.whole => return left(Why::Cut),
            // The provider cannot go on from a step of its own whose signature it cannot read.
            (Body::Thought(_) | Body::Hosted(_) | Body::Unknown, Some(why)) => return left(why),
            (Body::Thought(_), None) if is_anothers_thought(item, target) => {
                return left(Why::Foreign);
            }
            (Body::Thought(_), None) if seals.is_empty() && native.side == Side::Response => {
                return left(Why::Unsigned);
            }
            (Body::Text(text), None)
                if text.is_empty() && seals.is_empty() && native.side == Side::Response =>
            {
                return left(Why::NotOnThisWire);
            }
            (Body::Text(text), Some(why)) if text.is_empty() => return left(why),
            _ => {}
        }
        self.note_native_call(item);
        let part = match native.side {
            Side::Request => native.json.clone(),
            Side::Response => wire::project(&native.json),
        };
        let part = match self.new_id_of(item) {
            Some(id) => wire::answering(&part, id),
            None => part,
        };
        let part = match stand_in {
            Some(_) => wire::signed_with(&part, stand_in),
            None if refusal.is_some() => wire::signed_with(&part, None),
            None => part,
        };
        let visible = if stand_in.is_some() { Did::Reshaped(How::StandIn) } else { Did::Kept };
        let seals = match refusal {
            Some(why) => vec![Did::Elided(why); item.seals.len()],
            None => seals,
        };
        (vec![part], Fate { item: item.id.clone(), visible, seals })
    }

    /// The id under which the call went out that this Item answers, where the Item says another.
    fn new_id_of(&self, item: &Item) -> Option<&Name> {
        let Body::Result(result) = &item.body else { return None };
        let sent = self.sent.get(&result.call).filter(|sent| sent.is_renamed)?;
        sent.id.as_ref().filter(|id| result.wire_id.as_ref() != Some(*id))
    }

    /// A tool's answer, and behind it what it cannot hold itself.
    fn answer_parts(&self, draft: &mut Draft<'_>, result: &ToolResult) -> Vec<Json> {
        let sent = self.sent.get(&result.call);
        // An answer to no call that is here has the id that its call would have.
        let stray = self.ids.result(&result.call);
        let id = match sent {
            Some(sent) => sent.id.as_ref(),
            None => result.wire_id.as_ref().map(|_| &stray),
        };
        let name = result.name.as_ref().or(sent.map(|sent| &sent.name)).unwrap_or(&stray);
        let (mut said, mut media) = (Vec::new(), Vec::new());
        for part in &result.parts {
            match part {
                Part::Text(text) => said.push(json::string(text)),
                Part::Value(value) => said.push(value.clone()),
                Part::Media(Media::Remote { owner: Some(owner), .. })
                    if owner.provider != self.call.target.origin.provider =>
                {
                    draft.warn("media", "a file that another provider keeps was left out");
                }
                Part::Media(shown) => media.extend(crossing::media(draft, media_part(shown))),
                Part::Unknown(wire, json) => media.extend(crossing::unknown(draft, wire, json)),
            }
        }
        let holds = contract::takes_media_in_answers(&self.call.target.profile);
        let answer = json::object(|o| {
            o.object("functionResponse", |o| {
                o.maybe_string("id", id.map(|id| &**id)).string("name", name);
                o.raw("response", &response(result.outcome, &said));
                if holds && !media.is_empty() {
                    o.raw("parts", &json::array_of(&media));
                }
            });
        });
        let beside = if holds { Vec::new() } else { media };
        std::iter::once(answer).chain(beside).collect()
    }
}

/// The parts in the content that they came from, or in a new one.
fn in_envelope(items: &[&Item], parts: &Json, role: Option<&str>) -> Json {
    let envelope = items.first().and_then(|item| item.native_on(&WIRE)?.envelope.as_ref());
    match envelope.filter(|envelope| envelope.json.bytes().first() == Some(&b'{')) {
        Some(envelope) => {
            let changes = [(Cow::Borrowed("parts"), Some(parts.clone()))];
            draft::edited(Some(&envelope.json), &changes)
        }
        None => json::object(|o| {
            o.maybe_string("role", role).raw("parts", parts);
        }),
    }
}

fn speaker(call: &Call, item: &Item) -> Speaker {
    match item.role {
        Role::Assistant if !gate::is_said_aside(call, item, &WIRE) => Speaker::Model,
        Role::Assistant | Role::System | Role::Developer | Role::User | Role::Tool => Speaker::User,
    }
}

fn is_anothers_thought(item: &Item, target: &Target) -> bool {
    matches!(item.body, Body::Thought(_)) && gate::why_left(item, target) == Why::Foreign
}

fn is_anothers_file(body: &Body, target: &Target) -> bool {
    matches!(body, Body::Media(Media::Remote { owner: Some(owner), .. })
        if owner.provider != target.origin.provider)
}
