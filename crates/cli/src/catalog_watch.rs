//! Applies a newly installed catalog to a running process.

use std::fmt;

use throughline_codec::{Catalog, CatalogUpdate, CatalogVersion};

use crate::config::{CatalogFile, CatalogFileError, FileStamp, InstalledCatalog, check_version};
use crate::file_watch::INTERVAL;

#[cfg(test)]
#[path = "catalog_watch_tests.rs"]
mod catalog_watch_tests;

/// A change of the installed file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CatalogChange {
    /// New requests use the rows of this version.
    Updated(CatalogVersion),
    /// The file was removed, so new requests use the built-in rows only.
    Removed,
    /// The file is invalid, so the catalog stays as it is.
    Refused(CatalogFileError),
}

impl fmt::Display for CatalogChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Updated(version) => write!(f, "the catalog of {version} is in effect"),
            Self::Removed => {
                write!(f, "the installed catalog was removed; only the built-in rows are in effect")
            }
            Self::Refused(error) => write!(
                f,
                "the installed catalog is refused, and the rows in effect do not change: {error}"
            ),
        }
    }
}

/// Reports and applies each change of the installed file; runs until it is dropped.
pub(crate) async fn watch(installed: InstalledCatalog, report: impl Fn(CatalogChange)) {
    let mut watcher = CatalogWatcher::new(installed);
    loop {
        tokio::time::sleep(INTERVAL).await;
        // The file may be on a slow network file system, so it is not read on an async thread.
        let checked = tokio::task::spawn_blocking(move || {
            let change = watcher.check();
            (watcher, change)
        });
        // Reading does not panic; if the runtime shuts down, there is nothing left to watch.
        let Ok((back, change)) = checked.await else { return };
        watcher = back;
        if let Some(change) = change {
            report(change);
        }
    }
}

struct CatalogWatcher {
    installed: InstalledCatalog,
    /// The newest rows that were in effect. A file with an older version is refused even after the
    /// newer file was removed.
    newest: Option<CatalogUpdate>,
}

impl CatalogWatcher {
    fn new(installed: InstalledCatalog) -> Self {
        let newest = installed.file.as_ref().map(|file| file.update.clone());
        Self { installed, newest }
    }

    /// Reads the file if it changed since the last check.
    fn check(&mut self) -> Option<CatalogChange> {
        let InstalledCatalog { settings, shared, file, stamp, .. } = &mut self.installed;
        let path = settings.path()?;
        let found = FileStamp::read(&path);
        if found == *stamp {
            return None;
        }
        *stamp = found;
        let read = CatalogFile::read(&path, &settings.trusted_keys).and_then(|read| {
            read.iter().try_for_each(|new| check_version(&new.update, self.newest.as_ref()))?;
            Ok(read)
        });
        match read {
            Ok(Some(new)) if file.as_ref().is_some_and(|file| file.update == new.update) => None,
            Ok(Some(new)) => {
                shared.replace(Catalog::builtin().with_update(&new.update));
                let version = new.update.version;
                self.newest = Some(new.update.clone());
                *file = Some(new);
                Some(CatalogChange::Updated(version))
            }
            Ok(None) => {
                file.take()?;
                shared.replace(Catalog::builtin().clone());
                Some(CatalogChange::Removed)
            }
            Err(error) => Some(CatalogChange::Refused(error)),
        }
    }
}
