//! Implements [`Driver`] for an SQLite file.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::{Connection, params};
use throughline_core::{
    Fence, Lease, LogId, Receipt, StoreError, StoreFuture, Tenant, VaultLookup, VaultTurn,
};
use throughline_json::Name;

use crate::backend::{Backend as _, Dialect, Driver, SnapshotWork};
use crate::files::beside;
use crate::manifest::Signer;
use crate::protection::Protection;
use crate::rejection::no_keys;
use crate::row::SaltRow;
use crate::sealed_batch::{SealedBatch, SealedKey};
use crate::sql::{SqlRow, SqlValue, timestamp};
use crate::sqlite::chains::find_or_create_tenant;
use crate::sqlite::commit::{CommitError, number, unsigned};
use crate::sqlite::schema::{self, connect, failure, wait_for};
use crate::sqlite::statements::{now, query_first};
use crate::sqlite::turn_index::{find_newest, find_turns};
use crate::sqlite::values::select;
use crate::sqlite::{Sqlite, last_change, reserve, tally};
use crate::sync::blocking;

/// The owner column of a lease has the form `name\nmilliseconds`: see [`is_lease_active`].
static DIALECT: Dialect = Dialect {
    now: "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
    version: "user_version FROM pragma_user_version",
    lease_is_active: "(coalesce(h.until, 0) > CAST(unixepoch('subsec') * 1000 AS INTEGER) \
        AND (instr(h.owner, char(10)) = 0 \
        OR h.until - CAST(unixepoch('subsec') * 1000 AS INTEGER) \
        <= CAST(substr(h.owner, instr(h.owner, char(10)) + 1) AS INTEGER)))",
    span: "coalesce(r.span, 0)",
    pack_columns: "coalesce(r.span, 0), (SELECT group_concat((r.id - p.record) || ' ' || p.epoch \
        || ' ' || hex(p.salt)) FROM salts p WHERE r.span > 0 \
        AND p.record BETWEEN r.id - r.span AND r.id AND p.tenant = r.tenant)",
    log_order: &["updated", "id"],
};

