//! Copies the whole file to a backup, and a backup back to a store.

use std::fs::File;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rusqlite::types::Value;
use rusqlite::{Connection, params};
use throughline_core::StoreError;
use throughline_json::Name;
use tokio::sync::mpsc;

use crate::backup_files::key_file::{KeyFileEntry, KeyReader};
use crate::backup_files::{NewBackup, RestoreSummary};
use crate::files::{create_private, failed};
use crate::protection::SECRET;
use crate::query::{Progress, share};
use crate::sqlite::backup_writer::{BackupWriter, PendingBackup};
use crate::sqlite::commit::unsigned;
use crate::sqlite::schema::{Access, STORE_APPLICATION_ID, connect, failure};

/// The application id "Thrb" of SQLite files that are backups, so that no version opens a backup as
/// a store.
pub(super) const BACKUP: i32 = 0x5468_7262;

/// Names of small internal values in a backup: its id, and the path of its key file at creation.
const ID: &str = "this backup";
const KEYS: &str = "this backup's keys";

/// Number of rows read at a time. Each may have a large content.
const PAGE: usize = 64;

/// Copies all tables from one snapshot, while other processes read and write.
pub(super) async fn backup(
    from: &Path,
    plan: NewBackup,
    progress: Progress<'_>,
) -> Result<(), StoreError> {
    let unpublished = PendingBackup::new(plan)?;
    let from = from.to_owned();
    let (shares, mut received) = mpsc::unbounded_channel();
    let copying = tokio::task::spawn_blocking(move || {
        let mut writer = unpublished.writer()?;
        copy(&from, &mut writer, |share| shares.send(share).is_ok())?;
        let keys = writer.finish()?;
        // The caller was cancelled, so the store would have no registration for the backup.
        if shares.is_closed() {
            return Err(StoreError::Closed);
        }
        unpublished.publish(keys)
    });
    while let Some(share) = received.recv().await {
        progress(share);
    }
    copying.await.map_err(|_| StoreError::Closed)?
}

/// Copies while the caller waits.
fn copy(
    from: &Path,
    to: &mut BackupWriter<'_>,
    report: impl Fn(f64) -> bool,
) -> Result<(), StoreError> {
    let reading = |error| failure(error, from);
    let source = connect(from, Access::Read).map_err(reading)?;
    // One read transaction gives a consistent snapshot and does not block writers.
    source.execute_batch("BEGIN; SELECT count(*) FROM kept;").map_err(reading)?;
    let tables = tables(&source).map_err(reading)?;
    let total: u64 = tables.iter().map(|table| table.rows).sum();
    let mut done = 0;
    for BackupTable { name, columns, .. } in &tables {
        let sql = format!("SELECT {columns} FROM {name}");
        let mut statement = source.prepare(&sql).map_err(reading)?;
        let width = statement.column_count();
        let mut rows = statement.query([]).map_err(reading)?;
        let mut page = Vec::with_capacity(PAGE);
        loop {
            let row = rows.next().map_err(reading)?;
            let is_over = row.is_none();
            if let Some(row) = row {
                let values = (0..width).map(|place| row.get::<_, Value>(place));
                page.push(values.collect::<Result<Vec<_>, _>>().map_err(reading)?);
            }
            if page.len() == PAGE || is_over {
                done += page.len() as u64;
                to.add(name, columns, std::mem::take(&mut page))?;
                if !report(share(done, total)) {
                    return Err(StoreError::Closed);
                }
            }
            if is_over {
                break;
            }
        }
    }
    Ok(())
}

struct BackupTable {
    name: Name,
    /// Comma-separated.
    columns: Name,
    rows: u64,
}

fn tables(db: &Connection) -> Result<Vec<BackupTable>, rusqlite::Error> {
    let find = "SELECT m.name, (SELECT group_concat(name, ', ') FROM pragma_table_info(m.name))
                FROM sqlite_schema m WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%'
                ORDER BY m.rowid";
    let mut find = db.prepare(find)?;
    let found = find.query_map([], |row| Ok((row.get::<_, Name>(0)?, row.get::<_, Name>(1)?)))?;
    let mut tables = Vec::new();
    for table in found {
        let (name, columns) = table?;
        let count = format!("SELECT count(*) FROM {name}");
        let rows = db.query_row(&count, [], |row| row.get(0)).map(unsigned)?;
        tables.push(BackupTable { name, columns, rows });
    }
    Ok(tables)
}

/// Marks the copy of a store as a backup, which no version opens as a store.
pub(super) fn mark_as_backup(db: &Connection, plan: &NewBackup) -> Result<(), rusqlite::Error> {
    let keep = "INSERT INTO kept (name, value) VALUES (?1, ?2)";
    db.execute(keep, params![ID, plan.owner.backup.as_bytes()])?;
    db.execute(keep, params![KEYS, plan.keys.display().to_string().as_bytes()])?;
    db.pragma_update(None, "application_id", BACKUP)
}

