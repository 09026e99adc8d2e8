//! Backups: copies of everything, made while others read and write. The store remembers where they lie, so that what is
//! forgotten is forgotten there too.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use throughline_core::{Append, Batch, Name, StoreError, Tenant};

use crate::backend::{Backend, Erase, Guard, Progress};
use crate::forget::notice;
use crate::journal::{Journal, seal};
use crate::options::Options;
use crate::sqlite::Sqlite;

/// Before the path of a backup, among the store's own small values.
const BACKUP: &str = "backup ";

/// What is kept of a backup that came to nothing.
const NONE: &[u8] = b"none";

impl Journal {
    /// Copies everything to a new SQLite file, which can be opened as a store.
    pub async fn backup(&self, to: &Path, progress: Progress<'_>) -> Result<(), StoreError> {
        let to = std::path::absolute(to)
            .map_err(|error| StoreError::invalid(format!("{}: {error}", to.display())))?;
        let name = format!("{BACKUP}{}", to.display());
        // It is remembered before there is anything in it: what is forgotten meanwhile is not forgotten there, and
        // whoever forgets is told.
        let known = self.backend.kept(&name).await?.into_iter().find(|(found, _)| *found == name);
        self.backend.replace(&name, Bytes::new()).await?;
        let copied = self.backend.backup(to, progress).await;
        if copied.is_err() && known.is_none_or(|(_, value)| value == NONE) {
            self.backend.replace(&name, Bytes::from_static(NONE)).await?;
        }
        copied
    }

    /// Destroys the same contents in every backup that can be reached, and says so there too; gives those that cannot.
    pub(crate) async fn erase_in_backups(
        &self,
        tenant: &Tenant,
        erases: &[Erase],
        kind: &str,
    ) -> Result<Vec<Name>, StoreError> {
        let mut unreached = Vec::new();
        let backups = self.backend.kept(BACKUP).await?;
        for (name, _) in backups.into_iter().filter(|(_, value)| value != NONE) {
            let path = PathBuf::from(name.strip_prefix(BACKUP).unwrap_or(&name));
            if self.erase_in(&path, tenant, erases, kind).await.is_err() {
                unreached.push(Name::from(path.display().to_string()));
            }
        }
        Ok(unreached)
    }

    async fn erase_in(
        &self,
        path: &Path,
        tenant: &Tenant,
        erases: &[Erase],
        kind: &str,
    ) -> Result<(), StoreError> {
        let options = Options { create: false, ..Options::default() };
        let backup = Sqlite::open(path, &options, Name::from("backup")).await?;
        let outcome = self.erase_from(&backup, tenant, erases, kind).await;
        let closed = backup.close().await;
        outcome.and(closed)
    }

    async fn erase_from(
        &self,
        backup: &Sqlite,
        tenant: &Tenant,
        erases: &[Erase],
        kind: &str,
    ) -> Result<(), StoreError> {
        // Another store may lie there by now, and nothing of it is to be destroyed.
        let first = backup.manifests(i64::MIN, 1).await?;
        if !first.iter().all(|(_, manifest)| manifest.is_signed_by(&self.signer.store())) {
            return Err(StoreError::invalid("it is a backup of another store"));
        }
        // The copy may be older than the logs: what is not in it need not be destroyed there.
        // It may know other epochs of the master key; that something was destroyed is no secret.
        let keys = self.keys.without_master();
        for erase in erases {
            if backup.log(tenant, &erase.log).await?.is_none() {
                continue;
            }
            let append = Append::to(erase.log.clone()).record(notice(erase, kind));
            let mut sealed = seal(&keys, Batch::of(tenant.clone()).append(append))?;
            sealed.erases = vec![erase.clone()];
            for append in &mut sealed.appends {
                append.guard = Guard::Operator;
            }
            backup.commit(sealed).await?;
        }
        backup.scrub().await
    }
}
