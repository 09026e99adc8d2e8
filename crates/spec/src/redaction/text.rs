//! Redacts a single text.

use std::borrow::Cow;
use std::ops::Range;

use crate::redaction::{Pattern, REDACTED};

/// Maximum number of redaction passes over one text, because a replacement can create new matches.
/// If matches remain after the last pass, the whole text is redacted. The limit keeps the time
/// linear.
const PASSES: usize = 8;

/// Replaces every match of a pattern with [`REDACTED`]. Text inside an existing [`REDACTED`] never
/// matches.
pub(super) fn redact<'t>(text: &'t str, patterns: &[&Pattern]) -> Cow<'t, str> {
    let mut redacted = Cow::Borrowed(text);
    for _ in 0..PASSES {
        match redact_once(&redacted, patterns) {
            None => return redacted,
            Some(changed) => redacted = Cow::Owned(changed),
        }
    }
    match redact_once(&redacted, patterns) {
        None => redacted,
        Some(_) => Cow::Owned(REDACTED.to_owned()),
    }
}

/// Runs one redaction pass over the text. Returns `None` if no pattern matches.
fn redact_once(text: &str, patterns: &[&Pattern]) -> Option<String> {
    let redactions = redacted_ranges(text);
    let matches = patterns.iter().flat_map(|pattern| pattern.matches(text));
    let mut matches: Vec<_> = matches.filter(|range| !is_covered(range, &redactions)).collect();
    if matches.is_empty() {
        return None;
    }
    matches.extend(redactions);
    matches.sort_by_key(|range| range.start);
    let mut changed = String::with_capacity(text.len());
    let mut copied = 0;
    for range in merge_ranges(matches) {
        changed.push_str(text.get(copied..range.start).unwrap_or_default());
        changed.push_str(REDACTED);
        copied = range.end;
    }
    changed.push_str(text.get(copied..).unwrap_or_default());
    Some(changed)
}

/// Returns the ranges of earlier redactions. Adjacent ranges are merged.
fn redacted_ranges(text: &str) -> Vec<Range<usize>> {
    let starts = memchr::memmem::find_iter(text.as_bytes(), REDACTED);
    merge_ranges(starts.map(|start| start..start + REDACTED.len()).collect())
}

/// Returns whether the range lies within one of the sorted `redactions`.
fn is_covered(range: &Range<usize>, redactions: &[Range<usize>]) -> bool {
    let after = redactions.partition_point(|redaction| redaction.start <= range.start);
    let redaction = after.checked_sub(1).and_then(|index| redactions.get(index));
    redaction.is_some_and(|redaction| range.end <= redaction.end)
}

/// Merges sorted ranges that overlap or touch.
fn merge_ranges(ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let mut merged: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            Some(_) | None => merged.push(range),
        }
    }
    merged
}
