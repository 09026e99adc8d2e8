//! Reads on separate connections. A reader sees the state at its start and does not block.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row as SqlRow, ToSql, params};
use throughline_core::{
    Digest, ErasureEpoch, LogHead, LogId, Name, PendingEntry, PendingStatus, Rewind, StaleRun,
    StoreError, StoreFuture, Tenant, TurnId, VaultLookup, VaultMatch, VaultTurn,
};
use tokio::sync::Semaphore;

use crate::chain::Head;
use crate::manifest::Manifest;
use crate::query::{Listing, Order, Span};
use crate::row::{ChainRow, ErasureReason, Row, Salt, fork_of};
use crate::sealed_batch::{KeyKind, SealedKey};
use crate::sqlite::admin::LEASE_IS_ACTIVE;
use crate::sqlite::commit::{kind_number, kind_of, number, unsigned};
use crate::sqlite::schema::{Access, connect, failure, wait_for};
use crate::sqlite::statements::now;

/// A pool of connections for reading.
pub(super) struct Readers {
    path: PathBuf,
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
    count: u32,
    patience: Duration,
    access: Access,
}

impl Readers {
    pub(super) fn new(path: &Path, count: usize, patience: Duration, access: Access) -> Self {
        let count = u32::try_from(count.clamp(1, 1024)).unwrap_or(1024);
        let permits = Arc::new(Semaphore::new(usize::try_from(count).unwrap_or(1)));
        Self { path: path.to_owned(), idle: Arc::default(), permits, count, patience, access }
    }

    /// Reads a few pages on the current thread, because a blocking task would cost more than the
    /// read. Falls back to [`read`](Self::read) if the file is locked.
    pub(super) fn read_inline<T: Send + 'static>(
        &self,
        look: impl Fn(&Connection) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        Box::pin(async move {
            let permit = self.permits.acquire().await.map_err(|_| StoreError::Closed)?;
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            if let Some(db) = idle {
                wait_for(Duration::ZERO);
                let seen = look(&db);
                // A connection that failed is not used again.
                if let Ok(seen) = seen {
                    self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(db);
                    return Ok(seen);
                }
            }
            drop(permit);
            self.read(look).await
        })
    }

    /// Reads on the next free connection, in a blocking task.
    pub(super) fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        Box::pin(async move {
            let permit = self.permits.clone().acquire_owned().await;
            let permit = permit.map_err(|_| StoreError::Closed)?;
            let (path, idle) = (self.path.clone(), self.idle.clone());
            let (patience, access) = (self.patience, self.access);
            let reading = tokio::task::spawn_blocking(move || {
                wait_for(patience);
                let db = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
                let outcome = match db {
                    Some(db) => Ok(db),
                    None => connect(&path, access),
                };
                // A connection that failed is not used again.
                let outcome = outcome.and_then(|db| Ok((read(&db)?, db)));
                let outcome = outcome.map(|(value, db)| {
                    idle.lock().unwrap_or_else(PoisonError::into_inner).push(db);
                    value
                });
                drop(permit);
                outcome.map_err(|error| failure(error, &path))
            });
            reading.await.map_err(|_| StoreError::Closed)?
        })
    }

    /// Waits for all readers to finish and rejects new ones.
    pub(super) async fn close(&self) {
        // An error means that the readers were already closed.
        drop(self.permits.acquire_many(self.count).await);
        self.permits.close();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

const LOG: &str = "
    SELECT l.name, l.kind, o.name, f.name, l.fork_at, l.rewinds, l.status, l.last, l.events, l.bytes,
           l.created, l.updated, l.gone
    FROM logs l LEFT JOIN logs o ON o.id = l.of AND o.tenant = l.tenant
    LEFT JOIN logs f ON f.id = l.fork AND f.tenant = l.tenant
    WHERE l.tenant = (SELECT id FROM tenants WHERE name = ?1)";

pub(super) fn log(
    db: &Connection,
    tenant: &Tenant,
    log: &LogId,
) -> Result<Option<LogHead>, rusqlite::Error> {
    let find = format!("{LOG} AND l.name = ?2");
    db.prepare_cached(&find)?.query_row(params![tenant.0, log.0], log_head).optional()
}

pub(super) fn logs(
    db: &Connection,
    tenant: &Tenant,
    listing: &Listing,
) -> Result<Vec<LogHead>, rusqlite::Error> {
    let mut find = LOG.to_owned();
    let kind = listing.kind.map(kind_number);
    let of = listing.of.as_ref().map(|log| log.0.clone());
    let forks_of = listing.forks_of.as_ref().map(|log| log.0.clone());
    let after = listing.after.as_ref().map(|log| log.0.clone());
    let mut values: Vec<&dyn ToSql> = vec![&tenant.0];
    let mut filter = |condition: &str, value| {
        values.push(value);
        find += &condition.replace('?', &format!("?{}", values.len()));
    };
    if kind.is_some() {
        // A Thread has few runs and forks. The plus makes SQLite use that index instead of the one
        // by kind.
        let is_of_one = of.is_some() || forks_of.is_some();
        filter(if is_of_one { " AND +l.kind = ?" } else { " AND l.kind = ?" }, &kind);
    }
    if of.is_some() {
        filter(" AND o.name = ?", &of);
    }
    if forks_of.is_some() {
        filter(" AND f.name = ?", &forks_of);
    }
    let (sign, order) = match listing.order {
        Order::Newest => ('<', "DESC"),
        Order::Oldest => ('>', "ASC"),
    };
    if after.is_some() {
        let place = format!(
            " AND (l.updated, l.id) {sign} (SELECT updated, id FROM logs
              WHERE tenant = (SELECT id FROM tenants WHERE name = ?1) AND name = ?)"
        );
        // Protects the number that is already assigned.
        let place = place.replace("?1", "\u{1}");
        filter(&place, &after);
        find = find.replace('\u{1}', "?1");
    }
    let limit = listing.limit;
    let find = format!("{find} ORDER BY l.updated {order}, l.id {order} LIMIT {limit}");
    let mut find = db.prepare(&find)?;
    find.query_map(&*values, log_head)?.collect()
}

