//! References into an Item's native JSON. Storing an Item creates references; restoring the Item
//! resolves them.
//!
//! This module does not depend on any wire format: it visits every string and value of the native
//! JSON once. Storing and restoring have the same work budget, proportional to the size of the
//! native JSON. Content whose reference would exceed the budget is stored in full.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashMap;

use bytes::Bytes;
use memchr::memmem;
use throughline_json::{self as json, Json, JsonKind, Name, Node};

use crate::name::{hex, unhex};

/// Minimum length in bytes of a text to search for inside other strings.
const LONG: usize = 32;
/// Maximum number of strings that are compared one by one instead of being hashed.
const FEW_STRINGS: usize = 16;
/// The minimum length of a joined piece, and the maximum gap between two pieces, in bytes.
const PIECE_MIN_LEN: usize = 8;
const GAP: usize = 16;

/// The strings inside a value, each with its node.
pub(super) type StringNodes<'t> = Vec<(Cow<'t, str>, Node<'t>)>;

/// Returns the strings inside a value, in the order of the JSON text.
pub(super) fn strings_in(root: Option<Node<'_>>) -> StringNodes<'_> {
    let values = root.into_iter().flat_map(Node::values);
    values.filter_map(|node| Some((node.text()?, node))).collect()
}

/// An index of the strings in an Item's native JSON.
pub(super) struct StringIndex<'t> {
    root: Option<Node<'t>>,
    strings: &'t [(Cow<'t, str>, Node<'t>)],
    /// The first string with each text; `None` if the strings are so few that they are compared one
    /// by one.
    by_text: Option<HashMap<&'t str, Node<'t>>>,
    reading: WorkBudget,
    searching: WorkBudget,
}

/// A reference and the cost of resolving it.
type CostedReference = (Json, usize);

impl<'t> StringIndex<'t> {
    pub(super) fn new(root: Option<Node<'t>>, strings: &'t StringNodes<'t>) -> Self {
        let by_text = (strings.len() > FEW_STRINGS).then(|| {
            let mut by_text = HashMap::with_capacity(strings.len());
            for (text, node) in strings {
                by_text.entry(&**text).or_insert(*node);
            }
            by_text
        });
        let (reading, searching) = (WorkBudget::for_root(root), WorkBudget::for_root(root));
        Self { root, strings, by_text, reading, searching }
    }

