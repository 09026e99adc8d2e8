//! Converts between Items and messages.
//!
//! A message becomes Items for its Thoughts, then its text, then its calls, because the message
//! defines no other order. Each Item keeps its part of the message as native JSON with the wire
//! [`Message::WIRE`], and the whole message as its envelope. An unchanged message is therefore
//! written as it was read.

use std::sync::Arc;

use throughline_core::{
    Body, CallId, Direction, Envelope, Item, ItemPosition, NativePart, Origin, Outcome, Part,
    ReasoningFormat, Role, Seal, Thought, ThoughtKind, ToolCall, ToolResult, Wire, tag,
};
use throughline_json::{self as json, InvalidDocument, Json, Label, Name, Node, Opaque};

use crate::view::message::{Message, MessageCall, MessageRole, ThinkingBlock, ThinkingKind};

impl Message {
    /// The wire name of native JSON that was read from a message.
    pub const WIRE: Wire = Wire::borrowed("llm-message");

    /// Converts Items to messages. Items with the same message index and role form one message.
    /// Each tool result becomes its own message, and ephemeral Items form separate messages.
    pub fn from_items(items: &[Item]) -> Vec<Message> {
        let same = |one: &Item, next: &Item| {
            one.place.message == next.place.message
                && one.ephemeral == next.ephemeral
                && role_of(one) == role_of(next)
                && role_of(one) != MessageRole::Tool
        };
        let message = |group| original_message(group).unwrap_or_else(|| compose(group));
        items.chunk_by(same).map(message).collect()
    }

    /// Converts the message to Items with the message index `message`. With an `owner`, signatures
    /// become Seals issued by that owner. Without an `owner`, a Thought keeps its block as the
    /// payload, tagged [`tag::THINKING_BLOCK`], and never becomes text for another model.
    pub fn items(
        &self,
        message: usize,
        owner: Option<&Arc<Origin>>,
    ) -> Result<Vec<Item>, InvalidDocument> {
        let mut parts: Vec<(Body, Json, Vec<Seal>)> = Vec::new();
        for block in &self.thinking_blocks {
            let (body, seals) = thought(block, owner);
            parts.push((body, block.json(), seals));
        }
        let is_bare = self.thinking_blocks.is_empty() && self.tool_calls.is_empty();
        if self.role == MessageRole::Tool {
            parts.push((self.result()?, json::string(&self.content), Vec::new()));
        } else if is_bare || !self.content.is_empty() {
            let text = Body::Text(self.content.clone());
            parts.push((text, json::string(&self.content), Vec::new()));
        }
        for call in &self.tool_calls {
            let body = Body::Call(ToolCall {
                id: CallId(call.id.clone()),
                wire_id: Some(call.id.clone()),
                name: call.name.clone(),
                args: call.args.clone(),
                custom: call.args.tree().root().is_string(),
            });
            parts.push((body, call.json(), Vec::new()));
        }
        let envelope = Arc::new(Envelope { json: self.json(), parts: parts.len() });
        let role = match self.role {
            MessageRole::System => Role::System,
            MessageRole::User => Role::User,
            MessageRole::Assistant => Role::Assistant,
            MessageRole::Tool => Role::Tool,
        };
        let item = |(part, (body, json, seals))| {
            let id = format!("message-{message}-{part}");
            let mut native = NativePart::new(Self::WIRE, Direction::Request, json);
            native.envelope = Some(Arc::clone(&envelope));
            let mut item = Item::new(id, ItemPosition::new(message, part), role, body);
            item.origin = owner.filter(|_| role == Role::Assistant).cloned();
            item.native = Some(native);
            item.seals = seals;
            item.ephemeral = self.ephemeral;
            item
        };
        Ok(parts.into_iter().enumerate().map(item).collect())
    }

    fn result(&self) -> Result<Body, InvalidDocument> {
        let call = self.tool_call_id.clone().ok_or_else(|| InvalidDocument {
            field: "LLMMessage.toolCallId".into(),
            problem: "is missing; a tool message must name its tool call".into(),
        })?;
        Ok(Body::Result(ToolResult {
            call: CallId(call.clone()),
            wire_id: Some(call),
            name: self.tool_name.clone(),
            outcome: Outcome::Ok,
            parts: vec![Part::Text(self.content.clone())],
        }))
    }
}

