//! Finds object ids in a provider's response, and reduces lists to the caller's objects.

use std::collections::HashSet;

use bytes::{Bytes, BytesMut};
use throughline_json::{self as json, Json, Name, Node, Tree};

use throughline_replay::{Family, ObjectId, ObjectKind, id_of, ids_at};

use crate::gateway::objects::routes::ObjectList;

/// Returns a list's entries in order, each with its object id; `None` for an entry without an id.
pub(crate) fn list_entries<'t>(
    family: Family,
    list: &ObjectList,
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

/// Reduces a list to the owned objects. Scalar fields are copied as the provider wrote them.
pub(crate) fn filter_list(
    family: Family,
    list: &ObjectList,
    tree: &Tree,
    owned: &HashSet<ObjectId>,
) -> Json {
    let kept: Vec<Node<'_>> = list_entries(family, list, tree.root())
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
                // Another list or object could contain objects of other tenants.
                _ if value.is_array() || value.is_object() => {}
                key => {
                    o.node(key, value);
                }
            }
        }
    })
}

/// Finds object ids in a stream of server-sent events while the gateway relays the stream.
pub(crate) struct EventIdScanner {
    family: Family,
    places: &'static [(&'static str, ObjectKind)],
    /// The incomplete last line.
    open: BytesMut,
}

/// Maximum length of a line that is searched for ids, in bytes.
const LONGEST: usize = 8 << 20;

impl EventIdScanner {
    pub(crate) fn new(family: Family, places: &'static [(&'static str, ObjectKind)]) -> Self {
        Self { family, places, open: BytesMut::new() }
    }

    /// Returns the ids in all lines that these bytes complete.
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
