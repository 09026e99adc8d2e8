//! Encodes Calls as requests; the submodules also encode Replies as whole responses.

use std::collections::HashSet;

use throughline_core::{Body, Call, EncodedRequest, Envelope, Item, Role};
use throughline_json::{self as json, Json, Name, Node};

use crate::call_ids::CallIdAllocator;
use crate::converse::wire::{ConverseBlockKind, ConversePath};
use crate::converse::{WIRE, contract};
use crate::draft::{self, Draft};
use crate::message_groups::{self, MessageGroup, groups, role_name};
use crate::prefix::PrefixHasher;
use crate::{cross_wire, seal_policy};

mod blocks;
mod reply;
mod settings;

pub(super) use crate::converse::encode::reply::{
    block as reply_block, encode_reply, write_metadata, write_stop_sequence as reply_fields,
};

/// The warning that the called tools were declared because no other tools are sent.
const TOOLS_DECLARED: &str =
    "the API requires tools if there are tool calls; the called tools were declared";

pub(super) fn encode(call: &Call) -> EncodedRequest {
    let mut draft = Draft::new(call, WIRE);
    let model = call.target.model();
    let mut writer = ConverseWriter {
        call,
        prefix: call.target.profile.bound.prefix.then(PrefixHasher::new),
        ids: CallIdAllocator::for_target(&call.target),
        documents: 0,
    };
    let (system, conversation) = message_groups::split_leading_system(&call.items, &WIRE);
    writer.system(&mut draft, system);
    let tools = writer.tools(&mut draft);
    let pieces = writer.messages(&mut draft, conversation);
    if draft.source().is_none() || draft.source_value("messages").is_some() || !pieces.is_empty() {
        draft.put_elements("messages", &pieces);
    }
    draft.put_extras();
    let source = draft.source().map(|source| ConversePath::parse(&source.request.path));
    let path = source.clone().unwrap_or_default();
    // Some clients record the model in the body.
    let in_body = draft.source_value("modelId");
    let named = in_body.as_ref().and_then(|id| Some(id.tree().root().text()?.into_owned()));
    let named = path.model.clone().or(named);
    let is_retargeted = named.is_some_and(|named| named != model);
    if is_retargeted && in_body.is_some() {
        draft.put("modelId", json::string(model));
    }
    settings::put_settings(&mut draft, call, &pieces, &tools, is_retargeted);
    draft.put_provider_extras();
    let prefix = writer.prefix.map(|prefix| prefix.digest());
    let new_path = path.with_model(model, call.stream);
    let mut encoded = draft.finish(&new_path, &[], prefix);
    if source.is_some() && (is_retargeted || path.stream != call.stream) {
        encoded.request.path = Name::from(new_path);
    }
    encoded
}

struct ConverseWriter<'c> {
    call: &'c Call,
    prefix: Option<PrefixHasher>,
    ids: CallIdAllocator,
    /// The number of document names generated in this request.
    documents: usize,
}

/// An outgoing message that can still be joined with the next message of the same speaker.
struct ConverseMessage<'c> {
    speaker: Role,
    envelope: Option<&'c Envelope>,
    /// Whether the source message can be written unchanged.
    is_intact: bool,
    /// Tool results, which are written before `blocks`. The API matches results to their calls only
    /// at the start of a message.
    answers: Vec<Json>,
    blocks: Vec<Json>,
}

