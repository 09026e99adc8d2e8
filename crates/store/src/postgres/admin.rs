//! Tables outside the Journal (leases, small values, API keys, salts), and operations on the whole
//! database.

pub(super) mod backup;

use std::num::NonZeroU64;
use std::time::Duration;

use bytes::Bytes;
use throughline_core::{Digest, Fence, Lease, LogId, StaleRun, StoreError, StoreFuture, Tenant};
use throughline_json::Name;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use crate::backend::{AdminBackend, KeyBackend, LeaseBackend, ValueBackend};
use crate::backup_files::NewBackup;
use crate::postgres::commit::{self, Lock};
use crate::postgres::read::{
    bytes, damaged, digest, digest_or_none, field, number, salt, signed, text, time as time_of,
};
use crate::postgres::{Postgres, Shared, schema};
use crate::query::{Progress, Stats};
use crate::row::{ApiKeyRow, SaltRow};

impl LeaseBackend for Postgres {
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
            let values: [&(dyn ToSql + Sync); 5] =
                [&lock, &id, &&*log.0, &owner, &milliseconds(time)];
            let row = self.shared.server.query_opt(sql, &values).await?;
            let row = row.ok_or_else(|| damaged("a lease"))?;
            let Some(fence) = field::<Option<i64>>(&row, 0)? else {
                let (owner, left_ms) = (text(&row, 2)?, number(&row, 1)?);
                return Err(StoreError::Held { log, owner, left_ms });
            };
            let fence = u64::try_from(fence).ok().and_then(NonZeroU64::new);
            let fence = Fence(fence.ok_or_else(|| damaged("a fence"))?);
            Ok(Lease { fence, until: time_of(field(&row, 1)?)? })
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
            Ok(Lease { fence, until: time_of(until)? })
        })
    }

    fn release(&self, tenant: &Tenant, log: &LogId, fence: Fence) -> StoreFuture<'_, ()> {
        let (tenant, log) = (tenant.clone(), log.clone());
        Box::pin(async move { renew(&self.shared, &tenant, &log, fence, 0).await.map(drop) })
    }

    /// Also lists runs that wait for a request that has expired since their last write.
    fn unattended(&self, idle: Duration, after: u64, limit: u32) -> StoreFuture<'_, Vec<StaleRun>> {
        Box::pin(async move {
            let sql = "SELECT t.name, l.name, l.id FROM logs l JOIN tenants t ON t.id = l.tenant \
                       LEFT JOIN leases h ON h.tenant = l.tenant AND h.log = l.name \
                       WHERE l.status = 'running' AND l.id > $1 AND l.kind = 2 AND l.gone IS NULL \
                       AND l.updated <= throughline_now() - $2 \
                       AND (h.until IS NULL OR h.until <= throughline_now()) \
                       UNION \
                       SELECT t.name, l.name, l.id FROM pending p JOIN logs l ON l.id = p.log \
                       JOIN tenants t ON t.id = l.tenant \
                       LEFT JOIN leases h ON h.tenant = l.tenant AND h.log = l.name \
                       WHERE p.taken IS NULL AND p.expires IS NOT NULL AND p.expires <= throughline_now() \
                       AND p.expires > l.updated AND l.status = 'waiting' AND l.id > $1 AND l.kind = 2 \
                       AND l.gone IS NULL AND (h.until IS NULL OR h.until <= throughline_now()) \
                       ORDER BY 3 LIMIT $3";
            let idle = i64::try_from(idle.as_millis()).unwrap_or(i64::MAX);
            let values: [&(dyn ToSql + Sync); 3] = [&signed(after), &idle, &i64::from(limit)];
            let run = |row| {
                let (tenant, run) = (Tenant(text(row, 0)?), LogId(text(row, 1)?));
                Ok(StaleRun { tenant, run, place: number(row, 2)? })
            };
            self.shared.server.query(sql, &values).await?.iter().map(run).collect()
        })
    }
}

/// Sets the remaining time of a lease in milliseconds, and returns when it ends, if it is active.
async fn renew(
    shared: &Shared,
    tenant: &Tenant,
    log: &LogId,
    fence: Fence,
    time: i64,
) -> Result<Option<i64>, StoreError> {
    let Some(id) = shared.tenant(tenant).await? else { return Ok(None) };
    let Ok(fence) = i64::try_from(fence.0.get()) else { return Ok(None) };
    let lock = commit::lock(Lock::Log, id, log.0.as_bytes());
    let sql = "SELECT throughline_renew($1, $2, $3, $4, $5)";
    let row = shared.server.query_opt(sql, &[&lock, &id, &&*log.0, &fence, &time]).await?;
    field(&row.ok_or_else(|| damaged("a lease"))?, 0)
}

