//! Items put together into the messages that a wire wants.

use throughline_core::{Item, Wire};

/// The Items of one outgoing message.
pub(crate) struct Group<'i, S> {
    pub(crate) speaker: S,
    pub(crate) items: Vec<&'i Item>,
}

/// Puts Items together. Borders that this wire drew are kept; Items that came from elsewhere join their
/// neighbours of the same speaker, because most wires want turns to alternate.
pub(crate) fn groups<'i, S: PartialEq + Copy>(
    items: impl IntoIterator<Item = &'i Item>,
    wire: &Wire,
    speaker: impl Fn(&Item) -> S,
) -> Vec<Group<'i, S>> {
    let is_native = |item: &Item| item.native_on(wire).is_some();
    let mut groups: Vec<Group<'i, S>> = Vec::new();
    for item in items {
        let now = speaker(item);
        if let Some(group) = groups.last_mut().filter(|group| group.speaker == now)
            && let Some(last) = group.items.last()
        {
            let same_message = last.place.message == item.place.message;
            if same_message || (!is_native(last) && !is_native(item)) {
                group.items.push(item);
                continue;
            }
        }
        groups.push(Group { speaker: now, items: vec![item] });
    }
    groups
}
