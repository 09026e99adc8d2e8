//! Converts one assistant turn of a history to Items of its owner.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use throughline_core::{
    Body, CallId, Direction, Envelope, Item, ItemId, ItemPosition, NativePart, ReasoningChannel,
    ReasoningFormat, ReasoningSource, Reply, Role, StopReason, Target, Thought, ThoughtKind,
    ThoughtRecord, ToolCall, Usage, Vendor, Wire,
};
use throughline_json::{Json, Name, Node};
use throughline_spec::{
    DetailMeta, Message, MessageCall, ReasoningItem, ThinkingBlock, ThinkingKind,
};

use crate::history::HistoryOwner;
use crate::{CODECS, Catalog, CodecError, DecodeContext, chat, converse, edit, responses};

/// One assistant turn: its visible content and its reasoning.
#[derive(Clone, Debug, Default)]
pub(super) struct AssistantTurn {
    /// Texts, media and calls, in order.
    pub(super) visible: Vec<Item>,
    pub(super) elements: Vec<ReasoningItem>,
    /// The ids of the calls in `visible`, in order.
    pub(super) calls: Vec<Name>,
    /// When the turn's thoughts were recorded, in order; empty if unknown.
    pub(super) records: Vec<ThoughtRecord>,
    pub(super) is_ephemeral: bool,
}

impl AssistantTurn {
    pub(super) fn from_visible(visible: Vec<Item>) -> Self {
        let calls = visible.iter().filter_map(Item::call).map(|call| call.id.0.clone()).collect();
        Self { visible, calls, ..Self::default() }
    }

    pub(super) fn from_message(message: &Message, owner: HistoryOwner<'_>) -> Self {
        let mut visible = Vec::new();
        if !message.content.is_empty() {
            visible.push(visible_item(Body::Text(Arc::clone(&message.content))));
        }
        // The signatures of calls come first, because they belong to parts that the message names.
        let mut elements = Vec::new();
        for call in &message.tool_calls {
            elements.extend(call_elements(call, owner));
            visible.push(call_item(call, &owner.target.origin.wire));
        }
        for block in &message.thinking_blocks {
            elements.extend(block_elements(block, owner));
        }
        let is_ephemeral = message.ephemeral;
        Self { elements, is_ephemeral, ..Self::from_visible(visible) }
    }

    /// Converts the turn to Items of the owner, which start at the message index `message`.
    pub(super) fn items(
        &self,
        owner: HistoryOwner<'_>,
        message: u32,
    ) -> Result<Vec<Item>, CodecError> {
        let (mut own, foreign): (Vec<_>, Vec<_>) =
            self.elements.iter().cloned().partition(|element| is_readable(element, owner));
        // On the chat wire, an index is a member of the element and not a position in the message.
        if owner.target.origin.wire != Wire::OPENAI_CHAT {
            close_gaps(&mut own, &foreign);
        }
        let mut items = self.native_items(owner, &own)?;
        let mut calls = self.calls.iter();
        for item in &mut items {
            if let Body::Call(call) = &mut item.body
                && let Some(id) = calls.next()
            {
                call.id = CallId(id.clone());
            }
            // Only sealed parts and thoughts are tied to their native form. The rest is written
            // again, without the ids and defaults that encoding the response added.
            if item.seals.is_empty() && !matches!(item.body, Body::Thought(_)) {
                item.native = None;
            }
            if owner.target.origin.wire == Wire::OPENAI_RESPONSES {
                drop_item_id(item);
            }
        }
        items.extend(foreign.iter().map(opaque_item));
        self.set_records(&mut items);
        number(&mut items, message);
        for item in &mut items {
            item.ephemeral = self.is_ephemeral;
        }
        Ok(items)
    }

    /// Writes the turn as a response of the owner, and decodes the response.
    fn native_items(
        &self,
        owner: HistoryOwner<'_>,
        elements: &[ReasoningItem],
    ) -> Result<Vec<Item>, CodecError> {
        if self.visible.is_empty() && elements.is_empty() {
            return Ok(Vec::new());
        }
        let stop = if self.calls.is_empty() { StopReason::Done } else { StopReason::Tools };
        let reply = Reply {
            id: None,
            items: self.visible.clone(),
            stop,
            usage: Usage::default(),
            origin: Arc::clone(&owner.target.origin),
            extras: Vec::new(),
        };
        let response = Json::parse(owner.codec.encode_reply(&reply)?)?;
        let response = owner.reasoning.write_assistant(&response, elements);
        let context = DecodeContext::of(owner.target.clone());
        Ok(owner.codec.decode_reply(response.bytes(), &context)?.items)
    }

