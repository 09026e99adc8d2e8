//! The new SQLite file that a migration writes to.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, params_from_iter};

use crate::backend::copy::{RowSink, copy_rows};
use crate::files::{TemporaryFile, failed};
use crate::rejection::Result;
use crate::sql::{SqlRow, Transaction};
use crate::sqlite::schema::{self, failure};

/// Opens a new file for rows that are copied from another store. The file is synced once, at the
/// end, and is useless until then.
pub(super) fn open_copy(path: &Path) -> Result<Connection> {
    let db = schema::open(path, true, Duration::from_secs(30))?;
    let begin = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN;";
    db.execute_batch(begin).map_err(|error| failure(error, path))?;
    Ok(db)
}

/// Inserts a copied row.
pub(super) fn insert(
    db: &Connection,
    table: &str,
    columns: &str,
    row: SqlRow,
) -> rusqlite::Result<()> {
    let places = vec!["?"; row.0.len()].join(", ");
    let sql = format!("INSERT INTO {table} ({columns}) VALUES ({places})");
    db.prepare_cached(&sql)?.execute(params_from_iter(row.0)).map(drop)
}

/// Commits the copied rows and syncs the file to disk.
pub(super) fn close_copy(db: Connection, path: &Path) -> Result<()> {
    let sqlite = |error| failure(error, path);
    db.execute_batch("COMMIT").map_err(sqlite)?;
    db.close().map_err(|(_, error)| sqlite(error))?;
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(|error| failed(path, &error))
}

/// Copies a store to a new temporary file. No lease stays active.
pub(crate) fn copy_to_file(
    from: &dyn Transaction,
    path: PathBuf,
    report: &dyn Fn(f64) -> bool,
) -> Result<TemporaryFile> {
    let file = TemporaryFile::new(path);
    let mut sink = SqliteSink { db: open_copy(&file.path)?, path: &file.path };
    copy_rows(from, &mut sink, report)?;
    let SqliteSink { db, path } = sink;
    // Fences must not start again from 1, so the rows stay.
    let ended = db.execute("UPDATE leases SET until = 0", []);
    ended.map_err(|error| failure(error, path))?;
    close_copy(db, path)?;
    Ok(file)
}

struct SqliteSink<'p> {
    db: Connection,
    path: &'p Path,
}

impl RowSink for SqliteSink<'_> {
    fn add(&mut self, table: &'static str, columns: &str, row: SqlRow) -> Result<()> {
        insert(&self.db, table, columns, row).map_err(|error| failure(error, self.path))
    }
}
