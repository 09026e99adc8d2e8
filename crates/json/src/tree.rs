//! Reads JSON text through an index, without copies.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, Bytes};

use crate::scan::{self, Entry, EntryBound, Index};
use crate::text::{self, Escaped};
use crate::{Json, JsonKind, SyntaxError, common_prefix, work};

/// A JSON text with an index of all its values. Values are slices that share the text's memory.
/// Clones share the text and the index.
#[derive(Clone)]
pub struct Tree {
    bytes: Bytes,
    index: Arc<Index>,
}

impl Tree {
    /// Parses a text that contains exactly one value.
    pub fn parse(text: impl Into<Bytes>) -> Result<Self, SyntaxError> {
        Self::parse_within(u32::MAX, text)
    }

    /// Parses a text with at most `deepest` levels of nesting. Deeper nesting is an error; see
    /// [`SyntaxError::is_too_deep`].
    pub fn parse_within(deepest: u32, text: impl Into<Bytes>) -> Result<Self, SyntaxError> {
        Self::parse_up_to(deepest, EntryBound::Unlimited, text.into())
    }

    /// Parses a text like [`Tree::parse_within`]. `entries` is the number of its entries, which was
    /// counted before, so that the index is allocated at its exact size.
    pub fn parse_measured(
        deepest: u32,
        entries: usize,
        text: impl Into<Bytes>,
    ) -> Result<Self, SyntaxError> {
        Self::parse_up_to(deepest, EntryBound::Exactly(entries), text.into())
    }

    /// Parses a text like [`Tree::parse_within`]. Returns `None` if the text has more than `most`
    /// entries.
    pub fn parse_bounded(
        deepest: u32,
        most: usize,
        text: impl Into<Bytes>,
    ) -> Result<Option<Self>, SyntaxError> {
        match Self::parse_up_to(deepest, EntryBound::AtMost(most), text.into()) {
            Err(error) if error.is_too_many() => Ok(None),
            parsed => parsed.map(Some),
        }
    }

    fn parse_up_to(deepest: u32, bound: EntryBound, bytes: Bytes) -> Result<Self, SyntaxError> {
        text::check(&bytes, 0)?;
        let index = Arc::new(scan::index(&bytes, deepest, bound)?);
        Ok(Self { bytes, index })
    }

    /// Indexes a text that was already validated.
    pub(super) fn from_checked(bytes: &Bytes) -> Self {
        let index = scan::index(bytes, u32::MAX, EntryBound::Unlimited);
        Self { bytes: bytes.clone(), index: Arc::new(index.unwrap_or_default()) }
    }

    /// Returns the outermost value verbatim.
    pub(super) fn into_json(self) -> Json {
        let range = self.root().range();
        let mut bytes = self.bytes;
        bytes.truncate(range.end);
        bytes.advance(range.start);
        Json::from_trusted(bytes)
    }

    /// Returns the outermost value of the text.
    pub fn root(&self) -> Node<'_> {
        Node { tree: self, index: 0 }
    }

    /// Returns the value with that [number](Node::number_in_tree), or the outermost value if the
    /// number is invalid.
    pub fn node(&self, number: u32) -> Node<'_> {
        let is_there = (number as usize) < self.index.entries.len();
        Node { tree: self, index: if is_there { number } else { 0 } }
    }

    /// Returns the whole indexed text, including surrounding whitespace.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the number of values and member names.
    pub fn entries(&self) -> usize {
        self.index.entries.len()
    }

    /// Returns the memory size of the text and its index in bytes.
    pub fn size(&self) -> usize {
        let Index { entries, escapes, .. } = &*self.index;
        let index = entries.capacity() * size_of::<Entry>() + escapes.capacity() * size_of::<u32>();
        self.bytes.len() + index
    }

    /// Whether the tree indexes exactly this text. The text must be in the same memory; equal bytes
    /// elsewhere do not match.
    pub fn indexes(&self, text: &Bytes) -> bool {
        self.bytes.as_ptr() == text.as_ptr() && self.bytes.len() == text.len()
    }
}

