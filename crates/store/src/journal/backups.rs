//! Complete backups, which can be made while other processes read and write.
//!
//! A backup consists of two files: an SQLite file with everything except the salts, and a key file
//! with the salts. The store records the paths of the key files and rewrites these files when it
//! forgets, so forgetting also covers every copy of the backup file. [`restore`](crate::restore)
//! builds a store from both files. Backups of earlier versions contain their salts, so forgetting
//! covers only the registered file and no copies of it.
//!
//! When content is destroyed, a note is written in the same transaction. The note stays until the
//! content is gone from all files and all reachable backups. A later process therefore completes an
//! interrupted erasure.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{Append, Batch, LogHead, Tenant};
use throughline_json::Name;
use tokio::runtime::Handle;

use crate::backend::Backend;
use crate::backup_files::key_file::{self, BackupOwner};
use crate::backup_files::{NewBackup, key_file_of};
use crate::cipher;
use crate::files::part_of;
use crate::hex::hex;
use crate::journal::Journal;
use crate::journal::erasure_note::{DESTROYED, UNREACHED, notice, read_note};
use crate::journal::seal::seal_as_operator;
use crate::keys::Keys;
use crate::options::Options;
use crate::query::{Progress, Span};
use crate::rejection::{Result, invalid};
use crate::sealed_batch::Erasure;
use crate::sqlite::{self, Reserve, Sqlite};
use crate::sync::blocking;

/// Name prefix of the internal value that registers a backup: `backup ID FILE`. Earlier versions
/// wrote `backup FILE`, so a new backup at the same path replaced the previous registration.
const BACKUP: &str = "backup ";

/// First word of a registration's value: `keys` once the key file is complete, `making` until then.
const KEYS: &str = "keys";
const MAKING: &str = "making";

/// The value that earlier versions wrote to register a failed backup.
const NONE: &[u8] = b"none";

/// A backup registered in the store.
struct Registration {
    /// Name of the internal value that holds this registration.
    name: String,
    file: PathBuf,
    /// The backup's id and the path of its key file. `None` for a backup of schema version 1, which
    /// has no key file.
    keys: Option<(Name, PathBuf)>,
    /// Whether the key file is complete.
    is_made: bool,
}

impl Registration {
    /// Returns the name of the internal value that registers a backup.
    fn name_of(plan: &NewBackup) -> String {
        format!("{BACKUP}{} {}", plan.owner.backup, plan.file.display())
    }

    fn value(state: &str, id: &str, keys: &Path) -> Bytes {
        Bytes::from(format!("{state} {id} {}", keys.display()))
    }

    fn parse(name: String, value: &[u8]) -> Option<Self> {
        if value == NONE {
            return None;
        }
        let mut is_made = true;
        let keys = std::str::from_utf8(value).ok().and_then(|text| {
            let (state, rest) = text.split_once(' ')?;
            is_made = state != MAKING;
            let (id, path) = rest.split_once(' ').filter(|_| state == KEYS || !is_made)?;
            Some((Name::from(id), PathBuf::from(path)))
        });
        let rest = name.strip_prefix(BACKUP)?;
        let with_id = keys.as_ref().and_then(|(id, _)| rest.strip_prefix(&**id)?.strip_prefix(' '));
        let file = PathBuf::from(with_id.unwrap_or(rest));
        Some(Self { name, file, keys, is_made })
    }

    /// Returns the file that forgetting must rewrite: the key file, or the backup itself if it
    /// contains its salts.
    fn holder(&self) -> &Path {
        self.keys.as_ref().map_or(&*self.file, |(_, keys)| keys)
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    let failed = |error| invalid!("{}: {error}", path.display());
    std::path::absolute(path).map_err(failed)
}

impl Journal {
    /// Backs up the store to the new file `to`, with the key file at its default path: see
    /// [`key_file_of`].
    pub async fn backup(&self, to: &Path, progress: Progress<'_>) -> Result<()> {
        self.backup_with_keys(to, &key_file_of(to), progress).await
    }

    /// Backs up the store to two files. The salts and the store's secret go to the separate key
    /// file `keys`, and everything else goes to `to`. [`restore`](crate::restore) builds a store
    /// from both files.
    pub async fn backup_with_keys(
        &self,
        to: &Path,
        keys: &Path,
        progress: Progress<'_>,
    ) -> Result<()> {
        // If the cleanup fails, the next process repeats it. Destroyed content is not copied in any
        // case.
        drop(self.complete_erasures().await);
        let (file, keys) = (absolute(to)?, absolute(keys)?);
        if let Some(path) = [&file, &keys].into_iter().find(|path| path.exists()) {
            return Err(crate::rejection::backup_exists(path));
        }
        if file == keys {
            return Err(invalid!("the key file and the backup must be different files"));
        }
        let backup = Name::from(hex(&cipher::random::<16>()?));
        let owner = BackupOwner { backup, store: self.signer.store().into() };
        let plan = NewBackup { file, keys, owner };
        let name = Registration::name_of(&plan);
        let made = Registration::value(KEYS, &plan.owner.backup, &plan.keys);
        let making = Registration::value(MAKING, &plan.owner.backup, &plan.keys);
        // Register the backup before its files exist. An erasure that runs during the backup cannot
        // reach the backup, and reports that to its caller.
        self.backend.replace(&name, making).await?;
        let copied = sqlite::backup(&*self.backend, plan, progress).await;
        if copied.is_err() {
            self.backend.discard(&name).await?;
        } else {
            self.backend.replace(&name, made).await?;
            // Remove the salts that were forgotten during the backup from the key file.
            drop(self.complete_erasures().await);
        }
        copied
    }

