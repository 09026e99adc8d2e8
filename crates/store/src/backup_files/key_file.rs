//! The key file of a backup: the salts that decrypt its content, and the store's secret.
//!
//! A backup cannot be opened without its key file. Forgetting rewrites the key file and leaves the
//! backup unchanged, so forgetting covers every copy of the backup. The key file is text with one
//! entry per line:
//!
//! ```text
//! throughline backup keys 1
//! backup ID STORE                 the backup id, and the public key of the store
//! secret HEX                      the store's secret, wrapped if there is a master key
//! salt RECORD EPOCH HEX           one per record whose content can be decrypted
//! forgotten NOTE JSON             content destroyed since the backup, applied by restore
//! end LINES HASH                  the number of preceding lines, and their BLAKE3 hash
//! ```

use std::collections::HashSet;
use std::fs::{File, TryLockError};
use std::io::{self, BufRead as _, BufReader, BufWriter, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use throughline_core::StoreError;
use throughline_json::Name;

use crate::files::{TemporaryFile, create_private, failed, is_same_file, lock, overwrite, part_of};
use crate::hex::{hex, unhex};
use crate::rejection::{Result, corrupt, invalid};
use crate::row::{Salt, SaltRow};

const MAGIC: &str = "throughline backup keys 1";

/// Number of salts that are compared with the store's salts in one step.
const CHUNK: usize = 1024;

/// Identifies the backup and the store that a key file belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BackupOwner {
    /// The random id of the backup.
    pub(crate) backup: Name,
    /// The public key of the store, in hexadecimal digits.
    pub(crate) store: Name,
}

pub(crate) enum KeyFileEntry {
    Secret(Bytes),
    Salt(SaltRow),
    /// Name and text of an erasure note.
    Forgotten(Name, Bytes),
}

pub(crate) struct KeyWriter {
    out: BufWriter<File>,
    hash: blake3::Hasher,
    lines: u64,
}

impl KeyWriter {
    /// Creates a file that only its owner can read. The file is locked while it is written, so that
    /// other processes can distinguish it from the leftover file of a killed process.
    pub(crate) fn create(path: &Path, owner: &BackupOwner) -> io::Result<Self> {
        let file = create_private(path)?;
        // Some file systems have no locks. There, files of killed processes stay until they are
        // deleted manually.
        drop(file.lock());
        if !is_same_file(&file, path)? {
            return Err(io::Error::other("another process removed the file"));
        }
        let out = BufWriter::new(file);
        let mut writer = Self { out, hash: blake3::Hasher::new(), lines: 0 };
        writer.line(MAGIC)?;
        writer.line(&format!("backup {} {}", owner.backup, owner.store))?;
        writer.out.flush()?;
        Ok(writer)
    }

    pub(crate) fn write(&mut self, entry: &KeyFileEntry) -> io::Result<()> {
        match entry {
            KeyFileEntry::Secret(secret) => self.line(&format!("secret {}", hex(secret))),
            KeyFileEntry::Salt(SaltRow { record, salt: Salt { epoch, bytes } }) => {
                self.line(&format!("salt {record} {epoch} {}", hex(bytes)))
            }
            KeyFileEntry::Forgotten(name, note) => {
                self.line(&format!("forgotten {name} {}", String::from_utf8_lossy(note)))
            }
        }
    }

    /// Completes the file and syncs it to disk. The file stays locked until it is dropped.
    pub(crate) fn finish(mut self) -> io::Result<File> {
        let hash = self.hash.finalize().to_hex();
        writeln!(self.out, "end {} {hash}", self.lines)?;
        let file = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        Ok(file)
    }

    fn line(&mut self, line: &str) -> io::Result<()> {
        self.lines += 1;
        for bytes in [line.as_bytes(), b"\n"] {
            self.hash.update(bytes);
            self.out.write_all(bytes)?;
        }
        Ok(())
    }
}

/// Reads a key file. Truncation and modification are detected before the reader returns the end of
/// the file.
pub(crate) struct KeyReader {
    input: BufReader<File>,
    path: PathBuf,
    pub(crate) owner: BackupOwner,
    hash: blake3::Hasher,
    lines: u64,
}

impl KeyReader {
    pub(crate) fn new(file: File, path: &Path) -> Result<Self> {
        let owner = BackupOwner { backup: "".into(), store: "".into() };
        let (input, hash) = (BufReader::new(file), blake3::Hasher::new());
        let mut reader = Self { input, path: path.to_owned(), owner, hash, lines: 0 };
        if reader.line()?.as_deref() != Some(MAGIC) {
            return Err(invalid!("{} is not a backup key file", path.display()));
        }
        let line = reader.line()?.unwrap_or_default();
        let mut fields = line.split(' ');
        let (Some("backup"), Some(backup), Some(store), None) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(reader.damaged());
        };
        reader.owner = BackupOwner { backup: backup.into(), store: store.into() };
        Ok(reader)
    }

    /// Returns the next entry, or `None` after the last.
    pub(crate) fn next(&mut self) -> Result<Option<KeyFileEntry>> {
        let hash = self.hash.finalize().to_hex();
        let end = format!("end {} {hash}", self.lines);
        let line = self.line()?.ok_or_else(|| self.damaged())?;
        if line.starts_with("end ") {
            return if line == end { Ok(None) } else { Err(self.damaged()) };
        }
        entry(&line).map(Some).ok_or_else(|| self.damaged())
    }

    fn line(&mut self) -> Result<Option<String>> {
        let mut line = Vec::new();
        let read = self.input.read_until(b'\n', &mut line);
        read.map_err(|error| failed(&self.path, &error))?;
        self.hash.update(&line);
        self.lines += 1;
        // A line that has no line break, or is not UTF-8, is damaged.
        let is_complete = line.pop() == Some(b'\n');
        Ok(String::from_utf8(line).ok().filter(|_| is_complete))
    }

    fn damaged(&self) -> StoreError {
        corrupt!("the key file {} is truncated or was modified", self.path.display())
    }
}

