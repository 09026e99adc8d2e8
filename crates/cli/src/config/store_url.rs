//! Store URLs: the supported schemes, and the default.

use std::path::PathBuf;

use crate::config::environment::folder;
use crate::print::failure::Failure;

/// Returns whether a URL has a supported scheme.
pub(crate) fn is_address(url: &str) -> bool {
    ["sqlite:", "postgres://", "postgresql://"].iter().any(|kind| url.starts_with(kind))
}

/// Returns the default store URL.
pub(crate) fn default_url() -> Result<String, Failure> {
    let file = data_folder()?.join("throughline").join("throughline.db");
    Ok(format!("sqlite://{}", file.display()))
}

/// Returns the user's data directory according to the XDG specification.
fn data_folder() -> Result<PathBuf, Failure> {
    if let Some(folder) = folder("XDG_DATA_HOME")? {
        return Ok(folder);
    }
    let folder = folder("HOME")?.map(|home| home.join(".local").join("share"));
    folder.ok_or_else(|| {
        Failure::Usage("there is no home directory; use --store to locate the store".to_owned())
    })
}
