//! Checks whether a batch may be written, and computes the new state of each log, without writing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};
use throughline_core::{ErasureEpoch, LogId, LogKind, PendingStatus, Receipt, StoreError};
use throughline_json::Name;

use crate::chain::nature;
use crate::rejection::{self, Result};
use crate::row::{fork_of, parse_written};
use crate::row_mac::{Field, fields};
use crate::sealed_batch::{Guard, SealedAppend, SealedBatch};
use crate::sql::{SqlRow, decode, kind_number};
use crate::sqlite::commit::{CommitError, number, unsigned};
use crate::sqlite::driver::{is_lease_active, name_of};
use crate::sqlite::statements::{Statements, query_first};
use crate::sqlite::values::{own_error, sql_row};

/// A log's state before and after the batch.
#[derive(Clone, Default)]
pub(super) struct LogPlan {
    /// The log's row id; 0 until the batch opens the log.
    pub(super) id: i64,
    /// For a fork, the row id of its parent. `fork_at` is the sequence number of the fork point.
    pub(super) parent: Option<i64>,
    pub(super) fork_at: Option<u64>,
    /// For a run, the row id of its Thread.
    pub(super) of: Option<i64>,
    pub(super) status: Option<Name>,
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) events: u64,
    pub(super) rewinds: String,
    /// The log's kind and lineage, which are hashed into the chain link of every record.
    pub(super) nature: Arc<str>,
    is_thread: bool,
    /// The reason why the log's content was destroyed; `None` if it was not destroyed.
    gone: Option<i16>,
    lease: Option<LeaseRow>,
}

impl LogPlan {
    /// Returns the fields of the log's row that its MAC covers.
    pub(super) fn row<'r>(&'r self, tenant: i64, log: &'r LogId) -> [Field<'r>; 9] {
        let kind = kind_number(if self.is_thread { LogKind::Thread } else { LogKind::Run });
        let (fork_at, status) = (self.fork_at.map(number), self.status.as_deref());
        fields![self.id, tenant, &*log.0, kind, self.of, self.parent, fork_at, status, self.gone]
    }
}

/// A log's lease: the owner column, the fence, and the end in milliseconds since 1970.
type LeaseRow = (Name, u64, i64);

/// Returns the receipt of the earlier batch with the same idempotency names, if there was one.
pub(super) fn repeated(
    db: &Connection,
    tenant: i64,
    batch: &SealedBatch,
) -> Result<Option<Receipt>, CommitError> {
    let mut receipts = Vec::with_capacity(batch.once.len());
    for (hash, name) in &batch.once {
        let find = "SELECT receipt FROM once WHERE tenant = ?1 AND name = ?2";
        let receipt: Option<String> =
            query_first(db, find, params![tenant, hash], |row| row.get(0))?;
        receipts.push((receipt, name));
    }
    let Some((first, _)) = receipts.first() else { return Ok(None) };
    if receipts.iter().any(|(receipt, _)| receipt != first)
        && let Some((_, used)) = receipts.iter().find(|(receipt, _)| receipt.is_some())
    {
        return Err(StoreError::MixedOnce { name: Name::clone(used) }.into());
    }
    // The first line is the batch's idempotency name, which `parse_written` rejects.
    Ok(first.as_ref().map(|receipt| {
        let written = receipt.lines().filter_map(parse_written).collect();
        Receipt { written, repeated: true }
    }))
}

