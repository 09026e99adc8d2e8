//! Reads a client's configuration file and computes its new content.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::clients::{ClientEntry, ClientFile};
use crate::print::failure::{Failure, Result};

use super::merge::{merge, remove};
use super::settings::{contains_key, file_path, file_settings, stale_settings};
use super::target::{ConnectTarget, GatewayKey};

/// A configuration file and its new content.
pub(crate) struct PlannedFile {
    pub(crate) path: PathBuf,
    /// Former content; `None` if the file does not exist.
    pub(crate) former: Option<Vec<u8>>,
    pub(crate) text: String,
    /// Whether the file contains a key, so that only its owner may read it.
    pub(crate) is_private: bool,
}

/// Adds the settings of a client to the content of a configuration file, and removes settings for
/// other kinds of key.
pub(crate) fn plan(
    client: &ClientEntry,
    file: &ClientFile,
    target: &ConnectTarget,
) -> Result<PlannedFile> {
    let path = file_path(file)?;
    let former = read(&path)?;
    let shown = path.display();
    let text = std::str::from_utf8(former.as_deref().unwrap_or_default())
        .map_err(|_| Failure::BadData(format!("{shown} is not valid UTF-8")))?;
    let settings = file_settings(client, file, target, target.key.secret());
    let stale = stale_settings(file, target, &settings);
    let text = remove(file.format, text, &stale);
    let text = text.and_then(|text| merge(file.format, &text, &settings)).map_err(|problem| {
        Failure::BadData(format!("cannot change {shown}: {problem}; correct the file first"))
    })?;
    let is_private = target.key != GatewayKey::None && contains_key(client, file, target);
    Ok(PlannedFile { path, former, text, is_private })
}

/// Reads a configuration file. Returns `None` if the file does not exist.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::unreadable(&format!("cannot read {}", path.display()), &error)),
    }
}
