//! Reads on separate connections. A reader sees the state at its start and does not block.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use rusqlite::{Connection, Row as SqlRow, ToSql, params};
use throughline_core::{
    Digest, ErasureEpoch, LogHead, LogId, PendingEntry, PendingStatus, Receipt, Rewind, StoreError,
    StoreFuture, Tenant, TurnId, VaultLookup, VaultMatch, VaultTurn,
};
use throughline_json::Name;
use tokio::sync::Semaphore;

use crate::backend::{LogBackend, VaultBackend};
use crate::query::{Listing, Span};
use crate::row::{ErasureReason, Row, Salt, fork_of};
use crate::sealed_batch::{KeyKind, SealedBatch, SealedKey};
use crate::sqlite::Sqlite;
use crate::sqlite::commit::{kind_number, kind_of, number, unsigned};
use crate::sqlite::schema::{Access, connect, failure, wait_for};
use crate::sqlite::statements::{now, query_all, query_first};
use crate::sync::{blocking, lock};

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
        read: impl Fn(&Connection) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        Box::pin(async move {
            let permit = self.permits.acquire().await.map_err(|_| StoreError::Closed)?;
            let idle = lock(&self.idle).pop();
            if let Some(db) = idle {
                wait_for(Duration::ZERO);
                // A connection that failed is not used again.
                if let Ok(value) = read(&db) {
                    lock(&self.idle).push(db);
                    return Ok(value);
                }
            }
            drop(permit);
            self.read(read).await
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
            blocking(move || {
                let _permit = permit;
                wait_for(patience);
                let failed = |error| failure(error, &path);
                let db = lock(&idle).pop();
                let db = db.map_or_else(|| connect(&path, access), Ok).map_err(failed)?;
                // A connection that failed is not used again.
                let value = read(&db).map_err(failed)?;
                lock(&idle).push(db);
                Ok(value)
            })
            .await
        })
    }

    /// Waits for all readers to finish and rejects new ones.
    pub(super) async fn close(&self) {
        // An error means that the readers were already closed.
        drop(self.permits.acquire_many(self.count).await);
        self.permits.close();
        lock(&self.idle).clear();
    }
}

const LOG: &str = "
    SELECT l.name, l.kind, o.name, f.name, l.fork_at, l.rewinds, l.status, l.last, l.events, l.bytes,
           l.created, l.updated, l.gone
    FROM logs l LEFT JOIN logs o ON o.id = l.of AND o.tenant = l.tenant
    LEFT JOIN logs f ON f.id = l.fork AND f.tenant = l.tenant
    WHERE l.tenant = (SELECT id FROM tenants WHERE name = ?1)";

/// The columns of a record.
pub(super) const ROW: &str = "
    SELECT r.seq, r.kind, r.at, r.events, r.last_event, r.about, r.size, r.commitment, r.link, g.writer,
           r.position, r.blob, r.content, s.epoch, s.salt, r.erased";
const ROWS: &str = "
    FROM records r JOIN segments g ON g.id = r.segment AND g.tenant = r.tenant LEFT JOIN salts s ON s.record = r.id AND s.tenant = r.tenant
    WHERE r.tenant = (SELECT id FROM tenants WHERE name = ?1)
    AND r.log = (SELECT l.id FROM logs l JOIN tenants t ON t.id = l.tenant
                 WHERE t.name = ?1 AND l.name = ?2)";

