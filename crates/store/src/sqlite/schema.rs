//! Opening the file: how SQLite is to work, and which version the tables have.

use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use throughline_core::{Name, StoreError};

use crate::backups::keys::{beside, create_private};
use crate::sqlite::backup::{BACKUP, keys_of_backup};

/// Says "Thru" at the place where SQLite files say whose they are.
pub(super) const APPLICATION: i32 = 0x5468_7275;

/// The migrations, oldest first. A file's version is the number of those that were done. The second one needs the store's
/// keys, so it is done once they are open: see `rows.rs`.
pub(super) const MIGRATIONS: [&str; 2] =
    [include_str!("schema_1.sql"), include_str!("schema_2.sql")];
/// The version that this program writes.
pub(super) const KNOWN: i64 = 2;

/// The tables of every version.
const TABLES: [&str; 14] = [
    "tenants",
    "logs",
    "records",
    "salts",
    "blobs",
    "segments",
    "manifests",
    "once",
    "leases",
    "pending",
    "turns",
    "turn_keys",
    "api_keys",
    "kept",
];

thread_local! {
    /// How many milliseconds connections on this thread wait for another process.
    static PATIENCE: Cell<i32> = const { Cell::new(30_000) };
}

/// Connections on this thread wait so long for another process.
pub(crate) fn wait_for(patience: Duration) {
    PATIENCE.set(i32::try_from(patience.as_millis()).unwrap_or(i32::MAX));
}

/// Opens the file for the writer, and brings its tables up to date.
pub(crate) fn open(
    path: &Path,
    create: bool,
    patience: Duration,
) -> Result<Connection, StoreError> {
    wait_for(patience);
    let shown = shown(path);
    if !create && !path.exists() {
        return Err(StoreError::NotFound { what: "store", name: shown });
    }
    let missing = |folder: &&Path| create && !folder.as_os_str().is_empty() && !folder.exists();
    if let Some(folder) = path.parent().filter(missing) {
        std::fs::create_dir_all(folder)
            .map_err(|error| StoreError::Unreachable(shown.clone(), error.to_string().into()))?;
    }
    // SQLite makes the files beside it with its permissions. It says why a file cannot be made when it opens it.
    if create && !path.exists() {
        drop(create_private(path));
    }
    let mut db = plain(path, Access::Write).map_err(|error| cannot_open(error, path))?;
    check_owner(&db, path)?;
    if !create && is_empty(&db).map_err(|error| failure(error, path))? {
        return Err(no_store(path));
    }
    patiently(patience, || write_ahead(&db)).map_err(|error| failure(error, path))?;
    migrate(&mut db, path)?;
    Ok(db)
}

/// Checks a file for reading, and returns how to open it. Without a writer, no file is made beside it.
pub(crate) fn open_read_only(path: &Path) -> Result<Access, StoreError> {
    if !path.exists() {
        return Err(StoreError::NotFound { what: "store", name: shown(path) });
    }
    if has_writer(path) {
        match check(path, Access::Read) {
            Ok(()) => return Ok(Access::Read),
            // The files beside it may be left over from a writer, in a folder that cannot be written to.
            Err(error) if has_wal(path) => return Err(error),
            Err(_) => {}
        }
    }
    check(path, Access::Immutable)?;
    Ok(Access::Immutable)
}

/// Checks that a file is a store that can be read.
fn check(path: &Path, access: Access) -> Result<(), StoreError> {
    let sqlite = |error| failure(error, path);
    let db = plain(path, access).map_err(sqlite)?;
    check_owner(&db, path)?;
    if is_empty(&db).map_err(sqlite)? {
        return Err(no_store(path));
    }
    check_tables(&db, path)
}

/// Whether a process may have the file open for writing. The log of an idle writer can be empty.
pub(super) fn has_writer(path: &Path) -> bool {
    has_wal(path) || beside(path, "-shm").exists()
}

/// Whether the file has changes beside it.
pub(super) fn has_wal(path: &Path) -> bool {
    std::fs::metadata(beside(path, "-wal")).is_ok_and(|file| file.len() > 0)
}

