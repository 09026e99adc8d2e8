//! Keeps references to objects that providers store out of runs.
//!
//! Many tenants may share one account at a provider, and a client may change a snapshot before it
//! restores it. With a gateway key, messages, histories and snapshots therefore cannot refer to a
//! file, a response or an item at the provider.

use throughline_agent::Snapshot;
use throughline_core::{Body, Item, Media, NativePart, Part};
use throughline_json::{self as json, Json, StringEnum as _, Tree};
use throughline_replay::Family;

use crate::api::{ApiError, ApiResult};
use crate::gateway::object_ids;
use crate::letta::message_request::{Decision, MessageRequest};

/// Removes the native form of each Item that refers to a stored object. The Item is then sent in
/// the form that any other wire would receive. Refuses stored files and settings with such
/// references.
pub(crate) fn drop_references(snapshot: &mut Snapshot) -> ApiResult<()> {
    for (name, agent) in &snapshot.casting.agents {
        let reasoning = agent.reasoning.as_ref().map(Json::tree);
        let extras = reasoning.as_ref().and_then(|tree| tree.root().at("/native/providerExtras"));
        let extras = extras.map(|extras| extras.json().tree());
        if extras.is_some_and(|extras| has_reference(Family::ALL, &extras)) {
            let problem = "reasoning.native.providerExtras refers to an object at the provider";
            return Err(ApiError::new(422, format!("agent {name}: {problem}; remove it")));
        }
    }
    let archived = snapshot.archived.iter_mut().map(|(_, item)| item);
    for item in snapshot.items.iter_mut().chain(archived) {
        if item.native.as_ref().is_some_and(is_reference) {
            item.native = None;
        }
        if has_stored_media(item) {
            let problem = "refers to a file at the provider; replace the file with its content";
            return Err(ApiError::new(422, format!("Item {} {problem}", item.id.0)));
        }
    }
    Ok(())
}

fn is_reference(native: &NativePart) -> bool {
    let Some(family) = Family::of(&native.wire) else { return false };
    let envelope = native.envelope.as_ref().map(|envelope| &envelope.json);
    let parts: Vec<&Json> = std::iter::once(&native.json).chain(envelope).collect();
    // The type of a reference may be omitted in a list of items.
    let body = json::object(|out| _ = out.list("input", parts));
    has_reference(&[family], &body.tree())
}

fn has_reference(families: &[Family], body: &Tree) -> bool {
    families.iter().any(|family| !object_ids(*family, body).is_empty())
}

/// Checks that the images of a message and of tool results are not files at a provider.
pub(crate) fn check_images(input: &MessageRequest) -> ApiResult<()> {
    let mut returned = input.decisions.iter().flat_map(|decision| match decision {
        Decision::Return { parts, .. } => parts.as_slice(),
        Decision::Approval { .. } => &[],
    });
    if input.parts.iter().any(is_stored_body) || returned.any(is_stored_part) {
        let problem = "an image refers to a file at the provider; send the content of the file";
        return Err(ApiError::new(422, problem));
    }
    Ok(())
}

/// Returns whether an Item contains a file at a provider.
pub(crate) fn has_stored_media(item: &Item) -> bool {
    is_stored_body(&item.body)
}

fn is_stored_body(body: &Body) -> bool {
    match body {
        Body::Media(media) => is_stored(media),
        Body::Result(result) => result.parts.iter().any(is_stored_part),
        _ => false,
    }
}

fn is_stored_part(part: &Part) -> bool {
    match part {
        Part::Media(media) => is_stored(media),
        Part::Unknown(wire, part) => {
            Family::of(wire).is_some_and(|family| has_reference(&[family], &part.tree()))
        }
        Part::Text(_) | Part::Value(_) => false,
    }
}

/// Gemini's files have addresses of their own, which look like web addresses.
fn is_stored(media: &Media) -> bool {
    match media {
        Media::Inline { .. } => false,
        Media::Remote { owner: Some(_), .. } => true,
        Media::Remote { uri, owner: None, .. } => {
            let body = json::object(|out| _ = out.string("fileUri", uri));
            has_reference(&[Family::Gemini], &body.tree())
        }
    }
}

#[cfg(test)]
#[path = "stored_objects_tests.rs"]
mod stored_objects_tests;
