//! Reads on separate connections. A read sees the state at its start. It neither blocks writers nor
//! waits for them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::{Connection, params};
use throughline_core::{
    ErasureEpoch, LogId, StoreError, StoreFuture, Tenant, VaultLookup, VaultMatch, VaultTurn,
};
use tokio::sync::Semaphore;

use crate::backend::decode::vault_turn;
use crate::sealed_batch::{KeyKind, SealedKey};
use crate::sql::values;
use crate::sqlite::commit::unsigned;
use crate::sqlite::schema::{Access, connect, failure, wait_for};
use crate::sqlite::statements::query_first;
use crate::sqlite::values::{own_error, select};
use crate::sync::{blocking, lock};

/// A connection pool for reads.
pub(super) struct Readers {
    path: PathBuf,
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
    count: u32,
    patience: Duration,
    pub(super) access: Access,
}

impl Readers {
    pub(super) fn new(path: &Path, count: usize, patience: Duration, access: Access) -> Self {
        let count = u32::try_from(count.clamp(1, 1024)).unwrap_or(1024);
        let permits = Arc::new(Semaphore::new(usize::try_from(count).unwrap_or(1)));
        Self { path: path.to_owned(), idle: Arc::default(), permits, count, patience, access }
    }

    /// Reads on the current thread. This costs less than a blocking task if the read needs only a
    /// few pages. Falls back to [`read`](Self::read) if no connection is idle or the read fails,
    /// for example because the file is locked.
    pub(super) fn read_inline<T: Send + 'static>(
        &self,
        read: impl Fn(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        Box::pin(async move {
            let permit = self.permits.acquire().await.map_err(|_| StoreError::Closed)?;
            let idle = lock(&self.idle).pop();
            if let Some(db) = idle {
                wait_for(Duration::ZERO);
                // Drop a connection that failed instead of returning it to the pool.
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
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
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
                // Drop a connection that failed instead of returning it to the pool.
                let value = read(&db).map_err(failed)?;
                lock(&idle).push(db);
                Ok(value)
            })
            .await
        })
    }

    /// Waits for all reads to finish and rejects new ones.
    pub(super) async fn close(&self) {
        // Acquiring fails only if the readers were already closed.
        drop(self.permits.acquire_many(self.count).await);
        self.permits.close();
        lock(&self.idle).clear();
    }
}

/// Looks up captured turns by key: see [`Driver::find`](crate::backend::Driver::find).
pub(super) fn find_turns(
    db: &Connection,
    tenant: &Tenant,
    keys: &[SealedKey],
) -> rusqlite::Result<VaultLookup> {
    let mut owner = db.prepare_cached("SELECT id, era FROM tenants WHERE name = ?1")?;
    // While this row is open, all reads see one snapshot of the database.
    let mut owner = owner.query([&tenant.0])?;
    let Some(owner) = owner.next()? else {
        return Ok(VaultLookup { found: vec![None; keys.len()], era: ErasureEpoch::default() });
    };
    let (tenant, era): (i64, _) = (owner.get(0)?, ErasureEpoch(unsigned(owner.get(1)?)));
    let newest = "SELECT max(turn), count(*) FROM turn_keys
                  WHERE tenant = ?1 AND kind = ?2 AND hash = ?3";
    let mut newest = db.prepare_cached(newest)?;
    // Cache the turns, because most keys of a request refer to the same turn.
    let mut turns: HashMap<i64, Option<VaultTurn>> = HashMap::new();
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        let key_params = params![tenant, key.kind.number(), key.hash];
        let turn = newest.query_row(key_params, |row| Ok((row.get(0)?, row.get::<_, u32>(1)?)))?;
        found.push(match turn {
            (None, _) => None,
            // A claim or id that matches several turns is ambiguous, so it matches none.
            (Some(_), 2..) if key.kind != KeyKind::Chain => None,
            (Some(id), count) => {
                let turn = match turns.entry(id) {
                    Entry::Occupied(turn) => turn.into_mut(),
                    Entry::Vacant(entry) => entry.insert(turn_at(db, tenant, id)?),
                };
                let siblings = count.saturating_sub(1);
                turn.clone().map(|turn| VaultMatch { turn, siblings })
            }
        });
    }
    Ok(VaultLookup { found, era })
}

fn turn_at(db: &Connection, tenant: i64, id: i64) -> rusqlite::Result<Option<VaultTurn>> {
    let find = "SELECT u.name, u.parent, l.name, u.first, u.last, u.prefix,
                (SELECT min(r.erased) FROM records r WHERE r.tenant = $1 AND r.log = u.log
                 AND r.seq BETWEEN u.first AND u.last AND r.erased IS NOT NULL AND r.kind <> 'copy')
                FROM turns u JOIN logs l ON l.id = u.log WHERE u.id = $2";
    let turn = select(db, find, &values![tenant, id])?;
    turn.first().map(|row| vault_turn(row, 0)).transpose().map_err(own_error)
}

/// Returns the log's last sequence number, or 0 if the log does not exist.
pub(super) fn last(db: &Connection, tenant: &Tenant, log: &LogId) -> rusqlite::Result<u64> {
    let find = "SELECT l.last FROM logs l JOIN tenants t ON t.id = l.tenant
                WHERE t.name = ?1 AND l.name = ?2";
    let last = query_first(db, find, params![tenant.0, log.0], |row| row.get(0))?;
    Ok(last.map_or(0, unsigned))
}
