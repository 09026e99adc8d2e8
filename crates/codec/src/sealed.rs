//! Finding the opaque values inside a part.

use std::sync::Arc;

use throughline_core::{Label, Node, Origin, Seal};

use crate::Asked;

/// The non-empty strings below `node` whose key `is_sealed`, with a JSON pointer to each, in the order of the text.
pub(crate) fn find(node: Node<'_>, is_sealed: impl Fn(&str) -> bool) -> Vec<(Label, Node<'_>)> {
    let (mut found, mut waiting) = (Vec::new(), Vec::new());
    look(node, "", &is_sealed, &mut found, &mut waiting);
    while let Some((path, node)) = waiting.pop() {
        look(node, &path, &is_sealed, &mut found, &mut waiting);
    }
    if found.len() > 1 {
        found.sort_by_key(|(_, node)| node.range().start);
    }
    found
}

/// Looks at one level, and puts what lies deeper on the waiting list.
fn look<'t>(
    node: Node<'t>,
    path: &str,
    is_sealed: &impl Fn(&str) -> bool,
    found: &mut Vec<(Label, Node<'t>)>,
    waiting: &mut Vec<(String, Node<'t>)>,
) {
    for (at, element) in node.elements().enumerate() {
        if is_container(element) {
            waiting.push((format!("{path}/{at}"), element));
        }
    }
    for (name, value) in node.members() {
        let is_text = value.is_string() && value.raw().len() > 2;
        if !is_text && !is_container(value) {
            continue;
        }
        let key = name.text().unwrap_or_default();
        let pointer = || format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
        if is_text && is_sealed(&key) {
            found.push((Label::Owned(pointer()), value));
        } else if !is_text {
            waiting.push((pointer(), value));
        }
    }
}

/// The opaque values below `node` as Seals that `origin` issued, where `format` knows their key.
pub(crate) fn seals(
    node: Node<'_>,
    asked: &Asked,
    origin: &Arc<Origin>,
    format: impl Fn(&str) -> Option<Label>,
) -> Vec<Seal> {
    let found = find(node, |key| format(key).is_some()).into_iter();
    let sealed = found.filter_map(|(at, value)| {
        let format = format(at.rsplit('/').next()?)?;
        Some(asked.seal(value.text_bytes()?, format, origin, at))
    });
    sealed.collect()
}

fn is_container(node: Node<'_>) -> bool {
    node.is_array() || node.is_object()
}
