//! Environment variables, and the folders that they name.

use std::path::PathBuf;

use crate::print::failure::Failure;

/// Reads an environment variable; an empty one counts as unset.
#[expect(clippy::disallowed_methods, reason = "only the cli reads the environment")]
pub(crate) fn variable(name: &str) -> Result<Option<String>, Failure> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(Failure::Usage(format!("{name} is not valid UTF-8")))
        }
    }
}

/// Reads a variable that names a folder by absolute path.
pub(crate) fn folder(name: &str) -> Result<Option<PathBuf>, Failure> {
    let folder = variable(name)?.map(PathBuf::from);
    Ok(folder.filter(|folder| folder.is_absolute()))
}
