//! Restores a store from a backup and its key file.

use std::path::Path;

use bytes::Bytes;
use throughline_core::{Append, Batch, StoreError};
use throughline_json::Name;

use crate::backup_files::{RestoreSummary, key_file_of};
use crate::files::{TemporaryFile, failed, part_of};
use crate::journal::Journal;
use crate::journal::erasure_note::{notice, read_note};
use crate::journal::open::open_without_cleanup;
use crate::options::Options;
use crate::rejection::invalid;
use crate::sqlite::{Reserve, assemble, count_restored};
use crate::sync::blocking;

/// Creates a store in the new file `to` from a backup and its key file. Without `keys`, the key
/// file is expected at its default path beside the backup.
///
/// Content that was forgotten since the backup is also forgotten in the new store, and its Journal
/// records the erasures. If the original store has a master key, `options` must contain it. The new
/// store does not register the original's backups. Otherwise, the new store would remove salts that
/// it does not have from the key files of these backups.
pub async fn restore(
    backup: &Path,
    keys: Option<&Path>,
    to: &Path,
    options: &Options,
) -> Result<RestoreSummary, StoreError> {
    let (backup, to) = (backup.to_owned(), to.to_owned());
    let keys = keys.map_or_else(|| key_file_of(&backup), Path::to_owned);
    let exists = || invalid!("{} already exists; choose another name for the store", to.display());
    if to.exists() {
        return Err(exists());
    }
    let part = TemporaryFile::new(part_of(&to));
    let file = part.path.clone();
    let notes = blocking(move || assemble(&backup, &keys, &file)).await?;
    let url = format!("sqlite://{}", part.path.display());
    let options = Options { create: false, ..options.clone() };
    let journal = open_without_cleanup(&url, &options, Reserve::Without).await?;
    let finished = match journal.discard_registrations().await {
        Ok(()) => replay_erasures(&journal, &notes).await,
        failed => failed,
    };
    let closed = journal.close().await;
    finished.and(closed)?;
    let file = part.path.clone();
    let restored = blocking(move || count_restored(&file)).await?;
    part.publish(&to).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => exists(),
        _ => failed(&to, &error),
    })?;
    Ok(restored)
}

/// Repeats the erasures that happened since the backup, and records them in the Journal.
async fn replay_erasures(journal: &Journal, notes: &[(Name, Bytes)]) -> Result<(), StoreError> {
    for (_, note) in notes {
        let (tenant, erases) = read_note(note)?;
        for erase in erases {
            // The log may be newer than the backup.
            if journal.backend.log(&tenant, &erase.log).await?.is_none() {
                continue;
            }
            let append = Append::new(erase.log.clone()).record(notice(&erase));
            let batch = Batch::new(tenant.clone()).append(append);
            journal.commit_as_operator(batch, vec![erase]).await?;
        }
    }
    if notes.is_empty() { Ok(()) } else { journal.backend.scrub().await }
}
