//! Backups: copies of everything, made while others read and write.
//!
//! A backup is two files: an SQLite file that holds everything but the salts, and a key file that holds those. The store
//! remembers where the key files lie and rewrites them when it forgets, so that forgetting reaches every copy of the backup
//! itself. [`restore`] makes a store of both. Backups of earlier versions hold their salts themselves, and what is forgotten is
//! destroyed in the registered file only.
//!
//! Whoever destroys contents keeps a note of them in the same transaction, until no file and no backup that can be reached
//! holds them. So whoever comes after a process that ended half-way finishes what it began.

pub(crate) mod file;
pub(crate) mod keys;
mod restore;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use throughline_core::{Append, Batch, LogId, Name, Node, StoreError, Tenant, Tree, json, kind};

use crate::backend::{Backend, Erase, Erased, Guard, Progress};
use crate::backups::file::NewBackup;
use crate::backups::keys::{Owner, beside};
use crate::cipher;
use crate::forget::{notice, put_erase};
use crate::journal::{Journal, seal};
use crate::keys::Keys;
use crate::manifest::hex;
use crate::options::Options;
use crate::sqlite::Sqlite;

pub use crate::backups::restore::{Restored, restore};

/// Before the path of a backup, among the store's own small values.
const BACKUP: &str = "backup ";

/// What is kept of a backup that came to nothing.
const NONE: &[u8] = b"none";

/// Before a note of what was destroyed and may still lie in some file.
const DESTROYED: &str = "destroyed ";

/// Before a note of what was destroyed and still lies in a backup that could not be reached.
const UNREACHED: &str = "unreached ";

/// Where the key file of a backup lies, unless another place is named.
pub fn key_file_of(backup: &Path) -> PathBuf {
    beside(backup, ".keys")
}

/// What the store remembers of a backup: its id, and where its key file lies. A backup of an earlier version has none.
fn registration(plan: &NewBackup) -> Bytes {
    Bytes::from(format!("keys {} {}", plan.owner.backup, plan.keys.display()))
}

fn registered(value: &[u8]) -> Option<(Name, PathBuf)> {
    let text = std::str::from_utf8(value).ok()?.strip_prefix("keys ")?;
    let (id, path) = text.split_once(' ')?;
    Some((id.into(), PathBuf::from(path)))
}

impl Journal {
    /// Copies everything to a new file, whose key file lies beside it: see [`key_file_of`].
    pub async fn backup(&self, to: &Path, progress: Progress<'_>) -> Result<(), StoreError> {
        self.backup_with_keys(to, &key_file_of(to), progress).await
    }

    /// Copies everything to a new file, without the salts and the store's secret, which go to a key file of their own.
    /// [`restore`] makes a store of both.
    pub async fn backup_with_keys(
        &self,
        to: &Path,
        keys: &Path,
        progress: Progress<'_>,
    ) -> Result<(), StoreError> {
        // What cannot be finished now is left to who comes next: it is not in the copy.
        drop(self.finish_destroying().await);
        let absolute = |path: &Path| {
            let failed = |error| StoreError::invalid(format!("{}: {error}", path.display()));
            std::path::absolute(path).map_err(failed)
        };
        let (file, keys) = (absolute(to)?, absolute(keys)?);
        if let Some(path) = [&file, &keys].into_iter().find(|path| path.exists()) {
            return Err(crate::refusal::backup_exists(path));
        }
        if file == keys {
            let problem = "the key file must be another file than the backup";
            return Err(StoreError::invalid(problem));
        }
        let name = format!("{BACKUP}{}", file.display());
        let known = self.backend.kept(&name).await?.into_iter().find(|(found, _)| *found == name);
        let backup = Name::from(hex(&cipher::random::<16>()?));
        let owner = Owner { backup, store: self.signer.store().into() };
        let plan = NewBackup { file, keys, owner };
        // It is remembered before there is anything in it: what is forgotten meanwhile is not forgotten there, and
        // whoever forgets is told.
        self.backend.replace(&name, registration(&plan)).await?;
        let copied = self.backend.backup(plan, progress).await;
        if copied.is_err() {
            let before = known.map_or_else(|| Bytes::from_static(NONE), |(_, value)| value);
            self.backend.replace(&name, before).await?;
        } else {
            // What was forgotten while it was made is still in its key file.
            drop(self.finish_destroying().await);
        }
        copied
    }

