//! Backups: copies of everything, made while others read and write. The store remembers where they lie, so that what is
//! forgotten is forgotten there too.
//!
//! Whoever destroys contents keeps a note of them in the same transaction, until no file and no backup that can be reached
//! holds them. So whoever comes after a process that ended half-way finishes what it began.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use throughline_core::{Append, Batch, LogId, Name, Node, StoreError, Tenant, Tree, json, kind};

use crate::backend::{Backend, Erase, Erased, Guard, Progress};
use crate::cipher;
use crate::forget::{notice, put_erase};
use crate::journal::{Journal, seal};
use crate::manifest::hex;
use crate::options::Options;
use crate::sqlite::Sqlite;

/// Before the path of a backup, among the store's own small values.
const BACKUP: &str = "backup ";

/// What is kept of a backup that came to nothing.
const NONE: &[u8] = b"none";

/// Before a note of what was destroyed and may still lie in some file.
const DESTROYED: &str = "destroyed ";

/// Before a note of what was destroyed and still lies in a backup that could not be reached.
const UNREACHED: &str = "unreached ";

impl Journal {
    /// Copies everything to a new SQLite file, which can be opened as a store.
    pub async fn backup(&self, to: &Path, progress: Progress<'_>) -> Result<(), StoreError> {
        // What cannot be finished now is left to who comes next: it is not in the copy.
        drop(self.finish_destroying().await);
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

    /// Sees to it that no file and no backup holds what was destroyed, by whichever process; gives the backups that cannot
    /// be reached.
    pub(crate) async fn finish_destroying(&self) -> Result<Vec<Name>, StoreError> {
        let fresh = self.backend.kept(DESTROYED).await?;
        if !fresh.is_empty() {
            self.backend.scrub().await?;
        }
        let mut unreached = Vec::new();
        for (name, note) in self.backend.kept(UNREACHED).await?.into_iter().chain(fresh) {
            let damaged = || StoreError::Corrupt("a note of what was destroyed is damaged".into());
            let (tenant, erases, kind) = read_note(&note).ok_or_else(damaged)?;
            let missed = self.erase_in_backups(&tenant, &erases, &kind).await?;
            let later = name.strip_prefix(DESTROYED).map(|id| format!("{UNREACHED}{id}"));
            match (missed.is_empty(), later) {
                // It is tried again by whoever comes next.
                (false, None) => {}
                (false, Some(later)) => {
                    self.backend.replace(&later, note).await?;
                    self.backend.discard(&name).await?;
                }
                (true, _) => self.backend.discard(&name).await?,
            }
            unreached.extend(missed);
        }
        unreached.sort();
        unreached.dedup();
        Ok(unreached)
    }

    /// Destroys the same contents in every backup that can be reached, and says so there too; gives those that cannot.
    async fn erase_in_backups(
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
        // Two who forget at once are two writers, each with a chain of its own.
        let writer = Name::from(format!("backup {}", hex(&cipher::random::<8>()?)));
        let backup = Sqlite::open(path, &options, writer).await?;
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
        backup.protect(self.keys.backup_protection()).await?;
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

fn read_note(note: &Bytes) -> Option<(Tenant, Vec<Erase>, Name)> {
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