impl LogBackend for Sqlite {
    fn commit(&self, batch: SealedBatch) -> StoreFuture<'_, Receipt> {
        Box::pin(async move { self.writer()?.commit(batch).await })
    }

    fn log(&self, tenant: &Tenant, log: &LogId) -> StoreFuture<'_, Option<LogHead>> {
        let (tenant, log) = (tenant.clone(), log.clone());
        self.readers.read(move |db| {
            let find = format!("{LOG} AND l.name = ?2");
            query_first(db, &find, params![tenant.0, log.0], log_head)
        })
    }

    fn logs(&self, tenant: &Tenant, listing: Listing) -> StoreFuture<'_, Vec<LogHead>> {
        let tenant = tenant.clone();
        self.readers.read(move |db| {
            let Listing { kind, of, forks_of, order, after, limit } = listing;
            let kind = kind.map(kind_number);
            let [of, forks_of, after] = [of, forks_of, after].map(|log| log.map(|log| log.0));
            let (comparison, direction) = order.sql();
            let (mut find, mut values): (_, Vec<&dyn ToSql>) = (LOG.to_owned(), vec![&tenant.0]);
            let mut filter = |condition: &str, value| {
                values.push(value);
                find += &[" AND ", condition, " ?", &values.len().to_string()].concat();
            };
            if kind.is_some() {
                // A Thread has few runs and forks. The plus makes SQLite use that index instead of
                // the one by kind.
                let is_of_one = of.is_some() || forks_of.is_some();
                filter(if is_of_one { "+l.kind =" } else { "l.kind =" }, &kind);
            }
            if of.is_some() {
                filter("o.name =", &of);
            }
            if forks_of.is_some() {
                filter("f.name =", &forks_of);
            }
            if after.is_some() {
                let place = format!(
                    "(l.updated, l.id) {comparison} (SELECT updated, id FROM logs
                     WHERE tenant = (SELECT id FROM tenants WHERE name = ?1) AND name ="
                );
                filter(&place, &after);
                find.push(')');
            }
            let find =
                format!("{find} ORDER BY l.updated {direction}, l.id {direction} LIMIT {limit}");
            db.prepare(&find)?.query_map(&*values, log_head)?.collect()
        })
    }

    fn rows(&self, tenant: &Tenant, log: &LogId, span: Span) -> StoreFuture<'_, Vec<Row>> {
        let (tenant, log) = (tenant.clone(), log.clone());
        self.readers.read(move |db| {
            let find =
                format!("{ROW} {ROWS} AND r.seq > ?3 AND r.seq <= ?4 ORDER BY r.seq LIMIT ?5");
            let (after, up_to) = (number(span.after), number(span.up_to));
            query_all(db, &find, params![tenant.0, log.0, after, up_to, span.limit], row)
        })
    }

    fn place_of_event(&self, tenant: &Tenant, log: &LogId, event: u64) -> StoreFuture<'_, u64> {
        let (tenant, log) = (tenant.clone(), log.clone());
        self.readers.read(move |db| {
            // One statement, so that no event is added between the two lookups.
            let find = format!(
                "SELECT coalesce((SELECT r.seq - 1 {ROWS} AND r.last_event > ?3
                                  ORDER BY r.last_event LIMIT 1),
                                 (SELECT l.last FROM logs l JOIN tenants t ON t.id = l.tenant
                                  WHERE t.name = ?1 AND l.name = ?2), 0)"
            );
            let place = params![tenant.0, log.0, number(event)];
            db.prepare_cached(&find)?.query_row(place, |row| row.get(0)).map(unsigned)
        })
    }

    fn checkpoint(
        &self,
        tenant: &Tenant,
        log: &LogId,
        at_most: u64,
    ) -> StoreFuture<'_, Option<Row>> {
        let (tenant, log) = (tenant.clone(), log.clone());
        self.readers.read(move |db| {
            let find = format!(
                "{ROW} {ROWS} AND r.kind = 'checkpoint' AND r.seq <= ?3 AND r.erased IS NULL
                 ORDER BY r.seq DESC LIMIT 1"
            );
            query_first(db, &find, params![tenant.0, log.0, number(at_most)], row)
        })
    }

    fn about(&self, tenant: &Tenant, about: i64) -> StoreFuture<'_, Vec<(LogId, u64)>> {
        let tenant = tenant.clone();
        self.readers.read(move |db| {
            let find = "SELECT l.name, r.seq FROM records r JOIN logs l ON l.id = r.log
                        WHERE r.tenant = (SELECT id FROM tenants WHERE name = ?1) AND r.about = ?2
                        ORDER BY r.id";
            let place = |row: &SqlRow<'_>| Ok((LogId(row.get(0)?), unsigned(row.get(1)?)));
            query_all(db, find, params![tenant.0, about], place)
        })
    }

    fn blob(&self, tenant: &Tenant, blob: i64) -> StoreFuture<'_, Option<(Digest, Bytes)>> {
        let tenant = tenant.clone();
        self.readers.read(move |db| {
            let find = "SELECT b.hash, b.content FROM blobs b JOIN tenants t ON t.id = b.tenant
                        WHERE t.name = ?1 AND b.id = ?2";
            query_first(db, find, params![tenant.0, blob], |row| {
                Ok((row.get(0)?, row.get::<_, Vec<u8>>(1).map(Bytes::from)?))
            })
        })
    }

    fn wait(&self, tenant: &Tenant, log: &LogId, after: u64) -> StoreFuture<'_, ()> {
        let key = (tenant.clone(), log.clone());
        Box::pin(self.waiters.wait(&self.readers, key, after))
    }

    fn pending(&self, tenant: &Tenant, log: Option<&LogId>) -> StoreFuture<'_, Vec<PendingEntry>> {
        let (tenant, log) = (tenant.clone(), log.cloned());
        self.readers.read(move |db| {
            let now = now(db)?;
            let find = "SELECT p.id, p.kind, l.name, p.seq, p.opened, p.expires
                        FROM pending p JOIN logs l ON l.id = p.log
                        WHERE p.tenant = (SELECT id FROM tenants WHERE name = ?1) AND p.taken IS NULL
                        AND (?2 IS NULL OR l.name = ?2) ORDER BY p.opened, p.id";
            query_all(db, find, params![tenant.0, log.map(|log| log.0)], |row| {
                let expires: Option<i64> = row.get(5)?;
                let is_expired = expires.is_some_and(|expires| expires <= now);
                Ok(PendingEntry {
                    id: row.get(0)?,
                    kind: row.get(1)?,
                    log: LogId(row.get(2)?),
                    seq: unsigned(row.get(3)?),
                    opened: instant(row.get(4)?),
                    expires: expires.map(instant),
                    status: if is_expired { PendingStatus::Expired } else { PendingStatus::Open },
                })
            })
        })
    }
}