    /// Sets the records of the thoughts, if there is one record for each thought.
    fn set_records(&self, items: &mut [Item]) {
        let thoughts = items.iter_mut().filter_map(|item| match &mut item.body {
            Body::Thought(thought) => Some(thought),
            _ => None,
        });
        let thoughts: Vec<&mut Thought> = thoughts.collect();
        if thoughts.len() == self.records.len() {
            for (thought, record) in thoughts.into_iter().zip(&self.records) {
                thought.record = Some(Box::new(record.clone()));
            }
        }
    }
}

/// Reads the elements of a native part. On the Responses wire, a part does not name its vendor.
pub(super) fn native_elements(part: &Json, owner: HistoryOwner<'_>) -> Vec<ReasoningItem> {
    let mut elements = owner.reasoning.parse_response(part);
    if owner.target.origin.wire == Wire::OPENAI_RESPONSES {
        for meta in elements.iter_mut().filter_map(ReasoningItem::meta_mut) {
            meta.format = Some(native_format(owner.target));
        }
    }
    elements
}

/// Removes the id of a reasoning item. An endpoint that stores responses pairs the id with the id
/// of the next item, which a history does not contain, and the id may refer to another tenant's
/// item. Without its id, an item with neither ciphertext nor text has no native form.
fn drop_item_id(item: &mut Item) {
    let has_text =
        matches!(&item.body, Body::Thought(thought) if thought.kind == ThoughtKind::Text);
    if item.seals.is_empty() && !has_text {
        item.native = None;
    }
    let Some(native) = &mut item.native else { return };
    native.id = None;
    native.json = edit::edit_object(Some(&native.json), &[("id", None)]);
    let json = native.json.clone();
    native.envelope = Some(Arc::new(Envelope { json, parts: 1 }));
}

/// Converts an element that its owner cannot read, or whose owner is unknown, to a thought with an
/// opaque payload. No target receives the payload unless it declares the format as a tag.
pub(super) fn opaque_item(element: &ReasoningItem) -> Item {
    let (content, kind) = match element {
        ReasoningItem::Text { text, .. } => {
            (text.as_deref().unwrap_or_default(), ThoughtKind::Text)
        }
        ReasoningItem::Summary { summary, .. } => (&**summary, ThoughtKind::Summary),
        ReasoningItem::Encrypted { .. } | ReasoningItem::Unknown(_) => ("", ThoughtKind::Encrypted),
    };
    let mut thought = Thought::issued(content, kind, element.format());
    thought.source = ReasoningSource::ReasonerModel;
    thought.payload = Some(element.json());
    thought.replay_compatibility = Some(Name::from(element.format().as_str()));
    visible_item(Body::Thought(thought))
}

/// Returns a text element in the format in which the target emits readable reasoning.
pub(super) fn text_element(text: Name, target: &Target) -> ReasoningItem {
    let meta = DetailMeta { format: Some(native_format(target)), ..DetailMeta::default() };
    ReasoningItem::Text { meta, text: Some(text), signature: None }
}

/// Lowers the indexes of elements by the number of lower indexes that only foreign elements have.
/// Otherwise, an element that follows a foreign one would be written after the turn's content.
fn close_gaps(own: &mut [ReasoningItem], foreign: &[ReasoningItem]) {
    let index = |element: &ReasoningItem| element.json().tree().root().get("index")?.u64();
    let kept: HashSet<u64> = own.iter().filter_map(index).collect();
    let gaps: HashSet<u64> = foreign.iter().filter_map(index).collect();
    for meta in own.iter_mut().filter_map(ReasoningItem::meta_mut) {
        if let Some(index) = &mut meta.index {
            let lower = gaps.iter().filter(|gap| **gap < *index && !kept.contains(*gap)).count();
            *index = index.saturating_sub(u64::try_from(lower).unwrap_or(u64::MAX));
        }
    }
}

/// Returns whether the owner issued the element: its codec writes the element, and the element is
/// not from another vendor. A router forwards the elements of all vendors.
fn is_readable(element: &ReasoningItem, owner: HistoryOwner<'_>) -> bool {
    if is_foreign(element, owner.target) && !owner.target.provider.dialect.relays {
        return false;
    }
    let text = visible_item(Body::Text(Arc::from(".")));
    let probe = AssistantTurn { visible: vec![text], ..AssistantTurn::default() };
    let written = probe.native_items(owner, std::slice::from_ref(element));
    let is_reasoning =
        |item: &Item| matches!(item.body, Body::Thought(_)) || !item.seals.is_empty();
    written.is_ok_and(|items| items.iter().any(is_reasoning))
}

