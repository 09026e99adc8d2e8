//! An index over JSON text, made in one pass that neither recurses nor copies.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::json::{Json, SyntaxError, text};

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
    entries: Vec<Entry>,
}

/// One value: its bytes, and the index of the entry after its last descendant. An object's entries are its
/// keys and values in turn.
#[derive(Clone, Copy)]
struct Entry {
    start: u32,
    end: u32,
    after: u32,
    shape: Shape,
    escaped: bool,
}

impl Tree {
    /// Reads a text that holds exactly one value.
    pub fn parse(text: impl Into<Bytes>) -> Result<Self, SyntaxError> {
        let bytes = text.into();
        if let Err(error) = std::str::from_utf8(&bytes) {
            return Err(SyntaxError::at(
                &bytes,
                error.valid_up_to(),
                "the text is not valid UTF-8",
            ));
        }
        if u32::try_from(bytes.len()).is_err() {
            return Err(SyntaxError::at(&[], 0, "the text is larger than 4 GiB"));
        }
        let entries = Scanner::new(&bytes).run()?;
        Ok(Self { bytes, entries })
    }

    /// Indexes a text that was parsed before.
    pub(super) fn of_checked(bytes: &Bytes) -> Self {
        let entries = Scanner::new(bytes).run().unwrap_or_default();
        Self { bytes: bytes.clone(), entries }
    }

    /// The outermost value.
    pub fn root(&self) -> Node<'_> {
        Node { tree: self, index: 0 }
    }

    /// The text that the tree indexes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

/// One value of a [`Tree`].
#[derive(Clone, Copy)]
pub struct Node<'t> {
    tree: &'t Tree,
    index: u32,
}

impl<'t> Node<'t> {
    fn entry(self) -> Entry {
        let null = Entry { start: 0, end: 0, after: 0, shape: Shape::Null, escaped: false };
        self.tree.entries.get(self.index as usize).copied().unwrap_or(null)
    }

    /// What sort of value it is.
    pub fn shape(self) -> Shape {
        self.entry().shape
    }

    /// Where the value stands in the tree's text.
    pub fn range(self) -> Range<usize> {
        let entry = self.entry();
        entry.start as usize..entry.end as usize
    }

    /// The value as it was written.
    pub fn raw(self) -> &'t [u8] {
        self.tree.bytes.get(self.range()).unwrap_or_default()
    }

    /// The value as verbatim JSON that shares the tree's memory.
    pub fn json(self) -> Json {
        Json::trusted(self.tree.bytes.slice(self.range()))
    }

    /// Whether it is `null`.
    pub fn is_null(self) -> bool {
        self.shape() == Shape::Null
    }

    /// Whether it is an object.
    pub fn is_object(self) -> bool {
        self.shape() == Shape::Object
    }

    /// Whether it is an array.
    pub fn is_array(self) -> bool {
        self.shape() == Shape::Array
    }

    /// Whether it is a string.
    pub fn is_string(self) -> bool {
        self.shape() == Shape::String
    }

    /// The value of a string.
    pub fn text(self) -> Option<Cow<'t, str>> {
        let entry = self.entry();
        (entry.shape == Shape::String).then(|| text::unescape(self.inner(), entry.escaped))
    }

    /// The value of a string as shared text.
    pub fn name(self) -> Option<Arc<str>> {
        let entry = self.entry();
        (entry.shape == Shape::String).then(|| text::shared(self.inner(), entry.escaped))
    }

    /// The value of a string as bytes, without a copy where it holds no escapes.
    pub fn text_bytes(self) -> Option<Bytes> {
        let entry = self.entry();
        if entry.shape != Shape::String {
            return None;
        }
        if entry.escaped {
            return Some(text::with_unescaped(self.inner(), Bytes::copy_from_slice));
        }
        Some(self.tree.bytes.slice(entry.start as usize + 1..entry.end as usize - 1))
    }

    fn inner(self) -> &'t [u8] {
        let range = self.range();
        self.tree.bytes.get(range.start + 1..range.end - 1).unwrap_or_default()
    }

    /// Whether it is a string of that value.
    pub fn is(self, value: &str) -> bool {
        let entry = self.entry();
        entry.shape == Shape::String
            && if entry.escaped {
                text::with_unescaped(self.inner(), |inner| inner == value.as_bytes())
            } else {
                self.inner() == value.as_bytes()
            }
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
    pub fn elements(self) -> Elements<'t> {
        let end = if self.is_array() { self.entry().after } else { self.index };
        Elements { tree: self.tree, next: self.index + 1, end }
    }

    /// The members of an object; nothing for any other shape.
    pub fn members(self) -> Members<'t> {
        let end = if self.is_object() { self.entry().after } else { self.index };
        Members(Elements { tree: self.tree, next: self.index + 1, end })
    }

    /// The member of that name: the last, as most parsers choose, where a name stands twice.
    pub fn get(self, key: &str) -> Option<Node<'t>> {
        self.members().filter(|(name, _)| name.is(key)).map(|(_, value)| value).last()
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

    fn next(&mut self) -> Option<Node<'t>> {
        if self.next >= self.end {
            return None;
        }
        let node = Node { tree: self.tree, index: self.next };
        self.next = node.entry().after.max(self.next + 1);
        Some(node)
    }
}

