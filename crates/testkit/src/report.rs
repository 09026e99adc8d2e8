//! Output of passing tests: measured figures, and the reasons for skipped tests.
//!
//! Each line begins with `FIGURE` or `SKIPPED`, so that `scripts/soak` can collect the lines.

use std::fmt::Display;
use std::path::PathBuf;

/// Prints one measured figure, such as `FIGURE recordings audit clean: 185 of 185`.
pub fn figure(label: &str, value: impl Display) {
    println!("FIGURE {label}: {value}");
}

/// Prints why a test was skipped. A skipped test also passes, and must not be mistaken for
/// evidence.
///
/// ```
/// let Some(recordings) = throughline_testkit::recordings() else {
///     return throughline_testkit::skip("the recordings are absent");
/// };
/// # drop(recordings);
/// ```
pub fn skip(reason: &str) {
    println!("SKIPPED: {reason}");
}

/// Returns the folder for screenshots, or `None` if no screenshots are requested.
#[expect(clippy::disallowed_methods, reason = "scripts/screenshots sets the folder")]
pub fn pictures() -> Option<PathBuf> {
    std::env::var_os("THROUGHLINE_SCREENSHOTS").map(PathBuf::from)
}

/// Selects cells of the client matrix by the variable `THROUGHLINE_CLIENT_MATRIX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientMatrixFilter(String);

impl ClientMatrixFilter {
    /// Reads the variable. Returns `None` if it is not set: the tests then run one short tool loop
    /// per client.
    #[expect(clippy::disallowed_methods, reason = "scripts/soak requests the matrix")]
    pub fn from_env() -> Option<Self> {
        let value = std::env::var_os("THROUGHLINE_CLIENT_MATRIX")?;
        Some(Self(value.to_string_lossy().into_owned()))
    }

    /// Returns whether a cell is selected. The value `1` selects all cells. Any other value is a
    /// list of alternatives, separated by commas; an alternative selects the cells whose label
    /// contains all of its words.
    pub fn selects(&self, label: &str) -> bool {
        let has_words = |words: &str| words.split_whitespace().all(|word| label.contains(word));
        self.0 == "1" || self.0.split(',').any(has_words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_matrix_cells_are_selected_by_their_words() {
        let selects = |filter: &str, label: &str| ClientMatrixFilter(filter.into()).selects(label);
        let label = "claude-code gpt-5.6-sol | 21 rounds";
        assert!(selects("1", label));
        assert!(selects("opencode,claude-code gpt", label));
        assert!(!selects("opencode gpt,claude-code gemini", label));
    }
}
