//! Encodes a text as its difference from a base text.
//!
//! A growing conversation shares its start, and often its end, with the previous request. The text
//! in between is split at JSON element boundaries, and pieces that also occur in the base are
//! stored as references. A changed member or a moved cache marker therefore adds only its own
//! length.
//!
//! The JSON form is an array. Its elements are byte ranges `[start, length]` in the base, and
//! strings with new text.

use std::collections::HashMap;

use bytes::Bytes;
use throughline_json::{self as json, Node};

/// Minimum length in bytes of a referenced piece. For shorter pieces, the reference is as long as
/// the text.
const SHORTEST: usize = 24;

/// One part of an encoded text.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DeltaPart<'t> {
    /// A byte range of the base.
    Taken { start: usize, length: usize },
    /// New text, stored verbatim.
    New(&'t [u8]),
}

/// Writes `text` as its difference from `base`. Both texts must be UTF-8; only new text is
/// validated.
pub(super) fn write(base: &[u8], text: &[u8], out: &mut json::Array<'_>) {
    for part in parts(base, text) {
        match part {
            DeltaPart::Taken { start, length } => {
                out.array(|a| {
                    a.number(start as u64).number(length as u64);
                });
            }
            DeltaPart::New(text) => {
                out.string(std::str::from_utf8(text).unwrap_or_default());
            }
        }
    }
}

/// Applies a difference to `base`; `None` if the difference is invalid.
pub(super) fn read(base: &Bytes, parts: Node<'_>) -> Option<Bytes> {
    let mut text = Vec::new();
    let mut shared = None;
    for (at, part) in parts.elements().enumerate() {
        if let Some(new) = part.text() {
            text.extend_from_slice(new.as_bytes());
            continue;
        }
        let mut numbers = part.elements().filter_map(Node::u64).map(usize::try_from);
        let (Some(Ok(start)), Some(Ok(length))) = (numbers.next(), numbers.next()) else {
            return None;
        };
        let range = start..start.checked_add(length)?;
        text.extend_from_slice(base.get(range.clone())?);
        shared = (at == 0 && range.len() == base.len()).then(|| base.clone());
    }
    // A text that equals the base shares the base's memory.
    Some(shared.filter(|shared| shared.len() == text.len()).unwrap_or_else(|| Bytes::from(text)))
}

fn parts<'t>(base: &[u8], text: &'t [u8]) -> Vec<DeltaPart<'t>> {
    let mut parts = DeltaBuilder::default();
    let first = common_prefix(base, text);
    let last =
        common_suffix(base.get(first..).unwrap_or_default(), text.get(first..).unwrap_or_default());
    parts.push_copied(0, first);
    let (old, new) = (base.get(first..base.len() - last), text.get(first..text.len() - last));
    parts.find(first, old.unwrap_or_default(), new.unwrap_or_default());
    parts.push_copied(base.len() - last, last);
    parts.0
}

/// The parts encoded so far.
#[derive(Default)]
struct DeltaBuilder<'t>(Vec<DeltaPart<'t>>);

impl<'t> DeltaBuilder<'t> {
    fn push_copied(&mut self, start: usize, length: usize) {
        match self.0.last_mut() {
            _ if length == 0 => {}
            Some(DeltaPart::Taken { start: before, length: so_far })
                if *before + *so_far == start =>
            {
                *so_far += length;
            }
            Some(DeltaPart::Taken { .. } | DeltaPart::New(_)) | None => {
                self.0.push(DeltaPart::Taken { start, length });
            }
        }
    }

    /// Appends `new`. Pieces that occur in `old` are appended as references. `start` is the offset
    /// of `old` in the base.
    fn find(&mut self, start: usize, old: &[u8], new: &'t [u8]) {
        let is_worth_it = |piece: &[u8]| piece.len() >= SHORTEST;
        let mut known: HashMap<&[u8], usize> = HashMap::new();
        if new.len() >= SHORTEST {
            let mut at = start;
            for piece in pieces(old) {
                if is_worth_it(piece) {
                    known.entry(piece).or_insert(at);
                }
                at += piece.len();
            }
        }
        // The pending new text is `new[from..at]`.
        let (mut from, mut at) = (0, 0);
        for piece in pieces(new) {
            if let Some(place) = known.get(piece) {
                self.add(new.get(from..at).unwrap_or_default());
                self.push_copied(*place, piece.len());
                from = at + piece.len();
            }
            at += piece.len();
        }
        self.add(new.get(from..).unwrap_or_default());
    }

    fn add(&mut self, new: &'t [u8]) {
        if !new.is_empty() {
            self.0.push(DeltaPart::New(new));
        }
    }
}

/// Splits a text at JSON element boundaries.
fn pieces(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = memchr::memchr2_iter(b'}', b']', text).map(|at| at + 1);
    let is_open = text.last().is_some_and(|byte| !matches!(byte, b'}' | b']'));
    let mut start = 0;
    ends.chain(is_open.then_some(text.len())).map(move |end| {
        let piece = text.get(start..end).unwrap_or_default();
        start = end;
        piece
    })
}

/// Returns the length of the common prefix in bytes, rounded down to a character boundary.
fn common_prefix(left: &[u8], right: &[u8]) -> usize {
    let mut length = json::common_prefix(left, right);
    while is_inside_char(left, length) || is_inside_char(right, length) {
        length -= 1;
    }
    length
}

/// Returns the length of the common suffix in bytes, rounded down to a character boundary.
fn common_suffix(left: &[u8], right: &[u8]) -> usize {
    let mut length = json::common_suffix(left, right);
    while is_inside_char(left, left.len() - length) {
        length -= 1;
    }
    length
}

/// Whether a position is inside a UTF-8 character.
fn is_inside_char(text: &[u8], position: usize) -> bool {
    text.get(position).is_some_and(|byte| byte & 0b1100_0000 == 0b1000_0000)
}

#[cfg(test)]
#[path = "delta_tests.rs"]
mod delta_tests;
