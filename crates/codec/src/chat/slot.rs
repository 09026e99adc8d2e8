//! Where in a chat message an Item stands.
//!
//! A slot is written as the member's name, with the position where the member is a list: `content`, `content/1`,
//! `tool_calls/0`, `reasoning_details/2`. Reasoning that an endpoint wrote twice stands in several slots, joined by
//! `+`: `reasoning+reasoning_content`, or `reasoning_details/0+reasoning`.

use throughline_core::Label;

/// The members that hold reasoning as one string.
pub(super) const FIELDS: [&str; 3] = ["reasoning_content", "reasoning", "thinking"];

pub(super) const CONTENT: &str = "content";
pub(super) const DETAILS: &str = "reasoning_details";
pub(super) const CALLS: &str = "tool_calls";
pub(super) const REFUSAL: &str = "refusal";
pub(super) const AUDIO: &str = "audio";
pub(super) const FUNCTION_CALL: &str = "function_call";
/// What Google's compatible endpoint adds to messages and calls.
pub(super) const EXTRA_CONTENT: &str = "extra_content";

/// The place at `position` of a list.
pub(super) fn at(member: &str, position: usize) -> Label {
    // Most lists have one entry, whose slot needs no memory of its own.
    match (member, position) {
        (CONTENT, 0) => Label::Borrowed("content/0"),
        (DETAILS, 0) => Label::Borrowed("reasoning_details/0"),
        (CALLS, 0) => Label::Borrowed("tool_calls/0"),
        (member, position) => Label::Owned(format!("{member}/{position}")),
    }
}

/// The slot of a string that several fields hold alike, whatever the order in which they came.
pub(super) fn joined(fields: &[&'static str]) -> Label {
    if let [field] = fields {
        return Label::Borrowed(field);
    }
    let known: Vec<_> = FIELDS.into_iter().filter(|field| fields.contains(field)).collect();
    Label::Owned(known.join("+"))
}

/// The member that a slot is in, its own or the first of several.
pub(super) fn member(slot: &str) -> &str {
    let first = slot.split('+').next().unwrap_or(slot);
    first.split('/').next().unwrap_or(first)
}

/// The reasoning fields among a slot's members.
pub(super) fn fields(slot: &str) -> impl Iterator<Item = &'static str> + '_ {
    slot.split('+').filter_map(|name| FIELDS.iter().copied().find(|field| *field == name))
}

/// Whether a member of a message is a slot, or says who speaks.
pub(super) fn is_known(member: &str) -> bool {
    let slots = [CONTENT, DETAILS, CALLS, REFUSAL, AUDIO, FUNCTION_CALL, EXTRA_CONTENT];
    slots.contains(&member) || FIELDS.contains(&member) || matches!(member, "role" | "images")
}

/// Every member that a slot is in.
pub(super) fn members(slot: &str) -> impl Iterator<Item = &str> {
    slot.split('+').map(member)
}
