//! Reading JSON text by an index over it, without copies.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Buf, Bytes};

use crate::json::scan::{self, Entry, Index};
use crate::json::text::{self, Escaped};
use crate::json::{Json, SyntaxError};
use crate::work;

/// What sort of value a [`Node`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// A number, kept as it was written.
    Number,
    /// A string.
    String,
    /// `[…]`
    Array,
    /// `{…}`
    Object,
}

/// The places of all values in a text. Slices of it share the text's memory.
#[derive(Clone)]
pub struct Tree {
    bytes: Bytes,
    index: Index,
}

impl Tree {
    /// Reads a text that holds exactly one value.
    pub fn parse(text: impl Into<Bytes>) -> Result<Self, SyntaxError> {
        Self::parse_within(u32::MAX, text)
    }

    /// The same, where at most so many arrays and objects may stand in each other. One more, and nothing else is read: see
    /// [`SyntaxError::is_too_deep`].
    pub fn parse_within(deepest: u32, text: impl Into<Bytes>) -> Result<Self, SyntaxError> {
        Self::parse_measured(deepest, None, text)
    }

    /// The same for a text whose entries were counted before, so that the index takes no more memory than it needs.
    pub fn parse_measured(
        deepest: u32,
        entries: Option<usize>,
        text: impl Into<Bytes>,
    ) -> Result<Self, SyntaxError> {
        let bytes = text.into();
        if let Err(error) = simdutf8::compat::from_utf8(&bytes) {
            return Err(SyntaxError::at(
                &bytes,
                error.valid_up_to(),
                "the text is not valid UTF-8",
            ));
        }
        if u32::try_from(bytes.len()).is_err() {
            return Err(SyntaxError::at(&[], 0, "the text is larger than 4 GiB"));
        }
        let index = scan::index(&bytes, deepest, entries)?;
        Ok(Self { bytes, index })
    }

    /// Indexes a text that was parsed before.
    pub(super) fn of_checked(bytes: &Bytes) -> Self {
        Self { bytes: bytes.clone(), index: scan::index(bytes, u32::MAX, None).unwrap_or_default() }
    }

    /// The outermost value, as it was written.
    pub(super) fn into_json(self) -> Json {
        let range = self.root().range();
        let mut bytes = self.bytes;
        bytes.truncate(range.end);
        bytes.advance(range.start);
        Json::trusted(bytes)
    }

    /// The outermost value.
    pub fn root(&self) -> Node<'_> {
        Node { tree: self, index: 0 }
    }

    /// The value of that [number](Node::number_in_tree); the outermost one where there is none.
    pub fn node(&self, number: u32) -> Node<'_> {
        let is_there = (number as usize) < self.index.entries.len();
        Node { tree: self, index: if is_there { number } else { 0 } }
    }

    /// The text that the tree indexes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// How many values and names of members the text has.
    pub fn entries(&self) -> usize {
        self.index.entries.len()
    }

    /// Whether it indexes that very text: the same memory, and not just the same letters.
    pub fn is_of(&self, text: &Bytes) -> bool {
        self.bytes.as_ptr() == text.as_ptr() && self.bytes.len() == text.len()
    }
}

/// One value of a [`Tree`].
#[derive(Clone, Copy)]
pub struct Node<'t> {
    tree: &'t Tree,
    index: u32,
}

impl<'t> Node<'t> {
    #[inline]
    fn entry(self) -> Entry {
        let null =
            Entry { start: 0, end: 0, link: 0, shape: Shape::Null, escaped: false, is_key: false };
        self.tree.index.entries.get(self.index as usize).copied().unwrap_or(null)
    }

    /// The index of the entry after the value and everything in it.
    #[inline]
    fn after(self) -> u32 {
        let entry = self.entry();
        match entry.shape {
            Shape::Array | Shape::Object => entry.link,
            Shape::Null | Shape::Bool | Shape::Number | Shape::String => self.index + 1,
        }
    }

    /// Its number among the values and names of the tree, by which [`Tree::node`] finds it.
    #[inline]
    pub fn number_in_tree(self) -> u32 {
        self.index
    }

