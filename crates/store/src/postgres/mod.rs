//! The store on PostgreSQL, for several nodes.
//!
//! Each node has one connection for writing, one for notifications, and a pool for reading. Writers
//! put batches into a queue. Everything that queued during the last round trip is sent as one
//! statement, which is one round trip and one transaction; `functions_2.sql` documents its
//! decisions and locks. Nodes share no row that each commit must change.
//!
//! The large tables can be partitioned: `records` by a hash of its log, which is part of its
//! primary key, and `salts` by a hash of the record. Numbers come from sequences, and there are no
//! foreign keys in the way. See `schema_1.sql`.
//!
//! The modules match those of `sqlite`, plus `connect` for connections to the server.

mod admin;
mod commit;
mod connect;
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
    Digest, Fence, Lease, LogHead, LogId, Name, PendingEntry, Receipt, StaleRun, StoreError,
    StoreFuture, Tenant, VaultLookup,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::backend::{
    AdminBackend, KeyBackend, LeaseBackend, LogBackend, ProofBackend, ValueBackend, VaultBackend,
};
use crate::backup_files::NewBackup;
use crate::chain::Head;
use crate::manifest::{Manifest, Signer};
use crate::options::{Durability, Options};
use crate::postgres::commit::PreparedBatch;
use crate::postgres::connect::Server;
use crate::postgres::wait::WaitRegistry;
use crate::postgres::writer::PostgresJob;
use crate::protection::Protection;
use crate::query::{Listing, Progress, Span, Stats};
use crate::row::{ApiKeyRow, ChainRow, Row, SaltRow};
use crate::row_mac::RowSnapshot;
use crate::row_mac::{RowKey, RowState};
use crate::sealed_batch::{SealedAppend, SealedBatch, SealedKey};

/// The store on PostgreSQL.
pub(crate) struct Postgres {
    shared: Arc<Shared>,
    queue: mpsc::Sender<PostgresJob>,
    closed: AtomicBool,
    listener: AbortHandle,
}

/// State shared by the tasks of a node.
struct Shared {
    server: Server,
    /// The id of this opening of the store.
    writer: Name,
    durability: Durability,
    signer: OnceLock<Arc<Signer>>,
    /// The key of row MACs, set once the store's keys are loaded.
    key: OnceLock<RowKey>,
    tenants: Mutex<HashMap<Tenant, i64>>,
    waits: WaitRegistry,
}

impl Postgres {
    /// Opens the store at this URL, and creates its tables if there are none.
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
            waits: WaitRegistry::default(),
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
        // The batch may open a run before its Thread, but the database opens them in order.
        let opens_run = |append: &SealedAppend| {
            append.opening.as_ref().is_some_and(|opening| opening.of.is_some())
        };
        batch.appends.sort_by_key(opens_run);
        let tenant = self.shared.tenant_made(&batch.tenant).await?;
        let (answer, answered) = oneshot::channel();
        let job = PostgresJob::Commit(Box::new(PreparedBatch::new(batch, tenant)), answer);
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
        self.queue.send(PostgresJob::Close(answer)).await.map_err(|_| StoreError::Closed)?;
        let end = answered.await.map_err(|_| StoreError::Closed)?;
        self.shared.waits.close();
        self.listener.abort();
        self.shared.server.close();
        end
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // The writer task ends after it has written the queue.
        self.listener.abort();
    }
}

impl Shared {
    /// Returns the key of row MACs.
    fn key(&self) -> Result<&RowKey, StoreError> {
        self.key.get().ok_or_else(crate::rejection::no_keys)
    }

    /// Returns the tenant's number, if it exists.
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

    /// Returns the tenant's number, and creates the tenant if it does not exist. A tenant with only
    /// a number has no data: see [`read::tenants`].
    async fn tenant_made(&self, tenant: &Tenant) -> Result<i64, StoreError> {
        if let Some(id) = self.tenant(tenant).await? {
            return Ok(id);
        }
        let sql = "SELECT throughline_tenant($1, $2)";
        self.server.query(sql, &[&self.key()?.bytes(), &&*tenant.0]).await?;
        let id = self.tenant(tenant).await?;
        id.ok_or_else(|| {
            StoreError::Corrupt(format!("the tenant {tenant} no longer exists").into())
        })
    }
}

