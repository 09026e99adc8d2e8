//! The key file of a backup: the salts of its contents and the store's own secret, apart from the backup itself.
//!
//! A backup opens nothing without its key file. Forgetting rewrites the key file and leaves the backup as it is, so that it
//! reaches every copy of the backup. The file is text, one entry per line:
//!
//! ```text
//! throughline backup keys 1
//! backup ID STORE                 the backup that it belongs to, and the public key of the store
//! secret HEX                      the store's own secret, wrapped if there is a master key
//! salt RECORD EPOCH HEX           one for each content that can be opened
//! forgotten NOTE JSON             what was destroyed since, for who restores
//! end LINES HASH                  how many lines come before, and their BLAKE3 hash
//! ```

use std::collections::HashSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead as _, BufReader, BufWriter, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use throughline_core::{Name, StoreError};
use tokio::runtime::Handle;

use crate::backend::{Backend, Salt, SaltRow};
use crate::manifest::hex;

const MAGIC: &str = "throughline backup keys 1";

/// How many salts are compared with the store's at a time.
const CHUNK: usize = 1024;

/// Which backup a key file belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The random id of the backup.
    pub(crate) backup: Name,
    /// The public key of the store.
    pub(crate) store: Name,
}

/// An entry of a key file.
pub(crate) enum Entry {
    Secret(Bytes),
    Salt(SaltRow),
    /// The name of a note, and the note.
    Forgotten(Name, Bytes),
}

/// Writes a key file.
pub(crate) struct KeyWriter {
    out: BufWriter<File>,
    hash: blake3::Hasher,
    lines: u64,
}

impl KeyWriter {
    /// A new file, which only its owner can read. It is locked while it is written, so that other processes can tell it from
    /// one that a killed process left.
    pub(crate) fn create(path: &Path, owner: &Owner) -> io::Result<Self> {
        let file = create_private(path)?;
        // Some file systems have no locks. Then files of killed processes stay until somebody deletes them.
        drop(file.lock());
        if !is_still(&file, path)? {
            return Err(io::Error::other("another process removed the file"));
        }
        let out = BufWriter::new(file);
        let mut writer = Self { out, hash: blake3::Hasher::new(), lines: 0 };
        writer.line(MAGIC)?;
        writer.line(&format!("backup {} {}", owner.backup, owner.store))?;
        writer.out.flush()?;
        Ok(writer)
    }

    pub(crate) fn write(&mut self, entry: &Entry) -> io::Result<()> {
        match entry {
            Entry::Secret(secret) => self.line(&format!("secret {}", hex(secret))),
            Entry::Salt(SaltRow { record, salt: Salt { epoch, bytes } }) => {
                self.line(&format!("salt {record} {epoch} {}", hex(bytes)))
            }
            Entry::Forgotten(name, note) => {
                self.line(&format!("forgotten {name} {}", String::from_utf8_lossy(note)))
            }
        }
    }

    /// Ends the file, and waits until it is on the disk. The file stays locked until it is dropped.
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

/// Reads a key file. What is cut off or changed is an error before its end is reached.
pub(crate) struct KeyReader {
    input: BufReader<File>,
    path: PathBuf,
    pub(crate) owner: Owner,
    hash: blake3::Hasher,
    lines: u64,
}

impl KeyReader {
    pub(crate) fn new(file: File, path: &Path) -> Result<Self, StoreError> {
        let owner = Owner { backup: "".into(), store: "".into() };
        let (input, hash) = (BufReader::new(file), blake3::Hasher::new());
        let mut reader = Self { input, path: path.to_owned(), owner, hash, lines: 0 };
        if reader.line()?.as_deref() != Some(MAGIC) {
            let problem = format!("{} is not the key file of a backup", path.display());
            return Err(StoreError::invalid(problem));
        }
        let line = reader.line()?.unwrap_or_default();
        let mut words = line.split(' ');
        let (Some("backup"), Some(backup), Some(store), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(reader.damaged());
        };
        reader.owner = Owner { backup: backup.into(), store: store.into() };
        Ok(reader)
    }

    /// The next entry; nothing at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, StoreError> {
        let hash = self.hash.finalize().to_hex();
        let end = format!("end {} {hash}", self.lines);
        let line = self.line()?.ok_or_else(|| self.damaged())?;
        if line.starts_with("end ") {
            return if line == end { Ok(None) } else { Err(self.damaged()) };
        }
        entry(&line).map(Some).ok_or_else(|| self.damaged())
    }

