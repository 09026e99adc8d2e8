//! Reads and writes typed reasoning elements in the part list of an assistant message. The
//! reasoning codecs of all wires share this module.

use throughline_core::{ReasoningFormat, Vendor};
use throughline_json::{self as json, Json, Name, Node, Opaque};
use throughline_spec::{DetailMeta, ReasoningItem};

use crate::edit;

/// The JSON pointers under which a wire's documents hold the parts of an assistant message: first
/// in a whole response, last in a message. The empty pointer stands for the document itself.
pub(crate) type ListPointers = &'static [&'static str];

/// Reads the elements of all parts of a response or message. A document without a part list is read
/// as one part.
pub(crate) fn read_elements(
    document: &Json,
    pointers: ListPointers,
    read: impl Fn(Node<'_>) -> Vec<ReasoningItem>,
) -> Vec<ReasoningItem> {
    let tree = document.tree();
    let Some(list) = find_list(tree.root(), pointers) else { return read(tree.root()) };
    let mut elements = Vec::new();
    for (part, index) in list.elements().zip(0_u64..) {
        elements.extend(read(part).into_iter().map(|mut element| {
            if let Some(meta) = element.meta_mut() {
                meta.index = Some(index);
            }
            element
        }));
    }
    elements
}

/// Replaces the part list of a response or message. A text instead of a list becomes one part.
pub(crate) fn edit_parts(
    document: &Json,
    pointers: ListPointers,
    text_part: impl Fn(&str) -> Json,
    edit: impl FnOnce(Vec<Json>) -> Vec<Json>,
) -> Json {
    let tree = document.tree();
    let root = tree.root();
    if let Some(list) = find_list(root, pointers) {
        let parts = edit(list.elements().map(Node::json).collect());
        return document.with_value_at(list.range(), &json::array_of(&parts));
    }
    // The message has no list: add it where the wire expects it.
    let places = pointers.iter().filter_map(|pointer| pointer.rsplit_once('/'));
    let mut places = places.filter_map(|(parent, key)| {
        let parent = if parent.is_empty() { Some(root) } else { root.at(parent) };
        parent.filter(|parent| parent.is_object()).map(|parent| (parent, key))
    });
    let Some((parent, key)) = places.next() else { return document.clone() };
    let text = parent.text_of(key).filter(|text| !text.is_empty());
    let parts = edit(text.map(|text| text_part(&text)).into_iter().collect());
    let filled = edit::with_member(&parent.json(), key.to_owned(), json::array_of(&parts));
    document.with_value_at(parent.range(), &filled)
}

/// Replaces the reasoning blocks of a message by the blocks of `items`. `read` returns the
/// reasoning that a block contains, and `block` writes an element.
pub(crate) fn replace_reasoning_blocks(
    message: &Json,
    items: &[ReasoningItem],
    content: ListPointers,
    text: impl Fn(&str) -> Json,
    read: impl Fn(Node<'_>) -> Vec<ReasoningItem>,
    block: impl Fn(&ReasoningItem) -> Option<Json>,
) -> Json {
    if items.is_empty() {
        return message.clone();
    }
    edit_parts(message, content, text, |mut blocks| {
        blocks.retain(|block| read(block.tree().root()).is_empty());
        let written = items.iter().filter_map(|element| {
            Some((element.meta().and_then(|meta| meta.index), block(element)?))
        });
        insert_parts(&mut blocks, written);
        blocks
    })
}

/// Inserts parts at their positions, in order. A part without a position follows the part that was
/// inserted before it; the first part is inserted at the start.
pub(crate) fn insert_parts(
    parts: &mut Vec<Json>,
    added: impl IntoIterator<Item = (Option<u64>, Json)>,
) {
    let mut next = 0;
    for (index, part) in added {
        let wanted = index.map_or(next, |index| usize::try_from(index).unwrap_or(usize::MAX));
        let at = wanted.max(next).min(parts.len());
        parts.insert(at, part);
        next = at + 1;
    }
}

/// Collects the members of a native part for the element's extras, except those in `own` and `null`
/// members.
pub(crate) fn native_meta(part: Node<'_>, own: &[&str], format: ReasoningFormat) -> DetailMeta {
    let members = part.members().filter_map(|(key, value)| Some((key.name()?, value.json())));
    let members = members.filter(|(_, value)| *value != Json::null());
    let extras = members.filter(|(key, _)| !own.contains(&&**key)).collect();
    DetailMeta { id: None, format: Some(format), index: None, extras }
}

/// Writes the extra members of an element into its native part. `null` members are left out,
/// because routers add them and providers reject them.
pub(crate) fn put_extras(out: &mut json::Object<'_>, meta: &DetailMeta, own: &[&str]) {
    let extras = meta.extras.iter().filter(|(_, value)| *value != Json::null());
    for (key, value) in extras.filter(|(key, _)| !own.contains(&&**key)) {
        out.raw(key, value);
    }
}

/// Returns a non-empty string member as a Seal's text.
pub(crate) fn sealed_member(part: Node<'_>, key: &str) -> Option<Opaque> {
    part.name_of(key).filter(|text: &Name| !text.is_empty()).map(Opaque::from)
}

/// Returns whether one of these vendors issued the element.
pub(crate) fn is_from(element: &ReasoningItem, vendors: &[Vendor]) -> bool {
    element.format().vendor().is_some_and(|vendor| vendors.contains(&vendor))
}

fn find_list(root: Node<'_>, pointers: ListPointers) -> Option<Node<'_>> {
    let at = |pointer: &&str| if pointer.is_empty() { Some(root) } else { root.at(pointer) };
    pointers.iter().filter_map(at).find(|list| list.is_array())
}
