//! Encodes Calls as requests.

use std::collections::HashMap;

use throughline_core::{
    Body, Call, CallId, Digest, Direction, Disposition, ElisionReason, EncodedRequest, Fate, Item,
    Media, NativePart, Part, ReshapeKind, Role, Target, ToolCall, ToolResult,
};
use throughline_json::{self as json, Json, Name};

use crate::call_ids::CallIdAllocator;
use crate::draft::{self, Draft};
use crate::gemini::encode::parts::{call_part, media_part, response, text_part};
use crate::gemini::reasoning_items::caller_part;
use crate::gemini::{WIRE, contract, path, tools, wire};
use crate::message_groups::{self, MessageGroup, groups};
use crate::prefix::{PrefixHasher, absorb};
use crate::{cross_wire, seal_policy};

pub(super) mod parts;
pub(super) mod reply;
mod settings;

pub(super) use self::reply::encode_reply;

pub(super) fn encode(call: &Call) -> EncodedRequest {
    let mut draft = Draft::new(call, WIRE);
    let mut writer = GeminiWriter {
        call,
        prefix: call.target.profile.bound.prefix.then(PrefixHasher::new),
        ids: CallIdAllocator::for_target(&call.target),
        sent: HashMap::new(),
    };
    let (system, conversation) = message_groups::split_leading_system(&call.items, &WIRE);
    writer.system(&mut draft, system);
    writer.tools(&mut draft);
    let contents = writer.contents(&mut draft, conversation);
    draft.put_elements("contents", &contents);
    draft.put_extras();
    settings::put_settings(&mut draft, call);
    drop_foreign_cached_content(&mut draft);
    draft.put_provider_extras();
    let at_home = draft.source().filter(|_| !draft.has_other_endpoint());
    let source = at_home.map(|source| Name::clone(&source.request.path));
    let fresh = path::default_path(&call.target, call.stream);
    let prefix = writer.prefix.map(|prefix| prefix.digest());
    let mut encoded = draft.finish(&fresh, &[], prefix);
    if let Some(known) = source.as_deref().and_then(path::GeminiPath::parse) {
        let path = known.for_target(&call.target, call.stream);
        encoded.request.path = Name::from(path);
    }
    encoded
}

/// Drops a reference to content that is cached at another endpoint.
fn drop_foreign_cached_content(draft: &mut Draft<'_>) {
    let key = source_spelling(draft, ["cachedContent", "cached_content"]);
    if draft.has_other_endpoint() && draft.source_value(key).is_some_and(|was| was != Json::null())
    {
        draft.warn(key, "only the endpoint that stores it can use it; it was left out");
        draft.remove(key);
    }
}

/// Returns the spelling of a member name that the source request uses; camelCase by default.
fn source_spelling(draft: &Draft<'_>, [camel, snake]: [&'static str; 2]) -> &'static str {
    let has = |key: &str| {
        draft.source().is_some_and(|s| s.members.iter().any(|(name, _)| **name == *key))
    };
    if has(snake) && !has(camel) { snake } else { camel }
}

/// The name and id that were sent for a call. The response to the call must use the same values.
struct SentCall {
    name: Name,
    id: Option<Name>,
    /// The number of calls sent before this call.
    turn: usize,
    /// Whether the call was sent with a generated id.
    is_renamed: bool,
}

struct GeminiWriter<'c> {
    call: &'c Call,
    prefix: Option<PrefixHasher>,
    ids: CallIdAllocator,
    sent: HashMap<CallId, SentCall>,
}

impl<'c> GeminiWriter<'c> {
    fn system(&mut self, draft: &mut Draft<'_>, leading: &'c [Item]) {
        let key = source_spelling(draft, ["systemInstruction", "system_instruction"]);
        let items: Vec<&Item> = self.call.system.iter().chain(leading).collect();
        if let Some(envelope) = self.verbatim_content(&items, None) {
            draft.fates.extend(items.iter().map(|item| draft::kept_fate(item)));
            absorb(&mut self.prefix, "system", [&envelope]);
            draft.put_if_changed(key, &envelope);
            return;
        }
        let mut parts = Vec::with_capacity(items.len());
        for item in &items {
            let (written, fate) = self.part(draft, item, None, None);
            parts.extend(written);
            draft.fates.push(fate);
        }
        if parts.is_empty() {
            if draft.source_value(key).is_some() {
                draft.remove(key);
            }
            return;
        }
        let system = in_envelope(&items, &json::array_of(&parts), None);
        absorb(&mut self.prefix, "system", [&system]);
        draft.put(key, system);
    }