impl ConverseMessage<'_> {
    fn json(&self) -> Json {
        match self.envelope {
            Some(envelope) if self.is_intact => envelope.json.clone(),
            Some(envelope) => draft::with_member(&envelope.json, "content", self.content()),
            None => object! { "role": role_name(self.speaker), "content": self.content() },
        }
    }

    fn content(&self) -> Json {
        json::array_of(self.answers.iter().chain(&self.blocks))
    }

    /// Appends the content of `next`, which must have the same speaker.
    fn join(&mut self, mut next: Self) {
        self.unpack();
        next.unpack();
        self.answers.append(&mut next.answers);
        self.blocks.append(&mut next.blocks);
    }

    /// Splits an unchanged message into its blocks, so that blocks of another message can be
    /// appended.
    fn unpack(&mut self) {
        let Some(envelope) = self.envelope.filter(|_| std::mem::take(&mut self.is_intact)) else {
            return;
        };
        let tree = envelope.json.tree();
        let content = tree.root().get("content").into_iter().flat_map(Node::elements);
        self.blocks = content.map(Node::json).collect();
    }
}

impl<'c> ConverseWriter<'c> {
    fn absorb(&mut self, name: &str, element: &Json) {
        if let Some(prefix) = &mut self.prefix {
            prefix.update(name, &without_markers(element));
        }
    }

    fn system(&mut self, draft: &mut Draft<'_>, leading: &'c [Item]) {
        let items: Vec<&Item> = self.call.system.iter().chain(leading).collect();
        if let Some(envelope) = draft::intact_envelope(&items, &WIRE) {
            draft.fates.extend(items.iter().map(|item| draft::kept_fate(item)));
            self.absorb("system", &envelope.json);
            draft.put_if_changed("system", &envelope.json);
            return;
        }
        let was_given = || {
            draft.source_value("system").is_some_and(|was| was.tree().root().elements().count() > 0)
        };
        if items.is_empty() && !was_given() {
            return;
        }
        let mut blocks = Vec::new();
        for item in items {
            let (block, fate) = self.system_block(draft, item);
            blocks.extend(block);
            draft.fates.push(fate);
        }
        if !blocks.is_empty() {
            self.absorb("system", &json::array_of(&blocks));
        }
        if draft.source_value("system").is_some() || !blocks.is_empty() {
            draft.put_elements("system", &blocks);
        }
    }

    /// Encodes the tools. The API requires tools if the conversation contains tool calls, so the
    /// called tools are declared if no other tools are sent.
    fn tools(&mut self, draft: &mut Draft<'_>) -> Vec<Json> {
        let tools = self.call.tools.iter().filter_map(|tool| match tool.native_on(&WIRE) {
            Some(native) => Some(native.json.clone()),
            None => cross_wire::tool(draft, tool, |draft| {
                cross_wire::warn_about_input_format(draft, tool);
                let description = tool.description.as_deref().filter(|text| !text.is_empty());
                tool_spec(&tool.name, description, tool.schema.as_ref())
            }),
        });
        let mut tools: Vec<Json> = tools.collect();
        let had_tools = draft.source_value("toolConfig").is_some_and(|was| {
            was.tree().root().get("tools").is_some_and(|tools| tools.elements().count() > 0)
        });
        if tools.is_empty() && (draft.source().is_none() || had_tools) {
            let mut known: HashSet<&Name> = HashSet::new();
            let names = self.call.items.iter().filter_map(|item| Some(&item.call()?.name));
            let names = names.filter(|name| known.insert(*name));
            tools.extend(names.map(|name| tool_spec(name, None, None)));
            if !tools.is_empty() {
                draft.warn("tools", TOOLS_DECLARED);
            }
        }
        for tool in &tools {
            if !is_marker(tool.tree().root()) {
                self.absorb("tool", tool);
            }
        }
        tools
    }

    fn messages(&mut self, draft: &mut Draft<'_>, items: &'c [Item]) -> Vec<Json> {
        let call = self.call;
        let mut pieces: Vec<Json> = Vec::new();
        let mut last: Option<ConverseMessage<'c>> = None;
        let items = draft.order_items(items, |item| seal_policy::is_caller_text(call, item, &WIRE));
        for group in groups(items, &WIRE, |item| seal_policy::speaker(call, item, &WIRE)) {
            let Some(next) = self.message(draft, &group, last.as_ref()) else { continue };
            match &mut last {
                // Adjacent source messages by the same speaker stay separate. All other messages
                // must alternate.
                Some(message)
                    if message.speaker == next.speaker
                        && !(message.is_intact && next.is_intact) =>
                {
                    message.join(next);
                }
                Some(_) | None => pieces.extend(self.finish(last.replace(next))),
            }
        }
        pieces.extend(self.finish(last));
        pieces
    }

