//! Indexes JSON text in one pass, without recursion or copies.

mod reuse;

use crate::scan::reuse::KnownEnd;
pub(super) use crate::scan::reuse::index_after;
use crate::text::{self, Specials};
use crate::{Measure, SizeLimits, SyntaxError};

/// The type of a [`Node`](crate::Node).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JsonKind {
    /// `null`
    #[default]
    Null,
    /// `true` or `false`
    Bool,
    /// A number, kept as written.
    Number,
    /// A string.
    String,
    /// `[…]`
    Array,
    /// `{…}`
    Object,
}

/// The positions of all values in a JSON text.
#[derive(Clone, Default)]
pub(super) struct Index {
    /// All values and member names in text order. In an object, each member name precedes its
    /// value.
    pub(super) entries: Vec<Entry>,
    /// The offsets of escapes in strings.
    pub(super) escapes: Vec<u32>,
    /// The maximum depth of nested containers with which the text was indexed.
    pub(super) deepest: u32,
}

/// The position and type of one value or member name.
#[derive(Clone, Copy, Default)]
pub(super) struct Entry {
    pub(super) start: u32,
    pub(super) end: u32,
    /// For a container: the index of the entry after its last descendant. For a string: the index
    /// of its first escape.
    pub(super) link: u32,
    pub(super) shape: JsonKind,
    pub(super) escaped: bool,
    pub(super) is_key: bool,
}

/// Minimum length in bytes of a text whose entries are counted before it is indexed.
const LONG: usize = 256 << 10;

/// How many entries an index may have.
#[derive(Clone, Copy)]
pub(super) enum EntryBound {
    /// Any number.
    Unlimited,
    /// This number, which was counted before.
    Exactly(usize),
    /// At most this number.
    AtMost(usize),
}

/// Indexes a text, which must be valid UTF-8 and shorter than 4 GiB. `deepest` is the maximum depth
/// of nested containers. Fails with [`TOO_MANY`] if the text has more entries than
/// [`EntryBound::AtMost`].
pub(super) fn index(text: &[u8], deepest: u32, bound: EntryBound) -> Result<Index, SyntaxError> {
    let estimate = text.len() / 48 + 16;
    // A growing vector takes up to three times its final memory, so the entries of long texts are
    // counted first, unless their number is bounded.
    let counted = || Measure::count(text, &SizeLimits::NONE).map_or(0, |measure| measure.entries);
    let (capacity, most) = match bound {
        EntryBound::Exactly(number) => (number, usize::MAX),
        EntryBound::AtMost(most) => (estimate.min(most), most),
        EntryBound::Unlimited if text.len() >= LONG => (counted(), usize::MAX),
        EntryBound::Unlimited => (estimate, usize::MAX),
    };
    let entries = Vec::with_capacity(capacity);
    let index = Index { entries, escapes: Vec::with_capacity(text.len() / 64), deepest };
    let has_controls = has_controls(text);
    Scanner { text, at: 0, index, open: NONE, room: deepest, most, has_controls, end: None }.run()
}

/// Whether a text contains control characters.
fn has_controls(text: &[u8]) -> bool {
    // The compiler vectorises this minimum, but no search with an early exit.
    text.iter().copied().fold(u8::MAX, u8::min) < b' '
}

/// Scans a text. `open` is the index of the innermost open container. While a container is open,
/// its `link` is the index of the enclosing container.
struct Scanner<'t> {
    text: &'t [u8],
    at: usize,
    index: Index,
    open: u32,
    /// The number of containers that may still be opened inside the current one.
    room: u32,
    /// The maximum number of entries.
    most: usize,
    /// Whether the text contains control characters. If it contains none, strings need not be
    /// searched for them.
    has_controls: bool,
    /// The end of an earlier text, whose entries are copied.
    end: Option<KnownEnd<'t>>,
}

pub(super) const TOO_DEEP: &str = "the text is nested too deeply";
pub(super) const TOO_MANY: &str = "the text has too many values";

/// The `link` of an outermost container, which has no enclosing container.
const NONE: u32 = u32::MAX;