fn log_head(row: &SqlRow<'_>) -> Result<LogHead, rusqlite::Error> {
    let rewinds: Option<String> = row.get(5)?;
    let fork = row.get::<_, Option<Name>>(3)?.map(LogId);
    Ok(LogHead {
        log: LogId(row.get(0)?),
        kind: kind_of(row.get(1)?)?,
        of: row.get::<_, Option<Name>>(2)?.map(LogId),
        fork: fork_of(fork, row.get::<_, Option<i64>>(4)?.map(unsigned)),
        rewinds: parse_rewinds(rewinds.as_deref().unwrap_or_default()),
        status: row.get(6)?,
        last: unsigned(row.get(7)?),
        events: unsigned(row.get(8)?),
        bytes: unsigned(row.get(9)?),
        created: instant(row.get(10)?),
        updated: instant(row.get(11)?),
        gone: erased(row, 12)?.map(ErasureReason::to_elision_reason),
    })
}

/// Returns the reason for an erasure. An unknown number means that the row was modified.
fn erased(row: &SqlRow<'_>, column: usize) -> Result<Option<ErasureReason>, rusqlite::Error> {
    let number: Option<i16> = row.get(column)?;
    match (number, ErasureReason::from_number(number)) {
        (Some(number), None) => {
            Err(rusqlite::Error::IntegralValueOutOfRange(column, number.into()))
        }
        (_, erased) => Ok(erased),
    }
}

/// Parses the stored rewinds of a log.
pub(crate) fn parse_rewinds(text: &str) -> Vec<Rewind> {
    let rewind = |pair: &str| {
        let (at, to) = pair.split_once(':')?;
        Some(Rewind { at: at.parse().ok()?, to: to.parse().ok()? })
    };
    text.split(' ').filter_map(rewind).collect()
}

const ROW: &str = "
    SELECT r.seq, r.kind, r.at, r.events, r.last_event, r.about, r.size, r.commitment, r.link, g.writer,
           r.position, r.blob, r.content, s.epoch, s.salt, r.erased";
const ROWS: &str = "
    FROM records r JOIN segments g ON g.id = r.segment AND g.tenant = r.tenant LEFT JOIN salts s ON s.record = r.id AND s.tenant = r.tenant
    WHERE r.tenant = (SELECT id FROM tenants WHERE name = ?1)
    AND r.log = (SELECT l.id FROM logs l JOIN tenants t ON t.id = l.tenant
                 WHERE t.name = ?1 AND l.name = ?2)";

pub(super) fn rows(
    db: &Connection,
    tenant: &Tenant,
    log: &LogId,
    span: Span,
) -> Result<Vec<Row>, rusqlite::Error> {
    let find = format!("{ROW} {ROWS} AND r.seq > ?3 AND r.seq <= ?4 ORDER BY r.seq LIMIT ?5");
    let mut find = db.prepare_cached(&find)?;
    let place = params![tenant.0, log.0, number(span.after), number(span.up_to), span.limit];
    find.query_map(place, row)?.collect()
}

