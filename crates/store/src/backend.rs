//! Access to a store's database. The database contains only sealed bytes and digests, never plain
//! content.
//!
//! [`Driver`] contains the operations that each database implements itself: commits, leases,
//! waiting, and the execution of SQL. [`Backend`] adds the reads, whose SQL is the same for both
//! databases. Work that needs no database access is implemented once, above this trait: sealing and
//! opening, reading through forks, forgetting, exporting, verifying.

pub(crate) mod copy;
pub(crate) mod decode;
mod driver;
pub(crate) mod row_sums;

use std::time::Duration;

use bytes::Bytes;
use throughline_core::{
    Digest, LogHead, LogId, PendingEntry, PendingStatus, StaleRun, StoreError, StoreFuture, Tenant,
};
use tokio::sync::oneshot;

use crate::backend::decode::{
    AFTER_RECORD, API_KEY_COLUMNS, LOG_COLUMNS, RECORD_COLUMNS, api_key, log_head, records,
};
use crate::chain::Head;
use crate::manifest::Manifest;
use crate::query::{IdleLogs, Listing, Span, Stats};
use crate::row::{ApiKeyRow, ChainRow, Row, Salt, SaltRow};
use crate::row_mac::{RowKey, RowSnapshot, RowState, TALLY_NAME};
use crate::sql::{SqlRow, decode, kind_number, values};

pub(crate) use crate::backend::driver::{Dialect, Driver, SnapshotWork};

/// Queries that must return no rows. The comment before each query describes the problem that a
/// returned row indicates.
const CONSISTENCY_CHECKS: &str = include_str!("backend/consistency.sql");

/// SQL expression for the tenants that have a log or an API key. A tenant whose first batch was
/// rejected, or that only held a lease, has just a row in `tenants` and is left out.
const USED_TENANTS: &str = "tenants t WHERE EXISTS (SELECT 1 FROM logs WHERE tenant = t.id) \
     OR EXISTS (SELECT 1 FROM api_keys WHERE tenant = t.id)";

/// SQL expression for the id of the tenant named `$1`.
const TENANT: &str = "(SELECT id FROM tenants WHERE name = $1)";

/// Returns the SQL query for the logs of the tenant named `$1`. Each row also contains the name of
/// a run's Thread and the name of a fork's parent.
fn logs_of_tenant() -> String {
    format!(
        "SELECT {LOG_COLUMNS} FROM logs l LEFT JOIN logs o ON o.id = l.of AND o.tenant = l.tenant \
         LEFT JOIN logs f ON f.id = l.fork AND f.tenant = l.tenant WHERE l.tenant = {TENANT}"
    )
}

/// Returns the SQL query for the records in log `$2` of the tenant named `$1`.
fn records_of_log(dialect: &Dialect) -> String {
    let pack_columns = dialect.pack_columns;
    format!(
        "SELECT {RECORD_COLUMNS}, {pack_columns} FROM records r \
         JOIN segments g ON g.id = r.segment AND g.tenant = r.tenant \
         LEFT JOIN salts s ON s.record = r.id AND s.tenant = r.tenant WHERE r.tenant = {TENANT} \
         AND r.log = (SELECT id FROM logs WHERE tenant = {TENANT} AND name = $2)"
    )
}

fn decoded<'a, T: Send + 'a>(
    rows: StoreFuture<'a, Vec<SqlRow>>,
    decode: impl Fn(&SqlRow) -> Result<T, StoreError> + Send + 'a,
) -> StoreFuture<'a, Vec<T>> {
    Box::pin(async move { rows.await?.iter().map(decode).collect() })
}

fn first<'a, T: Send + 'a>(
    rows: StoreFuture<'a, Vec<SqlRow>>,
    decode: impl Fn(&SqlRow) -> Result<T, StoreError> + Send + 'a,
) -> StoreFuture<'a, Option<T>> {
    Box::pin(async move { rows.await?.first().map(decode).transpose() })
}