    /// What sort of value it is.
    #[inline]
    pub fn shape(self) -> Shape {
        self.entry().shape
    }

    /// Where the value stands in the tree's text.
    #[inline]
    pub fn range(self) -> Range<usize> {
        let entry = self.entry();
        entry.start as usize..entry.end as usize
    }

    /// The value as it was written.
    #[inline]
    pub fn raw(self) -> &'t [u8] {
        self.tree.bytes.get(self.range()).unwrap_or_default()
    }

    /// The value as verbatim JSON that shares the tree's memory.
    pub fn json(self) -> Json {
        Json::trusted(self.tree.bytes.slice(self.range()))
    }

    /// Whether it is `null`.
    #[inline]
    pub fn is_null(self) -> bool {
        self.shape() == Shape::Null
    }

    /// Whether it is an object.
    #[inline]
    pub fn is_object(self) -> bool {
        self.shape() == Shape::Object
    }

    /// Whether it is an array.
    #[inline]
    pub fn is_array(self) -> bool {
        self.shape() == Shape::Array
    }

    /// Whether it is a string.
    #[inline]
    pub fn is_string(self) -> bool {
        self.shape() == Shape::String
    }

    /// The value of a string.
    pub fn text(self) -> Option<Cow<'t, str>> {
        match self.escaped() {
            Some(escaped) => Some(Cow::Owned(escaped.read(|text| text::checked(text).to_owned()))),
            None => self.is_string().then(|| Cow::Borrowed(text::checked(self.inner()))),
        }
    }

    /// The value of a string as shared text.
    pub fn name(self) -> Option<Arc<str>> {
        match self.escaped() {
            Some(escaped) => Some(escaped.read(|text| Arc::from(text::checked(text)))),
            None => self.is_string().then(|| Arc::from(text::checked(self.inner()))),
        }
    }

    /// The value of a string as bytes, without a copy where it holds no escapes.
    pub fn text_bytes(self) -> Option<Bytes> {
        match self.escaped() {
            Some(escaped) => Some(escaped.read(Bytes::copy_from_slice)),
            None => self.is_string().then(|| self.tree.bytes.slice_ref(self.inner())),
        }
    }

    /// A string that holds escapes.
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

    /// The bytes between the quotes of a string.
    #[inline]
    fn inner(self) -> &'t [u8] {
        let range = self.range();
        self.tree.bytes.get(range.start + 1..range.end - 1).unwrap_or_default()
    }

    /// Whether it is a string of that value.
    #[inline]
    pub fn is(self, value: &str) -> bool {
        let entry = self.entry();
        if entry.escaped {
            return self.escaped().is_some_and(|own| own.read(|text| text == value.as_bytes()));
        }
        // Most names that are not meant differ in length, which the entry tells without a look at the text.
        entry.shape == Shape::String
            && (entry.end - entry.start) as usize == value.len() + 2
            && self.inner() == value.as_bytes()
    }

    /// The value of a whole number that is not negative.
    pub fn u64(self) -> Option<u64> {
        self.number()?.parse().ok()
    }

    /// The text of a number.
    pub fn number(self) -> Option<&'t str> {
        (self.shape() == Shape::Number).then(|| std::str::from_utf8(self.raw()).ok()).flatten()
    }

    /// The value of `true` or `false`.
    pub fn bool(self) -> Option<bool> {
        (self.shape() == Shape::Bool).then(|| self.raw() == b"true")
    }

    /// The values of an array; nothing for any other shape.
    #[inline]
    pub fn elements(self) -> Elements<'t> {
        let end = if self.is_array() { self.after() } else { self.index };
        Elements { tree: self.tree, next: self.index + 1, end }
    }

    /// The members of an object; nothing for any other shape.
    #[inline]
    pub fn members(self) -> Members<'t> {
        let end = if self.is_object() { self.after() } else { self.index };
        Members(Elements { tree: self.tree, next: self.index + 1, end })
    }

    /// The members of the value and of everything in it, in the order of the text.
    pub fn all_members(self) -> impl Iterator<Item = (Node<'t>, Node<'t>)> {
        let below = (self.index + 1..self.after()).map(move |index| Node { index, ..self });
        let keys = below.filter(|node| node.entry().is_key);
        keys.map(|key| (key, Node { index: key.index + 1, ..key }))
    }

    /// The value and every value in it, in the order of the text. Names of members are none.
    pub fn values(self) -> impl Iterator<Item = Node<'t>> {
        let all = (self.index..self.after()).map(move |index| Node { index, ..self });
        all.filter(|node| !node.entry().is_key)
    }

    /// The member of that name: the last, as most parsers choose, where a name stands twice.
    pub fn get(self, key: &str) -> Option<Node<'t>> {
        let mut found = None;
        for (name, value) in self.members() {
            if name.is(key) {
                found = Some(value);
            }
        }
        found
    }

    /// The member of that name, unless it is `null`, which everywhere means absent.
    pub fn present(self, key: &str) -> Option<Node<'t>> {
        self.get(key).filter(|value| !value.is_null())
    }

    /// The text of the member of that name.
    pub fn text_of(self, key: &str) -> Option<Cow<'t, str>> {
        self.get(key)?.text()
    }

    /// The text of the member of that name, shared.
    pub fn name_of(self, key: &str) -> Option<Arc<str>> {
        self.get(key)?.name()
    }

    /// The value at a JSON pointer (RFC 6901) below this one.
    pub fn at(self, pointer: &str) -> Option<Node<'t>> {
        let mut node = self;
        for step in pointer.split('/').skip(1) {
            node = match node.shape() {
                Shape::Array => node.elements().nth(step.parse().ok()?)?,
                Shape::Object if step.contains('~') => {
                    node.get(&step.replace("~1", "/").replace("~0", "~"))?
                }
                Shape::Object => node.get(step)?,
                Shape::Null | Shape::Bool | Shape::Number | Shape::String => return None,
            };
        }
        Some(node)
    }

    /// See [`Json::canonical`].
    pub fn canonical(self) -> String {
        canonical(self)
    }
}

