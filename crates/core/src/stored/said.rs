//! What an Item's native JSON says already: found there when it is written, fetched from there when it is read.
//!
//! Nothing here knows a wire: every string and every value of the native JSON is looked at once. The work that references
//! cost is bounded in proportion to that JSON, on both sides alike; what would go beyond is written out.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;

use bytes::Bytes;
use memchr::memmem;

use crate::json::{self, Json, Node, Shape};
use crate::name::Name;

/// From how many bytes on a text is looked for inside of others.
const LONG: usize = 32;
/// The fewest bytes of a piece that a text is joined from, and the most that may stand between two.
const PIECE: usize = 8;
const GAP: usize = 16;

/// The strings of a value, with what they say.
pub(super) type Strings<'t> = Vec<(Cow<'t, str>, Node<'t>)>;

/// The strings of a value, in the order of the text.
pub(super) fn strings_in(root: Option<Node<'_>>) -> Strings<'_> {
    let values = root.into_iter().flat_map(Node::values);
    values.filter_map(|node| Some((node.text()?, node))).collect()
}

/// An Item's native JSON, to be pointed at.
pub(super) struct Heard<'t> {
    root: Option<Node<'t>>,
    strings: &'t [(Cow<'t, str>, Node<'t>)],
    by_text: HashMap<&'t str, Node<'t>>,
    reading: Budget,
    searching: Budget,
}

/// A reference, and what reading it costs.
type Found = (Json, usize);

impl<'t> Heard<'t> {
    pub(super) fn new(root: Option<Node<'t>>, strings: &'t Strings<'t>) -> Self {
        let mut by_text = HashMap::with_capacity(strings.len());
        for (text, node) in strings {
            by_text.entry(&**text).or_insert(*node);
        }
        let (reading, searching) = (Budget::of(root), Budget::of(root));
        Self { root, strings, by_text, reading, searching }
    }

    /// A text, in the shortest way to say it.
    pub(super) fn text(&self, text: &str) -> Json {
        self.reference(text).unwrap_or_else(|| json::string(text))
    }

