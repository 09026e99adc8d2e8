//! Patterns for names and models.
//!
//! In a pattern, `*` matches any text. A pattern for models can also contain one version in braces,
//! such as `*claude-opus-{5.5}*`. A model name can write this version as `5.5`, `5-5`, `5_5` or
//! `5p5`, and can append a date.
//!
//! Patterns that differ only in their version form a series. If a name has a version that no
//! pattern of the series lists, every pattern of the series matches, and the newest version matches
//! best. A new model therefore never matches an older version by its prefix. If all patterns of the
//! series have newer versions than the name, the oldest of them matches best ([`best_match`]).

use std::cmp::Ordering;

#[cfg(test)]
#[path = "pattern_tests.rs"]
mod pattern_tests;

/// The version of a model. A missing minor version is 0, so `5` equals `5.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModelVersion {
    /// The number before the separator.
    pub major: u8,
    /// The number after the separator.
    pub minor: u8,
}

/// How well a pattern matches a model name. A greater value is a better match: first the longer
/// pattern, then the pattern with the version of the name, then the pattern with the newest other
/// version, then the pattern without a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModelMatch {
    /// The length of the pattern. The version counts only if it equals the version of the name.
    length: usize,
    fit: VersionFit,
}

/// How the version of a pattern relates to the version of a model name. The variants are ordered
/// from the weakest match to the best one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum VersionFit {
    /// The pattern has no version.
    Unversioned,
    /// The pattern and the name have different versions.
    Other { pattern: ModelVersion, name: ModelVersion },
    /// The pattern has the version of the name.
    Equal,
}

impl ModelMatch {
    /// Matches a model name against a pattern, ignoring case; `None` if the name does not match.
    pub fn new(pattern: &str, model: &str) -> Option<Self> {
        let Some((head, version, tail)) = split(pattern) else {
            let (length, fit) = (pattern.len(), VersionFit::Unversioned);
            return matches_pattern(pattern, model).then_some(Self { length, fit });
        };
        let wanted = parse_version(version)?;
        let base = head.len() + tail.len();
        let matches = versions(model).filter_map(|(start, end, found)| {
            let before = model.get(..start).is_some_and(|before| matches_pattern(head, before));
            let is_match = before && matches_pattern(tail, model.get(end..)?);
            let (length, fit) = if found == wanted {
                (base + version.len(), VersionFit::Equal)
            } else {
                (base, VersionFit::Other { pattern: wanted, name: found })
            };
            is_match.then_some(Self { length, fit })
        });
        matches.max()
    }

    /// Returns how the version of the pattern compares with the version of the name; `None` if the
    /// pattern has the same version or no version.
    pub fn other_version(self) -> Option<Ordering> {
        match self.fit {
            VersionFit::Other { pattern, name } => Some(pattern.cmp(&name)),
            VersionFit::Unversioned | VersionFit::Equal => None,
        }
    }
}

/// Returns the value of the pattern that matches a model name best; `None` if no pattern matches.
/// If several patterns match equally well, the first one wins.
pub fn best_match<'p, V>(
    patterns: impl IntoIterator<Item = (&'p str, V)>,
    model: &str,
) -> Option<V> {
    let matches = patterns.into_iter();
    let matches = matches
        .filter_map(|(pattern, value)| ModelMatch::new(pattern, model).map(|found| (found, value)));
    let matches: Vec<(ModelMatch, V)> = matches.collect();
    let best = matches.iter().map(|(found, _)| *found).max()?;
    // Other versions of the same series match with the same length.
    let in_series = |found: &ModelMatch| {
        found.length == best.length && matches!(found.fit, VersionFit::Other { .. })
    };
    let series = || matches.iter().map(|(found, _)| *found).filter(in_series);
    let is_newer = |found: ModelMatch| match found.fit {
        VersionFit::Other { pattern, name } => pattern > name,
        VersionFit::Unversioned | VersionFit::Equal => false,
    };
    let is_oldest = in_series(&best) && series().all(is_newer);
    let best = if is_oldest { series().min()? } else { best };
    matches.into_iter().find(|(found, _)| *found == best).map(|(_, value)| value)
}

/// Whether a pattern is valid: it has no braces, or one version in braces.
pub fn is_valid_pattern(pattern: &str) -> bool {
    match split(pattern) {
        None => !pattern.contains(['{', '}']),
        Some((head, version, tail)) => {
            let has_braces = [head, tail].iter().any(|part| part.contains(['{', '}']));
            !has_braces && parse_version(version).is_some()
        }
    }
}