impl std::fmt::Debug for Node<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} at {:?}", self.shape(), self.range())
    }
}

/// Iterates over an array's values.
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

/// Iterates over an object's names and values, in the order in which they were written.
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

/// Sorted members, no white space. Open containers are on a stack of their own, so depth costs no stack, and only the
/// members of open objects are listed.
fn canonical(root: Node<'_>) -> String {
    enum Open<'t> {
        Array(Elements<'t>),
        Object(std::vec::IntoIter<(Node<'t>, Node<'t>)>),
    }
    let mut out = Vec::new();
    let mut open: Vec<Open<'_>> = Vec::new();
    let mut next = Some(root);
    loop {
        if let Some(node) = next {
            match node.shape() {
                Shape::Null | Shape::Bool | Shape::Number => out.extend_from_slice(node.raw()),
                Shape::String => text::push_quoted(&mut out, &node.text().unwrap_or_default()),
                Shape::Array => {
                    out.push(b'[');
                    open.push(Open::Array(node.elements()));
                }
                Shape::Object => {
                    out.push(b'{');
                    let mut members: Vec<_> = node.members().collect();
                    members.sort_by_key(|(name, _)| name.text());
                    open.push(Open::Object(members.into_iter()));
                }
            }
        }
        let Some(innermost) = open.last_mut() else { break };
        let is_first = matches!(out.last(), Some(b'[' | b'{')) && next.is_some_and(is_container);
        let (value, end) = match innermost {
            Open::Array(elements) => (elements.next(), b']'),
            Open::Object(members) => match members.next() {
                Some((name, value)) => {
                    if !is_first {
                        out.push(b',');
                    }
                    text::push_quoted(&mut out, &name.text().unwrap_or_default());
                    out.push(b':');
                    next = Some(value);
                    continue;
                }
                None => (None, b'}'),
            },
        };
        if value.is_none() {
            out.push(end);
            open.pop();
        } else if !is_first {
            out.push(b',');
        }
        next = value;
    }
    String::from_utf8(out).unwrap_or_default()
}

fn is_container(node: Node<'_>) -> bool {
    node.is_array() || node.is_object()
}
