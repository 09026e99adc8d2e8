//! Encodes the payload of a Thought created by the caller, for the endpoint's reasoning channel.

use std::borrow::Cow;

use throughline_core::ReasoningChannel as Channel;
use throughline_json::{self as json, Json, Node};

use crate::chat::decode::message::chunk_text;
use crate::chat::encode::message::ChatMessageBuilder;
use crate::chat::slot::{self, FIELDS};

/// Adds a payload, which is a text, one or more details, a chunk, or message members. Members that
/// are not reasoning are ignored. Returns whether any part of the payload was added.
pub(super) fn add(message: &mut ChatMessageBuilder, payload: &Json, channel: Channel) -> bool {
    let tree = payload.tree();
    let root = tree.root();
    let text = |field: Option<&str>| readable_text(root, field).filter(|text| !text.is_empty());
    let field = |message: &mut ChatMessageBuilder, field: &'static str| match text(Some(field)) {
        Some(text) => {
            message.add(field, json::string(&text), &text);
            true
        }
        None => false,
    };
    match channel {
        Channel::None => false,
        Channel::ReasoningContent => field(message, "reasoning_content"),
        Channel::Reasoning => field(message, "reasoning"),
        Channel::Thinking => field(message, "thinking"),
        Channel::Chunks => text(None).is_some_and(|text| {
            message.add(&slot::list_slot(slot::CONTENT, 0), thinking_chunk(&text), &text);
            true
        }),
        // Reject a text that closes the tag, because the rest would become part of the answer.
        Channel::Tags => text(None).filter(|text| !text.contains("</think")).is_some_and(|text| {
            message.add(slot::CONTENT, json::string(&format!("<think>{text}</think>")), "");
            true
        }),
        Channel::AsEmitted => add_any_dialect(message, root, "reasoning_content"),
        Channel::Details => add_any_dialect(message, root, "reasoning"),
    }
}

/// Adds reasoning in any dialect. A bare text is added to the message field `field`.
fn add_any_dialect(message: &mut ChatMessageBuilder, root: Node<'_>, field: &'static str) -> bool {
    let detail = slot::list_slot(slot::DETAILS, 0);
    if is_chunk(root) {
        // The chunk is built again, so that it cannot be another part of the content.
        let text = chunk_text(root);
        message.add(&slot::list_slot(slot::CONTENT, 0), thinking_chunk(&text), &text);
        return true;
    }
    let mut has_added = false;
    let mut put = |slot: &str, part: Node<'_>| {
        message.add(slot, part.json(), &part.text().unwrap_or_default());
        has_added = true;
    };
    if root.is_string() {
        put(field, root);
    } else if is_detail(root) {
        put(&detail, root);
    } else if root.is_array() {
        root.elements().for_each(|part| put(&detail, part));
    } else {
        for (key, value) in root.members() {
            let known = FIELDS.into_iter().find(|field| key.is(field));
            if let Some(field) = known.filter(|_| value.is_string()) {
                put(field, value);
            } else if key.is(slot::DETAILS) {
                value.elements().for_each(|part| put(&detail, part));
            } else if key.is(slot::EXTRA_CONTENT) && value.is_object() {
                put(slot::EXTRA_CONTENT, value);
            }
        }
    }
    has_added
}

/// Returns the readable text of a payload. If several fields hold text, `field` is preferred.
fn readable_text(root: Node<'_>, field: Option<&str>) -> Option<String> {
    if let Some(text) = root.text() {
        return Some(text.into_owned());
    }
    if is_detail(root) {
        return detail_text(root).map(Cow::into_owned);
    }
    if is_chunk(root) {
        return Some(chunk_text(root));
    }
    if root.is_array() {
        return Some(root.elements().filter_map(detail_text).collect());
    }
    let known = field.into_iter().chain(FIELDS).find_map(|field| root.text_of(field));
    let details = || root.get(slot::DETAILS).and_then(|details| readable_text(details, None));
    known.map(Cow::into_owned).or_else(details)
}

fn detail_text(detail: Node<'_>) -> Option<Cow<'_, str>> {
    detail.text_of("text").or_else(|| detail.text_of("summary"))
}

fn is_detail(node: Node<'_>) -> bool {
    node.text_of("type").is_some_and(|kind| kind.starts_with("reasoning."))
}

fn is_chunk(node: Node<'_>) -> bool {
    node.get("type").is_some_and(|kind| kind.is("thinking"))
}

fn thinking_chunk(text: &str) -> Json {
    object! { "type": "thinking", "thinking": [{ "type": "text", "text": text }] }
}