impl VaultBackend for Sqlite {
    fn find(&self, tenant: &Tenant, keys: &[SealedKey]) -> StoreFuture<'_, VaultLookup> {
        // This many keys need only a few pages.
        const FEW: usize = 32;
        let (tenant, keys) = (tenant.clone(), keys.to_vec());
        let is_short = keys.len() <= FEW;
        let find = move |db: &Connection| find_turns(db, &tenant, &keys);
        if is_short { self.readers.read_inline(find) } else { self.readers.read(find) }
    }
}

fn find_turns(
    db: &Connection,
    tenant: &Tenant,
    keys: &[SealedKey],
) -> Result<VaultLookup, rusqlite::Error> {
    let mut owner = db.prepare_cached("SELECT id, era FROM tenants WHERE name = ?1")?;
    // While this row is open, the read sees one snapshot of the database.
    let mut owner = owner.query([&tenant.0])?;
    let Some(owner) = owner.next()? else {
        return Ok(VaultLookup { found: vec![None; keys.len()], era: ErasureEpoch::default() });
    };
    let (tenant, era): (i64, _) = (owner.get(0)?, ErasureEpoch(unsigned(owner.get(1)?)));
    let newest = "SELECT max(turn), count(*) FROM turn_keys
                  WHERE tenant = ?1 AND kind = ?2 AND hash = ?3";
    let mut newest = db.prepare_cached(newest)?;
    // Most keys of a request refer to the same turn.
    let mut turns: HashMap<i64, Option<VaultTurn>> = HashMap::new();
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        let place = params![tenant, key.kind.number(), key.hash];
        let turn = newest.query_row(place, |row| Ok((row.get(0)?, row.get::<_, u32>(1)?)))?;
        found.push(match turn {
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
    query_first(db, find, params![tenant, id], |row| {
        Ok(VaultTurn {
            id: TurnId(row.get(0)?),
            parent: row.get::<_, Option<Name>>(1)?.map(TurnId),
            log: LogId(row.get(2)?),
            first: unsigned(row.get(3)?),
            last: unsigned(row.get(4)?),
            prefix: row.get(5)?,
            gone: erased(row, 6)?.map(ErasureReason::to_elision_reason),
        })
    })
}

/// Returns the log's last sequence number, or 0 if the log does not exist.
pub(super) fn last(db: &Connection, tenant: &Tenant, log: &LogId) -> Result<u64, rusqlite::Error> {
    let find = "SELECT l.last FROM logs l JOIN tenants t ON t.id = l.tenant
                WHERE t.name = ?1 AND l.name = ?2";
    let last = query_first(db, find, params![tenant.0, log.0], |row| row.get(0))?;
    Ok(last.map_or(0, unsigned))
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

pub(super) fn row(row: &SqlRow<'_>) -> Result<Row, rusqlite::Error> {
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

/// Returns the reason for an erasure. An unknown number means that the row was modified.
fn erased(row: &SqlRow<'_>, column: usize) -> Result<Option<ErasureReason>, rusqlite::Error> {
    let Some(number) = row.get::<_, Option<i16>>(column)? else { return Ok(None) };
    let invalid = || rusqlite::Error::IntegralValueOutOfRange(column, number.into());
    ErasureReason::from_number(number).map(Some).ok_or_else(invalid)
}

/// Parses the stored rewinds of a log.
pub(crate) fn parse_rewinds(text: &str) -> Vec<Rewind> {
    let rewind = |pair: &str| {
        let (at, to) = pair.split_once(':')?;
        Some(Rewind { at: at.parse().ok()?, to: to.parse().ok()? })
    };
    text.split(' ').filter_map(rewind).collect()
}

/// Converts stored milliseconds to a timestamp.
pub(super) fn instant(milliseconds: i64) -> Timestamp {
    let limit = if milliseconds > 0 { Timestamp::MAX } else { Timestamp::MIN };
    Timestamp::from_millisecond(milliseconds).unwrap_or(limit)
}
