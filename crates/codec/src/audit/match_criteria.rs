//! Compares replayed and issued Items by id, kind or content.

use std::hash::{DefaultHasher, Hash, Hasher as _};

use throughline_core::{Body, Item, ThoughtKind};

pub(super) fn id_key(item: &Item) -> Option<u64> {
    let id = item.call().and_then(|call| call.wire_id.as_deref());
    let id = id.or_else(|| item.native.as_ref()?.id.as_deref());
    id.map(|id| hash_key(&id))
}

pub(super) fn part_key(item: &Item) -> Option<u64> {
    match &item.body {
        // An empty text without a Seal has no content to compare.
        Body::Text(text) if text.trim().is_empty() && item.seals.is_empty() => None,
        Body::Text(text) => Some(hash_key(&(0, text.trim()))),
        Body::Thought(thought) => {
            (!thought.content.is_empty()).then(|| hash_key(&(1, &thought.content)))
        }
        Body::Call(call) => Some(hash_key(&(2, &call.name))),
        Body::Hosted(hosted) => Some(hash_key(&(3, &hosted.name, &hosted.visible))),
        Body::Compaction => Some(hash_key(&4)),
        Body::Media(_) | Body::Result(_) | Body::Summary { .. } | Body::Unknown => None,
    }
}

/// Returns a key that identifies model output other than thoughts: the call's id if it has one,
/// else a hash of the content.
pub(super) fn output_key(item: &Item) -> Option<u64> {
    if let Body::Call(call) = &item.body {
        return Some(match &call.wire_id {
            Some(id) => hash_key(&(6, id)),
            None => hash_key(&(5, &call.name, call.args.canonical())),
        });
    }
    let is_empty = matches!(&item.body, Body::Text(text) if text.is_empty());
    if is_empty || matches!(item.body, Body::Thought(_)) { None } else { part_key(item) }
}

fn hash_key(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Returns whether two Items have the same wire id and the same kind of thought. The kind matters
/// because a summary and its encrypted content may share an id.
pub(super) fn is_same_element(was: &Item, is: &Item) -> bool {
    is_same_id(was, is) && thought_kind(was) == thought_kind(is)
}

/// Returns whether two Items have the same kind and the same wire id.
pub(super) fn is_same_id(was: &Item, is: &Item) -> bool {
    let id = |item: &Item| item.native.as_ref().and_then(|native| native.id.clone());
    let call_id = |item: &Item| item.call().and_then(|call| call.wire_id.clone());
    is_same_kind(was, is)
        && (id(was).is_some() && id(was) == id(is)
            || call_id(was).is_some() && call_id(was) == call_id(is))
}

fn thought_kind(item: &Item) -> Option<ThoughtKind> {
    if let Body::Thought(thought) = &item.body { Some(thought.kind) } else { None }
}

/// Returns whether two Items have the same content.
pub(super) fn is_same_part(was: &Item, is: &Item) -> bool {
    match (&was.body, &is.body) {
        // Clients that remove tags before a text also remove the white space around it.
        (Body::Text(was), Body::Text(is)) => was.trim() == is.trim(),
        (Body::Thought(was), Body::Thought(is)) => {
            was.content == is.content && !was.content.is_empty()
        }
        (Body::Call(was), Body::Call(is)) => {
            // On wires without call ids, the client assigns the ids, so compare the arguments
            // instead.
            was.name == is.name
                && match (&was.wire_id, &is.wire_id) {
                    (Some(was), Some(is)) => was == is,
                    (Some(_) | None, _) => was.args.is_equivalent_to(&is.args),
                }
        }
        (Body::Hosted(was), Body::Hosted(is)) => was == is,
        (Body::Compaction, Body::Compaction) => true,
        _ => false,
    }
}

pub(super) fn is_same_kind(was: &Item, is: &Item) -> bool {
    std::mem::discriminant(&was.body) == std::mem::discriminant(&is.body)
}
