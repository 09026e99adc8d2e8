//! Items put together into the messages that a wire wants.

use throughline_core::{Body, Item, Role, Wire};

/// The Items of one outgoing message.
pub(crate) struct Group<'i, S> {
    pub(crate) speaker: S,
    pub(crate) items: Vec<&'i Item>,
}

/// The system prompts that go to the top, and the rest. Those that another wire keeps among its messages go there while
/// nothing stands before them.
pub(crate) fn split_leading_system<'i>(items: &'i [Item], wire: &Wire) -> (&'i [Item], &'i [Item]) {
    let is_leading = |item: &&Item| {
        matches!(item.role, Role::System | Role::Developer) && item.native_on(wire).is_none()
    };
    items.split_at(items.iter().take_while(is_leading).count())
}

/// The Items in the order in which they can be said: what is said aside, while calls wait for their answers, has to
/// wait too, because every wire wants the answers right behind the calls.
pub(crate) fn settled(
    items: &[Item],
    is_aside: impl Fn(&Item) -> bool,
) -> (Vec<&Item>, Vec<usize>) {
    let mut order = Vec::with_capacity(items.len());
    let (mut waiting, mut open) = (Vec::new(), 0_usize);
    for (position, item) in items.iter().enumerate() {
        if is_aside(item) && open > 0 {
            waiting.push(position);
            continue;
        }
        let is_answer = matches!(item.body, Body::Result(_));
        if matches!(item.body, Body::Call(_)) {
            open += 1;
        } else if is_answer {
            open = open.saturating_sub(1);
        } else if item.role != Role::Assistant {
            open = 0;
        }
        if open == 0 && !is_answer {
            order.append(&mut waiting);
        }
        order.push(position);
        if open == 0 {
            order.append(&mut waiting);
        }
    }
    order.append(&mut waiting);
    (order.iter().filter_map(|position| items.get(*position)).collect(), order)
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
