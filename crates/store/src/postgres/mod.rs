//! The PostgreSQL backend, which several nodes can share.
//!
//! Each node has one connection for writing, one for notifications, and a pool for reading. Writers
//! put batches into a queue. All batches that were queued during the last round trip are sent as
//! one statement, which takes one round trip and one transaction. `functions_3.sql` documents how
//! the statement decides and which locks it takes. No row is changed by every commit, so nodes do
//! not contend for a shared row.
//!
//! The large tables can be partitioned: `records` by a hash of the log, which is part of the
//! primary key, and `salts` by a hash of the record. Ids come from sequences, and no foreign keys
//! prevent partitioning. See `schema_1.sql`.
//!
//! The modules correspond to the modules of `sqlite`. `url`, `tls`, `connect`, `known` and `pooler`
//! add the connections to the server.

mod commit;
mod connect;
mod copy;
mod driver;
mod known;
mod pooler;
mod protect;
mod read;
mod schema;
mod tls;
mod url;
mod values;
mod wait;
mod writer;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use throughline_core::{LogId, Receipt, StoreError, Tenant};
use throughline_json::Name;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::manifest::Signer;
use crate::options::{Durability, Options};
use crate::postgres::commit::PreparedBatch;
use crate::postgres::connect::Server;
use crate::postgres::wait::Announcements;
use crate::postgres::writer::PostgresJob;
use crate::rejection::{Result, corrupt, invalid};
use crate::row_mac::RowKey;
use crate::sealed_batch::{SealedAppend, SealedBatch};
use crate::sync::blocking;
use crate::waits::WaitRegistry;

pub(crate) use crate::postgres::copy::{PostgresTarget, has_store};

pub(crate) struct Postgres {
    shared: Arc<Shared>,
    queue: mpsc::Sender<PostgresJob>,
    closed: AtomicBool,
    listener: AbortHandle,
}

/// State shared by all tasks of a node.
struct Shared {
    server: Server,
    /// A direct connection to the server for notifications, if `server` is a pooler.
    listen: Option<Server>,
    /// Id of the writer, which is new each time the store is opened.
    writer: Name,
    durability: Durability,
    signer: OnceLock<Arc<Signer>>,
    /// The key for row MACs, set once the store's keys are loaded.
    key: OnceLock<RowKey>,
    waits: WaitRegistry,
    announcements: Announcements,
    /// Whether the schema has packs. A store of an earlier version that is opened read-only has
    /// none.
    has_packs: AtomicBool,
}

/// Parses the URLs of the database and of the connection for notifications.
async fn servers(url: &str, options: &Options) -> Result<(Server, Option<Server>)> {
    let (url, listen_url, readers) = (url.to_owned(), options.listen_url.clone(), options.readers);
    blocking(move || {
        let server = Server::at(&url, readers, listen_url.is_some())?;
        let listen = listen_url.map(|url| Server::at(&url, 1, false)).transpose();
        let listen = listen.map_err(|error| invalid!("listen_url: {error}"))?;
        match listen {
            Some(listen) if listen.is_pooler => Err(invalid!(
                "listen_url must be the URL of the server itself, without pgbouncer=true"
            )),
            listen => Ok((server, listen)),
        }
    })
    .await
}

impl Shared {
    /// Returns the server that notifies of new records, or `None` if the node must poll.
    fn notifier(&self) -> Option<&Server> {
        self.listen.as_ref().or((!self.server.is_pooler).then_some(&self.server))
    }

    /// Checks that a store without packs still has none. A process that opened the store read-only
    /// does not notice when another process upgrades it. The statements of the earlier version
    /// would misread packs, so their results are discarded.
    async fn check_version(&self, client: &tokio_postgres::Client) -> Result<()> {
        if schema::version(&self.server, client).await? < schema::KNOWN {
            return Ok(());
        }
        self.has_packs.store(true, Ordering::Release);
        Err(invalid!("another process upgraded {}; repeat the operation", self.server.name()))
    }
}

