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

/// Returns whether the tests run all clients with all target models. Otherwise, they run one short
/// tool loop per client.
#[expect(clippy::disallowed_methods, reason = "scripts/soak requests the matrix")]
pub fn whole_client_matrix() -> bool {
    std::env::var_os("THROUGHLINE_CLIENT_MATRIX").is_some()
}
