//! Decodes requests and whole responses.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{
    Body, Call, Envelope, Extra, Failure, Item, NativePart, Reply, Request, Tool,
};
use throughline_json::{Json, Name, Node, Tree};

use crate::chat::decode::message::read_message;
use crate::chat::{WIRE, slot, wire};
use crate::item_reader::{ItemReader, ReusedMessages, named_member, read_tools};
use crate::{CodecError, DecodeContext, draft};

pub(super) use crate::chat::decode::settings::{choice as choice_of, reasoning as reasoning_of};

mod media;
pub(super) mod message;
mod settings;

/// Decodes a request whose parsed body is `tree`.
pub(super) fn decode_request(
    request: &Request,
    tree: &Tree,
    context: &DecodeContext,
) -> Result<Call, CodecError> {
    let root = tree.root();
    let shape = |path: &str, problem| CodecError::shape(WIRE, "request", path, problem);
    let messages = root.get("messages").filter(|messages| messages.is_array());
    let messages = messages.ok_or_else(|| shape("messages", "must be a list of messages"))?;
    let mut reader = ItemReader::for_request(context, WIRE);
    let mut call = Call::new(context.target.clone());
    call.items.reserve(2 * messages.elements().count());
    let list = ("messages", messages);
    let known = reader.reuse_items(tree, list, ReusedMessages::All, &mut call.items);
    for (index, message) in messages.elements().enumerate().skip(known) {
        if !message.is_object() {
            return Err(shape(&format!("messages[{index}]"), "must be an object"));
        }
        let start = call.items.len();
        read_message(&mut reader, index, message, &mut call.items);
        let cut = call.items.get_mut(start..).unwrap_or_default();
        let envelope = Arc::new(Envelope { json: message.json(), parts: cut.len() });
        for native in cut.iter_mut().filter_map(|item| item.native.as_mut()) {
            native.envelope = Some(Arc::clone(&envelope));
        }
    }
    call.tools = read_tools(root.get("tools"), &WIRE, read_tool);
    let is_native = wire::uses_ollama_api(&context.target);
    // Ollama's native API streams unless the request disables it.
    call.stream = root.get("stream").and_then(Node::bool).unwrap_or(is_native);
    call.settings = settings::decode_settings(root, is_native);
    call.extras = request_extras(root, is_native);
    draft::record_source(&mut call, WIRE, request, tree);
    Ok(call)
}

/// Collects the members that are not decoded into a field of the Call. If a name is repeated, its
/// last value counts.
fn request_extras(root: Node<'_>, is_native: bool) -> Vec<Extra> {
    let mut extras: Vec<Extra> = Vec::new();
    let mut places: HashMap<Name, usize> = HashMap::new();
    for (key, value) in root.members() {
        if settings::is_represented(key, value, is_native) {
            continue;
        }
        let extra =
            Extra { wire: Some(WIRE), key: key.name().unwrap_or_default(), value: value.json() };
        match places.get(&extra.key).and_then(|place| extras.get_mut(*place)) {
            Some(known) => *known = extra,
            None => {
                places.insert(Name::clone(&extra.key), extras.len());
                extras.push(extra);
            }
        }
    }
    extras
}

fn read_tool(node: Node<'_>) -> Tool {
    let kind = node.name_of("type").unwrap_or_default();
    let inner = node.get("function").or_else(|| node.get("custom"));
    Tool {
        name: inner.and_then(|inner| inner.name_of("name")).unwrap_or(kind),
        description: inner.and_then(|inner| inner.name_of("description")),
        schema: inner.and_then(|inner| inner.present("parameters")).map(Node::json),
        hosted: inner.is_none(),
        native: None,
    }
}

