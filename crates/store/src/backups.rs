//! Backups: copies of everything, made while others read and write. The store remembers where they lie, so that what is
//! forgotten is forgotten there too.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use throughline_core::{Name, StoreError};

use crate::backend::{Backend, Progress, SealedBatch};
use crate::journal::Journal;
use crate::options::Options;
use crate::sqlite::Sqlite;

/// Before the path of a backup, among the store's own small values.
const BACKUP: &str = "backup ";

impl Journal {
    /// Copies everything to a new SQLite file, which can be opened as a store.
    pub async fn backup(&self, to: &Path, progress: Progress<'_>) -> Result<(), StoreError> {
        let to = std::path::absolute(to)
            .map_err(|error| StoreError::invalid(format!("{}: {error}", to.display())))?;
        let name = format!("{BACKUP}{}", to.display());
        self.backend.backup(to, progress).await?;
        self.backend.replace(&name, Bytes::new()).await
    }

    /// Destroys the same contents in every backup that can be reached, and says so there too; gives those that cannot.
    pub(crate) async fn erase_in_backups(
        &self,
        act: &SealedBatch,
    ) -> Result<Vec<Name>, StoreError> {
        let mut unreached = Vec::new();
        for (name, _) in self.backend.kept(BACKUP).await? {
            let path = PathBuf::from(name.strip_prefix(BACKUP).unwrap_or(&name));
            if erase_in(&path, act.clone()).await.is_err() {
                unreached.push(Name::from(path.display().to_string()));
            }
        }
        Ok(unreached)
    }
}

async fn erase_in(path: &Path, mut act: SealedBatch) -> Result<(), StoreError> {
    let options = Options { create: false, ..Options::default() };
    let backup = Sqlite::open(path, &options, Name::from("backup")).await?;
    // The copy may be older than the logs: what is not in it need not be destroyed there.
    let mut appends = Vec::new();
    for append in act.appends {
        if backup.log(&act.tenant, &append.log).await?.is_some() {
            appends.push(append);
        }
    }
    act.appends = appends;
    backup.commit(act).await?;
    backup.scrub().await?;
    backup.close().await
}
