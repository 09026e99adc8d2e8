//! Encodes Calls as requests, and Replies as whole responses.

use throughline_core::{
    Body, Call, Digest, Direction, Disposition, ElisionReason, EncodedRequest, Fate, Item, Media,
    NativePart, Outcome, Part, Reply, ReshapeKind, Role, Target, Tool, ToolCall, ToolResult,
};
use throughline_json::{self as json, Json};

use crate::anthropic::reasoning_items::caller_part;
use crate::anthropic::{WIRE, contract, wire};
use crate::call_ids::CallIdAllocator;
use crate::draft::{self, Draft};
use crate::message_groups::{self, MessageGroup, groups, role_name};
use crate::object::put_all_with;
use crate::percent::percent_encode;
use crate::prefix::{PrefixHasher, absorb};
use crate::{cross_wire, events, seal_policy};

mod settings;

const PATH: &str = "/v1/messages";

/// The API version that Vertex expects in the body.
const VERTEX_VERSION: &str = "vertex-2023-10-16";

/// Returns the path of a request. On Vertex, the path names the model and selects streaming.
pub(super) fn path(target: &Target, stream: bool) -> String {
    if !names_model_in_path(target) {
        return PATH.to_owned();
    }
    let verb = if stream { "streamRawPredict" } else { "rawPredict" };
    // A version of a model follows `@`. Other characters must not select another method.
    format!("/{}:{verb}", percent_encode(target.model(), "@"))
}

fn names_model_in_path(target: &Target) -> bool {
    target.provider.dialect.model_in_path
}

/// Writes the model in the body, or the API version if the path names the model.
fn put_model(draft: &mut Draft<'_>, target: &Target) {
    if !names_model_in_path(target) {
        draft.put_model();
        return;
    }
    if draft.source_value("model").is_some() {
        draft.remove("model");
    }
    if draft.source_value("anthropic_version").is_none() {
        draft.put("anthropic_version", json::string(VERTEX_VERSION));
    }
}

const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

pub(super) fn encode(call: &Call) -> EncodedRequest {
    let mut draft = Draft::new(call, WIRE);
    put_model(&mut draft, &call.target);
    let mut writer = AnthropicWriter {
        call,
        prefix: call.target.profile.bound.prefix.then(PrefixHasher::new),
        ids: CallIdAllocator::for_target(&call.target),
    };
    let (system, conversation) = message_groups::split_leading_system(&call.items, &WIRE);
    writer.system(&mut draft, system);
    writer.tools(&mut draft);
    let pieces = writer.messages(&mut draft, conversation);
    settings::put_settings(&mut draft, call, &pieces);
    draft.put_elements("messages", &pieces);
    draft.put_stream(false);
    draft.put_extras();
    draft.put_provider_extras();
    let prefix = writer.prefix.map(|prefix| prefix.digest());
    draft.finish(&path(&call.target, call.stream), &[VERSION], prefix)
}

struct AnthropicWriter<'c> {
    call: &'c Call,
    prefix: Option<PrefixHasher>,
    ids: CallIdAllocator,
}

impl<'c> AnthropicWriter<'c> {
    fn system(&mut self, draft: &mut Draft<'_>, leading: &'c [Item]) {
        let items: Vec<&Item> = self.call.system.iter().chain(leading).collect();
        if let Some(envelope) = draft::intact_envelope(&items, &WIRE) {
            draft.fates.extend(items.iter().map(|item| draft::kept_fate(item)));
            absorb(&mut self.prefix, "system", [&envelope.json]);
            draft.put_if_changed("system", &envelope.json);
            return;
        }
        if items.is_empty() {
            // Keep an empty list if the source has one.
            let is_filled = |was: Json| {
                was.tree().root().is_string() || was.tree().root().elements().next().is_some()
            };
            if draft.source_value("system").is_some_and(is_filled) {
                draft.remove("system");
            }
            return;
        }
        let mut blocks = Vec::new();
        for item in items {
            let (block, fate) = self.block(draft, item, None);
            blocks.extend(block);
            draft.fates.push(fate);
        }
        let system = json::array_of(&blocks);
        absorb(&mut self.prefix, "system", [&system]);
        draft.put("system", system);
    }

    fn tools(&mut self, draft: &mut Draft<'_>) {
        let tools = self.call.tools.iter().filter_map(|tool| match tool.native_on(&WIRE) {
            Some(native) => Some(native.json.clone()),
            None => cross_wire::tool(draft, tool, |draft| {
                cross_wire::warn_about_input_format(draft, tool);
                tool_declaration(tool)
            }),
        });
        let tools: Vec<Json> = tools.collect();
        draft.put_tools(&tools);
        absorb(&mut self.prefix, "tool", &tools);
    }