/// The beginning that a text has in common with a text that was parsed before.
pub struct SharedBeginning<'k> {
    known: &'k Tree,
    text: Bytes,
    length: usize,
}

impl<'k> SharedBeginning<'k> {
    /// Compares the two texts.
    pub fn of(known: &'k Tree, text: &Bytes) -> Self {
        Self { known, text: text.clone(), length: common_prefix(&known.bytes, text) }
    }

    /// Returns the number of bytes that both texts have in common at the start.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Parses the new text like [`Tree::parse_bounded`], but scans only what differs from the known
    /// text: the index of equal text at the start and at the end is copied. Also returns `None` if
    /// both texts have too little in common.
    pub fn parse(self, deepest: u32, most: usize) -> Result<Option<Tree>, SyntaxError> {
        let Self { known, text, length } = self;
        match scan::index_after(&text, (&known.bytes, &known.index), length, deepest, most)
            .transpose()
        {
            Err(error) if error.is_too_many() => Ok(None),
            Err(error) => Err(error),
            Ok(index) => Ok(index.map(|index| Tree { bytes: text, index: Arc::new(index) })),
        }
    }
}

/// One value or member name in a [`Tree`].
#[derive(Clone, Copy)]
pub struct Node<'t> {
    tree: &'t Tree,
    index: u32,
}

impl<'t> Node<'t> {
    #[inline]
    fn entry(self) -> Entry {
        self.tree.index.entries.get(self.index as usize).copied().unwrap_or_default()
    }

    /// Returns the index of the entry after the value and its descendants.
    #[inline]
    fn after(self) -> u32 {
        let entry = self.entry();
        match entry.shape {
            JsonKind::Array | JsonKind::Object => entry.link,
            JsonKind::Null | JsonKind::Bool | JsonKind::Number | JsonKind::String => self.index + 1,
        }
    }

    /// Returns the value's number. Pass it to [`Tree::node`] to find the value again.
    #[inline]
    pub fn number_in_tree(self) -> u32 {
        self.index
    }

    /// Returns the JSON type of the value.
    #[inline]
    pub fn shape(self) -> JsonKind {
        self.entry().shape
    }

    /// Returns the value's byte range in the tree's text.
    #[inline]
    pub fn range(self) -> Range<usize> {
        let entry = self.entry();
        entry.start as usize..entry.end as usize
    }

