//! Suggestions for misspelled names.

use std::fmt::Display;

/// Returns the edit distance between two names, ignoring case. Swapping two adjacent letters counts
/// as one edit.
pub fn distance(one: &str, other: &str) -> usize {
    strsim::osa_distance(&one.to_lowercase(), &other.to_lowercase())
}

/// Returns whether `asked` may be a misspelling of `known`.
pub fn is_close(asked: &str, known: &str) -> bool {
    distance(asked, known) <= 1 + asked.chars().count() / 4
}

/// Returns the known names that are similar to `asked`, most similar first. A name is also similar
/// if it contains `asked` or is contained in it.
pub fn closest<'k>(asked: &str, known: impl IntoIterator<Item = &'k str>) -> Vec<&'k str> {
    let lower = asked.to_lowercase();
    let is_part = |word: &str| lower.len() > 2 && (word.contains(&lower) || lower.contains(word));
    let all = known.into_iter().filter(|word| is_close(asked, word) || is_part(word));
    let mut close: Vec<(usize, &str)> = all.map(|word| (distance(asked, word), word)).collect();
    close.sort_unstable();
    close.dedup();
    close.into_iter().take(3).map(|(_, word)| word).collect()
}

/// Formats suggestions to append to an error message; empty if there are none.
pub fn did_you_mean(close: &[impl Display]) -> String {
    let quoted: Vec<String> = close.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        None => String::new(),
        Some((only, [])) => format!("; did you mean {only}?"),
        Some((last, others)) => format!("; did you mean {} or {last}?", others.join(", ")),
    }
}
