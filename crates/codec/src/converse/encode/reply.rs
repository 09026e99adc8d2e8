//! Encodes Replies as whole responses.

use throughline_core::{Body, Item, Reply, StopReason};
use throughline_json::{self as json, Json, Node};

use crate::converse::encode::blocks::text_block;
use crate::converse::{WIRE, wire};
use crate::object::put_all;
use crate::{draft, events};

pub(in crate::converse) fn encode_reply(reply: &Reply) -> Json {
    let content: Vec<Json> = reply.items.iter().filter_map(block).collect();
    let content = json::array_of(&content);
    let extras = events::own_extras(reply, &WIRE);
    let extra = |key: &str| extras.iter().find(|(name, _)| &**name == key).map(|(_, value)| value);
    let output = extra("output");
    let message = output.and_then(|output| output.tree().root().get("message").map(Node::json));
    let message = match &message {
        Some(message) => draft::with_member(message, "content", content),
        None => object! { "role": "assistant", "content": content },
    };
    let output = draft::edit_object(output, &[("message", Some(message))]);
    json::object(|o| {
        o.raw("output", &output);
        if extra("stopReason").is_none() {
            o.string("stopReason", wire::stop_reason(&reply.stop));
            write_stop_sequence(o, reply);
        }
        write_metadata(o, reply, &["output"]);
    })
}

/// Writes the usage, metrics and extras of a reply, except the members in `but`.
pub(in crate::converse) fn write_metadata(o: &mut json::Object<'_>, reply: &Reply, but: &[&str]) {
    let extras = events::own_extras(reply, &WIRE);
    let lacks = |key: &str| !extras.iter().any(|(name, _)| &**name == key);
    if lacks("usage") {
        o.raw("usage", &wire::usage_json(&reply.usage));
    }
    if lacks("metrics") {
        // Clients expect metrics, which replies from other wires do not have.
        o.object("metrics", members! { "latencyMs": 0 });
    }
    put_all(o, extras.iter().filter(|(key, _)| !but.contains(&&**key)));
}

/// Writes the stop sequence of a reply from another wire into `additionalModelResponseFields`,
/// because Converse has no member for a stop sequence.
pub(in crate::converse) fn write_stop_sequence(o: &mut json::Object<'_>, reply: &Reply) {
    if let StopReason::Sequence(Some(sequence)) = &reply.stop {
        o.object("additionalModelResponseFields", members! { "stop_sequence": sequence });
    }
}

/// Encodes an Item as a response block. Thoughts from other wires are shown to the client without a
/// signature.
pub(in crate::converse) fn block(item: &Item) -> Option<Json> {
    if let Some(native) = item.native_on(&WIRE) {
        return Some(native.json.clone());
    }
    match &item.body {
        Body::Text(text) | Body::Summary { text, .. } => Some(text_block(text)),
        Body::Thought(thought) => Some(object! {
            "reasoningContent": { "reasoningText": { "text": thought.content } },
        }),
        Body::Call(call) => {
            let id = call.wire_id.as_ref().unwrap_or(&call.id.0);
            let input = &call.args;
            Some(object! { "toolUse": { "toolUseId": id, "name": call.name, "input": input } })
        }
        Body::Media(_) | Body::Result(_) | Body::Hosted(_) | Body::Compaction | Body::Unknown => {
            None
        }
    }
}