/// A database that stores sealed records. Callers of a `dyn Backend` need to import only this
/// trait.
pub(crate) trait Backend: Driver {
    /// Returns the log's head, or `None` if the log does not exist.
    fn log(&self, tenant: &Tenant, log: &LogId) -> StoreFuture<'_, Option<LogHead>> {
        let sql = format!("{} AND l.name = $2", logs_of_tenant());
        first(self.query(&sql, &values![tenant, log]), log_head)
    }

    /// Returns the heads of the logs that match `listing`.
    fn logs(&self, tenant: &Tenant, listing: Listing) -> StoreFuture<'_, Vec<LogHead>> {
        let Listing { kind, of, forks_of, order, after, limit, idle } = listing;
        let (comparison, direction) = order.sql();
        let (mut conditions, mut values) = (vec![logs_of_tenant()], values![tenant].to_vec());
        let named = |parameter: usize, columns: &str| {
            format!("(SELECT {columns} FROM logs WHERE tenant = {TENANT} AND name = ${parameter})")
        };
        if let Some(kind) = kind {
            values.extend(values![kind_number(kind)]);
            // A Thread has few runs and forks. The plus makes the database use the index on `of` or
            // `fork` instead of the index on `kind`.
            let plus = if of.is_some() || forks_of.is_some() { "+" } else { "" };
            conditions.push(format!("{plus}l.kind = ${}", values.len()));
        }
        for (column, log) in [("of", &of), ("fork", &forks_of)] {
            if let Some(log) = log {
                values.extend(values![log]);
                conditions.push(format!("l.{column} = {}", named(values.len(), "id")));
            }
        }
        if let Some(IdleLogs { until, content }) = idle {
            values.extend(values![until]);
            conditions.push(format!("l.gone IS NULL AND l.updated <= ${}", values.len()));
            conditions.push(content.sql());
        }
        let columns = self.dialect().log_order;
        let order = |end: &str| {
            let columns = columns.iter().map(|column| format!("l.{column}{end}"));
            columns.collect::<Vec<_>>().join(", ")
        };
        if let Some(after) = after {
            values.extend(values![&after]);
            let start = named(values.len(), &columns.join(", "));
            conditions.push(format!("({}) {comparison} {start}", order("")));
        }
        values.extend(values![limit]);
        let (conditions, order) = (conditions.join(" AND "), order(&format!(" {direction}")));
        let sql = format!("{conditions} ORDER BY {order} LIMIT ${}", values.len());
        decoded(self.query(&sql, &values), log_head)
    }

    /// Returns the log's own records in `span`, in order.
    fn rows(&self, tenant: &Tenant, log: &LogId, span: Span) -> StoreFuture<'_, Vec<Row>> {
        let Span { after, up_to, limit } = span;
        let selected = records_of_log(self.dialect());
        // A pack has the number of its last record, so the first row that does not end before
        // `up_to` contains it.
        let sql = format!(
            "{selected} AND r.seq > $3 AND r.seq <= coalesce((SELECT p.seq FROM records p \
             WHERE p.tenant = {TENANT} AND p.seq >= $4 \
             AND p.log = (SELECT id FROM logs WHERE tenant = {TENANT} AND name = $2) \
             ORDER BY p.seq LIMIT 1), $4) ORDER BY r.seq LIMIT $5"
        );
        let rows = self.query(&sql, &values![tenant, log, after, up_to, limit]);
        Box::pin(async move {
            let rows = rows.await?.iter().map(records).collect::<Result<Vec<_>, _>>()?;
            let in_span = |row: &Row| row.seq > after && row.seq <= up_to;
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            Ok(rows.into_iter().flatten().filter(in_span).take(limit).collect())
        })
    }

    /// Returns the number of the record before the first record that contains an event after
    /// `event`. If the log has no later event, returns the number of its last record.
    fn place_of_event(&self, tenant: &Tenant, log: &LogId, event: u64) -> StoreFuture<'_, u64> {
        // Events are numbered in record order, so the first record with a higher event ends the
        // range. A single statement ensures that no event is added between the two lookups.
        let sql = format!(
            "SELECT coalesce((SELECT r.seq - 1 FROM records r WHERE r.tenant = l.tenant \
             AND r.log = l.id AND r.last_event > $3 ORDER BY r.last_event LIMIT 1), l.last) \
             FROM logs l WHERE l.tenant = {TENANT} AND l.name = $2"
        );
        let seq = first(self.query(&sql, &values![tenant, log, event]), |row| row.get(0));
        Box::pin(async move { Ok(seq.await?.unwrap_or(0)) })
    }

    /// Returns the log's last own checkpoint whose number is at most `at_most` and whose content is
    /// not erased.
    fn checkpoint(
        &self,
        tenant: &Tenant,
        log: &LogId,
        at_most: u64,
    ) -> StoreFuture<'_, Option<Row>> {
        let sql = format!(
            "{} AND r.kind = 'checkpoint' AND r.seq <= $3 AND r.erased IS NULL \
             ORDER BY r.seq DESC LIMIT 1",
            records_of_log(self.dialect())
        );
        let row = first(self.query(&sql, &values![tenant, log, at_most]), records);
        Box::pin(async move { Ok(row.await?.and_then(|mut records| records.pop())) })
    }

    /// Returns the log and sequence number of all records with this `about` hash.
    fn about(&self, tenant: &Tenant, about: i64) -> StoreFuture<'_, Vec<(LogId, u64)>> {
        let sql = format!(
            "SELECT l.name, r.seq FROM records r JOIN logs l ON l.id = r.log \
             WHERE r.tenant = {TENANT} AND r.about = $2 ORDER BY r.id"
        );
        let position = |row: &SqlRow| Ok((row.get(0)?, row.get(1)?));
        decoded(self.query(&sql, &values![tenant, about]), position)
    }

    /// Returns a sealed blob and the keyed hash of its plain content.
    fn blob(&self, tenant: &Tenant, blob: i64) -> StoreFuture<'_, Option<(Digest, Bytes)>> {
        let sql = format!("SELECT hash, content FROM blobs WHERE id = $2 AND tenant = {TENANT}");
        let decode = |row: &SqlRow| Ok((row.get(0)?, row.get(1)?));
        first(self.query(&sql, &values![tenant, blob]), decode)
    }

    /// Returns the requests that wait for a person's decision, including expired requests but
    /// without the requests of erased logs.
    fn pending(&self, tenant: &Tenant, log: Option<&LogId>) -> StoreFuture<'_, Vec<PendingEntry>> {
        let of_log = log.map_or(String::new(), |_| {
            format!("AND p.log = (SELECT id FROM logs WHERE tenant = {TENANT} AND name = $2)")
        });
        let sql = format!(
            "SELECT p.id, p.kind, l.name, p.seq, p.opened, p.expires, p.expires <= {} \
             FROM pending p JOIN logs l ON l.id = p.log \
             WHERE p.tenant = {TENANT} AND p.taken IS NULL AND l.gone IS NULL {of_log} \
             ORDER BY p.opened, p.id",
            self.dialect().now
        );
        let mut values = values![tenant].to_vec();
        values.extend(log.map(Into::into));
        decoded(self.query(&sql, &values), |row| {
            let is_expired = row.get::<Option<bool>>(6)? == Some(true);
            let status = if is_expired { PendingStatus::Expired } else { PendingStatus::Open };
            Ok(decode!(row, 0, PendingEntry { id, kind, log, seq, opened, expires } { status }))
        })
    }

    /// Returns the stale runs of all tenants. A stale run has no active lease. It is either marked
    /// running but was not written to for `idle`, or waiting for a request that expired since the
    /// run's last write.
    fn unattended(&self, idle: Duration, after: u64, limit: u32) -> StoreFuture<'_, Vec<StaleRun>> {
        let Dialect { now, lease_is_active, .. } = self.dialect();
        let logs = "JOIN tenants t ON t.id = l.tenant \
                    LEFT JOIN leases h ON h.tenant = l.tenant AND h.log = l.name \
                    WHERE l.id > $1 AND l.kind = 2 AND l.gone IS NULL";
        let sql = format!(
            "SELECT t.name, l.name, l.id FROM logs l {logs} AND l.status = 'running' \
             AND l.updated <= {now} - $2 AND NOT {lease_is_active} \
             UNION \
             SELECT t.name, l.name, l.id FROM pending p JOIN logs l ON l.id = p.log {logs} \
             AND p.taken IS NULL AND p.expires IS NOT NULL AND p.expires <= {now} \
             AND p.expires > l.updated AND l.status = 'waiting' AND NOT {lease_is_active} \
             ORDER BY 3 LIMIT $3"
        );
        let idle = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
        decoded(self.query(&sql, &values![after, idle, limit]), |row| {
            Ok(decode!(row, 0, StaleRun { tenant, run, place }))
        })
    }

    /// Returns the highest record id of all tenants. All records up to this id are committed.
    fn last_record(&self) -> StoreFuture<'_, i64> {
        self.last_id("records")
    }

    /// Returns the records after `after` and up to `up_to`, in commit order, of all tenants or of
    /// one. `up_to` must not exceed [`last_record`](Self::last_record). A pack counts as one record
    /// for `limit`.
    fn chain(
        &self,
        of: Option<&Tenant>,
        after: i64,
        up_to: i64,
        limit: u32,
    ) -> StoreFuture<'_, Vec<ChainRow>> {
        // The addition keeps the database from using the index by tenant, which would require
        // sorting all of the tenant's records for each page.
        let scope =
            of.map_or("", |_| "AND r.tenant + 0 = (SELECT id FROM tenants WHERE name = $4)");
        let sql = format!(
            "SELECT {RECORD_COLUMNS}, {}, r.id, t.name, l.name FROM records r \
             LEFT JOIN segments g ON g.id = r.segment AND g.tenant = r.tenant \
             LEFT JOIN salts s ON s.record = r.id AND s.tenant = r.tenant \
             LEFT JOIN tenants t ON t.id = r.tenant LEFT JOIN logs l ON l.id = r.log \
             WHERE r.id > $1 AND r.id <= $2 {scope} ORDER BY r.id LIMIT $3",
            self.dialect().pack_columns
        );
        let mut values = values![after, up_to, limit].to_vec();
        values.extend(of.map(Into::into));
        let rows = decoded(self.query(&sql, &values), |row| {
            let records = records(row)?;
            let last: i64 = row.get(AFTER_RECORD)?;
            let (tenant, log): (Tenant, LogId) =
                (row.get(AFTER_RECORD + 1)?, row.get(AFTER_RECORD + 2)?);
            let before = i64::try_from(records.len()).unwrap_or(i64::MAX);
            let numbered = (last.saturating_sub(before).saturating_add(1)..).zip(records);
            let owned = |(id, row)| ChainRow { id, tenant: tenant.clone(), log: log.clone(), row };
            Ok(numbered.map(owned).collect::<Vec<_>>())
        });
        Box::pin(async move { Ok(rows.await?.into_iter().flatten().collect()) })
    }

    /// Returns the head of every chain segment that has records, for all tenants or for one.
    fn heads(&self, of: Option<&Tenant>) -> StoreFuture<'_, Vec<Head>> {
        let scope = of.map_or("", |_| "AND t.name = $1");
        let sql = format!(
            "SELECT t.name, g.writer, g.position, g.link FROM segments g \
             JOIN tenants t ON t.id = g.tenant WHERE g.position > 0 {scope} ORDER BY g.id"
        );
        let values: Vec<_> = of.map(Into::into).into_iter().collect();
        decoded(self.query(&sql, &values), |row| {
            Ok(decode!(row, 0, Head { tenant, writer, position, link }))
        })
    }

    /// Returns the signed manifests after id `after`, in the order they were written.
    fn manifests(&self, after: i64, limit: u32) -> StoreFuture<'_, Vec<(i64, Manifest)>> {
        Box::pin(async move {
            let up_to = self.last_id("manifests").await?;
            let sql = "SELECT id, body, signature FROM manifests WHERE id > $1 AND id <= $2 \
                       ORDER BY id LIMIT $3";
            let manifests = self.query(sql, &values![after, up_to, limit]);
            let manifest =
                |row: &SqlRow| Ok((row.get(0)?, decode!(row, 1, Manifest { body, signature })));
            decoded(manifests, manifest).await
        })
    }

    /// Computes the MAC sums of all index rows and reads the stored sums, in one snapshot. If `of`
    /// is set, covers only that tenant's rows, without the store-wide tables.
    fn read_rows(&self, key: RowKey, of: Option<&Tenant>) -> StoreFuture<'_, RowSnapshot> {
        let (of, (sender, rows)) = (of.cloned(), oneshot::channel());
        let work = self.snapshot(
            1000,
            Box::new(move |db| {
                // Sending fails only if the caller was cancelled.
                drop(sender.send(row_sums::read(db, &key, of.as_ref())?));
                Ok(())
            }),
        );
        Box::pin(async move {
            work.await?;
            rows.await.map_err(|_| StoreError::Closed)
        })
    }

    /// Returns the current sums of index rows, in the form that manifests contain.
    fn row_states(&self) -> StoreFuture<'_, Vec<RowState>> {
        let sql = "SELECT t.name, g.writer, g.changes, g.sums FROM segments g \
                   JOIN tenants t ON t.id = g.tenant ORDER BY g.id";
        let segments = decoded(self.query(sql, &[]), |row| {
            let (segment, sums) = (Some((row.get(0)?, row.get(1)?)), row.get::<String>(3)?);
            Ok(RowState::new(segment, row.get(2)?, &sums))
        });
        Box::pin(async move {
            let mut states = segments.await?;
            let sql = "SELECT value FROM kept WHERE name = $1";
            let tally = first(self.query(sql, &values![TALLY_NAME]), |row| row.get::<Bytes>(0));
            states.extend(tally.await?.and_then(|stored| RowState::of_store(&stored)));
            Ok(states)
        })
    }

    /// Checks the database files and the consistency of the tables. Returns one sentence per
    /// problem.
    fn check(&self) -> StoreFuture<'_, Vec<String>> {
        Box::pin(async move {
            let mut problems = self.check_files().await?;
            let checks = CONSISTENCY_CHECKS.split("\n\n").skip(1);
            for (problem, sql) in checks.filter_map(|check| check.split_once('\n')) {
                let problem = problem.trim_start_matches("-- ");
                let sql = sql.replace("{span}", self.dialect().span);
                let rows = self.query(&format!("{sql} LIMIT 20"), &[]);
                let describe = |row: &SqlRow| Ok(format!("{} {problem}.", row.get::<String>(0)?));
                problems.extend(decoded(rows, describe).await?);
            }
            Ok(problems)
        })
    }

    /// Stores an internal value under `name` and replaces an existing value.
    fn replace(&self, name: &str, value: Bytes) -> StoreFuture<'_, ()> {
        self.set_value(name, Some(value))
    }

    /// Deletes an internal value, if it exists.
    fn discard(&self, name: &str) -> StoreFuture<'_, ()> {
        self.set_value(name, None)
    }

    /// Returns the internal values whose names start with `prefix`, sorted by name.
    fn values(&self, prefix: &str) -> StoreFuture<'_, Vec<(String, Bytes)>> {
        let sql =
            "SELECT name, value FROM kept WHERE substr(name, 1, length($1)) = $1 ORDER BY name";
        decoded(self.query(sql, &values![prefix]), |row| Ok((row.get(0)?, row.get(1)?)))
    }

    /// Returns the API key with this keyed hash, unless its row is marked revoked. The returned
    /// flag is true if the Journal contains a revocation record for the key, although the row is
    /// not marked. `revocation` is the `about` hash of that record.
    fn key(&self, hash: Digest, revocation: i64) -> StoreFuture<'_, Option<(ApiKeyRow, bool)>> {
        // Only a record of the key's own tenant counts. A row that was moved from another tenant
        // fails its MAC check.
        let sql = format!(
            "SELECT {API_KEY_COLUMNS}, EXISTS \
             (SELECT 1 FROM records r WHERE r.tenant = k.tenant AND r.about = $2) \
             FROM api_keys k JOIN tenants t ON t.id = k.tenant \
             WHERE k.hash = $1 AND k.revoked IS NULL"
        );
        let decode = |row: &SqlRow| Ok((api_key(row)?, row.get(8)?));
        first(self.query(&sql, &values![&hash, revocation]), decode)
    }

    /// Returns all API keys of a tenant, including revoked keys, in order of creation.
    fn keys(&self, tenant: &Tenant) -> StoreFuture<'_, Vec<ApiKeyRow>> {
        let sql = format!(
            "SELECT {API_KEY_COLUMNS} FROM api_keys k JOIN tenants t ON t.id = k.tenant \
             WHERE t.name = $1 ORDER BY k.created, k.id"
        );
        decoded(self.query(&sql, &values![tenant]), api_key)
    }

    /// Returns the salts of the records after `after` and up to `up_to`, in order. Includes only
    /// salts that are wrapped under a master key epoch other than `epoch`.
    fn salts_not_of(
        &self,
        epoch: u32,
        after: i64,
        up_to: i64,
        limit: u32,
    ) -> StoreFuture<'_, Vec<SaltRow>> {
        let sql = "SELECT record, epoch, salt FROM salts \
                   WHERE epoch <> $1 AND record > $2 AND record <= $3 ORDER BY record LIMIT $4";
        decoded(self.query(sql, &values![epoch, after, up_to, limit]), |row| {
            Ok(SaltRow { record: row.get(0)?, salt: decode!(row, 1, Salt { epoch, bytes }) })
        })
    }

    /// Returns the ids of the records after `after` and up to `up_to` that have a salt.
    fn salted(&self, after: i64, up_to: i64) -> StoreFuture<'_, Vec<i64>> {
        let sql = "SELECT record FROM salts WHERE record > $1 AND record <= $2 ORDER BY record";
        decoded(self.query(sql, &values![after, up_to]), |row| row.get(0))
    }

    /// Returns the database's time in milliseconds since 1970.
    fn now(&self) -> StoreFuture<'_, i64> {
        self.evaluate(self.dialect().now)
    }

    /// Returns the schema version of the store.
    fn version(&self) -> StoreFuture<'_, i64> {
        self.evaluate(self.dialect().version)
    }

    /// Evaluates an SQL expression that yields an integer.
    fn evaluate(&self, expression: &str) -> StoreFuture<'_, i64> {
        let value = first(self.query(&format!("SELECT {expression}"), &[]), |row| row.get(0));
        Box::pin(async move { value.await?.ok_or(StoreError::Closed) })
    }

    /// Returns the tenants that have a log or an API key. A tenant whose first batch was rejected
    /// has only a row in `tenants`, and is omitted.
    fn tenants(&self) -> StoreFuture<'_, Vec<Tenant>> {
        let sql = format!("SELECT name FROM {USED_TENANTS} ORDER BY name");
        decoded(self.query(&sql, &[]), |row| row.get(0))
    }

    /// Returns the number and size of the stored rows.
    fn stats(&self) -> StoreFuture<'_, Stats> {
        let sql = format!(
            "SELECT (SELECT count(*) FROM {USED_TENANTS}), count(*) FILTER (WHERE kind = 1), \
             count(*) FILTER (WHERE kind = 2 AND status IS NOT NULL), \
             CAST(coalesce(sum(last - coalesce(fork_at, 0)), 0) AS bigint), \
             CAST(coalesce(sum(bytes), 0) AS bigint), (SELECT count(*) FROM blobs), \
             (SELECT CAST(coalesce(sum(length(content)), 0) AS bigint) FROM blobs), \
             (SELECT count(*) FROM turns), (SELECT count(*) FROM pending p JOIN logs l \
             ON l.id = p.log WHERE p.taken IS NULL AND l.gone IS NULL \
             AND (p.expires IS NULL OR p.expires > {})), (SELECT count(*) FROM segments), \
             (SELECT count(*) FROM manifests) FROM logs",
            self.dialect().now
        );
        let stats = first(self.query(&sql, &[]), |row| {
            Ok(decode!(row, 0, Stats {
                tenants, threads, runs, records, content_bytes, blobs, blob_bytes, turns, pending,
                segments, manifests
            } { disk_bytes: 0 }))
        });
        Box::pin(async move {
            let disk_bytes = self.disk_bytes().await?;
            Ok(Stats { disk_bytes, ..stats.await?.unwrap_or_default() })
        })
    }
}

impl<D: Driver> Backend for D {}
