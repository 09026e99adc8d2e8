//! Encodes Calls as requests; the submodules also encode Replies as whole responses.

use std::collections::{HashMap, HashSet};

use throughline_core::{
    Body, Call, CallId, Digest, Direction, Disposition, ElisionReason, EncodedRequest, Envelope,
    Fate, Item, NativePart, ReceivedRequest, ReshapeKind, Role, Target, Tool, Warning,
};
use throughline_json::{self as json, Json, Name};

use crate::call_ids::CallIdAllocator;
use crate::chat::encode::message::ChatMessageBuilder;
use crate::chat::{WIRE, contract, slot, wire};
use crate::cross_wire;
use crate::draft::{self, Draft};
use crate::message_groups::{MessageGroup, groups, role_name};
use crate::prefix::{PrefixHasher, absorb};
use crate::seal_policy::{self, CallerThought};

mod calls;
mod compatibility;
pub(super) mod custom;
mod media;
pub(super) mod message;
mod payload;
mod reasoning;
pub(super) mod reply;
mod settings;

pub(super) use self::reply::encode_reply;

pub(super) fn encode(call: &Call) -> EncodedRequest {
    let Some(source) = call.source_on(&WIRE).filter(|source| needs_rewrite(call, source)) else {
        return encode_draft(call, Vec::new());
    };
    // The source request went to another endpoint, so its settings and path do not apply here.
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
        let is_accepted = extra.wire.as_ref() != Some(&WIRE)
            || contract::accepts_extra(&source.target, &call.target, &extra.key);
        if !is_accepted {
            let message = "this endpoint is not known to accept this setting; it was omitted";
            warnings.push(Warning::new(Name::clone(&extra.key), message));
        }
        is_accepted
    });
    encode_draft(&moved, warnings)
}

/// Returns whether the request must be rebuilt: either the source was sent to another endpoint, or
/// the source is in Ollama's format and the target is not Ollama.
fn needs_rewrite(call: &Call, source: &ReceivedRequest) -> bool {
    Draft::new(call, WIRE).has_other_endpoint()
        || wire::is_ollama_path(&source.request.path) && !wire::uses_ollama_api(&call.target)
}

fn encode_draft(call: &Call, warnings: Vec<Warning>) -> EncodedRequest {
    let mut draft = Draft::new(call, WIRE);
    draft.warnings = warnings;
    draft.put_model();
    let is_native = wire::uses_ollama_api(&call.target);
    let is_home = draft.source().is_some();
    let mut writer = ChatWriter {
        call,
        prefix: call.target.profile.bound.prefix.then(PrefixHasher::new),
        ids: CallIdAllocator::for_target(&call.target),
        names: HashMap::new(),
        renamed: HashSet::new(),
        is_native,
        is_home,
    };
    let tools = writer.tools(&mut draft);
    let messages = writer.messages(&mut draft);
    draft.put_elements("messages", &messages);
    draft.put_tools(&tools);
    settings::put_settings(&mut draft, call, &tools);
    draft.put_extras();
    draft.put_provider_extras();
    let prefix = writer.prefix.map(|prefix| prefix.digest());
    draft.finish(path(&call.target), &[], prefix)
}

/// Returns the request path, which differs for Ollama's native API.
pub(super) fn path(target: &Target) -> &'static str {
    if wire::uses_ollama_api(target) { "/chat" } else { "/chat/completions" }
}

fn is_own(call: &Call, item: &Item) -> bool {
    let to = &call.target.origin;
    item.origin.as_ref().is_some_and(|origin| draft::is_same_endpoint(origin, to))
}

struct ChatWriter<'c> {
    call: &'c Call,
    prefix: Option<PrefixHasher>,
    ids: CallIdAllocator,
    /// The tool name of each call, because Ollama's native API matches results by tool name.
    names: HashMap<CallId, Name>,
    /// Calls whose id in the encoded request differs from the source.
    renamed: HashSet<CallId>,
    is_native: bool,
    /// Whether the Call's source request was sent to this endpoint.
    is_home: bool,
}