    /// Removes destroyed content from all files and backups, including content that other processes
    /// destroyed. Returns the key files and backups that could not be reached.
    pub(super) async fn complete_erasures(&self) -> Result<Vec<Name>> {
        let fresh = self.backend.values(DESTROYED).await?;
        if !fresh.is_empty() {
            self.backend.scrub().await?;
        }
        let notes: Vec<_> =
            self.backend.values(UNREACHED).await?.into_iter().chain(fresh).collect();
        if notes.is_empty() {
            return Ok(Vec::new());
        }
        let mut unreached = Vec::new();
        for registration in self.registrations().await? {
            let reached = match &registration.keys {
                Some((id, keys)) => match self.rewrite_keys(keys, id, &notes).await {
                    Err(_) if self.was_never_made(&registration).await? => Ok(()),
                    Ok(()) if !registration.is_made => {
                        let made = Registration::value(KEYS, id, keys);
                        self.backend.replace(&registration.name, made).await
                    }
                    reached => reached,
                },
                None => self.erase_in(&registration.file, &notes).await,
            };
            if reached.is_err() {
                unreached.push(Name::from(registration.holder().display().to_string()));
            }
        }
        unreached.sort();
        unreached.dedup();
        for (name, note) in notes {
            let later = name.strip_prefix(DESTROYED).map(|id| format!("{UNREACHED}{id}"));
            match (unreached.is_empty(), later) {
                // The next process that opens the store tries again.
                (false, None) => {}
                (false, Some(later)) => {
                    self.backend.replace(&later, note).await?;
                    self.backend.discard(&name).await?;
                }
                (true, _) => self.backend.discard(&name).await?,
            }
        }
        Ok(unreached)
    }

    async fn registrations(&self) -> Result<Vec<Registration>> {
        let values = self.backend.values(BACKUP).await?;
        Ok(values
            .into_iter()
            .filter_map(|(name, value)| Registration::parse(name, &value))
            .collect())
    }

    /// Deletes all registrations and pending cleanup notes from a restored store, because they
    /// belong to the original store.
    pub(super) async fn discard_registrations(&self) -> Result<()> {
        for begins in [BACKUP, DESTROYED, UNREACHED] {
            for (name, _) in self.backend.values(begins).await? {
                self.backend.discard(&name).await?;
            }
        }
        Ok(())
    }

    /// Registers the new path of a backup's key file, and removes salts that were forgotten while
    /// the file was unreachable. Returns the key files that still cannot be reached.
    pub async fn register_keys(&self, keys: &Path) -> Result<Vec<Name>> {
        let keys = absolute(keys)?;
        let owner = key_file::owner_of(&keys)?;
        let is_owned = |registration: &Registration| {
            registration.keys.as_ref().is_some_and(|(id, _)| *id == owner.backup)
        };
        let found = self.registrations().await?.into_iter().find(is_owned);
        let Some(registration) = found.filter(|_| *owner.store == *self.signer.store()) else {
            return Err(invalid!(
                "{} is not the key file of any backup of this store",
                keys.display()
            ));
        };
        let value = Registration::value(KEYS, &owner.backup, &keys);
        self.backend.replace(&registration.name, value).await?;
        self.complete_erasures().await
    }

    /// Unregisters backups whose key file was at this path and no longer exists. Also unregisters
    /// the schema-version-1 backup that was at this path, if any. Returns the key files that still
    /// cannot be reached.
    pub async fn unregister_keys(&self, keys: &Path) -> Result<Vec<Name>> {
        let path = absolute(keys)?;
        let mut registered = self.registrations().await?;
        registered.retain(|registration| registration.holder() == path);
        if registered.is_empty() {
            return Err(invalid!("no registered backup has the key file {}", path.display()));
        }
        // A later backup may have its key file at the same path.
        let owner = if path.exists() { Some(key_file::owner_of(&path)?) } else { None };
        registered.retain(|Registration { keys, .. }| match (keys, &owner) {
            (Some((id, _)), Some(owner)) => *id != owner.backup,
            (_, None) => true,
            (None, Some(_)) => false,
        });
        if registered.is_empty() {
            return Err(invalid!(
                "{} still exists and is still updated when content is forgotten; delete the file \
                 before you unregister it",
                path.display()
            ));
        }
        for registration in registered {
            self.backend.discard(&registration.name).await?;
        }
        self.complete_erasures().await
    }

