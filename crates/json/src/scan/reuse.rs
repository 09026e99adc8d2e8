//! Indexes a text by copying entries of an earlier text's index.
//!
//! Each request of a conversation repeats the request before it and adds messages. The two texts
//! are equal up to the first new message, and usually from the end of the messages on. Only the
//! text in between is scanned.

use super::{Entry, Index, NONE, Scanner, has_controls, narrow};
use crate::text::check;
use crate::{JsonKind, SyntaxError, common_suffix};

/// The known entries after a value of the outermost container, and where they belong in the new
/// text.
#[derive(Clone, Copy)]
pub(super) struct KnownEnd<'k> {
    known: &'k Index,
    /// The number of the first entry after the value.
    entry: usize,
    /// The number of the first escape after the value.
    escape: usize,
    /// The position of the value's end in the new text.
    pub(super) at: usize,
    /// By how many bytes the entries move.
    shift: isize,
}

/// A position in a text at which a scan can continue.
struct ResumePoint {
    /// The position after a complete value, or after the start of a container.
    at: usize,
    /// The number of entries before that position.
    entries: usize,
    /// The numbers of the open containers, outermost first.
    open: Vec<u32>,
}

/// Indexes a text, like [`super::index`], with a known text and its index. The first `shared` bytes
/// of both texts are equal. Returns `None` if both texts have too little in common.
pub(crate) fn index_after(
    text: &[u8],
    (known_text, known): (&[u8], &Index),
    shared: usize,
    deepest: u32,
    most: usize,
) -> Option<Result<Index, SyntaxError>> {
    if known.deepest > deepest {
        return None;
    }
    let ResumePoint { at, entries, open } = resume_point(known, shared)?;
    if let Err(error) = check(text, at) {
        return Some(Err(error));
    }
    let (rest, known_rest) = (text.get(at..)?, known_text.get(at..)?);
    let escapes = known.escapes.partition_point(|escape| (*escape as usize) < at);
    let growth = text.len().saturating_sub(known_text.len());
    // Every entry and every escape takes at least one byte.
    let room = |known: usize, kept: usize, growth: usize| {
        kept + (known - kept + growth + 16).min(rest.len())
    };
    let mut index = Index {
        entries: Vec::with_capacity(room(known.entries.len(), entries, growth / 48)),
        escapes: Vec::with_capacity(room(known.escapes.len(), escapes, growth / 64)),
        deepest,
    };
    index.entries.extend_from_slice(known.entries.get(..entries)?);
    index.escapes.extend_from_slice(known.escapes.get(..escapes)?);
    let mut around = NONE;
    for container in &open {
        index.entries.get_mut(*container as usize)?.link = around;
        around = *container;
    }
    let shift = text.len().cast_signed() - known_text.len().cast_signed();
    let end = known_end(known, known_text.len() - common_suffix(rest, known_rest), shift);
    let until = end.map_or(text.len(), |end| end.at);
    let scanner = Scanner {
        text,
        at,
        index,
        open: around,
        room: deepest.checked_sub(narrow(open.len()))?,
        most,
        has_controls: has_controls(text.get(at..until).unwrap_or(rest)),
        end,
    };
    Some(scanner.run())
}

/// Finds the last position before `prefix` at which a scan of the known text can continue.
fn resume_point(known: &Index, prefix: usize) -> Option<ResumePoint> {
    let root = known.entries.first()?;
    if !is_container(root) || root.start as usize >= prefix {
        return None;
    }
    let mut point = ResumePoint { at: root.start as usize + 1, entries: 1, open: vec![0] };
    let mut next = Some(0);
    while let Some(container) = next.take().and_then(|number: usize| known.entries.get(number)) {
        let names = usize::from(container.shape == JsonKind::Object);
        while point.entries < container.link as usize {
            let number = point.entries + names;
            let value = known.entries.get(number)?;
            // The byte after a value is compared too, because a number can continue there.
            if (value.end as usize) < prefix {
                point.at = value.end as usize;
                point.entries = if is_container(value) { value.link as usize } else { number + 1 };
                continue;
            }
            if is_container(value) && (value.start as usize) < prefix {
                point.at = value.start as usize + 1;
                point.entries = number + 1;
                point.open.push(narrow(number));
                next = Some(number);
            }
            break;
        }
    }
    Some(point)
}

/// Finds the first value of the outermost container that ends at `suffix` or later.
fn known_end(known: &Index, suffix: usize, shift: isize) -> Option<KnownEnd<'_>> {
    let root = known.entries.first()?;
    let names = usize::from(root.shape == JsonKind::Object);
    let mut entry = 1;
    while entry < root.link as usize {
        let number = entry + names;
        let value = known.entries.get(number)?;
        entry = if is_container(value) { value.link as usize } else { number + 1 };
        let end = value.end as usize;
        if end >= suffix {
            let escape = known.escapes.partition_point(|escape| (*escape as usize) < end);
            let at = end.checked_add_signed(shift)?;
            return Some(KnownEnd { known, entry, escape, at, shift });
        }
    }
    None
}

fn is_container(entry: &Entry) -> bool {
    matches!(entry.shape, JsonKind::Array | JsonKind::Object)
}

impl Scanner<'_> {
    /// Copies the known entries after the current position, which is in the outermost container,
    /// and closes this container.
    pub(super) fn copy_end(&mut self, end: KnownEnd<'_>) {
        let moved = |offset: u32| narrow((offset as usize).saturating_add_signed(end.shift));
        let (entries, escapes) = (self.index.entries.len(), self.index.escapes.len());
        let link = |entry: &Entry| match entry.shape {
            JsonKind::Array | JsonKind::Object => narrow(entry.link as usize + entries - end.entry),
            JsonKind::String => narrow(entry.link as usize + escapes - end.escape),
            JsonKind::Null | JsonKind::Bool | JsonKind::Number => entry.link,
        };
        let known = end.known;
        let rest = known.entries.get(end.entry..).unwrap_or_default().iter();
        self.index.entries.extend(rest.map(|entry| Entry {
            start: moved(entry.start),
            end: moved(entry.end),
            link: link(entry),
            ..*entry
        }));
        let rest = known.escapes.get(end.escape..).unwrap_or_default().iter();
        self.index.escapes.extend(rest.map(|escape| moved(*escape)));
        let root_end = known.entries.first().map_or(0, |root| root.end);
        self.at = moved(root_end) as usize;
        self.close();
    }
}
