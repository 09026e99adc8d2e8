//! Backups: copies of everything, made while others read and write. The store remembers where they lie, so that what is
//! forgotten is forgotten there too.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use throughline_core::{Name, StoreError, Tenant};

use crate::backend::{Backend, Erase, Guard, Progress, SealedBatch};
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

    /// Destroys the same contents in every backup that can be reached; gives those that cannot.
    pub(crate) async fn erase_in_backups(
        &self,
        tenant: &Tenant,
        erases: &[Erase],
    ) -> Result<Vec<Name>, StoreError> {
        let mut unreached = Vec::new();
        for (name, _) in self.backend.kept(BACKUP).await? {
            let path = PathBuf::from(name.strip_prefix(BACKUP).unwrap_or(&name));
            if erase_in(&path, tenant, erases).await.is_err() {
                unreached.push(Name::from(path.display().to_string()));
            }
        }
        Ok(unreached)
    }
}

async fn erase_in(path: &Path, tenant: &Tenant, erases: &[Erase]) -> Result<(), StoreError> {
    let options = Options { create: false, ..Options::default() };
    let backup = Sqlite::open(path, &options, Name::from("backup")).await?;
    // The copy may be older than the logs: what is not in it need not be destroyed there.
    let batch = SealedBatch {
        tenant: tenant.clone(),
        once: Vec::new(),
        appends: Vec::new(),
        vault: Vec::new(),
        asks: Vec::new(),
        takes: Vec::new(),
        erases: erases.to_vec(),
    };
    debug_assert!(batch.appends.iter().all(|append| append.guard == Guard::Operator));
    backup.commit(batch).await?;
    backup.scrub().await?;
    backup.close().await
}