    /// Encodes a complete message and adds it to the prefix digest.
    fn finish(&mut self, message: Option<ConverseMessage<'_>>) -> Option<Json> {
        let piece = message?.json();
        self.absorb("message", &piece);
        Some(piece)
    }

    /// Encodes one message. `before` is the previous message, which may still be extended and is
    /// therefore not yet part of the prefix digest.
    fn message(
        &mut self,
        draft: &mut Draft<'_>,
        group: &MessageGroup<'c>,
        before: Option<&ConverseMessage<'_>>,
    ) -> Option<ConverseMessage<'c>> {
        let prefix = self.prefix.clone().map(|mut prefix| {
            if let Some(before) = before {
                prefix.update("message", &without_markers(&before.json()));
            }
            prefix.digest_for(group.items.iter().copied())
        });
        let target = &self.call.target;
        let passes = |item: &&Item| {
            let is_own_word = item.origin.as_ref().is_none_or(|o| o.asked == target.origin.asked);
            let is_unsealed = item.seals.is_empty() && !is_own_word;
            seal_policy::refusal(&seal_policy::seals(item, target, prefix.as_ref())).is_none()
                && !(is_unsealed && contract::unsealed_elision(item, target).is_some())
        };
        let speaker = group.speaker;
        let (mut answers, mut blocks) = (Vec::new(), Vec::new());
        if let Some(envelope) = draft::intact_envelope(&group.items, &WIRE)
            && group.items.iter().all(passes)
        {
            for item in &group.items {
                self.ids.record_item(item);
                draft.fates.push(draft::kept_fate(item));
            }
            let envelope = Some(envelope);
            return Some(ConverseMessage { speaker, envelope, is_intact: true, answers, blocks });
        }
        for item in &group.items {
            let (block, fate) = self.block(draft, item, prefix.as_ref());
            let is_answer = matches!(item.body, Body::Result(_));
            let list = if is_answer { &mut answers } else { &mut blocks };
            list.extend(block);
            draft.fates.push(fate);
        }
        let native = group.items.first().and_then(|item| item.native_on(&WIRE));
        let envelope = native.and_then(|native| native.envelope.as_deref());
        let is_empty = answers.is_empty() && blocks.is_empty();
        let message = ConverseMessage { speaker, envelope, is_intact: false, answers, blocks };
        (!is_empty).then_some(message)
    }
}

fn tool_spec(name: &str, description: Option<&str>, schema: Option<&Json>) -> Json {
    let schema = schema.cloned().unwrap_or_else(|| object! { "type": "object" });
    object! {
        "toolSpec": { "name": name, "description": description, "inputSchema": { "json": schema } },
    }
}

fn is_marker(block: Node<'_>) -> bool {
    ConverseBlockKind::from_node(block) == ConverseBlockKind::CachePoint
}

/// Removes the cache markers from a list of blocks or a message, because models do not bind Seals
/// to cache markers.
fn without_markers(element: &Json) -> Json {
    if memchr::memmem::find(element.bytes(), b"\"cachePoint\"").is_none() {
        return element.clone();
    }
    let tree = element.tree();
    let unmarked = |list: Node<'_>| {
        json::array(|a| {
            for block in list.elements().filter(|block| !is_marker(*block)) {
                a.node(block);
            }
        })
    };
    match tree.root().get("content").filter(|content| content.is_array()) {
        Some(content) => draft::with_member(element, "content", unmarked(content)),
        None if tree.root().is_array() => unmarked(tree.root()),
        None => element.clone(),
    }
}
