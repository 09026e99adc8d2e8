//! Removes possible secrets from messages of other systems.

use throughline_json::Name;

/// Words of at least this length may be keys or Seals.
const OPAQUE: usize = 32;

/// Replaces words that may be keys or Seals: long words that mix letters and digits.
pub(crate) fn redact(text: &str) -> Name {
    let is_inside = |c: char| c.is_ascii_alphanumeric() || "+/_=-".contains(c);
    let mut redacted = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_inside(c)).unwrap_or(rest.len());
        let (word, rest_of_text) = rest.split_at_checked(end).unwrap_or((rest, ""));
        redacted.push_str(if is_opaque(word) { "…" } else { word });
        let next = rest_of_text.find(is_inside).unwrap_or(rest_of_text.len());
        let (between, after) = rest_of_text.split_at_checked(next).unwrap_or((rest_of_text, ""));
        redacted.push_str(between);
        rest = after;
    }
    Name::from(redacted)
}

fn is_opaque(word: &str) -> bool {
    let has = |is: fn(&char) -> bool| word.chars().any(|c| is(&c));
    word.len() >= OPAQUE
        && has(char::is_ascii_digit)
        && has(char::is_ascii_uppercase)
        && has(char::is_ascii_lowercase)
}