    /// Returns the value's bytes, verbatim.
    #[inline]
    pub fn raw(self) -> &'t [u8] {
        self.tree.bytes.get(self.range()).unwrap_or_default()
    }

    /// Returns the value as verbatim JSON that shares the tree's memory.
    pub fn json(self) -> Json {
        Json::from_trusted(self.tree.bytes.slice(self.range()))
    }

    /// Whether the value is `null`.
    #[inline]
    pub fn is_null(self) -> bool {
        self.shape() == JsonKind::Null
    }

    /// Whether the value is an object.
    #[inline]
    pub fn is_object(self) -> bool {
        self.shape() == JsonKind::Object
    }

    /// Whether the value is an array.
    #[inline]
    pub fn is_array(self) -> bool {
        self.shape() == JsonKind::Array
    }

    /// Whether the value is a string.
    #[inline]
    pub fn is_string(self) -> bool {
        self.shape() == JsonKind::String
    }

    /// Returns the unescaped text of a string; `None` for any other type.
    pub fn text(self) -> Option<Cow<'t, str>> {
        let owned = |text: &[u8]| Cow::Owned(text::as_checked_str(text).to_owned());
        self.read_string(owned, |text| Cow::Borrowed(text::as_checked_str(text)))
    }

    /// Returns the unescaped text of a string as a shared string; `None` for any other type.
    pub fn name(self) -> Option<Arc<str>> {
        let shared = |text: &[u8]| Arc::from(text::as_checked_str(text));
        self.read_string(shared, shared)
    }

    /// Returns the unescaped text of a string as bytes; `None` for any other type. Copies only if
    /// the string has escapes.
    pub fn text_bytes(self) -> Option<Bytes> {
        self.read_string(Bytes::copy_from_slice, |text| self.tree.bytes.slice_ref(text))
    }

    /// Passes the text of a string to `verbatim`, or to `copied` if the text had to be unescaped.
    fn read_string<T>(
        self,
        copied: impl FnOnce(&[u8]) -> T,
        verbatim: impl FnOnce(&'t [u8]) -> T,
    ) -> Option<T> {
        match self.escaped() {
            Some(escaped) => Some(escaped.read(copied)),
            None => self.is_string().then(|| verbatim(self.inner())),
        }
    }

    /// Returns the escape positions of a string; `None` if it has no escapes.
    #[inline]
    fn escaped(self) -> Option<Escaped<'t>> {
        let entry = self.entry();
        if !entry.escaped {
            return None;
        }
        let inner = entry.start as usize + 1..entry.end as usize - 1;
        let escapes = self.tree.index.escapes.get(entry.link as usize..).unwrap_or_default();
        Some(Escaped { text: &self.tree.bytes, inner, escapes })
    }

    /// Returns the bytes between the quotes of a string.
    #[inline]
    fn inner(self) -> &'t [u8] {
        let range = self.range();
        self.tree.bytes.get(range.start + 1..range.end - 1).unwrap_or_default()
    }

    /// Whether the value is a string equal to `value`.
    #[inline]
    pub fn is(self, value: &str) -> bool {
        let entry = self.entry();
        if entry.escaped {
            return self.escaped().is_some_and(|own| own.read(|text| text == value.as_bytes()));
        }
        // Most other names have another length, so comparing lengths first avoids reading the text.
        entry.shape == JsonKind::String
            && (entry.end - entry.start) as usize == value.len() + 2
            && self.inner() == value.as_bytes()
    }

    /// Returns a non-negative integer; `None` for any other value, such as `-1` or `1.0`.
    pub fn u64(self) -> Option<u64> {
        self.number()?.parse().ok()
    }

    /// Returns a number as written; `None` for any other type.
    pub fn number(self) -> Option<&'t str> {
        (self.shape() == JsonKind::Number).then(|| std::str::from_utf8(self.raw()).ok()).flatten()
    }

    /// Returns a boolean; `None` for any other type.
    pub fn bool(self) -> Option<bool> {
        (self.shape() == JsonKind::Bool).then(|| self.raw() == b"true")
    }

    /// Iterates over the elements of an array; empty for any other type.
    #[inline]
    pub fn elements(self) -> Elements<'t> {
        let end = if self.is_array() { self.after() } else { self.index };
        Elements { tree: self.tree, next: self.index + 1, end }
    }

    /// Iterates over the members of an object; empty for any other type.
    #[inline]
    pub fn members(self) -> Members<'t> {
        let end = if self.is_object() { self.after() } else { self.index };
        Members(Elements { tree: self.tree, next: self.index + 1, end })
    }

    /// Iterates over the members of the value and of all its descendants, in text order.
    pub fn all_members(self) -> impl Iterator<Item = (Node<'t>, Node<'t>)> {
        let below = (self.index + 1..self.after()).map(move |index| Node { index, ..self });
        let keys = below.filter(|node| node.entry().is_key);
        keys.map(|key| (key, Node { index: key.index + 1, ..key }))
    }

    /// Iterates over the value and all its descendants in text order, without member names.
    pub fn values(self) -> impl Iterator<Item = Node<'t>> {
        let all = (self.index..self.after()).map(move |index| Node { index, ..self });
        all.filter(|node| !node.entry().is_key)
    }

    /// Returns the value of the member with that name. If the name is duplicated, returns the last
    /// member's value, as most parsers do.
    pub fn get(self, key: &str) -> Option<Node<'t>> {
        self.members().filter(|(name, _)| name.is(key)).last().map(|(_, value)| value)
    }

    /// Returns the value of the member with that name; `None` if the member is absent or `null`.
    pub fn present(self, key: &str) -> Option<Node<'t>> {
        self.get(key).filter(|value| !value.is_null())
    }

    /// Returns the text of the member with that name; `None` if the member is absent or not a
    /// string.
    pub fn text_of(self, key: &str) -> Option<Cow<'t, str>> {
        self.get(key)?.text()
    }

    /// Like [`Node::text_of`], but returns a shared string.
    pub fn name_of(self, key: &str) -> Option<Arc<str>> {
        self.get(key)?.name()
    }

    /// Returns the value at a JSON pointer (RFC 6901) relative to this value.
    pub fn at(self, pointer: &str) -> Option<Node<'t>> {
        let mut node = self;
        for step in pointer.split('/').skip(1) {
            node = match node.shape() {
                JsonKind::Array => node.elements().nth(step.parse().ok()?)?,
                JsonKind::Object if step.contains('~') => {
                    node.get(&step.replace("~1", "/").replace("~0", "~"))?
                }
                JsonKind::Object => node.get(step)?,
                JsonKind::Null | JsonKind::Bool | JsonKind::Number | JsonKind::String => {
                    return None;
                }
            };
        }
        Some(node)
    }

    /// Returns the canonical form; see [`Json::canonical`].
    pub fn canonical(self) -> String {
        canonical(self)
    }
}

