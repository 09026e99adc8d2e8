//! When something that comes back is like something that was issued: by its id, its kind, or what it says.

use std::hash::{DefaultHasher, Hash, Hasher as _};

use throughline_core::{Body, Item, ThoughtKind};

/// A way in which what comes back can be like what was issued. What is alike has the same key.
#[derive(Clone, Copy)]
pub(super) struct Likeness {
    pub(super) key: fn(&Item) -> Option<u64>,
    pub(super) is_like: fn(&Item, &Item) -> bool,
}

pub(super) fn id_key(item: &Item) -> Option<u64> {
    let id = item.call().and_then(|call| call.wire_id.as_deref());
    let id = id.or_else(|| item.native.as_ref()?.id.as_deref());
    id.map(|id| key_of(&id))
}

pub(super) fn part_key(item: &Item) -> Option<u64> {
    match &item.body {
        // Nothing is known by what says nothing.
        Body::Text(text) if text.trim().is_empty() && item.seals.is_empty() => None,
        Body::Text(text) => Some(key_of(&(0, text.trim()))),
        Body::Thought(thought) => {
            Some(key_of(&(1, &thought.content))).filter(|_| !thought.content.is_empty())
        }
        Body::Call(call) => Some(key_of(&(2, &call.name))),
        Body::Hosted(hosted) => Some(key_of(&(3, &hosted.name, &hosted.visible))),
        Body::Compaction => Some(key_of(&4)),
        Body::Media(_) | Body::Result(_) | Body::Summary { .. } | Body::Unknown => None,
    }
}

/// The key of something that a model said, and not only thought: a call by its id where it has one, else by what it says.
pub(super) fn said_key(item: &Item) -> Option<u64> {
    match &item.body {
        Body::Thought(_) => None,
        Body::Text(text) if text.is_empty() => None,
        Body::Call(call) => {
            let said = || key_of(&(5, &call.name, call.args.canonical()));
            Some(call.wire_id.as_ref().map_or_else(said, |id| key_of(&(6, id))))
        }
        Body::Text(_)
        | Body::Hosted(_)
        | Body::Compaction
        | Body::Media(_)
        | Body::Result(_)
        | Body::Summary { .. }
        | Body::Unknown => part_key(item),
    }
}

fn key_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Whether both have the same id and are the same kind of thought: a summary and the blob behind it may share one id.
pub(super) fn is_same_element(was: &Item, is: &Item) -> bool {
    is_same_id(was, is) && thought_kind(was) == thought_kind(is)
}

/// Whether both have the same id of the wire's.
pub(super) fn is_same_id(was: &Item, is: &Item) -> bool {
    let id = |item: &Item| item.native.as_ref().and_then(|native| native.id.clone());
    let call_id = |item: &Item| item.call().and_then(|call| call.wire_id.clone());
    is_same_kind(was, is)
        && (id(was).is_some() && id(was) == id(is)
            || call_id(was).is_some() && call_id(was) == call_id(is))
}

fn thought_kind(item: &Item) -> Option<ThoughtKind> {
    match &item.body {
        Body::Thought(thought) => Some(thought.kind),
        Body::Text(_)
        | Body::Media(_)
        | Body::Call(_)
        | Body::Result(_)
        | Body::Hosted(_)
        | Body::Compaction
        | Body::Summary { .. }
        | Body::Unknown => None,
    }
}

/// Whether both say the same.
pub(super) fn is_same_part(was: &Item, is: &Item) -> bool {
    match (&was.body, &is.body) {
        // White space around a text goes with the tags that stood before it.
        (Body::Text(was), Body::Text(is)) => was.trim() == is.trim(),
        (Body::Thought(was), Body::Thought(is)) => {
            was.content == is.content && !was.content.is_empty()
        }
        (Body::Call(was), Body::Call(is)) => {
            // A wire that names no calls leaves it to the client to do so.
            was.name == is.name
                && match (&was.wire_id, &is.wire_id) {
                    (Some(was), Some(is)) => was == is,
                    (Some(_) | None, _) => was.args.says_the_same_as(&is.args),
                }
        }
        (Body::Hosted(was), Body::Hosted(is)) => was == is,
        (Body::Compaction, Body::Compaction) => true,
        (
            Body::Text(_)
            | Body::Media(_)
            | Body::Thought(_)
            | Body::Call(_)
            | Body::Result(_)
            | Body::Hosted(_)
            | Body::Compaction
            | Body::Summary { .. }
            | Body::Unknown,
            _,
        ) => false,
    }
}

pub(super) fn is_same_kind(was: &Item, is: &Item) -> bool {
    std::mem::discriminant(&was.body) == std::mem::discriminant(&is.body)
}
