//! The store on PostgreSQL, for several nodes at once.
//!
//! A node has one connection that writes, one that listens, and a few that read. Writers hand their batches to a queue;
//! whatever queued up during the last round trip goes out as one statement, which is one round trip and one transaction:
//! see `functions_2.sql` for what it decides and which locks it takes. Nodes share no row that each commit must change.
//!
//! What grows is ready to be partitioned: `records` by a hash of its log, which its primary key holds; `salts` by a hash of
//! the record; numbers come from sequences, and no foreign key stands in the way. `schema_1.sql` says how.
//!
//! The same rooms as in `sqlite`, and `connect`: the way to the server.

mod commit;
mod connect;
mod keep;
mod read;
mod rows;
mod schema;
mod wait;
mod writer;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use throughline_core::{
    Boxed, Digest, Fence, Lease, LogHead, LogId, Name, Pending, Receipt, Sight, StoreError, Tenant,
    Unattended,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::backend::{
    ApiKeyRow, Backend, ChainRow, Listing, Progress, Protection, Row, SaltRow, SealedAppend,
    SealedBatch, SealedKey, Span, Stats,
};
use crate::backups::file::NewBackup;
use crate::chain::Head;
use crate::manifest::{Manifest, Signer};
use crate::options::{Durability, Options};
use crate::postgres::commit::Prepared;
use crate::postgres::connect::Server;
use crate::postgres::wait::Waits;
use crate::postgres::writer::Job;
use crate::row_mac::{RowKey, RowState};
use crate::verify::RowsRead;

/// The store on PostgreSQL.
pub(crate) struct Postgres {
    shared: Arc<Shared>,
    queue: mpsc::Sender<Job>,
    closed: AtomicBool,
    listener: AbortHandle,
}

/// What the tasks of a node share.
struct Shared {
    server: Server,
    /// This opening of the store.
    writer: Name,
    durability: Durability,
    signer: OnceLock<Arc<Signer>>,
    /// The key of row MACs, once the store's keys are open.
    key: OnceLock<RowKey>,
    tenants: Mutex<HashMap<Tenant, i64>>,
    waits: Waits,
}

impl Postgres {
    /// Opens the store at that address, and makes its tables where there are none.
    pub(crate) async fn open(
        url: &str,
        options: &Options,
        writer: Name,
    ) -> Result<Self, StoreError> {
        let server = Server::at(url, options.readers)?;
        schema::migrate(&server, options.create && !options.read_only).await?;
        let shared = Arc::new(Shared {
            server,
            writer,
            durability: options.durability,
            signer: OnceLock::new(),
            key: OnceLock::new(),
            tenants: Mutex::default(),
            waits: Waits::default(),
        });
        let (queue, jobs) = mpsc::channel(options.queue.max(1));
        tokio::spawn(writer::run(shared.clone(), jobs));
        let listener = tokio::spawn(wait::run(shared.clone())).abort_handle();
        Ok(Self { shared, queue, closed: AtomicBool::new(false), listener })
    }

    async fn commit(&self, mut batch: SealedBatch) -> Result<Receipt, StoreError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(StoreError::Closed);
        }
        let order: Vec<LogId> = batch.appends.iter().map(|append| append.log.clone()).collect();
        // A run's thread may be opened by the same batch, in whichever order they stand; the database opens them one by one.
        let opens_run = |append: &SealedAppend| {
            append.opening.as_ref().is_some_and(|opening| opening.of.is_some())
        };
        batch.appends.sort_by_key(opens_run);
        let tenant = self.shared.tenant_made(&batch.tenant).await?;
        let (answer, answered) = oneshot::channel();
        let job = Job::Commit(Box::new(Prepared::new(batch, tenant)), answer);
        self.queue.send(job).await.map_err(|_| StoreError::Closed)?;
        let mut receipt = answered.await.map_err(|_| StoreError::Closed)??;
        receipt.written.sort_by_key(|written| {
            order.iter().position(|log| *log == written.log).unwrap_or(order.len())
        });
        Ok(receipt)
    }

    async fn close(&self) -> Result<(), StoreError> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let (answer, answered) = oneshot::channel();
        self.queue.send(Job::Close(answer)).await.map_err(|_| StoreError::Closed)?;
        let end = answered.await.map_err(|_| StoreError::Closed)?;
        self.shared.waits.close();
        self.listener.abort();
        self.shared.server.close();
        end
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // The writer ends by itself, once it has written what is queued.
        self.listener.abort();
    }
}