/// Splits a pattern at its braces.
fn split(pattern: &str) -> Option<(&str, &str, &str)> {
    let (head, rest) = pattern.split_once('{')?;
    let (version, tail) = rest.split_once('}')?;
    Some((head, version, tail))
}

/// Parses the version in a pattern: `5` or `5.1`.
fn parse_version(text: &str) -> Option<ModelVersion> {
    let (major, minor) = text.split_once('.').unwrap_or((text, "0"));
    let number = |digits: &str| digits.parse().ok().filter(|_| digits.len() <= 2);
    Some(ModelVersion { major: number(major)?, minor: number(minor)? })
}

/// Returns every version in a model name, with the byte range of the version.
fn versions(model: &str) -> impl Iterator<Item = (usize, usize, ModelVersion)> {
    let bytes = model.as_bytes();
    let is_start = |index: usize| {
        let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
        is_digit(index) && !index.checked_sub(1).is_some_and(is_digit)
    };
    (0..bytes.len()).filter(move |index| is_start(*index)).filter_map(move |start| {
        let (version, length) = leading_version(bytes.get(start..)?)?;
        Some((start, start + length, version))
    })
}

/// Reads the version at the start of a text, and returns the version and its length. A number with
/// more than two digits is a date or a size. A number before a letter is a size or a variant, such
/// as `4o` or `32k`, unless a dot precedes the number, such as in `4.5v`.
fn leading_version(text: &[u8]) -> Option<(ModelVersion, usize)> {
    let (major, end) = leading_number(text)?;
    let rest = text.get(end..).unwrap_or_default();
    if let Some((separator, after)) = rest.split_first()
        && matches!(separator, b'.' | b'-' | b'_' | b'p' | b'P')
        && let Some((minor, length)) = leading_number(after)
    {
        let is_joined = matches!(separator, b'-' | b'_');
        let follower = after.get(length);
        if !is_joined || !follower.is_some_and(u8::is_ascii_alphanumeric) {
            return Some((ModelVersion { major, minor }, end + 1 + length));
        }
    }
    let is_whole = !rest.first().is_some_and(u8::is_ascii_alphanumeric);
    is_whole.then_some((ModelVersion { major, minor: 0 }, end))
}

/// Reads a number of one or two digits, and returns the number and its length.
fn leading_number(text: &[u8]) -> Option<(u8, usize)> {
    let length = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let digits = std::str::from_utf8(text.get(..length)?).ok()?;
    let number = digits.parse().ok()?;
    (length <= 2).then_some((number, length))
}

/// Whether `text` matches a pattern in which `*` matches any text, ignoring case.
pub fn matches_pattern(pattern: &str, text: &str) -> bool {
    let (pattern, mut text) = (pattern.as_bytes(), text.as_bytes());
    // Each text is tested against many patterns. Comparing the first letter rules out most of them.
    match (pattern.first(), text.first()) {
        (Some(b'*') | None, _) => {}
        (Some(wanted), Some(first)) if wanted.eq_ignore_ascii_case(first) => {}
        (Some(_), _) => return false,
    }
    let mut pieces = pattern.split(|byte| *byte == b'*');
    let head = pieces.next().unwrap_or_default();
    match text.split_at_checked(head.len()) {
        Some((start, rest)) if start.eq_ignore_ascii_case(head) => text = rest,
        Some(_) | None => return false,
    }
    let Some(tail) = pieces.next_back() else { return text.is_empty() };
    for piece in pieces {
        match after_first(text, piece) {
            Some(rest) => text = rest,
            None => return false,
        }
    }
    let end = text.len().checked_sub(tail.len()).and_then(|start| text.get(start..));
    end.is_some_and(|end| end.eq_ignore_ascii_case(tail))
}

/// Returns the text after the first occurrence of `piece`, ignoring case.
fn after_first<'t>(text: &'t [u8], piece: &[u8]) -> Option<&'t [u8]> {
    let Some(first) = piece.first() else { return Some(text) };
    let is_here = |window: &[u8]| {
        window.first().is_some_and(|byte| byte.eq_ignore_ascii_case(first))
            && window.eq_ignore_ascii_case(piece)
    };
    let start = text.windows(piece.len()).position(is_here)?;
    text.get(start + piece.len()..)
}
