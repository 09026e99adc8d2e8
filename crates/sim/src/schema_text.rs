//! Generates strings that are valid against a JSON Schema: formats, patterns and lengths.

use regex_syntax::hir::{Class, HirKind};
use serde_json::{Map, Value};

use crate::digest::Digest;

/// Maximum number of added characters, and of repetitions in a pattern.
const LONGEST: usize = 4096;

/// Generates a string. `variant` distinguishes the elements of an array with unique elements.
pub(crate) fn text(schema: &Map<String, Value>, nonce: Digest, variant: u64) -> String {
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
        && let Some(text) = matching(pattern)
    {
        return fitted(&text, schema);
    }
    let suffix = if variant == 0 { String::new() } else { variant.to_string() };
    match schema.get("format").and_then(Value::as_str) {
        Some("date") => "2026-11-15".to_owned(),
        Some("date-time") => "2026-11-15T09:30:00Z".to_owned(),
        Some("time") => "09:30:00Z".to_owned(),
        Some("duration") => "PT15M".to_owned(),
        Some("email" | "idn-email") => format!("ada{suffix}@example.com"),
        Some("uri" | "url" | "uri-reference" | "iri" | "iri-reference") => {
            format!("https://example.com/{suffix}")
        }
        Some("hostname" | "idn-hostname") => "example.com".to_owned(),
        Some("ipv4") => "192.0.2.1".to_owned(),
        Some("ipv6") => "2001:db8::1".to_owned(),
        Some("uuid") if variant > 0 => nonce.and(variant.to_le_bytes()).uuid(),
        Some("uuid") => nonce.uuid(),
        Some("regex") => "^a+$".to_owned(),
        Some("json-pointer") => "/a".to_owned(),
        _ => fitted(&words(nonce, variant), schema),
    }
}

/// Returns plausible text with non-ASCII characters, which careless encoders corrupt.
fn words(nonce: Digest, variant: u64) -> String {
    const WORDS: [&str; 8] = [
        "Zürich",
        "naïve café",
        "東京",
        "São Paulo 🌊",
        "Ångström & sons",
        "a \"quoted\" word",
        "C:\\notes",
        "Reykjavík 🌋",
    ];
    let words = nonce.choose(&WORDS).copied().unwrap_or_default();
    if variant == 0 { words.to_owned() } else { format!("{variant} {words}") }
}

/// Shortens or extends a text to the length that the schema requires.
fn fitted(text: &str, schema: &Map<String, Value>) -> String {
    let limit = |key: &str| -> Option<usize> { schema.get(key)?.as_u64()?.try_into().ok() };
    let least = limit("minLength").unwrap_or(0).min(LONGEST);
    let length = text.chars().count().max(least).min(limit("maxLength").unwrap_or(usize::MAX));
    text.chars().chain(std::iter::repeat('x')).take(length).collect()
}

/// Returns a short text that matches a pattern; `None` if the pattern cannot be parsed. Assertions
/// other than the start and the end of the text are ignored.
fn matching(pattern: &str) -> Option<String> {
    let parsed = regex_syntax::parse(pattern).ok()?;
    let mut text = String::new();
    let mut pending = vec![&parsed];
    while let Some(hir) = pending.pop() {
        if text.len() > LONGEST {
            return None;
        }
        match hir.kind() {
            HirKind::Empty | HirKind::Look(_) => {}
            HirKind::Literal(literal) => text.push_str(std::str::from_utf8(&literal.0).ok()?),
            HirKind::Class(class) => text.push(member(class)?),
            HirKind::Repetition(repetition) => {
                let least = usize::try_from(repetition.min).unwrap_or(LONGEST).min(LONGEST);
                pending.extend(std::iter::repeat_n(&*repetition.sub, least));
            }
            HirKind::Capture(capture) => pending.push(&capture.sub),
            HirKind::Concat(parts) => pending.extend(parts.iter().rev()),
            HirKind::Alternation(branches) => pending.extend(branches.first()),
        }
    }
    Some(text)
}

/// Returns a character of a class: a letter or digit, if the class contains one.
fn member(class: &Class) -> Option<char> {
    let ranges: Vec<(char, char)> = match class {
        Class::Unicode(class) => class.iter().map(|range| (range.start(), range.end())).collect(),
        Class::Bytes(class) => {
            class.iter().map(|range| (range.start().into(), range.end().into())).collect()
        }
    };
    let usual = ['a', '0', 'A', '-', '_', '.', '/'];
    let is_member = |letter: &char| ranges.iter().any(|(from, to)| (from..=to).contains(&letter));
    usual.into_iter().find(is_member).or_else(|| ranges.first().map(|(from, _)| *from))
}
