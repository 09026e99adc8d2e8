//! The position of an Item inside a chat message.
//!
//! A slot is the member's name. If the member is a list, the index follows: `content`, `content/1`,
//! `tool_calls/0`, `reasoning_details/2`. Reasoning that an endpoint repeats in several members has
//! their slots joined by `+`: `reasoning+reasoning_content`, or `reasoning_details/0+reasoning`.

use throughline_json::{Label, Node};

/// The members that hold reasoning as one string.
pub(super) const FIELDS: [&str; 3] = ["reasoning_content", "reasoning", "thinking"];

pub(super) const CONTENT: &str = "content";
pub(super) const DETAILS: &str = "reasoning_details";
pub(super) const CALLS: &str = "tool_calls";
pub(super) const REFUSAL: &str = "refusal";
pub(super) const AUDIO: &str = "audio";
pub(super) const FUNCTION_CALL: &str = "function_call";
/// The member that Google's compatible endpoint adds to messages and calls.
pub(super) const EXTRA_CONTENT: &str = "extra_content";

/// The role and slot values of a message. If a member name is repeated, its last value counts.
#[derive(Default)]
pub(super) struct Slots<'t> {
    pub(super) role: Option<Node<'t>>,
    pub(super) content: Option<Node<'t>>,
    pub(super) details: Option<Node<'t>>,
    pub(super) calls: Option<Node<'t>>,
    pub(super) refusal: Option<Node<'t>>,
    pub(super) audio: Option<Node<'t>>,
    pub(super) function_call: Option<Node<'t>>,
    pub(super) extra_content: Option<Node<'t>>,
    pub(super) images: Option<Node<'t>>,
    /// Non-empty reasoning strings with their field names.
    pub(super) strings: Vec<(&'static str, Node<'t>)>,
}

impl<'t> Slots<'t> {
    /// Reads all slots in one pass over the members, instead of one lookup per slot.
    pub(super) fn from_message(message: Node<'t>) -> Self {
        let mut slots = Self::default();
        for (key, value) in message.members() {
            let slot = match &*key.text().unwrap_or_default() {
                "role" => &mut slots.role,
                CONTENT => &mut slots.content,
                DETAILS => &mut slots.details,
                CALLS => &mut slots.calls,
                REFUSAL => &mut slots.refusal,
                AUDIO => &mut slots.audio,
                FUNCTION_CALL => &mut slots.function_call,
                EXTRA_CONTENT => &mut slots.extra_content,
                "images" => &mut slots.images,
                other => {
                    let field = FIELDS.into_iter().find(|field| *field == other);
                    let field = field.filter(|_| value.is_string() && value.raw().len() > 2);
                    slots.strings.extend(field.map(|field| (field, value)));
                    continue;
                }
            };
            *slot = Some(value);
        }
        slots
    }
}

/// Returns the slot of the element at `position` in a list member.
pub(super) fn list_slot(member: &str, position: usize) -> Label {
    // Most lists have one entry, so the first slot of each list needs no allocation.
    match (member, position) {
        (CONTENT, 0) => Label::Borrowed("content/0"),
        (DETAILS, 0) => Label::Borrowed("reasoning_details/0"),
        (CALLS, 0) => Label::Borrowed("tool_calls/0"),
        (member, position) => Label::Owned(format!("{member}/{position}")),
    }
}

/// Returns the slot of a reasoning string that several fields repeat. The order of `fields` does
/// not matter.
pub(super) fn joined_slot(fields: &[&'static str]) -> Label {
    if let [field] = fields {
        return Label::Borrowed(field);
    }
    let known: Vec<_> = FIELDS.into_iter().filter(|field| fields.contains(field)).collect();
    Label::Owned(known.join("+"))
}

/// Returns the member that a slot names, or the first member if it names several.
pub(super) fn first_member(slot: &str) -> &str {
    let end = slot.bytes().position(|byte| matches!(byte, b'+' | b'/'));
    end.and_then(|end| slot.get(..end)).unwrap_or(slot)
}

/// Iterates over the reasoning string fields that a slot names.
pub(super) fn fields(slot: &str) -> impl Iterator<Item = &'static str> + '_ {
    slot.split('+').filter_map(|name| FIELDS.iter().copied().find(|field| *field == name))
}

/// Returns whether a message member is the role or a known slot.
pub(crate) fn is_known_member(member: &str) -> bool {
    let slots = [CONTENT, DETAILS, CALLS, REFUSAL, AUDIO, FUNCTION_CALL, EXTRA_CONTENT];
    slots.contains(&member) || FIELDS.contains(&member) || matches!(member, "role" | "images")
}

/// Iterates over the member names in a slot.
pub(super) fn members(slot: &str) -> impl Iterator<Item = &str> {
    slot.split('+').map(first_member)
}
