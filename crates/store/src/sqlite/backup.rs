//! Copies the whole file to a backup, and tells backups from stores.

use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, params};
use throughline_core::{Name, StoreError};
use tokio::sync::mpsc;

use crate::backend::Progress;
use crate::backups::Restored;
use crate::backups::file::{BackupWriter, NewBackup, Unpublished};
use crate::sqlite::commit::unsigned;
use crate::sqlite::schema::{APPLICATION, Access, connect, failure};

/// Says "Thrb" at the place where SQLite files say whose they are, so that no version takes a backup for a store.
pub(super) const BACKUP: i32 = 0x5468_7262;

/// The id of a backup, and where its key file lay when it was made, among the small values of the backup.
const ID: &str = "this backup";
const KEYS: &str = "this backup's keys";

/// How many rows are read at a time. Each may have a large content.
const PAGE: usize = 64;

/// All tables as they are at one moment, while others read and write.
pub(super) async fn backup(
    from: &Path,
    plan: NewBackup,
    progress: Progress<'_>,
) -> Result<(), StoreError> {
    let unpublished = Unpublished::new(plan)?;
    let from = from.to_owned();
    let (tell, mut told) = mpsc::unbounded_channel();
    let copying = tokio::task::spawn_blocking(move || {
        let mut writer = unpublished.writer()?;
        copy(&from, &mut writer, |share| tell.send(share).is_ok())?;
        let keys = writer.finish()?;
        // The caller went away, so the store would not know of it.
        if tell.is_closed() {
            return Err(StoreError::Closed);
        }
        unpublished.publish(keys)
    });
    while let Some(share) = told.recv().await {
        progress(share);
    }
    copying.await.map_err(|_| StoreError::Closed)?
}

/// Copies for as long as the caller waits for it.
fn copy(
    from: &Path,
    to: &mut BackupWriter<'_>,
    tell: impl Fn(f64) -> bool,
) -> Result<(), StoreError> {
    let reading = |error| failure(error, from);
    let source = connect(from, Access::Read).map_err(reading)?;
    // One read transaction: the copy is of one moment, and writers need not wait for it.
    source.execute_batch("BEGIN; SELECT count(*) FROM kept;").map_err(reading)?;
    let tables = tables(&source).map_err(reading)?;
    let total: i64 = tables.iter().map(|table| table.rows).sum();
    let mut done = 0_i64;
    for Table { name, columns, .. } in &tables {
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
                done += i64::try_from(page.len()).unwrap_or(0);
                to.add(name, columns, std::mem::take(&mut page))?;
                #[expect(clippy::cast_precision_loss, reason = "a share need not be exact")]
                let share = done as f64 / total.max(1) as f64;
                if !tell(share.min(1.0)) {
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

struct Table {
    name: Name,
    /// With commas between.
    columns: Name,
    rows: i64,
}

fn tables(db: &Connection) -> Result<Vec<Table>, rusqlite::Error> {
    let find = "SELECT m.name, (SELECT group_concat(name, ', ') FROM pragma_table_info(m.name))
                FROM sqlite_schema m WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%'
                ORDER BY m.rowid";
    let mut find = db.prepare(find)?;
    let found = find.query_map([], |row| Ok((row.get::<_, Name>(0)?, row.get::<_, Name>(1)?)))?;
    let mut tables = Vec::new();
    for table in found {
        let (name, columns) = table?;
        let count = format!("SELECT count(*) FROM {name}");
        let rows = db.query_row(&count, [], |row| row.get(0))?;
        tables.push(Table { name, columns, rows });
    }
    Ok(tables)
}

/// Makes the copy of a store a backup, which no version opens as a store.
pub(crate) fn mark_as_backup(db: &Connection, plan: &NewBackup) -> Result<(), rusqlite::Error> {
    let keep = "INSERT INTO kept (name, value) VALUES (?1, ?2)";
    db.execute(keep, params![ID, plan.owner.backup.as_bytes()])?;
    db.execute(keep, params![KEYS, plan.keys.display().to_string().as_bytes()])?;
    db.pragma_update(None, "application_id", BACKUP)
}

/// Makes a copy of a backup a store again.
pub(crate) fn mark_as_store(db: &Connection) -> Result<(), rusqlite::Error> {
    db.execute("DELETE FROM kept WHERE name IN (?1, ?2)", params![ID, KEYS])?;
    db.pragma_update(None, "application_id", APPLICATION)
}

/// The id of the backup in that file, if it is one.
pub(crate) fn id_of_backup(path: &Path) -> Result<Name, StoreError> {
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
        APPLICATION => {
            "is a store, or a backup of an earlier version: open it with --store sqlite://FILE"
        }
        _ => "is not a backup of a store",
    };
    Err(StoreError::invalid(format!("{} {problem}", path.display())))
}

/// Where the key file of a backup lay when it was made.
pub(super) fn keys_of_backup(db: &Connection) -> Result<Name, rusqlite::Error> {
    kept(db, KEYS)
}

fn kept(db: &Connection, name: &str) -> Result<Name, rusqlite::Error> {
    let find = "SELECT CAST(value AS TEXT) FROM kept WHERE name = ?1";
    db.query_row(find, [name], |row| row.get(0))
}

/// What a store that was restored from a backup holds.
pub(crate) fn count_restored(path: &Path) -> Result<Restored, StoreError> {
    let failed = |error| failure(error, path);
    let db = connect(path, Access::Read).map_err(failed)?;
    let count = |what: &str| {
        let count = format!("SELECT count(*) FROM records r {what}");
        db.query_row(&count, [], |row| row.get(0)).map(unsigned).map_err(failed)
    };
    Ok(Restored {
        records: count("")?,
        gone: count("WHERE r.erased IS NOT NULL")?,
        without_key: count(
            "WHERE r.erased IS NULL AND NOT EXISTS (SELECT 1 FROM salts s WHERE s.record = r.id)",
        )?,
    })
}
