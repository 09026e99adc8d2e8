//! The store in an SQLite file: one writer thread and concurrent readers.
//!
//! The file uses WAL mode with `synchronous=FULL`, so acknowledged writes survive a power loss.
//! Several processes may open the same file; each has its own writer and its own segment of the
//! chains.

mod admin;
mod backup;
mod backup_writer;
mod chains;
mod commit;
mod erase;
mod plan;
mod read;
mod reserve;
mod rows;
mod schema;
mod statements;
mod tally;
mod wait;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::Connection;
use throughline_core::{
    Digest, Fence, Lease, LogHead, LogId, Name, PendingEntry, Receipt, StaleRun, StoreError,
    StoreFuture, Tenant, VaultLookup,
};

use crate::backend::{
    AdminBackend, KeyBackend, LeaseBackend, LogBackend, ProofBackend, ValueBackend, VaultBackend,
};
use crate::backup_files::NewBackup;
use crate::chain::Head;
use crate::manifest::{Manifest, Signer};
use crate::options::Options;
use crate::protection::Protection;
use crate::query::{Listing, Progress, Span, Stats};
use crate::row::{ApiKeyRow, ChainRow, Row, SaltRow};
use crate::row_mac::RowSnapshot;
use crate::row_mac::{RowKey, RowState};
use crate::sealed_batch::{SealedBatch, SealedKey};
use crate::sqlite::commit::CommitError;
use crate::sqlite::read::Readers;
use crate::sqlite::schema::Access;
use crate::sqlite::wait::Waiters;
use crate::sqlite::writer::WriterHandle;

pub(crate) use crate::sqlite::backup::{assemble, count_restored};
pub(crate) use crate::sqlite::backup_writer::PendingBackup;

/// Whether a reserve file beside the database holds space for a full disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserve {
    Beside,
    /// For a file that is opened once and not used as a store.
    Without,
}

/// A store in an SQLite file.
pub(crate) struct Sqlite {
    /// `None` if the file is opened read-only.
    writer: Option<WriterHandle>,
    readers: Readers,
    /// The modification time of a read-only file when it was opened.
    changed: Option<std::time::SystemTime>,
    waiters: Arc<Waiters>,
    path: PathBuf,
    patience: Duration,
}

impl Sqlite {
    /// Opens the file, and creates it if it does not exist and the options allow this.
    pub(crate) async fn open(
        path: &Path,
        options: &Options,
        writer: Name,
        reserve: Reserve,
    ) -> Result<Self, StoreError> {
        let (path, options) = (path.to_owned(), options.clone());
        let opening = tokio::task::spawn_blocking(move || {
            let waiters = Arc::new(Waiters::new(&path));
            let patience = options.patience;
            let readers = |access| Readers::new(&path, options.readers, patience, access);
            if options.read_only {
                let changed = last_change(&path);
                let access = schema::open_read_only(&path)?;
                let changed = changed.filter(|_| access == Access::Immutable);
                let (writer, readers) = (None, readers(access));
                return Ok(Self { writer, readers, changed, waiters, path, patience });
            }
            let mut opened = schema::open(&path, options.create, patience);
            if matches!(opened, Err(StoreError::Full)) && reserve::release(&path) {
                opened = schema::open(&path, options.create, patience);
            }
            let database = opened?;
            let writer = WriterHandle::start(database, &path, &options, writer, waiters.clone())?;
            if reserve == Reserve::Beside {
                reserve::ensure(&path);
            }
            let (writer, readers) = (Some(writer), readers(Access::Read));
            Ok(Self { writer, readers, changed: None, waiters, path, patience })
        });
        opening.await.map_err(|_| StoreError::Closed)?
    }
}

impl Sqlite {
    fn writer(&self) -> Result<&WriterHandle, StoreError> {
        let name = || Name::from(self.path.display().to_string());
        self.writer.as_ref().ok_or_else(|| StoreError::ReadOnly(name()))
    }

    /// Runs a closure on the writer's connection, in a separate transaction.
    fn act<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Connection, Option<&RowKey>) -> Result<T, CommitError> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        match self.writer() {
            Ok(writer) => writer.act(act),
            Err(error) => Box::pin(async move { Err(error) }),
        }
    }
}

fn last_change(path: &Path) -> Option<std::time::SystemTime> {
    std::fs::metadata(path).and_then(|file| file.modified()).ok()
}

