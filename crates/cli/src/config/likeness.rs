//! What somebody may have meant who wrote something else.

use std::fmt::Display;

/// How many letters have to be added, dropped, replaced or swapped to make one word of the other, whatever their case.
pub(crate) fn distance(one: &str, other: &str) -> usize {
    strsim::osa_distance(&one.to_lowercase(), &other.to_lowercase())
}

/// Whether one word may be a slip for the other.
pub(crate) fn is_close(asked: &str, known: &str) -> bool {
    distance(asked, known) <= 1 + asked.chars().count() / 4
}

/// The known words that may be meant, the likeliest first; also one that is longer or shorter by a whole part.
pub(crate) fn closest<'k>(asked: &str, known: impl IntoIterator<Item = &'k str>) -> Vec<&'k str> {
    let lower = asked.to_lowercase();
    let is_part = |word: &str| lower.len() > 2 && (word.contains(&lower) || lower.contains(word));
    let all = known.into_iter().filter(|word| is_close(asked, word) || is_part(word));
    let mut close: Vec<(usize, &str)> = all.map(|word| (distance(asked, word), word)).collect();
    close.sort_unstable();
    close.dedup();
    close.into_iter().take(3).map(|(_, word)| word).collect()
}

/// Says what may have been meant, behind a sentence; nothing where nobody knows.
pub(crate) fn did_you_mean(close: &[impl Display]) -> String {
    let quoted: Vec<String> = close.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        None => String::new(),
        Some((only, [])) => format!("; did you mean {only}?"),
        Some((last, others)) => format!("; did you mean {} or {last}?", others.join(", ")),
    }
}