pub(super) fn checkpoint(
    db: &Connection,
    tenant: &Tenant,
    log: &LogId,
    at_most: u64,
) -> Result<Option<Row>, rusqlite::Error> {
    let find = format!(
        "{ROW} {ROWS} AND r.kind = 'checkpoint' AND r.seq <= ?3 AND r.erased IS NULL
         ORDER BY r.seq DESC LIMIT 1"
    );
    let place = params![tenant.0, log.0, number(at_most)];
    db.prepare_cached(&find)?.query_row(place, row).optional()
}

fn row(row: &SqlRow<'_>) -> Result<Row, rusqlite::Error> {
    let salt = match (row.get::<_, Option<u32>>(13)?, row.get::<_, Option<Vec<u8>>>(14)?) {
        (Some(epoch), Some(bytes)) => Some(Salt { epoch, bytes: Bytes::from(bytes) }),
        (_, _) => None,
    };
    Ok(Row {
        seq: unsigned(row.get(0)?),
        kind: row.get(1)?,
        at: row.get(2)?,
        events: row.get(3)?,
        last_event: row.get::<_, Option<i64>>(4)?.map(unsigned),
        about: row.get(5)?,
        size: unsigned(row.get(6)?),
        commitment: row.get(7)?,
        link: row.get(8)?,
        writer: row.get(9)?,
        position: unsigned(row.get(10)?),
        blob: row.get(11)?,
        content: row.get::<_, Option<Vec<u8>>>(12)?.map(Bytes::from),
        salt,
        erased: erased(row, 15)?,
    })
}

pub(super) fn place_of_event(
    db: &Connection,
    tenant: &Tenant,
    log: &LogId,
    event: u64,
) -> Result<u64, rusqlite::Error> {
    // One statement, so that no event is added between the two lookups.
    let find = format!(
        "SELECT coalesce((SELECT r.seq - 1 {ROWS} AND r.last_event > ?3
                          ORDER BY r.last_event LIMIT 1),
                         (SELECT l.last FROM logs l JOIN tenants t ON t.id = l.tenant
                          WHERE t.name = ?1 AND l.name = ?2), 0)"
    );
    let place = params![tenant.0, log.0, number(event)];
    db.prepare_cached(&find)?.query_row(place, |row| row.get(0)).map(unsigned)
}

/// Returns the log's last sequence number, or 0 if the log does not exist.
pub(super) fn last(db: &Connection, tenant: &Tenant, log: &LogId) -> Result<u64, rusqlite::Error> {
    let find = "SELECT l.last FROM logs l JOIN tenants t ON t.id = l.tenant
                WHERE t.name = ?1 AND l.name = ?2";
    let place = params![tenant.0, log.0];
    let last = db.prepare_cached(find)?.query_row(place, |row| row.get(0)).optional()?;
    Ok(last.map_or(0, unsigned))
}

pub(super) fn about(
    db: &Connection,
    tenant: &Tenant,
    about: i64,
) -> Result<Vec<(LogId, u64)>, rusqlite::Error> {
    let find = "SELECT l.name, r.seq FROM records r JOIN logs l ON l.id = r.log
                WHERE r.tenant = (SELECT id FROM tenants WHERE name = ?1) AND r.about = ?2
                ORDER BY r.id";
    let mut find = db.prepare_cached(find)?;
    let found = find.query_map(params![tenant.0, about], |row| {
        Ok((LogId(row.get(0)?), unsigned(row.get(1)?)))
    })?;
    found.collect()
}

pub(super) fn blob(
    db: &Connection,
    tenant: &Tenant,
    blob: i64,
) -> Result<Option<(Digest, Bytes)>, rusqlite::Error> {
    let find = "SELECT b.hash, b.content FROM blobs b JOIN tenants t ON t.id = b.tenant
                WHERE t.name = ?1 AND b.id = ?2";
    let found = db.prepare_cached(find)?.query_row(params![tenant.0, blob], |row| {
        Ok((row.get(0)?, row.get::<_, Vec<u8>>(1).map(Bytes::from)?))
    });
    found.optional()
}

