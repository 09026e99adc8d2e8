//! The installed catalog file: the `[catalog]` table of the configuration, and the rows that the
//! file adds to the built-in catalog.

use std::fmt;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use throughline_codec::{
    Catalog, CatalogKey, CatalogProblem, CatalogUpdate, CatalogVersion, SharedCatalog,
    SignatureError, verify_catalog,
};
use throughline_tools::reader::{Diagnostics, Section};

use super::environment::data_folder;

/// Maximum size of a catalog file in bytes. The built-in catalog has less than 100 KB.
const MOST_BYTES: u64 = 4 << 20;

/// Name of the installed file in the user's data directory.
const NAME: &str = "catalog.toml";

/// `[catalog]`: where the installed catalog file is, and which keys may sign it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CatalogSettings {
    /// The installed file; `None` for the default location.
    pub(crate) file: Option<PathBuf>,
    pub(crate) trusted_keys: Vec<CatalogKey>,
}

impl CatalogSettings {
    /// Returns the path of the installed file; `None` if there is no home directory.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        let default = || Some(data_folder().ok()?.join("throughline").join(NAME));
        self.file.clone().or_else(default)
    }

    /// Resolves a relative path against the folder of the configuration file, so that all commands
    /// find the same file.
    pub(super) fn resolve(&mut self, config: Option<&Path>) {
        if let (Some(file), Some(folder)) = (&mut self.file, config.and_then(Path::parent)) {
            *file = folder.join(&*file);
        }
    }
}

/// Parses the `[catalog]` table.
pub(super) fn settings(section: &Section<'_>, notes: &mut Diagnostics<'_>) -> CatalogSettings {
    section.reject_unknown_keys(&["file", "trusted_keys"], notes);
    let file = section.text("file", "/srv/throughline/catalog.toml", notes).map(PathBuf::from);
    let mut trusted_keys = Vec::new();
    let keys = section.texts("trusted_keys", "\"64 hexadecimal digits\"", notes);
    for (at, key) in keys.unwrap_or_default() {
        match key.parse() {
            Ok(key) => trusted_keys.push(key),
            Err(_) => notes.error(
                at,
                "`trusted_keys` must list ed25519 public keys of 64 hexadecimal digits; \
                 `throughline catalog sign` prints the public key",
            ),
        }
    }
    CatalogSettings { file, trusted_keys }
}

/// The catalog in effect: the built-in rows, and the rows of the installed file if it is valid.
#[derive(Clone, Debug, Default)]
pub(crate) struct InstalledCatalog {
    pub(crate) settings: CatalogSettings,
    /// The catalog that all parts of this process use.
    pub(crate) shared: SharedCatalog,
    /// The installed rows; `None` if only the built-in rows are in effect.
    pub(crate) file: Option<CatalogFile>,
    /// Why the installed file is not used.
    pub(crate) problem: Option<CatalogFileError>,
    /// Metadata of the installed file from before it was read.
    pub(crate) stamp: Option<FileStamp>,
}

impl InstalledCatalog {
    /// Loads and verifies the installed file.
    pub(crate) fn load(settings: CatalogSettings) -> Self {
        let mut installed = Self { settings, ..Self::default() };
        let Some(path) = installed.settings.path() else { return installed };
        installed.stamp = FileStamp::read(&path);
        match CatalogFile::read(&path, &installed.settings.trusted_keys) {
            Ok(None) => {}
            Ok(Some(file)) => {
                installed.shared.replace(Catalog::builtin().with_update(&file.update));
                installed.file = Some(file);
            }
            Err(error) => installed.problem = Some(error),
        }
        installed
    }

    /// Describes why the installed file is not used; `None` if it is used, or if there is none.
    pub(crate) fn warning(&self) -> Option<String> {
        let (problem, path) = (self.problem.as_ref()?, self.settings.path()?);
        let path = path.display();
        Some(format!("the installed catalog {path} is not used, only the built-in rows: {problem}"))
    }
}

