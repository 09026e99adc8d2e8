//! Implements [`Driver`] for a PostgreSQL server.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use throughline_core::{
    Fence, Lease, LogId, Receipt, StoreError, StoreFuture, Tenant, VaultLookup, VaultTurn,
};
use tokio::runtime::Handle;
use tokio_postgres::error::SqlState;
use tokio_postgres::{IsolationLevel, SimpleQueryMessage};

use crate::backend::{Dialect, Driver, SnapshotWork};
use crate::manifest::Signer;
use crate::postgres::commit::{self, Lock};
use crate::postgres::protect::protect;
use crate::postgres::values::{BlockingTransaction, Parameter, damaged, parameters};
use crate::postgres::{Postgres, Shared, read, wait};
use crate::protection::Protection;
use crate::rejection::Result;
use crate::row::SaltRow;
use crate::sealed_batch::{SealedBatch, SealedKey};
use crate::sql::{SqlRow, SqlValue, TABLES, timestamp};
use crate::sync::blocking;

static DIALECT: Dialect = Dialect {
    now: "throughline_now()",
    version: "coalesce(max(version), 0) FROM throughline_schema",
    lease_is_active: "(coalesce(h.until, 0) > throughline_now())",
    span: "r.span",
    pack_columns: "r.span, (SELECT string_agg((r.id - p.record) || ' ' || p.epoch || ' ' \
        || encode(p.salt, 'hex'), ',') FROM salts p WHERE r.span > 0 \
        AND p.record BETWEEN r.id - r.span AND r.id AND p.tenant = r.tenant)",
    log_order: &["hour", "updated", "id"],
};

/// The dialect of a store with an earlier schema version, which is opened read-only.
static WITHOUT_PACKS: Dialect = Dialect { span: "0", pack_columns: "0, NULL::text", ..DIALECT };