impl<'c> ChatWriter<'c> {
    /// Returns whether the endpoint rejects unlisted members and the source request was written for
    /// another endpoint.
    fn is_strict(&self) -> bool {
        !self.is_home && contract::is_strict(&self.call.target)
    }

    /// Returns whether the endpoint accepts custom tools, whose input is free text.
    fn takes_custom(&self) -> bool {
        !self.is_native && (self.is_home || contract::is_openai(&self.call.target))
    }

    fn tools(&mut self, draft: &mut Draft<'_>) -> Vec<Json> {
        let tools = self.call.tools.iter().filter_map(|tool| {
            let custom = custom::custom_declaration(tool);
            let is_accepted = custom.is_none() || self.takes_custom();
            match tool.native_on(&WIRE) {
                Some(native) if is_accepted => {
                    Some(self.without_cache_markers(draft, &native.json))
                }
                Some(_) | None => cross_wire::tool(draft, tool, |draft| match custom {
                    Some(custom) if is_accepted => custom.json(tool),
                    Some(_) => custom::as_function(draft, tool),
                    None => function(tool),
                }),
            }
        });
        let tools: Vec<Json> = tools.collect();
        absorb(&mut self.prefix, "tool", &tools);
        tools
    }

    fn messages(&mut self, draft: &mut Draft<'_>) -> Vec<Json> {
        let call = self.call;
        let mut messages = Vec::new();
        let settled =
            draft.order_items(&call.items, |item| seal_policy::is_caller_text(call, item, &WIRE));
        let items = call.system.iter().chain(settled);
        for group in groups(items, &WIRE, |item| speaker(call, item)) {
            for message in self.message(draft, &group) {
                absorb(&mut self.prefix, "message", [&message]);
                messages.push(message);
            }
        }
        messages
    }

    fn message(&mut self, draft: &mut Draft<'_>, group: &MessageGroup<'c>) -> Vec<Json> {
        let items = group.items.iter().copied();
        let prefix = self.prefix.as_ref().map(|prefix| prefix.digest_for(items));
        if let Some(envelope) = draft::intact_envelope(&group.items, &WIRE)
            && group.items.iter().all(|item| self.can_send_verbatim(item, prefix.as_ref()))
            && self.is_listed_message(&envelope.json)
        {
            for item in &group.items {
                self.record_call(item);
                draft.fates.push(draft::kept_fate(item));
            }
            return vec![envelope.json.clone()];
        }
        let mut message = ChatMessageBuilder::default();
        let mut answers = Vec::new();
        let first_fate = draft.fates.len();
        for item in &group.items {
            draft.warn_about_cache_markers(item.native.as_ref());
            let fate = if let Body::Result(result) = &item.body {
                answers.push(self.result(draft, item, result));
                rewritten_fate(self.call, item)
            } else {
                self.add(draft, group.speaker, item, prefix.as_ref(), &mut message)
            };
            draft.fates.push(fate);
        }
        if group.speaker == Role::Assistant {
            let fates = draft.fates.get_mut(first_fate..).unwrap_or_default();
            self.add_stand_in(&group.items, fates, &mut message);
        }
        if message.is_empty() {
            return answers;
        }
        let envelope = self.envelope(draft, &group.items, &mut message);
        let mut members = message.members(self.is_native);
        let is_misaddressed = self.lacks_role(group.speaker);
        let role = role_name(if is_misaddressed { Role::System } else { group.speaker });
        answers.push(match envelope {
            Some(envelope) => {
                if is_misaddressed {
                    members.push(("role".into(), Some(json::string(role))));
                }
                message::edit_message(&envelope.json, members)
            }
            None => message::new_message(role, &members),
        });
        answers
    }