/// The size, age and identity of a file. A new file at the same path has other values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    length: u64,
    modified: Option<SystemTime>,
    inode: u64,
}

impl FileStamp {
    /// Reads the metadata of a file; `None` if the file cannot be accessed.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        #[cfg(unix)]
        let inode = std::os::unix::fs::MetadataExt::ino(&metadata);
        #[cfg(not(unix))]
        let inode = 0;
        Some(Self { length: metadata.len(), modified: metadata.modified().ok(), inode })
    }
}

/// A verified catalog file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CatalogFile {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Vec<u8>,
    pub(crate) signed_by: CatalogKey,
    pub(crate) update: CatalogUpdate,
}

impl CatalogFile {
    /// Reads a file, and verifies its signature before it parses the rows. Returns `None` if there
    /// is no file.
    pub(crate) fn read(
        path: &Path,
        trusted: &[CatalogKey],
    ) -> Result<Option<Self>, CatalogFileError> {
        let Some(bytes) = read_bytes(path)? else { return Ok(None) };
        let signed_by = verify_catalog(&bytes, trusted)?;
        let text = std::str::from_utf8(&bytes).map_err(|_| CatalogFileError::NotText)?;
        let update = CatalogUpdate::parse(text).map_err(CatalogFileError::Invalid)?;
        check_version(&update, None)?;
        Ok(Some(Self { path: path.to_owned(), bytes, signed_by, update }))
    }
}

/// Refuses rows that are older than the built-in rows or the installed rows. The same version with
/// the same rows is accepted.
pub(crate) fn check_version(
    update: &CatalogUpdate,
    installed: Option<&CatalogUpdate>,
) -> Result<(), CatalogFileError> {
    let version = update.version;
    if let Some(builtin) = Catalog::builtin().version()
        && version < builtin
    {
        return Err(CatalogFileError::OlderThanBuiltin { version, builtin });
    }
    let Some(installed) = installed else { return Ok(()) };
    if version < installed.version {
        let installed = installed.version;
        return Err(CatalogFileError::OlderThanInstalled { version, installed });
    }
    if version == installed.version && update != installed {
        return Err(CatalogFileError::SameVersion(version));
    }
    Ok(())
}

/// Reads a catalog file; `None` if there is none.
pub(crate) fn read_bytes(path: &Path) -> Result<Option<Vec<u8>>, CatalogFileError> {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes));
    match read {
        Ok(_) if bytes.len() as u64 > MOST_BYTES => Err(CatalogFileError::TooLarge),
        Ok(_) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(CatalogFileError::Unreadable(error.to_string())),
    }
}

/// Why a catalog file is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CatalogFileError {
    #[error("the file cannot be read: {0}")]
    Unreadable(String),
    #[error("the file is larger than 4 MiB")]
    TooLarge,
    #[error("the file is not valid UTF-8")]
    NotText,
    #[error(transparent)]
    Signature(#[from] SignatureError),
    #[error("{}", ProblemSummary(.0))]
    Invalid(Vec<CatalogProblem>),
    #[error(
        "its version {version} is older than the built-in catalog of {builtin}; install a newer \
         file, or delete this one"
    )]
    OlderThanBuiltin { version: CatalogVersion, builtin: CatalogVersion },
    #[error("its version {version} is older than version {installed}, which was installed before")]
    OlderThanInstalled { version: CatalogVersion, installed: CatalogVersion },
    #[error(
        "a catalog with the same version {0} but other content was installed before; give the \
         changed file a later version, such as a revision of the same date"
    )]
    SameVersion(CatalogVersion),
}

/// Displays the first problem of a file and the number of further ones.
struct ProblemSummary<'p>(&'p [CatalogProblem]);

impl fmt::Display for ProblemSummary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((CatalogProblem { line, message }, others)) = self.0.split_first() else {
            return Ok(());
        };
        write!(f, "line {line}: {message}")?;
        match others.len() {
            0 => Ok(()),
            more => write!(f, "; `throughline catalog check FILE` lists {more} more"),
        }
    }
}
