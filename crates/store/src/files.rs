//! File operations: private files, temporary names, locks, and durable renames.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use throughline_core::StoreError;

/// Creates a file that only its owner can read.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Returns the temporary path of a file that is being written.
pub(crate) fn part_of(path: &Path) -> PathBuf {
    beside(path, ".part")
}

/// Appends `ending` to the file name of a path.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// A temporary file that is deleted on drop, unless it was renamed to its final name.
pub(crate) struct TemporaryFile {
    pub(crate) path: PathBuf,
}

impl TemporaryFile {
    /// Uses this path for a temporary file. Deletes any file that an interrupted process left at
    /// the path.
    pub(crate) fn new(path: PathBuf) -> Self {
        let unfinished = Self { path };
        unfinished.remove();
        unfinished
    }

    /// Deletes the file and the files that SQLite and the store create beside it.
    fn remove(&self) {
        for ending in ["", "-wal", "-shm", "-journal", "-reserve"] {
            drop(std::fs::remove_file(beside(&self.path, ending)));
        }
    }

    /// Renames the file to its final name and syncs the folder. Fails with
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists) if the name is taken.
    pub(crate) fn publish(self, name: &Path) -> io::Result<()> {
        match std::fs::hard_link(&self.path, name) {
            Ok(()) => std::fs::remove_file(&self.path)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
            // Some file systems have no hard links. There, an empty file reserves the name before
            // the rename.
            Err(_) => {
                drop(create_private(name)?);
                std::fs::rename(&self.path, name)?;
            }
        }
        sync_folder_of(name)
    }

    /// Replaces an existing file with the temporary file and syncs the folder.
    pub(crate) fn replace(self, name: &Path) -> io::Result<()> {
        std::fs::rename(&self.path, name)?;
        sync_folder_of(name)
    }
}

fn sync_folder_of(file: &Path) -> io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all())
}

impl Drop for TemporaryFile {
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

/// Opens a file and locks it exclusively. Retries if another process replaced the file before the
/// lock was acquired.
pub(crate) fn lock(path: &Path) -> io::Result<File> {
    loop {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        file.lock()?;
        if is_same_file(&file, path)? {
            return Ok(file);
        }
    }
}

/// Returns whether the path still refers to the open file.
#[cfg(unix)]
pub(crate) fn is_same_file(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    let (held, named) = (file.metadata()?, std::fs::metadata(path)?);
    Ok((held.dev(), held.ino()) == (named.dev(), named.ino()))
}

/// Assumes that the path still refers to the open file, because files cannot be compared on this
/// platform.
#[cfg(not(unix))]
pub(crate) fn is_same_file(_: &File, _: &Path) -> io::Result<bool> {
    Ok(true)
}

/// Overwrites a file with zeros and syncs it to disk.
pub(crate) fn overwrite(mut file: File) -> io::Result<()> {
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
