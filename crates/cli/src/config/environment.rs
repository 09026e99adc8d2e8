//! Environment variables, the directories that they name, and the default store.

use std::path::PathBuf;

use crate::print::failure::{Failure, Result};

/// Reads an environment variable. An empty value counts as unset.
#[expect(clippy::disallowed_methods, reason = "only the cli reads the environment")]
pub(crate) fn variable(name: &str) -> Result<Option<String>> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(Failure::Usage(format!("the environment variable {name} is not valid UTF-8")))
        }
    }
}

/// Reads an environment variable that contains an absolute directory path. A relative path counts
/// as unset.
pub(crate) fn folder(name: &str) -> Result<Option<PathBuf>> {
    let folder = variable(name)?.map(PathBuf::from);
    Ok(folder.filter(|folder| folder.is_absolute()))
}

/// Reads an environment variable. A value that is not valid UTF-8 counts as unset.
pub(crate) fn readable_variable(name: &str) -> Option<String> {
    variable(name).ok().flatten()
}

/// Returns whether a store URL has a supported scheme.
pub(crate) fn is_address(url: &str) -> bool {
    ["sqlite:", "postgres://", "postgresql://"].iter().any(|kind| url.starts_with(kind))
}

/// Returns the URL of the SQLite store in the user's data directory.
pub(crate) fn default_url() -> Result<String> {
    let file = data_folder()?.join("throughline").join("throughline.db");
    Ok(format!("sqlite://{}", file.display()))
}

/// Returns the user's data directory according to the XDG specification.
pub(crate) fn data_folder() -> Result<PathBuf> {
    if let Some(folder) = folder("XDG_DATA_HOME")? {
        return Ok(folder);
    }
    let folder = folder("HOME")?.map(|home| home.join(".local").join("share"));
    folder.ok_or_else(|| {
        let message =
            "cannot determine the home directory; set HOME, or name the store with --store";
        Failure::Usage(message.to_owned())
    })
}
