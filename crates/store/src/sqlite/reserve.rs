//! A reserve file beside the database. The store deletes this file when the disk is full, so that
//! forgetting still works.
//!
//! The file is about as large as the database, between [`LEAST`] and [`MOST`] bytes. It contains
//! random bytes, which a file system cannot compress.

use std::fs::OpenOptions;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use throughline_core::StoreError;

use crate::cipher;
use crate::files::{self, beside, create_private};
use crate::sqlite::schema::{Access, connect, wait_for};

const LEAST: u64 = 128 << 10;
const MOST: u64 = 1 << 20;

fn file(database: &Path) -> PathBuf {
    beside(database, "-reserve")
}

/// Creates the reserve file, or grows it to its intended size. If the disk is full, the file
/// remains smaller.
pub(super) fn ensure(database: &Path) {
    let length = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    let path = file(database);
    let target = length(database).next_power_of_two().clamp(LEAST, MOST);
    if length(&path) >= target {
        return;
    }
    // Ignore errors, because the store works without a reserve.
    drop(fill(&path, target));
}

fn fill(path: &Path, target: u64) -> Result<(), StoreError> {
    const STEP: usize = 64 << 10;
    let failed = |error: std::io::Error| files::failed(path, &error);
    let file = create_private(path).or_else(|_| OpenOptions::new().write(true).open(path));
    let mut file = file.map_err(failed)?;
    let mut length = file.seek(SeekFrom::End(0)).map_err(failed)?;
    let seed = cipher::random::<32>()?;
    let mut random = blake3::Hasher::new_keyed(&seed).finalize_xof();
    let mut bytes = vec![0; STEP];
    while length < target {
        random.fill(&mut bytes);
        file.write_all(&bytes).map_err(failed)?;
        length += STEP as u64;
    }
    Ok(())
}

/// Deletes the reserve file. Returns whether it existed.
pub(super) fn release(database: &Path) -> bool {
    std::fs::remove_file(file(database)).is_ok()
}

/// Deletes the reserve file and restarts the WAL, so that the WAL has room for the next writes.
pub(super) fn make_room(database: &Path) {
    release(database);
    wait_for(Duration::from_millis(100));
    // The restart may fail, because a reader blocks it or the database file cannot grow. Then the
    // space freed by the reserve must suffice.
    if let Ok(db) = connect(database, Access::Write) {
        drop(db.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())));
    }
}