impl Driver for Postgres {
    fn dialect(&self) -> &'static Dialect {
        if self.shared.has_packs.load(Ordering::Acquire) { &DIALECT } else { &WITHOUT_PACKS }
    }

    fn query(&self, sql: &str, values: &[SqlValue]) -> StoreFuture<'_, Vec<SqlRow>> {
        let (sql, values) = (sql.to_owned(), values.to_vec());
        Box::pin(async move {
            let rows = self.shared.server.query(&sql, &parameters(&values)).await?;
            if !self.shared.has_packs.load(Ordering::Acquire) {
                // An upgrade that the query could see is visible now.
                let client = self.shared.server.pooled().await?;
                self.shared.check_version(&client).await?;
            }
            Ok(rows)
        })
    }

    fn snapshot(&self, page: i32, work: SnapshotWork) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let (shared, runtime) = (Arc::clone(&self.shared), Handle::current());
            let mut client = shared.server.client().await?;
            blocking(move || {
                let server = &shared.server;
                let snapshot = client.build_transaction().read_only(true);
                let snapshot = snapshot.isolation_level(IsolationLevel::RepeatableRead).start();
                let transaction =
                    runtime.block_on(snapshot).map_err(|error| server.error(error))?;
                let (runtime, transaction) = (&runtime, &transaction);
                if server.is_pooler {
                    // The pooler may have connected to another server since the client was opened.
                    runtime.block_on(server.check(transaction.client()))?;
                }
                let has_packs = shared.has_packs.load(Ordering::Acquire);
                if !has_packs {
                    runtime.block_on(shared.check_version(transaction.client()))?;
                }
                work(&BlockingTransaction { runtime, server, transaction, page, has_packs })
            })
            .await
        })
    }

    fn commit(&self, batch: SealedBatch) -> StoreFuture<'_, Receipt> {
        Box::pin(self.commit(batch))
    }

    fn wait(&self, tenant: &Tenant, log: &LogId, after: u64) -> StoreFuture<'_, ()> {
        let key = (tenant.clone(), log.clone());
        let read = wait::poll_logs(&self.shared, vec![key.clone()]);
        Box::pin(self.shared.waits.wait(key, after, read))
    }

    fn find(&self, tenant: &Tenant, keys: &[SealedKey]) -> StoreFuture<'_, VaultLookup> {
        let (tenant, keys) = (tenant.clone(), keys.to_vec());
        Box::pin(async move { read::find(&self.shared, &tenant, &keys).await })
    }

    fn find_newest(
        &self,
        tenant: &Tenant,
        key: SealedKey,
        limit: u32,
    ) -> StoreFuture<'_, Vec<VaultTurn>> {
        let tenant = tenant.clone();
        Box::pin(async move { read::find_newest(&self.shared, &tenant, &key, limit).await })
    }

    fn lease(
        &self,
        tenant: &Tenant,
        log: &LogId,
        owner: &str,
        time: Duration,
    ) -> StoreFuture<'_, Lease> {
        let (tenant, log, owner) = (tenant.clone(), log.clone(), owner.to_owned());
        Box::pin(async move {
            let id = self.shared.find_or_create_tenant(&tenant).await?;
            let lock = commit::lock(Lock::Log, id, log.0.as_bytes());
            let sql = "SELECT o_fence, o_until, o_held FROM throughline_lease($1, $2, $3, $4, $5)";
            let values: [Parameter<'_>; 5] = [&lock, &id, &&*log.0, &owner, &milliseconds(time)];
            let row = self.shared.server.query_one(sql, &values).await?;
            let Some(fence) = row.get::<Option<u64>>(0)? else {
                let (owner, left_ms) = (row.get(2)?, row.get(1)?);
                return Err(StoreError::Held { log, owner, left_ms });
            };
            let fence = Fence(NonZeroU64::new(fence).ok_or_else(|| damaged("a fence"))?);
            Ok(Lease { fence, until: row.get(1)? })
        })
    }

    fn renew(
        &self,
        tenant: &Tenant,
        log: &LogId,
        fence: Fence,
        time: Duration,
    ) -> StoreFuture<'_, Lease> {
        let (tenant, log) = (tenant.clone(), log.clone());
        Box::pin(async move {
            let until = renew(&self.shared, &tenant, &log, fence, milliseconds(time)).await?;
            let until = until.ok_or_else(|| StoreError::Fenced { log })?;
            Ok(Lease { fence, until: timestamp(until) })
        })
    }

    fn release(&self, tenant: &Tenant, log: &LogId, fence: Fence) -> StoreFuture<'_, ()> {
        let (tenant, log) = (tenant.clone(), log.clone());
        Box::pin(async move { renew(&self.shared, &tenant, &log, fence, 0).await.map(drop) })
    }

    fn protect(&self, protection: Protection) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            protect(&self.shared, protection.clone()).await?;
            self.shared.has_packs.store(true, Ordering::Release);
            // Ignore the error if a key is set, because every call supplies the same key.
            drop(self.shared.key.set(protection.key));
            Ok(())
        })
    }

    fn sign_with(&self, signer: Arc<Signer>) {
        // Ignore the error if a signer is set; the first signer stays.
        drop(self.shared.signer.set(signer));
    }

    fn last_id(&self, table: &'static str) -> StoreFuture<'_, i64> {
        Box::pin(settled(&self.shared, table))
    }

    fn is_stable(&self) -> bool {
        true
    }

    fn check_files(&self) -> StoreFuture<'_, Vec<String>> {
        Box::pin(check_indexes(&self.shared))
    }

    fn keep(&self, name: &str, value: Bytes) -> StoreFuture<'_, Bytes> {
        let name = name.to_owned();
        Box::pin(async move {
            let server = &self.shared.server;
            let Some(key) = self.shared.key.get() else {
                let sql = format!(
                    "INSERT INTO kept (name, value) SELECT $1, $2 {IF_NOT_SUMMED} ON CONFLICT DO NOTHING"
                );
                server.query(&sql, &[&name, &&*value]).await?;
                let sql = "SELECT value FROM kept WHERE name = $1";
                let row = server.query_opt(sql, &[&name]).await?;
                return row.ok_or_else(created_concurrently)?.get(0);
            };
            let sql = "SELECT throughline_keep($1, $2, $3)";
            server.query_one(sql, &[&key.bytes(), &name, &&*value]).await?.get(0)
        })
    }

    fn set_value(&self, name: &str, value: Option<Bytes>) -> StoreFuture<'_, ()> {
        let name = name.to_owned();
        Box::pin(async move {
            let server = &self.shared.server;
            let Some(value) = value else {
                let sql = "SELECT throughline_replace($1, $2, NULL)";
                return server.query(sql, &[&self.shared.key()?.bytes(), &name]).await.map(drop);
            };
            let Some(key) = self.shared.key.get() else {
                let sql = format!(
                    "INSERT INTO kept (name, value) SELECT $1, $2 {IF_NOT_SUMMED} \
                     ON CONFLICT (name) DO UPDATE SET value = excluded.value RETURNING name"
                );
                let row = server.query_opt(&sql, &[&name, &&*value]).await?;
                return row.map(drop).ok_or_else(created_concurrently);
            };
            let sql = "SELECT throughline_replace($1, $2, $3)";
            server.query(sql, &[&key.bytes(), &name, &&*value]).await.map(drop)
        })
    }

    /// Only one node rewraps salts at a time. Commits that erase content wait until that node has
    /// finished.
    fn rewrap(&self, salts: Vec<SaltRow>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let records: Vec<i64> = salts.iter().map(|row| row.record).collect();
            let epoch = |row: &SaltRow| i32::try_from(row.salt.epoch).unwrap_or(i32::MAX);
            let epochs: Vec<i32> = salts.iter().map(epoch).collect();
            let wrapped: Vec<&[u8]> = salts.iter().map(|row| &*row.salt.bytes).collect();
            let sql = "SELECT throughline_rewrap($1, $2, $3)";
            self.shared.server.query(sql, &[&records, &epochs, &wrapped]).await.map(drop)
        })
    }

    fn disk_bytes(&self) -> StoreFuture<'_, u64> {
        let sql = "SELECT pg_database_size(current_database())";
        Box::pin(async move { self.shared.server.query_one(sql, &[]).await?.get(0) })
    }

    /// Rewrites all tables that had deleted rows, so that no data file contains these rows any
    /// longer. The salts come first, because sealed content cannot be decrypted without them.
    /// Writers wait until all tables are rewritten.
    ///
    /// Deleted salts remain in the write-ahead log until its segments are recycled. A checkpoint
    /// makes the server recycle segments earlier, if the role may request one. Archives, lagging
    /// replicas and base backups also keep deleted salts. To erase these copies, use a master key
    /// and rotate it: all copies of the salts are then wrapped, and the old key can be destroyed.
    fn scrub(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let client = self.shared.server.client().await?;
            for act in
                ["VACUUM (FULL) salts", "VACUUM (FULL) blobs", "VACUUM records", "CHECKPOINT"]
            {
                match client.batch_execute(act).await {
                    Err(error)
                        if act == "CHECKPOINT"
                            && error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {}
                    done => done.map_err(|error| self.shared.server.error(error))?,
                }
            }
            Ok(())
        })
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.close())
    }
}

