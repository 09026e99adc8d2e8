//! Writes a client's configuration files, with a backup beside each file, and undoes the change.
//!
//! A record beside the file states whether the file existed and which bytes were written. `--undo`
//! restores the former bytes only if the file still has these bytes, or with `--force`, which keeps
//! a copy of the changed file. The backup and the record stay until `--undo`, so that further
//! writes keep the state before the first one.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::print::failure::{Failure, Result};

use super::plan::{PlannedFile, read};

/// Permissions of a file that contains a key.
pub(crate) const PRIVATE: u32 = 0o600;
/// Permissions of a new file without a key.
const USUAL: u32 = 0o644;
/// Maximum number of symbolic links that lead to a file.
const MOST_LINKS: usize = 40;
/// Bits of the permissions that are kept.
const MODE_BITS: u32 = 0o7777;

/// The state before a write and the written bytes, for `--undo`.
#[derive(Debug, Deserialize, Serialize)]
struct UndoRecord {
    client: String,
    /// Permissions of the former file; `None` if the file did not exist.
    mode: Option<u32>,
    /// Digest of the bytes that were written.
    sha256: String,
}

impl UndoRecord {
    /// Returns the record after the same file, which now contains `now`, is written again.
    fn after_another_write(self, now: Option<&[u8]>, bytes: &[u8]) -> Self {
        // If another program changed the file, its change is part of the new file. The digest then
        // stays as it is, so that `--undo` refuses to remove the change.
        let is_changed = now.is_some_and(|now| digest(now) != self.sha256);
        if is_changed { self } else { Self { sha256: digest(bytes), ..self } }
    }
}

/// The backup of a written file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FileBackup {
    /// The file did not exist before the first write.
    NewFile,
    Kept(PathBuf),
    /// The user deleted the backup of an earlier write.
    Missing(PathBuf),
}

/// Writes a file, its backup and its record.
pub(crate) fn write(client: &str, planned: &PlannedFile) -> Result<FileBackup> {
    let path = real_path(&planned.path);
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let bytes = planned.text.as_bytes();
    let former_mode = mode(&path)?;
    let record = match earlier_record(&path, planned.former.as_deref())? {
        Some(record) => record.after_another_write(planned.former.as_deref(), bytes),
        None => {
            if let Some(former) = &planned.former {
                replace(&backup_path(&path), former, PRIVATE)?;
            }
            UndoRecord { client: client.to_owned(), mode: former_mode, sha256: digest(bytes) }
        }
    };
    let text = serde_json::to_vec(&record).context("cannot format the undo record")?;
    let mode = if planned.is_private { PRIVATE } else { former_mode.unwrap_or(USUAL) };
    // The record comes first: if the process stops in between, `--undo` refuses to overwrite.
    replace(&record_path(&path), &text, PRIVATE)?;
    replace(&path, bytes, mode)?;
    let backup = backup_path(&path);
    Ok(match record.mode {
        None => FileBackup::NewFile,
        Some(_) if backup.exists() => FileBackup::Kept(backup),
        Some(_) => FileBackup::Missing(backup),
    })
}

/// Returns the record of an earlier write that was not undone. The backup of that write is the only
/// copy of the former file.
fn earlier_record(path: &Path, now: Option<&[u8]>) -> Result<Option<UndoRecord>> {
    let Some(record) = read_record(&record_path(path))? else { return Ok(None) };
    let is_undone_by_hand = match (record.mode, read(&backup_path(path))?) {
        (None, _) => now.is_none(),
        (Some(_), Some(backup)) => now == Some(&*backup),
        (Some(_), None) => now.is_none_or(|now| digest(now) != record.sha256),
    };
    Ok(Some(record).filter(|_| !is_undone_by_hand))
}

/// The result of an undo.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UndoneFile {
    pub(crate) path: PathBuf,
    /// Whether the former file was restored. A file that did not exist was removed.
    pub(crate) is_restored: bool,
    /// Copy of a file that was changed after `--write`.
    pub(crate) changed: Option<PathBuf>,
}

/// A file that can be undone.
struct PlannedUndo {
    undone: UndoneFile,
    real: PathBuf,
    /// Former content and permissions; `None` if the file did not exist.
    former: Option<(Vec<u8>, u32)>,
    current: Option<Vec<u8>>,
}

