//! The store in an SQLite file: one writer thread, and readers beside it.
//!
//! The file is in WAL mode with `synchronous=FULL`: what was acknowledged survives a loss of power. Several processes may
//! open the same file; each has its own writer and its own segment of the chains.

mod backup;
mod chains;
mod commit;
mod erase;
mod hot;
mod keep;
mod plan;
mod read;
mod reserve;
mod rows;
mod schema;
mod tally;
mod wait;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::Connection;
use throughline_core::{
    Boxed, Digest, Fence, Lease, LogHead, LogId, Name, Pending, Receipt, Sight, StoreError, Tenant,
    Unattended,
};

use crate::backend::{
    ApiKeyRow, Backend, ChainRow, Listing, Progress, Protection, Row, SaltRow, SealedBatch,
    SealedKey, Span, Stats,
};
use crate::backups::file::NewBackup;
use crate::chain::Head;
use crate::manifest::{Manifest, Signer};
use crate::options::Options;
use crate::row_mac::{RowKey, RowState};
use crate::sqlite::commit::Stop;
use crate::sqlite::read::Readers;
use crate::sqlite::schema::Access;
use crate::sqlite::wait::Waiters;
use crate::sqlite::writer::WriterHandle;
use crate::verify::RowsRead;

pub(crate) use crate::sqlite::backup::{
    count_restored, id_of_backup, mark_as_backup, mark_as_store,
};
pub(crate) use crate::sqlite::schema::{create_for_backup, failure};

/// Whether a file holds space in reserve beside itself for a full disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserve {
    Beside,
    /// For a file that is opened once and not used as a store.
    Without,
}

/// A store in an SQLite file.
pub(crate) struct Sqlite {
    /// Nothing where the file is only read.
    writer: Option<WriterHandle>,
    readers: Readers,
    /// When a file that is only read was last changed, as it was opened.
    changed: Option<std::time::SystemTime>,
    waiters: Arc<Waiters>,
    path: PathBuf,
    patience: Duration,
}

impl Sqlite {
    /// Opens the file, and makes it where there is none and the options say so.
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

    /// Does something on the writer's connection, in a transaction of its own.
    fn act<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Connection, Option<&RowKey>) -> Result<T, Stop> + Send + 'static,
    ) -> Boxed<'_, T> {
        match self.writer() {
            Ok(writer) => writer.act(act),
            Err(error) => Box::pin(async move { Err(error) }),
        }
    }
}

fn last_change(path: &Path) -> Option<std::time::SystemTime> {
    std::fs::metadata(path).and_then(|file| file.modified()).ok()
}

