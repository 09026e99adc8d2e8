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
use throughline_core::{
    Append, Batch, LogHead, LogId, Name, Node, StoreError, Tenant, Tree, json, kind,
};

use crate::backend::{Backend, Erase, Erased, Guard, Progress, Span};
use crate::backups::file::NewBackup;
use crate::backups::keys::{Owner, beside};
use crate::cipher;
use crate::forget::{notice, put_erase};
use crate::journal::{Journal, seal};
use crate::keys::Keys;
use crate::manifest::hex;
use crate::options::Options;
use crate::sqlite::{Reserve, Sqlite};

pub use crate::backups::restore::{Restored, restore};

/// Begins the name of a backup's registration, among the store's own small values: `backup ID FILE`. Earlier versions wrote
/// `backup FILE`, so that a new backup with the same path replaced the registration of the one before it.
const BACKUP: &str = "backup ";

/// Begins the value of a registration whose key file was written, and of one whose key file is being written.
const KEYS: &str = "keys";
const MAKING: &str = "making";

/// The registration of a backup that failed, as earlier versions left it.
const NONE: &[u8] = b"none";

/// Before a note of what was destroyed and may still lie in some file.
const DESTROYED: &str = "destroyed ";

/// Before a note of what was destroyed and still lies in a backup that could not be reached.
const UNREACHED: &str = "unreached ";

/// Where the key file of a backup lies, unless another place is named.
pub fn key_file_of(backup: &Path) -> PathBuf {
    beside(backup, ".keys")
}

/// A backup that the store remembers.
struct Registration {
    /// The name of the small value.
    name: String,
    file: PathBuf,
    /// The id of the backup and the path of its key file. A backup of schema version 1 has none.
    keys: Option<(Name, PathBuf)>,
    /// Whether the key file was written. Before that, the value begins with `making` instead of `keys`.
    is_made: bool,
}

impl Registration {
    /// The name of the small value that registers a backup.
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

    /// What forgetting must reach: the key file, or the backup itself if that holds its salts.
    fn holder(&self) -> &Path {
        self.keys.as_ref().map_or(&*self.file, |(_, keys)| keys)
    }
}

