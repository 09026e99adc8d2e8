//! Locates the workspace, so that tests can read files outside the crates.

use std::path::{Path, PathBuf};

/// Returns the folder that contains the workspace's `Cargo.toml`.
///
/// The folder is derived from the path at which this crate was compiled, because the current folder
/// differs between `cargo test`, nextest and a debugger.
///
/// # Panics
///
/// If the sources were moved after the tests were built.
pub fn workspace_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_root = |folder: &&Path| {
        std::fs::read_to_string(folder.join("Cargo.toml"))
            .is_ok_and(|manifest| manifest.lines().any(|line| line == "[workspace]"))
    };
    match here.ancestors().find(is_root) {
        Some(root) => root.to_path_buf(),
        None => panic!("no Cargo.toml with a [workspace] table above {}", here.display()),
    }
}
