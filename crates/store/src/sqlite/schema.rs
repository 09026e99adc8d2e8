//! Opens the SQLite file, applies settings, and migrates the schema.

use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use throughline_core::StoreError;
use throughline_json::Name;

use crate::files::{self, beside, create_private};
use crate::rejection::{Result, corrupt, invalid};
use crate::sql::TABLES;
use crate::sqlite::backup::{BACKUP, KEYS, stored_text};

/// Application id "Thru" of SQLite files that are stores.
pub(super) const STORE_APPLICATION_ID: i32 = 0x5468_7275;

/// The migrations, oldest first. A file's version is the number of applied migrations. The second
/// migration needs the store's keys and runs once they are loaded: see `protect.rs`.
pub(super) const MIGRATIONS: [&str; 3] =
    [include_str!("schema_1.sql"), include_str!("schema_2.sql"), include_str!("schema_3.sql")];
/// The schema version that this version of Throughline writes.
pub(crate) const KNOWN: i64 = 3;

/// Views that give the tables of an older file the columns of the current version. They hide the
/// tables of the same name on one connection, and are used if the file is opened read-only.
const OLDER_TABLES: &str = "
    CREATE TEMP VIEW records AS SELECT *, NULL AS span FROM main.records;
    CREATE TEMP VIEW turns AS SELECT *, NULL AS keys FROM main.turns;";

thread_local! {
    /// How long connections on this thread wait for a lock, in milliseconds.
    static PATIENCE: Cell<i32> = const { Cell::new(30_000) };
}

/// Sets how long connections on this thread wait for a lock of another process.
pub(crate) fn wait_for(patience: Duration) {
    PATIENCE.set(i32::try_from(patience.as_millis()).unwrap_or(i32::MAX));
}

/// Opens the file for the writer, and creates its tables if it is new.
pub(crate) fn open(path: &Path, create: bool, patience: Duration) -> Result<Connection> {
    wait_for(patience);
    let shown = display_name(path);
    if !create && !path.exists() {
        return Err(StoreError::NotFound { what: "store", name: shown });
    }
    let missing = |folder: &&Path| create && !folder.as_os_str().is_empty() && !folder.exists();
    if let Some(folder) = path.parent().filter(missing) {
        std::fs::create_dir_all(folder)
            .map_err(|error| StoreError::Unreachable(shown.clone(), error.to_string().into()))?;
    }
    // SQLite creates its additional files with the permissions of this file. Ignore errors here,
    // because opening the file reports them.
    if create && !path.exists() {
        drop(create_private(path));
    }
    let mut db = plain(path, Access::Write).map_err(|error| cannot_open(error, path))?;
    check_owner(&db, path)?;
    if !create && is_empty(&db).map_err(|error| failure(error, path))? {
        return Err(empty_file(path));
    }
    patiently(patience, || write_ahead(&db)).map_err(|error| failure(error, path))?;
    migrate(&mut db, path)?;
    Ok(db)
}

/// Checks that a file can be read as a store, and returns the access mode to open it with. If no
/// process writes to the file, opening it in the returned mode creates no files beside it.
pub(crate) fn open_read_only(path: &Path) -> Result<Access> {
    if !path.exists() {
        return Err(StoreError::NotFound { what: "store", name: display_name(path) });
    }
    if has_writer(path) {
        match check(path, Access::Read) {
            Ok(()) => return Ok(Access::Read),
            // A writer may have left its WAL in a folder that this process cannot write to.
            Err(error) if has_wal(path) => return Err(error),
            Err(_) => {}
        }
    }
    check(path, Access::Immutable)?;
    Ok(Access::Immutable)
}

/// Checks that a file is a store that can be read in this access mode.
fn check(path: &Path, access: Access) -> Result<()> {
    let sqlite = |error| failure(error, path);
    let db = plain(path, access).map_err(sqlite)?;
    check_owner(&db, path)?;
    if is_empty(&db).map_err(sqlite)? {
        return Err(empty_file(path));
    }
    check_tables(&db, path)
}

/// Returns whether a process may have the file open for writing. The WAL of an idle writer can be
/// empty, so the `-shm` file is checked too.
pub(super) fn has_writer(path: &Path) -> bool {
    has_wal(path) || beside(path, "-shm").exists()
}

/// Returns whether the WAL file contains data.
pub(super) fn has_wal(path: &Path) -> bool {
    std::fs::metadata(beside(path, "-wal")).is_ok_and(|file| file.len() > 0)
}

/// How a connection accesses the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reads and writes, for the writer.
    Write,
    /// Reads while other processes may write.
    Read,
    /// Reads without locks, for a file that has no writer.
    Immutable,
}

/// Opens a connection with the store's settings. A connection for writing switches the file to WAL
/// mode.
pub(crate) fn connect(path: &Path, access: Access) -> rusqlite::Result<Connection> {
    let db = plain(path, access)?;
    if access == Access::Write {
        write_ahead(&db)?;
    }
    Ok(db)
}