    /// Sees to it that no file and no backup holds what was destroyed, by whichever process; gives the key files and the
    /// backups that cannot be reached.
    pub(crate) async fn finish_destroying(&self) -> Result<Vec<Name>, StoreError> {
        let fresh = self.backend.kept(DESTROYED).await?;
        if !fresh.is_empty() {
            self.backend.scrub().await?;
        }
        let notes: Vec<_> = self.backend.kept(UNREACHED).await?.into_iter().chain(fresh).collect();
        if notes.is_empty() {
            return Ok(Vec::new());
        }
        let mut unreached = Vec::new();
        for (name, value) in self.backend.kept(BACKUP).await? {
            if value == NONE {
                continue;
            }
            let file = PathBuf::from(name.strip_prefix(BACKUP).unwrap_or(&name));
            let (path, reached) = match registered(&value) {
                Some((id, keys)) => {
                    let reached = self.rewrite_keys(&keys, id, &notes).await;
                    (keys, reached)
                }
                None => {
                    let reached = self.erase_in(&file, &notes).await;
                    (file, reached)
                }
            };
            if reached.is_err() {
                unreached.push(Name::from(path.display().to_string()));
            }
        }
        unreached.sort();
        unreached.dedup();
        for (name, note) in notes {
            let later = name.strip_prefix(DESTROYED).map(|id| format!("{UNREACHED}{id}"));
            match (unreached.is_empty(), later) {
                // It is tried again by whoever comes next.
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

    /// Removes the salts that the store has no more from the key file of a backup.
    async fn rewrite_keys(
        &self,
        path: &Path,
        backup: Name,
        notes: &[(String, Bytes)],
    ) -> Result<(), StoreError> {
        let owner = Owner { backup, store: self.signer.store().into() };
        let id = |name: &str| {
            let id = name.strip_prefix(DESTROYED).or_else(|| name.strip_prefix(UNREACHED));
            Name::from(id.unwrap_or(name))
        };
        let notes: Vec<_> = notes.iter().map(|(name, note)| (id(name), note.clone())).collect();
        keys::rewrite(&self.backend, path, &owner, &notes).await
    }

    /// Destroys the same contents in a backup of an earlier version, which holds its salts itself.
    async fn erase_in(&self, path: &Path, notes: &[(String, Bytes)]) -> Result<(), StoreError> {
        let options = Options { create: false, ..Options::default() };
        // Two who forget at once are two writers, each with a chain of its own.
        let writer = Name::from(format!("backup {}", hex(&cipher::random::<8>()?)));
        let backup = Sqlite::open(path, &options, writer).await?;
        let outcome = async {
            // Another store may lie there by now, and nothing of it is to be destroyed.
            let first = backup.manifests(i64::MIN, 1).await?;
            if !first.iter().all(|(_, manifest)| manifest.is_signed_by(&self.signer.store())) {
                return Err(StoreError::invalid("it is a backup of another store"));
            }
            backup.protect(self.keys.backup_protection()).await?;
            // It may know other epochs of the master key; that something was destroyed is no secret.
            let keys = self.keys.without_master();
            for (_, note) in notes {
                let (tenant, erases, kind) = read_note(note)?;
                erase_from(&backup, &keys, &tenant, &erases, &kind).await?;
            }
            backup.scrub().await
        };
        let outcome = outcome.await;
        let closed = backup.close().await;
        outcome.and(closed)
    }
}

/// Destroys contents in a copy of the store, and says so there. The copy may be older than the logs: what is not in it need not
/// be destroyed there.
async fn erase_from(
    copy: &Sqlite,
    keys: &Keys,
    tenant: &Tenant,
    erases: &[Erase],
    kind: &str,
) -> Result<(), StoreError> {
    for erase in erases {
        if copy.log(tenant, &erase.log).await?.is_none() {
            continue;
        }
        let append = Append::to(erase.log.clone()).record(notice(erase, kind));
        let mut sealed = seal(keys, Batch::of(tenant.clone()).append(append))?;
        sealed.erases = vec![erase.clone()];
        for append in &mut sealed.appends {
            append.guard = Guard::Operator;
        }
        copy.commit(sealed).await?;
    }
    Ok(())
}

/// What is kept until what was destroyed lies nowhere any more: a name of its own, and what it was.
pub(crate) fn note(
    tenant: &Tenant,
    erases: &[Erase],
    kind: &str,
) -> Result<(String, Bytes), StoreError> {
    let note = json::object(|note| {
        note.string("tenant", &tenant.0).string("kind", kind);
        note.array("logs", |list| {
            for erase in erases {
                list.object(|entry| {
                    entry.string("log", &erase.log.0);
                    put_erase(entry, erase);
                });
            }
        });
    });
    let name = format!("{DESTROYED}{}", hex(&cipher::random::<8>()?));
    Ok((name, note.bytes().clone()))
}

fn read_note(note: &Bytes) -> Result<(Tenant, Vec<Erase>, Name), StoreError> {
    let damaged = || StoreError::Corrupt("a note of what was destroyed is damaged".into());
    parse_note(note).ok_or_else(damaged)
}

fn parse_note(note: &Bytes) -> Option<(Tenant, Vec<Erase>, Name)> {
    let tree = Tree::parse(note.clone()).ok()?;
    let root = tree.root();
    let kind = root.name_of("kind")?;
    let why = match &*kind {
        kind::FORGOTTEN => Erased::Forgotten,
        kind::EXPIRED => Erased::Expired,
        _ => return None,
    };
    let erase = |entry: Node<'_>| {
        let log = LogId(entry.name_of("log")?);
        let Some(seqs) = entry.get("seqs") else { return Some(Erase::all(log, why)) };
        let seqs = seqs.elements().map(Node::u64).collect::<Option<_>>()?;
        let checkpoints = entry.get("checkpoints").and_then(Node::bool).unwrap_or(false);
        Some(Erase { checkpoints, ..Erase::records(log, seqs, why) })
    };
    let erases = root.get("logs")?.elements().map(erase).collect::<Option<_>>()?;
    Some((Tenant(root.name_of("tenant")?), erases, kind))
}
