//! Leases, API keys, small internal values, and operator commands on the file.

use std::num::NonZeroU64;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::{Connection, ErrorCode, params};
use throughline_core::{Digest, Fence, Lease, LogId, StaleRun, StoreError, StoreFuture, Tenant};
use throughline_json::Name;

use crate::backend::{AdminBackend, KeyBackend, LeaseBackend, ValueBackend};
use crate::backup_files::NewBackup;
use crate::files::beside;
use crate::query::{Progress, Stats};
use crate::rejection::no_keys;
use crate::row::{ApiKeyRow, Salt, SaltRow};
use crate::sqlite::chains::find_or_create_tenant;
use crate::sqlite::commit::{CommitError, number, unsigned};
use crate::sqlite::read::instant;
use crate::sqlite::schema::{Access, connect, failure, version, wait_for};
use crate::sqlite::statements::{now, query_all, query_first};
use crate::sqlite::{Sqlite, backup, reserve, tally};
use crate::sync::blocking;

impl LeaseBackend for Sqlite {
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
            let (fence, until) = (before + 1, until(now, time));
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
            let (fence, until) = (number(fence.0.get()), until(now, time));
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
            // The row stays, because the next fence must be higher.
            let free = "UPDATE leases SET until = 0 WHERE log = ?2 AND fence = ?3
                        AND tenant = (SELECT id FROM tenants WHERE name = ?1)";
            db.prepare_cached(free)?.execute(params![tenant.0, log.0, number(fence.0.get())])?;
            Ok(())
        })
    }

    /// Also lists runs that wait for a request that has expired since their last write.
    fn unattended(&self, idle: Duration, after: u64, limit: u32) -> StoreFuture<'_, Vec<StaleRun>> {
        self.readers.read(move |db| {
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
            query_all(db, &find, params![number(after), since, now, limit], |row| {
                let (tenant, run) = (Tenant(row.get(0)?), LogId(row.get(1)?));
                Ok(StaleRun { tenant, run, place: unsigned(row.get(2)?) })
            })
        })
    }
}

impl ValueBackend for Sqlite {
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

    fn replace(&self, name: &str, value: Bytes) -> StoreFuture<'_, ()> {
        let name = name.to_owned();
        self.act(move |db, key| Ok(tally::set_value(db, key, &name, Some(&value))?))
    }

    fn discard(&self, name: &str) -> StoreFuture<'_, ()> {
        let name = name.to_owned();
        self.act(move |db, key| Ok(tally::set_value(db, key, &name, None)?))
    }

    fn values(&self, prefix: &str) -> StoreFuture<'_, Vec<(String, Bytes)>> {
        let prefix = prefix.to_owned();
        self.readers.read(move |db| {
            let find =
                "SELECT name, value FROM kept WHERE substr(name, 1, length(?1)) = ?1 ORDER BY name";
            query_all(db, find, [prefix], |row| Ok((row.get(0)?, row.get::<_, Vec<u8>>(1)?.into())))
        })
    }
}

impl KeyBackend for Sqlite {
    fn key(&self, hash: Digest, revocation: i64) -> StoreFuture<'_, Option<(ApiKeyRow, bool)>> {
        self.readers.read(move |db| {
            let find = format!("{KEY} WHERE k.hash = ?1 AND k.revoked IS NULL");
            let Some(row) = query_first(db, &find, [hash], key_row)? else { return Ok(None) };
            // Only the tenant's own record counts. A row that was moved from another tenant fails
            // its MAC.
            let revoked = "SELECT 1 FROM records WHERE about = ?2
                           AND tenant = (SELECT id FROM tenants WHERE name = ?1)";
            let is_revoked =
                db.prepare_cached(revoked)?.exists(params![row.tenant.0, revocation])?;
            Ok(Some((row, is_revoked)))
        })
    }

    fn keys(&self, tenant: &Tenant) -> StoreFuture<'_, Vec<ApiKeyRow>> {
        let tenant = tenant.0.clone();
        self.readers.read(move |db| {
            let find = format!("{KEY} WHERE t.name = ?1 ORDER BY k.created, k.id");
            query_all(db, &find, [tenant], key_row)
        })
    }

    fn salts_not_of(
        &self,
        epoch: u32,
        after: i64,
        up_to: i64,
        limit: u32,
    ) -> StoreFuture<'_, Vec<SaltRow>> {
        self.readers.read(move |db| {
            let find = "SELECT record, epoch, salt FROM salts
                        WHERE epoch <> ?1 AND record > ?2 AND record <= ?3 ORDER BY record LIMIT ?4";
            query_all(db, find, params![epoch, after, up_to, limit], |row| {
                let bytes = Bytes::from(row.get::<_, Vec<u8>>(2)?);
                Ok(SaltRow { record: row.get(0)?, salt: Salt { epoch: row.get(1)?, bytes } })
            })
        })
    }

    fn salted(&self, after: i64, up_to: i64) -> StoreFuture<'_, Vec<i64>> {
        self.readers.read(move |db| {
            let find =
                "SELECT record FROM salts WHERE record > ?1 AND record <= ?2 ORDER BY record";
            query_all(db, find, [after, up_to], |row| row.get(0))
        })
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
}