    /// Bytes that usually are text.
    pub(super) fn bytes(&self, bytes: &[u8]) -> Json {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.text(text),
            Err(_) => json::object(|out| {
                out.string("hex", &hex(bytes));
            }),
        }
    }

    /// A value, in the shortest way to say it.
    pub(super) fn value(&self, value: &Json) -> Json {
        let found = self.value_at(value).or_else(|| self.value_in(value));
        let found = found.filter(|(json, _)| json.bytes().len() < value.bytes().len() + 7);
        match found.filter(|(_, cost)| self.reading.pay(*cost)) {
            Some((reference, _)) => reference,
            None => json::object(|out| {
                out.raw("is", value);
            }),
        }
    }

    /// Whether the string at this pointer is these bytes, and fetching them costs no more than it may.
    pub(super) fn says_at(&self, pointer: &str, bytes: &[u8]) -> bool {
        let Some((root, node)) = self.root.and_then(|root| Some((root, root.at(pointer)?))) else {
            return false;
        };
        node.text().is_some_and(|text| text.as_bytes() == bytes)
            && self.reading.pay(cost(root, node))
    }

    fn reference(&self, text: &str) -> Option<Json> {
        let found = self.whole(text);
        let found = found.or_else(|| self.within(text)).or_else(|| self.joined(text));
        let (found, cost) = found?;
        (found.bytes().len() < text.len() + 2 && self.reading.pay(cost)).then_some(found)
    }

    /// A string that is this text.
    fn whole(&self, text: &str) -> Option<Found> {
        let (root, node) = (self.root?, *self.by_text.get(text)?);
        let pointer = pointer(root, node)?;
        Some((reference(&pointer, None, None), cost(root, node)))
    }

    /// A string that has this text in it.
    fn within(&self, text: &str) -> Option<Found> {
        let root = self.root?;
        let longer = self.strings.iter().filter(|(said, _)| said.len() > text.len());
        let mut longer = longer.filter(|_| text.len() >= LONG);
        let (node, from, to) = longer.find_map(|(said, node)| {
            let is_affordable = self.searching.pay(said.len());
            let from = memmem::find(said.as_bytes(), text.as_bytes()).filter(|_| is_affordable)?;
            let to = from + text.len();
            Some((*node, from, (to < said.len()).then_some(to)))
        })?;
        let pointer = pointer(root, node)?;
        Some((reference(&pointer, Some(from), to), cost(root, node)))
    }

    /// Strings, one behind the other, that this text is made of, with little between them.
    fn joined(&self, text: &str) -> Option<Found> {
        let root = self.root.filter(|_| text.len() >= LONG)?;
        let (mut rest, mut total, mut found) = (text, 0, false);
        let pieces = json::array(|out| {
            for (said, node) in self.strings.iter().filter(|(said, _)| said.len() >= PIECE) {
                if rest.is_empty() || !self.searching.pay(said.len()) {
                    break;
                }
                let stands = |gap: &usize| {
                    rest.get(*gap..).is_some_and(|behind| behind.starts_with(&**said))
                };
                let gap = (0..=GAP).find(stands);
                let Some((gap, pointer)) = gap.zip(pointer(root, *node)) else { continue };
                if let Some(between) = rest.get(..gap).filter(|between| !between.is_empty()) {
                    out.string(between);
                }
                out.raw(&reference(&pointer, None, None));
                rest = rest.get(gap + said.len()..).unwrap_or_default();
                total += cost(root, *node);
                found = true;
            }
            if !rest.is_empty() {
                out.string(rest);
            }
        });
        let joined = json::object(|out| {
            out.raw("joined", &pieces);
        });
        found.then_some((joined, total))
    }

    fn value_at(&self, value: &Json) -> Option<Found> {
        let root = self.root.filter(|root| self.searching.pay(root.raw().len() / PIECE))?;
        let node = root.values().find(|node| node.raw() == value.bytes())?;
        Some((reference(&pointer(root, node)?, None, None), cost(root, node)))
    }

    fn value_in(&self, value: &Json) -> Option<Found> {
        let (root, node) = (self.root?, *self.by_text.get(value.as_str())?);
        let pointer = pointer(root, node)?;
        let reference = json::object(|out| {
            out.string("in", &pointer);
        });
        Some((reference, cost(root, node)))
    }
}

/// `[pointer]`, `[pointer, from]` or `[pointer, from, to]`.
fn reference(pointer: &str, from: Option<usize>, to: Option<usize>) -> Json {
    json::array(|out| {
        out.string(pointer);
        for bound in [from, to].into_iter().flatten() {
            out.number(bound as u64);
        }
    })
}

/// The JSON pointer that leads from a value to one in it; nothing where a member of the same name hides that.
fn pointer(root: Node<'_>, target: Node<'_>) -> Option<String> {
    let place = target.range();
    let holds = |node: Node<'_>| node.range().start <= place.start && place.end <= node.range().end;
    let (mut node, mut pointer) = (root, String::new());
    while node.range() != place {
        pointer.push('/');
        if node.is_array() {
            let mut elements = node.elements().enumerate();
            let (position, element) = elements.find(|(_, element)| holds(*element))?;
            pointer.push_str(&position.to_string());
            node = element;
        } else {
            let (key, value) = node.members().find(|(_, value)| holds(*value))?;
            let key = key.text()?;
            if node.get(&key)?.range() != value.range() {
                return None;
            }
            pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
            node = value;
        }
    }
    Some(pointer)
}

/// What it costs to fetch a value: the way there, and its size.
fn cost(root: Node<'_>, node: Node<'_>) -> usize {
    let way = node.range().end.saturating_sub(root.range().start);
    PIECE + way / 16 + node.raw().len()
}

/// How much work may still be done.
struct Budget(Cell<usize>);

impl Budget {
    fn of(root: Option<Node<'_>>) -> Self {
        Self(Cell::new(4096 + 32 * root.map_or(0, |root| root.raw().len())))
    }

    /// Takes the cost, if it is there.
    fn pay(&self, cost: usize) -> bool {
        let left = self.0.get().checked_sub(cost);
        self.0.set(left.unwrap_or_default());
        left.is_some()
    }
}

