//! Detects changes of files by their metadata.
//!
//! A process compares the metadata once per second. This needs no operating system interface for
//! file events. It also works on network file systems, with files that are replaced by a rename,
//! and with the symbolic links of configuration volumes in Kubernetes.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::FileStamp;

#[cfg(test)]
#[path = "file_watch_tests.rs"]
mod file_watch_tests;

/// Interval between two checks of a file.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// Watches a set of files.
#[derive(Clone, Debug)]
pub(crate) struct FileWatch {
    paths: Vec<PathBuf>,
    seen: Vec<Option<FileStamp>>,
    /// A change that the last check found.
    pending: Option<Vec<Option<FileStamp>>>,
}

impl FileWatch {
    /// Watches the files for changes from now on.
    pub(crate) fn new(paths: Vec<PathBuf>) -> Self {
        let mut watch = Self { paths, seen: Vec::new(), pending: None };
        watch.seen = watch.read();
        watch
    }

    /// Returns whether the files changed and have stayed the same since the last check. A file that
    /// is still being written is thus not read.
    pub(crate) fn has_settled_change(&mut self) -> bool {
        let found = self.read();
        if found == self.seen {
            self.pending = None;
            return false;
        }
        if self.pending.as_ref() != Some(&found) {
            self.pending = Some(found);
            return false;
        }
        self.seen = found;
        self.pending = None;
        true
    }

    /// Returns whether the last check found a change that may not be complete.
    pub(crate) fn is_settling(&self) -> bool {
        self.pending.is_some()
    }

    /// Returns whether the watch is for these files.
    pub(crate) fn is_for(&self, paths: &[PathBuf]) -> bool {
        self.paths == paths
    }

    fn read(&self) -> Vec<Option<FileStamp>> {
        self.paths.iter().map(|path| FileStamp::read(path)).collect()
    }
}
