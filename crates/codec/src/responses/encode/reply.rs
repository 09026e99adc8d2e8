//! Encodes Replies as whole responses.

use throughline_core::{Body, Item, Origin, Reply};
use throughline_json::{self as json, Json};

use crate::object::put_all_with;
use crate::responses::WIRE;
use crate::responses::encode::{
    arguments, call_type_and_member, envelope, group_elements, intact_element,
};
use crate::responses::wire::{self, CONTENT};
use crate::{draft, events};

pub(in crate::responses) fn encode_reply(reply: &Reply) -> Json {
    let output = json::array_of(&outputs(reply));
    let extras = events::own_extras(reply, &WIRE);
    if !extras.is_empty() {
        // OpenAI writes `output` after `model`.
        return json::object(|o| put_all_with(o, extras, "model", ("output", &output)));
    }
    let id = shown_id(reply.id.as_deref(), &reply.origin);
    let rest = members! { "output": output, "usage": wire::usage_json(&reply.usage) };
    skeleton(id, &reply.origin.answered, wire::status_and_reason(&reply.stop), rest)
}

/// Returns the response id. Clients of this wire require an id even for replies from other wires.
pub(in crate::responses) fn shown_id<'a>(id: Option<&'a str>, origin: &Origin) -> Option<&'a str> {
    id.or((origin.wire != WIRE).then_some("resp"))
}

/// Writes the members that every response has; `fill` adds the output and usage.
pub(in crate::responses) fn skeleton(
    id: Option<&str>,
    model: &str,
    (status, reason): (&str, Option<&str>),
    fill: impl FnOnce(&mut json::Object<'_>),
) -> Json {
    let details = reason.map_or_else(Json::null, |reason| object! { "reason": reason });
    json::object(|o| {
        put_members! { o
            "id": id, "object": "response", "created_at": 0, "status": status, "error": null,
            "incomplete_details": details, "instructions": null, "metadata": {}, "model": model,
            "parallel_tool_calls": true, "temperature": null, "tool_choice": "auto", "tools": [],
            "top_p": null
        }
        fill(o);
    })
}

fn outputs(reply: &Reply) -> Vec<Json> {
    let mut outputs: Vec<Json> = Vec::new();
    for group in group_elements(&reply.items) {
        let new_id = |at: usize, kind: &str| generated_id(kind, reply.id.as_deref(), at);
        if group.iter().any(|item| item.native_on(&WIRE).is_some()) {
            let at = outputs.len();
            outputs.extend(output(&group, |kind| new_id(at, kind)));
            continue;
        }
        // Parts of a message from another wire become separate messages, as in a stream.
        for item in group {
            let at = outputs.len();
            outputs.extend(output(&[item], |kind| new_id(at, kind)));
        }
    }
    outputs
}

/// Generates the id of an element from another wire. The same element gets the same id in streamed
/// and whole responses.
pub(in crate::responses) fn generated_id(kind: &str, reply: Option<&str>, at: usize) -> String {
    format!("{kind}_{}_{at}", reply.unwrap_or("reply"))
}

/// Encodes an element of a response. Thoughts from other wires are written without Seals.
pub(in crate::responses) fn output(
    group: &[&Item],
    new_id: impl Fn(&str) -> String,
) -> Option<Json> {
    if let Some((json, _)) = intact_element(group) {
        return Some(with_id(json, new_id));
    }
    let first = group.first()?;
    if let Some(native) = group.iter().find_map(|item| item.native_on(&WIRE)) {
        if native.slot != CONTENT {
            return Some(with_id(&native.json, new_id));
        }
        let base = group.iter().find_map(|item| envelope(item))?;
        let content = json::array(|a| {
            for item in group {
                match (item.native_on(&WIRE), item.visible()) {
                    (Some(native), _) => a.raw(&native.json),
                    (None, Some(text)) => a.raw(&output_text(text)),
                    (None, None) => a,
                };
            }
        });
        return Some(draft::with_member(&base.json, CONTENT, content));
    }
    match &first.body {
        Body::Text(text) | Body::Summary { text, .. } => Some(object! {
            "id": new_id("msg"), "type": "message", "status": "completed", "role": "assistant",
            (CONTENT): [output_text(text)],
        }),
        Body::Thought(thought) => Some(json::object(|o| {
            o.string("id", &new_id("rs")).string("type", "reasoning").array("summary", |a| {
                if !thought.content.is_empty() {
                    a.object(members! { "type": "summary_text", "text": thought.content });
                }
            });
        })),
        Body::Call(call) => {
            let (kind, key) = call_type_and_member(call);
            Some(object! {
                "id": new_id(if key == "input" { "ctc" } else { "fc" }), "type": kind,
                "status": "completed", "call_id": call.id.0, "name": call.name,
                (key): arguments(call),
            })
        }
        Body::Media(_) | Body::Result(_) | Body::Hosted(_) | Body::Compaction | Body::Unknown => {
            None
        }
    }
}

/// Adds an id to a reasoning or compaction element that has none, because clients require an id.
fn with_id(element: &Json, new_id: impl Fn(&str) -> String) -> Json {
    let tree = element.tree();
    let root = tree.root();
    let prefix = match root.name_of("type").as_deref() {
        Some("reasoning") => "rs",
        Some(kind) if wire::COMPACTION_TYPES.contains(&kind) => "cmp",
        Some(_) | None => return element.clone(),
    };
    if root.present("id").is_some() {
        return element.clone();
    }
    draft::with_member(element, "id", json::string(&new_id(prefix)))
}

fn output_text(text: &str) -> Json {
    object! { "type": "output_text", "text": text, "annotations": [] }
}