fn entry(line: &str) -> Option<KeyFileEntry> {
    let (kind, rest) = line.split_once(' ')?;
    match kind {
        "secret" => Some(KeyFileEntry::Secret(unhex(rest)?)),
        "salt" => {
            let mut fields = rest.split(' ');
            let (record, epoch) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
            let bytes = unhex(fields.next()?)?;
            Some(KeyFileEntry::Salt(SaltRow { record, salt: Salt { epoch, bytes } }))
        }
        "forgotten" => {
            let (name, note) = rest.split_once(' ')?;
            Some(KeyFileEntry::Forgotten(name.into(), Bytes::copy_from_slice(note.as_bytes())))
        }
        _ => None,
    }
}

/// Rewrites a key file so that it contains only the salts that the store still has, and adds notes
/// about destroyed content. A key file that already has all notes stays unchanged.
///
/// The new file is synced to disk before it replaces the old one. Then the old bytes are
/// overwritten, which is effective on file systems that write in place. A file lock ensures that
/// only one process rewrites the file at a time.
pub(crate) fn rewrite(
    path: &Path,
    owner: &BackupOwner,
    notes: &[(Name, Bytes)],
    alive: impl Fn(i64, i64) -> Result<Vec<i64>>,
) -> Result<()> {
    let failed = |error: io::Error| failed(path, &error);
    let mut old = lock(path).map_err(failed)?;
    let mut reader = KeyReader::new(old.try_clone().map_err(failed)?, path)?;
    if reader.owner != *owner {
        return Err(invalid!("{} belongs to a different backup", path.display()));
    }
    let mut known: HashSet<Name> = HashSet::new();
    while let Some(entry) = reader.next()? {
        if let KeyFileEntry::Forgotten(name, _) = entry {
            known.insert(name);
        }
    }
    if notes.iter().all(|(name, _)| known.contains(name)) {
        return Ok(());
    }
    old.seek(SeekFrom::Start(0)).map_err(failed)?;
    let mut reader = KeyReader::new(old.try_clone().map_err(failed)?, path)?;
    let part = TemporaryFile::new(part_of(path));
    let mut writer = KeyWriter::create(&part.path, owner).map_err(failed)?;
    let mut salts: Vec<SaltRow> = Vec::with_capacity(CHUNK);
    loop {
        let entry = reader.next()?;
        let is_over = entry.is_none();
        match entry {
            Some(KeyFileEntry::Salt(salt)) => salts.push(salt),
            Some(other) => writer.write(&other).map_err(failed)?,
            None => {}
        }
        if salts.len() < CHUNK && !is_over {
            continue;
        }
        let records = || salts.iter().map(|salt| salt.record);
        if let (Some(first), Some(last)) = (records().min(), records().max()) {
            let alive: HashSet<i64> = alive(first.saturating_sub(1), last)?.into_iter().collect();
            for salt in salts.drain(..).filter(|salt| alive.contains(&salt.record)) {
                writer.write(&KeyFileEntry::Salt(salt)).map_err(failed)?;
            }
        }
        if is_over {
            break;
        }
    }
    for (name, note) in notes.iter().filter(|(name, _)| !known.contains(name)) {
        writer.write(&KeyFileEntry::Forgotten(name.clone(), note.clone())).map_err(failed)?;
    }
    drop(writer.finish().map_err(failed)?);
    part.replace(path).map_err(failed)?;
    // The new file is complete, so a failure to overwrite the old bytes is ignored.
    drop(overwrite(old));
    Ok(())
}

/// Reads the header of a key file and returns the backup and the store that the key file belongs
/// to.
pub(crate) fn owner_of(path: &Path) -> Result<BackupOwner> {
    let file = File::open(path).map_err(|error| failed(path, &error))?;
    KeyReader::new(file, path).map(|reader| reader.owner)
}

/// Returns whether a process is writing a key file at this temporary path.
pub(crate) fn is_being_written(part: &Path) -> bool {
    let locked = |file: File| matches!(file.try_lock(), Err(TryLockError::WouldBlock));
    File::open(part).is_ok_and(locked)
}

/// Removes both temporary files of a backup whose process was killed. Does nothing if the key file
/// exists or a process is still writing its temporary file. Returns whether the files were removed.
pub(crate) fn remove_abandoned(backup: &Path, keys: &Path, owner: &BackupOwner) -> bool {
    let part = part_of(keys);
    if keys.exists() {
        return false;
    }
    let Ok(file) = File::open(&part) else { return false };
    // Hold the lock until the file is removed.
    if file.try_lock().is_err() || !is_same_file(&file, &part).unwrap_or(false) {
        return false;
    }
    // The writer may have completed the file before this process acquired the lock.
    if keys.exists() || owner_of(&part).ok().as_ref() != Some(owner) {
        return false;
    }
    drop(TemporaryFile::new(part_of(backup)));
    drop(TemporaryFile::new(part));
    true
}