impl Shared {
    /// The key of row MACs.
    fn key(&self) -> Result<&RowKey, StoreError> {
        self.key.get().ok_or_else(crate::refusal::no_keys)
    }

    /// The tenant's number, if it has one.
    async fn tenant(&self, tenant: &Tenant) -> Result<Option<i64>, StoreError> {
        if let Some(id) = self.tenants.lock().unwrap_or_else(PoisonError::into_inner).get(tenant) {
            return Ok(Some(*id));
        }
        let sql = "SELECT id FROM tenants WHERE name = $1";
        let Some(row) = self.server.query_opt(sql, &[&&*tenant.0]).await? else { return Ok(None) };
        let id = read::field(&row, 0)?;
        let mut known = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(tenant.clone(), id);
        Ok(Some(id))
    }

    /// The tenant's number. A tenant that has only a number has nothing: see [`read::tenants`].
    async fn tenant_made(&self, tenant: &Tenant) -> Result<i64, StoreError> {
        if let Some(id) = self.tenant(tenant).await? {
            return Ok(id);
        }
        let sql = "SELECT throughline_tenant($1, $2)";
        self.server.query(sql, &[&self.key()?.bytes(), &&*tenant.0]).await?;
        let id = self.tenant(tenant).await?;
        id.ok_or_else(|| StoreError::Corrupt(format!("the tenant {tenant} vanished").into()))
    }
}