/// Restores the former state of the files. If one of the files was changed, the function changes
/// nothing, unless `is_forced` is true: it then keeps a copy of the changed file.
pub(crate) fn undo(client: &str, paths: &[PathBuf], is_forced: bool) -> Result<Vec<UndoneFile>> {
    let mut plans = Vec::new();
    for shown in paths {
        let real = real_path(shown);
        let Some(record) = read_record(&record_path(&real))? else { continue };
        if record.client != client {
            continue;
        }
        let former = match record.mode {
            Some(mode) => Some((read_backup(client, &real)?, mode)),
            None => None,
        };
        let current = read(&real)?;
        let is_restored = current.as_deref() == former.as_ref().map(|(bytes, _)| bytes.as_slice());
        let is_ours = current.as_deref().is_some_and(|now| digest(now) == record.sha256);
        let is_changed = !is_ours && !is_restored;
        if is_changed && !is_forced {
            return Err(changed(client, &real, former.is_some()));
        }
        let undone = UndoneFile {
            path: shown.clone(),
            is_restored: former.is_some(),
            changed: (is_changed && current.is_some()).then(|| changed_path(&real)),
        };
        plans.push(PlannedUndo { undone, real, former, current });
    }
    if plans.is_empty() {
        return Err(Failure::Usage(format!(
            "there is nothing to undo: `throughline connect {client} --write` has not changed a \
             file, or the change was already undone"
        )));
    }
    let undone = plans.into_iter().map(|plan| {
        if let (Some(copy), Some(current)) = (&plan.undone.changed, &plan.current) {
            replace(copy, current, PRIVATE)?;
        }
        restore(&plan.real, plan.former)?;
        Ok(plan.undone)
    });
    undone.collect()
}

/// Reads the backup of a file that existed before `--write`.
fn read_backup(client: &str, path: &Path) -> Result<Vec<u8>> {
    let backup = backup_path(path);
    read(&backup)?.ok_or_else(|| {
        let (path, backup, record) = (path.display(), backup.display(), record_path(path));
        let record = record.display();
        Failure::Usage(format!(
            "cannot undo the change of {path}, because its backup {backup} is missing: remove the \
             settings that `throughline connect {client} --print` lists, and delete {record}"
        ))
    })
}

/// Restores the former content and permissions of a file, or removes a file that did not exist.
fn restore(path: &Path, former: Option<(Vec<u8>, u32)>) -> Result<()> {
    match former {
        Some((bytes, mode)) => replace(path, &bytes, mode)?,
        None => remove(path)?,
    }
    remove(&record_path(path))?;
    remove(&backup_path(path))
}

/// The failure for a file that was changed after `--write`.
fn changed(client: &str, path: &Path, has_backup: bool) -> Failure {
    let effect = if has_backup {
        format!("restores the former file from {}", backup_path(path).display())
    } else {
        "removes the file, which did not exist before".to_owned()
    };
    Failure::Usage(format!(
        "{} was changed after connect wrote it, so undoing would lose that change: `throughline \
         connect {client} --undo --force` {effect}, and keeps the changed file as {}",
        path.display(),
        changed_path(path).display()
    ))
}

/// Follows symbolic links, so that their target is replaced and the links remain. A link
/// may lead to a file that does not exist yet.
fn real_path(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        if let Ok(real) = path.canonicalize() {
            return real;
        }
        let Ok(target) = fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new(".")).join(target);
    }
    path
}

fn backup_path(path: &Path) -> PathBuf {
    with_suffix(path, ".throughline-backup")
}

fn record_path(path: &Path) -> PathBuf {
    with_suffix(path, ".throughline-undo.json")
}

/// The copy of a changed file that `--undo --force` keeps.
fn changed_path(path: &Path) -> PathBuf {
    with_suffix(path, ".throughline-changed")
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn read_record(path: &Path) -> Result<Option<UndoRecord>> {
    let Some(bytes) = read(path)? else { return Ok(None) };
    let record = serde_json::from_slice(&bytes).map_err(|error| {
        let path = path.display();
        Failure::BadData(format!("{path} is not a record of `throughline connect`: {error}"))
    })?;
    Ok(Some(record))
}

fn mode(path: &Path) -> Result<Option<u32>> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata.permissions().mode() & MODE_BITS)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::unreadable(&format!("cannot read {}", path.display()), &error)),
    }
}

/// Replaces a file atomically. The new file never has wider permissions than `mode`.
pub(crate) fn replace(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let write = || -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut draft = tempfile::NamedTempFile::new_in(folder)?;
        draft.write_all(bytes)?;
        draft.as_file().set_permissions(Permissions::from_mode(mode))?;
        draft.as_file().sync_all()?;
        draft.persist(path).map_err(|error| error.error)?;
        Ok(())
    };
    Ok(write().with_context(|| format!("cannot write {}", path.display()))?)
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(anyhow::Error::new(error)
            .context(format!("cannot remove {}", path.display()))
            .into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Returns the SHA-256 digest in hexadecimal digits.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let digits =
        |byte: &u8| [byte >> 4, byte & 0xf].map(|digit| char::from_digit(digit.into(), 16));
    Sha256::digest(bytes).iter().flat_map(digits).flatten().collect()
}
