//! Encodes Replies as whole responses.

use throughline_core::{Body, Item, Origin, Reply};
use throughline_json::{self as json, Json};

use crate::draft;
use crate::responses::encode::{
    WIRE, arguments, call_type_and_member, envelope, group_elements, intact_element,
};
use crate::responses::wire::{self, CONTENT};

/// Encodes a whole response.
pub(in crate::responses) fn encode_reply(reply: &Reply) -> Json {
    let output = json::array(|a| {
        for element in outputs(reply) {
            a.raw(&element);
        }
    });
    let own = (reply.origin.wire == WIRE).then_some(&reply.extras);
    let Some(extras) = own.filter(|extras| !extras.is_empty()) else {
        let (status, reason) = wire::status_and_reason(&reply.stop);
        let id = shown_id(reply.id.as_deref(), &reply.origin);
        let rest = members! { "output": output, "usage": wire::usage_json(&reply.usage) };
        return skeleton(id, &reply.origin.answered, (status, reason), rest);
    };
    json::object(|o| {
        // OpenAI writes `output` after `model`.
        let has_model = extras.iter().any(|(key, _)| &**key == "model");
        for (key, value) in extras {
            o.raw(key, value);
            if &**key == "model" {
                o.raw("output", &output);
            }
        }
        if !has_model {
            o.raw("output", &output);
        }
    })
}

/// Returns the id to show; clients of this wire require one even for replies from other wires.
pub(in crate::responses) fn shown_id<'a>(id: Option<&'a str>, origin: &Origin) -> Option<&'a str> {
    id.or((origin.wire != WIRE).then_some("resp"))
}

/// Writes the members of every response; `fill` adds the output and usage.
pub(in crate::responses) fn skeleton(
    id: Option<&str>,
    model: &str,
    (status, reason): (&str, Option<&str>),
    fill: impl FnOnce(&mut json::Object<'_>),
) -> Json {
    json::object(|o| {
        o.maybe_string("id", id).string("object", "response");
        o.number("created_at", 0).string("status", status).null("error");
        match reason {
            Some(reason) => o.object("incomplete_details", members! { "reason": reason }),
            None => o.null("incomplete_details"),
        };
        o.null("instructions").object("metadata", |_| {}).string("model", model);
        o.bool("parallel_tool_calls", true).null("temperature").string("tool_choice", "auto");
        o.array("tools", |_| {}).null("top_p");
        fill(o);
    })
}

fn outputs(reply: &Reply) -> Vec<Json> {
    let mut outputs: Vec<Json> = Vec::new();
    for group in group_elements(&reply.items) {
        let made = |at: usize, kind: &str| generated_id(kind, reply.id.as_deref(), at);
        if group.iter().any(|item| item.native_on(&WIRE).is_some()) {
            let at = outputs.len();
            outputs.extend(output(&group, |kind| made(at, kind)));
            continue;
        }
        // Parts of another wire's message become separate messages, as in a stream.
        for item in group {
            let at = outputs.len();
            outputs.extend(output(&[item], |kind| made(at, kind)));
        }
    }
    outputs
}

/// Returns a generated id for an element of another wire, identical in streams and whole responses.
pub(in crate::responses) fn generated_id(kind: &str, reply: Option<&str>, at: usize) -> String {
    format!("{kind}_{}_{at}", reply.unwrap_or("reply"))
}

/// Encodes an element of a response. Thoughts of other wires are shown without Seals.
pub(in crate::responses) fn output(group: &[&Item], made: impl Fn(&str) -> String) -> Option<Json> {
    if let Some((json, _)) = intact_element(group) {
        return Some(with_id(json, made));
    }
    let first = group.first()?;
    if let Some(native) = group.iter().find_map(|item| item.native_on(&WIRE)) {
        if native.slot != CONTENT {
            return Some(with_id(&native.json, made));
        }
        let base = group.iter().find_map(|item| envelope(item))?;
        let said = json::array(|a| {
            for item in group {
                match (item.native_on(&WIRE), item.visible()) {
                    (Some(native), _) => a.raw(&native.json),
                    (None, Some(text)) => a.raw(&output_text(text)),
                    (None, None) => a,
                };
            }
        });
        return Some(draft::with_member(&base.json, CONTENT, said));
    }
    match &first.body {
        Body::Text(text) | Body::Summary { text, .. } => Some(object! {
            "id": made("msg"), "type": "message", "status": "completed", "role": "assistant",
            (CONTENT): [output_text(text)],
        }),
        Body::Thought(thought) => Some(json::object(|o| {
            o.string("id", &made("rs")).string("type", "reasoning").array("summary", |a| {
                if !thought.content.is_empty() {
                    a.object(members! { "type": "summary_text", "text": thought.content });
                }
            });
        })),
        Body::Call(call) => Some(json::object(|o| {
            let (kind, key) = call_type_and_member(call);
            let prefix = if key == "input" { "ctc" } else { "fc" };
            o.string("id", &made(prefix)).string("type", kind).string("status", "completed");
            o.string("call_id", &call.id.0).string("name", &call.name);
            o.string(key, &arguments(call));
        })),
        Body::Media(_) | Body::Result(_) | Body::Hosted(_) | Body::Compaction | Body::Unknown => {
            None
        }
    }
}

/// Adds an id to a reasoning element that has none, because clients rely on it.
fn with_id(element: &Json, made: impl Fn(&str) -> String) -> Json {
    let tree = element.tree();
    let root = tree.root();
    if root.present("id").is_some() || root.name_of("type").as_deref() != Some("reasoning") {
        return element.clone();
    }
    draft::with_member(element, "id", json::string(&made("rs")))
}

fn output_text(text: &str) -> Json {
    object! { "type": "output_text", "text": text, "annotations": [] }
}