/// Returns whether another vendor's model issued the element. A model without a vendor emits only
/// the format of its wire. The issuer of a signature without a vendor is unknown.
fn is_foreign(element: &ReasoningItem, target: &Target) -> bool {
    let (format, own) = (element.format(), target.profile.vendor);
    if let Some(vendor) = format.vendor() {
        return own.or_else(|| native_format(target).vendor()) != Some(vendor);
    }
    let is_own = match format.as_str() {
        // An unlisted model can be a Gemini model under another name.
        chat::EXTRA_CONTENT_SIGNATURE => {
            own == Some(Vendor::Google) || *target.profile.name == *Catalog::UNLISTED
        }
        chat::THINKING_CHUNK => target.provider.dialect.channel == ReasoningChannel::Chunks,
        _ => false,
    };
    element.sealed().is_some() && !is_own
}

/// Returns the elements of a thinking block. A block with native `providerMeta` is read from it.
fn block_elements(block: &ThinkingBlock, owner: HistoryOwner<'_>) -> Vec<ReasoningItem> {
    let position = block.extras.iter().find(|(key, _)| **key == *"index");
    let index = position.and_then(|(_, value)| value.tree().root().u64());
    let native = block.provider_meta.as_ref();
    let mut elements = native.map(|part| native_elements(part, owner)).unwrap_or_default();
    if !elements.is_empty() {
        // On the chat wire, an element has its own index. On other wires, an element that was read
        // from a single part does not know its position.
        if owner.target.origin.wire != Wire::OPENAI_CHAT {
            for meta in elements.iter_mut().filter_map(ReasoningItem::meta_mut) {
                meta.index = index;
            }
        }
        return elements;
    }
    let format = native.and_then(|native| native.tree().root().name_of("format"));
    let format = format.map(|name| ReasoningFormat::new(&name));
    let format = format.or_else(|| native.and_then(part_format));
    let format = format.unwrap_or_else(|| native_format(owner.target));
    let is_item = matches!(format.vendor(), Some(Vendor::OpenAi | Vendor::Xai));
    let meta = DetailMeta { format: Some(format), index, ..DetailMeta::default() };
    let signature = block.signature.clone().filter(|signature| !signature.is_empty());
    let encrypted = |data| ReasoningItem::Encrypted { meta: meta.clone(), data };
    let is_summary = block.summary == Some(true);
    match block.kind {
        ThinkingKind::RedactedThinking => signature.map(encrypted).into_iter().collect(),
        // A reasoning item has its ciphertext beside its text.
        ThinkingKind::Thinking if is_item => {
            let text = Some(Arc::clone(&block.content)).filter(|text| !text.is_empty());
            let text = text.map(|text| match block.summary {
                Some(false) => {
                    ReasoningItem::Text { meta: meta.clone(), text: Some(text), signature: None }
                }
                Some(true) | None => ReasoningItem::Summary { meta: meta.clone(), summary: text },
            });
            text.into_iter().chain(signature.map(encrypted)).collect()
        }
        ThinkingKind::Thinking if is_summary && signature.is_none() => {
            vec![ReasoningItem::Summary { meta, summary: Arc::clone(&block.content) }]
        }
        ThinkingKind::Thinking => {
            vec![ReasoningItem::Text { meta, text: Some(Arc::clone(&block.content)), signature }]
        }
    }
}

/// Returns the format of a native part of any wire, if the format belongs to a vendor.
fn part_format(part: &Json) -> Option<ReasoningFormat> {
    let elements = CODECS.iter().flat_map(|codec| codec.reasoning().parse_response(part));
    let mut formats = elements.map(|element| element.format());
    formats.find(|format| format.vendor().is_some())
}

/// Returns the elements in the `providerMeta` of a call, such as Gemini's `thoughtSignature`.
fn call_elements(call: &MessageCall, owner: HistoryOwner<'_>) -> Vec<ReasoningItem> {
    let native = call.provider_meta.as_ref();
    let mut elements = native.map(|part| native_elements(part, owner)).unwrap_or_default();
    let has_own_id = |native: &Json| native.tree().root().at("/functionCall/id").is_some();
    let is_call = native.is_some_and(|native| native.tree().root().get("functionCall").is_some());
    for meta in elements.iter_mut().filter_map(ReasoningItem::meta_mut) {
        meta.index = None;
        // A native call without an id is written without an id, so its element has none either.
        meta.id = (!is_call || native.is_some_and(has_own_id)).then(|| call.id.clone());
    }
    elements
}

