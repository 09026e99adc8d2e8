//! Fixes for findings, as edits that leave the rest of the request text unchanged.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use bytes::Bytes;
use throughline_json::{self as json, Json, Node, Tree, work};

/// An automatic fix for one finding.
#[derive(Clone, Debug)]
pub struct Fix {
    /// The effect of the fix as a verb phrase, for example `removes the unsigned thinking block`.
    pub what: String,
    /// The edits. Their ranges refer to the audited body.
    pub edits: Vec<Edit>,
}

impl Fix {
    /// Creates a fix from its edits; `description` states their effect.
    pub fn new(description: impl Into<String>, edits: impl Into<Vec<Edit>>) -> Self {
        Self { what: description.into(), edits: edits.into() }
    }

    /// Creates a fix that removes an array element or an object member.
    pub fn removal(node: Node<'_>, description: impl Into<String>) -> Self {
        Self::new(description, [Edit::Remove(node.range())])
    }

    /// Creates a fix that replaces the value of `node`.
    pub fn replacement(node: Node<'_>, value: Json, description: impl Into<String>) -> Self {
        Self::new(description, [Edit::Replace(node.range(), value)])
    }
}

/// One edit of a JSON text. Ranges refer to values in the unedited text.
#[derive(Clone, Debug)]
pub enum Edit {
    /// Replaces the value at this range.
    Replace(Range<usize>, Json),
    /// Removes the array element or object member whose value has this range.
    Remove(Range<usize>),
    /// Inserts elements before the array element at this range.
    InsertBefore(Range<usize>, Vec<Json>),
    /// Inserts elements after the array element at this range.
    InsertAfter(Range<usize>, Vec<Json>),
    /// Sets a member of the object at this range. An existing member is replaced.
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

    /// Returns whether the edit changes text inside `place`. Removing the value at `place` or
    /// inserting next to it changes only the surrounding list.
    fn changes(&self, place: &Range<usize>) -> bool {
        let own = self.place();
        let is_of_the_list =
            matches!(self, Edit::Remove(_) | Edit::InsertBefore(..) | Edit::InsertAfter(..));
        place.start <= own.start && own.end <= place.end && !(own == place && is_of_the_list)
    }
}

/// Selects fixes greedily in order, skips fixes that overlap a selected fix, and returns the
/// indexes of the selected fixes.
///
/// Edited ranges are stored as disjoint intervals, so each edit costs one lookup in an ordered map.
pub(crate) fn select_compatible(fixes: &[&Fix]) -> Vec<usize> {
    let mut edited = Intervals::default();
    let mut selected: Vec<usize> = Vec::new();
    for (number, fix) in fixes.iter().enumerate() {
        if !fix.edits.iter().any(|edit| edited.overlaps(edit.place())) {
            fix.edits.iter().for_each(|edit| edited.add(edit.place()));
            selected.push(number);
        }
    }
    selected
}

/// A set of byte offsets as disjoint intervals: maps the start of each interval to its end.
#[derive(Default)]
struct Intervals(BTreeMap<usize, usize>);

impl Intervals {
    fn overlaps(&self, place: &Range<usize>) -> bool {
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

/// Applies the edits. All other text is copied unchanged, including white space.
pub(crate) fn apply(tree: &Tree, edits: &[&Edit]) -> Bytes {
    let mut out = Vec::with_capacity(tree.bytes().len() + 256);
    let root = tree.root();
    out.extend_from_slice(tree.bytes().get(..root.range().start).unwrap_or_default());
    // The sort is stable, so edits with the same range keep their order.
    let mut sorted = edits.to_vec();
    sorted.sort_by_key(|edit| edit.place().start);
    write(tree, root, &sorted, &mut out);
    out.extend_from_slice(tree.bytes().get(root.range().end..).unwrap_or_default());
    Bytes::from(out)
}

/// Returns the edits that start inside `place`. `edits` must be sorted by start.
fn within<'s, 'e>(edits: &'s [&'e Edit], place: &Range<usize>) -> &'s [&'e Edit] {
    let from = edits.partition_point(|edit| edit.place().start < place.start);
    let behind = edits.get(from..).unwrap_or_default();
    let count = behind.partition_point(|edit| edit.place().start < place.end);
    let inside = behind.get(..count).unwrap_or_default();
    work::steps(inside.len() + 1);
    inside
}