impl std::fmt::Debug for Node<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} at {:?}", self.shape(), self.range())
    }
}

/// Iterates over the elements of an array.
#[derive(Clone)]
pub struct Elements<'t> {
    tree: &'t Tree,
    next: u32,
    end: u32,
}

impl<'t> Iterator for Elements<'t> {
    type Item = Node<'t>;

    #[inline]
    fn next(&mut self) -> Option<Node<'t>> {
        if self.next >= self.end {
            return None;
        }
        work::step();
        let node = Node { tree: self.tree, index: self.next };
        self.next = node.after();
        Some(node)
    }
}

/// Iterates over the names and values of an object, in text order.
#[derive(Clone)]
pub struct Members<'t>(Elements<'t>);

impl<'t> Iterator for Members<'t> {
    type Item = (Node<'t>, Node<'t>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let name = Node { tree: self.0.tree, index: self.0.next };
        let value = Node { index: name.index + 1, ..name };
        if value.index >= self.0.end {
            return None;
        }
        work::step();
        self.0.next = value.after();
        Some((name, value))
    }
}

/// Returns the canonical form: sorted members and no whitespace. The stack of open containers is on
/// the heap, so deep nesting cannot overflow the call stack.
fn canonical(root: Node<'_>) -> String {
    let mut out = Vec::new();
    let outermost: Vec<(Option<Node<'_>>, Node<'_>)> = vec![(None, root)];
    let mut open = vec![(outermost.into_iter(), None)];
    while let Some((rest, end)) = open.last_mut() {
        let Some((name, node)) = rest.next() else {
            out.extend(*end);
            open.pop();
            continue;
        };
        // A string ends with a quote, so a bracket at the end of the output opens a container.
        if !matches!(out.last(), None | Some(b'[' | b'{')) {
            out.push(b',');
        }
        if let Some(name) = name {
            text::push_quoted(&mut out, &name.text().unwrap_or_default());
            out.push(b':');
        }
        match node.shape() {
            JsonKind::Null | JsonKind::Bool | JsonKind::Number => out.extend_from_slice(node.raw()),
            JsonKind::String => text::push_quoted(&mut out, &node.text().unwrap_or_default()),
            JsonKind::Array => {
                out.push(b'[');
                let elements: Vec<_> = node.elements().map(|element| (None, element)).collect();
                open.push((elements.into_iter(), Some(b']')));
            }
            JsonKind::Object => {
                out.push(b'{');
                let members = node.members().map(|(name, value)| (Some(name), value));
                let mut members: Vec<_> = members.collect();
                members.sort_by_key(|(name, _)| name.and_then(Node::text));
                open.push((members.into_iter(), Some(b'}')));
            }
        }
    }
    String::from_utf8(out).unwrap_or_default()
}