    fn messages(&mut self, draft: &mut Draft<'_>, items: &'c [Item]) -> Vec<Json> {
        let call = self.call;
        let mut pieces = Vec::new();
        let items = draft.order_items(items, |item| seal_policy::is_caller_text(call, item, &WIRE));
        for group in groups(items, &WIRE, |item| speaker(call, item)) {
            let piece = self.message(draft, &group);
            absorb(&mut self.prefix, "message", &piece);
            pieces.extend(piece);
        }
        pieces
    }

    fn message(&mut self, draft: &mut Draft<'_>, group: &MessageGroup<'c>) -> Option<Json> {
        let items = group.items.iter().copied();
        let prefix = self.prefix.as_ref().map(|prefix| prefix.digest_for(items));
        let target = &self.call.target;
        let opens = |item: &&Item| {
            let is_anothers = matches!(item.body, Body::Thought(_))
                && seal_policy::elision_reason(item, target) == ElisionReason::Foreign;
            !is_anothers
                && seal_policy::refusal(&seal_policy::seals(item, target, prefix.as_ref()))
                    .is_none()
        };
        if let Some(envelope) = draft::intact_envelope(&group.items, &WIRE)
            && group.items.iter().all(opens)
        {
            for item in &group.items {
                self.ids.record_item(item);
                draft.fates.push(draft::kept_fate(item));
            }
            return Some(envelope.json.clone());
        }
        let mut blocks = Vec::with_capacity(group.items.len());
        let mut answers = Vec::new();
        for item in &group.items {
            let (block, fate) = self.block(draft, item, prefix.as_ref());
            // Tool results must come first in their message; otherwise the API does not match them.
            let list =
                if matches!(item.body, Body::Result(_)) { &mut answers } else { &mut blocks };
            list.extend(block);
            draft.fates.push(fate);
        }
        answers.extend(blocks);
        if answers.is_empty() {
            return None;
        }
        let content = json::array_of(&answers);
        let envelope =
            group.items.first().and_then(|item| item.native_on(&WIRE)?.envelope.as_ref());
        Some(match envelope {
            Some(envelope) => draft::with_member(&envelope.json, "content", content),
            None => object! { "role": role_name(group.speaker), "content": content },
        })
    }

    /// Encodes an Item as a content block and returns its Fate.
    fn block(
        &mut self,
        draft: &mut Draft<'_>,
        item: &Item,
        prefix: Option<&Digest>,
    ) -> (Option<Json>, Fate) {
        if let Some(native) = item.native_on(&WIRE) {
            return self.native_block(item, native, prefix);
        }
        draft.warn_about_cache_markers(item.native.as_ref());
        let target = &self.call.target;
        let seals_why = seal_policy::elision_reason(item, target);
        let sent = |block: Json| (Some(block), cross_wire::sent_fate(item, seals_why));
        let omitted = |why| (None, draft::elided_fate(item, why));
        match &item.body {
            Body::Text(text) | Body::Summary { text, .. } if text.trim().is_empty() => {
                omitted(ElisionReason::NotOnThisWire)
            }
            Body::Text(text) | Body::Summary { text, .. } => sent(text_block(text)),
            Body::Media(media) => match cross_wire::media(draft, media_block(media, target)) {
                Some(block) => sent(block),
                None => omitted(ElisionReason::NotOnThisWire),
            },
            Body::Thought(_) if item.origin.is_some() => omitted(seals_why),
            Body::Thought(thought) => cross_wire::thought(
                draft,
                self.call,
                (item, thought),
                &WIRE,
                caller_part,
                text_block,
            ),
            Body::Call(call) => {
                let id = self.ids.assign(&call.id);
                sent(object! {
                    "type": "tool_use", "id": id, "name": call.name,
                    "input": cross_wire::arguments(&call.args),
                })
            }
            Body::Result(result) => sent(self.result_block(draft, result)),
            Body::Hosted(_) | Body::Compaction => omitted(seals_why),
            Body::Unknown => (None, cross_wire::unsupported_fate(item, seals_why)),
        }
    }

    /// Encodes a block that came from this wire. A thought is sent whole or not at all; a text may
    /// be sent without its citations.
    fn native_block(
        &mut self,
        item: &Item,
        native: &NativePart,
        prefix: Option<&Digest>,
    ) -> (Option<Json>, Fate) {
        let target = &self.call.target;
        let seals = seal_policy::seals(item, target, prefix);
        let is_string = native.json.bytes().first() == Some(&b'"');
        let block = match native.side {
            Direction::Request if is_string => object! { "type": "text", "text": native.json },
            Direction::Request => native.json.clone(),
            Direction::Response => wire::project(&native.json),
        };
        let is_empty_message = native.envelope.as_ref().is_some_and(|e| e.json == native.json);
        if is_empty_message && !is_string {
            return (None, draft::elided_fate(item, ElisionReason::NotOnThisWire));
        }
        let refusal = seal_policy::refusal(&seals);
        let why = match (&item.body, refusal) {
            (Body::Thought(thought), _) if !thought.whole => Some(ElisionReason::Cut),
            (Body::Thought(_), None) if seals.is_empty() => {
                contract::unsigned_elision(item, target)
            }
            (Body::Text(text), Some(why)) => {
                let fate = draft::reshaped_fate(item, ReshapeKind::Flattened, why);
                return (Some(text_block(text)), fate);
            }
            (_, refusal) => refusal,
        };
        if let Some(why) = why {
            return (None, draft::elided_fate(item, why));
        }
        self.ids.record_item(item);
        (Some(block), Fate { item: item.id.clone(), visible: Disposition::Kept, seals })
    }

