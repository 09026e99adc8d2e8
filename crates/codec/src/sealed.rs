//! Finding the opaque values inside a part.

use throughline_core::{Label, Node, Shape};

/// The non-empty strings below `node` whose key `is_sealed`, with a JSON pointer to each, in the order of the text.
pub(crate) fn find<'t>(node: Node<'t>, is_sealed: impl Fn(&str) -> bool) -> Vec<(Label, Node<'t>)> {
    let mut found = Vec::new();
    let mut waiting = vec![(String::new(), node)];
    while let Some((path, node)) = waiting.pop() {
        let mut below: Vec<(String, Node<'t>)> = Vec::new();
        match node.shape() {
            Shape::Array => {
                let elements = node.elements().enumerate().filter(|(_, e)| is_container(*e));
                below.extend(elements.map(|(at, element)| (format!("{path}/{at}"), element)));
            }
            Shape::Object => {
                for (name, value) in node.members() {
                    let key = name.text().unwrap_or_default();
                    let pointer =
                        || format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
                    if value.is_string() && value.raw().len() > 2 && is_sealed(&key) {
                        found.push((Label::Owned(pointer()), value));
                    } else if is_container(value) {
                        below.push((pointer(), value));
                    }
                }
            }
            Shape::Null | Shape::Bool | Shape::Number | Shape::String => {}
        }
        waiting.extend(below.into_iter().rev());
    }
    found.sort_by_key(|(_, node)| node.range().start);
    found
}

fn is_container(node: Node<'_>) -> bool {
    node.is_array() || node.is_object()
}
