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

/// Creates a store in the new file `to` from a backup and its key file. The key file is beside the
/// backup unless `keys` names it.
///
/// Contents that were forgotten since the backup are also forgotten in the new store, and its
/// Journal records this. This needs the master key in `options`, if the store has one. The new
/// store does not register the backups of the original. It only has its own salts, and would remove
/// all others from their key files.
pub async fn restore(
    backup: &Path,
    keys: Option<&Path>,
    to: &Path,
    options: &Options,
) -> Result<RestoreSummary, StoreError> {
    let (backup, to) = (backup.to_owned(), to.to_owned());
    let keys = keys.map_or_else(|| key_file_of(&backup), Path::to_owned);
    let exists = || invalid!("{} exists: choose another name for the store", to.display());
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

/// Destroys the contents that were destroyed since the backup, and writes the records about it.
async fn replay_erasures(journal: &Journal, notes: &[(Name, Bytes)]) -> Result<(), StoreError> {
    for (_, note) in notes {
        let (tenant, erases) = read_note(note)?;
        for erase in erases {
            // The backup may be older than the log.
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
