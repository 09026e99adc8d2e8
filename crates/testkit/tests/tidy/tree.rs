//! Lists the hand-written files of the source tree.

use std::fs;
use std::path::Path;

use throughline_testkit::workspace_root;

use crate::{files_in, folders_in};

/// Extensions of hand-written source files. Other files may be recorded data, which is not checked.
const SOURCE_EXTENSIONS: [&str; 13] =
    ["", "css", "html", "js", "md", "mjs", "rs", "sh", "toml", "ts", "tsx", "yaml", "yml"];

/// A hand-written file, with its path relative to the workspace root.
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Source {
    pub(crate) fn is_rust(&self) -> bool {
        Path::new(&self.path).extension().is_some_and(|extension| extension == "rs")
    }

    /// Returns whether the file is in the given folder of any crate. For example,
    /// `crates/core/src/item.rs` is in `src`.
    pub(crate) fn is_in_a_crates(&self, folder: &str) -> bool {
        let mut parts = self.path.split('/');
        parts.next() == Some("crates") && parts.nth(1) == Some(folder)
    }

    pub(crate) fn is_test(&self) -> bool {
        self.path.ends_with("_tests.rs")
            || self.path.contains("_tests/")
            || self.is_in_a_crates("tests")
            || self.is_in_a_crates("benches")
    }

    pub(crate) fn numbered_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

/// Returns all source files of the tree, sorted by path. Files that are not text are skipped.
pub(crate) fn sources() -> Vec<Source> {
    let root = workspace_root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        folders.extend(folders_in(&folder));
        for path in files_in(&folder) {
            let extension = path.extension().unwrap_or_default().to_string_lossy();
            if !SOURCE_EXTENSIONS.contains(&extension.as_ref()) {
                continue;
            }
            if let (Ok(text), Ok(inside)) = (fs::read_to_string(&path), path.strip_prefix(&root)) {
                found.push(Source { path: inside.to_string_lossy().replace('\\', "/"), text });
            }
        }
    }
    found.sort_by(|left, right| left.path.cmp(&right.path));
    assert!(!found.is_empty(), "no source files under {}", root.display());
    found
}