impl Backend for Sqlite {
    fn commit(&self, batch: SealedBatch) -> Boxed<'_, Receipt> {
        Box::pin(async move { self.writer()?.commit(batch).await })
    }

    fn protect(&self, protection: Protection) -> Boxed<'_, ()> {
        Box::pin(async move { self.writer()?.protect(protection).await })
    }

    fn sign_with(&self, signer: Arc<Signer>) {
        if let Some(writer) = &self.writer {
            writer.sign_with(signer);
        }
    }

    fn log<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId) -> Boxed<'a, Option<LogHead>> {
        let (tenant, log) = (tenant.clone(), log.clone());
        self.readers.read(move |db| read::log(db, &tenant, &log))
    }

    fn logs<'a>(&'a self, tenant: &'a Tenant, listing: Listing) -> Boxed<'a, Vec<LogHead>> {
        let tenant = tenant.clone();
        self.readers.read(move |db| read::logs(db, &tenant, &listing))
    }

    fn rows<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId, span: Span) -> Boxed<'a, Vec<Row>> {
        let (tenant, log) = (tenant.clone(), log.clone());
        self.readers.read(move |db| read::rows(db, &tenant, &log, span))
    }

    fn place_of_event<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        event: u64,
    ) -> Boxed<'a, u64> {
        let (tenant, log) = (tenant.clone(), log.clone());
        self.readers.read(move |db| read::place_of_event(db, &tenant, &log, event))
    }

    fn checkpoint<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        at_most: u64,
    ) -> Boxed<'a, Option<Row>> {
        let (tenant, log) = (tenant.clone(), log.clone());
        self.readers.read(move |db| read::checkpoint(db, &tenant, &log, at_most))
    }

    fn about<'a>(&'a self, tenant: &'a Tenant, about: i64) -> Boxed<'a, Vec<(LogId, u64)>> {
        let tenant = tenant.clone();
        self.readers.read(move |db| read::about(db, &tenant, about))
    }

    fn blob<'a>(&'a self, tenant: &'a Tenant, blob: i64) -> Boxed<'a, Option<(Digest, Bytes)>> {
        let tenant = tenant.clone();
        self.readers.read(move |db| read::blob(db, &tenant, blob))
    }

    fn wait<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId, after: u64) -> Boxed<'a, ()> {
        Box::pin(self.waiters.wait(&self.readers, tenant, log, after))
    }

    fn lease<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        owner: &'a str,
        time: Duration,
    ) -> Boxed<'a, Lease> {
        let (tenant, log, owner) = (tenant.clone(), log.clone(), Name::from(owner));
        self.act(move |db, key| keep::lease(db, key, &tenant, &log, &owner, time))
    }

    fn renew<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        fence: Fence,
        time: Duration,
    ) -> Boxed<'a, Lease> {
        let (tenant, log) = (tenant.clone(), log.clone());
        self.act(move |db, _| keep::renew(db, &tenant, &log, fence, time))
    }

    fn release<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId, fence: Fence) -> Boxed<'a, ()> {
        let (tenant, log) = (tenant.clone(), log.clone());
        self.act(move |db, _| keep::release(db, &tenant, &log, fence))
    }

    fn find<'a>(&'a self, tenant: &'a Tenant, keys: &'a [SealedKey]) -> Boxed<'a, Sight> {
        // So many keys are a few pages.
        const FEW: usize = 32;
        let (tenant, keys) = (tenant.clone(), keys.to_vec());
        let is_short = keys.len() <= FEW;
        let find = move |db: &Connection| read::find(db, &tenant, &keys);
        if is_short { self.readers.look(find) } else { self.readers.read(find) }
    }

    fn pending<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: Option<&'a LogId>,
    ) -> Boxed<'a, Vec<Pending>> {
        let (tenant, log) = (tenant.clone(), log.cloned());
        self.readers.read(move |db| read::pending(db, &tenant, log.as_ref()))
    }

    fn last_record(&self) -> Boxed<'_, i64> {
        self.readers.read(read::last_record)
    }

    fn chain<'a>(
        &'a self,
        of: Option<&'a Tenant>,
        after: i64,
        up_to: i64,
        limit: u32,
    ) -> Boxed<'a, Vec<ChainRow>> {
        let of = of.cloned();
        self.readers.read(move |db| read::chain(db, of.as_ref(), after, up_to, limit))
    }

    fn heads<'a>(&'a self, of: Option<&'a Tenant>) -> Boxed<'a, Vec<Head>> {
        let of = of.cloned();
        self.readers.read(move |db| read::heads(db, of.as_ref()))
    }

    fn read_rows<'a>(&'a self, key: RowKey, of: Option<&'a Tenant>) -> Boxed<'a, RowsRead> {
        let of = of.cloned();
        self.readers.read(move |db| rows::read(db, &key, of.as_ref()))
    }

    fn row_states(&self) -> Boxed<'_, Vec<RowState>> {
        self.readers.read(rows::states)
    }

    fn now(&self) -> Boxed<'_, i64> {
        self.readers.read(hot::now)
    }

    fn manifests(&self, after: i64, limit: u32) -> Boxed<'_, Vec<(i64, Manifest)>> {
        self.readers.read(move |db| read::manifests(db, after, limit))
    }

    fn unattended(&self, idle: Duration, after: u64, limit: u32) -> Boxed<'_, Vec<Unattended>> {
        self.readers.read(move |db| read::unattended(db, idle, after, limit))
    }

    fn tenants(&self) -> Boxed<'_, Vec<Tenant>> {
        self.readers.read(read::tenants)
    }

    fn stats(&self) -> Boxed<'_, Stats> {
        let path = self.path.clone();
        self.readers.read(move |db| keep::stats(db, &path))
    }

    fn salts_not_of(
        &self,
        epoch: u32,
        after: i64,
        up_to: i64,
        limit: u32,
    ) -> Boxed<'_, Vec<SaltRow>> {
        self.readers.read(move |db| keep::salts_not_of(db, epoch, after, up_to, limit))
    }

    fn salted(&self, after: i64, up_to: i64) -> Boxed<'_, Vec<i64>> {
        self.readers.read(move |db| keep::salted(db, after, up_to))
    }

    fn rewrap(&self, salts: Vec<SaltRow>) -> Boxed<'_, ()> {
        self.act(move |db, _| keep::rewrap(db, &salts))
    }

    fn keep<'a>(&'a self, name: &'a str, value: Bytes) -> Boxed<'a, Bytes> {
        let name = name.to_owned();
        self.act(move |db, key| keep::keep(db, key, &name, &value))
    }

    fn replace<'a>(&'a self, name: &'a str, value: Bytes) -> Boxed<'a, ()> {
        let name = name.to_owned();
        self.act(move |db, key| Ok(tally::set_value(db, key, &name, Some(&value))?))
    }

    fn discard<'a>(&'a self, name: &'a str) -> Boxed<'a, ()> {
        let name = name.to_owned();
        self.act(move |db, key| Ok(tally::set_value(db, key, &name, None)?))
    }

    fn kept<'a>(&'a self, begins: &'a str) -> Boxed<'a, Vec<(String, Bytes)>> {
        let begins = begins.to_owned();
        self.readers.read(move |db| keep::kept(db, &begins))
    }

    fn key(&self, hash: Digest, revocation: i64) -> Boxed<'_, Option<(ApiKeyRow, bool)>> {
        self.readers.read(move |db| keep::key(db, &hash, revocation))
    }

    fn keys<'a>(&'a self, tenant: &'a Tenant) -> Boxed<'a, Vec<ApiKeyRow>> {
        let tenant = tenant.clone();
        self.readers.read(move |db| keep::keys(db, &tenant))
    }

    fn scrub(&self) -> Boxed<'_, ()> {
        Box::pin(keep::scrub(&self.path, self.patience))
    }

    fn make_room(&self) -> Boxed<'_, ()> {
        Box::pin(reserve::make_room(&self.path))
    }

    fn keep_reserve(&self) -> Boxed<'_, ()> {
        let path = self.path.clone();
        Box::pin(async move {
            let keeping = tokio::task::spawn_blocking(move || reserve::ensure(&path));
            keeping.await.map_err(|_| StoreError::Closed)
        })
    }

    fn backup<'a>(&'a self, plan: NewBackup, progress: Progress<'a>) -> Boxed<'a, ()> {
        Box::pin(backup::backup(&self.path, plan, progress))
    }

    fn version(&self) -> Boxed<'_, u32> {
        let version = |db: &Connection| Ok(u32::try_from(schema::version(db)?).unwrap_or(0));
        self.readers.read(version)
    }

    fn is_stable(&self) -> bool {
        let is_same = |changed| last_change(&self.path) == Some(changed);
        self.changed.is_none_or(|changed| is_same(changed) && !schema::has_wal(&self.path))
    }

    fn check(&self) -> Boxed<'_, Vec<String>> {
        self.readers.read(keep::check)
    }

    fn close(&self) -> Boxed<'_, ()> {
        Box::pin(async move {
            // Readers go first, so that the writer can cut the WAL.
            self.waiters.close();
            self.readers.close().await;
            match &self.writer {
                Some(writer) => writer.close().await,
                None => Ok(()),
            }
        })
    }
}