/// Opens a connection without changing the file.
fn plain(path: &Path, access: Access) -> rusqlite::Result<Connection> {
    let flags = match access {
        Access::Write => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        Access::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
        Access::Immutable => OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI,
    };
    let address = match access {
        Access::Write | Access::Read => path.to_owned(),
        Access::Immutable => immutable(path),
    };
    let mut db = Connection::open_with_flags(address, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    // SQLite opens a read-only file without an error and fails later, so report the problem now.
    if access == Access::Write && db.is_readonly("main")? {
        let read_only = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_READONLY);
        return Err(rusqlite::Error::SqliteFailure(read_only, None));
    }
    // Keep the plan of each statement. Otherwise SQLite plans statements that use partial indexes
    // again for each value.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    db.busy_handler(Some(wait_a_little))?;
    db.set_prepared_statement_cache_capacity(64);
    db.pragma_update(None, "cache_size", -16_000)?;
    if access != Access::Write && (1..KNOWN).contains(&version(&db)?) {
        db.execute_batch(OLDER_TABLES)?;
    }
    Ok(db)
}

/// Returns a URI that makes SQLite open the file without locks and without additional files.
fn immutable(path: &Path) -> std::path::PathBuf {
    let path = path.to_string_lossy();
    let path = path.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    format!("file:{path}?immutable=1").into()
}

/// Enables WAL mode, which allows reads during a write, and syncs each commit to disk.
fn write_ahead(db: &Connection) -> rusqlite::Result<()> {
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "FULL")?;
    // Checkpoint every 16 MB, so that pages changed by many commits are written to the file once.
    db.pragma_update(None, "wal_autocheckpoint", 4096)?;
    db.pragma_update(None, "secure_delete", "ON")
}

/// Busy handler: sleeps for 1 millisecond while another process writes, because a commit takes
/// about that long. SQLite's default handler increases the wait each time.
fn wait_a_little(tries: i32) -> bool {
    let waits = tries < PATIENCE.get();
    if waits {
        std::thread::sleep(Duration::from_millis(1));
    }
    waits
}

/// Determines why SQLite cannot create a file. This function must not open an existing file:
/// closing the file would release the locks of other connections in this process.
fn cannot_open(error: rusqlite::Error, path: &Path) -> StoreError {
    if error.sqlite_error_code() != Some(ErrorCode::CannotOpen) {
        return failure(error, path);
    }
    match std::fs::OpenOptions::new().write(true).create_new(true).open(path) {
        Err(problem) if problem.kind() != std::io::ErrorKind::AlreadyExists => {
            files::failed(path, &problem)
        }
        Ok(_) | Err(_) => failure(error, path),
    }
}

/// Runs `work`, which changes the journal mode. Retries for up to `patience` while the file is
/// busy, because SQLite does not wait for a concurrent change of the mode.
fn patiently(
    patience: Duration,
    mut work: impl FnMut() -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let began = instant();
    loop {
        match work() {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && instant().saturating_duration_since(began) < patience =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            done => return done,
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "measures a duration, not the time of day")]
pub(super) fn instant() -> Instant {
    Instant::now()
}

/// Rejects files of other applications without changing them.
fn check_owner(db: &Connection, path: &Path) -> Result<()> {
    let sqlite = |error| failure(error, path);
    let find = "SELECT (SELECT count(*) FROM sqlite_schema), application_id
                FROM pragma_application_id";
    let found = db.query_row(find, [], |row| Ok((row.get(0)?, row.get(1)?)));
    let (tables, application): (i64, i32) = found.map_err(sqlite)?;
    if application == BACKUP {
        let (file, keys) = (path.display(), stored_text(db, KEYS).map_err(sqlite)?);
        return Err(invalid!(
            "{file} is a backup, which opens only with its key file {keys}; restore the \
             backup with `throughline restore {file} --to NEW.db`"
        ));
    }
    if tables > 0 && application != STORE_APPLICATION_ID {
        return Err(invalid!(
            "{} is another program's database; choose a different file for the store",
            path.display()
        ));
    }
    Ok(())
}

/// Creates the tables in a new file, or checks that an existing file has all tables and adds the
/// columns of the current version. A store with schema version 1 is migrated later, when its keys
/// are loaded.
fn migrate(db: &mut Connection, path: &Path) -> Result<()> {
    let sqlite = |error| failure(error, path);
    match version(db).map_err(sqlite)? {
        0 => {}
        2 => {
            check_tables(db, path)?;
            return add_columns(db).map_err(sqlite);
        }
        _ => return check_tables(db, path),
    }
    // If several processes create the store, all but the first find the version that the first
    // wrote.
    let change = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sqlite)?;
    check_owner(&change, path)?;
    if !is_empty(&change).map_err(sqlite)? {
        return check_tables(&change, path);
    }
    for migration in MIGRATIONS {
        change.execute_batch(migration).map_err(sqlite)?;
    }
    change.pragma_update(None, "application_id", STORE_APPLICATION_ID).map_err(sqlite)?;
    change.pragma_update(None, "user_version", KNOWN).map_err(sqlite)?;
    change.commit().map_err(sqlite)
}