/// Converts a duration to milliseconds, between 1 millisecond and a century.
fn milliseconds(time: Duration) -> i64 {
    const CENTURY: i64 = 100 * 366 * 24 * 60 * 60 * 1000;
    i64::try_from(time.as_millis()).unwrap_or(CENTURY).clamp(1, CENTURY)
}

impl ValueBackend for Postgres {
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
                return bytes(&row.ok_or_else(created_concurrently)?, 0);
            };
            let sql = "SELECT throughline_keep($1, $2, $3)";
            let row = server.query_opt(sql, &[&key.bytes(), &name, &&*value]).await?;
            bytes(&row.ok_or_else(|| damaged("a kept value"))?, 0)
        })
    }

    fn replace(&self, name: &str, value: Bytes) -> StoreFuture<'_, ()> {
        let name = name.to_owned();
        Box::pin(async move {
            let server = &self.shared.server;
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

    fn discard(&self, name: &str) -> StoreFuture<'_, ()> {
        let name = name.to_owned();
        Box::pin(async move {
            let sql = "SELECT throughline_replace($1, $2, NULL)";
            self.shared.server.query(sql, &[&self.shared.key()?.bytes(), &name]).await.map(drop)
        })
    }

    fn values(&self, prefix: &str) -> StoreFuture<'_, Vec<(String, Bytes)>> {
        let prefix = prefix.to_owned();
        Box::pin(async move {
            let sql = "SELECT name, value FROM kept WHERE starts_with(name, $1) ORDER BY name";
            let rows = self.shared.server.query(sql, &[&prefix]).await?;
            rows.iter().map(|row| Ok((field(row, 0)?, bytes(row, 1)?))).collect()
        })
    }
}

/// Small values are written without a key only while the store has no sums of its rows.
const IF_NOT_SUMMED: &str = "WHERE NOT EXISTS (SELECT FROM kept WHERE name = 'tally')";

fn created_concurrently() -> StoreError {
    StoreError::invalid("another process created the store at the same time: open it again")
}

pub(super) const KEY: &str = "SELECT t.name, k.id, k.label, k.limits, k.hash, k.created, k.revoked, k.mac \
                   FROM api_keys k JOIN tenants t ON t.id = k.tenant";

impl KeyBackend for Postgres {
    fn key(&self, hash: Digest, revocation: i64) -> StoreFuture<'_, Option<(ApiKeyRow, bool)>> {
        Box::pin(async move {
            let sql = format!(
                "SELECT key.*, EXISTS (SELECT FROM records r JOIN tenants t ON t.id = r.tenant \
                 WHERE t.name = key.name AND r.about = $2) \
                 FROM ({KEY} WHERE k.hash = $1 AND k.revoked IS NULL) key"
            );
            let row = self.shared.server.query_opt(&sql, &[&hash.as_slice(), &revocation]).await?;
            row.map(|row| Ok((api_key(&row)?, field(&row, 8)?))).transpose()
        })
    }

    fn keys(&self, tenant: &Tenant) -> StoreFuture<'_, Vec<ApiKeyRow>> {
        let tenant = tenant.clone();
        Box::pin(async move {
            let Some(tenant) = self.shared.tenant(&tenant).await? else { return Ok(Vec::new()) };
            let sql = format!("{KEY} WHERE k.tenant = $1 ORDER BY k.created, k.id");
            self.shared.server.query(&sql, &[&tenant]).await?.iter().map(api_key).collect()
        })
    }

    fn salts_not_of(
        &self,
        epoch: u32,
        after: i64,
        up_to: i64,
        limit: u32,
    ) -> StoreFuture<'_, Vec<SaltRow>> {
        Box::pin(async move {
            let epoch = i32::try_from(epoch).unwrap_or(i32::MAX);
            let sql = "SELECT record, epoch, salt FROM salts WHERE epoch <> $1 AND record > $2 AND record <= $3 \
                       ORDER BY record LIMIT $4";
            let values: [&(dyn ToSql + Sync); 4] = [&epoch, &after, &up_to, &i64::from(limit)];
            let rows = self.shared.server.query(sql, &values).await?;
            let salt_row = |row| {
                let salt = salt(field(row, 1)?, bytes(row, 2)?)?;
                Ok(SaltRow { record: field(row, 0)?, salt })
            };
            rows.iter().map(salt_row).collect()
        })
    }

    fn salted(&self, after: i64, up_to: i64) -> StoreFuture<'_, Vec<i64>> {
        Box::pin(async move {
            let sql = "SELECT record FROM salts WHERE record > $1 AND record <= $2 ORDER BY record";
            let rows = self.shared.server.query(sql, &[&after, &up_to]).await?;
            rows.iter().map(|row| field(row, 0)).collect()
        })
    }

    /// Concurrent calls of two nodes wait for each other, and erasing commits wait for them.
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
}