impl Backend for Postgres {
    fn commit(&self, batch: SealedBatch) -> Boxed<'_, Receipt> {
        Box::pin(self.commit(batch))
    }

    fn protect(&self, protection: Protection) -> Boxed<'_, ()> {
        Box::pin(async move {
            rows::protect(&self.shared, &protection).await?;
            // The next opener supplies the same key.
            drop(self.shared.key.set(protection.key));
            Ok(())
        })
    }

    fn sign_with(&self, signer: Arc<Signer>) {
        // Whoever signs first signs for good.
        drop(self.shared.signer.set(signer));
    }

    fn log<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId) -> Boxed<'a, Option<LogHead>> {
        Box::pin(read::log(&self.shared, tenant, log))
    }

    fn logs<'a>(&'a self, tenant: &'a Tenant, listing: Listing) -> Boxed<'a, Vec<LogHead>> {
        Box::pin(read::logs(&self.shared, tenant, listing))
    }

    fn rows<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId, span: Span) -> Boxed<'a, Vec<Row>> {
        Box::pin(read::rows(&self.shared, tenant, log, span))
    }

    fn place_of_event<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        event: u64,
    ) -> Boxed<'a, u64> {
        Box::pin(read::place_of_event(&self.shared, tenant, log, event))
    }

    fn checkpoint<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        at_most: u64,
    ) -> Boxed<'a, Option<Row>> {
        Box::pin(read::checkpoint(&self.shared, tenant, log, at_most))
    }

    fn about<'a>(&'a self, tenant: &'a Tenant, about: i64) -> Boxed<'a, Vec<(LogId, u64)>> {
        Box::pin(read::about(&self.shared, tenant, about))
    }

    fn blob<'a>(&'a self, tenant: &'a Tenant, blob: i64) -> Boxed<'a, Option<(Digest, Bytes)>> {
        Box::pin(read::blob(&self.shared, tenant, blob))
    }

    fn wait<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId, after: u64) -> Boxed<'a, ()> {
        Box::pin(wait::wait(&self.shared, tenant, log, after))
    }

    fn lease<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        owner: &'a str,
        time: Duration,
    ) -> Boxed<'a, Lease> {
        Box::pin(keep::lease(&self.shared, tenant, log, owner, time))
    }

    fn renew<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        fence: Fence,
        time: Duration,
    ) -> Boxed<'a, Lease> {
        Box::pin(keep::renew(&self.shared, tenant, log, fence, time))
    }

    fn release<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId, fence: Fence) -> Boxed<'a, ()> {
        Box::pin(keep::release(&self.shared, tenant, log, fence))
    }

    fn find<'a>(&'a self, tenant: &'a Tenant, keys: &'a [SealedKey]) -> Boxed<'a, Sight> {
        Box::pin(read::find(&self.shared, tenant, keys))
    }

    fn pending<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: Option<&'a LogId>,
    ) -> Boxed<'a, Vec<Pending>> {
        Box::pin(read::pending(&self.shared, tenant, log))
    }

    fn last_record(&self) -> Boxed<'_, i64> {
        Box::pin(read::settled(&self.shared, "records"))
    }

    fn chain<'a>(
        &'a self,
        of: Option<&'a Tenant>,
        after: i64,
        up_to: i64,
        limit: u32,
    ) -> Boxed<'a, Vec<ChainRow>> {
        Box::pin(read::chain(&self.shared, of, after, up_to, limit))
    }

    fn heads<'a>(&'a self, of: Option<&'a Tenant>) -> Boxed<'a, Vec<Head>> {
        Box::pin(read::heads(&self.shared, of))
    }

    fn read_rows<'a>(&'a self, key: RowKey, of: Option<&'a Tenant>) -> Boxed<'a, RowsRead> {
        Box::pin(async move { rows::read(&self.shared, &key, of).await })
    }

    fn row_states(&self) -> Boxed<'_, Vec<RowState>> {
        Box::pin(rows::states(&self.shared))
    }

    fn now(&self) -> Boxed<'_, i64> {
        Box::pin(keep::now(&self.shared))
    }

    fn manifests(&self, after: i64, limit: u32) -> Boxed<'_, Vec<(i64, Manifest)>> {
        Box::pin(read::manifests(&self.shared, after, limit))
    }

    fn unattended(&self, idle: Duration, after: u64, limit: u32) -> Boxed<'_, Vec<Unattended>> {
        Box::pin(read::unattended(&self.shared, idle, after, limit))
    }

    fn tenants(&self) -> Boxed<'_, Vec<Tenant>> {
        Box::pin(read::tenants(&self.shared))
    }

    fn stats(&self) -> Boxed<'_, Stats> {
        Box::pin(keep::stats(&self.shared))
    }

    fn salts_not_of(
        &self,
        epoch: u32,
        after: i64,
        up_to: i64,
        limit: u32,
    ) -> Boxed<'_, Vec<SaltRow>> {
        Box::pin(keep::salts_not_of(&self.shared, epoch, after, up_to, limit))
    }

    fn salted(&self, after: i64, up_to: i64) -> Boxed<'_, Vec<i64>> {
        Box::pin(keep::salted(&self.shared, after, up_to))
    }

    fn rewrap(&self, salts: Vec<SaltRow>) -> Boxed<'_, ()> {
        Box::pin(keep::rewrap(&self.shared, salts))
    }

    fn keep<'a>(&'a self, name: &'a str, value: Bytes) -> Boxed<'a, Bytes> {
        Box::pin(keep::keep(&self.shared, name, value))
    }

    fn replace<'a>(&'a self, name: &'a str, value: Bytes) -> Boxed<'a, ()> {
        Box::pin(keep::replace(&self.shared, name, value))
    }

    fn discard<'a>(&'a self, name: &'a str) -> Boxed<'a, ()> {
        Box::pin(keep::discard(&self.shared, name))
    }

    fn kept<'a>(&'a self, begins: &'a str) -> Boxed<'a, Vec<(String, Bytes)>> {
        Box::pin(keep::kept(&self.shared, begins))
    }

    fn key(&self, hash: Digest, revocation: i64) -> Boxed<'_, Option<(ApiKeyRow, bool)>> {
        Box::pin(keep::key(&self.shared, hash, revocation))
    }

    fn keys<'a>(&'a self, tenant: &'a Tenant) -> Boxed<'a, Vec<ApiKeyRow>> {
        Box::pin(keep::keys(&self.shared, tenant))
    }

    fn scrub(&self) -> Boxed<'_, ()> {
        Box::pin(keep::scrub(&self.shared))
    }

    fn make_room(&self) -> Boxed<'_, ()> {
        // The server's disk is its own operator's.
        Box::pin(async { Ok(()) })
    }

    fn keep_reserve(&self) -> Boxed<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn backup<'a>(&'a self, plan: NewBackup, progress: Progress<'a>) -> Boxed<'a, ()> {
        Box::pin(keep::backup::backup(&self.shared, plan, progress))
    }

    fn version(&self) -> Boxed<'_, u32> {
        Box::pin(async move {
            let client = self.shared.server.client().await?;
            schema::version(&self.shared.server, &client).await
        })
    }

    fn is_stable(&self) -> bool {
        true
    }

    fn check(&self) -> Boxed<'_, Vec<String>> {
        Box::pin(keep::check(&self.shared))
    }

    fn close(&self) -> Boxed<'_, ()> {
        Box::pin(self.close())
    }
}

#[cfg(test)]
mod postgres_tests;