impl LogBackend for Sqlite {
    fn commit(&self, batch: SealedBatch) -> StoreFuture<'_, Receipt> {
        Box::pin(async move { self.writer()?.commit(batch).await })
    }

    fn log<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId) -> StoreFuture<'a, Option<LogHead>> {
        let (tenant, log) = (tenant.clone(), log.clone());
        self.readers.read(move |db| read::log(db, &tenant, &log))
    }

    fn logs<'a>(&'a self, tenant: &'a Tenant, listing: Listing) -> StoreFuture<'a, Vec<LogHead>> {
        let tenant = tenant.clone();
        self.readers.read(move |db| read::logs(db, &tenant, &listing))
    }

    fn rows<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        span: Span,
    ) -> StoreFuture<'a, Vec<Row>> {
        let (tenant, log) = (tenant.clone(), log.clone());
        self.readers.read(move |db| read::rows(db, &tenant, &log, span))
    }

    fn place_of_event<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        event: u64,
    ) -> StoreFuture<'a, u64> {
        let (tenant, log) = (tenant.clone(), log.clone());
        self.readers.read(move |db| read::place_of_event(db, &tenant, &log, event))
    }

    fn checkpoint<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        at_most: u64,
    ) -> StoreFuture<'a, Option<Row>> {
        let (tenant, log) = (tenant.clone(), log.clone());
        self.readers.read(move |db| read::checkpoint(db, &tenant, &log, at_most))
    }

    fn about<'a>(&'a self, tenant: &'a Tenant, about: i64) -> StoreFuture<'a, Vec<(LogId, u64)>> {
        let tenant = tenant.clone();
        self.readers.read(move |db| read::about(db, &tenant, about))
    }

    fn blob<'a>(
        &'a self,
        tenant: &'a Tenant,
        blob: i64,
    ) -> StoreFuture<'a, Option<(Digest, Bytes)>> {
        let tenant = tenant.clone();
        self.readers.read(move |db| read::blob(db, &tenant, blob))
    }

    fn wait<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId, after: u64) -> StoreFuture<'a, ()> {
        Box::pin(self.waiters.wait(&self.readers, tenant, log, after))
    }

    fn pending<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: Option<&'a LogId>,
    ) -> StoreFuture<'a, Vec<PendingEntry>> {
        let (tenant, log) = (tenant.clone(), log.cloned());
        self.readers.read(move |db| read::pending(db, &tenant, log.as_ref()))
    }
}

impl VaultBackend for Sqlite {
    fn find<'a>(
        &'a self,
        tenant: &'a Tenant,
        keys: &'a [SealedKey],
    ) -> StoreFuture<'a, VaultLookup> {
        // This many keys need only a few pages.
        const FEW: usize = 32;
        let (tenant, keys) = (tenant.clone(), keys.to_vec());
        let is_short = keys.len() <= FEW;
        let find = move |db: &Connection| read::find(db, &tenant, &keys);
        if is_short { self.readers.read_inline(find) } else { self.readers.read(find) }
    }
}

impl LeaseBackend for Sqlite {
    fn lease<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        owner: &'a str,
        time: Duration,
    ) -> StoreFuture<'a, Lease> {
        let (tenant, log, owner) = (tenant.clone(), log.clone(), Name::from(owner));
        self.act(move |db, key| admin::lease(db, key, &tenant, &log, &owner, time))
    }

    fn renew<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        fence: Fence,
        time: Duration,
    ) -> StoreFuture<'a, Lease> {
        let (tenant, log) = (tenant.clone(), log.clone());
        self.act(move |db, _| admin::renew(db, &tenant, &log, fence, time))
    }

    fn release<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        fence: Fence,
    ) -> StoreFuture<'a, ()> {
        let (tenant, log) = (tenant.clone(), log.clone());
        self.act(move |db, _| admin::release(db, &tenant, &log, fence))
    }

    fn unattended(&self, idle: Duration, after: u64, limit: u32) -> StoreFuture<'_, Vec<StaleRun>> {
        self.readers.read(move |db| read::unattended(db, idle, after, limit))
    }
}

impl ProofBackend for Sqlite {
    fn protect(&self, protection: Protection) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.writer()?.protect(protection).await })
    }

    fn sign_with(&self, signer: Arc<Signer>) {
        if let Some(writer) = &self.writer {
            writer.sign_with(signer);
        }
    }

    fn last_record(&self) -> StoreFuture<'_, i64> {
        self.readers.read(read::last_record)
    }

    fn chain<'a>(
        &'a self,
        of: Option<&'a Tenant>,
        after: i64,
        up_to: i64,
        limit: u32,
    ) -> StoreFuture<'a, Vec<ChainRow>> {
        let of = of.cloned();
        self.readers.read(move |db| read::chain(db, of.as_ref(), after, up_to, limit))
    }

    fn heads<'a>(&'a self, of: Option<&'a Tenant>) -> StoreFuture<'a, Vec<Head>> {
        let of = of.cloned();
        self.readers.read(move |db| read::heads(db, of.as_ref()))
    }

    fn manifests(&self, after: i64, limit: u32) -> StoreFuture<'_, Vec<(i64, Manifest)>> {
        self.readers.read(move |db| read::manifests(db, after, limit))
    }

    fn read_rows<'a>(
        &'a self,
        key: RowKey,
        of: Option<&'a Tenant>,
    ) -> StoreFuture<'a, RowSnapshot> {
        let of = of.cloned();
        self.readers.read(move |db| rows::read(db, &key, of.as_ref()))
    }

    fn row_states(&self) -> StoreFuture<'_, Vec<RowState>> {
        self.readers.read(rows::states)
    }

    fn is_stable(&self) -> bool {
        let is_same = |changed| last_change(&self.path) == Some(changed);
        self.changed.is_none_or(|changed| is_same(changed) && !schema::has_wal(&self.path))
    }

    fn check(&self) -> StoreFuture<'_, Vec<String>> {
        self.readers.read(admin::check)
    }
}