pub(super) fn decode_reply(body: &Bytes, context: &DecodeContext) -> Result<Reply, CodecError> {
    let tree = Tree::parse(body.clone())?;
    let root = tree.root();
    let is_native = wire::is_ollama_response(root);
    let choices = root.get("choices").filter(|choices| choices.is_array());
    if is_failure(root) || choices.is_none() && !is_native {
        let failure = decode_failure(root, body);
        let has_message = !failure.message.is_empty() || is_failure(root);
        return Err(if has_message {
            CodecError::Provider(Box::new(failure))
        } else {
            CodecError::shape(WIRE, "response", "choices", "must be a list of choices")
        });
    }
    let choice = choices.and_then(first_choice);
    let message = choice.unwrap_or(root).get("message");
    let message = message.filter(|message| message.is_object()).ok_or_else(|| {
        CodecError::shape(WIRE, "response", "choices[0].message", "must be an object")
    })?;
    let origin = context.origin(root.text_of("model").as_deref(), root.name_of("provider"));
    let id = root.name_of("id").filter(|id| !id.is_empty());
    let mut reader = ItemReader::for_reply(context, WIRE, &origin, id.as_ref());
    let mut items = Vec::new();
    read_message(&mut reader, 0, message, &mut items);
    // An empty message is decoded as one Item for the whole message; drop that Item.
    let is_whole_message = |native: &NativePart| native.slot.is_empty();
    items.retain(|item| {
        !(matches!(item.body, Body::Unknown) && item.native.as_ref().is_some_and(is_whole_message))
    });
    let has_calls = items.iter().any(|item| matches!(item.body, Body::Call(_)));
    let (reason, sequence) = match choice {
        Some(choice) => (choice.text_of("finish_reason"), choice.name_of("stop_reason")),
        None => (root.text_of("done_reason"), None),
    };
    let stop = wire::decode_stop(reason.as_deref(), sequence, has_calls);
    let counts = if is_native { Some(root) } else { root.present("usage") };
    let usage = counts.map(wire::usage).unwrap_or_default();
    let extras = reply_extras(root, choice, message, &items);
    Ok(Reply { id, items, stop, usage, origin, extras })
}

/// Selects the choice with index 0, or else the first choice.
fn first_choice(choices: Node<'_>) -> Option<Node<'_>> {
    let is_first = |choice: &Node<'_>| choice.get("index").and_then(Node::u64) == Some(0);
    choices.elements().find(is_first).or_else(|| choices.elements().next())
}

/// Collects the response members that are not decoded into Items. Top-level members are keyed by
/// name, nested members by JSON pointer.
fn reply_extras(
    root: Node<'_>,
    choice: Option<Node<'_>>,
    message: Node<'_>,
    items: &[Item],
) -> Vec<(Name, Json)> {
    let members = root.members().filter(|(key, _)| !key.is("choices") && !key.is("message"));
    let mut extras: Vec<_> = members.map(named_member).collect();
    let mut note = |pointer: &str, key: Node<'_>, value: Node<'_>| {
        let key = key.text().unwrap_or_default();
        extras.push((Name::from(format!("{pointer}/{key}")), value.json()));
    };
    let is_represented = |key: &str| {
        let slots = items.iter().filter_map(|item| item.native.as_ref());
        key == "role"
            || slots.flat_map(|native| slot::members(&native.slot)).any(|member| member == key)
    };
    let pointer = if choice.is_some() { CHOICE_MESSAGE } else { "/message" };
    for (key, value) in message.members() {
        if !is_represented(&key.text().unwrap_or_default()) {
            note(pointer, key, value);
        }
    }
    if let Some(choice) = choice {
        for (key, value) in choice.members().filter(|(key, _)| !key.is("message")) {
            note(CHOICE, key, value);
        }
        let others = root.get("choices").into_iter().flat_map(Node::elements);
        let others = others.filter(|other| other.range() != choice.range());
        for (position, other) in others.enumerate() {
            extras.push((Name::from(format!("/choices/{}", position + 1)), other.json()));
        }
    }
    extras
}

/// JSON pointer to the selected choice in a response.
pub(super) const CHOICE: &str = "/choices/0";
/// JSON pointer to the message of the selected choice in a response.
pub(super) const CHOICE_MESSAGE: &str = "/choices/0/message";

/// Returns whether a document is a provider's error body.
pub(super) fn is_failure(root: Node<'_>) -> bool {
    root.present("error").is_some() || root.get("object").is_some_and(|object| object.is("error"))
}

/// Reads a provider's error body, which is a wrapped object, a bare object or a string.
pub(super) fn decode_failure(root: Node<'_>, body: &Bytes) -> Failure {
    let error = root.present("error").unwrap_or(root);
    let message = error.name().or_else(|| error.name_of("message"));
    let message = message.or_else(|| root.name_of("message"));
    let detail = || root.present("detail").map(|detail| Name::from(detail.json().as_str()));
    let value_of = |key: &str| {
        let value = error.present(key)?;
        value.name().or_else(|| value.number().map(Name::from))
    };
    let status = error.get("code").and_then(Node::u64).and_then(|code| u16::try_from(code).ok());
    Failure {
        status: status.filter(|code| (400..600).contains(code)),
        kind: value_of("type").or_else(|| value_of("code")),
        message: message.or_else(detail).unwrap_or_default(),
        body: body.clone(),
    }
}
