//! The object ids in a provider's answer, and lists that hold only the caller's objects.

use std::collections::HashSet;

use bytes::{Bytes, BytesMut};
use throughline_core::{Json, Name, Node, Tree, json};

use crate::objects::routes::{List, bare_name};
use crate::objects::{Family, ObjectId, ObjectKind, text_of};

/// The ids at these places of an answer. A place is a path of member names; `[]` stands for every element.
pub(crate) fn ids_at(
    family: Family,
    root: Node<'_>,
    places: &[(&'static str, ObjectKind)],
) -> Vec<ObjectId> {
    let mut found = Vec::new();
    for (place, kind) in places {
        let mut nodes = vec![root];
        for step in place.split('.') {
            let (name, is_list) = match step.strip_suffix("[]") {
                Some(name) => (name, true),
                None => (step, false),
            };
            let next = nodes.into_iter().filter_map(|node| node.get(name));
            nodes = if is_list { next.flat_map(Node::elements).collect() } else { next.collect() };
        }
        found.extend(nodes.into_iter().filter_map(|node| id_of(family, *kind, node)));
    }
    found
}

fn id_of(family: Family, kind: ObjectKind, node: Node<'_>) -> Option<ObjectId> {
    let id = text_of(node)?;
    let id = if family == Family::Gemini { bare_name(&id) } else { id };
    Some(ObjectId { kind, id })
}

/// The objects of a list, in order, each with its id.
pub(crate) fn listed<'t>(
    family: Family,
    list: &List,
    root: Node<'t>,
) -> Vec<(Node<'t>, Option<ObjectId>)> {
    let elements = root.get(list.array).into_iter().flat_map(Node::elements);
    elements
        .map(|element| {
            let id = element.get(list.id).and_then(|id| id_of(family, list.kind, id));
            (element, id)
        })
        .collect()
}

/// A list with the objects that are owned, and the plain members beside them as the provider wrote them.
pub(crate) fn filter_list(
    family: Family,
    list: &List,
    tree: &Tree,
    owned: &HashSet<ObjectId>,
) -> Json {
    let kept: Vec<Node<'_>> = listed(family, list, tree.root())
        .into_iter()
        .filter(|(_, id)| id.as_ref().is_some_and(|id| owned.contains(id)))
        .map(|(element, _)| element)
        .collect();
    let id = |element: Option<&Node<'_>>| element.and_then(|element| element.name_of(list.id));
    let (first, end) = (id(kept.first()), id(kept.last()));
    json::object(|o| {
        for (key, value) in tree.root().members() {
            let key = key.text().unwrap_or_default();
            let edge = |o: &mut json::Object<'_>, id: Option<&Name>| {
                match id {
                    Some(id) => o.string(&key, id),
                    None => o.null(&key),
                };
            };
            match &*key {
                key if key == list.array => {
                    o.array(key, |a| {
                        for element in &kept {
                            a.node(*element);
                        }
                    });
                }
                "first_id" => edge(o, first.as_ref()),
                "last_id" => edge(o, end.as_ref()),
                // Another list or object could show what is not the caller's.
                _ if value.is_array() || value.is_object() => {}
                key => {
                    o.node(key, value);
                }
            }
        }
    })
}

/// The ids in a stream of server-sent events, found as its bytes pass.
pub(crate) struct EventIds {
    family: Family,
    places: &'static [(&'static str, ObjectKind)],
    /// The line that has not ended yet.
    open: BytesMut,
}

/// The longest line that is read for ids.
const LONGEST: usize = 8 << 20;

impl EventIds {
    pub(crate) fn new(family: Family, places: &'static [(&'static str, ObjectKind)]) -> Self {
        Self { family, places, open: BytesMut::new() }
    }

    /// The ids in the lines that end with these bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<ObjectId> {
        let mut found = Vec::new();
        let mut rest = bytes;
        while let Some(at) = memchr::memchr(b'\n', rest) {
            let (line, after) = rest.split_at(at + 1);
            rest = after;
            self.open.extend_from_slice(line);
            let line = self.open.split().freeze();
            found.extend(self.ids_of(&line));
        }
        self.open.extend_from_slice(rest);
        if self.open.len() > LONGEST {
            self.open.clear();
        }
        found
    }

    fn ids_of(&self, line: &Bytes) -> Vec<ObjectId> {
        let data = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii);
        let tree = data.and_then(|data| Tree::parse(line.slice_ref(data)).ok());
        tree.map(|tree| ids_at(self.family, tree.root(), self.places)).unwrap_or_default()
    }
}
