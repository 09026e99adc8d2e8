//! Who may have what: Seals go to their owner only, and a caller's thought goes where its policy says.

use throughline_core::{
    Body, Call, Did, Digest, Fate, How, Item, Json, Judgement, Target, Thought, Why, Wire, json,
    tag::tag_of,
};

use crate::draft::Draft;

/// What happens to each Seal of an Item in a Call to `target` behind this prefix.
pub(crate) fn seals(item: &Item, target: &Target, prefix: Option<&Digest>) -> Vec<Did> {
    let opened = item.seals.iter().map(|seal| seal.open_for(target, prefix));
    opened.map(|opened| opened.map_or_else(Did::Elided, |_| Did::Kept)).collect()
}

/// The first reason for which a Seal must stay behind.
pub(crate) fn refusal(seals: &[Did]) -> Option<Why> {
    seals.iter().find_map(|did| match did {
        Did::Elided(why) => Some(*why),
        Did::Kept | Did::Restored(_) | Did::Reshaped(_) => None,
    })
}

/// Why a part that this wire cannot say has to stay behind.
pub(crate) fn why_left(item: &Item, target: &Target) -> Why {
    if matches!(&item.body, Body::Thought(thought) if !thought.whole) {
        return Why::Cut;
    }
    match &item.origin {
        Some(origin)
            if origin.provider != target.origin.provider
                || origin.endpoint != target.origin.endpoint =>
        {
            Why::Foreign
        }
        Some(_) | None => Why::NotOnThisWire,
    }
}

/// How a thought that the caller made goes out.
pub(crate) enum CallersThought {
    /// As this part of the wire.
    Typed(Json),
    /// As this text, in a place that is not the model's own.
    Text(String),
    /// Not as a part of any message: it is in the side channel, or stays behind.
    Apart,
}

/// Judges a thought that the caller made.
pub(crate) fn callers_thought(
    draft: &mut Draft<'_>,
    call: &Call,
    item: &Item,
    thought: &Thought,
    wire: &Wire,
) -> (CallersThought, Fate) {
    // Payloads with this tag are the wire's own parts.
    let tag = tag_of(wire).unwrap_or_default();
    let fate = |visible| Fate { item: item.id.clone(), visible, seals: Vec::new() };
    let typed = |payload: &Json| CallersThought::Typed(payload.clone());
    match (call.replay.judge(item, thought, &[tag]), &thought.payload) {
        (Judgement::Typed, Some(payload)) => (typed(payload), fate(Did::Kept)),
        (Judgement::SideChannel, Some(payload)) => {
            draft.aside.push(json::object(|o| {
                o.string("id", &item.id.0);
                o.maybe_string("replayCompatibility", thought.replay_compatibility.as_deref());
                o.raw("payload", payload);
            }));
            (CallersThought::Apart, fate(Did::Reshaped(How::SideChannel)))
        }
        (Judgement::Envelope, _) => match call.replay.envelope(&item.id, thought) {
            Some(text) => (CallersThought::Text(text), fate(Did::Reshaped(How::Enveloped))),
            None => (CallersThought::Apart, fate(Did::Elided(Why::ByPolicy))),
        },
        (Judgement::Typed | Judgement::SideChannel | Judgement::Keep, _) => {
            (CallersThought::Apart, fate(Did::Elided(Why::ByPolicy)))
        }
    }
}

/// Whether an Item is a caller's thought that goes out as text. It is not the model's own output, so it must not stand
/// where the wire would take it for that.
pub(crate) fn is_said_aside(call: &Call, item: &Item, wire: &Wire) -> bool {
    let Body::Thought(thought) = &item.body else { return false };
    let tag = tag_of(wire).unwrap_or_default();
    item.origin.is_none()
        && item.native_on(wire).is_none()
        && call.replay.judge(item, thought, &[tag]) != Judgement::Typed
}
