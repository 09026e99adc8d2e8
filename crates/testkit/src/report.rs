//! What a test says when it passes: the figures it measured, or that it could not run.
//!
//! Both lines begin with a fixed word, so that `scripts/soak` can gather them.

use std::fmt::Display;
use std::path::PathBuf;

/// Prints one measured figure, such as `FIGURE recordings audited clean: 185 of 185`.
pub fn figure(label: &str, value: impl Display) {
    println!("FIGURE {label}: {value}");
}

/// Says that a test proved nothing, and why, so that a pass is not mistaken for evidence.
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

/// The folder in which a test leaves its pictures, where somebody wants them.
#[expect(clippy::disallowed_methods, reason = "scripts/screenshots says where the pictures go")]
pub fn pictures() -> Option<PathBuf> {
    std::env::var_os("THROUGHLINE_SCREENSHOTS").map(PathBuf::from)
}