impl LogBackend for Postgres {
    fn commit(&self, batch: SealedBatch) -> StoreFuture<'_, Receipt> {
        Box::pin(self.commit(batch))
    }

    fn log<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId) -> StoreFuture<'a, Option<LogHead>> {
        Box::pin(read::log(&self.shared, tenant, log))
    }

    fn logs<'a>(&'a self, tenant: &'a Tenant, listing: Listing) -> StoreFuture<'a, Vec<LogHead>> {
        Box::pin(read::logs(&self.shared, tenant, listing))
    }

    fn rows<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        span: Span,
    ) -> StoreFuture<'a, Vec<Row>> {
        Box::pin(read::rows(&self.shared, tenant, log, span))
    }

    fn place_of_event<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        event: u64,
    ) -> StoreFuture<'a, u64> {
        Box::pin(read::place_of_event(&self.shared, tenant, log, event))
    }

    fn checkpoint<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        at_most: u64,
    ) -> StoreFuture<'a, Option<Row>> {
        Box::pin(read::checkpoint(&self.shared, tenant, log, at_most))
    }

    fn about<'a>(&'a self, tenant: &'a Tenant, about: i64) -> StoreFuture<'a, Vec<(LogId, u64)>> {
        Box::pin(read::about(&self.shared, tenant, about))
    }

    fn blob<'a>(
        &'a self,
        tenant: &'a Tenant,
        blob: i64,
    ) -> StoreFuture<'a, Option<(Digest, Bytes)>> {
        Box::pin(read::blob(&self.shared, tenant, blob))
    }

    fn wait<'a>(&'a self, tenant: &'a Tenant, log: &'a LogId, after: u64) -> StoreFuture<'a, ()> {
        Box::pin(wait::wait(&self.shared, tenant, log, after))
    }

    fn pending<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: Option<&'a LogId>,
    ) -> StoreFuture<'a, Vec<PendingEntry>> {
        Box::pin(read::pending(&self.shared, tenant, log))
    }
}

impl VaultBackend for Postgres {
    fn find<'a>(
        &'a self,
        tenant: &'a Tenant,
        keys: &'a [SealedKey],
    ) -> StoreFuture<'a, VaultLookup> {
        Box::pin(read::find(&self.shared, tenant, keys))
    }
}

impl LeaseBackend for Postgres {
    fn lease<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        owner: &'a str,
        time: Duration,
    ) -> StoreFuture<'a, Lease> {
        Box::pin(admin::lease(&self.shared, tenant, log, owner, time))
    }

    fn renew<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        fence: Fence,
        time: Duration,
    ) -> StoreFuture<'a, Lease> {
        Box::pin(admin::renew(&self.shared, tenant, log, fence, time))
    }

    fn release<'a>(
        &'a self,
        tenant: &'a Tenant,
        log: &'a LogId,
        fence: Fence,
    ) -> StoreFuture<'a, ()> {
        Box::pin(admin::release(&self.shared, tenant, log, fence))
    }

    fn unattended(&self, idle: Duration, after: u64, limit: u32) -> StoreFuture<'_, Vec<StaleRun>> {
        Box::pin(read::unattended(&self.shared, idle, after, limit))
    }
}

