//! Folders for tests to write to, each their own.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A new, empty folder that is removed when it is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A folder of nobody else, in the system's place for such.
    ///
    /// # Panics
    ///
    /// Where none can be made.
    pub fn new(label: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("throughline-{label}-{process}-{count}"));
        // A process that was killed may have left one, and its number may have come round again.
        drop(std::fs::remove_dir_all(&path));
        match std::fs::create_dir_all(&path) {
            Ok(()) => Self(path),
            Err(error) => panic!("cannot make {}: {error}", path.display()),
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
        // What cannot be removed is the system's to clear away.
        drop(std::fs::remove_dir_all(&self.0));
    }
}
