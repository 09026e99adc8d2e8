//! The SQLite backend, with one writer thread and concurrent readers.
//!
//! The file uses WAL mode with `synchronous=FULL`, so acknowledged writes survive a power loss.
//! Several processes may open the same file. Each process has its own writer and its own chain
//! segments.

mod backup;
mod backup_writer;
mod chains;
mod commit;
mod copy;
mod driver;
mod erase;
mod plan;
mod protect;
mod read;
mod reserve;
mod schema;
mod statements;
mod tally;
mod turn_index;
mod values;
mod wait;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use throughline_core::{StoreError, StoreFuture};
use throughline_json::Name;

use crate::options::Options;
use crate::row_mac::RowKey;
use crate::sqlite::commit::CommitError;
use crate::sqlite::read::Readers;
use crate::sqlite::schema::Access;
use crate::sqlite::turn_index::RecentTurns;
use crate::sqlite::wait::Waiters;
use crate::sqlite::writer::WriterHandle;
use crate::sync::blocking;

pub(crate) use crate::sqlite::backup::{assemble, backup, count_restored};
pub(crate) use crate::sqlite::copy::copy_to_file;
pub(crate) use crate::sqlite::driver::name_of as lease_owner;
pub(crate) use crate::sqlite::schema::KNOWN as SCHEMA_VERSION;

/// Whether a reserve file beside the database keeps disk space free for erasures on a full disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserve {
    Beside,
    /// No reserve file, for a file that is opened only once and not used as a store.
    Without,
}

/// An open store in an SQLite file.
pub(crate) struct Sqlite {
    /// `None` if the file is opened read-only.
    writer: Option<WriterHandle>,
    readers: Readers,
    /// Modification time of the file when it was opened; `None` unless the file is opened in
    /// immutable mode.
    changed: Option<std::time::SystemTime>,
    waiters: Arc<Waiters>,
    recent: Arc<RecentTurns>,
    path: PathBuf,
    patience: Duration,
}

impl Sqlite {
    /// Opens the file. Creates the file if it does not exist and `options.create` is set.
    pub(crate) async fn open(
        path: &Path,
        options: &Options,
        writer: Name,
        reserve: Reserve,
    ) -> Result<Self, StoreError> {
        let (path, options) = (path.to_owned(), options.clone());
        blocking(move || {
            let waiters = Arc::new(Waiters::new(&path));
            let recent = Arc::new(RecentTurns::new(options.index_batch));
            let patience = options.patience;
            let readers = |access| Readers::new(&path, options.readers, patience, access);
            if options.read_only {
                let changed = last_change(&path);
                let access = schema::open_read_only(&path)?;
                let changed = changed.filter(|_| access == Access::Immutable);
                let (writer, readers) = (None, readers(access));
                return Ok(Self { writer, readers, changed, waiters, recent, path, patience });
            }
            let mut opened = schema::open(&path, options.create, patience);
            if matches!(opened, Err(StoreError::Full)) && reserve::release(&path) {
                opened = schema::open(&path, options.create, patience);
            }
            let database = opened?;
            let shared = (Arc::clone(&waiters), Arc::clone(&recent));
            let writer = WriterHandle::start(database, &path, &options, writer, shared)?;
            if reserve == Reserve::Beside {
                reserve::ensure(&path);
            }
            let (writer, readers) = (Some(writer), readers(Access::Read));
            Ok(Self { writer, readers, changed: None, waiters, recent, path, patience })
        })
        .await
    }

    fn writer(&self) -> Result<&WriterHandle, StoreError> {
        let read_only = || StoreError::ReadOnly(self.path.display().to_string().into());
        self.writer.as_ref().ok_or_else(read_only)
    }

    /// Runs a closure on the writer's connection, in its own transaction.
    fn act<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Connection, Option<&RowKey>) -> Result<T, CommitError> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        match self.writer() {
            Ok(writer) => writer.run(move |writer| writer.act(act)),
            Err(error) => Box::pin(async move { Err(error) }),
        }
    }
}

fn last_change(path: &Path) -> Option<std::time::SystemTime> {
    std::fs::metadata(path).and_then(|file| file.modified()).ok()
}