/// Makes the tables in a new file, for a backup of another database.
pub(crate) fn create_for_backup(path: &Path) -> Result<Connection, StoreError> {
    if path.exists() {
        return Err(crate::refusal::backup_exists(path));
    }
    open(path, true, Duration::from_secs(30))
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The one that writes.
    Write,
    /// One of those that read.
    Read,
    /// Reads a file that has no writer.
    Immutable,
}

/// A connection that works as all of ours do.
pub(crate) fn connect(path: &Path, access: Access) -> Result<Connection, rusqlite::Error> {
    let db = plain(path, access)?;
    if access == Access::Write {
        write_ahead(&db)?;
    }
    Ok(db)
}

/// A connection that changes nothing yet.
fn plain(path: &Path, access: Access) -> Result<Connection, rusqlite::Error> {
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
    // SQLite opens what it cannot write to, and fails later with something else.
    if access == Access::Write && db.is_readonly("main")? {
        let read_only = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_READONLY);
        return Err(rusqlite::Error::SqliteFailure(read_only, None));
    }
    // A statement stays as it was planned: else one that partial indexes might serve is planned anew for each value.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    db.busy_handler(Some(wait_a_little))?;
    db.set_prepared_statement_cache_capacity(64);
    db.pragma_update(None, "cache_size", -16_000)?;
    Ok(db)
}

/// The address of a file that SQLite locks nowhere and makes no file beside.
fn immutable(path: &Path) -> std::path::PathBuf {
    let path = path.to_string_lossy();
    let path = path.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    format!("file:{path}?immutable=1").into()
}

/// Only WAL lets others read while one writes; FULL waits for the disk at each commit.
fn write_ahead(db: &Connection) -> Result<(), rusqlite::Error> {
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "FULL")?;
    // Pages that many commits change are carried over to the file once for all of them: 16 MB at a time.
    db.pragma_update(None, "wal_autocheckpoint", 4096)?;
    db.pragma_update(None, "secure_delete", "ON")
}

/// Another process is writing. SQLite's own way waits ever longer; a commit takes about a millisecond.
fn wait_a_little(tries: i32) -> bool {
    let waits = tries < PATIENCE.get();
    if waits {
        std::thread::sleep(Duration::from_millis(1));
    }
    waits
}

/// SQLite does not say why it cannot make a file. One that exists is not opened besides it: closing that again would give
/// away the locks that other connections of this process hold.
fn cannot_open(error: rusqlite::Error, path: &Path) -> StoreError {
    use std::io::ErrorKind;
    if error.sqlite_error_code() != Some(ErrorCode::CannotOpen) {
        return failure(error, path);
    }
    match std::fs::OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(_) => failure(error, path),
        Err(problem) => match problem.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                StoreError::ReadOnly(shown(path))
            }
            ErrorKind::StorageFull => StoreError::Full,
            ErrorKind::AlreadyExists => failure(error, path),
            _ => StoreError::Unreachable(shown(path), problem.to_string().into()),
        },
    }
}