/// Marks a copy of a backup as a store again.
fn mark_as_store(db: &Connection) -> Result<(), rusqlite::Error> {
    db.execute("DELETE FROM kept WHERE name IN (?1, ?2)", params![ID, KEYS])?;
    db.pragma_update(None, "application_id", STORE_APPLICATION_ID)
}

/// Returns the id of the backup in a file. Fails if the file is not a backup.
fn id_of_backup(path: &Path) -> Result<Name, StoreError> {
    let failed = |error| failure(error, path);
    if !path.exists() {
        let name = Name::from(path.display().to_string());
        return Err(StoreError::NotFound { what: "backup", name });
    }
    let db = connect(path, Access::Read).map_err(failed)?;
    let find = "SELECT application_id FROM pragma_application_id";
    let application: i32 = db.query_row(find, [], |row| row.get(0)).map_err(failed)?;
    let problem = match application {
        BACKUP => return kept(&db, ID).map_err(failed),
        STORE_APPLICATION_ID => {
            "is a store, or a backup of an earlier version: open it with --store sqlite://FILE"
        }
        _ => "is not a backup of a store",
    };
    Err(StoreError::invalid(format!("{} {problem}", path.display())))
}

/// Returns the path of a backup's key file when it was made.
pub(super) fn keys_of_backup(db: &Connection) -> Result<Name, rusqlite::Error> {
    kept(db, KEYS)
}

fn kept(db: &Connection, name: &str) -> Result<Name, rusqlite::Error> {
    let find = "SELECT CAST(value AS TEXT) FROM kept WHERE name = ?1";
    db.query_row(find, [name], |row| row.get(0))
}

/// Counts the records of a restored store.
pub(crate) fn count_restored(path: &Path) -> Result<RestoreSummary, StoreError> {
    let failed = |error| failure(error, path);
    let db = connect(path, Access::Read).map_err(failed)?;
    let count = |what: &str| {
        let count = format!("SELECT count(*) FROM records r {what}");
        db.query_row(&count, [], |row| row.get(0)).map(unsigned).map_err(failed)
    };
    Ok(RestoreSummary {
        records: count("")?,
        gone: count("WHERE r.erased IS NOT NULL")?,
        without_key: count(
            "WHERE r.erased IS NULL AND NOT EXISTS (SELECT 1 FROM salts s WHERE s.record = r.id)",
        )?,
    })
}

/// Copies the backup to `file` and adds its keys. Returns the notes about contents destroyed since.
pub(crate) fn assemble(
    backup: &Path,
    keys: &Path,
    file: &PathBuf,
) -> Result<Vec<(Name, Bytes)>, StoreError> {
    let id = id_of_backup(backup)?;
    let opened = File::open(keys).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => StoreError::invalid(format!(
            "{} opens only with its key file, and {} does not exist: pass the key file with --keys",
            backup.display(),
            keys.display()
        )),
        _ => failed(keys, &error),
    });
    let mut reader = KeyReader::new(opened?, keys)?;
    if reader.owner.backup != id {
        return Err(StoreError::invalid(format!(
            "{} belongs to a different backup, not to {}",
            keys.display(),
            backup.display()
        )));
    }
    let copied =
        create_private(file).and_then(|mut to| std::io::copy(&mut File::open(backup)?, &mut to));
    copied.map_err(|error| failed(file, &error))?;
    let sqlite = |error| failure(error, file);
    let mut db = Connection::open(file).map_err(sqlite)?;
    let transaction = db.transaction().map_err(sqlite)?;
    let mut notes = Vec::new();
    while let Some(entry) = reader.next()? {
        match entry {
            KeyFileEntry::Salt(salt) => {
                let add = "INSERT INTO salts (record, tenant, epoch, salt)
                           SELECT id, tenant, ?2, ?3 FROM records WHERE id = ?1";
                let values = rusqlite::params![salt.record, salt.salt.epoch, &*salt.salt.bytes];
                let added = transaction.prepare_cached(add).and_then(|mut add| add.execute(values));
                added.map_err(sqlite)?;
            }
            KeyFileEntry::Secret(secret) => {
                let add = "INSERT INTO kept (name, value) VALUES (?1, ?2)";
                transaction.execute(add, rusqlite::params![SECRET, &*secret]).map_err(sqlite)?;
            }
            KeyFileEntry::Forgotten(name, note) => notes.push((name, note)),
        }
    }
    mark_as_store(&transaction).map_err(sqlite)?;
    transaction.commit().map_err(sqlite)?;
    db.close().map_err(|(_, error)| sqlite(error))?;
    Ok(notes)
}
