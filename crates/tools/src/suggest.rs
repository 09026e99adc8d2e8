//! Suggestions for misspelled names.

use std::fmt::Display;

/// Returns the edit distance between two names, ignoring case. Swapping two adjacent letters counts
/// as one edit.
pub fn distance(left: &str, right: &str) -> usize {
    strsim::osa_distance(&left.to_lowercase(), &right.to_lowercase())
}

/// Returns whether `name` may be a misspelling of `known`.
pub fn is_close(name: &str, known: &str) -> bool {
    distance(name, known) <= 1 + name.chars().count() / 4
}

/// Returns up to three known names that are similar to `name`, most similar first. A known name
/// also counts as similar if it contains `name` or `asked` contains it.
pub fn closest<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Vec<&'k str> {
    let lower = name.to_lowercase();
    let is_part = |candidate: &str| {
        lower.len() > 2 && (candidate.contains(&lower) || lower.contains(candidate))
    };
    let all = known.into_iter().filter(|candidate| is_close(name, candidate) || is_part(candidate));
    let mut close: Vec<(usize, &str)> =
        all.map(|candidate| (distance(name, candidate), candidate)).collect();
    close.sort_unstable();
    close.dedup();
    close.into_iter().take(3).map(|(_, candidate)| candidate).collect()
}

/// Formats suggestions to append to an error message; empty if there are none.
pub fn did_you_mean(close: &[impl Display]) -> String {
    let quoted: Vec<String> = close.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        None => String::new(),
        Some((only, [])) => format!("; did you mean {only}?"),
        Some((last, others)) => format!("; did you mean {} or {last}?", others.join(", ")),
    }
}