/// Writes one value. Recursion enters only values that contain an edit, which bounds its depth.
/// `edits` must be sorted by start, and each edit must start inside the value.
fn write(tree: &Tree, node: Node<'_>, edits: &[&Edit], out: &mut Vec<u8>) {
    let place = node.range();
    if !edits.iter().any(|edit| edit.changes(&place)) {
        out.extend_from_slice(node.raw());
        return;
    }
    // Edits are sorted by start, so edits of the value itself come first.
    for edit in edits.iter().take_while(|edit| edit.place().start == place.start) {
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
    let mut list = ListWriter::open(tree, node, b'[', out);
    for element in node.elements() {
        let place = element.range();
        let lead = list.lead(place.start);
        let inside = within(edits, &place);
        let here = inside.iter().take_while(|edit| *edit.place() == place);
        let is_removed = here.clone().any(|edit| matches!(edit, Edit::Remove(_)));
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for edit in here {
            match edit {
                Edit::InsertBefore(_, new) => before.extend(new),
                Edit::InsertAfter(_, new) => after.extend(new),
                Edit::Replace(..) | Edit::Remove(_) | Edit::Set(..) => {}
            }
        }
        for value in before {
            list.push_value(lead, value);
        }
        if !is_removed {
            list.push(lead, |out| write(tree, element, inside, out));
        }
        for value in after {
            list.push_value(lead, value);
        }
        list.copied = place.end;
    }
    list.close(node, b']');
}

fn write_object(tree: &Tree, node: Node<'_>, edits: &[&Edit], out: &mut Vec<u8>) {
    let place = node.range();
    // New members by name, each with its insertion order.
    let mut set: HashMap<&str, (usize, &Json)> = HashMap::new();
    for edit in edits.iter().take_while(|edit| edit.place().start == place.start) {
        if let Edit::Set(at, key, value) = edit
            && *at == place
        {
            let number = set.len();
            set.entry(key).and_modify(|known| known.1 = value).or_insert((number, value));
        }
    }
    let mut list = ListWriter::open(tree, node, b'{', out);
    for (name, value) in node.members() {
        let lead = list.lead(name.range().start);
        let gap = tree.bytes().get(name.range().end..value.range().start).unwrap_or_default();
        let inside = within(edits, &value.range());
        let mut here = inside.iter().take_while(|edit| *edit.place() == value.range());
        let is_removed = here.any(|edit| matches!(edit, Edit::Remove(_)));
        let text = if set.is_empty() { None } else { name.text() };
        let new = text.and_then(|name| set.remove(&*name)).map(|(_, value)| value);
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

/// Writes an edited array or object, and keeps the white space before each member.
struct ListWriter<'t, 'o> {
    tree: &'t Tree,
    out: &'o mut Vec<u8>,
    copied: usize,
    white: &'t [u8],
    is_first: bool,
}

impl<'t, 'o> ListWriter<'t, 'o> {
    fn open(tree: &'t Tree, node: Node<'_>, bracket: u8, out: &'o mut Vec<u8>) -> Self {
        out.push(bracket);
        Self { tree, out, copied: node.range().start + 1, white: b"", is_first: true }
    }

    /// Returns the white space before a list member that starts at offset `start`.
    fn lead(&mut self, start: usize) -> &'t [u8] {
        let gap = self.tree.bytes().get(self.copied..start).unwrap_or_default();
        let after_comma = memchr::memchr(b',', gap).map_or(0, |comma| comma + 1);
        self.white = gap.get(after_comma..).unwrap_or_default();
        self.white
    }

    fn push_value(&mut self, lead: &[u8], value: &Json) {
        self.push(lead, |out| out.extend_from_slice(value.bytes()));
    }

    fn push(&mut self, lead: &[u8], fill: impl FnOnce(&mut Vec<u8>)) {
        if !std::mem::take(&mut self.is_first) {
            self.out.push(b',');
        }
        self.out.extend_from_slice(lead);
        fill(self.out);
    }

    /// Copies the text before the closing bracket unless the list became empty.
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
#[path = "fix_tests.rs"]
mod fix_tests;