/// Computes the log's state after the append. Fails if the append must be rejected.
pub(super) fn plan(
    hot: &mut Statements<'_>,
    known: &mut LogCache,
    tenant: i64,
    batch: &SealedBatch,
    append: &SealedAppend,
    now: i64,
) -> Result<LogPlan, CommitError> {
    let found = known.log(hot, tenant, &append.log)?.cloned();
    let lease = match &found {
        Some(log) => log.lease.clone(),
        None => find_lease(hot, tenant, &append.log)?,
    };
    check_guard(append, lease.as_ref(), now)?;
    let mut plan = match (&append.opening, found) {
        (None, None) => return Err(rejection::no_log(&append.log).into()),
        (None, Some(log)) if log.gone.is_some() && append.guard != Guard::Operator => {
            return Err(rejection::log_erased(&append.log).into());
        }
        (None, Some(log)) => log,
        (Some(_), Some(found)) => {
            let log = append.log.clone();
            return Err(StoreError::Conflict { log, expected: 0, found: found.last }.into());
        }
        (Some(opening), None) => {
            let nature = nature(opening.kind, opening.of.as_ref(), opening.fork.as_ref()).into();
            if let Some(of) = &opening.of {
                let opens = |other: &SealedAppend| {
                    let kind = other.opening.as_ref().map(|opening| opening.kind);
                    other.log == *of && kind == Some(LogKind::Thread)
                };
                match known.log(hot, tenant, of)? {
                    Some(thread) => check_parent(thread, of, append)?,
                    None if !batch.appends.iter().any(opens) => {
                        return Err(rejection::no_thread(of).into());
                    }
                    None => {}
                }
            }
            let is_thread = opening.kind == LogKind::Thread;
            let new = LogPlan { nature, is_thread, lease, ..LogPlan::default() };
            match &opening.fork {
                None => new,
                Some(fork) => {
                    let parent = known.log(hot, tenant, &fork.log)?;
                    let parent = parent.ok_or_else(|| rejection::no_thread(&fork.log))?;
                    check_parent(parent, &fork.log, append)?;
                    if fork.at > parent.last {
                        return Err(rejection::fork_beyond(&fork.log, parent.last).into());
                    }
                    LogPlan {
                        parent: Some(parent.id),
                        fork_at: Some(fork.at),
                        last: fork.at,
                        rewinds: rewinds_until(&parent.rewinds, fork.at),
                        ..new
                    }
                }
            }
        }
    };
    let (log, found) = (&append.log, plan.last);
    if let Some(expected) = append.expect.filter(|expected| *expected != found) {
        return Err(StoreError::Conflict { log: log.clone(), expected, found }.into());
    }
    if append.rewind_to.is_some_and(|to| to > found) {
        return Err(rejection::rewind_beyond(log, found).into());
    }
    plan.first = plan.last + 1;
    Ok(plan)
}

const MAX_CACHED_LOGS: usize = 4096;

/// Cached state of recently written logs, valid until another process writes to the file.
#[derive(Default)]
pub(super) struct LogCache {
    logs: HashMap<(i64, LogId), LogPlan>,
    /// The erasure epochs of tenants, by their row ids.
    eras: HashMap<i64, ErasureEpoch>,
    /// The id of the last row in `records`.
    pub(super) last_record: Option<i64>,
    /// SQLite's data version of the file, which changes when another connection writes.
    version: i64,
}

impl LogCache {
    /// Clears the cache if it is too large or another process has written to the file since the
    /// last transaction. Call this at the start of each transaction.
    pub(super) fn begin(&mut self, hot: &mut Statements<'_>) -> rusqlite::Result<()> {
        let version = hot.version()?;
        if version != self.version || self.logs.len() > MAX_CACHED_LOGS {
            self.clear();
            self.version = version;
        }
        Ok(())
    }

    pub(super) fn clear(&mut self) {
        self.logs.clear();
        self.eras.clear();
        self.last_record = None;
    }

    /// Returns the erasure epoch of an existing tenant.
    pub(super) fn era(
        &mut self,
        hot: &mut Statements<'_>,
        tenant: i64,
    ) -> rusqlite::Result<ErasureEpoch> {
        if let Some(era) = self.eras.get(&tenant) {
            return Ok(*era);
        }
        let era = hot.find_era.query_row([tenant], |row| row.get(0))?;
        let era = ErasureEpoch(unsigned(era));
        self.eras.insert(tenant, era);
        Ok(era)
    }

    /// Caches the log's state after a write.
    pub(super) fn wrote(&mut self, tenant: i64, log: &LogId, plan: &LogPlan) {
        self.logs.insert((tenant, log.clone()), plan.clone());
    }

    fn log(
        &mut self,
        hot: &mut Statements<'_>,
        tenant: i64,
        log: &LogId,
    ) -> rusqlite::Result<Option<&LogPlan>> {
        match self.logs.entry((tenant, log.clone())) {
            Entry::Occupied(known) => Ok(Some(known.into_mut())),
            Entry::Vacant(entry) => {
                let found = find_log(hot, tenant, log)?;
                Ok(found.map(|found| &*entry.insert(found)))
            }
        }
    }
}