impl Postgres {
    /// Opens the store at this URL. Creates its tables if there are none and the options allow
    /// this.
    pub(crate) async fn open(url: &str, options: &Options, writer: Name) -> Result<Self> {
        let (server, listen) = servers(url, options).await?;
        let version = schema::migrate(&server, options.create && !options.read_only).await?;
        let client = server.client().await?;
        let remembered = server.known.remember(&client, &writer).await;
        remembered.map_err(|error| server.error(error))?;
        // The first check finds out which server a pooler uses.
        server.check(&client).await?;
        drop(client);
        let shared = Arc::new(Shared {
            server,
            listen,
            writer,
            durability: options.durability,
            signer: OnceLock::new(),
            key: OnceLock::new(),
            waits: WaitRegistry::default(),
            announcements: Announcements::default(),
            has_packs: AtomicBool::new(version == schema::KNOWN),
        });
        let (queue, jobs) = mpsc::channel(options.queue.max(1));
        tokio::spawn(writer::run(shared.clone(), jobs));
        let listener = tokio::spawn(wait::run(shared.clone())).abort_handle();
        Ok(Self { shared, queue, closed: AtomicBool::new(false), listener })
    }

    async fn commit(&self, mut batch: SealedBatch) -> Result<Receipt> {
        if self.closed.load(Ordering::Acquire) {
            return Err(StoreError::Closed);
        }
        let order: Vec<LogId> = batch.appends.iter().map(|append| append.log.clone()).collect();
        // The batch may list a run before its Thread, but the database opens logs in the given
        // order.
        let opens_run = |append: &SealedAppend| {
            append.opening.as_ref().is_some_and(|opening| opening.of.is_some())
        };
        batch.appends.sort_by_key(opens_run);
        let tenant = self.shared.find_or_create_tenant(&batch.tenant).await?;
        let (answer, answered) = oneshot::channel();
        let job = PostgresJob::Commit(Box::new(PreparedBatch::new(batch, tenant)), answer);
        self.queue.send(job).await.map_err(|_| StoreError::Closed)?;
        let mut receipt = answered.await.map_err(|_| StoreError::Closed)??;
        receipt.written.sort_by_key(|written| {
            order.iter().position(|log| *log == written.log).unwrap_or(order.len())
        });
        Ok(receipt)
    }

    async fn close(&self) -> Result<()> {
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
        // The writer task ends by itself after it has written the queue.
        self.listener.abort();
    }
}

impl Shared {
    /// Returns the key for row MACs. Fails if the store's keys are not loaded yet.
    fn key(&self) -> Result<&RowKey> {
        self.key.get().ok_or_else(crate::rejection::no_keys)
    }

    /// Returns the tenant's id, if the tenant exists.
    async fn tenant(&self, tenant: &Tenant) -> Result<Option<i64>> {
        if let Some(id) = self.server.known.tenant(tenant) {
            return Ok(Some(id));
        }
        let sql = "SELECT id FROM tenants WHERE name = $1";
        let Some(row) = self.server.query_opt(sql, &[&&*tenant.0]).await? else { return Ok(None) };
        let id = row.get(0)?;
        self.server.known.add_tenant(tenant, id);
        Ok(Some(id))
    }

    /// Returns the tenant's id, and creates the tenant if it does not exist. A tenant that has only
    /// this row is not listed.
    async fn find_or_create_tenant(&self, tenant: &Tenant) -> Result<i64> {
        if let Some(id) = self.tenant(tenant).await? {
            return Ok(id);
        }
        let sql = "SELECT throughline_tenant($1, $2)";
        self.server.query(sql, &[&self.key()?.bytes(), &&*tenant.0]).await?;
        let id = self.tenant(tenant).await?;
        id.ok_or_else(|| corrupt!("the tenant {tenant} no longer exists"))
    }
}

#[cfg(test)]
mod postgres_tests;