/// Whoever changes the mode of the file while another does is refused at once: SQLite does not wait there.
fn patiently(
    patience: Duration,
    mut work: impl FnMut() -> Result<(), rusqlite::Error>,
) -> Result<(), rusqlite::Error> {
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

#[expect(clippy::disallowed_methods, reason = "how long something waits is no time of day")]
pub(super) fn instant() -> Instant {
    Instant::now()
}

/// A file that is not ours is left as it is.
fn check_owner(db: &Connection, path: &Path) -> Result<(), StoreError> {
    let sqlite = |error| failure(error, path);
    let find = "SELECT (SELECT count(*) FROM sqlite_schema), application_id
                FROM pragma_application_id";
    let found = db.query_row(find, [], |row| Ok((row.get(0)?, row.get(1)?)));
    let (tables, application): (i64, i32) = found.map_err(sqlite)?;
    if application == BACKUP {
        let (file, keys) = (path.display(), keys_of_backup(db).map_err(sqlite)?);
        return Err(StoreError::invalid(format!(
            "{file} is a backup, which opens only with its key file {keys}: make a store of both \
             with `throughline restore {file} --to NEW.db`"
        )));
    }
    if tables > 0 && application != APPLICATION {
        let problem = format!(
            "{} is a database of another program: choose another file for the store",
            path.display()
        );
        return Err(StoreError::invalid(problem));
    }
    Ok(())
}

/// Makes the tables in a new file, and checks those of another. A store of version 1 stays one until its keys are open.
fn migrate(db: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let sqlite = |error| failure(error, path);
    if version(db).map_err(sqlite)? != 0 {
        return check_tables(db, path);
    }
    // Whoever comes second finds the version that the first has written.
    let change = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sqlite)?;
    check_owner(&change, path)?;
    if !is_empty(&change).map_err(sqlite)? {
        return check_tables(&change, path);
    }
    for migration in MIGRATIONS {
        change.execute_batch(migration).map_err(sqlite)?;
    }
    change.pragma_update(None, "application_id", APPLICATION).map_err(sqlite)?;
    change.pragma_update(None, "user_version", KNOWN).map_err(sqlite)?;
    change.commit().map_err(sqlite)
}

/// Whether the file has a version that this program knows, and all tables.
fn check_tables(db: &Connection, path: &Path) -> Result<(), StoreError> {
    let sqlite = |error| failure(error, path);
    let place = path.display();
    let found = version(db).map_err(sqlite)?;
    if found > KNOWN {
        let narrow = |version| u32::try_from(version).unwrap_or(u32::MAX);
        return Err(StoreError::NewerSchema { found: narrow(found), known: narrow(KNOWN) });
    }
    if found < 1 {
        let problem = format!(
            "{place} has tables of a store and the schema version {found}, which no version of \
             Throughline writes: restore a backup"
        );
        return Err(StoreError::Corrupt(problem.into()));
    }
    for table in TABLES {
        let find = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1";
        if !db.prepare(find).and_then(|mut find| find.exists([table])).map_err(sqlite)? {
            let problem = format!("{place} has no table {table}: restore a backup");
            return Err(StoreError::Corrupt(problem.into()));
        }
    }
    Ok(())
}

fn is_empty(db: &Connection) -> Result<bool, rusqlite::Error> {
    db.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))
}

fn no_store(path: &Path) -> StoreError {
    StoreError::invalid(format!("{} is empty and holds no store: check its name", path.display()))
}

pub(super) fn version(db: &Connection) -> Result<i64, rusqlite::Error> {
    db.query_row("SELECT user_version FROM pragma_user_version", [], |row| row.get(0))
}

/// What an error of SQLite means to a user of the store.
pub(crate) fn failure(error: rusqlite::Error, path: &Path) -> StoreError {
    // The index of the WAL grows too, and says it in its own way where there is no room.
    const NO_ROOM_FOR_INDEX: i32 = rusqlite::ffi::SQLITE_IOERR_SHMSIZE;
    if let rusqlite::Error::ToSqlConversionFailure(inner) = &error
        && let Some(own) = inner.downcast_ref::<StoreError>()
    {
        return own.clone();
    }
    let extended = error.sqlite_error().map(|error| error.extended_code);
    let place = path.display();
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full,
        Some(ErrorCode::SystemIoFailure) if extended == Some(NO_ROOM_FOR_INDEX) => StoreError::Full,
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            StoreError::ReadOnly(shown(path))
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            StoreError::Locked(shown(path))
        }
        Some(ErrorCode::NotADatabase) => {
            let problem = format!("{place} is not a database: choose another file for the store");
            StoreError::invalid(problem)
        }
        Some(ErrorCode::DatabaseCorrupt) => {
            let problem = format!(
                "a page of {place} cannot be read: open a backup, or export what can be read"
            );
            StoreError::Corrupt(problem.into())
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