impl ValueBackend for Sqlite {
    fn keep<'a>(&'a self, name: &'a str, value: Bytes) -> StoreFuture<'a, Bytes> {
        let name = name.to_owned();
        self.act(move |db, key| admin::keep(db, key, &name, &value))
    }

    fn replace<'a>(&'a self, name: &'a str, value: Bytes) -> StoreFuture<'a, ()> {
        let name = name.to_owned();
        self.act(move |db, key| Ok(tally::set_value(db, key, &name, Some(&value))?))
    }

    fn discard<'a>(&'a self, name: &'a str) -> StoreFuture<'a, ()> {
        let name = name.to_owned();
        self.act(move |db, key| Ok(tally::set_value(db, key, &name, None)?))
    }

    fn kept<'a>(&'a self, begins: &'a str) -> StoreFuture<'a, Vec<(String, Bytes)>> {
        let begins = begins.to_owned();
        self.readers.read(move |db| admin::kept(db, &begins))
    }
}

impl KeyBackend for Sqlite {
    fn key(&self, hash: Digest, revocation: i64) -> StoreFuture<'_, Option<(ApiKeyRow, bool)>> {
        self.readers.read(move |db| admin::key(db, &hash, revocation))
    }

    fn keys<'a>(&'a self, tenant: &'a Tenant) -> StoreFuture<'a, Vec<ApiKeyRow>> {
        let tenant = tenant.clone();
        self.readers.read(move |db| admin::keys(db, &tenant))
    }

    fn salts_not_of(
        &self,
        epoch: u32,
        after: i64,
        up_to: i64,
        limit: u32,
    ) -> StoreFuture<'_, Vec<SaltRow>> {
        self.readers.read(move |db| admin::salts_not_of(db, epoch, after, up_to, limit))
    }

    fn salted(&self, after: i64, up_to: i64) -> StoreFuture<'_, Vec<i64>> {
        self.readers.read(move |db| admin::salted(db, after, up_to))
    }

    fn rewrap(&self, salts: Vec<SaltRow>) -> StoreFuture<'_, ()> {
        self.act(move |db, _| admin::rewrap(db, &salts))
    }
}

impl AdminBackend for Sqlite {
    fn now(&self) -> StoreFuture<'_, i64> {
        self.readers.read(statements::now)
    }

    fn tenants(&self) -> StoreFuture<'_, Vec<Tenant>> {
        self.readers.read(read::tenants)
    }

    fn stats(&self) -> StoreFuture<'_, Stats> {
        let path = self.path.clone();
        self.readers.read(move |db| admin::stats(db, &path))
    }

    fn version(&self) -> StoreFuture<'_, u32> {
        let version = |db: &Connection| Ok(u32::try_from(schema::version(db)?).unwrap_or(0));
        self.readers.read(version)
    }

    fn scrub(&self) -> StoreFuture<'_, ()> {
        Box::pin(admin::scrub(&self.path, self.patience))
    }

    fn make_room(&self) -> StoreFuture<'_, ()> {
        Box::pin(reserve::make_room(&self.path))
    }

    fn keep_reserve(&self) -> StoreFuture<'_, ()> {
        let path = self.path.clone();
        Box::pin(async move {
            let keeping = tokio::task::spawn_blocking(move || reserve::ensure(&path));
            keeping.await.map_err(|_| StoreError::Closed)
        })
    }

    fn backup<'a>(&'a self, plan: NewBackup, progress: Progress<'a>) -> StoreFuture<'a, ()> {
        Box::pin(backup::backup(&self.path, plan, progress))
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            // Readers close first, so that the writer can truncate the WAL.
            self.waiters.close();
            self.readers.close().await;
            match &self.writer {
                Some(writer) => writer.close().await,
                None => Ok(()),
            }
        })
    }
}