pub(super) fn api_key(row: &tokio_postgres::Row) -> Result<ApiKeyRow, StoreError> {
    Ok(ApiKeyRow {
        tenant: Tenant(text(row, 0)?),
        id: text(row, 1)?,
        label: text(row, 2)?,
        limits: text(row, 3)?,
        hash: digest(row, 4)?,
        created: field(row, 5)?,
        revoked: field(row, 6)?,
        mac: digest_or_none(row, 7)?,
    })
}

impl AdminBackend for Postgres {
    fn now(&self) -> StoreFuture<'_, i64> {
        Box::pin(async move {
            let row = self.shared.server.query_opt("SELECT throughline_now()", &[]).await?;
            field(&row.ok_or_else(|| damaged("the time"))?, 0)
        })
    }

    /// Lists tenants that have a log or an API key. A tenant whose first batch was rejected has
    /// only a number.
    fn tenants(&self) -> StoreFuture<'_, Vec<Tenant>> {
        Box::pin(async move {
            let sql = "SELECT name FROM tenants t WHERE EXISTS (SELECT FROM logs WHERE tenant = t.id) \
                       OR EXISTS (SELECT FROM api_keys WHERE tenant = t.id) ORDER BY name";
            let rows = self.shared.server.query(sql, &[]).await?;
            rows.iter().map(|row| text(row, 0).map(Tenant)).collect()
        })
    }

    fn stats(&self) -> StoreFuture<'_, Stats> {
        Box::pin(async move {
            let sql = "SELECT (SELECT count(DISTINCT tenant) FROM logs), \
                       count(*) FILTER (WHERE kind = 1), \
                       count(*) FILTER (WHERE kind = 2 AND status IS NOT NULL), \
                       coalesce(sum(last - coalesce(fork_at, 0)), 0)::bigint, coalesce(sum(bytes), 0)::bigint, \
                       (SELECT count(*) FROM blobs), \
                       (SELECT coalesce(sum(octet_length(content)), 0)::bigint FROM blobs), \
                       (SELECT count(*) FROM turns), \
                       (SELECT count(*) FROM pending WHERE taken IS NULL \
                        AND (expires IS NULL OR expires > throughline_now())), \
                       (SELECT count(*) FROM segments), (SELECT count(*) FROM manifests), \
                       pg_database_size(current_database()) FROM logs";
            let row = self.shared.server.query_opt(sql, &[]).await?;
            let row = row.ok_or_else(|| damaged("the figures"))?;
            Ok(Stats {
                tenants: number(&row, 0)?,
                threads: number(&row, 1)?,
                runs: number(&row, 2)?,
                records: number(&row, 3)?,
                content_bytes: number(&row, 4)?,
                blobs: number(&row, 5)?,
                blob_bytes: number(&row, 6)?,
                turns: number(&row, 7)?,
                pending: number(&row, 8)?,
                segments: number(&row, 9)?,
                manifests: number(&row, 10)?,
                disk_bytes: number(&row, 11)?,
            })
        })
    }

    fn version(&self) -> StoreFuture<'_, u32> {
        Box::pin(async move {
            let client = self.shared.server.client().await?;
            schema::version(&self.shared.server, &client).await
        })
    }

    /// Rewrites the tables from which rows were deleted, so that no data file contains them any
    /// more. Salts come first, because sealed contents are useless without them. Writers wait
    /// meanwhile.
    ///
    /// This does not cover the write-ahead log, which contains deleted salts until its segments are
    /// recycled; a checkpoint speeds this up if the role may request one. Archives, lagging
    /// replicas and base backups also keep them. To cover those, use a master key and rotate it:
    /// all copies of the salts are then wrapped, and the old key can be destroyed.
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

    fn make_room(&self) -> StoreFuture<'_, ()> {
        // The server's operator manages its disk.
        Box::pin(async { Ok(()) })
    }

    fn keep_reserve(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn backup<'a>(&'a self, plan: NewBackup, progress: Progress<'a>) -> StoreFuture<'a, ()> {
        Box::pin(backup::backup(&self.shared, plan, progress))
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.close())
    }
}

