//! Where the sources are, so that tests can read files that no crate contains.

use std::path::{Path, PathBuf};

/// The folder of the workspace's own `Cargo.toml`.
///
/// It is found from the place where this crate was compiled, not from the current folder, which
/// differs between `cargo test`, nextest and a debugger.
///
/// # Panics
///
/// Where the sources were moved away after the tests were built.
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