    fn line(&mut self) -> Result<Option<String>, StoreError> {
        let mut line = Vec::new();
        let read = self.input.read_until(b'\n', &mut line);
        read.map_err(|error| failed(&self.path, &error))?;
        self.hash.update(&line);
        self.lines += 1;
        // What does not end, or is no text, is not a line that was written here.
        let is_whole = line.pop() == Some(b'\n');
        Ok(String::from_utf8(line).ok().filter(|_| is_whole))
    }

    fn damaged(&self) -> StoreError {
        let problem = format!("the key file {} is cut off or changed", self.path.display());
        StoreError::Corrupt(problem.into())
    }
}

fn entry(line: &str) -> Option<Entry> {
    let (kind, rest) = line.split_once(' ')?;
    match kind {
        "secret" => Some(Entry::Secret(unhex(rest)?)),
        "salt" => {
            let mut words = rest.split(' ');
            let (record, epoch) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let bytes = unhex(words.next()?)?;
            Some(Entry::Salt(SaltRow { record, salt: Salt { epoch, bytes } }))
        }
        "forgotten" => {
            let (name, note) = rest.split_once(' ')?;
            Some(Entry::Forgotten(name.into(), Bytes::copy_from_slice(note.as_bytes())))
        }
        _ => None,
    }
}

/// The bytes that hexadecimal digits spell.
fn unhex(text: &str) -> Option<Bytes> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    let pairs = text.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.map(byte).collect::<Option<Vec<u8>>>().map(Bytes::from)
}

/// Rewrites a key file: it keeps the salts that the store still has, and learns what was destroyed. A key file that lists
/// all of it already stays as it is.
///
/// The new file is on the disk before it takes the old one's place. Then the old bytes are overwritten, which reaches the
/// disk wherever the file system writes in place. Processes take turns by a lock on the file.
pub(super) async fn rewrite(
    backend: &Arc<dyn Backend>,
    path: &Path,
    owner: &Owner,
    notes: &[(Name, Bytes)],
) -> Result<(), StoreError> {
    let (backend, path) = (Arc::clone(backend), path.to_owned());
    let (owner, notes, handle) = (owner.clone(), notes.to_vec(), Handle::current());
    let rewriting = tokio::task::spawn_blocking(move || {
        let alive = |after, up_to| handle.block_on(backend.salted(after, up_to));
        rewrite_locked(&path, &owner, &notes, alive)
    });
    rewriting.await.map_err(|_| StoreError::Closed)?
}

fn rewrite_locked(
    path: &Path,
    owner: &Owner,
    notes: &[(Name, Bytes)],
    alive: impl Fn(i64, i64) -> Result<Vec<i64>, StoreError>,
) -> Result<(), StoreError> {
    let failed = |error: io::Error| failed(path, &error);
    let mut old = lock(path).map_err(failed)?;
    let mut reader = KeyReader::new(old.try_clone().map_err(failed)?, path)?;
    if reader.owner != *owner {
        let problem = format!("{} belongs to a different backup", path.display());
        return Err(StoreError::invalid(problem));
    }
    let mut known: HashSet<Name> = HashSet::new();
    while let Some(entry) = reader.next()? {
        if let Entry::Forgotten(name, _) = entry {
            known.insert(name);
        }
    }
    if notes.iter().all(|(name, _)| known.contains(name)) {
        return Ok(());
    }
    old.seek(SeekFrom::Start(0)).map_err(failed)?;
    let mut reader = KeyReader::new(old.try_clone().map_err(failed)?, path)?;
    let part = Unfinished::new(part_of(path));
    let mut writer = KeyWriter::create(&part.path, owner).map_err(failed)?;
    let mut salts: Vec<SaltRow> = Vec::with_capacity(CHUNK);
    loop {
        let entry = reader.next()?;
        let is_over = entry.is_none();
        match entry {
            Some(Entry::Salt(salt)) => salts.push(salt),
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
                writer.write(&Entry::Salt(salt)).map_err(failed)?;
            }
        }
        if is_over {
            break;
        }
    }
    for (name, note) in notes.iter().filter(|(name, _)| !known.contains(name)) {
        writer.write(&Entry::Forgotten(name.clone(), note.clone())).map_err(failed)?;
    }
    drop(writer.finish().map_err(failed)?);
    part.replace(path).map_err(failed)?;
    // The new file is in place, so a failure here is none of the caller's.
    drop(overwrite(old));
    Ok(())
}