impl AdminBackend for Sqlite {
    fn now(&self) -> StoreFuture<'_, i64> {
        self.readers.read(now)
    }

    fn tenants(&self) -> StoreFuture<'_, Vec<Tenant>> {
        self.readers.read(|db| {
            let find = "SELECT name FROM tenants ORDER BY name";
            query_all(db, find, [], |row| row.get(0).map(Tenant))
        })
    }

    fn stats(&self) -> StoreFuture<'_, Stats> {
        let path = self.path.clone();
        self.readers.read(move |db| stats(db, &path))
    }

    fn version(&self) -> StoreFuture<'_, u32> {
        self.readers.read(|db| Ok(u32::try_from(version(db)?).unwrap_or(0)))
    }

    fn scrub(&self) -> StoreFuture<'_, ()> {
        let (path, patience) = (self.path.clone(), self.patience);
        Box::pin(blocking(move || scrub(&path, patience)))
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

    fn backup<'a>(&'a self, plan: NewBackup, progress: Progress<'a>) -> StoreFuture<'a, ()> {
        Box::pin(backup::backup(&self.path, plan, progress))
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            // Readers close first, so that the writer can truncate the WAL.
            self.waiters.close();
            self.readers.close().await;
            match &self.writer {
                Some(writer) => writer.close().await,
                None => Ok(()),
            }
        })
    }
}

/// Returns whether a lease is active. The owner column has the form `name\nmilliseconds`, with the
/// duration of the lease. A lease with more remaining time than its duration was taken with a clock
/// that was ahead, and has expired. Names have no line breaks; rows of earlier versions have no
/// duration.
pub(super) fn is_lease_active(owner: &str, until: i64, now: i64) -> bool {
    let length = owner.split_once('\n').and_then(|(_, length)| length.parse::<i64>().ok());
    until > now && length.is_none_or(|length| until.saturating_sub(now) <= length)
}

/// The same check in SQL for a row `h` of leases, where `?3` is the time.
pub(super) const LEASE_IS_ACTIVE: &str =
    "(coalesce(h.until, 0) > ?3 AND (instr(h.owner, char(10)) = 0
     OR h.until - ?3 <= CAST(substr(h.owner, instr(h.owner, char(10)) + 1) AS INTEGER)))";

/// Returns the name of a lease's owner, without the duration.
pub(super) fn name_of(owner: &str) -> &str {
    owner.split('\n').next().unwrap_or_default()
}

fn until(now: i64, time: Duration) -> i64 {
    now.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
}

fn lease_of(log: LogId, fence: i64, until: i64) -> Result<Lease, CommitError> {
    match NonZeroU64::new(unsigned(fence)) {
        Some(fence) => Ok(Lease { fence: Fence(fence), until: instant(until) }),
        None => Err(StoreError::Fenced { log }.into()),
    }
}

pub(super) const KEY: &str =
    "SELECT t.name, k.id, k.label, k.limits, k.hash, k.created, k.revoked, k.mac
                   FROM api_keys k JOIN tenants t ON t.id = k.tenant";

pub(super) fn key_row(row: &rusqlite::Row<'_>) -> Result<ApiKeyRow, rusqlite::Error> {
    Ok(ApiKeyRow {
        tenant: Tenant(row.get(0)?),
        id: row.get(1)?,
        label: row.get(2)?,
        limits: row.get(3)?,
        hash: row.get(4)?,
        created: row.get(5)?,
        revoked: row.get(6)?,
        mac: row.get(7)?,
    })
}

/// Truncates the WAL. SQLite overwrites deleted bytes in the file, but the WAL keeps older pages
/// until it is truncated.
fn scrub(path: &Path, patience: Duration) -> Result<(), StoreError> {
    // An earlier reader blocks the truncation. Truncating blocks writers, so each attempt is short.
    const PAUSE: Duration = Duration::from_millis(5);
    wait_for(PAUSE);
    let failed = |error| failure(error, path);
    let db = connect(path, Access::Write).map_err(failed)?;
    for _ in 0..=patience.as_millis() / PAUSE.as_millis() {
        let cut = "PRAGMA wal_checkpoint(TRUNCATE)";
        match db.query_row(cut, [], |row| row.get::<_, i64>(0)) {
            // The empty WAL must also reach the disk, or a power loss restores its old content.
            // SQLite does not sync it, but the next commit does.
            Ok(0) => {
                wait_for(patience);
                return touch(&db).map_err(failed);
            }
            Ok(_) => {}
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {}
            Err(error) => return Err(failed(error)),
        }
        std::thread::sleep(PAUSE);
    }
    Err(StoreError::Locked(path.display().to_string().into()))
}