    /// Returns the source message of `items` if that message can be reused with edits.
    fn envelope<'i>(
        &self,
        draft: &mut Draft<'_>,
        items: &[&'i Item],
        message: &mut ChatMessageBuilder,
    ) -> Option<&'i Envelope> {
        let item = *items.first()?;
        let native = item.native_on(&WIRE).filter(|native| native.side == Direction::Request)?;
        let envelope = native.envelope.as_deref()?;
        if item.origin.is_none() && !self.is_strict() || is_own(self.call, item) {
            return Some(envelope);
        }
        let tree = envelope.json.tree();
        for (key, value) in tree.root().members().filter(|(_, value)| !value.is_null()) {
            let key = key.text().unwrap_or_default();
            if &*key == "name" {
                message.add("name", value.json(), "");
            } else if !slot::is_known_member(&key) {
                let message = "only the original endpoint supports this field; it was omitted";
                draft.warn(format!("messages.{key}"), message);
            }
        }
        None
    }

    fn record_call(&mut self, item: &Item) {
        if let Body::Call(call) = &item.body {
            self.names.insert(call.id.clone(), Name::clone(&call.name));
            if let Some(wire_id) = call.wire_id.as_ref().filter(|id| !id.is_empty()) {
                self.ids.record_native(&call.id, wire_id);
            }
        }
    }

    /// Adds an Item to its message and returns its Fate.
    fn add(
        &mut self,
        draft: &mut Draft<'_>,
        speaker: Role,
        item: &Item,
        prefix: Option<&Digest>,
        message: &mut ChatMessageBuilder,
    ) -> Fate {
        use Body::{Compaction, Hosted, Result, Thought, Unknown};
        let seals = seal_policy::seals(item, &self.call.target, prefix);
        let refusal = seal_policy::refusal(&seals);
        if let Some(native) = item.native_on(&WIRE) {
            let is_opaque = matches!(item.body, Body::Hosted(_) | Body::Compaction | Body::Unknown);
            let why = if let Body::Thought(thought) = &item.body {
                self.elision_reason(item, native, thought).or(refusal)
            } else if is_opaque && item.origin.is_some() && !is_own(self.call, item) {
                Some(ElisionReason::Foreign)
            } else {
                refusal
            };
            // An empty message has nothing to add to another message.
            let why = why.or(native.slot.is_empty().then_some(ElisionReason::NotOnThisWire));
            // Few endpoints accept the `refusal` member, so a refusal from another endpoint becomes
            // text.
            let is_others = native.slot == slot::REFUSAL && !is_own(self.call, item);
            match (&item.body, why) {
                (_, None) if self.fits(item) && !is_others => {
                    self.add_native(draft, item, native, message);
                    return Fate { item: item.id.clone(), visible: Disposition::Kept, seals };
                }
                // Rewrite these Items below, without their Seals.
                (Body::Text(_) | Body::Call(_) | Body::Media(_), _) => {}
                (_, why) => {
                    return draft::elided_fate(item, why.unwrap_or(ElisionReason::NotOnThisWire));
                }
            }
        }
        let fate = rewritten_fate(self.call, item);
        let elided = |why| draft::elided_fate(item, why);
        match &item.body {
            Body::Text(text) | Body::Summary { text, .. } if text.is_empty() => {
                elided(ElisionReason::NotOnThisWire)
            }
            Body::Text(text) | Body::Summary { text, .. } => {
                message.add_text(text);
                fate
            }
            Body::Media(media) => {
                let is_accepted = speaker != Role::Assistant
                    && message.add_media(media, &self.call.target, self.is_native);
                if is_accepted {
                    return fate;
                }
                draft.warn("media", "this wire cannot carry this kind of media; it was left out");
                elided(ElisionReason::NotOnThisWire)
            }
            Body::Call(call) => {
                message.add(slot::CALLS, self.call_json(item, call, None), "");
                fate
            }
            Body::Thought(thought) if item.origin.is_none() => {
                let (way, fate) =
                    seal_policy::apply_replay_policy(draft, self.call, item, thought, &WIRE);
                match way {
                    CallerThought::Typed(payload) => {
                        let channel = self.call.target.provider.dialect.channel;
                        if !payload::add(message, &payload, channel) {
                            return elided(ElisionReason::NotOnThisWire);
                        }
                    }
                    CallerThought::Text(text) => message.add_text(&text),
                    CallerThought::Apart => {}
                }
                fate
            }
            Unknown => {
                let why = seal_policy::elision_reason(item, &self.call.target);
                cross_wire::unsupported_fate(item, why)
            }
            Thought(_) | Result(_) | Hosted(_) | Compaction => {
                elided(seal_policy::elision_reason(item, &self.call.target))
            }
        }
    }

    fn add_native(
        &mut self,
        draft: &mut Draft<'_>,
        item: &Item,
        native: &NativePart,
        message: &mut ChatMessageBuilder,
    ) {
        let part = match native.side {
            Direction::Request => native.json.clone(),
            Direction::Response => wire::to_request_part(&native.slot, &native.json),
        };
        let part = match item.call().filter(|_| native.slot.starts_with(slot::CALLS)) {
            Some(call) => self.call_json(item, call, Some(&part)),
            None => self.without_cache_markers(draft, &part),
        };
        let slot = self.slot_to_send(&native.slot, native.side);
        message.add(slot, part, item.visible().unwrap_or_default());
    }

    /// Adds placeholder reasoning if the endpoint requires reasoning and the message has none. The
    /// result depends only on this message, so every later request repeats the same text.
    fn add_stand_in(&self, items: &[&Item], fates: &mut [Fate], message: &mut ChatMessageBuilder) {
        let Some(field) = self.field() else { return };
        let is_owed = message.has_calls() && !message.has_field(field);
        if !is_owed || !contract::requires_reasoning(&self.call.target) {
            return;
        }
        let stand_in = self.call.target.provider.dialect.stand_in.as_deref().unwrap_or_default();
        message.add(field, json::string(stand_in), stand_in);
        for (item, fate) in items.iter().zip(fates) {
            let is_reasoning = matches!(item.body, Body::Thought(_)) && item.origin.is_some();
            if is_reasoning && matches!(fate.visible, Disposition::Elided(_)) {
                fate.visible = Disposition::Reshaped(ReshapeKind::StandIn);
            }
        }
    }
}

