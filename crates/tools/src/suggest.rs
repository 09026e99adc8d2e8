//! Suggestions for misspelled names.

use std::fmt::Display;

/// Returns the edit distance between two names, ignoring case; a swap of two letters counts as one.
pub fn distance(one: &str, other: &str) -> usize {
    strsim::osa_distance(&one.to_lowercase(), &other.to_lowercase())
}

/// Returns whether one name may be a typo of the other.
pub fn is_close(asked: &str, known: &str) -> bool {
    distance(asked, known) <= 1 + asked.chars().count() / 4
}

/// Returns the known names that are similar, most similar first; a missing or extra name part is
/// allowed.
pub fn closest<'k>(asked: &str, known: impl IntoIterator<Item = &'k str>) -> Vec<&'k str> {
    let lower = asked.to_lowercase();
    let is_part = |word: &str| lower.len() > 2 && (word.contains(&lower) || lower.contains(word));
    let all = known.into_iter().filter(|word| is_close(asked, word) || is_part(word));
    let mut close: Vec<(usize, &str)> = all.map(|word| (distance(asked, word), word)).collect();
    close.sort_unstable();
    close.dedup();
    close.into_iter().take(3).map(|(_, word)| word).collect()
}

/// Formats suggestions as the end of a sentence; empty if there are none.
pub fn did_you_mean(close: &[impl Display]) -> String {
    let quoted: Vec<String> = close.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        None => String::new(),
        Some((only, [])) => format!("; did you mean {only}?"),
        Some((last, others)) => format!("; did you mean {} or {last}?", others.join(", ")),
    }
}