    /// Returns the first string that equals the text.
    fn find(&self, text: &str) -> Option<Node<'t>> {
        match &self.by_text {
            Some(by_text) => by_text.get(text).copied(),
            None => self.strings.iter().find(|(known, _)| *known == text).map(|(_, node)| *node),
        }
    }

    /// Encodes a text as a reference if possible, otherwise as a JSON string.
    pub(super) fn text(&self, text: &str) -> Json {
        self.reference(text).unwrap_or_else(|| json::string(text))
    }

    /// Encodes bytes as text if they are valid UTF-8, otherwise as `{"hex": …}`.
    pub(super) fn bytes(&self, bytes: &[u8]) -> Json {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.text(text),
            Err(_) => json::object!("hex": &*hex(bytes)),
        }
    }

    /// Encodes a value as a reference if that is shorter, otherwise as `{"is": value}`.
    pub(super) fn value(&self, value: &Json) -> Json {
        let found = self.value_at(value).or_else(|| self.value_in(value));
        let found = found.filter(|(json, _)| json.bytes().len() < value.bytes().len() + 7);
        match found.filter(|(_, cost)| self.reading.spend(*cost)) {
            Some((reference, _)) => reference,
            None => json::object!("is": value),
        }
    }

    /// Whether the string at `pointer` equals `bytes` and the budget covers resolving the
    /// reference.
    pub(super) fn equals_at(&self, pointer: &str, bytes: &[u8]) -> bool {
        let Some((root, node)) = self.root.and_then(|root| Some((root, root.at(pointer)?))) else {
            return false;
        };
        node.text().is_some_and(|text| text.as_bytes() == bytes)
            && self.reading.spend(cost(root, node))
    }

    fn reference(&self, text: &str) -> Option<Json> {
        let found = self.whole(text);
        let found = found.or_else(|| self.within(text)).or_else(|| self.joined(text));
        let (found, cost) = found?;
        (found.bytes().len() < text.len() + 2 && self.reading.spend(cost)).then_some(found)
    }

    /// Finds a string that equals the text.
    fn whole(&self, text: &str) -> Option<CostedReference> {
        let (root, node) = (self.root?, self.find(text)?);
        Some((reference(&pointer(root, node)?, None, None), cost(root, node)))
    }

    /// Finds a string that contains the text.
    fn within(&self, text: &str) -> Option<CostedReference> {
        let root = self.root?;
        let longer = self.strings.iter().filter(|(string, _)| string.len() > text.len());
        let mut longer = longer.filter(|_| text.len() >= LONG);
        let (node, from, to) = longer.find_map(|(string, node)| {
            let is_affordable = self.searching.spend(string.len());
            let from =
                memmem::find(string.as_bytes(), text.as_bytes()).filter(|_| is_affordable)?;
            let to = from + text.len();
            Some((*node, from, (to < string.len()).then_some(to)))
        })?;
        Some((reference(&pointer(root, node)?, Some(from), to), cost(root, node)))
    }

    /// Composes the text from consecutive strings of the native JSON and short literals between
    /// them.
    fn joined(&self, text: &str) -> Option<CostedReference> {
        let root = self.root.filter(|_| text.len() >= LONG)?;
        let (mut rest, mut total, mut found) = (text, 0, false);
        let pieces = json::array(|out| {
            for (string, node) in
                self.strings.iter().filter(|(string, _)| string.len() >= PIECE_MIN_LEN)
            {
                if rest.is_empty() || !self.searching.spend(string.len()) {
                    break;
                }
                let follows = |gap: &usize| {
                    rest.get(*gap..).is_some_and(|after| after.starts_with(&**string))
                };
                let gap = (0..=GAP).find(follows);
                let Some((gap, pointer)) = gap.zip(pointer(root, *node)) else { continue };
                if let Some(between) = rest.get(..gap).filter(|between| !between.is_empty()) {
                    out.string(between);
                }
                out.raw(&reference(&pointer, None, None));
                rest = rest.get(gap + string.len()..).unwrap_or_default();
                total += cost(root, *node);
                found = true;
            }
            if !rest.is_empty() {
                out.string(rest);
            }
        });
        found.then(|| (json::object!("joined": &pieces), total))
    }

    fn value_at(&self, value: &Json) -> Option<CostedReference> {
        let root =
            self.root.filter(|root| self.searching.spend(root.raw().len() / PIECE_MIN_LEN))?;
        let node = root.values().find(|node| node.raw() == value.bytes())?;
        Some((reference(&pointer(root, node)?, None, None), cost(root, node)))
    }

    fn value_in(&self, value: &Json) -> Option<CostedReference> {
        let (root, node) = (self.root?, self.find(value.as_str())?);
        let pointer = pointer(root, node)?;
        Some((json::object!("in": &*pointer), cost(root, node)))
    }
}

/// Writes `[pointer]`, `[pointer, from]` or `[pointer, from, to]`.
fn reference(pointer: &str, from: Option<usize>, to: Option<usize>) -> Json {
    let bounds = [from, to].into_iter().flatten();
    json::array(|out| out.string(pointer).extend(bounds.map(|bound| bound as u64)))
}

/// Returns the JSON pointer from a value to a descendant; `None` if a duplicate member name hides
/// the descendant.
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
            if key.contains(['~', '/']) {
                pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
            } else {
                pointer.push_str(&key);
            }
            node = value;
        }
    }
    Some(pointer)
}

/// Returns the cost of resolving a reference, from the value's offset in the JSON and its size.
fn cost(root: Node<'_>, node: Node<'_>) -> usize {
    let offset = node.range().end.saturating_sub(root.range().start);
    PIECE_MIN_LEN + offset / 16 + node.raw().len()
}