    fn tools(&mut self, draft: &mut Draft<'_>) {
        let elements = tools::encode_tools(draft, self.call);
        draft.put_tools(&elements);
        absorb(&mut self.prefix, "tool", &elements);
    }

    fn contents(&mut self, draft: &mut Draft<'_>, items: &'c [Item]) -> Vec<Json> {
        let call = self.call;
        let mut contents = Vec::new();
        let items = draft.order_items(items, |item| seal_policy::is_caller_text(call, item, &WIRE));
        for group in groups(items, &WIRE, |item| seal_policy::speaker(call, item, &WIRE)) {
            let content = self.content(draft, &group);
            absorb(&mut self.prefix, "content", &content);
            contents.extend(content);
        }
        contents
    }

    fn content(&mut self, draft: &mut Draft<'_>, group: &MessageGroup<'c>) -> Option<Json> {
        let prefix = self.prefix.as_ref().map(PrefixHasher::digest);
        if let Some(envelope) = self.verbatim_content(&group.items, prefix.as_ref()) {
            for item in &group.items {
                self.record_native_call(item);
                draft.fates.push(draft::kept_fate(item));
            }
            return Some(envelope);
        }
        let unsigned = self.unsigned_step(&group.items, prefix.as_ref());
        let (mut answers, mut others) = (Vec::new(), Vec::new());
        for item in &group.items {
            let stand_in =
                unsigned.filter(|(first, _)| std::ptr::eq(*first, *item)).map(|(_, value)| value);
            let (parts, fate) = self.part(draft, item, prefix.as_ref(), stand_in);
            let mut parts = parts.into_iter();
            if let Body::Result(result) = &item.body {
                let turn = self.sent.get(&result.call).map_or(usize::MAX, |sent| sent.turn);
                answers.extend(parts.next().map(|answer| (turn, answer)));
            }
            others.extend(parts);
            draft.fates.push(fate);
        }
        // Function responses come first, in call order, because they must directly follow the
        // calls.
        answers.sort_by_key(|(turn, _)| *turn);
        let parts: Vec<Json> =
            answers.into_iter().map(|(_, answer)| answer).chain(others).collect();
        let role = if group.speaker == Role::Assistant { "model" } else { "user" };
        (!parts.is_empty()).then(|| in_envelope(&group.items, &json::array_of(&parts), Some(role)))
    }

