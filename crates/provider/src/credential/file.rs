//! Reads a key from a file.
//!
//! The file is read again at most once per second, while requests use it. Its modification time is
//! not compared: two writes can have the same time, and keys usually have the same length.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::credential::{FETCH_LIMIT, FetchFuture, FetchedSecret, SecretSource, parse_key};

/// Interval at which the file is read again.
const INTERVAL: Duration = Duration::from_secs(1);

/// A file that contains only a key.
pub(super) struct KeyFile {
    path: PathBuf,
}

impl KeyFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }
}

impl SecretSource for KeyFile {
    fn fetch(&self, now: Timestamp) -> FetchFuture<'_> {
        Box::pin(async move {
            let secret = parse_key(&read(&self.path).await?)?;
            Ok(FetchedSecret::lasting(secret, now, INTERVAL))
        })
    }

    fn advice(&self) -> &'static str {
        "write the API key, and nothing else, to a file that this user can read"
    }

    fn rejection_pause(&self) -> Duration {
        // Reading a file is cheap, and a rejected request is repeated only if the key has changed.
        Duration::ZERO
    }
}

/// Reads a file. The error omits the path, because the caller knows it.
pub(super) async fn read(path: &Path) -> Result<Vec<u8>, String> {
    let bytes = read_if_present(path).await?;
    bytes.ok_or_else(|| "the file does not exist".to_owned())
}

/// Reads a file; `None` if it does not exist.
pub(super) async fn read_if_present(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let path = path.to_owned();
    match timeout(FETCH_LIMIT, spawn_blocking(move || std::fs::read(path))).await {
        Ok(Ok(Ok(bytes))) => Ok(Some(bytes)),
        Ok(Ok(Err(error))) if error.kind() == ErrorKind::NotFound => Ok(None),
        Ok(Ok(Err(error))) => Err(format!("cannot read the file: {error}")),
        Ok(Err(_)) | Err(_) => Err("reading the file took too long".to_owned()),
    }
}