pub(super) fn find(
    db: &Connection,
    tenant: &Tenant,
    keys: &[SealedKey],
) -> Result<VaultLookup, rusqlite::Error> {
    let whose = "SELECT id, era FROM tenants WHERE name = ?1";
    let mut whose = db.prepare_cached(whose)?;
    // While this row is open, the read sees one snapshot of the database.
    let mut whose = whose.query([&tenant.0])?;
    let Some(whose) = whose.next()? else {
        return Ok(VaultLookup { found: vec![None; keys.len()], era: ErasureEpoch::default() });
    };
    let (tenant, era): (i64, _) = (whose.get(0)?, ErasureEpoch(unsigned(whose.get(1)?)));
    let newest = "SELECT max(turn), count(*) FROM turn_keys
                  WHERE tenant = ?1 AND kind = ?2 AND hash = ?3";
    let mut newest = db.prepare_cached(newest)?;
    // Most keys of a request refer to the same turn.
    let mut turns: HashMap<i64, Option<VaultTurn>> = HashMap::new();
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        let place = params![tenant, key.kind.number(), key.hash];
        let named = newest.query_row(place, |row| Ok((row.get(0)?, row.get::<_, u32>(1)?)))?;
        found.push(match named {
            (None, _) => None,
            // A claim or id that matches more than one turn is ambiguous and matches none.
            (Some(_), 2..) if key.kind != KeyKind::Chain => None,
            (Some(id), count) => {
                let turn = match turns.entry(id) {
                    Entry::Occupied(turn) => turn.into_mut(),
                    Entry::Vacant(place) => place.insert(turn_at(db, tenant, id)?),
                };
                let siblings = count.saturating_sub(1);
                turn.clone().map(|turn| VaultMatch { turn, siblings })
            }
        });
    }
    Ok(VaultLookup { found, era })
}

fn turn_at(db: &Connection, tenant: i64, id: i64) -> Result<Option<VaultTurn>, rusqlite::Error> {
    let find = "SELECT u.name, u.parent, l.name, u.first, u.last, u.prefix,
                (SELECT min(r.erased) FROM records r WHERE r.tenant = ?1 AND r.log = u.log
                 AND r.seq BETWEEN u.first AND u.last AND r.erased IS NOT NULL AND r.kind <> 'copy')
                FROM turns u JOIN logs l ON l.id = u.log WHERE u.id = ?2";
    let found = db.prepare_cached(find)?.query_row(params![tenant, id], |row| {
        Ok(VaultTurn {
            id: TurnId(row.get(0)?),
            parent: row.get::<_, Option<Name>>(1)?.map(TurnId),
            log: LogId(row.get(2)?),
            first: unsigned(row.get(3)?),
            last: unsigned(row.get(4)?),
            prefix: row.get(5)?,
            gone: erased(row, 6)?.map(ErasureReason::to_elision_reason),
        })
    });
    found.optional()
}

pub(super) fn pending(
    db: &Connection,
    tenant: &Tenant,
    log: Option<&LogId>,
) -> Result<Vec<PendingEntry>, rusqlite::Error> {
    let now = now(db)?;
    let find = "SELECT p.id, p.kind, l.name, p.seq, p.opened, p.expires
                FROM pending p JOIN logs l ON l.id = p.log
                WHERE p.tenant = (SELECT id FROM tenants WHERE name = ?1)
                AND p.taken IS NULL AND (?2 IS NULL OR l.name = ?2) ORDER BY p.opened, p.id";
    let mut find = db.prepare_cached(find)?;
    let found = find.query_map(params![tenant.0, log.map(|log| &log.0)], |row| {
        let expires = row.get::<_, Option<i64>>(5)?;
        let status = match expires {
            Some(expires) if expires <= now => PendingStatus::Expired,
            Some(_) | None => PendingStatus::Open,
        };
        Ok(PendingEntry {
            id: row.get(0)?,
            kind: row.get(1)?,
            log: LogId(row.get(2)?),
            seq: unsigned(row.get(3)?),
            opened: instant(row.get(4)?),
            expires: expires.map(instant),
            status,
        })
    })?;
    found.collect()
}