/// Extends a lease to `time` milliseconds from now and returns its end. Returns `None` if the lease
/// is not active.
async fn renew(
    shared: &Shared,
    tenant: &Tenant,
    log: &LogId,
    fence: Fence,
    time: i64,
) -> Result<Option<i64>> {
    let Some(id) = shared.tenant(tenant).await? else { return Ok(None) };
    let Ok(fence) = i64::try_from(fence.0.get()) else { return Ok(None) };
    let lock = commit::lock(Lock::Log, id, log.0.as_bytes());
    let sql = "SELECT throughline_renew($1, $2, $3, $4, $5)";
    shared.server.query_one(sql, &[&lock, &id, &&*log.0, &fence, &time]).await?.get(0)
}

/// Converts a duration to milliseconds, between 1 millisecond and a century.
fn milliseconds(time: Duration) -> i64 {
    const CENTURY: i64 = 100 * 366 * 24 * 60 * 60 * 1000;
    i64::try_from(time.as_millis()).unwrap_or(CENTURY).clamp(1, CENTURY)
}

/// SQL condition that allows internal values to be written without a row MAC key: the store has no
/// row sums yet.
const IF_NOT_SUMMED: &str = "WHERE NOT EXISTS (SELECT FROM kept WHERE name = 'tally')";

fn created_concurrently() -> StoreError {
    StoreError::invalid("another process created the store at the same time; open the store again")
}

/// Returns the highest id in a table up to which all rows are committed. Ids are assigned before
/// rows are visible, so a lower id may appear after a higher one. During the query, the store's
/// exclusive lock briefly keeps all nodes from writing.
pub(super) async fn settled(shared: &Shared, table: &str) -> Result<i64> {
    let sql = format!(
        "SELECT pg_advisory_xact_lock(1414025804, 0); SELECT coalesce(max(id), 0) FROM {table}"
    );
    let client = shared.server.pooled().await?;
    let answer = client.simple_query(&sql).await.map_err(|error| shared.server.error(error))?;
    let rows = answer.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.try_get(0).ok().flatten(),
        _ => None,
    });
    rows.last().and_then(|id| id.parse().ok()).ok_or_else(|| damaged("the last number of a table"))
}

/// Checks all indexes of the store with the extension `amcheck`, if it is installed.
async fn check_indexes(shared: &Shared) -> Result<Vec<String>> {
    let sql = "SELECT FROM pg_extension WHERE extname = 'amcheck'";
    if shared.server.query(sql, &[]).await?.is_empty() {
        return Ok(Vec::new());
    }
    let sql = "SELECT i.indexrelid::regclass::text FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid \
               WHERE c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'records'::regclass) \
               AND c.relname = ANY ($1)";
    let tables: Vec<&str> = TABLES.iter().map(|(table, _)| *table).collect();
    let mut problems = Vec::new();
    for row in shared.server.query(sql, &[&tables]).await? {
        let index: String = row.get(0)?;
        let checked = "SELECT bt_index_check(to_regclass($1))";
        match shared.server.query(checked, &[&index]).await {
            Ok(_) => {}
            Err(StoreError::Database(error)) => {
                let reason = std::error::Error::source(&*error).map(ToString::to_string);
                let reason = reason.unwrap_or_else(|| error.to_string());
                problems.push(format!("The index {index} could not be verified: {reason}."));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(problems)
}
