//! Encodes a Reply as a whole response.

use throughline_core::{Body, Item, Reply};
use throughline_json::{self as json, Json, Name};

use crate::chat::decode::{CHOICE, CHOICE_MESSAGE};
use crate::chat::encode::custom;
use crate::chat::encode::message::ChatMessageBuilder;
use crate::chat::{WIRE, slot, wire};
use crate::events;
use crate::object::put_all_with;

/// The strings that repeat a Thought from another wire. Clients of DeepSeek and vLLM read
/// `reasoning_content`; clients of OpenRouter, Groq and Ollama read `reasoning`.
pub(in crate::chat) const FOREIGN_FIELDS: [&str; 2] = ["reasoning_content", "reasoning"];

/// Encodes a whole response. A reply that came from this wire keeps its original shape.
pub(in crate::chat) fn encode_reply(reply: &Reply) -> Json {
    let extras = events::own_extras(reply, &WIRE);
    let is_native = extras.iter().any(|(key, _)| &**key == "done");
    if is_native { native_response(reply, extras) } else { completion(reply, extras) }
}

fn completion(reply: &Reply, extras: &[(Name, Json)]) -> Json {
    let message = message(reply, extras, CHOICE_MESSAGE);
    let choices = json::array(|a| {
        a.object(|o| {
            let others: Vec<_> = extras_below(extras, CHOICE).collect();
            if !others.iter().any(|(key, _)| *key == "index") {
                o.number("index", 0);
            }
            o.raw("message", &message);
            if !others.iter().any(|(key, _)| *key == "finish_reason") {
                let reason = wire::finish_reason(&reply.stop);
                o.raw("finish_reason", &reason.map_or_else(Json::null, json::string));
            }
            for (key, value) in others {
                o.raw(key, value);
            }
        });
        for (_, other) in extras_below(extras, "/choices").filter(|(key, _)| *key != "0") {
            a.raw(other);
        }
    });
    let mut top = extras.iter().filter(|(key, _)| !key.starts_with('/')).peekable();
    if top.peek().is_some() {
        // OpenAI writes `choices` after `model`.
        return json::object(|o| put_all_with(o, top, "model", ("choices", &choices)));
    }
    object! {
        "id": reply.id.as_deref().unwrap_or("chatcmpl"), "object": "chat.completion", "created": 0,
        "model": reply.origin.answered, "choices": choices,
        "usage": wire::usage_json(&reply.usage),
    }
}

/// Builds a response in the format of Ollama's native API.
fn native_response(reply: &Reply, extras: &[(Name, Json)]) -> Json {
    let message = message(reply, extras, "/message");
    json::object(|o| {
        let mut is_written = false;
        for (key, value) in extras.iter().filter(|(key, _)| !key.starts_with('/')) {
            if &**key == "done" && !std::mem::replace(&mut is_written, true) {
                o.raw("message", &message);
            }
            o.raw(key, value);
        }
    })
}

/// Iterates over the extras directly below `pointer`, keyed by their last path segment.
fn extras_below<'e>(
    extras: &'e [(Name, Json)],
    pointer: &'static str,
) -> impl Iterator<Item = (&'e str, &'e Json)> {
    extras.iter().filter_map(move |(key, value)| {
        let key = key.strip_prefix(pointer)?.strip_prefix('/')?;
        (!key.contains('/')).then_some((key, value))
    })
}

fn message(reply: &Reply, extras: &[(Name, Json)], pointer: &'static str) -> Json {
    let mut gathered = ChatMessageBuilder::default();
    let mut thoughts = 0;
    for item in &reply.items {
        if let Some((slot, part)) = reply_part(item, thoughts) {
            gathered.add(&slot, part, item.visible().unwrap_or_default());
        }
        thoughts += u64::from(matches!(item.body, Body::Thought(_)));
    }
    let mut members = gathered.members(false);
    for (key, value) in extras_below(extras, pointer) {
        match members.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) if known.is_none() || key == slot::CONTENT => {
                *known = Some(value.clone());
            }
            Some(_) => {}
            None => members.push((key.to_owned().into(), Some(value.clone()))),
        }
    }
    super::message::new_message("assistant", &members)
}

/// Returns an Item's slot and response JSON. A Thought from another wire is written without its
/// Seals, as the detail number `thoughts` and in the reasoning strings, because clients of this
/// wire differ in the member that they read.
pub(in crate::chat) fn reply_part(item: &Item, thoughts: u64) -> Option<(String, Json)> {
    if let Some(native) = item.native_on(&WIRE) {
        return Some((native.slot.to_string(), native.json.clone()));
    }
    match &item.body {
        Body::Text(text) | Body::Summary { text, .. } => {
            Some((slot::CONTENT.to_owned(), json::string(text)))
        }
        Body::Thought(thought) if !thought.content.is_empty() => {
            let detail = object! {
                "type": "reasoning.text", "text": thought.content, "index": thoughts,
            };
            Some((format!("{}/{thoughts}+{}", slot::DETAILS, FOREIGN_FIELDS.join("+")), detail))
        }
        Body::Call(call) => {
            let write = |o: &mut json::Object<'_>| {
                custom::put_call(o.string("id", &call.id.0), call, call.custom);
            };
            Some((slot::list_slot(slot::CALLS, 0).into_owned(), json::object(write)))
        }
        _ => None,
    }
}