/// An Item's native JSON, to be fetched from. Problems are told as ends of sentences.
pub(super) struct Source<'t> {
    root: Option<Node<'t>>,
    reading: Budget,
}

impl<'t> Source<'t> {
    pub(super) fn new(root: Option<Node<'t>>) -> Self {
        Self { root, reading: Budget::of(root) }
    }

    /// A text.
    pub(super) fn text(&self, node: Node<'t>) -> Result<Name, &'static str> {
        if let Some(name) = node.name() {
            return Ok(name);
        }
        let bytes = self.bytes(node)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| "must be text, and is cut amidst")?;
        Ok(Name::from(text))
    }

    /// Bytes that usually are text.
    pub(super) fn bytes(&self, node: Node<'t>) -> Result<Bytes, &'static str> {
        const SHAPE: &str = "must be a string, [pointer, from, to], {joined} or {hex}";
        match node.shape() {
            Shape::String => node.text_bytes().ok_or(SHAPE),
            Shape::Array => self.stretch(node),
            Shape::Object => match (node.get("joined"), node.get("hex")) {
                (Some(pieces), None) if pieces.is_array() => self.join(pieces),
                (None, Some(digits)) => digits.text().and_then(|text| unhex(&text)).ok_or(SHAPE),
                (Some(_) | None, _) => Err(SHAPE),
            },
            Shape::Null | Shape::Bool | Shape::Number => Err(SHAPE),
        }
    }

    /// A value.
    pub(super) fn value(&self, node: Node<'t>) -> Result<Json, &'static str> {
        if let Some(value) = node.get("is") {
            return Ok(value.json());
        }
        if let Some(pointer) = node.get("in").and_then(Node::text) {
            let text = self.at(&pointer)?.text_bytes().ok_or("points at what is no string")?;
            return Json::parse(text).map_err(|_| "points at a string that holds no JSON");
        }
        let pointer = node.elements().next().and_then(Node::text);
        let pointer = pointer.ok_or("must be [pointer], {in: pointer} or {is: value}")?;
        self.at(&pointer).map(Node::json)
    }

    /// The bytes of the string at a pointer.
    pub(super) fn bytes_at(&self, pointer: &str) -> Result<Bytes, &'static str> {
        self.at(pointer)?.text_bytes().ok_or("points at what is no string")
    }

    fn at(&self, pointer: &str) -> Result<Node<'t>, &'static str> {
        let root = self.root.ok_or("points into `json`, which is missing")?;
        let node = root.at(pointer).ok_or("points at nothing in `json`")?;
        let is_affordable = self.reading.pay(cost(root, node));
        is_affordable.then_some(node).ok_or("points at more than `json` can hold")
    }

    fn stretch(&self, node: Node<'t>) -> Result<Bytes, &'static str> {
        const SHAPE: &str = "must be [pointer, from, to]";
        let mut elements = node.elements();
        let pointer = elements.next().and_then(Node::text).ok_or(SHAPE)?;
        let bytes = self.bytes_at(&pointer)?;
        let bounds: Option<Vec<usize>> =
            elements.map(|bound| usize::try_from(bound.u64()?).ok()).collect();
        let (from, to) = match bounds.as_deref() {
            Some([]) => (0, bytes.len()),
            Some([from]) => (*from, bytes.len()),
            Some([from, to]) => (*from, *to),
            Some(_) | None => return Err(SHAPE),
        };
        if from > to || to > bytes.len() {
            return Err("points beyond the end of its string");
        }
        Ok(bytes.slice(from..to))
    }

    fn join(&self, pieces: Node<'t>) -> Result<Bytes, &'static str> {
        let mut joined = Vec::new();
        for piece in pieces.elements() {
            match piece.text() {
                Some(text) => joined.extend_from_slice(text.as_bytes()),
                None if piece.is_array() => joined.extend_from_slice(&self.stretch(piece)?),
                None => return Err("must be joined from strings and [pointer, from, to]"),
            }
        }
        Ok(Bytes::from(joined))
    }
}

/// Bytes as digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Bytes from digits.
pub(super) fn unhex(text: &str) -> Option<Bytes> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    pairs.collect::<Option<Vec<u8>>>().map(Bytes::from)
}
