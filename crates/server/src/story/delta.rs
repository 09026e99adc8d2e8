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
    New(&'t [u8]),
}

/// Writes `text` as its difference to `base`. Both are UTF-8, and only what is new needs to be read as such.
pub(super) fn write(base: &[u8], text: &[u8], out: &mut json::Array<'_>) {
    for part in parts(base, text) {
        match part {
            Part::Taken { start, length } => {
                out.array(|a| {
                    a.number(start as u64).number(length as u64);
                });
            }
            Part::New(text) => {
                out.string(std::str::from_utf8(text).unwrap_or_default());
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

fn parts<'t>(base: &[u8], text: &'t [u8]) -> Vec<Part<'t>> {
    let mut parts = Parts::default();
    let first = same_beginning(base, text);
    let last =
        same_end(base.get(first..).unwrap_or_default(), text.get(first..).unwrap_or_default());
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

    fn add(&mut self, new: &'t [u8]) {
        if !new.is_empty() {
            self.0.push(Part::New(new));
        }
    }
}

/// A text cut where elements of JSON meet.
fn pieces(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| matches!(byte, b'}' | b']'))
}

/// How many bytes both texts have in common at the beginning, whole characters only.
fn same_beginning(left: &[u8], right: &[u8]) -> usize {
    let mut length = common(left.chunks(BLOCK).zip(right.chunks(BLOCK)));
    let rest = left.iter().zip(right).skip(length);
    length += rest.take_while(|(left, right)| left == right).count();
    while is_within(left, length) || is_within(right, length) {
        length -= 1;
    }
    length
}

/// The same at the end.
fn same_end(left: &[u8], right: &[u8]) -> usize {
    let mut length = common(left.rchunks(BLOCK).zip(right.rchunks(BLOCK)));
    let rest = left.iter().rev().zip(right.iter().rev()).skip(length);
    length += rest.take_while(|(left, right)| left == right).count();
    while is_within(left, left.len() - length) {
        length -= 1;
    }
    length
}

/// Whether a character goes on at that place of a UTF-8 text.
fn is_within(text: &[u8], place: usize) -> bool {
    text.get(place).is_some_and(|byte| byte & 0b1100_0000 == 0b1000_0000)
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
