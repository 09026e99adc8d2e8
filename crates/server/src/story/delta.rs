//! A text as its difference to another: what of the other it takes over, and what is new.
//!
//! A conversation that grows begins as it began before and often ends alike too, so what both have at the beginning and at
//! the end is most of it. What is left between is cut where elements of JSON meet, and pieces that the other has anywhere
//! are taken over: so a member that changes at the top, or a marker that moves, costs no more than itself.
//!
//! As JSON it is a list of stretches `[start, length]` of the other text, in bytes, and of strings that are new.

use std::collections::HashMap;

use bytes::Bytes;
use throughline_core::{Node, json};

/// Pieces that are shorter are not looked for: saying where they are would be as long.
const SHORTEST: usize = 24;

/// One part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part<'t> {
    /// A stretch of the other text.
    Taken { start: usize, length: usize },
    /// What is new.
    New(&'t str),
}

/// Writes `text` as its difference to `base`.
pub(super) fn write(base: &str, text: &str, out: &mut json::Array<'_>) {
    for part in parts(base, text) {
        match part {
            Part::Taken { start, length } => {
                out.array(|a| {
                    a.number(start as u64).number(length as u64);
                });
            }
            Part::New(text) => {
                out.string(text);
            }
        }
    }
}

/// The text that a difference to `base` is of; nothing where it is not one.
pub(super) fn read(base: &Bytes, parts: Node<'_>) -> Option<Bytes> {
    let mut text = Vec::new();
    let mut whole = None;
    for (at, part) in parts.elements().enumerate() {
        if let Some(new) = part.text() {
            text.extend_from_slice(new.as_bytes());
            continue;
        }
        let mut place = part.elements().filter_map(Node::u64).map(usize::try_from);
        let (Some(Ok(start)), Some(Ok(length))) = (place.next(), place.next()) else {
            return None;
        };
        let taken = start..start.checked_add(length)?;
        text.extend_from_slice(base.get(taken.clone())?);
        whole = (at == 0 && taken.len() == base.len()).then(|| base.clone());
    }
    // What is wholly the other shares its memory.
    Some(whole.filter(|whole| whole.len() == text.len()).unwrap_or_else(|| Bytes::from(text)))
}

fn parts<'t>(base: &str, text: &'t str) -> Vec<Part<'t>> {
    let mut parts = Parts::default();
    let first = same_beginning(base, text);
    let last = same_end(base.get(first..).unwrap_or_default(), text.get(first..).unwrap_or(""));
    parts.take(0, first);
    let (old, new) = (base.get(first..base.len() - last), text.get(first..text.len() - last));
    parts.find(first, old.unwrap_or_default(), new.unwrap_or_default());
    parts.take(base.len() - last, last);
    parts.0
}

/// The parts of a text so far.
#[derive(Default)]
struct Parts<'t>(Vec<Part<'t>>);

impl<'t> Parts<'t> {
    fn take(&mut self, start: usize, length: usize) {
        match self.0.last_mut() {
            _ if length == 0 => {}
            Some(Part::Taken { start: before, length: so_far }) if *before + *so_far == start => {
                *so_far += length;
            }
            Some(Part::Taken { .. } | Part::New(_)) | None => {
                self.0.push(Part::Taken { start, length });
            }
        }
    }

    /// Adds `new`, with the pieces that stand in `old`, which begins at `start` of the other text.
    fn find(&mut self, start: usize, old: &str, new: &'t str) {
        let is_worth_it = |piece: &str| piece.len() >= SHORTEST;
        let mut known: HashMap<&str, usize> = HashMap::new();
        if new.len() >= SHORTEST {
            let mut at = start;
            for piece in pieces(old) {
                if is_worth_it(piece) {
                    known.entry(piece).or_insert(at);
                }
                at += piece.len();
            }
        }
        // What is new is one stretch of `new`, from `from` to `at`.
        let (mut from, mut at) = (0, 0);
        for piece in pieces(new) {
            if let Some(place) = known.get(piece) {
                self.add(new.get(from..at).unwrap_or_default());
                self.take(*place, piece.len());
                from = at + piece.len();
            }
            at += piece.len();
        }
        self.add(new.get(from..).unwrap_or_default());
    }

    fn add(&mut self, new: &'t str) {
        if !new.is_empty() {
            self.0.push(Part::New(new));
        }
    }
}

/// A text cut where elements of JSON meet.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(['}', ']'])
}

/// How many bytes both texts have in common at the beginning, whole characters only.
fn same_beginning(left: &str, right: &str) -> usize {
    let (left_bytes, right_bytes) = (left.as_bytes(), right.as_bytes());
    let mut length = common(left_bytes.chunks(BLOCK).zip(right_bytes.chunks(BLOCK)));
    let rest = left_bytes.iter().zip(right_bytes).skip(length);
    length += rest.take_while(|(left, right)| left == right).count();
    while !left.is_char_boundary(length) || !right.is_char_boundary(length) {
        length -= 1;
    }
    length
}

/// The same at the end.
fn same_end(left: &str, right: &str) -> usize {
    let (left_bytes, right_bytes) = (left.as_bytes(), right.as_bytes());
    let mut length = common(left_bytes.rchunks(BLOCK).zip(right_bytes.rchunks(BLOCK)));
    let rest = left_bytes.iter().rev().zip(right_bytes.iter().rev()).skip(length);
    length += rest.take_while(|(left, right)| left == right).count();
    while !left.is_char_boundary(left.len() - length) {
        length -= 1;
    }
    length
}

/// How many bytes are compared at once.
const BLOCK: usize = 256;

/// How many bytes the equal whole blocks have.
fn common<'b>(blocks: impl Iterator<Item = (&'b [u8], &'b [u8])>) -> usize {
    let equal = blocks.take_while(|(left, right)| left.len() == BLOCK && left == right);
    equal.count() * BLOCK
}

#[cfg(test)]
#[path = "delta_tests.rs"]
mod delta_tests;
