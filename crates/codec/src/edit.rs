//! Edits JSON text. Unchanged parts are copied together with the white space around them.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use bytes::Bytes;
use throughline_json::{self as json, Json, Name, Node, Tree, work};

/// New values for an object's members, by name. `None` removes the member.
pub(crate) type MemberChanges<V> = [(Cow<'static, str>, Option<V>)];

/// A JSON value stored as a sequence of byte slices, so a large array is not copied until it is
/// written.
#[derive(Clone)]
pub(crate) struct Rope(Vec<Bytes>);

impl From<Json> for Rope {
    fn from(value: Json) -> Self {
        Self(vec![value.bytes().clone()])
    }
}

impl Rope {
    /// Joins the byte slices and parses the value.
    pub(crate) fn json(&self) -> Option<Json> {
        match self.0.as_slice() {
            [whole] => Json::parse(whole.clone()).ok(),
            pieces => Json::parse(pieces.concat()).ok(),
        }
    }

    pub(crate) fn array(elements: &[Json]) -> Self {
        let mut pieces = Vec::with_capacity(elements.len() * 2 + 2);
        pieces.push(Bytes::from_static(b"["));
        for (position, element) in elements.iter().enumerate() {
            if position > 0 {
                pieces.push(Bytes::from_static(b","));
            }
            pieces.push(element.bytes().clone());
        }
        pieces.push(Bytes::from_static(b"]"));
        Self(pieces)
    }

    /// Rebuilds the array at `place` with `elements`, or returns `None` if the array is unchanged.
    /// Elements that were adjacent in the source keep the white space between them.
    pub(crate) fn rebuild_array(
        body: &Bytes,
        place: Range<usize>,
        elements: &[Json],
    ) -> Option<Self> {
        if elements.is_empty() && body.get(place.start) != Some(&b'[') {
            // A value such as `null` is not an array and has no elements, so it stays unchanged.
            return None;
        }
        let places: Vec<_> =
            elements.iter().map(|element| range_in(body, element.bytes())).collect();
        let inner = place.start + 1..place.end.saturating_sub(1);
        let gap = |from: usize, to: usize| body.get(from..to);
        let is_blank = |bytes: &[u8]| bytes.trim_ascii().is_empty();
        let is_comma = |bytes: &&[u8]| bytes.trim_ascii() == b",";
        let between = |position: usize| {
            let left = places.get(position.checked_sub(1)?)?.as_ref()?;
            let right = places.get(position)?.as_ref()?;
            gap(left.end, right.start).filter(is_comma).map(|_| left.end..right.start)
        };
        let is_unchanged = match (places.first(), places.last()) {
            (Some(Some(first)), Some(Some(last))) => {
                gap(inner.start, first.start).is_some_and(is_blank)
                    && gap(last.end, inner.end).is_some_and(is_blank)
                    && (1..places.len()).all(|position| between(position).is_some())
            }
            (None, None) => gap(inner.start, inner.end).is_some_and(is_blank),
            (Some(_), _) | (None, Some(_)) => false,
        };
        if is_unchanged {
            return None;
        }
        let mut rope = Self::array(elements);
        for position in 1..elements.len() {
            if let (Some(range), Some(comma)) = (between(position), rope.0.get_mut(position * 2)) {
                *comma = body.slice(range);
            }
        }
        Some(rope)
    }

    fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    fn write_to(&self, out: &mut Vec<u8>) {
        self.0.iter().for_each(|piece| out.extend_from_slice(piece));
    }
}

/// Returns the range of `part` in `buffer` if `part` is a slice of the same buffer.
pub(crate) fn range_in(buffer: &Bytes, part: &Bytes) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(buffer.as_ptr() as usize)?;
    let end = start + part.len();
    (end <= buffer.len() && !part.is_empty()).then_some(start..end)
}

/// Returns the names and value ranges of an object's members.
pub(crate) fn member_ranges(tree: &Tree) -> Vec<(Name, Range<usize>)> {
    let members = tree.root().members();
    members.map(|(key, value)| (key.name().unwrap_or_default(), value.range())).collect()
}

/// Returns a copy of `base` with the members in `changes` set or removed.
pub(crate) fn edit_object<K: Clone + Into<Cow<'static, str>>>(
    base: Option<&Json>,
    changes: &[(K, Option<Json>)],
) -> Json {
    let rope = |(key, value): &(K, Option<Json>)| {
        let value = value.clone().map(Rope::from);
        (key.clone().into(), value)
    };
    let changes: Vec<_> = changes.iter().map(rope).collect();
    let bytes = match base {
        Some(base) => edit_bytes(base.bytes(), &member_ranges(&base.tree()), &changes),
        None => write(&changes),
    };
    Json::parse(bytes).unwrap_or_else(|_| Json::null())
}