impl ProofBackend for Postgres {
    fn protect(&self, protection: Protection) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            rows::protect(&self.shared, &protection).await?;
            // The next opener supplies the same key.
            drop(self.shared.key.set(protection.key));
            Ok(())
        })
    }

    fn sign_with(&self, signer: Arc<Signer>) {
        // The first signer stays.
        drop(self.shared.signer.set(signer));
    }

    fn last_record(&self) -> StoreFuture<'_, i64> {
        Box::pin(read::settled(&self.shared, "records"))
    }

    fn chain<'a>(
        &'a self,
        of: Option<&'a Tenant>,
        after: i64,
        up_to: i64,
        limit: u32,
    ) -> StoreFuture<'a, Vec<ChainRow>> {
        Box::pin(read::chain(&self.shared, of, after, up_to, limit))
    }

    fn heads<'a>(&'a self, of: Option<&'a Tenant>) -> StoreFuture<'a, Vec<Head>> {
        Box::pin(read::heads(&self.shared, of))
    }

    fn manifests(&self, after: i64, limit: u32) -> StoreFuture<'_, Vec<(i64, Manifest)>> {
        Box::pin(read::manifests(&self.shared, after, limit))
    }

    fn read_rows<'a>(
        &'a self,
        key: RowKey,
        of: Option<&'a Tenant>,
    ) -> StoreFuture<'a, RowSnapshot> {
        Box::pin(async move { rows::read(&self.shared, &key, of).await })
    }

    fn row_states(&self) -> StoreFuture<'_, Vec<RowState>> {
        Box::pin(rows::states(&self.shared))
    }

    fn is_stable(&self) -> bool {
        true
    }

    fn check(&self) -> StoreFuture<'_, Vec<String>> {
        Box::pin(admin::check(&self.shared))
    }
}

impl ValueBackend for Postgres {
    fn keep<'a>(&'a self, name: &'a str, value: Bytes) -> StoreFuture<'a, Bytes> {
        Box::pin(admin::keep(&self.shared, name, value))
    }

    fn replace<'a>(&'a self, name: &'a str, value: Bytes) -> StoreFuture<'a, ()> {
        Box::pin(admin::replace(&self.shared, name, value))
    }

    fn discard<'a>(&'a self, name: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(admin::discard(&self.shared, name))
    }

    fn kept<'a>(&'a self, begins: &'a str) -> StoreFuture<'a, Vec<(String, Bytes)>> {
        Box::pin(admin::kept(&self.shared, begins))
    }
}

impl KeyBackend for Postgres {
    fn key(&self, hash: Digest, revocation: i64) -> StoreFuture<'_, Option<(ApiKeyRow, bool)>> {
        Box::pin(admin::key(&self.shared, hash, revocation))
    }

    fn keys<'a>(&'a self, tenant: &'a Tenant) -> StoreFuture<'a, Vec<ApiKeyRow>> {
        Box::pin(admin::keys(&self.shared, tenant))
    }

    fn salts_not_of(
        &self,
        epoch: u32,
        after: i64,
        up_to: i64,
        limit: u32,
    ) -> StoreFuture<'_, Vec<SaltRow>> {
        Box::pin(admin::salts_not_of(&self.shared, epoch, after, up_to, limit))
    }

    fn salted(&self, after: i64, up_to: i64) -> StoreFuture<'_, Vec<i64>> {
        Box::pin(admin::salted(&self.shared, after, up_to))
    }

    fn rewrap(&self, salts: Vec<SaltRow>) -> StoreFuture<'_, ()> {
        Box::pin(admin::rewrap(&self.shared, salts))
    }
}

impl AdminBackend for Postgres {
    fn now(&self) -> StoreFuture<'_, i64> {
        Box::pin(admin::now(&self.shared))
    }

    fn tenants(&self) -> StoreFuture<'_, Vec<Tenant>> {
        Box::pin(read::tenants(&self.shared))
    }

    fn stats(&self) -> StoreFuture<'_, Stats> {
        Box::pin(admin::stats(&self.shared))
    }

    fn version(&self) -> StoreFuture<'_, u32> {
        Box::pin(async move {
            let client = self.shared.server.client().await?;
            schema::version(&self.shared.server, &client).await
        })
    }

    fn scrub(&self) -> StoreFuture<'_, ()> {
        Box::pin(admin::scrub(&self.shared))
    }

    fn make_room(&self) -> StoreFuture<'_, ()> {
        // The server's operator manages its disk.
        Box::pin(async { Ok(()) })
    }

    fn keep_reserve(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn backup<'a>(&'a self, plan: NewBackup, progress: Progress<'a>) -> StoreFuture<'a, ()> {
        Box::pin(admin::backup::backup(&self.shared, plan, progress))
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.close())
    }
}

#[cfg(test)]
mod postgres_tests;
