//! How a request can be mended: a few edits on its text, everything else as it came.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use bytes::Bytes;
use throughline_core::{Json, Node, Tree, json, work};

/// A way to mend one finding.
#[derive(Clone, Debug)]
pub struct Mend {
    /// What it does, as the start of a sentence: `removes the unsigned thinking block`.
    pub what: String,
    /// The edits, on the body that the finding is about.
    pub edits: Vec<Edit>,
}

impl Mend {
    /// These edits, which together do `what`.
    pub fn new(what: impl Into<String>, edits: impl Into<Vec<Edit>>) -> Self {
        Self { what: what.into(), edits: edits.into() }
    }
}

/// One edit on a JSON text. Places are those of values in the text as it is before any edit.
#[derive(Clone, Debug)]
pub enum Edit {
    /// Writes another value in its place.
    Replace(Range<usize>, Json),
    /// Takes an array's element or an object's member away, by the place of its value.
    Remove(Range<usize>),
    /// Puts new elements before an array's element.
    InsertBefore(Range<usize>, Vec<Json>),
    /// Puts new elements behind an array's element.
    InsertAfter(Range<usize>, Vec<Json>),
    /// Gives an object a member, by the place of the object; replaces the one of that name.
    Set(Range<usize>, String, Json),
}

impl Edit {
    fn place(&self) -> &Range<usize> {
        match self {
            Edit::Replace(place, _)
            | Edit::Remove(place)
            | Edit::InsertBefore(place, _)
            | Edit::InsertAfter(place, _)
            | Edit::Set(place, ..) => place,
        }
    }

    /// Whether it changes the value that stands at `place`. To be removed, or to get a neighbour, changes the list around it.
    fn changes(&self, place: &Range<usize>) -> bool {
        let own = self.place();
        let is_of_the_list =
            matches!(self, Edit::Remove(_) | Edit::InsertBefore(..) | Edit::InsertAfter(..));
        place.start <= own.start && own.end <= place.end && !(own == place && is_of_the_list)
    }
}

/// Picks the mends whose edits do not overlap, in order; returns their numbers.
///
/// Edited places are kept as disjoint intervals, so each edit costs one lookup in an ordered map.
pub(crate) fn compatible(mends: &[&Mend]) -> Vec<usize> {
    let mut edited = Intervals::default();
    let mut taken: Vec<usize> = Vec::new();
    for (number, mend) in mends.iter().enumerate() {
        if !mend.edits.iter().any(|edit| edited.meets(edit.place())) {
            mend.edits.iter().for_each(|edit| edited.add(edit.place()));
            taken.push(number);
        }
    }
    taken
}

/// A union of places as disjoint intervals: the end of each by its start.
#[derive(Default)]
struct Intervals(BTreeMap<usize, usize>);

impl Intervals {
    /// Whether the place shares a byte with the union.
    fn meets(&self, place: &Range<usize>) -> bool {
        work::step();
        let before = self.0.range(..place.end).next_back();
        before.is_some_and(|(_, end)| *end > place.start)
    }

    fn add(&mut self, place: &Range<usize>) {
        let (mut start, mut end) = (place.start, place.end);
        while let Some((from, to)) = self.0.range(..end).next_back().map(|(from, to)| (*from, *to))
            && to > start
        {
            work::step();
            self.0.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.0.insert(start, end);
    }
}

/// The text with the edits made. What they do not touch is copied with the white space around it.
pub(crate) fn apply(tree: &Tree, edits: &[&Edit]) -> Bytes {
    let mut out = Vec::with_capacity(tree.bytes().len() + 256);
    let root = tree.root();
    out.extend_from_slice(tree.bytes().get(..root.range().start).unwrap_or_default());
    // The sort is stable: edits of one place stay in the order in which they were made.
    let mut sorted = edits.to_vec();
    sorted.sort_by_key(|edit| edit.place().start);
    write(tree, root, &sorted, &mut out);
    out.extend_from_slice(tree.bytes().get(root.range().end..).unwrap_or_default());
    Bytes::from(out)
}

/// The edits that begin inside `place`. `edits` are sorted by where they begin.
fn within<'s, 'e>(edits: &'s [&'e Edit], place: &Range<usize>) -> &'s [&'e Edit] {
    let from = edits.partition_point(|edit| edit.place().start < place.start);
    let behind = edits.get(from..).unwrap_or_default();
    let count = behind.partition_point(|edit| edit.place().start < place.end);
    let inside = behind.get(..count).unwrap_or_default();
    work::steps(inside.len() + 1);
    inside
}

/// Writes one value. Recurses only into values that hold an edit, so its depth is that of the edits.
/// `edits` are sorted, and each of them begins inside the value.
fn write(tree: &Tree, node: Node<'_>, edits: &[&Edit], out: &mut Vec<u8>) {
    let place = node.range();
    if !edits.iter().any(|edit| edit.changes(&place)) {
        out.extend_from_slice(node.raw());
        return;
    }
    // Edits are sorted by their start, so those of the value itself come first.
    let own = edits.iter().take_while(|edit| edit.place().start == place.start);
    for edit in own {
        if let Edit::Replace(at, value) = edit
            && *at == place
        {
            out.extend_from_slice(value.bytes());
            return;
        }
    }
    if node.is_array() {
        write_array(tree, node, edits, out);
    } else {
        write_object(tree, node, edits, out);
    }
}