    /// Returns the source `content` object that these Items were decoded from, if it can be sent
    /// unchanged.
    fn verbatim_content(&self, items: &[&'c Item], prefix: Option<&Digest>) -> Option<Json> {
        let envelope = draft::intact_envelope(items, &WIRE)?;
        let target = &self.call.target;
        let passes = |item: &&Item| {
            seal_policy::refusal(&seal_policy::seals(item, target, prefix)).is_none()
                && !is_foreign_thought(item, target)
                && !is_foreign_file(&item.body, target)
                && self.renamed_call_id(item).is_none()
        };
        let is_as_it_was = items.iter().all(passes) && self.unsigned_step(items, prefix).is_none();
        is_as_it_was.then(|| envelope.json.clone())
    }

    /// Returns the first call of a step and the stand-in to send with it, if the call lacks a
    /// required signature.
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
            let seals = seal_policy::seals(first, target, prefix);
            let is_own = !seals.is_empty() && seal_policy::refusal(&seals).is_none();
            is_own || wire::has_stand_in(native.json.tree().root())
        });
        (!is_signed).then_some((first, stand_in))
    }

    fn record_native_call(&mut self, item: &Item) {
        self.ids.record_item(item);
        if let Body::Call(call) = &item.body {
            self.record_sent(call, call.wire_id.clone(), false);
        }
    }

    fn record_sent(&mut self, call: &ToolCall, id: Option<Name>, is_renamed: bool) {
        let (name, turn) = (Name::clone(&call.name), self.sent.len());
        self.sent.insert(call.id.clone(), SentCall { name, id, turn, is_renamed });
    }

    /// Encodes one Item as zero or more parts and returns its Fate.
    fn part(
        &mut self,
        draft: &mut Draft<'_>,
        item: &Item,
        prefix: Option<&Digest>,
        stand_in: Option<&str>,
    ) -> (Vec<Json>, Fate) {
        let target = &self.call.target;
        if is_foreign_file(&item.body, target) {
            draft.warn("media", "a file stored by another provider was left out");
            return (Vec::new(), draft::elided_fate(item, ElisionReason::Foreign));
        }
        if let Some(native) = item.native_on(&WIRE) {
            return self.native_part(item, native, prefix, stand_in);
        }
        draft.warn_about_cache_markers(item.native.as_ref());
        let why = seal_policy::elision_reason(item, target);
        let sent = |parts: Vec<Json>| {
            let visible = match (stand_in, &item.native) {
                (Some(_), _) => Disposition::Reshaped(ReshapeKind::StandIn),
                (None, Some(_)) => Disposition::Reshaped(ReshapeKind::OtherWire),
                (None, None) => Disposition::Kept,
            };
            let seals = vec![Disposition::Elided(why); item.seals.len()];
            (parts, Fate { item: item.id.clone(), visible, seals })
        };
        let omitted = |why| (Vec::new(), draft::elided_fate(item, why));
        match &item.body {
            Body::Text(text) | Body::Summary { text, .. } if text.is_empty() => {
                omitted(ElisionReason::NotOnThisWire)
            }
            Body::Text(text) | Body::Summary { text, .. } => sent(vec![text_part(text)]),
            Body::Media(media) => match cross_wire::media(draft, media_part(media)) {
                Some(part) => sent(vec![part]),
                None => omitted(ElisionReason::NotOnThisWire),
            },
            Body::Thought(_) if item.origin.is_some() => omitted(why),
            Body::Thought(thought) => {
                let thought = (item, thought);
                let (part, fate) =
                    cross_wire::thought(draft, self.call, thought, &WIRE, caller_part, text_part);
                (part.into_iter().collect(), fate)
            }
            Body::Call(call) => {
                let id = self.ids.assign(&call.id);
                self.record_sent(call, Some(Name::clone(&id)), true);
                sent(vec![call_part(call, &id, stand_in)])
            }
            Body::Result(result) => sent(self.response_parts(draft, result)),
            Body::Hosted(_) | Body::Compaction => omitted(why),
            Body::Unknown => (Vec::new(), cross_wire::unsupported_fate(item, why)),
        }
    }

    /// Encodes a part that was decoded from a Gemini document. The signature is kept only if it may
    /// be sent to the target.
    fn native_part(
        &mut self,
        item: &Item,
        native: &NativePart,
        prefix: Option<&Digest>,
        stand_in: Option<&str>,
    ) -> (Vec<Json>, Fate) {
        let target = &self.call.target;
        let seals = seal_policy::seals(item, target, prefix);
        let refusal = seal_policy::refusal(&seals);
        let omitted = |why| (Vec::new(), draft::elided_fate(item, why));
        if matches!(item.body, Body::Text(_)) && native.json.bytes().first() == Some(&b'"') {
            let text = object! { "text": native.json };
            return (vec![text], draft::kept_fate(item));
        }
        if native.envelope.as_ref().is_some_and(|envelope| envelope.json == native.json) {
            return omitted(ElisionReason::NotOnThisWire);
        }
        let is_bare_reply = seals.is_empty() && native.side == Direction::Response;
        let why = match &item.body {
            Body::Thought(thought) if !thought.whole => Some(ElisionReason::Cut),
            // The provider cannot continue from one of its own steps if it cannot read the step's
            // signature.
            Body::Thought(_) | Body::Hosted(_) | Body::Unknown if refusal.is_some() => refusal,
            Body::Thought(_) if is_foreign_thought(item, target) => Some(ElisionReason::Foreign),
            Body::Thought(_) if is_bare_reply => Some(ElisionReason::Unsigned),
            Body::Text(text) if text.is_empty() => {
                refusal.or(is_bare_reply.then_some(ElisionReason::NotOnThisWire))
            }
            _ => None,
        };
        if let Some(why) = why {
            return omitted(why);
        }
        self.record_native_call(item);
        let mut part = match native.side {
            Direction::Request => native.json.clone(),
            Direction::Response => wire::to_request_part(&native.json),
        };
        if let Some(id) = self.renamed_call_id(item) {
            part = wire::with_response_id(&part, id);
        }
        if stand_in.is_some() || refusal.is_some() {
            part = wire::signed_with(&part, stand_in);
        }
        let reshaped = stand_in.map(|_| Disposition::Reshaped(ReshapeKind::StandIn));
        let visible = reshaped.unwrap_or(Disposition::Kept);
        let seals = refusal.map_or(seals, |why| vec![Disposition::Elided(why); item.seals.len()]);
        (vec![part], Fate { item: item.id.clone(), visible, seals })
    }

    /// Returns the id that was generated for the call this result answers, if the result has a
    /// different id.
    fn renamed_call_id(&self, item: &Item) -> Option<&Name> {
        let Body::Result(result) = &item.body else { return None };
        let sent = self.sent.get(&result.call).filter(|sent| sent.is_renamed)?;
        sent.id.as_ref().filter(|id| result.wire_id.as_ref() != Some(*id))
    }

    /// Encodes a tool result. Media that a function response cannot contain follow as separate
    /// parts.
    fn response_parts(&self, draft: &mut Draft<'_>, result: &ToolResult) -> Vec<Json> {
        let sent = self.sent.get(&result.call);
        // A result without a call gets the id that its call would have been sent with.
        let stray = self.ids.result_id(&result.call);
        let id = match sent {
            Some(sent) => sent.id.as_ref(),
            None => result.wire_id.as_ref().map(|_| &stray),
        };
        let name = result.name.as_ref().or(sent.map(|sent| &sent.name)).unwrap_or(&stray);
        let (mut values, mut media) = (Vec::new(), Vec::new());
        for part in &result.parts {
            match part {
                Part::Text(text) => values.push(json::string(text)),
                Part::Value(value) => values.push(value.clone()),
                Part::Media(Media::Remote { owner: Some(owner), .. })
                    if owner.provider != self.call.target.origin.provider =>
                {
                    draft.warn("media", "a file stored by another provider was left out");
                }
                Part::Media(shown) => media.extend(cross_wire::media(draft, media_part(shown))),
                Part::Unknown(wire, json) => {
                    media.extend(cross_wire::native_part_or_warn(draft, wire, json));
                }
            }
        }
        let holds = contract::supports_media_in_responses(&self.call.target.profile);
        let parts = (holds && !media.is_empty()).then(|| json::array_of(&media));
        let response = response(result.outcome, &values);
        let answer = object! {
            "functionResponse": { "id": id, "name": name, "response": response, "parts": parts },
        };
        let beside = if holds { Vec::new() } else { media };
        std::iter::once(answer).chain(beside).collect()
    }
}

/// Puts the parts into the `content` object that the first Item was decoded from, or into a new
/// `content` object.
fn in_envelope(items: &[&Item], parts: &Json, role: Option<&str>) -> Json {
    let envelope = items.first().and_then(|item| item.native_on(&WIRE)?.envelope.as_ref());
    match envelope.filter(|envelope| envelope.json.bytes().first() == Some(&b'{')) {
        Some(envelope) => draft::with_member(&envelope.json, "parts", parts.clone()),
        None => object! { "role": role, "parts": parts },
    }
}

fn is_foreign_thought(item: &Item, target: &Target) -> bool {
    matches!(item.body, Body::Thought(_))
        && seal_policy::elision_reason(item, target) == ElisionReason::Foreign
}

fn is_foreign_file(body: &Body, target: &Target) -> bool {
    matches!(body, Body::Media(Media::Remote { owner: Some(owner), .. })
        if owner.provider != target.origin.provider)
}
