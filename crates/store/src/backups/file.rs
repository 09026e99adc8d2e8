//! Writes a backup: an SQLite file with every table but the salts, and a key file with those and the store's secret.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use rusqlite::Connection;
use rusqlite::types::Value;
use throughline_core::StoreError;

use crate::backend::{Salt, SaltRow};
use crate::backups::keys::{
    Entry, KeyWriter, Owner, Unfinished, failed, is_being_written, part_of,
};
use crate::keys::SECRET;
use crate::sqlite::{create_for_backup, failure, mark_as_backup};

/// Where a backup is to lie, and whose it is.
#[derive(Clone, Debug)]
pub(crate) struct NewBackup {
    pub(crate) file: PathBuf,
    pub(crate) keys: PathBuf,
    pub(crate) owner: Owner,
}

/// Both files of a backup while they are written. They have their names only when both are whole.
pub(crate) struct Unpublished {
    plan: NewBackup,
    file: Unfinished,
    keys: Unfinished,
    /// The unfinished key file. It is there before anything is read from the store, so that other processes see it.
    writer: Mutex<Option<KeyWriter>>,
}

/// Writes both files, in one go: a backup that is interrupted begins anew.
pub(crate) struct BackupWriter<'u> {
    plan: &'u NewBackup,
    part: &'u Path,
    db: Connection,
    keys: KeyWriter,
}

impl Unpublished {
    pub(crate) fn new(plan: NewBackup) -> Result<Self, StoreError> {
        for path in [&plan.file, &plan.keys] {
            if path.exists() {
                return Err(crate::refusal::backup_exists(path));
            }
        }
        let keys = part_of(&plan.keys);
        if is_being_written(&keys) {
            let file = plan.file.display();
            let problem = format!("another process writes the backup {file}: choose another name");
            return Err(StoreError::invalid(problem));
        }
        let (file, keys) = (Unfinished::new(part_of(&plan.file)), Unfinished::new(keys));
        let writer = KeyWriter::create(&keys.path, &plan.owner);
        let writer = Mutex::new(Some(writer.map_err(|error| failed(&plan.keys, &error))?));
        Ok(Self { plan, file, keys, writer })
    }

    pub(crate) fn writer(&self) -> Result<BackupWriter<'_>, StoreError> {
        let (plan, part) = (&self.plan, &*self.file.path);
        let keys = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let keys = keys.ok_or(StoreError::Closed)?;
        let db = create_for_backup(part)?;
        // It is synced as a whole in the end, and worth nothing before.
        let begin = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN;";
        db.execute_batch(begin).map_err(|error| failure(error, &plan.file))?;
        Ok(BackupWriter { plan, part, db, keys })
    }

    /// Gives both files their names. The key file stays locked until it has one.
    pub(crate) fn publish(self, locked: File) -> Result<(), StoreError> {
        let Self { plan, file, keys, writer: _ } = self;
        let failed = |path: &Path, error: &io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => crate::refusal::backup_exists(path),
            _ => failed(path, error),
        };
        keys.publish(&plan.keys).map_err(|error| failed(&plan.keys, &error))?;
        if let Err(error) = file.publish(&plan.file) {
            // Without its backup, the key file opens nothing, and the store does not remember it.
            drop(std::fs::remove_file(&plan.keys));
            return Err(failed(&plan.file, &error));
        }
        drop(locked);
        Ok(())
    }
}

impl BackupWriter<'_> {
    /// Adds rows of a table. `columns` has commas between.
    pub(crate) fn add(
        &mut self,
        table: &str,
        columns: &str,
        rows: Vec<Vec<Value>>,
    ) -> Result<(), StoreError> {
        let rows = match table {
            "salts" => {
                for row in &rows {
                    let damaged = || StoreError::Corrupt("a salt cannot be read".into());
                    self.key(&Entry::Salt(salt(columns, row).ok_or_else(damaged)?))?;
                }
                return Ok(());
            }
            "kept" => {
                let mut others = Vec::with_capacity(rows.len());
                for row in rows {
                    match row.as_slice() {
                        [Value::Text(name), Value::Blob(secret)] if name == SECRET => {
                            self.key(&Entry::Secret(Bytes::copy_from_slice(secret)))?;
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

    fn key(&mut self, entry: &Entry) -> Result<(), StoreError> {
        self.keys.write(entry).map_err(|error| failed(&self.plan.keys, &error))
    }

    /// Ends both files, and waits until they are on the disk. Returns the key file, which is still locked.
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