/// The backup to which the key file with that path belongs.
pub(super) fn owner_of(path: &Path) -> Result<Owner, StoreError> {
    let file = File::open(path).map_err(|error| failed(path, &error))?;
    KeyReader::new(file, path).map(|reader| reader.owner)
}

/// Whether a process writes the key file with that unfinished name now.
pub(crate) fn is_being_written(part: &Path) -> bool {
    let locked = |file: File| matches!(file.try_lock(), Err(TryLockError::WouldBlock));
    File::open(part).is_ok_and(locked)
}

/// Removes both unfinished files of a backup whose process was killed. Returns whether the backup was such a one: there is
/// no key file, and nobody writes the unfinished one.
pub(super) fn remove_abandoned(backup: &Path, keys: &Path, owner: &Owner) -> bool {
    let part = part_of(keys);
    if keys.exists() {
        return false;
    }
    let Ok(file) = File::open(&part) else { return false };
    // The lock is held until the file is removed.
    if file.try_lock().is_err() || !is_still(&file, &part).unwrap_or(false) {
        return false;
    }
    // The process may have finished it before the lock was taken.
    if keys.exists() || owner_of(&part).ok().as_ref() != Some(owner) {
        return false;
    }
    drop(Unfinished::new(part_of(backup)));
    drop(Unfinished::new(part));
    true
}

/// The file under a lock that only one process holds. Another process may have replaced the file meanwhile.
fn lock(path: &Path) -> io::Result<File> {
    loop {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        file.lock()?;
        if is_still(&file, path)? {
            return Ok(file);
        }
    }
}

#[cfg(unix)]
fn is_still(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    let (held, named) = (file.metadata()?, std::fs::metadata(path)?);
    Ok((held.dev(), held.ino()) == (named.dev(), named.ino()))
}

#[cfg(not(unix))]
fn is_still(_: &File, _: &Path) -> io::Result<bool> {
    Ok(true)
}

fn overwrite(mut file: File) -> io::Result<()> {
    let mut left = file.metadata()?.len();
    file.seek(SeekFrom::Start(0))?;
    let zeros = [0; 8192];
    while left > 0 {
        let length = left.min(zeros.len() as u64);
        file.write_all(zeros.get(..usize::try_from(length).unwrap_or(0)).unwrap_or_default())?;
        left -= length;
    }
    file.sync_all()
}

/// A new file that only its owner can read, from the start.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// The name of a file until it is finished.
pub(crate) fn part_of(path: &Path) -> PathBuf {
    beside(path, ".part")
}

/// The path with something added to its name.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// A file that is removed unless it is finished.
pub(crate) struct Unfinished {
    pub(crate) path: PathBuf,
}

impl Unfinished {
    /// Removes what an interrupted process left under that name.
    pub(crate) fn new(path: PathBuf) -> Self {
        let unfinished = Self { path };
        unfinished.remove();
        unfinished
    }

    /// Removes the file, and those that a store has beside it. Each may not be there.
    fn remove(&self) {
        for ending in ["", "-wal", "-shm", "-journal", "-reserve"] {
            drop(std::fs::remove_file(beside(&self.path, ending)));
        }
    }

    /// Gives the file its name, durably. A file that has that name by now stays, and is an error of the kind
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists).
    pub(crate) fn publish(self, name: &Path) -> io::Result<()> {
        match std::fs::hard_link(&self.path, name) {
            Ok(()) => std::fs::remove_file(&self.path)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
            // Some file systems have no hard links: an empty file takes the name first.
            Err(_) => {
                drop(create_private(name)?);
                std::fs::rename(&self.path, name)?;
            }
        }
        sync_folder_of(name)
    }

    /// Gives the file the name of another, durably, and replaces that.
    fn replace(self, name: &Path) -> io::Result<()> {
        std::fs::rename(&self.path, name)?;
        sync_folder_of(name)
    }
}

fn sync_folder_of(file: &Path) -> io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all())
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.remove();
    }
}

pub(crate) fn failed(path: &Path, error: &io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::StorageFull => StoreError::Full,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            StoreError::ReadOnly(path.display().to_string().into())
        }
        _ => StoreError::Unreachable(path.display().to_string().into(), error.to_string().into()),
    }
}
