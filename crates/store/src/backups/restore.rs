//! Restoring: a backup and its key file become a store.

use std::fs::File;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rusqlite::Connection;
use throughline_core::{Append, Batch, Name, StoreError};

use crate::backups::keys::{Entry, KeyReader, Unfinished, create_private, failed, part_of};
use crate::backups::{key_file_of, read_note};
use crate::forget::notice;
use crate::journal::{Journal, open_unfinished};
use crate::keys::SECRET;
use crate::options::Options;
use crate::sqlite::{Reserve, count_restored, failure, id_of_backup, mark_as_store};

/// What a restored store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// How many records it has.
    pub records: u64,
    /// How many of them were forgotten or have expired, also since the backup was made.
    pub gone: u64,
    /// How many have a content that no key opens, although nothing says that they were forgotten.
    pub without_key: u64,
}

/// Makes a store in the new file `to` from a backup and its key file, which lies beside it unless `keys` names it.
///
/// What was forgotten since the backup was made is forgotten in the new store too, and its journal says so. That needs the
/// master key that `options` give, if the store has one. The new store does not remember the backups of the original: it
/// knows only its own salts, and would take the others out of their key files.
pub async fn restore(
    backup: &Path,
    keys: Option<&Path>,
    to: &Path,
    options: &Options,
) -> Result<Restored, StoreError> {
    let (backup, to) = (backup.to_owned(), to.to_owned());
    let keys = keys.map_or_else(|| key_file_of(&backup), Path::to_owned);
    let exists = || {
        let problem = format!("{} exists: choose another name for the store", to.display());
        StoreError::invalid(problem)
    };
    if to.exists() {
        return Err(exists());
    }
    let part = Unfinished::new(part_of(&to));
    let file = part.path.clone();
    let copying = tokio::task::spawn_blocking(move || put_together(&backup, &keys, &file));
    let notes = copying.await.map_err(|_| StoreError::Closed)??;
    let url = format!("sqlite://{}", part.path.display());
    let options = Options { create: false, ..options.clone() };
    let journal = open_unfinished(&url, &options, Reserve::Without).await?;
    let finished = match journal.discard_registrations().await {
        Ok(()) => forget_again(&journal, &notes).await,
        failed => failed,
    };
    let closed = journal.close().await;
    finished.and(closed)?;
    let file = part.path.clone();
    let counting = tokio::task::spawn_blocking(move || count_restored(&file));
    let restored = counting.await.map_err(|_| StoreError::Closed)??;
    part.publish(&to).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => exists(),
        _ => failed(&to, &error),
    })?;
    Ok(restored)
}

/// Copies the backup to `file` and adds its keys; gives the notes of what was destroyed since.
fn put_together(
    backup: &Path,
    keys: &Path,
    file: &PathBuf,
) -> Result<Vec<(Name, Bytes)>, StoreError> {
    let id = id_of_backup(backup)?;
    let opened = File::open(keys).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => StoreError::invalid(format!(
            "{} opens only with its key file, and {} is not there: name the key file with --keys",
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
            Entry::Salt(salt) => {
                let add = "INSERT INTO salts (record, tenant, epoch, salt)
                           SELECT id, tenant, ?2, ?3 FROM records WHERE id = ?1";
                let values = rusqlite::params![salt.record, salt.salt.epoch, &*salt.salt.bytes];
                let added = transaction.prepare_cached(add).and_then(|mut add| add.execute(values));
                added.map_err(sqlite)?;
            }
            Entry::Secret(secret) => {
                let add = "INSERT INTO kept (name, value) VALUES (?1, ?2)";
                transaction.execute(add, rusqlite::params![SECRET, &*secret]).map_err(sqlite)?;
            }
            Entry::Forgotten(name, note) => notes.push((name, note)),
        }
    }
    mark_as_store(&transaction).map_err(sqlite)?;
    transaction.commit().map_err(sqlite)?;
    db.close().map_err(|(_, error)| sqlite(error))?;
    Ok(notes)
}

/// Destroys again what was destroyed since the backup was made, with the records that say so.
async fn forget_again(journal: &Journal, notes: &[(Name, Bytes)]) -> Result<(), StoreError> {
    for (_, note) in notes {
        let (tenant, erases, kind) = read_note(note)?;
        for erase in erases {
            // The backup may be older than the log.
            if journal.backend.log(&tenant, &erase.log).await?.is_none() {
                continue;
            }
            let append = Append::to(erase.log.clone()).record(notice(&erase, &kind));
            let batch = Batch::of(tenant.clone()).append(append);
            journal.commit_act(batch, vec![erase]).await?;
        }
    }
    if notes.is_empty() { Ok(()) } else { journal.backend.scrub().await }
}