pub(crate) fn with_member(
    base: &Json,
    key: impl Clone + Into<Cow<'static, str>>,
    value: Json,
) -> Json {
    edit_object(Some(base), &[(key, Some(value))])
}

/// Merges `value` into `base` member by member if both are objects. If either is not an object, or
/// `value` has a different `type`, `value` replaces `base`.
pub(crate) fn merge_objects(base: Option<&Json>, value: &Json) -> Json {
    let Some(base) = base else { return value.clone() };
    let (base_tree, value_tree) = (base.tree(), value.tree());
    let kind = |tree: &Tree| tree.root().name_of("type");
    let is_another_kind = kind(&value_tree).is_some_and(|new| kind(&base_tree) != Some(new));
    if !base_tree.root().is_object() || !value_tree.root().is_object() || is_another_kind {
        return value.clone();
    }
    let members = value_tree.root().members();
    let change = |(key, value): (Node<'_>, Node<'_>)| {
        (key.text().unwrap_or_default().into_owned(), Some(value.json()))
    };
    let changes: Vec<_> = members.map(change).collect();
    edit_object(Some(base), &changes)
}

/// Writes a new object that contains the given members.
pub(crate) fn write(changes: &MemberChanges<Rope>) -> Bytes {
    edit_bytes(&Bytes::from_static(b"{}"), &[], changes)
}

/// Copies an object and replaces or removes members; new members are appended.
pub(crate) fn edit_bytes(
    base: &Bytes,
    members: &[(Name, Range<usize>)],
    changes: &MemberChanges<Rope>,
) -> Bytes {
    if changes.is_empty() {
        return base.clone();
    }
    let added: usize =
        changes.iter().filter_map(|(_, value)| Some(value.as_ref()?.len() + 64)).sum();
    let mut copied = memchr::memchr(b'{', base).map_or(0, |open| open + 1);
    let mut out = Vec::with_capacity(base.len() + added);
    out.extend_from_slice(base.get(..copied).unwrap_or_default());
    let mut is_first = true;
    let by_name: HashMap<&str, &Option<Rope>> =
        changes.iter().rev().map(|(key, value)| (&**key, value)).collect();
    let mut unseen: HashSet<&str> = by_name.keys().copied().collect();
    for (name, range) in members {
        work::step();
        // The comma, the name and the white space before the value.
        let lead = base.get(copied..range.start).unwrap_or_default();
        copied = range.end;
        unseen.remove(&**name);
        let change = by_name.get(&**name).copied();
        if matches!(change, Some(None)) {
            continue;
        }
        let is_led = std::mem::take(&mut is_first);
        let after_comma = lead.trim_ascii_start().strip_prefix(b",").filter(|_| is_led);
        out.extend_from_slice(after_comma.unwrap_or(lead));
        match change.and_then(Option::as_ref) {
            Some(value) => value.write_to(&mut out),
            None => out.extend_from_slice(base.get(range.clone()).unwrap_or_default()),
        }
    }
    for (key, value) in changes.iter().filter(|(key, _)| unseen.contains(&**key)) {
        let Some(value) = value else { continue };
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        json::push_string(&mut out, key);
        out.push(b':');
        value.write_to(&mut out);
    }
    out.extend_from_slice(base.get(copied..).unwrap_or_default());
    Bytes::from(out)
}