/// Iterates over an object's names and values, in the order in which they were written.
#[derive(Clone)]
pub struct Members<'t>(Elements<'t>);

impl<'t> Iterator for Members<'t> {
    type Item = (Node<'t>, Node<'t>);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().zip(self.0.next())
    }
}

/// Sorted members, no white space. Works on a list of tasks, so depth costs no stack.
fn canonical(root: Node<'_>) -> String {
    enum Task<'t> {
        Value(Node<'t>),
        Literal(&'static str),
    }
    let mut out = Vec::new();
    let mut tasks = vec![Task::Value(root)];
    while let Some(task) = tasks.pop() {
        let node = match task {
            Task::Literal(literal) => {
                out.extend_from_slice(literal.as_bytes());
                continue;
            }
            Task::Value(node) => node,
        };
        match node.shape() {
            Shape::Null | Shape::Bool | Shape::Number => out.extend_from_slice(node.raw()),
            Shape::String => text::push_quoted(&mut out, &node.text().unwrap_or_default()),
            Shape::Array => {
                out.push(b'[');
                tasks.push(Task::Literal("]"));
                let elements: Vec<_> = node.elements().collect();
                for (position, element) in elements.into_iter().enumerate().rev() {
                    tasks.push(Task::Value(element));
                    if position > 0 {
                        tasks.push(Task::Literal(","));
                    }
                }
            }
            Shape::Object => {
                out.push(b'{');
                tasks.push(Task::Literal("}"));
                let mut members: Vec<_> = node.members().collect();
                members.sort_by_key(|(name, _)| name.text());
                for (position, (name, value)) in members.into_iter().enumerate().rev() {
                    tasks.push(Task::Value(value));
                    tasks.push(Task::Literal(":"));
                    tasks.push(Task::Value(name));
                    if position > 0 {
                        tasks.push(Task::Literal(","));
                    }
                }
            }
        }
    }
    String::from_utf8(out).unwrap_or_default()
}

/// Makes the entries. `open` holds the containers that have begun and not ended.
struct Scanner<'t> {
    text: &'t [u8],
    /// Whether any control character stands in the text. Most texts have none, and their strings need no second look.
    has_controls: bool,
    at: usize,
    entries: Vec<Entry>,
    open: Vec<u32>,
}

impl<'t> Scanner<'t> {
    fn new(text: &'t [u8]) -> Self {
        let entries = Vec::with_capacity(text.len() / 48 + 8);
        // The smallest byte is found without an early exit, so many bytes at a time.
        let has_controls = text.iter().fold(u8::MAX, |least, byte| least.min(*byte)) < 0x20;
        Self { text, has_controls, at: 0, entries, open: Vec::new() }
    }

