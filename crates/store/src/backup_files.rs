//! The files of a backup: an SQLite file, and a key file without which the SQLite file cannot be
//! opened.

pub(crate) mod key_file;

use std::path::{Path, PathBuf};

use crate::backup_files::key_file::BackupOwner;
use crate::files::beside;

/// Returns the default path of a backup's key file.
pub fn key_file_of(backup: &Path) -> PathBuf {
    beside(backup, ".keys")
}

/// The paths and the owner of a backup to be written.
#[derive(Clone, Debug)]
pub(crate) struct NewBackup {
    pub(crate) file: PathBuf,
    pub(crate) keys: PathBuf,
    pub(crate) owner: BackupOwner,
}

/// Counts of a restored store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreSummary {
    /// Number of records.
    pub records: u64,
    /// Number of records that were forgotten or expired, including since the backup.
    pub gone: u64,
    /// Number of records whose content has no key, without a note that it was forgotten.
    pub without_key: u64,
}
