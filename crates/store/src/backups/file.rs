//! Writes a backup: an SQLite file with every table but the salts, and a key file with those and the store's secret.

use std::fs::File;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rusqlite::Connection;
use rusqlite::types::Value;
use throughline_core::StoreError;

use crate::backend::{Salt, SaltRow};
use crate::backups::keys::{Entry, KeyWriter, Owner, Unfinished, beside, failed};
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
        let file = Unfinished::new(beside(&plan.file, ".part"));
        let keys = Unfinished::new(beside(&plan.keys, ".part"));
        Ok(Self { plan, file, keys })
    }

    pub(crate) fn writer(&self) -> Result<BackupWriter<'_>, StoreError> {
        let (plan, part) = (&self.plan, &*self.file.path);
        let keys = KeyWriter::create(&self.keys.path, &plan.owner);
        let keys = keys.map_err(|error| failed(&plan.keys, &error))?;
        let db = create_for_backup(part)?;
        // It is synced as a whole in the end, and worth nothing before.
        let begin = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN;";
        db.execute_batch(begin).map_err(|error| failure(error, &plan.file))?;
        Ok(BackupWriter { plan, part, db, keys })
    }

    /// Gives both files their names.
    pub(crate) fn publish(self) -> Result<(), StoreError> {
        let Self { plan, file, keys } = self;
        keys.publish(&plan.keys).map_err(|error| failed(&plan.keys, &error))?;
        file.publish(&plan.file).map_err(|error| failed(&plan.file, &error))
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

    /// Ends both files, and waits until they are on the disk.
    pub(crate) fn finish(self) -> Result<(), StoreError> {
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
