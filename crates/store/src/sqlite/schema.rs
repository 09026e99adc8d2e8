//! Opening the file: how SQLite is to work, and which version the tables have.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use throughline_core::{Name, StoreError};

/// Says "Thru" at the place where SQLite files say whose they are.
const APPLICATION: i32 = 0x5468_7275;

/// The migrations, oldest first. A file's version is the number of those that were done.
const MIGRATIONS: &[&str] = &[include_str!("schema_1.sql")];

/// How long a writer waits for another process.
const PATIENCE_MS: i32 = 30_000;

/// Opens the file for the writer, and brings its tables up to date.
pub(crate) fn open(path: &Path, create: bool) -> Result<Connection, StoreError> {
    let shown = shown(path);
    if !create && !path.exists() {
        return Err(StoreError::NotFound { what: "store", name: shown });
    }
    if let Some(folder) = path.parent().filter(|folder| create && !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)
            .map_err(|error| StoreError::Unreachable(shown.clone(), error.to_string().into()))?;
    }
    let mut db = connect(path, Access::Write).map_err(|error| failure(error, path))?;
    migrate(&mut db, path)?;
    Ok(db)
}

/// Makes the tables in a new file, for a backup of another database.
pub(crate) fn create_for_backup(path: &Path) -> Result<Connection, StoreError> {
    if path.exists() {
        let problem = format!("{} exists: choose another name for the backup", path.display());
        return Err(StoreError::invalid(problem));
    }
    open(path, true)
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The one that writes.
    Write,
    /// One of those that read.
    Read,
}

/// A connection that works as all of ours do.
pub(crate) fn connect(path: &Path, access: Access) -> Result<Connection, rusqlite::Error> {
    let flags = match access {
        Access::Write => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        Access::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
    };
    let mut db = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    db.busy_handler(Some(wait_a_little))?;
    db.set_prepared_statement_cache_capacity(64);
    db.pragma_update(None, "cache_size", -16_000)?;
    if access == Access::Write {
        // Only WAL lets others read while one writes; FULL waits for the disk at each commit.
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", "FULL")?;
        db.pragma_update(None, "secure_delete", "ON")?;
    }
    Ok(db)
}

/// Another process is writing. SQLite's own way waits ever longer; a commit takes about a millisecond.
fn wait_a_little(tries: i32) -> bool {
    std::thread::sleep(Duration::from_millis(1));
    tries < PATIENCE_MS
}

fn migrate(db: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    let sqlite = |error| failure(error, path);
    if version(db).map_err(sqlite)? == known {
        return Ok(());
    }
    // Whoever comes second finds the version that the first has written.
    let change = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sqlite)?;
    let found = version(&change).map_err(sqlite)?;
    if found > known {
        let narrow = |version| u32::try_from(version).unwrap_or(u32::MAX);
        return Err(StoreError::NewerSchema { found: narrow(found), known: narrow(known) });
    }
    let tables = "SELECT count(*) FROM sqlite_schema";
    let tables: i64 = change.query_row(tables, [], |row| row.get(0)).map_err(sqlite)?;
    let application = "SELECT application_id FROM pragma_application_id";
    let application: i32 = change.query_row(application, [], |row| row.get(0)).map_err(sqlite)?;
    if tables > 0 && application != APPLICATION {
        let problem = format!("{} is a database of another program", path.display());
        return Err(StoreError::invalid(problem));
    }
    for migration in MIGRATIONS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        change.execute_batch(migration).map_err(sqlite)?;
    }
    change.pragma_update(None, "application_id", APPLICATION).map_err(sqlite)?;
    change.pragma_update(None, "user_version", known).map_err(sqlite)?;
    change.commit().map_err(sqlite)
}

fn version(db: &Connection) -> Result<i64, rusqlite::Error> {
    db.query_row("SELECT user_version FROM pragma_user_version", [], |row| row.get(0))
}

/// What an error of SQLite means to a user of the store.
pub(crate) fn failure(error: rusqlite::Error, path: &Path) -> StoreError {
    let code = error.sqlite_error_code();
    match code {
        Some(ErrorCode::DiskFull) => StoreError::Full,
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            StoreError::ReadOnly(shown(path))
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            StoreError::Locked(shown(path))
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::Corrupt(format!("{}: {error}", path.display()).into())
        }
        Some(ErrorCode::CannotOpen) => {
            StoreError::Unreachable(shown(path), error.to_string().into())
        }
        Some(_) | None => StoreError::Database(std::sync::Arc::new(error)),
    }
}

fn shown(path: &Path) -> Name {
    Name::from(path.display().to_string())
}