fn find_log(
    hot: &mut Statements<'_>,
    tenant: i64,
    log: &LogId,
) -> rusqlite::Result<Option<LogPlan>> {
    let found = hot.find_log.query_row(params![tenant, log.0], sql_row).optional()?;
    let Some(found) = found else { return Ok(None) };
    let found = decode_log(&found).map_err(own_error)?;
    Ok(Some(LogPlan { lease: find_lease(hot, tenant, log)?, ..found }))
}

fn decode_log(row: &SqlRow) -> Result<LogPlan> {
    let (kind, of, fork_at): (_, Option<LogId>, _) = (row.get(9)?, row.get(10)?, row.get(2)?);
    let fork = fork_of(row.get(11)?, fork_at);
    let nature = nature(kind, of.as_ref(), fork.as_ref()).into();
    Ok(decode!(row, 0, LogPlan { id, parent, fork_at, of, status, last, events, rewinds, gone } {
        nature, is_thread: kind == LogKind::Thread, ..LogPlan::default()
    }))
}

fn find_lease(
    hot: &mut Statements<'_>,
    tenant: i64,
    log: &LogId,
) -> rusqlite::Result<Option<LeaseRow>> {
    let found = hot.find_lease.query_row(params![tenant, log.0], |row| {
        Ok((row.get::<_, Name>(0)?, unsigned(row.get(1)?), row.get::<_, i64>(2)?))
    });
    found.optional()
}

/// Returns the parent's rewinds up to the fork point `at`. A fork inherits these rewinds.
fn rewinds_until(rewinds: &str, at: u64) -> String {
    let holds = |rewind: &&str| {
        let position = rewind.split(':').next().and_then(|position| position.parse::<u64>().ok());
        position.is_some_and(|position| position <= at)
    };
    rewinds.split(' ').filter(holds).collect::<Vec<_>>().join(" ")
}

/// Checks that a log can have runs and forks: it must be a Thread that was not forgotten.
fn check_parent(parent: &LogPlan, log: &LogId, append: &SealedAppend) -> Result<()> {
    if !parent.is_thread {
        return Err(rejection::no_thread(log));
    }
    if parent.gone.is_some() && append.guard != Guard::Operator {
        return Err(rejection::parent_erased(log));
    }
    Ok(())
}

fn check_guard(append: &SealedAppend, lease: Option<&LeaseRow>, now: i64) -> Result<()> {
    match (append.guard, lease) {
        (Guard::Free, Some((owner, _, until))) if is_lease_active(owner, *until, now) => {
            let (log, left_ms) = (append.log.clone(), unsigned(until - now));
            Err(StoreError::Held { log, owner: name_of(owner).into(), left_ms })
        }
        (Guard::Operator | Guard::Free, _) => Ok(()),
        (Guard::Behind(fence), Some((_, held, until)))
            if *held == fence.0.get() && *until > now =>
        {
            Ok(())
        }
        (Guard::Behind(_), _) => Err(StoreError::Fenced { log: append.log.clone() }),
    }
}

/// Rejects a pending request whose id was used before.
pub(super) fn check_new_request(
    db: &Connection,
    tenant: i64,
    id: &Name,
) -> Result<(), CommitError> {
    let taken = "SELECT 1 FROM pending WHERE tenant = ?1 AND id = ?2";
    if db.prepare_cached(taken)?.exists(params![tenant, id])? {
        return Err(rejection::pending_exists(id).into());
    }
    Ok(())
}

pub(super) fn check_open(
    db: &Connection,
    tenant: i64,
    id: &Name,
    now: i64,
) -> Result<(), CommitError> {
    let find = "SELECT taken, expires FROM pending WHERE tenant = ?1 AND id = ?2";
    let found = query_first(db, find, params![tenant, id], |row| {
        Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?))
    })?;
    let status = match found {
        None => return Err(rejection::not_pending(id).into()),
        Some((Some(_), _)) => PendingStatus::Taken,
        Some((None, Some(expires))) if expires <= now => PendingStatus::Expired,
        Some((None, _)) => return Ok(()),
    };
    Err(StoreError::Taken { id: id.clone(), status }.into())
}

/// Returns the index in `batch.appends` of the append to this log.
pub(super) fn position_of(batch: &SealedBatch, log: &LogId) -> Result<usize> {
    let index = batch.appends.iter().position(|append| append.log == *log);
    index.ok_or_else(|| rejection::no_append(log))
}