impl Driver for Sqlite {
    fn dialect(&self) -> &'static Dialect {
        &DIALECT
    }

    fn read_steps(&self) -> Option<u64> {
        Some(self.readers.steps())
    }

    fn query(&self, sql: &str, values: &[SqlValue]) -> StoreFuture<'_, Vec<SqlRow>> {
        let (sql, values) = (sql.to_owned(), values.to_vec());
        self.readers.read(move |db| select(db, &sql, &values))
    }

    fn snapshot(&self, _page: i32, work: SnapshotWork) -> StoreFuture<'_, ()> {
        let (path, access, patience) = (self.path.clone(), self.readers.access, self.patience);
        Box::pin(blocking(move || {
            wait_for(patience);
            let failed = |error| failure(error, &path);
            let db = connect(&path, access).map_err(failed)?;
            let snapshot = db.unchecked_transaction().map_err(failed)?;
            work(&*snapshot)
        }))
    }

    fn commit(&self, batch: SealedBatch) -> StoreFuture<'_, Receipt> {
        Box::pin(async move { self.writer()?.commit(batch).await })
    }

    fn wait(&self, tenant: &Tenant, log: &LogId, after: u64) -> StoreFuture<'_, ()> {
        let key = (tenant.clone(), log.clone());
        Box::pin(self.waiters.wait(&self.readers, key, after))
    }

    fn find(&self, tenant: &Tenant, keys: &[SealedKey]) -> StoreFuture<'_, VaultLookup> {
        // Looking up this many keys reads only a few pages, so it can run on the current thread.
        const FEW: usize = 32;
        let (tenant, keys) = (tenant.clone(), keys.to_vec());
        let is_short = keys.len() <= FEW;
        let recent = Arc::clone(&self.recent);
        let find = move |db: &Connection| find_turns(db, &recent, &tenant, &keys);
        if is_short { self.readers.read_inline(find) } else { self.readers.read(find) }
    }

    fn find_newest(
        &self,
        tenant: &Tenant,
        key: SealedKey,
        limit: u32,
    ) -> StoreFuture<'_, Vec<VaultTurn>> {
        let (tenant, recent) = (tenant.clone(), Arc::clone(&self.recent));
        self.readers.read(move |db| find_newest(db, &recent, &tenant, &key, limit))
    }

    fn lease(
        &self,
        tenant: &Tenant,
        log: &LogId,
        owner: &str,
        time: Duration,
    ) -> StoreFuture<'_, Lease> {
        let (tenant, log, owner) = (tenant.clone(), log.clone(), Name::from(owner));
        self.act(move |db, key| {
            let now = now(db)?;
            let tenant = find_or_create_tenant(db, key.ok_or_else(no_keys)?, &tenant, now)?;
            let find = "SELECT owner, fence, until FROM leases WHERE tenant = ?1 AND log = ?2";
            let lease = query_first(db, find, params![tenant, log.0], |row| {
                Ok((row.get::<_, Name>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
            })?;
            let before = match lease {
                Some((holder, _, until))
                    if is_lease_active(&holder, until, now) && *name_of(&holder) != *owner =>
                {
                    let (owner, left_ms) = (name_of(&holder).into(), unsigned(until - now));
                    return Err(StoreError::Held { log, owner, left_ms }.into());
                }
                Some((_, fence, _)) => fence,
                None => 0,
            };
            let (fence, until) = (before + 1, expiry(now, time));
            let take = "INSERT INTO leases VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (tenant, log) DO
                        UPDATE SET owner = excluded.owner, fence = excluded.fence, until = excluded.until";
            let owner = format!("{owner}\n{}", until.saturating_sub(now));
            db.prepare_cached(take)?.execute(params![tenant, log.0, owner, fence, until])?;
            lease_of(log, fence, until)
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
        self.act(move |db, _| {
            let now = now(db)?;
            let (fence, until) = (number(fence.0.get()), expiry(now, time));
            let hold = "UPDATE leases SET until = ?4,
                        owner = substr(owner, 1, instr(owner || char(10), char(10)) - 1)
                        || char(10) || (?4 - ?5) WHERE tenant = (SELECT id FROM tenants WHERE name = ?1)
                        AND log = ?2 AND fence = ?3 AND until > ?5";
            let row = params![tenant.0, log.0, fence, until, now];
            if db.prepare_cached(hold)?.execute(row)? == 0 {
                return Err(StoreError::Fenced { log }.into());
            }
            lease_of(log, fence, until)
        })
    }

    fn release(&self, tenant: &Tenant, log: &LogId, fence: Fence) -> StoreFuture<'_, ()> {
        let (tenant, log) = (tenant.clone(), log.clone());
        self.act(move |db, _| {
            // Keep the row, because the next fence must be higher than this one.
            let free = "UPDATE leases SET until = 0 WHERE log = ?2 AND fence = ?3
                        AND tenant = (SELECT id FROM tenants WHERE name = ?1)";
            db.prepare_cached(free)?.execute(params![tenant.0, log.0, number(fence.0.get())])?;
            Ok(())
        })
    }

    fn protect(&self, protection: Protection) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.writer()?.protect(protection).await?;
            // Connections that were opened before a migration do not see the new columns.
            self.readers.close_idle();
            Ok(())
        })
    }

    fn sign_with(&self, signer: Arc<Signer>) {
        if let Some(writer) = &self.writer {
            writer.sign_with(signer);
        }
    }

    fn last_id(&self, table: &'static str) -> StoreFuture<'_, i64> {
        self.evaluate(&format!("coalesce(max(id), 0) FROM {table}"))
    }

    fn is_stable(&self) -> bool {
        let is_same = |changed| last_change(&self.path) == Some(changed);
        self.changed.is_none_or(|changed| is_same(changed) && !schema::has_wal(&self.path))
    }

    fn check_files(&self) -> StoreFuture<'_, Vec<String>> {
        let lines = self.query("PRAGMA integrity_check", &[]);
        Box::pin(async move {
            let lines = lines.await?.iter().map(|row| row.get(0)).collect::<Result<Vec<_>, _>>();
            Ok(lines?.into_iter().filter(|line: &String| line != "ok").collect())
        })
    }

    fn keep(&self, name: &str, value: Bytes) -> StoreFuture<'_, Bytes> {
        let name = name.to_owned();
        self.act(move |db, key| {
            if let Some(stored) = tally::value(db, &name)? {
                return Ok(stored);
            }
            tally::set_value(db, key, &name, Some(&value))?;
            Ok(value)
        })
    }

    fn set_value(&self, name: &str, value: Option<Bytes>) -> StoreFuture<'_, ()> {
        let name = name.to_owned();
        self.act(move |db, key| Ok(tally::set_value(db, key, &name, value.as_deref())?))
    }

    fn rewrap(&self, salts: Vec<SaltRow>) -> StoreFuture<'_, ()> {
        self.act(move |db, _| {
            for SaltRow { record, salt } in &salts {
                let update = "UPDATE salts SET epoch = ?2, salt = ?3 WHERE record = ?1";
                db.prepare_cached(update)?.execute(params![record, salt.epoch, &*salt.bytes])?;
            }
            Ok(())
        })
    }

    fn disk_bytes(&self) -> StoreFuture<'_, u64> {
        let size = |path| std::fs::metadata(path).map_or(0, |file| file.len());
        let bytes = size(self.path.clone()) + size(beside(&self.path, "-wal"));
        Box::pin(async move { Ok(bytes) })
    }

    fn scrub(&self) -> StoreFuture<'_, ()> {
        let (path, patience) = (self.path.clone(), self.patience);
        Box::pin(blocking(move || schema::scrub(&path, patience)))
    }

    fn make_room(&self) -> StoreFuture<'_, ()> {
        let path = self.path.clone();
        Box::pin(blocking(move || {
            reserve::make_room(&path);
            Ok(())
        }))
    }

    fn keep_reserve(&self) -> StoreFuture<'_, ()> {
        let path = self.path.clone();
        Box::pin(blocking(move || {
            reserve::ensure(&path);
            Ok(())
        }))
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            // Close the readers first, so that the writer can truncate the WAL.
            self.waiters.registry.close();
            self.readers.close().await;
            match &self.writer {
                Some(writer) => writer.close().await,
                None => Ok(()),
            }
        })
    }
}

/// Returns whether a lease is active. The owner column has the form `name\nmilliseconds`, where the
/// number is the lease's duration. If a lease's remaining time exceeds its duration, the lease was
/// taken while the clock was ahead, and it counts as expired. Names contain no line breaks. Rows
/// written by earlier versions have no duration.
pub(super) fn is_lease_active(owner: &str, until: i64, now: i64) -> bool {
    let length = owner.split_once('\n').and_then(|(_, length)| length.parse::<i64>().ok());
    until > now && length.is_none_or(|length| until.saturating_sub(now) <= length)
}

/// Returns the owner's name from the owner column, without the duration.
pub(crate) fn name_of(owner: &str) -> &str {
    owner.split('\n').next().unwrap_or_default()
}

/// Returns the end of a lease in milliseconds since 1970. A time beyond the range of `i64` becomes
/// the maximum.
pub(super) fn expiry(now: i64, time: Duration) -> i64 {
    now.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
}

fn lease_of(log: LogId, fence: i64, until: i64) -> Result<Lease, CommitError> {
    match NonZeroU64::new(unsigned(fence)) {
        Some(fence) => Ok(Lease { fence: Fence(fence), until: timestamp(until) }),
        None => Err(StoreError::Fenced { log }.into()),
    }
}