fn thought(block: &ThinkingBlock, owner: Option<&Arc<Origin>>) -> (Body, Vec<Seal>) {
    let kind = match (block.kind, block.summary) {
        (ThinkingKind::RedactedThinking, _) => ThoughtKind::Encrypted,
        (ThinkingKind::Thinking, Some(true)) => ThoughtKind::Summary,
        (ThinkingKind::Thinking, Some(false) | None) => ThoughtKind::Text,
    };
    let mut thought = Thought::issued(block.content.clone(), kind, ReasoningFormat::unknown());
    let Some(owner) = owner else {
        thought.payload = Some(block.json());
        thought.replay_compatibility = Some(Name::from(tag::THINKING_BLOCK));
        return (Body::Thought(thought), Vec::new());
    };
    let signature = block.signature.iter().filter(|signature| !signature.is_empty());
    let format = Label::Borrowed("message.signature");
    let seal = |signature: &Opaque| {
        Seal::new(signature.bytes(), format.clone(), Arc::clone(owner), "/signature")
    };
    (Body::Thought(thought), signature.map(seal).collect())
}

/// Returns the message role for an Item. A tool result always has the role `tool`, whichever role
/// its wire uses.
fn role_of(item: &Item) -> MessageRole {
    match (&item.body, item.role) {
        (Body::Result(_), _) | (_, Role::Tool) => MessageRole::Tool,
        (_, Role::System | Role::Developer) => MessageRole::System,
        (_, Role::User) => MessageRole::User,
        (_, Role::Assistant) => MessageRole::Assistant,
    }
}

/// Returns the message that the Items were read from, if all Items of that message are present.
fn original_message(group: &[Item]) -> Option<Message> {
    let envelope_of = |item: &Item| item.native_on(&Message::WIRE)?.envelope.clone();
    let envelope = envelope_of(group.first()?)?;
    let is_same = |item: &Item| envelope_of(item).is_some_and(|own| Arc::ptr_eq(&own, &envelope));
    let is_whole = envelope.parts == group.len() && group.iter().all(is_same);
    is_whole.then(|| Message::parse(&envelope.json).ok()).flatten()
}

fn compose(group: &[Item]) -> Message {
    let role = group.first().map_or(MessageRole::User, role_of);
    let mut message = Message::new(role, "");
    let mut content = String::new();
    for item in group {
        message.ephemeral |= item.ephemeral;
        match &item.body {
            Body::Text(text) | Body::Summary { text, .. } => {
                message.thinking_blocks.extend(text_signature(item, &message, &content));
                content.push_str(text);
            }
            Body::Thought(thought) => {
                let mut block = thinking_block(item, thought);
                let has_later_position = !content.is_empty() || !message.tool_calls.is_empty();
                if has_later_position && !has_index(&block) {
                    set_index(&mut block, part_index(&message, &content));
                }
                message.thinking_blocks.push(block);
            }
            Body::Call(call) => message.tool_calls.push(MessageCall {
                id: call.wire_id.clone().unwrap_or_else(|| call.id.0.clone()),
                name: call.name.clone(),
                args: call.args.clone(),
                provider_meta: native_member(item).or_else(|| sealed_native(item)),
                extras: Vec::new(),
            }),
            Body::Result(result) => {
                message.tool_call_id =
                    Some(result.wire_id.clone().unwrap_or_else(|| result.call.0.clone()));
                message.tool_name.clone_from(&result.name);
                for part in &result.parts {
                    match part {
                        Part::Text(text) => content.push_str(text),
                        Part::Value(value) => content.push_str(value.as_str()),
                        Part::Media(_) | Part::Unknown(..) => {}
                    }
                }
            }
            Body::Media(_) | Body::Hosted(_) | Body::Compaction | Body::Unknown => {}
        }
    }
    message.content = content.into();
    message
}