fn function(tool: &Tool) -> Json {
    let schema = tool.schema.clone();
    let schema = schema.unwrap_or_else(|| object! { "type": "object", "properties": {} });
    object! {
        "type": "function",
        "function": { "name": tool.name, "description": tool.description, "parameters": schema },
    }
}

/// Returns the Fate of an Item that was rebuilt from its neutral form, without its wire JSON and
/// Seals.
fn rewritten_fate(call: &Call, item: &Item) -> Fate {
    let Some(native) = &item.native else { return draft::kept_fate(item) };
    if native.wire != WIRE {
        let why = seal_policy::elision_reason(item, &call.target);
        return draft::reshaped_fate(item, ReshapeKind::OtherWire, why);
    }
    if item.seals.is_empty() {
        return draft::kept_fate(item);
    }
    let elided = |did| match did {
        Disposition::Kept => Disposition::Elided(ElisionReason::NotOnThisWire),
        other => other,
    };
    Fate {
        item: item.id.clone(),
        visible: Disposition::Reshaped(ReshapeKind::Flattened),
        seals: seal_policy::seals(item, &call.target, None).into_iter().map(elided).collect(),
    }
}

fn speaker(call: &Call, item: &Item) -> Role {
    match (item.role, &item.body) {
        (_, Body::Result(_)) => Role::Tool,
        (Role::Tool, _) if item.native_on(&WIRE).is_none() => Role::User,
        (Role::Assistant, _) => seal_policy::speaker(call, item, &WIRE),
        (role, _) => role,
    }
}