/// Migrates a store from schema version 2, unless another process has done so. Existing rows stay
/// unchanged.
fn add_columns(db: &mut Connection) -> rusqlite::Result<()> {
    let change = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if version(&change)? == 2 {
        for migration in MIGRATIONS.iter().skip(2) {
            change.execute_batch(migration)?;
        }
        change.pragma_update(None, "user_version", KNOWN)?;
    }
    change.commit()
}

/// Checks that the file has a supported version and all tables.
fn check_tables(db: &Connection, path: &Path) -> Result<()> {
    let sqlite = |error| failure(error, path);
    let file = path.display();
    let found = version(db).map_err(sqlite)?;
    if found > KNOWN {
        let narrow = |version| u32::try_from(version).unwrap_or(u32::MAX);
        return Err(StoreError::NewerSchema { found: narrow(found), known: narrow(KNOWN) });
    }
    if found < 1 {
        return Err(corrupt!(
            "{file} contains store tables but has schema version {found}, which no version of \
             Throughline writes; restore a backup"
        ));
    }
    for (table, _) in TABLES {
        let find = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1";
        if !db.prepare(find).and_then(|mut find| find.exists([table])).map_err(sqlite)? {
            return Err(corrupt!("{file} has no table {table}; restore a backup"));
        }
    }
    Ok(())
}

fn is_empty(db: &Connection) -> rusqlite::Result<bool> {
    db.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))
}

fn empty_file(path: &Path) -> StoreError {
    invalid!("{} is empty and contains no store; check the file name", path.display())
}

pub(super) fn version(db: &Connection) -> rusqlite::Result<i64> {
    db.query_row("SELECT user_version FROM pragma_user_version", [], |row| row.get(0))
}

/// Maps an SQLite error to a store error.
pub(crate) fn failure(error: rusqlite::Error, path: &Path) -> StoreError {
    // A full disk also prevents growth of the WAL index, which SQLite reports with another error
    // code.
    const NO_ROOM_FOR_INDEX: i32 = rusqlite::ffi::SQLITE_IOERR_SHMSIZE;
    if let rusqlite::Error::ToSqlConversionFailure(inner) = &error
        && let Some(own) = inner.downcast_ref::<StoreError>()
    {
        return own.clone();
    }
    let extended = error.sqlite_error().map(|error| error.extended_code);
    let file = path.display();
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full,
        Some(ErrorCode::SystemIoFailure) if extended == Some(NO_ROOM_FOR_INDEX) => StoreError::Full,
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            StoreError::ReadOnly(display_name(path))
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            StoreError::Locked(display_name(path))
        }
        Some(ErrorCode::NotADatabase) => {
            invalid!("{file} is not a database; choose a different file for the store")
        }
        Some(ErrorCode::DatabaseCorrupt) => {
            corrupt!("cannot read a page of {file}; restore a backup, or export the readable data")
        }
        Some(ErrorCode::CannotOpen) => {
            StoreError::Unreachable(display_name(path), error.to_string().into())
        }
        Some(_) | None => StoreError::Database(std::sync::Arc::new(error)),
    }
}

/// Maps an error of an open store. The file was a database when it was opened, so "not a database"
/// means that its header is damaged.
pub(super) fn runtime_failure(error: rusqlite::Error, path: &Path) -> StoreError {
    if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) {
        let problem = format!("the header of {} is damaged; restore a backup", path.display());
        return StoreError::Corrupt(problem.into());
    }
    failure(error, path)
}

fn display_name(path: &Path) -> Name {
    Name::from(path.display().to_string())
}

/// Truncates the WAL, so that deleted content is gone. SQLite overwrites deleted bytes in the
/// database file, but the WAL keeps older pages until it is truncated.
pub(super) fn scrub(path: &Path, patience: Duration) -> Result<()> {
    // A reader of an older state prevents the truncation. Each attempt is short, because it blocks
    // writers.
    const PAUSE: Duration = Duration::from_millis(5);
    wait_for(PAUSE);
    let failed = |error| failure(error, path);
    let db = connect(path, Access::Write).map_err(failed)?;
    for _ in 0..=patience.as_millis() / PAUSE.as_millis() {
        let cut = "PRAGMA wal_checkpoint(TRUNCATE)";
        match db.query_row(cut, [], |row| row.get::<_, i64>(0)) {
            // The truncated WAL must also be synced to disk, or a power loss would restore its old
            // pages. SQLite does not sync the truncation, but the next commit does.
            Ok(0) => {
                wait_for(patience);
                return touch(&db).map_err(failed);
            }
            Ok(_) => {}
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {}
            Err(error) => return Err(failed(error)),
        }
        std::thread::sleep(PAUSE);
    }
    Err(StoreError::Locked(path.display().to_string().into()))
}

/// Rewrites the file header with unchanged content, so that a commit has something to write.
pub(super) fn touch(db: &Connection) -> rusqlite::Result<()> {
    let version = version(db)?;
    db.pragma_update(None, "user_version", version)
}
