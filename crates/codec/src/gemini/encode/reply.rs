//! Encodes whole Replies, and single Items as response parts.

use throughline_core::{Body, Item, Reply};
use throughline_json::{self as json, Json, Name, Node};

use crate::gemini::WIRE;
use crate::gemini::encode::parts::{arguments, text_part};
use crate::gemini::wire::{self, FinishMarker};
use crate::object::{copy_members, put_all};
use crate::{draft, events};

pub(in crate::gemini) fn encode_reply(reply: &Reply) -> Json {
    let parts: Vec<Json> = reply.items.iter().filter_map(response_part).collect();
    let reply_extras = extras(reply);
    json::object(|o| {
        if reply_extras.is_empty() {
            write_chunk(o, reply.id.as_deref(), &reply.origin.answered, Some(reply), &parts);
            return;
        }
        for (key, value) in reply_extras {
            if &**key == "candidates" {
                o.raw(key, &candidates(value, &parts));
            } else {
                o.raw(key, value);
            }
        }
    })
}

fn extras(reply: &Reply) -> &[(Name, Json)] {
    events::own_extras(reply, &WIRE)
}

/// Writes the stored candidates and puts the parts back into the first candidate.
fn candidates(others: &Json, parts: &[Json]) -> Json {
    let tree = others.tree();
    json::array(|a| {
        for (index, candidate) in tree.root().elements().enumerate() {
            if index > 0 || (candidate.get("content").is_none() && parts.is_empty()) {
                a.node(candidate);
                continue;
            }
            let content = candidate.get("content").map(Node::json);
            let mut content = content.unwrap_or_else(|| object! { "role": "model" });
            if !parts.is_empty() {
                content = draft::with_member(&content, "parts", json::array_of(parts));
            }
            a.raw(&draft::with_member(&candidate.json(), "content", content));
        }
    })
}

/// Writes a whole response or one chunk. The last chunk has the finish reason and the usage.
pub(in crate::gemini) fn write_chunk(
    o: &mut json::Object<'_>,
    id: Option<&str>,
    model: &str,
    ended: Option<&Reply>,
    parts: &[Json],
) {
    let ending = ended.map_or(FinishMarker::Open, wire::finish_marker);
    let reply_extras = ended.map(extras).unwrap_or_default();
    let extra = |name: &str| reply_extras.iter().find(|(key, _)| wire::is_spelled(key, name));
    let candidates = extra("candidates").map(|(_, candidates)| candidates.tree());
    let candidate = candidates.as_ref().and_then(|tree| tree.root().elements().next());
    let feedback = match (extra("promptFeedback"), ending) {
        (Some((_, feedback)), _) => Some(feedback.clone()),
        (None, FinishMarker::Block(reason)) => Some(object! { "blockReason": reason }),
        (None, FinishMarker::Finish(_) | FinishMarker::Open) => None,
    };
    let is_block = |json: &Json| wire::get(json.tree().root(), "blockReason").is_some();
    // A blocked prompt has no candidate.
    let is_answer =
        candidate.is_some() || !parts.is_empty() || !feedback.as_ref().is_some_and(is_block);
    if is_answer {
        o.array("candidates", |a| {
            a.object(|o| put_candidate(o, parts, ending, candidate));
        });
    }
    if let Some(feedback) = &feedback {
        o.raw("promptFeedback", feedback);
    }
    if let Some(reply) = ended {
        o.raw("usageMetadata", &usage(reply));
        let known = ["candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId"];
        let is_known = |key: &str| known.iter().any(|known| wire::is_spelled(key, known));
        put_all(o, reply_extras.iter().filter(|(key, _)| !is_known(key)));
    }
    o.string("modelVersion", model).maybe_string("responseId", id);
}

/// Writes a candidate with the given parts and the candidate's other members.
fn put_candidate(
    o: &mut json::Object<'_>,
    parts: &[Json],
    ending: FinishMarker<'_>,
    source: Option<Node<'_>>,
) {
    o.object("content", |o| {
        if !parts.is_empty() {
            o.raw("parts", &json::array_of(parts));
        }
        o.string("role", "model");
    });
    if let FinishMarker::Finish(reason) = ending {
        o.string("finishReason", reason);
    }
    o.number("index", 0);
    let known = ["content", "finishReason", "index"];
    let is_known = |key: &str| known.iter().any(|known| wire::is_spelled(key, known));
    let members = source.into_iter().flat_map(Node::members);
    copy_members(o, members.filter(|(key, _)| !is_known(&key.text().unwrap_or_default())));
}

/// Returns the usage as JSON. If the provider's own `usageMetadata` has the same counts, it is
/// returned verbatim.
fn usage(reply: &Reply) -> Json {
    let provider_usage =
        extras(reply).iter().find(|(key, _)| wire::is_spelled(key, "usageMetadata"));
    let provider_usage = provider_usage
        .map(|(_, value)| value)
        .filter(|value| wire::usage(value.tree().root()) == reply.usage);
    provider_usage.cloned().unwrap_or_else(|| wire::usage_json(&reply.usage))
}

/// Returns an Item as a response part. Thoughts from other wires are written without Seals.
pub(in crate::gemini) fn response_part(item: &Item) -> Option<Json> {
    if let Some(native) = item.native_on(&WIRE) {
        return Some(native.json.clone());
    }
    match &item.body {
        Body::Text(text) | Body::Summary { text, .. } => Some(text_part(text)),
        Body::Thought(thought) => Some(thought_part(&thought.content)),
        Body::Call(call) => {
            let (args, id) = (arguments(call), call.wire_id.as_ref().unwrap_or(&call.id.0));
            Some(object! { "functionCall": { "name": call.name, "args": args, "id": id } })
        }
        Body::Media(_) | Body::Result(_) | Body::Hosted(_) | Body::Compaction | Body::Unknown => {
            None
        }
    }
}

pub(in crate::gemini) fn thought_part(text: &str) -> Json {
    object! { "text": text, "thought": true }
}
