//! Variables of the environment, and the folders that they name.

use std::path::PathBuf;

use crate::failure::Failure;

/// A variable of the environment; one that is empty says nothing.
#[expect(clippy::disallowed_methods, reason = "the cli is who reads the environment")]
pub(crate) fn variable(name: &str) -> Result<Option<String>, Failure> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(Failure::Usage(format!("{name} is not text: write it in UTF-8")))
        }
    }
}

/// A variable that names a folder by its whole path.
pub(crate) fn folder(name: &str) -> Result<Option<PathBuf>, Failure> {
    let folder = variable(name)?.map(PathBuf::from);
    Ok(folder.filter(|folder| folder.is_absolute()))
}