fn write_array(tree: &Tree, node: Node<'_>, edits: &[&Edit], out: &mut Vec<u8>) {
    let mut list = List::open(tree, node, b'[', out);
    for element in node.elements() {
        let place = element.range();
        let lead = list.lead(place.start);
        let inside = within(edits, &place);
        let here = inside.iter().take_while(|edit| *edit.place() == place);
        let is_removed = here.clone().any(|edit| matches!(edit, Edit::Remove(_)));
        for edit in here.clone() {
            if let Edit::InsertBefore(_, new) = edit {
                for value in new {
                    list.push(lead, |out| out.extend_from_slice(value.bytes()));
                }
            }
        }
        if !is_removed {
            list.push(lead, |out| write(tree, element, inside, out));
        }
        for edit in here {
            if let Edit::InsertAfter(_, new) = edit {
                for value in new {
                    list.push(lead, |out| out.extend_from_slice(value.bytes()));
                }
            }
        }
        list.copied = place.end;
    }
    list.close(node, b']');
}

fn write_object(tree: &Tree, node: Node<'_>, edits: &[&Edit], out: &mut Vec<u8>) {
    let place = node.range();
    // New members by name, each with its place among them.
    let mut set: HashMap<&str, (usize, &Json)> = HashMap::new();
    for edit in edits.iter().take_while(|edit| edit.place().start == place.start) {
        if let Edit::Set(at, key, value) = edit
            && *at == place
        {
            let number = set.len();
            set.entry(key).and_modify(|known| known.1 = value).or_insert((number, value));
        }
    }
    let mut list = List::open(tree, node, b'{', out);
    for (name, value) in node.members() {
        let lead = list.lead(name.range().start);
        let gap = tree.bytes().get(name.range().end..value.range().start).unwrap_or_default();
        let inside = within(edits, &value.range());
        let is_removed = inside
            .iter()
            .take_while(|edit| *edit.place() == value.range())
            .any(|edit| matches!(edit, Edit::Remove(_)));
        let new = if set.is_empty() {
            None
        } else {
            name.text().and_then(|name| set.remove(&*name)).map(|(_, value)| value)
        };
        if !is_removed {
            list.push(lead, |out| {
                out.extend_from_slice(name.raw());
                out.extend_from_slice(gap);
                match new {
                    Some(value) => out.extend_from_slice(value.bytes()),
                    None => write(tree, value, inside, out),
                }
            });
        }
        list.copied = value.range().end;
    }
    let lead = list.white;
    let mut added: Vec<_> = set.into_iter().collect();
    added.sort_by_key(|(_, (number, _))| *number);
    for (key, (_, value)) in added {
        list.push(lead, |out| {
            json::push_string(out, key);
            out.extend_from_slice(b": ".get(..if lead.is_empty() { 1 } else { 2 }).unwrap_or(b":"));
            out.extend_from_slice(value.bytes());
        });
    }
    list.close(node, b'}');
}

/// A list that is being copied, with the white space that stands before its members.
struct List<'t, 'o> {
    tree: &'t Tree,
    out: &'o mut Vec<u8>,
    copied: usize,
    white: &'t [u8],
    is_first: bool,
}

impl<'t, 'o> List<'t, 'o> {
    fn open(tree: &'t Tree, node: Node<'_>, bracket: u8, out: &'o mut Vec<u8>) -> Self {
        out.push(bracket);
        Self { tree, out, copied: node.range().start + 1, white: b"", is_first: true }
    }

    /// The white space before a member that begins at `start`.
    fn lead(&mut self, start: usize) -> &'t [u8] {
        let gap = self.tree.bytes().get(self.copied..start).unwrap_or_default();
        let after_comma = memchr::memchr(b',', gap).map_or(0, |comma| comma + 1);
        self.white = gap.get(after_comma..).unwrap_or_default();
        self.white
    }

    fn push(&mut self, lead: &[u8], fill: impl FnOnce(&mut Vec<u8>)) {
        if !std::mem::take(&mut self.is_first) {
            self.out.push(b',');
        }
        self.out.extend_from_slice(lead);
        fill(self.out);
    }

    /// Copies what stands before the closing bracket, unless the list was emptied.
    fn close(self, node: Node<'_>, bracket: u8) {
        let end = node.range().end.saturating_sub(1);
        let tail = self.tree.bytes().get(self.copied..end).unwrap_or_default();
        if !self.is_first || tail.len() + 1 == node.raw().len() {
            self.out.extend_from_slice(tail);
        }
        self.out.push(bracket);
    }
}

#[cfg(test)]
#[path = "mend_tests.rs"]
mod mend_tests;