/// The same path from the root.
fn absolute(path: &Path) -> Result<PathBuf, StoreError> {
    let failed = |error| StoreError::invalid(format!("{}: {error}", path.display()));
    std::path::absolute(path).map_err(failed)
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
        let (file, keys) = (absolute(to)?, absolute(keys)?);
        if let Some(path) = [&file, &keys].into_iter().find(|path| path.exists()) {
            return Err(crate::refusal::backup_exists(path));
        }
        if file == keys {
            let problem = "the key file must be another file than the backup";
            return Err(StoreError::invalid(problem));
        }
        let backup = Name::from(hex(&cipher::random::<16>()?));
        let owner = Owner { backup, store: self.signer.store().into() };
        let plan = NewBackup { file, keys, owner };
        let name = Registration::name_of(&plan);
        let made = Registration::value(KEYS, &plan.owner.backup, &plan.keys);
        let making = Registration::value(MAKING, &plan.owner.backup, &plan.keys);
        // It is remembered before there is anything in it: what is forgotten meanwhile is not forgotten there, and
        // whoever forgets is told.
        self.backend.replace(&name, making).await?;
        let copied = self.backend.backup(plan, progress).await;
        if copied.is_err() {
            self.backend.discard(&name).await?;
        } else {
            self.backend.replace(&name, made).await?;
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
        for registration in self.registrations().await? {
            let reached = match &registration.keys {
                Some((id, keys)) => match self.rewrite_keys(keys, id, &notes).await {
                    Err(_) if self.holds_nothing(&registration).await? => Ok(()),
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

    /// The backups that the store remembers.
    async fn registrations(&self) -> Result<Vec<Registration>, StoreError> {
        let kept = self.backend.kept(BACKUP).await?;
        Ok(kept.into_iter().filter_map(|(name, value)| Registration::parse(name, &value)).collect())
    }

    /// Forgets all backups, and what is left to destroy in them. They belong to the store from which this one was restored.
    async fn discard_registrations(&self) -> Result<(), StoreError> {
        for begins in [BACKUP, DESTROYED, UNREACHED] {
            for (name, _) in self.backend.kept(begins).await? {
                self.backend.discard(&name).await?;
            }
        }
        Ok(())
    }

    /// Remembers the new place of a backup's key file, and removes from it what was forgotten since it could not be
    /// reached. Returns the key files that cannot be reached.
    pub async fn register_keys(&self, keys: &Path) -> Result<Vec<Name>, StoreError> {
        let keys = absolute(keys)?;
        let owner = keys::owner_of(&keys)?;
        let is_its = |registration: &Registration| {
            registration.keys.as_ref().is_some_and(|(id, _)| *id == owner.backup)
        };
        let found = self.registrations().await?.into_iter().find(is_its);
        let Some(registration) = found.filter(|_| *owner.store == *self.signer.store()) else {
            let problem = format!("{} belongs to no backup of this store", keys.display());
            return Err(StoreError::invalid(problem));
        };
        let value = Registration::value(KEYS, &owner.backup, &keys);
        self.backend.replace(&registration.name, value).await?;
        self.finish_destroying().await
    }

    /// No longer remembers the backups whose key file was at that path and is not there any more; nor a backup of schema
    /// version 1 that was at that path. Returns the key files that still cannot be reached.
    pub async fn unregister_keys(&self, keys: &Path) -> Result<Vec<Name>, StoreError> {
        let path = absolute(keys)?;
        let mut registered = self.registrations().await?;
        registered.retain(|registration| registration.holder() == path);
        if registered.is_empty() {
            let problem = format!("{} is the key file of no registered backup", path.display());
            return Err(StoreError::invalid(problem));
        }
        // The key file of a later backup may have taken the path.
        let owner = if path.exists() { Some(keys::owner_of(&path)?) } else { None };
        registered.retain(|Registration { keys, .. }| match (keys, &owner) {
            (Some((id, _)), Some(owner)) => *id != owner.backup,
            (_, None) => true,
            (None, Some(_)) => false,
        });
        if registered.is_empty() {
            let problem = format!(
                "{} is there, and forgetting reaches it: delete it before it is unregistered",
                path.display()
            );
            return Err(StoreError::invalid(problem));
        }
        for registration in registered {
            self.backend.discard(&registration.name).await?;
        }
        self.finish_destroying().await
    }

    /// Whether a backup without a key file was never made. The files and the registration of one whose process was killed
    /// are removed. One without files was interrupted, or begins now and will not copy what was destroyed before.
    async fn holds_nothing(&self, registration: &Registration) -> Result<bool, StoreError> {
        let Some((id, keys)) = registration.keys.clone() else { return Ok(false) };
        let owner = Owner { backup: id, store: self.signer.store().into() };
        let (file, is_made) = (registration.file.clone(), registration.is_made);
        let looking = tokio::task::spawn_blocking(move || {
            let is_abandoned = keys::remove_abandoned(&file, &keys, &owner);
            let has_files = keys.exists() || keys::part_of(&keys).exists();
            (is_abandoned, !is_made && !has_files)
        });
        let (is_abandoned, is_unmade) = looking.await.map_err(|_| StoreError::Closed)?;
        if is_abandoned {
            self.backend.discard(&registration.name).await?;
        }
        Ok(is_abandoned || is_unmade)
    }

    /// Removes the salts that the store has no more from the key file of a backup.
    async fn rewrite_keys(
        &self,
        path: &Path,
        backup: &Name,
        notes: &[(String, Bytes)],
    ) -> Result<(), StoreError> {
        let owner = Owner { backup: backup.clone(), store: self.signer.store().into() };
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
        let backup = Sqlite::open(path, &options, writer, Reserve::Without).await?;
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
        let Some(head) = copy.log(tenant, &erase.log).await? else { continue };
        if is_erased(copy, tenant, &head, erase).await? {
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

/// Whether all of it was destroyed before.
async fn is_erased(
    copy: &Sqlite,
    tenant: &Tenant,
    head: &LogHead,
    erase: &Erase,
) -> Result<bool, StoreError> {
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