    fn run(mut self) -> Result<Vec<Entry>, SyntaxError> {
        self.value()?;
        while let Some(container) = self.open.last().copied() {
            let is_object =
                self.entries.get(container as usize).is_some_and(|e| e.shape == Shape::Object);
            let is_first = self.entries.len() == container as usize + 1;
            self.skip_space();
            match (self.peek(), is_object) {
                (Some(b'}'), true) | (Some(b']'), false) => {
                    self.at += 1;
                    self.close(container);
                    continue;
                }
                (Some(b','), _) if !is_first => {
                    self.at += 1;
                    self.skip_space();
                }
                (Some(_), _) if is_first => {}
                (Some(_), true) => return Err(self.error("expected `,` or `}`")),
                (Some(_), false) => return Err(self.error("expected `,` or `]`")),
                (None, _) => return Err(self.error("the text ends inside a value")),
            }
            if is_object {
                self.member_name()?;
            }
            self.value()?;
        }
        self.skip_space();
        match self.peek() {
            None => Ok(self.entries),
            Some(_) => Err(self.error("expected the end of the text")),
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn error(&self, what: &'static str) -> SyntaxError {
        SyntaxError::at(self.text, self.at, what)
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    fn close(&mut self, container: u32) {
        self.open.pop();
        let after = narrow(self.entries.len());
        if let Some(entry) = self.entries.get_mut(container as usize) {
            entry.end = narrow(self.at);
            entry.after = after;
        }
    }

    fn push(&mut self, start: usize, shape: Shape, escaped: bool) {
        let after = narrow(self.entries.len() + 1);
        let (start, end) = (narrow(start), narrow(self.at));
        self.entries.push(Entry { start, end, after, shape, escaped });
    }

    fn member_name(&mut self) -> Result<(), SyntaxError> {
        if self.peek() != Some(b'"') {
            return Err(self.error("expected a member's name in quotes"));
        }
        self.string()?;
        self.skip_space();
        if self.peek() != Some(b':') {
            return Err(self.error("expected `:`"));
        }
        self.at += 1;
        Ok(())
    }

    fn value(&mut self) -> Result<(), SyntaxError> {
        self.skip_space();
        let start = self.at;
        match self.peek() {
            None if start == 0 => Err(self.error("the text is empty")),
            None => Err(self.error("the text ends where a value should stand")),
            Some(b'"') => self.string(),
            Some(opening @ (b'{' | b'[')) => {
                self.at += 1;
                self.open.push(narrow(self.entries.len()));
                let shape = if opening == b'{' { Shape::Object } else { Shape::Array };
                self.push(start, shape, false);
                Ok(())
            }
            Some(b't') => self.literal(b"true", Shape::Bool),
            Some(b'f') => self.literal(b"false", Shape::Bool),
            Some(b'n') => self.literal(b"null", Shape::Null),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => Err(self.error("expected a value")),
        }
    }

    fn literal(&mut self, word: &[u8], shape: Shape) -> Result<(), SyntaxError> {
        let start = self.at;
        if !self.text.get(start..).is_some_and(|rest| rest.starts_with(word)) {
            return Err(self.error("expected a value"));
        }
        self.at += word.len();
        self.push(start, shape, false);
        Ok(())
    }

    fn number(&mut self) -> Result<(), SyntaxError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        self.push(start, Shape::Number, false);
        Ok(())
    }

    fn digits(&mut self) -> Result<(), SyntaxError> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start { Err(self.error("expected a digit")) } else { Ok(()) }
    }

    fn string(&mut self) -> Result<(), SyntaxError> {
        let start = self.at;
        self.at += 1;
        let mut escaped = false;
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let Some(stop) = text::find_special(rest) else {
                self.at = self.text.len();
                return Err(self.error("the text ends inside a string"));
            };
            let plain = rest.get(..stop).unwrap_or_default();
            if self.has_controls
                && let Some(control) = plain.iter().position(|byte| *byte < 0x20)
            {
                self.at += control;
                return Err(self.error("a control character must be escaped in a string"));
            }
            self.at += stop + 1;
            if rest.get(stop) == Some(&b'"') {
                self.push(start, Shape::String, escaped);
                return Ok(());
            }
            escaped = true;
            self.escape()?;
        }
    }

    fn escape(&mut self) -> Result<(), SyntaxError> {
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') if self.text.get(self.at + 1..).and_then(text::hex4).is_some() => {
                self.at += 5;
            }
            _ => return Err(self.error("no such escape in a string")),
        }
        Ok(())
    }
}

/// Offsets fit, since [`Tree::parse`] refuses texts of more than 4 GiB.
fn narrow(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}
