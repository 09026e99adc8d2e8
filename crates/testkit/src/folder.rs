//! Temporary folders for tests.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A new, empty folder that is removed on drop.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Creates a unique folder in the system's temporary folder. Its name contains `label`.
    ///
    /// # Panics
    ///
    /// If the folder cannot be created.
    pub fn new(label: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("throughline-{label}-{process}-{count}"));
        // A killed process with the same process id may have left a folder.
        drop(std::fs::remove_dir_all(&path));
        match std::fs::create_dir_all(&path) {
            Ok(()) => Self(path),
            Err(error) => panic!("cannot create {}: {error}", path.display()),
        }
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Ignore errors, because the system cleans up its temporary folder.
        drop(std::fs::remove_dir_all(&self.0));
    }
}
