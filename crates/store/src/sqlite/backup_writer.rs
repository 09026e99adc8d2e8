//! Writes a backup: an SQLite file with all tables except the salts, and a key file with the salts
//! and the store's secret.

use std::io;
use std::path::Path;

use rusqlite::Connection;
use throughline_core::StoreError;
use throughline_json::Name;

use crate::backend::copy::RowSink;
use crate::backup_files::NewBackup;
use crate::backup_files::key_file::{KeyFileEntry, KeyWriter, is_being_written};
use crate::files::{TemporaryFile, failed, part_of};
use crate::protection::SECRET;
use crate::rejection::{Result, invalid};
use crate::row::{Salt, SaltRow};
use crate::sql::{SqlRow, decode};
use crate::sqlite::backup::mark_as_backup;
use crate::sqlite::copy::{close_copy, insert, open_copy};
use crate::sqlite::schema::failure;

/// Writes the backup's SQLite file and key file in one pass. Both files get their final names once
/// they are complete, so an interrupted backup must start over.
pub(super) struct BackupWriter {
    plan: NewBackup,
    file: TemporaryFile,
    key_file: TemporaryFile,
    db: Connection,
    keys: KeyWriter,
}

impl BackupWriter {
    /// Creates the SQLite file and the key file. Call this before reading from the store, because
    /// other processes detect a running backup by its key file.
    pub(super) fn create(plan: NewBackup) -> Result<Self> {
        if let Some(path) = [&plan.file, &plan.keys].into_iter().find(|path| path.exists()) {
            return Err(crate::rejection::backup_exists(path));
        }
        let key_file = part_of(&plan.keys);
        if is_being_written(&key_file) {
            let file = plan.file.display();
            return Err(invalid!(
                "another process is writing the backup {file}; choose another name"
            ));
        }
        let file = TemporaryFile::new(part_of(&plan.file));
        let key_file = TemporaryFile::new(key_file);
        let keys = KeyWriter::create(&key_file.path, &plan.owner);
        let keys = keys.map_err(|error| failed(&plan.keys, &error))?;
        let db = open_copy(&file.path)?;
        Ok(Self { plan, file, key_file, db, keys })
    }

    /// Completes the SQLite file and the key file, and syncs them to disk. Then renames them to
    /// their final names, unless the caller was cancelled. The key file stays locked until both
    /// files are renamed.
    pub(super) fn publish(self, is_cancelled: impl Fn() -> bool) -> Result<()> {
        let Self { plan, file, key_file, db, keys } = self;
        mark_as_backup(&db, &plan).map_err(|error| failure(error, &plan.file))?;
        close_copy(db, &file.path)?;
        let locked = keys.finish().map_err(|error| failed(&plan.keys, &error))?;
        if is_cancelled() {
            return Err(StoreError::Closed);
        }
        let failed = |path: &Path, error: &io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => crate::rejection::backup_exists(path),
            _ => failed(path, error),
        };
        key_file.publish(&plan.keys).map_err(|error| failed(&plan.keys, &error))?;
        if let Err(error) = file.publish(&plan.file) {
            // The key file is useless without its backup, and the store has no registration for it.
            drop(std::fs::remove_file(&plan.keys));
            return Err(failed(&plan.file, &error));
        }
        drop(locked);
        Ok(())
    }
}

impl RowSink for BackupWriter {
    fn add(&mut self, table: &'static str, columns: &str, row: SqlRow) -> Result<()> {
        let entry = match table {
            "salts" => {
                let salt = decode!(&row, 2, Salt { epoch, bytes });
                KeyFileEntry::Salt(SaltRow { record: row.get(0)?, salt })
            }
            "kept" if *row.get::<Name>(0)? == *SECRET => KeyFileEntry::Secret(row.get(1)?),
            _ => {
                let added = insert(&self.db, table, columns, row);
                return added.map_err(|error| failure(error, &self.plan.file));
            }
        };
        self.keys.write(&entry).map_err(|error| failed(&self.plan.keys, &error))
    }
}
