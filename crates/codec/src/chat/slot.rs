//! Where in a chat message an Item stands.
//!
//! A slot is written as the member's name, with the position where the member is a list: `content`, `content/1`,
//! `tool_calls/0`, `reasoning_details/2`. Reasoning that an endpoint wrote twice stands in several slots, joined by
//! `+`: `reasoning+reasoning_content`, or `reasoning_details/0+reasoning`.

use throughline_core::{Label, Node};

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

/// What stands in the slots of a message, and who speaks. Where a name stands twice, the last one counts.
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
    /// The reasoning that is one string and says something, with its field.
    pub(super) strings: Vec<(&'static str, Node<'t>)>,
}

impl<'t> Slots<'t> {
    /// Goes through the members once: there are more slots than most messages have members.
    pub(super) fn of(message: Node<'t>) -> Self {
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
    let end = slot.bytes().position(|byte| matches!(byte, b'+' | b'/'));
    end.and_then(|end| slot.get(..end)).unwrap_or(slot)
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
