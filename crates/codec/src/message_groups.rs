//! Groups Items into the messages of a wire.

use throughline_core::{Body, Item, Role, Wire};

/// The Items of one outgoing message.
pub(crate) struct MessageGroup<'i> {
    pub(crate) speaker: Role,
    pub(crate) items: Vec<&'i Item>,
}

/// Returns the `role` value that most wires use for a role.
pub(crate) fn role_name(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::Developer => "developer",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    }
}

/// Splits off the leading system Items, which go to the top-level system prompt. System Items that
/// were decoded from messages of this wire are not split off.
pub(crate) fn split_leading_system<'i>(items: &'i [Item], wire: &Wire) -> (&'i [Item], &'i [Item]) {
    let is_leading = |item: &&Item| {
        matches!(item.role, Role::System | Role::Developer) && item.native_on(wire).is_none()
    };
    items.split_at(items.iter().take_while(is_leading).count())
}

/// Reorders Items so that they can be sent. Every wire requires results directly after their calls.
/// A caller's thought between calls and their results is therefore moved after the results.
pub(crate) fn sendable_order(
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

/// Groups Items into messages. Message boundaries from this wire are kept. Other Items join
/// adjacent Items of the same speaker, because most wires require alternating turns.
pub(crate) fn groups<'i>(
    items: impl IntoIterator<Item = &'i Item>,
    wire: &Wire,
    speaker: impl Fn(&Item) -> Role,
) -> Vec<MessageGroup<'i>> {
    let is_native = |item: &Item| item.native_on(wire).is_some();
    let mut groups: Vec<MessageGroup<'i>> = Vec::new();
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
        groups.push(MessageGroup { speaker: now, items: vec![item] });
    }
    groups
}