    fn result_block(&self, draft: &mut Draft<'_>, result: &ToolResult) -> Json {
        let id = self.ids.result_id(&result.call);
        let target = &self.call.target;
        let mut parts = Vec::new();
        for part in &result.parts {
            parts.extend(match part {
                Part::Text(text) => Some(text_block(text)),
                Part::Value(value) => Some(text_block(value.as_str())),
                Part::Media(media) => cross_wire::media(draft, media_block(media, target)),
                Part::Unknown(wire, json) => cross_wire::native_part_or_warn(draft, wire, json),
            });
        }
        let content = match result.parts.as_slice() {
            [Part::Text(text)] => json::string(text),
            _ => json::array_of(&parts),
        };
        let is_error = (result.outcome != Outcome::Ok).then_some(true);
        object! {
            "type": "tool_result", "tool_use_id": id, "content": content, "is_error": is_error,
        }
    }
}

fn speaker(call: &Call, item: &Item) -> Role {
    if item.role == Role::System && item.native_on(&WIRE).is_some() {
        Role::System
    } else {
        seal_policy::speaker(call, item, &WIRE)
    }
}

fn tool_declaration(tool: &Tool) -> Json {
    let schema = tool.schema.clone().unwrap_or_else(|| object! { "type": "object" });
    object! { "name": tool.name, "description": tool.description, "input_schema": schema }
}

fn text_block(text: &str) -> Json {
    object! { "type": "text", "text": text }
}

fn media_block(media: &Media, target: &Target) -> Option<Json> {
    let kind_of = |mime: &str| match mime {
        "image/png" | "image/jpeg" | "image/gif" | "image/webp" => Some("image"),
        "application/pdf" => Some("document"),
        _ => None,
    };
    match media {
        Media::Inline { mime, base64 } => {
            let data = std::str::from_utf8(base64).ok()?;
            let kind = kind_of(mime)?;
            Some(object! {
                "type": kind, "source": { "type": "base64", "media_type": mime, "data": data },
            })
        }
        Media::Remote { mime, uri, owner: None } => {
            let kind = mime.as_deref().map_or(Some("image"), kind_of)?;
            Some(object! { "type": kind, "source": { "type": "url", "url": uri } })
        }
        Media::Remote { mime, uri, owner: Some(owner) } => {
            let kind = mime.as_deref().map_or(Some("document"), kind_of)?;
            let is_own = owner.provider == target.origin.provider;
            is_own.then(|| object! { "type": kind, "source": { "type": "file", "file_id": uri } })
        }
    }
}

pub(super) fn encode_reply(reply: &Reply) -> Json {
    let content: Vec<Json> = reply.items.iter().filter_map(reply_block).collect();
    let content = json::array_of(&content);
    let extras = events::own_extras(reply, &WIRE);
    if !extras.is_empty() {
        // Anthropic writes `content` after `role`.
        return json::object(|o| put_all_with(o, extras, "role", ("content", &content)));
    }
    let (reason, sequence) = wire::stop_reason(&reply.stop);
    let or_null = |text: Option<&str>| text.map_or_else(Json::null, json::string);
    object! {
        "id": reply.id.as_deref().unwrap_or("msg"), "type": "message", "role": "assistant",
        "model": reply.origin.answered, "content": content, "stop_reason": or_null(reason),
        "stop_sequence": or_null(sequence), "usage": wire::usage_json(&reply.usage),
    }
}

/// Encodes an Item as a response block. A Thought from another wire becomes a `thinking` block with
/// an empty signature.
pub(super) fn reply_block(item: &Item) -> Option<Json> {
    let native = item.native_on(&WIRE).map(|native| native.json.clone());
    native.or_else(|| body_block(&item.body))
}

/// Encodes a response block from an Item's neutral body, without its wire JSON.
pub(super) fn body_block(body: &Body) -> Option<Json> {
    match body {
        Body::Text(text) | Body::Summary { text, .. } => Some(text_block(text)),
        Body::Thought(thought) => Some(object! {
            "type": "thinking", "thinking": thought.content, "signature": "",
        }),
        Body::Call(call) => Some(call_block(call, &call.args)),
        Body::Media(_) | Body::Result(_) | Body::Hosted(_) | Body::Compaction | Body::Unknown => {
            None
        }
    }
}

pub(super) fn call_block(call: &ToolCall, input: &Json) -> Json {
    let id = call.wire_id.as_ref().unwrap_or(&call.id.0);
    object! { "type": "tool_use", "id": id, "name": call.name, "input": input }
}