/// Queries that must return no rows, and the problem that a row indicates.
const CONSISTENCY_CHECKS: [(&str, &str); 12] = [
    (
        "SELECT t.name || '/' || l.name FROM logs l JOIN tenants t ON t.id = l.tenant \
         WHERE l.last > coalesce(l.fork_at, 0) AND NOT EXISTS \
         (SELECT FROM records r WHERE r.tenant = l.tenant AND r.log = l.id AND r.seq = l.last)",
        "has lost its last record",
    ),
    (
        "SELECT t.name || '/' || l.name FROM logs l JOIN tenants t ON t.id = l.tenant \
         LEFT JOIN (SELECT tenant, log, count(*) AS n FROM records GROUP BY tenant, log) r \
         ON r.tenant = l.tenant AND r.log = l.id \
         WHERE l.last - coalesce(l.fork_at, 0) <> coalesce(r.n, 0)",
        "has records that do not match its count",
    ),
    (
        "SELECT 'record ' || r.id FROM records r WHERE r.erased IS NULL AND \
         (r.content IS NULL OR NOT EXISTS (SELECT FROM salts s WHERE s.record = r.id))",
        "has no content or no salt, but was never erased",
    ),
    (
        "SELECT 'record ' || r.id FROM records r WHERE r.erased IS NULL AND r.blob IS NOT NULL \
         AND NOT EXISTS (SELECT FROM blobs b WHERE b.id = r.blob)",
        "has lost its large content",
    ),
    (
        "SELECT t.name || '/' || s.writer FROM segments s JOIN tenants t ON t.id = s.tenant \
         LEFT JOIN (SELECT segment, count(*) AS n FROM records GROUP BY segment) r ON r.segment = s.id \
         WHERE s.position <> coalesce(r.n, 0)",
        "is a chain whose records do not match its count",
    ),
    (
        "SELECT 'record ' || r.id FROM records r \
         WHERE NOT EXISTS (SELECT FROM logs l WHERE l.id = r.log AND l.tenant = r.tenant)",
        "belongs to no log",
    ),
    (
        "SELECT 'the salt of record ' || s.record FROM salts s WHERE NOT EXISTS \
         (SELECT FROM records r WHERE r.id = s.record AND r.tenant = s.tenant AND r.erased IS NULL)",
        "has no owner",
    ),
    (
        "SELECT 'large content ' || b.id FROM blobs b WHERE NOT EXISTS \
         (SELECT FROM records r WHERE r.blob = b.id AND r.tenant = b.tenant AND r.erased IS NULL)",
        "has no owner",
    ),
    (
        "SELECT 'log ' || l.id FROM logs l WHERE (l.fork IS NULL) <> (l.fork_at IS NULL) OR EXISTS \
         (SELECT FROM unnest(ARRAY[l.of, l.fork]) p(id) WHERE p.id IS NOT NULL AND NOT EXISTS \
         (SELECT FROM logs o WHERE o.id = p.id AND o.tenant = l.tenant))",
        "refers to a log that the tenant does not have",
    ),
    (
        "SELECT 'the captured turn ' || u.name FROM turns u WHERE NOT EXISTS (SELECT FROM logs l \
         WHERE l.id = u.log AND l.tenant = u.tenant AND u.last <= l.last AND u.first <= u.last + 1)",
        "has no owner",
    ),
    (
        "SELECT 'a key of the captured turn ' || k.turn FROM turn_keys k WHERE NOT EXISTS \
         (SELECT FROM turns u WHERE u.id = k.turn AND u.tenant = k.tenant)",
        "has no owner",
    ),
    (
        "SELECT 'the question ' || p.id FROM pending p WHERE NOT EXISTS (SELECT FROM logs l \
         WHERE l.id = p.log AND l.tenant = p.tenant AND p.seq <= l.last)",
        "has no owner",
    ),
];

pub(super) async fn check(shared: &Shared) -> Result<Vec<String>, StoreError> {
    const MOST: i64 = 20;
    let mut problems = Vec::new();
    for (sql, problem) in CONSISTENCY_CHECKS {
        let rows = shared.server.query(&format!("{sql} LIMIT $1"), &[&MOST]).await?;
        for row in rows {
            problems.push(format!("{} {problem}.", text(&row, 0)?));
        }
    }
    let sql = "SELECT FROM pg_extension WHERE extname = 'amcheck'";
    if shared.server.query_opt(sql, &[]).await?.is_some() {
        problems.extend(check_indexes(shared).await?);
    }
    Ok(problems)
}

/// Checks every index of the store with the extension `amcheck`.
async fn check_indexes(shared: &Shared) -> Result<Vec<String>, StoreError> {
    let sql = "SELECT i.indexrelid::regclass::text FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid \
               WHERE c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'records'::regclass) \
               AND c.relname = ANY ($1)";
    let tables: Vec<&str> = backup::TABLES.iter().map(|(table, _)| *table).collect();
    let mut problems = Vec::new();
    for row in shared.server.query(sql, &[&tables]).await? {
        let index: Name = text(&row, 0)?;
        let checked = "SELECT bt_index_check(to_regclass($1))";
        match shared.server.query(checked, &[&&*index]).await {
            Ok(_) => {}
            Err(StoreError::Database(error)) => {
                let said = std::error::Error::source(&*error).map(ToString::to_string);
                let said = said.unwrap_or_else(|| error.to_string());
                problems.push(format!("The index {index} could not be verified: {said}."));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(problems)
}