/// Builds a call. If `providerMeta` is the whole native part of a Gemini call, the call is written
/// as that part.
fn call_item(call: &MessageCall, wire: &Wire) -> Item {
    let mut item = visible_item(Body::Call(ToolCall {
        id: CallId(call.id.clone()),
        wire_id: Some(call.id.clone()),
        name: call.name.clone(),
        args: call.args.clone(),
        custom: call.args.tree().root().is_string(),
    }));
    let is_part = |native: &&Json| native.tree().root().get("functionCall").is_some();
    if *wire == Wire::GEMINI
        && let Some(native) = call.provider_meta.as_ref().filter(is_part)
    {
        item.native = Some(NativePart::new(wire.clone(), Direction::Response, native.clone()));
    }
    item
}

pub(super) fn visible_item(body: Body) -> Item {
    Item::new("", ItemPosition::default(), Role::Assistant, body)
}

/// Moves the Items to the message index `message`, and gives each Item an id of its own.
fn number(items: &mut [Item], message: u32) {
    let mut ids: HashMap<ItemId, ItemId> = HashMap::new();
    let mut last = ItemPosition::default();
    for item in items.iter_mut() {
        if item.id.0.is_empty() {
            item.place = ItemPosition { message: last.message, part: last.part + 1 };
        }
        last = item.place;
        item.place.message = item.place.message.saturating_add(message);
        let id = ItemId::from(format!("message-{}-{}", item.place.message, item.place.part));
        ids.insert(std::mem::replace(&mut item.id, id.clone()), id);
    }
    for seal in items.iter_mut().flat_map(|item| &mut item.seals) {
        let leads = seal.attached.leads.take();
        seal.attached.leads = leads.and_then(|id| ids.get(&id).cloned());
    }
}

/// Returns the format in which a target emits its reasoning.
fn native_format(target: &Target) -> ReasoningFormat {
    let origin = &target.origin;
    if origin.wire == Wire::ANTHROPIC_MESSAGES {
        return ReasoningFormat::AnthropicClaudeV1;
    }
    if origin.wire == Wire::GEMINI {
        return ReasoningFormat::GoogleGeminiV1;
    }
    if origin.wire == Wire::OPENAI_RESPONSES {
        return responses::reasoning_format(&origin.provider);
    }
    if origin.wire == Wire::BEDROCK_CONVERSE {
        let is_claude = target.profile.vendor == Some(Vendor::Anthropic);
        let other = || ReasoningFormat::new(converse::UNSIGNED_REASONING);
        return if is_claude { ReasoningFormat::AnthropicClaudeV1 } else { other() };
    }
    let field = match target.provider.dialect.channel {
        ReasoningChannel::Reasoning => "reasoning",
        ReasoningChannel::Thinking => "thinking",
        ReasoningChannel::Chunks => "mistral-thinking-chunk",
        ReasoningChannel::Tags => "inline-tags",
        ReasoningChannel::Details => return vendor_format(target.profile.vendor),
        ReasoningChannel::ReasoningContent
        | ReasoningChannel::AsEmitted
        | ReasoningChannel::None => "reasoning_content",
    };
    ReasoningFormat::new(field)
}

fn vendor_format(vendor: Option<Vendor>) -> ReasoningFormat {
    match vendor {
        Some(Vendor::Anthropic) => ReasoningFormat::AnthropicClaudeV1,
        Some(Vendor::Google) => ReasoningFormat::GoogleGeminiV1,
        Some(Vendor::OpenAi) => ReasoningFormat::OpenAiResponsesV1,
        Some(Vendor::Xai) => ReasoningFormat::XaiResponsesV1,
        None => ReasoningFormat::unknown(),
    }
}

/// Returns the text of a string, or of the text parts of a list.
pub(super) fn text_of(content: Option<Node<'_>>) -> Name {
    let Some(content) = content else { return Name::default() };
    let parts = content.elements().filter_map(|part| part.name_of("text"));
    let joined: String = parts.map(|text| text.to_string()).collect();
    content.name().unwrap_or_else(|| joined.into())
}
