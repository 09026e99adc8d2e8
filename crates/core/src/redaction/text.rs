//! Redacting one text.

use std::borrow::Cow;
use std::ops::Range;

use crate::redaction::{Pattern, REDACTED};

/// How often a text is looked at again because a redaction made something else match. A text that is not through by then is
/// redacted whole, so that the time stays in proportion to the text.
const PASSES: usize = 8;

/// The text with [`REDACTED`] in place of everything that matches. What lies within a [`REDACTED`] never matches.
pub(super) fn redact<'t>(text: &'t str, patterns: &[&Pattern]) -> Cow<'t, str> {
    let mut redacted = Cow::Borrowed(text);
    for _ in 0..PASSES {
        match once(&redacted, patterns) {
            None => return redacted,
            Some(changed) => redacted = Cow::Owned(changed),
        }
    }
    match once(&redacted, patterns) {
        None => redacted,
        Some(_) => Cow::Owned(REDACTED.to_owned()),
    }
}

/// The text after one look; nothing where nothing matches.
fn once(text: &str, patterns: &[&Pattern]) -> Option<String> {
    let marks = marks(text);
    let found = patterns.iter().flat_map(|pattern| pattern.matches(text));
    let mut found: Vec<_> = found.filter(|range| !is_covered(range, &marks)).collect();
    if found.is_empty() {
        return None;
    }
    found.extend(marks);
    found.sort_by_key(|range| range.start);
    let mut changed = String::with_capacity(text.len());
    let mut copied = 0;
    for range in merged(found) {
        changed.push_str(text.get(copied..range.start).unwrap_or_default());
        changed.push_str(REDACTED);
        copied = range.end;
    }
    changed.push_str(text.get(copied..).unwrap_or_default());
    Some(changed)
}

/// Where something was redacted before. Marks without anything between them are one.
fn marks(text: &str) -> Vec<Range<usize>> {
    let found = memchr::memmem::find_iter(text.as_bytes(), REDACTED);
    merged(found.map(|start| start..start + REDACTED.len()).collect())
}

/// Whether the range lies within one of the marks, which are in order.
fn is_covered(range: &Range<usize>, marks: &[Range<usize>]) -> bool {
    let after = marks.partition_point(|mark| mark.start <= range.start);
    let mark = after.checked_sub(1).and_then(|place| marks.get(place));
    mark.is_some_and(|mark| range.end <= mark.end)
}

/// Ranges in order, with those joined that overlap or touch.
fn merged(ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let mut joined: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            Some(_) | None => joined.push(range),
        }
    }
    joined
}