/// Commits a write that changes nothing: the file header is rewritten.
pub(super) fn touch(db: &Connection) -> Result<(), rusqlite::Error> {
    let version = version(db)?;
    db.pragma_update(None, "user_version", version)
}

fn stats(db: &Connection, path: &Path) -> Result<Stats, rusqlite::Error> {
    let count =
        |what: &str| db.query_row(&format!("SELECT {what}"), [], |row| row.get(0)).map(unsigned);
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    Ok(Stats {
        tenants: count("count(*) FROM tenants")?,
        threads: count("count(*) FROM logs WHERE kind = 1")?,
        runs: count("count(*) FROM logs WHERE kind = 2 AND status IS NOT NULL")?,
        records: count("count(*) FROM records")?,
        content_bytes: count("coalesce(sum(bytes), 0) FROM logs")?,
        blobs: count("count(*) FROM blobs")?,
        blob_bytes: count("coalesce(sum(length(content)), 0) FROM blobs")?,
        turns: count("count(*) FROM turns")?,
        pending: count(
            "count(*) FROM pending WHERE taken IS NULL
                        AND (expires IS NULL OR expires > unixepoch('subsec') * 1000)",
        )?,
        segments: count("count(*) FROM segments")?,
        manifests: count("count(*) FROM manifests")?,
        disk_bytes: size(path) + size(&beside(path, "-wal")),
    })
}

pub(super) fn check(db: &Connection) -> Result<Vec<String>, rusqlite::Error> {
    let mut problems: Vec<String> = query_all(db, "PRAGMA integrity_check", [], |row| row.get(0))?;
    problems.retain(|line| line != "ok");
    let gaps = "SELECT l.name, l.last - coalesce(l.fork_at, 0), count(r.id) FROM logs l
                LEFT JOIN records r ON r.tenant = l.tenant AND r.log = l.id
                GROUP BY l.id HAVING count(r.id) <> l.last - coalesce(l.fork_at, 0)
                OR coalesce(max(r.seq), l.last) <> l.last";
    problems.extend(query_all(db, gaps, [], |row| {
        let (log, wanted, found): (String, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(format!("{log} should have {wanted} own records but has {found}"))
    })?);
    // Rows without an owner were written by another program or should have been destroyed.
    let strays = [
        (
            "salts",
            "salts s WHERE NOT EXISTS (SELECT 1 FROM records r WHERE r.id = s.record
             AND r.tenant = s.tenant AND r.erased IS NULL)",
        ),
        (
            "large contents",
            "blobs b WHERE NOT EXISTS (SELECT 1 FROM records r WHERE r.blob = b.id
             AND r.tenant = b.tenant AND r.erased IS NULL)",
        ),
        (
            "logs",
            "logs l WHERE NOT EXISTS (SELECT 1 FROM tenants t WHERE t.id = l.tenant)
             OR (l.fork IS NULL) <> (l.fork_at IS NULL) OR EXISTS (SELECT 1 FROM (SELECT l.of AS id UNION
             SELECT l.fork) p WHERE p.id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM logs o
             WHERE o.id = p.id AND o.tenant = l.tenant))",
        ),
        ("segments", "segments g WHERE NOT EXISTS (SELECT 1 FROM tenants t WHERE t.id = g.tenant)"),
        (
            "captured turns",
            "turns u WHERE NOT EXISTS (SELECT 1 FROM logs l WHERE l.id = u.log
             AND l.tenant = u.tenant AND u.last <= l.last AND u.first <= u.last + 1)",
        ),
        (
            "keys of captured turns",
            "turn_keys k WHERE NOT EXISTS (SELECT 1 FROM turns u WHERE u.id = k.turn
             AND u.tenant = k.tenant)",
        ),
        (
            "questions",
            "pending p WHERE NOT EXISTS (SELECT 1 FROM logs l WHERE l.id = p.log
             AND l.tenant = p.tenant AND p.seq <= l.last)",
        ),
    ];
    for (what, strays) in strays {
        let count: i64 =
            db.query_row(&format!("SELECT count(*) FROM {strays}"), [], |row| row.get(0))?;
        if count > 0 {
            problems.push(format!("{count} {what} have no owner"));
        }
    }
    Ok(problems)
}
