//! Decides which Seals may be sent to a target, and how a thought created by the caller is sent.

use throughline_core::{
    Body, Call, Digest, Disposition, ElisionReason, Fate, Item, ReplayForm, ReshapeKind, Role,
    Target, Thought, Wire, tag::tag_of,
};
use throughline_json::Json;

use crate::draft::{self, Draft};

/// Returns, for each Seal of an Item, whether a Call to `target` with this prefix keeps or elides
/// the Seal.
pub(crate) fn seals(item: &Item, target: &Target, prefix: Option<&Digest>) -> Vec<Disposition> {
    let opened = item.seals.iter().map(|seal| seal.open_for(target, prefix));
    opened.map(|opened| opened.map_or_else(Disposition::Elided, |_| Disposition::Kept)).collect()
}

/// Returns why the first elided Seal was elided; `None` if all Seals are sent.
pub(crate) fn refusal(seals: &[Disposition]) -> Option<ElisionReason> {
    seals.iter().find_map(|did| match did {
        Disposition::Elided(why) => Some(*why),
        Disposition::Kept | Disposition::Restored(_) | Disposition::Reshaped(_) => None,
    })
}

/// Returns the reason to record for a part that is omitted because this wire cannot represent it.
pub(crate) fn elision_reason(item: &Item, target: &Target) -> ElisionReason {
    if matches!(&item.body, Body::Thought(thought) if !thought.whole) {
        return ElisionReason::Cut;
    }
    match &item.origin {
        Some(origin) if !draft::is_same_endpoint(origin, &target.origin) => ElisionReason::Foreign,
        Some(_) | None => ElisionReason::NotOnThisWire,
    }
}

/// The representation of a thought created by the caller.
pub(crate) enum CallerThought {
    /// A part of a type that the wire defines.
    Typed(Json),
    /// Text in a message that the wire does not attribute to the model.
    Text(String),
    /// No message part: the thought is sent in the side channel or omitted.
    Apart,
}

/// Applies the Call's replay policy to a thought created by the caller.
pub(crate) fn apply_replay_policy(
    draft: &mut Draft<'_>,
    call: &Call,
    item: &Item,
    thought: &Thought,
    wire: &Wire,
) -> (CallerThought, Fate) {
    let fate = |visible| Fate { item: item.id.clone(), visible, seals: Vec::new() };
    let typed = |payload: &Json| CallerThought::Typed(payload.clone());
    match (replay_form(call, item, thought, wire), &thought.payload) {
        (ReplayForm::Typed, Some(payload)) => (typed(payload), fate(Disposition::Kept)),
        (ReplayForm::SideChannel, Some(payload)) => {
            draft.aside.push(object! {
                "id": item.id.0, "replayCompatibility": thought.replay_compatibility.as_deref(),
                "payload": payload,
            });
            (CallerThought::Apart, fate(Disposition::Reshaped(ReshapeKind::SideChannel)))
        }
        (ReplayForm::Envelope, _) => {
            let text = call.replay.envelope(&item.id, thought);
            (CallerThought::Text(text), fate(Disposition::Reshaped(ReshapeKind::Enveloped)))
        }
        (ReplayForm::Typed | ReplayForm::SideChannel | ReplayForm::Keep, _) => {
            (CallerThought::Apart, fate(Disposition::Elided(ElisionReason::ByPolicy)))
        }
    }
}

/// Returns the speaker of an Item, for wires on which only the model and the user can speak.
pub(crate) fn speaker(call: &Call, item: &Item, wire: &Wire) -> Role {
    let is_models = item.role == Role::Assistant && !is_caller_text(call, item, wire);
    if is_models { Role::Assistant } else { Role::User }
}

/// Returns whether an Item is a caller's thought that is sent as text. The model did not produce
/// such a thought, so the wire must not attribute it to the model.
pub(crate) fn is_caller_text(call: &Call, item: &Item, wire: &Wire) -> bool {
    let Body::Thought(thought) = &item.body else { return false };
    item.origin.is_none()
        && item.native_on(wire).is_none()
        && replay_form(call, item, thought, wire) != ReplayForm::Typed
}

fn replay_form(call: &Call, item: &Item, thought: &Thought, wire: &Wire) -> ReplayForm {
    // Payloads with this tag are native parts of the wire.
    let tag = tag_of(wire).unwrap_or_default();
    let endpoint_tags = &call.target.provider.dialect.accepted_tags;
    call.replay.replay_form(item, thought, &[tag], endpoint_tags)
}
