//! Writes a backup: an SQLite file with every table except the salts, and a key file with the salts
//! and the store's secret.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Mutex;

use bytes::Bytes;
use rusqlite::Connection;
use rusqlite::types::Value;
use throughline_core::StoreError;

use crate::backup_files::NewBackup;
use crate::backup_files::key_file::{KeyFileEntry, KeyWriter, is_being_written};
use crate::files::{TemporaryFile, failed, part_of};
use crate::protection::SECRET;
use crate::row::{Salt, SaltRow};
use crate::sqlite::backup::mark_as_backup;
use crate::sqlite::schema::{create_for_backup, failure};
use crate::sync::lock;

/// The two files of a backup while they are written. They get their final names when both are
/// complete.
pub(crate) struct PendingBackup {
    plan: NewBackup,
    file: TemporaryFile,
    keys: TemporaryFile,
    /// The unfinished key file. It is created before anything is read from the store, so that other
    /// processes see it.
    writer: Mutex<Option<KeyWriter>>,
}

/// Writes both files in one pass; an interrupted backup starts over.
pub(crate) struct BackupWriter<'u> {
    plan: &'u NewBackup,
    part: &'u Path,
    db: Connection,
    keys: KeyWriter,
}

impl PendingBackup {
    pub(crate) fn new(plan: NewBackup) -> Result<Self, StoreError> {
        for path in [&plan.file, &plan.keys] {
            if path.exists() {
                return Err(crate::rejection::backup_exists(path));
            }
        }
        let keys = part_of(&plan.keys);
        if is_being_written(&keys) {
            let file = plan.file.display();
            let problem =
                format!("another process is writing the backup {file}: choose another name");
            return Err(StoreError::invalid(problem));
        }
        let (file, keys) = (TemporaryFile::new(part_of(&plan.file)), TemporaryFile::new(keys));
        let writer = KeyWriter::create(&keys.path, &plan.owner);
        let writer = Mutex::new(Some(writer.map_err(|error| failed(&plan.keys, &error))?));
        Ok(Self { plan, file, keys, writer })
    }

    pub(crate) fn writer(&self) -> Result<BackupWriter<'_>, StoreError> {
        let (plan, part) = (&self.plan, &*self.file.path);
        let keys = lock(&self.writer).take();
        let keys = keys.ok_or(StoreError::Closed)?;
        let db = create_for_backup(part)?;
        // The file is synced once at the end and is useless before that.
        let begin = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN;";
        db.execute_batch(begin).map_err(|error| failure(error, &plan.file))?;
        Ok(BackupWriter { plan, part, db, keys })
    }

    /// Renames both files to their final names. The key file stays locked until it is renamed.
    pub(crate) fn publish(self, locked: File) -> Result<(), StoreError> {
        let Self { plan, file, keys, writer: _ } = self;
        let failed = |path: &Path, error: &io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => crate::rejection::backup_exists(path),
            _ => failed(path, error),
        };
        keys.publish(&plan.keys).map_err(|error| failed(&plan.keys, &error))?;
        if let Err(error) = file.publish(&plan.file) {
            // Without its backup, the key file opens nothing, and the store has no registration for
            // it.
            drop(std::fs::remove_file(&plan.keys));
            return Err(failed(&plan.file, &error));
        }
        drop(locked);
        Ok(())
    }
}

impl BackupWriter<'_> {
    /// Adds rows of a table. `columns` is a comma-separated list.
    pub(crate) fn add(
        &mut self,
        table: &str,
        columns: &str,
        rows: Vec<Vec<Value>>,
    ) -> Result<(), StoreError> {
        let rows = match table {
            "salts" => {
                for row in &rows {
                    let damaged = || StoreError::Corrupt("a stored salt is invalid".into());
                    self.key(&KeyFileEntry::Salt(salt(columns, row).ok_or_else(damaged)?))?;
                }
                return Ok(());
            }
            "kept" => {
                let mut others = Vec::with_capacity(rows.len());
                for row in rows {
                    match row.as_slice() {
                        [Value::Text(name), Value::Blob(secret)] if name == SECRET => {
                            self.key(&KeyFileEntry::Secret(Bytes::copy_from_slice(secret)))?;
                        }
                        _ => others.push(row),
                    }
                }
                others
            }
            _ => rows,
        };
        insert(&self.db, table, columns, rows).map_err(|error| failure(error, &self.plan.file))
    }

    fn key(&mut self, entry: &KeyFileEntry) -> Result<(), StoreError> {
        self.keys.write(entry).map_err(|error| failed(&self.plan.keys, &error))
    }

    /// Completes both files and syncs them to disk. Returns the key file, which is still locked.
    pub(crate) fn finish(self) -> Result<File, StoreError> {
        let Self { plan, part, db, keys } = self;
        let sqlite = |error| failure(error, &plan.file);
        mark_as_backup(&db, plan).map_err(sqlite)?;
        db.execute_batch("COMMIT").map_err(sqlite)?;
        db.close().map_err(|(_, error)| sqlite(error))?;
        let synced = File::open(part).and_then(|file| file.sync_all());
        synced.map_err(|error| failed(&plan.file, &error))?;
        keys.finish().map_err(|error| failed(&plan.keys, &error))
    }
}

fn insert(
    db: &Connection,
    table: &str,
    columns: &str,
    rows: Vec<Vec<Value>>,
) -> Result<(), rusqlite::Error> {
    let places = vec!["?"; columns.split(',').count()].join(", ");
    let sql = format!("INSERT INTO {table} ({columns}) VALUES ({places})");
    let mut statement = db.prepare_cached(&sql)?;
    for row in rows {
        statement.execute(rusqlite::params_from_iter(row))?;
    }
    Ok(())
}

fn salt(columns: &str, row: &[Value]) -> Option<SaltRow> {
    let value = |name: &str| row.get(columns.split(',').position(|column| column.trim() == name)?);
    let (Value::Integer(record), Value::Integer(epoch), Value::Blob(salt)) =
        (value("record")?, value("epoch")?, value("salt")?)
    else {
        return None;
    };
    let bytes = Bytes::copy_from_slice(salt);
    Some(SaltRow { record: *record, salt: Salt { epoch: u32::try_from(*epoch).ok()?, bytes } })
}
