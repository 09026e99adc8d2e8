//! Copies a store to a backup, and a backup to a new store.

use std::fs::File;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rusqlite::{Connection, params};
use throughline_core::StoreError;
use throughline_json::Name;
use tokio::sync::mpsc;

use crate::backend::Backend;
use crate::backend::copy::copy_rows;
use crate::backup_files::key_file::{KeyFileEntry, KeyReader};
use crate::backup_files::{NewBackup, RestoreSummary};
use crate::files::{create_private, failed};
use crate::pack;
use crate::protection::SECRET;
use crate::query::Progress;
use crate::rejection::{Result, corrupt, invalid};
use crate::sqlite::backup_writer::BackupWriter;
use crate::sqlite::commit::unsigned;
use crate::sqlite::schema::{self, Access, STORE_APPLICATION_ID, connect, failure};
use crate::sqlite::values::own_error;

/// Application id "Thrb" of SQLite files that are backups. With this id, no version of Throughline
/// opens a backup as a store.
pub(super) const BACKUP: i32 = 0x5468_7262;

/// Names of the internal values that hold a backup's id and the path of its key file at creation.
const ID: &str = "this backup";
pub(super) const KEYS: &str = "this backup's keys";

/// Number of rows held in memory at a time. It is small, because each row may be large.
const PAGE: i32 = 64;

/// Copies all tables from one snapshot of the store, while other processes read and write.
pub(crate) async fn backup(
    from: &dyn Backend,
    plan: NewBackup,
    progress: Progress<'_>,
) -> Result<()> {
    let (shares, mut received) = mpsc::unbounded_channel();
    let copying = from.snapshot(
        PAGE,
        Box::new(move |db| {
            let mut writer = BackupWriter::create(plan)?;
            copy_rows(db, &mut writer, &|share| shares.send(share).is_ok())?;
            // Do not publish after a cancellation, because the store would have no registration for
            // the backup.
            writer.publish(|| shares.is_closed())
        }),
    );
    let reporting = async {
        while let Some(share) = received.recv().await {
            progress(share);
        }
    };
    tokio::join!(copying, reporting).0
}

/// Marks the copy of a store as a backup, so that no version of Throughline opens the copy as a
/// store.
pub(super) fn mark_as_backup(db: &Connection, plan: &NewBackup) -> rusqlite::Result<()> {
    let keep = "INSERT INTO kept (name, value) VALUES (?1, ?2)";
    db.execute(keep, params![ID, plan.owner.backup.as_bytes()])?;
    db.execute(keep, params![KEYS, plan.keys.display().to_string().as_bytes()])?;
    db.pragma_update(None, "application_id", BACKUP)
}

/// Marks a copy of a backup as a store again.
fn mark_as_store(db: &Connection) -> rusqlite::Result<()> {
    db.execute("DELETE FROM kept WHERE name IN (?1, ?2)", params![ID, KEYS])?;
    db.pragma_update(None, "application_id", STORE_APPLICATION_ID)
}

/// Returns the id stored in a backup file. Fails if the file is not a backup.
fn id_of_backup(path: &Path) -> Result<Name> {
    let failed = |error| failure(error, path);
    if !path.exists() {
        let name = Name::from(path.display().to_string());
        return Err(StoreError::NotFound { what: "backup", name });
    }
    let db = connect(path, Access::Read).map_err(failed)?;
    let find = "SELECT application_id FROM pragma_application_id";
    let application: i32 = db.query_row(find, [], |row| row.get(0)).map_err(failed)?;
    let problem = match application {
        BACKUP => return stored_text(&db, ID).map_err(failed),
        STORE_APPLICATION_ID => {
            "is a store, or a backup of an earlier version; open it with --store sqlite://FILE"
        }
        _ => "is not a backup of a store",
    };
    Err(invalid!("{} {problem}", path.display()))
}

/// Returns an internal value as text.
pub(super) fn stored_text(db: &Connection, name: &str) -> rusqlite::Result<Name> {
    let find = "SELECT CAST(value AS TEXT) FROM kept WHERE name = ?1";
    db.query_row(find, [name], |row| row.get(0))
}

/// Counts the records of a restored store.
pub(crate) fn count_restored(path: &Path) -> Result<RestoreSummary> {
    let failed = |error| failure(error, path);
    let db = connect(path, Access::Read).map_err(failed)?;
    let count = |sql: &str| db.query_row(sql, [], |row| row.get(0)).map(unsigned).map_err(failed);
    let records = count("SELECT coalesce(sum(1 + coalesce(span, 0)), 0) FROM records")?;
    let erased = "SELECT count(*) FROM records WHERE erased IS NOT NULL AND coalesce(span, 0) = 0";
    let gone = count(erased)? + erased_in_packs(&db).map_err(failed)?;
    let with_key = count("SELECT count(*) FROM salts")?;
    let without_key = records.saturating_sub(gone).saturating_sub(with_key);
    Ok(RestoreSummary { records, gone, without_key })
}

/// Counts the erased records in packs.
fn erased_in_packs(db: &Connection) -> rusqlite::Result<u64> {
    let mut packs = db.prepare("SELECT content FROM records WHERE span > 0")?;
    let mut packs = packs.query([])?;
    let mut erased = 0;
    while let Some(row) = packs.next()? {
        let records = pack::decode(row.get::<_, Vec<u8>>(0)?.into());
        let records = records.ok_or_else(|| own_error(corrupt!("a pack cannot be read")))?;
        erased += records.iter().filter(|record| record.erased.is_some()).count() as u64;
    }
    Ok(erased)
}

/// Copies the backup to `file` and adds the salts and the secret from the key file `keys`. Returns
/// the key file's notes about content that was destroyed since the backup was made.
pub(crate) fn assemble(backup: &Path, keys: &Path, file: &PathBuf) -> Result<Vec<(Name, Bytes)>> {
    let id = id_of_backup(backup)?;
    let opened = File::open(keys).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => invalid!(
            "{} opens only with its key file, but {} does not exist; pass the path of the key file \
             with --keys",
            backup.display(),
            keys.display()
        ),
        _ => failed(keys, &error),
    });
    let mut reader = KeyReader::new(opened?, keys)?;
    if reader.owner.backup != id {
        return Err(invalid!(
            "{} is the key file of a different backup, not of {}",
            keys.display(),
            backup.display()
        ));
    }
    let copied =
        create_private(file).and_then(|mut to| std::io::copy(&mut File::open(backup)?, &mut to));
    copied.map_err(|error| failed(file, &error))?;
    let sqlite = |error| failure(error, file);
    let mut db = Connection::open(file).map_err(sqlite)?;
    // A backup of an earlier version has no packs.
    let span = if schema::version(&db).map_err(sqlite)? < 3 { "0" } else { "coalesce(span, 0)" };
    let add_salt = format!(
        "INSERT INTO salts (record, tenant, epoch, salt) SELECT ?1, tenant, ?2, ?3
         FROM (SELECT id, tenant, {span} AS span FROM records WHERE id >= ?1 ORDER BY id LIMIT 1)
         WHERE id - span <= ?1"
    );
    let transaction = db.transaction().map_err(sqlite)?;
    let mut notes = Vec::new();
    while let Some(entry) = reader.next()? {
        match entry {
            KeyFileEntry::Salt(salt) => {
                let values = rusqlite::params![salt.record, salt.salt.epoch, &*salt.salt.bytes];
                let add = transaction.prepare_cached(&add_salt);
                let added = add.and_then(|mut add| add.execute(values));
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
