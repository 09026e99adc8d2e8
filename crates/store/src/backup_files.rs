//! The files of a backup: an SQLite file, and the key file that is needed to open it.

pub(crate) mod key_file;

use std::path::{Path, PathBuf};

use crate::backup_files::key_file::BackupOwner;
use crate::files::beside;

/// Returns the default path of a backup's key file: the backup's path with `.keys` appended.
pub fn key_file_of(backup: &Path) -> PathBuf {
    beside(backup, ".keys")
}

/// Output paths and owner of a backup that is about to be written.
#[derive(Clone, Debug)]
pub(crate) struct NewBackup {
    pub(crate) file: PathBuf,
    pub(crate) keys: PathBuf,
    pub(crate) owner: BackupOwner,
}

/// Record counts of a restored store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreSummary {
    /// Total number of records.
    pub records: u64,
    /// Number of records whose content was forgotten or expired, before or after the backup.
    pub gone: u64,
    /// Number of records whose content cannot be decrypted because the salt is missing, although no
    /// erasure note lists the record.
    pub without_key: u64,
}