/// Lists runs of all tenants without a lease that are marked running and were not written to for
/// `idle`, or that wait for a request that has expired since their last write.
pub(super) fn unattended(
    db: &Connection,
    idle: Duration,
    after: u64,
    limit: u32,
) -> Result<Vec<StaleRun>, rusqlite::Error> {
    let now = now(db)?;
    let since = now.saturating_sub(i64::try_from(idle.as_millis()).unwrap_or(i64::MAX));
    let find = format!(
        "SELECT t.name, l.name, l.id FROM logs l JOIN tenants t ON t.id = l.tenant
                LEFT JOIN leases h ON h.tenant = l.tenant AND h.log = l.name
                WHERE l.status = 'running' AND l.id > ?1 AND l.kind = 2 AND l.gone IS NULL AND l.updated <= ?2
                AND NOT {LEASE_IS_ACTIVE}
                UNION
                SELECT t.name, l.name, l.id FROM pending p JOIN logs l ON l.id = p.log JOIN tenants t ON t.id = l.tenant
                LEFT JOIN leases h ON h.tenant = l.tenant AND h.log = l.name
                WHERE p.taken IS NULL AND p.expires IS NOT NULL AND p.expires <= ?3 AND p.expires > l.updated
                AND l.status = 'waiting' AND l.id > ?1 AND l.kind = 2 AND l.gone IS NULL
                AND NOT {LEASE_IS_ACTIVE}
                ORDER BY 3 LIMIT ?4"
    );
    let mut find = db.prepare_cached(&find)?;
    let found = find.query_map(params![number(after), since, now, limit], |row| {
        let (tenant, run) = (Tenant(row.get(0)?), LogId(row.get(1)?));
        Ok(StaleRun { tenant, run, place: unsigned(row.get(2)?) })
    })?;
    found.collect()
}

pub(super) fn last_record(db: &Connection) -> Result<i64, rusqlite::Error> {
    let find = "SELECT coalesce(max(id), 0) FROM records";
    db.prepare_cached(find)?.query_row([], |row| row.get(0))
}

pub(super) fn chain(
    db: &Connection,
    of: Option<&Tenant>,
    after: i64,
    up_to: i64,
    limit: u32,
) -> Result<Vec<ChainRow>, rusqlite::Error> {
    // The plus prevents an index by tenant, which would sort all records of the tenant for each
    // page.
    let scope = match of {
        None => "?4 IS NULL",
        Some(_) => "+r.tenant = (SELECT id FROM tenants WHERE name = ?4)",
    };
    let find = format!(
        "{ROW}, r.id, t.name, l.name
         FROM records r LEFT JOIN segments g ON g.id = r.segment AND g.tenant = r.tenant LEFT JOIN salts s ON s.record = r.id
         AND s.tenant = r.tenant LEFT JOIN tenants t ON t.id = r.tenant LEFT JOIN logs l ON l.id = r.log
         WHERE r.id > ?1 AND r.id <= ?2 AND {scope} ORDER BY r.id LIMIT ?3"
    );
    let mut find = db.prepare_cached(&find)?;
    let found =
        find.query_map(params![after, up_to, limit, of.map(|tenant| &*tenant.0)], |sql| {
            Ok(ChainRow {
                id: sql.get(16)?,
                tenant: Tenant(sql.get(17)?),
                log: LogId(sql.get(18)?),
                row: row(sql)?,
            })
        })?;
    found.collect()
}

pub(super) fn heads(db: &Connection, of: Option<&Tenant>) -> Result<Vec<Head>, rusqlite::Error> {
    let find = "SELECT t.name, g.writer, g.position, g.link
                FROM segments g JOIN tenants t ON t.id = g.tenant
                WHERE ?1 IS NULL OR t.name = ?1 ORDER BY g.id";
    let mut find = db.prepare_cached(find)?;
    let found = find.query_map([of.map(|tenant| &*tenant.0)], |row| {
        Ok(Head {
            tenant: Tenant(row.get(0)?),
            writer: row.get(1)?,
            position: unsigned(row.get(2)?),
            link: row.get(3)?,
        })
    })?;
    found.collect()
}

pub(super) fn manifests(
    db: &Connection,
    after: i64,
    limit: u32,
) -> Result<Vec<(i64, Manifest)>, rusqlite::Error> {
    let find = "SELECT id, body, signature FROM manifests WHERE id > ?1 ORDER BY id LIMIT ?2";
    let mut find = db.prepare_cached(find)?;
    let found = find.query_map(params![after, limit], |row| {
        Ok((row.get(0)?, Manifest { body: row.get(1)?, signature: row.get(2)? }))
    })?;
    found.collect()
}

pub(super) fn tenants(db: &Connection) -> Result<Vec<Tenant>, rusqlite::Error> {
    let mut find = db.prepare_cached("SELECT name FROM tenants ORDER BY name")?;
    find.query_map([], |row| row.get(0).map(Tenant))?.collect()
}

/// Converts stored milliseconds to a timestamp.
pub(super) fn instant(milliseconds: i64) -> Timestamp {
    let limit = if milliseconds > 0 { Timestamp::MAX } else { Timestamp::MIN };
    Timestamp::from_millisecond(milliseconds).unwrap_or(limit)
}