    /// Returns whether a registered backup was never completed. If its process was killed, also
    /// removes its files and its registration. If no files exist, the backup was interrupted or has
    /// just begun. A backup that has just begun will not copy content that was destroyed earlier.
    async fn was_never_made(&self, registration: &Registration) -> Result<bool> {
        let Some((id, keys)) = registration.keys.clone() else { return Ok(false) };
        let owner = BackupOwner { backup: id, store: self.signer.store().into() };
        let (file, is_made) = (registration.file.clone(), registration.is_made);
        let (is_abandoned, is_unmade) = blocking(move || {
            let is_abandoned = key_file::remove_abandoned(&file, &keys, &owner);
            let has_files = keys.exists() || part_of(&keys).exists();
            Ok((is_abandoned, !is_made && !has_files))
        })
        .await?;
        if is_abandoned {
            self.backend.discard(&registration.name).await?;
        }
        Ok(is_abandoned || is_unmade)
    }

    /// Removes salts that the store no longer has from a backup's key file.
    async fn rewrite_keys(
        &self,
        path: &Path,
        backup: &Name,
        notes: &[(String, Bytes)],
    ) -> Result<()> {
        let owner = BackupOwner { backup: backup.clone(), store: self.signer.store().into() };
        let id = |name: &str| {
            let id = name.strip_prefix(DESTROYED).or_else(|| name.strip_prefix(UNREACHED));
            Name::from(id.unwrap_or(name))
        };
        let notes: Vec<_> = notes.iter().map(|(name, note)| (id(name), note.clone())).collect();
        let (backend, path) = (Arc::clone(&self.backend), path.to_owned());
        let handle = Handle::current();
        blocking(move || {
            let alive = |after, up_to| handle.block_on(backend.salted(after, up_to));
            key_file::rewrite(&path, &owner, &notes, alive)
        })
        .await
    }

    /// Destroys the content listed in `notes` in a backup of an earlier version, because that
    /// backup contains its salts.
    async fn erase_in(&self, path: &Path, notes: &[(String, Bytes)]) -> Result<()> {
        let options = Options { create: false, ..Options::default() };
        // Each process that erases becomes a separate writer with its own chain.
        let writer = Name::from(format!("backup {}", hex(&cipher::random::<8>()?)));
        let backup = Sqlite::open(path, &options, writer, Reserve::Without).await?;
        let backup: &dyn Backend = &backup;
        let outcome = async {
            // A different store may now be at this path. Nothing in that store may be destroyed.
            let first = backup.manifests(i64::MIN, 1).await?;
            if !first.iter().all(|(_, manifest)| manifest.is_signed_by(&self.signer.store())) {
                return Err(invalid!("the file at this path is a backup of another store"));
            }
            backup.protect(self.keys.backup_protection()).await?;
            // The backup may lack the current master key epoch, so the salts of its erasure records
            // are not wrapped. The fact that content was destroyed is not secret.
            let keys = self.keys.without_master();
            for (_, note) in notes {
                let (tenant, erases) = read_note(note)?;
                erase_from(backup, &keys, &tenant, &erases).await?;
            }
            backup.scrub().await
        };
        let outcome = outcome.await;
        let closed = backup.close().await;
        outcome.and(closed)
    }
}

/// Destroys content in a copy of the store and records the erasure in the copy. Skips logs that the
/// copy does not contain.
async fn erase_from(
    copy: &dyn Backend,
    keys: &Keys,
    tenant: &Tenant,
    erases: &[Erasure],
) -> Result<()> {
    for erase in erases {
        let Some(head) = copy.log(tenant, &erase.log).await? else { continue };
        if is_erased(copy, tenant, &head, erase).await? {
            continue;
        }
        let append = Append::new(erase.log.clone()).record(notice(erase));
        let batch = Batch::new(tenant.clone()).append(append);
        copy.commit(seal_as_operator(keys, batch, vec![erase.clone()])?).await?;
    }
    Ok(())
}

/// Returns whether all content listed in `erase` is already destroyed in the copy.
async fn is_erased(
    copy: &dyn Backend,
    tenant: &Tenant,
    head: &LogHead,
    erase: &Erasure,
) -> Result<bool> {
    let Some(seqs) = &erase.seqs else { return Ok(head.gone.is_some()) };
    for seq in seqs {
        let span = Span { after: seq.saturating_sub(1), up_to: *seq, limit: 1 };
        let rows = copy.rows(tenant, &erase.log, span).await?;
        if rows.first().is_some_and(|row| row.erased.is_none()) {
            return Ok(false);
        }
    }
    Ok(!erase.checkpoints || copy.checkpoint(tenant, &erase.log, u64::MAX).await?.is_none())
}