/// Returns the index of the next part of a message: its Thoughts, its text and its calls so far.
fn part_index(message: &Message, content: &str) -> usize {
    let texts = usize::from(!content.is_empty());
    message.thinking_blocks.len() + texts + message.tool_calls.len()
}

const INDEX: &str = "index";

fn has_index(block: &ThinkingBlock) -> bool {
    block.extras.iter().any(|(key, _)| **key == *INDEX)
}

/// Records the block's position among the parts of its message. Only a block after other content
/// needs a position.
fn set_index(block: &mut ThinkingBlock, index: usize) {
    let index = Json::parse(index.to_string()).unwrap_or_else(|_| Json::null());
    block.extras.push((Name::from(INDEX), index));
}

/// Returns the signature of a Gemini text as a block of sealed data at the text's position.
fn text_signature(item: &Item, message: &Message, content: &str) -> Option<ThinkingBlock> {
    item.native_on(&Wire::GEMINI)?;
    let signature = item.seals.first().and_then(Seal::to_opaque)?;
    let mut block = ThinkingBlock::redacted(Some(signature));
    block.provider_meta = Some(format_meta(&ReasoningFormat::GoogleGeminiV1));
    // The block itself is not a part, so the text follows the Thoughts before it.
    set_index(&mut block, part_index(message, content));
    Some(block)
}

fn thinking_block(item: &Item, thought: &Thought) -> ThinkingBlock {
    let is_block = thought.replay_compatibility.as_deref() == Some(tag::THINKING_BLOCK);
    let from_payload = thought.payload.as_ref().filter(|_| is_block).and_then(|payload| {
        let document = json::object(|out| {
            out.string("role", "assistant").string("content", "").list("thinkingBlocks", [payload]);
        });
        Message::parse(&document).ok()?.thinking_blocks.pop()
    });
    if let Some(block) = from_payload {
        return block;
    }
    let signature = item.seals.first().and_then(Seal::to_opaque);
    let mut block = match thought.kind {
        ThoughtKind::Encrypted => ThinkingBlock::redacted(signature),
        ThoughtKind::Text | ThoughtKind::Summary => {
            ThinkingBlock::thinking(thought.content.clone(), signature)
        }
    };
    block.summary = (thought.kind == ThoughtKind::Summary).then_some(true);
    // On these wires, a readable block with a single signature contains all opaque data. Otherwise
    // the native part is needed too.
    let wire = item.native.as_ref().map(|native| &native.wire);
    let is_plain_wire = wire.is_none_or(|wire| {
        [Wire::ANTHROPIC_MESSAGES, Wire::BEDROCK_CONVERSE, Message::WIRE].contains(wire)
    });
    let is_covered = item.seals.len() == 1 && thought.kind == ThoughtKind::Text && is_plain_wire;
    let sealed = || sealed_native(item).filter(|_| !is_covered);
    // The format of unsealed chat reasoning is the name of the member that holds it. The format of
    // a signature names the vendor that can read it.
    let is_chat = wire == Some(&Wire::OPENAI_CHAT) && item.seals.is_empty();
    let is_vendors = !item.seals.is_empty() && thought.format.vendor().is_some();
    let has_format = is_chat || (is_vendors && wire != Some(&Message::WIRE));
    let format = || has_format.then(|| format_meta(&thought.format));
    block.provider_meta = native_member(item).or_else(sealed).or_else(format);
    block
}

fn format_meta(format: &ReasoningFormat) -> Json {
    json::object(|out| _ = out.string("format", format.as_str()))
}

/// Returns `providerMeta` from the part of the message that the Item was read from.
fn native_member(item: &Item) -> Option<Json> {
    let native = item.native_on(&Message::WIRE)?;
    native.json.tree().root().present("providerMeta").map(Node::json)
}

/// Returns the Item's native JSON if the Item has Seals and was read from a provider's wire.
fn sealed_native(item: &Item) -> Option<Json> {
    let native = item.native.as_ref().filter(|native| native.wire != Message::WIRE)?;
    (!item.seals.is_empty()).then(|| native.json.clone())
}
