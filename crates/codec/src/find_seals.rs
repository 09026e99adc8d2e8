//! Finds the Seals inside a part.

use throughline_json::{Label, Node};

/// Returns the non-empty strings inside `node` whose keys satisfy `is_sealed`, with their JSON
/// pointers, in document order.
pub(crate) fn find(
    node: Node<'_>,
    is_sealed: impl Fn(&str) -> bool,
) -> impl Iterator<Item = (Label, Node<'_>)> {
    let sealed = node.all_members().filter(move |(key, value)| {
        let is_text = value.is_string() && value.raw().len() > 2;
        is_text && key.text().is_some_and(|key| is_sealed(&key))
    });
    sealed.map(move |(_, value)| (Label::Owned(pointer(node, value)), value))
}

/// Returns the JSON pointer from `node` to `value`, which must be inside `node`.
fn pointer(mut node: Node<'_>, value: Node<'_>) -> String {
    let start = value.range().start;
    let holds = |part: &Node<'_>| part.range().contains(&start);
    let mut pointer = String::with_capacity(32);
    while node.range().start != start {
        let member = node.members().find(|(_, part)| holds(part));
        let element = node.elements().enumerate().find(|(_, part)| holds(part));
        pointer.push('/');
        node = match (member, element) {
            (Some((key, part)), _) => {
                for letter in key.text().unwrap_or_default().chars() {
                    match letter {
                        '~' => pointer.push_str("~0"),
                        '/' => pointer.push_str("~1"),
                        letter => pointer.push(letter),
                    }
                }
                part
            }
            (None, Some((at, part))) => {
                pointer.push_str(&at.to_string());
                part
            }
            (None, None) => break,
        };
    }
    pointer
}