impl Scanner<'_> {
    /// Scans the text from the current position.
    fn run(mut self) -> Result<Index, SyntaxError> {
        if self.index.entries.is_empty() {
            self.value()?;
        }
        while let Some(container) = self.index.entries.get(self.open as usize) {
            if self.index.entries.len() > self.most {
                return Err(self.error(TOO_MANY));
            }
            let is_object = container.shape == JsonKind::Object;
            let is_first = self.index.entries.len() == self.open as usize + 1;
            if self.open == 0
                && !is_first
                && let Some(end) = self.end.take_if(|end| end.at == self.at)
            {
                self.copy_end(end);
                continue;
            }
            self.skip_space();
            match (self.peek(), is_object) {
                (Some(b'}'), true) | (Some(b']'), false) => {
                    self.at += 1;
                    self.close();
                    continue;
                }
                (Some(b','), _) if !is_first => {
                    self.at += 1;
                    self.skip_space();
                }
                (Some(_), _) if is_first => {}
                (Some(_), true) => return Err(self.error("expected `,` or `}`")),
                (Some(_), false) => return Err(self.error("expected `,` or `]`")),
                (None, _) => return Err(self.error("the text ends inside an object or array")),
            }
            if is_object {
                self.member_name()?;
            }
            self.value()?;
        }
        self.skip_space();
        match self.peek() {
            None if self.index.entries.len() > self.most => Err(self.error(TOO_MANY)),
            None => Ok(self.index),
            Some(_) => Err(self.error("unexpected text after the JSON value")),
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

    fn open(&mut self, shape: JsonKind) -> Result<(), SyntaxError> {
        self.room = self.room.checked_sub(1).ok_or_else(|| self.error(TOO_DEEP))?;
        let around = std::mem::replace(&mut self.open, narrow(self.index.entries.len()));
        self.at += 1;
        self.push(self.at - 1, shape, around);
        Ok(())
    }

    fn close(&mut self) {
        self.room += 1;
        let after = narrow(self.index.entries.len());
        if let Some(entry) = self.index.entries.get_mut(self.open as usize) {
            entry.end = narrow(self.at);
            self.open = std::mem::replace(&mut entry.link, after);
        }
    }

    fn push(&mut self, start: usize, shape: JsonKind, link: u32) {
        let (start, end) = (narrow(start), narrow(self.at));
        // For a string without escapes, `link` is the index of the next escape in the text.
        let escaped = shape == JsonKind::String && (link as usize) < self.index.escapes.len();
        self.index.entries.push(Entry { start, end, link, shape, escaped, is_key: false });
    }

    fn member_name(&mut self) -> Result<(), SyntaxError> {
        if self.peek() != Some(b'"') {
            return Err(self.error("expected a member name in double quotes"));
        }
        self.string()?;
        if let Some(entry) = self.index.entries.last_mut() {
            entry.is_key = true;
        }
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
            None => Err(self.error("expected a value, but the text ends")),
            Some(b'"') => self.string(),
            Some(b'{') => self.open(JsonKind::Object),
            Some(b'[') => self.open(JsonKind::Array),
            Some(b't') => self.literal(b"true", JsonKind::Bool),
            Some(b'f') => self.literal(b"false", JsonKind::Bool),
            Some(b'n') => self.literal(b"null", JsonKind::Null),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => Err(self.error("expected a value")),
        }
    }

    fn literal(&mut self, expected: &[u8], shape: JsonKind) -> Result<(), SyntaxError> {
        let start = self.at;
        if !self.text.get(start..).is_some_and(|rest| rest.starts_with(expected)) {
            return Err(self.error("expected a value"));
        }
        self.at += expected.len();
        self.push(start, shape, 0);
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
        self.push(start, JsonKind::Number, 0);
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
        if self.has_controls { self.string_with::<true>() } else { self.string_with::<false>() }
    }

    /// Scans a string. `CONTROLS` is set if it may contain control characters, which are errors.
    fn string_with<const CONTROLS: bool>(&mut self) -> Result<(), SyntaxError> {
        let (text, start, escapes) = (self.text, self.at, narrow(self.index.escapes.len()));
        let mut escape_end = 0;
        for at in Specials::<CONTROLS>::starting_at(start + 1, text) {
            if at < escape_end {
                continue;
            }
            match text.get(at) {
                Some(b'"') => {
                    self.at = at + 1;
                    self.push(start, JsonKind::String, escapes);
                    return Ok(());
                }
                Some(b'\\') => self.index.escapes.push(narrow(at)),
                Some(_) | None => {
                    self.at = at;
                    return Err(self.error("unescaped control character in a string"));
                }
            }
            escape_end = match text.get(at + 1) {
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => at + 2,
                Some(b'u') if text.get(at + 2..).and_then(text::hex4).is_some() => at + 6,
                Some(_) | None => {
                    self.at = at + 1;
                    return Err(self.error("invalid escape in a string"));
                }
            };
        }
        self.at = text.len();
        Err(self.error("the text ends inside a string"))
    }
}

/// Offsets fit into 32 bits, because texts of more than 4 GiB are rejected earlier.
fn narrow(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}