struct WorkBudget(Cell<usize>);

impl WorkBudget {
    fn for_root(root: Option<Node<'_>>) -> Self {
        Self(Cell::new(4096 + 32 * root.map_or(0, |root| root.raw().len())))
    }

    /// Deducts the cost and returns true, or empties the budget and returns false.
    fn spend(&self, cost: usize) -> bool {
        let remaining = self.0.get().checked_sub(cost);
        self.0.set(remaining.unwrap_or_default());
        remaining.is_some()
    }
}

/// Resolves references into an Item's native JSON. Error messages are predicates without a subject;
/// the caller prepends the member name.
pub(super) struct ReferenceResolver<'t> {
    root: Option<Node<'t>>,
    reading: WorkBudget,
}

impl<'t> ReferenceResolver<'t> {
    pub(super) fn new(root: Option<Node<'t>>) -> Self {
        Self { root, reading: WorkBudget::for_root(root) }
    }

    pub(super) fn text(&self, node: Node<'t>) -> Result<Name, &'static str> {
        if let Some(name) = node.name() {
            return Ok(name);
        }
        let bytes = self.bytes(node)?;
        let text = std::str::from_utf8(&bytes).map(Name::from);
        text.map_err(|_| "must be text, but splits a character")
    }

    /// Decodes a string, a reference, `{"joined": …}` or `{"hex": …}`.
    pub(super) fn bytes(&self, node: Node<'t>) -> Result<Bytes, &'static str> {
        const SHAPE: &str = "must be a string, [pointer, from, to], {joined} or {hex}";
        match node.shape() {
            JsonKind::String => node.text_bytes().ok_or(SHAPE),
            JsonKind::Array => self.slice(node),
            JsonKind::Object => match (node.get("joined"), node.get("hex")) {
                (Some(pieces), None) if pieces.is_array() => self.join(pieces),
                (None, Some(digits)) => digits.text().and_then(|text| unhex(&text)).ok_or(SHAPE),
                (Some(_) | None, _) => Err(SHAPE),
            },
            JsonKind::Null | JsonKind::Bool | JsonKind::Number => Err(SHAPE),
        }
    }

    pub(super) fn value(&self, node: Node<'t>) -> Result<Json, &'static str> {
        if let Some(value) = node.get("is") {
            return Ok(value.json());
        }
        if let Some(pointer) = node.get("in").and_then(Node::text) {
            let text = self.bytes_at(&pointer)?;
            return Json::parse(text).map_err(|_| "points at a string that is not JSON");
        }
        let pointer = node.elements().next().and_then(Node::text);
        let pointer = pointer.ok_or("must be [pointer], {in: pointer} or {is: value}")?;
        self.at(&pointer).map(Node::json)
    }

    /// Returns the bytes of the string at a pointer.
    pub(super) fn bytes_at(&self, pointer: &str) -> Result<Bytes, &'static str> {
        self.at(pointer)?.text_bytes().ok_or("points at a value that is not a string")
    }

    fn at(&self, pointer: &str) -> Result<Node<'t>, &'static str> {
        let root = self.root.ok_or("points into `json`, which is missing")?;
        let node = root.at(pointer).ok_or("points at nothing in `json`")?;
        let is_affordable = self.reading.spend(cost(root, node));
        is_affordable.then_some(node).ok_or("exceeds the work budget of references into `json`")
    }

    fn slice(&self, node: Node<'t>) -> Result<Bytes, &'static str> {
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
            return Err("points beyond the end of the referenced string");
        }
        Ok(bytes.slice(from..to))
    }

    fn join(&self, pieces: Node<'t>) -> Result<Bytes, &'static str> {
        let mut joined = Vec::new();
        for piece in pieces.elements() {
            match piece.text() {
                Some(text) => joined.extend_from_slice(text.as_bytes()),
                None if piece.is_array() => joined.extend_from_slice(&self.slice(piece)?),
                None => return Err("must contain only strings and [pointer, from, to] references"),
            }
        }
        Ok(Bytes::from(joined))
    }
}
