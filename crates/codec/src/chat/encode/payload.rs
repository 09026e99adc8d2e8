//! The payload of a caller's thought, in the words of the channel in which an endpoint reads reasoning.

use std::borrow::Cow;

use throughline_core::{Channel, Json, Node, json};

use crate::chat::decode::message::chunk_text;
use crate::chat::encode::message::Message;
use crate::chat::slot::{self, FIELDS};

/// Adds a payload: a text, a detail or a list of them, a chunk, or members of a message. Says whether the channel takes
/// anything of it. What is not reasoning is not a thought's to say.
pub(super) fn add(message: &mut Message, payload: &Json, channel: Channel) -> bool {
    let tree = payload.tree();
    let root = tree.root();
    let text = |field: Option<&str>| readable(root, field).filter(|text| !text.is_empty());
    let field = |message: &mut Message, field: &'static str| match text(Some(field)) {
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
        Channel::Chunks if is_chunk(root) => {
            message.add(&slot::at(slot::CONTENT, 0), payload.clone(), "");
            true
        }
        Channel::Chunks => text(None).is_some_and(|text| {
            message.add(&slot::at(slot::CONTENT, 0), chunk(&text), &text);
            true
        }),
        // A text that closes the tag itself would go on as the answer.
        Channel::Tags => text(None).filter(|text| !text.contains("</think")).is_some_and(|text| {
            message.add(slot::CONTENT, json::string(&format!("<think>{text}</think>")), "");
            true
        }),
        Channel::AsEmitted => as_it_is(message, root, "reasoning_content"),
        Channel::Details => as_it_is(message, root, "reasoning"),
    }
}

/// Adds all that is reasoning in whichever dialect, a bare text in `field`.
fn as_it_is(message: &mut Message, root: Node<'_>, field: &'static str) -> bool {
    let detail = slot::at(slot::DETAILS, 0);
    let mut has_added = false;
    let mut put = |slot: &str, part: Node<'_>| {
        message.add(slot, part.json(), &part.text().unwrap_or_default());
        has_added = true;
    };
    if root.is_string() {
        put(field, root);
    } else if is_detail(root) {
        put(&detail, root);
    } else if is_chunk(root) {
        put(&slot::at(slot::CONTENT, 0), root);
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

/// What can be read of a payload; of several fields that say it, the endpoint's own.
fn readable(root: Node<'_>, field: Option<&str>) -> Option<String> {
    if let Some(text) = root.text() {
        return Some(text.into_owned());
    }
    if is_detail(root) {
        return of_detail(root).map(Cow::into_owned);
    }
    if is_chunk(root) {
        return Some(chunk_text(root));
    }
    if root.is_array() {
        return Some(root.elements().filter_map(of_detail).collect());
    }
    let known = field.into_iter().chain(FIELDS).find_map(|field| root.text_of(field));
    let details = || root.get(slot::DETAILS).and_then(|details| readable(details, None));
    known.map(Cow::into_owned).or_else(details)
}

fn of_detail(detail: Node<'_>) -> Option<Cow<'_, str>> {
    detail.text_of("text").or_else(|| detail.text_of("summary"))
}

fn is_detail(node: Node<'_>) -> bool {
    node.text_of("type").is_some_and(|kind| kind.starts_with("reasoning."))
}

fn is_chunk(node: Node<'_>) -> bool {
    node.get("type").is_some_and(|kind| kind.is("thinking"))
}

fn chunk(text: &str) -> Json {
    json::object(|o| {
        o.string("type", "thinking").array("thinking", |a| {
            a.object(|o| {
                o.string("type", "text").string("text", text);
            });
        });
    })
}
