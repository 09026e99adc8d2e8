//! One batch: everything that could stop it is looked at first, then all of it is written.

use rusqlite::{Connection, OptionalExtension, params};
use throughline_core::{LogId, LogKind, Name, PendingStatus, Receipt, StoreError, Tenant, Written};

use crate::backend::{Guard, SealedAppend, SealedBatch, SealedNode, SealedRecord};
use crate::chain::Header;
use crate::sqlite::chains::Chains;
use crate::sqlite::erase::destroy;

/// The row that no tenant has.
const NOBODY: i64 = -1;

/// Why a batch was not written.
pub(super) enum Stop {
    /// It may not be, and the others may.
    Rejected(StoreError),
    /// The database failed, and nothing of the transaction holds.
    Failed(rusqlite::Error),
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        Stop::Failed(error)
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Stop::Rejected(error)
    }
}

/// A log, as it is before and then after the batch.
struct Plan {
    /// Its row; one that the batch opens has none yet.
    id: i64,
    /// The row of the log that it forks off.
    parent: Option<i64>,
    first: u64,
    last: u64,
    events: u64,
    rewinds: String,
}

impl Chains {
    /// Writes the batch, or says why not and has written nothing.
    pub(super) fn apply(
        &mut self,
        db: &Connection,
        batch: &SealedBatch,
        now: i64,
    ) -> Result<Receipt, Stop> {
        check_unique(batch)?;
        let known = self.tenant(db, &batch.tenant)?;
        // Nothing is found of a tenant that has nothing yet.
        let tenant = known.unwrap_or(NOBODY);
        if let Some(receipt) = repeated(db, tenant, batch)? {
            return Ok(receipt);
        }
        let mut plans = Vec::with_capacity(batch.appends.len());
        for append in &batch.appends {
            plans.push(plan(db, tenant, batch, append, now)?);
        }
        for id in &batch.takes {
            check_open(db, tenant, id, now)?;
        }
        for asked in &batch.asks {
            let taken = "SELECT 1 FROM pending WHERE tenant = ?1 AND id = ?2";
            if db.prepare_cached(taken)?.exists(params![tenant, asked.id])? {
                let problem =
                    format!("{} is the id of another question: choose a new one", asked.id);
                return Err(StoreError::invalid(problem).into());
            }
            position_of(batch, &asked.log)?;
        }
        for node in &batch.vault {
            let taken = "SELECT 1 FROM turns WHERE tenant = ?1 AND name = ?2";
            if db.prepare_cached(taken)?.exists(params![tenant, node.id.0])? {
                let problem = format!("{} is the name of another turn: choose a new one", node.id);
                return Err(StoreError::invalid(problem).into());
            }
            position_of(batch, &node.log)?;
        }
        // From here on nothing but the database can stop it.
        let tenant = if batch.appends.is_empty() && known.is_some() {
            tenant
        } else {
            self.segment(db, &batch.tenant, now)?.tenant
        };
        // A run's thread may be opened by the same batch, in whichever order they stand.
        for is_run in [false, true] {
            for (append, plan) in batch.appends.iter().zip(&mut plans) {
                match &append.opening {
                    Some(opening) if opening.of.is_some() == is_run => {
                        open_log(db, tenant, append, plan, now)?;
                    }
                    Some(_) | None => {}
                }
            }
        }
        for (append, plan) in batch.appends.iter().zip(&mut plans) {
            self.append(db, &batch.tenant, append, plan, now)?;
        }
        for id in &batch.takes {
            let take = "UPDATE pending SET taken = ?3 WHERE tenant = ?1 AND id = ?2";
            db.prepare_cached(take)?.execute(params![tenant, id, now])?;
        }
        for asked in &batch.asks {
            let Some(plan) = plans.get(position_of(batch, &asked.log)?) else { continue };
            let time =
                asked.expires_in.map(|time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
            let expires = time.map(|time| now.saturating_add(time));
            let ask = "INSERT INTO pending VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, NULL)";
            let row =
                params![tenant, asked.id, asked.kind, plan.id, number(plan.last), now, expires];
            db.prepare_cached(ask)?.execute(row)?;
        }
        for node in &batch.vault {
            let Some(plan) = plans.get(position_of(batch, &node.log)?) else { continue };
            capture(db, tenant, node, plan)?;
        }
        for erase in &batch.erases {
            destroy(db, tenant, erase)?;
        }
        let written = batch.appends.iter().zip(&plans).map(|(append, plan)| Written {
            log: append.log.clone(),
            first: plan.first,
            last: plan.last,
            events: plan.events,
        });
        let receipt = Receipt { written: written.collect(), repeated: false };
        for (hash, _) in &batch.once {
            let keep = "INSERT INTO once VALUES (?1, ?2, ?3)";
            db.prepare_cached(keep)?.execute(params![tenant, hash, print(&receipt)])?;
        }
        Ok(receipt)
    }

    fn append(
        &mut self,
        db: &Connection,
        tenant: &Tenant,
        append: &SealedAppend,
        plan: &mut Plan,
        now: i64,
    ) -> Result<(), Stop> {
        let mut bytes = 0;
        let mut latest = None;
        for record in &append.records {
            let at = record.at.unwrap_or(now);
            latest = latest.max(Some(at));
            plan.last += 1;
            let last_event = (record.events > 0).then(|| plan.events + u64::from(record.events));
            plan.events = last_event.unwrap_or(plan.events);
            bytes += record.size;
            self.record(db, tenant, &append.log, plan, record, (at, last_event, now))?;
        }
        if let Some(to) = append.rewind_to {
            let space = if plan.rewinds.is_empty() { "" } else { " " };
            plan.rewinds = format!("{}{space}{}:{to}", plan.rewinds, plan.first);
        }
        let update = "UPDATE logs SET last = ?2, events = ?3, bytes = bytes + ?4,
                      updated = max(updated, ?5), rewinds = ?6, status = coalesce(?7, status)
                      WHERE id = ?1";
        db.prepare_cached(update)?.execute(params![
            plan.id,
            number(plan.last),
            number(plan.events),
            number(bytes),
            latest.unwrap_or(now),
            plan.rewinds,
            append.status
        ])?;
        Ok(())
    }

    fn record(
        &mut self,
        db: &Connection,
        tenant: &Tenant,
        log: &LogId,
        plan: &Plan,
        record: &SealedRecord,
        (at, last_event, now): (i64, Option<u64>, i64),
    ) -> Result<(), Stop> {
        let writer = self.writer.clone();
        let segment = self.segment(db, tenant, now)?;
        let position = segment.next();
        let header = Header {
            tenant,
            log,
            seq: plan.last,
            kind: &record.kind,
            at,
            events: record.events,
            last_event,
            about: record.about,
            size: record.size,
            writer: &writer,
            position,
        };
        let link = segment.extend(|before| header.link(before, &record.commitment));
        let blob = match &record.blob {
            None => None,
            Some(blob) => {
                let keep = "INSERT INTO blobs (tenant, hash, content) VALUES (?1, ?2, ?3)
                            ON CONFLICT DO NOTHING";
                let row = params![segment.tenant, blob.id, &*blob.content];
                db.prepare_cached(keep)?.execute(row)?;
                let find = "SELECT id FROM blobs WHERE tenant = ?1 AND hash = ?2";
                let row = params![segment.tenant, blob.id];
                Some(db.prepare_cached(find)?.query_row(row, |row| row.get::<_, i64>(0))?)
            }
        };
        let keep =
            "INSERT INTO records (tenant, log, seq, kind, at, events, last_event, about, size,
                    segment, position, commitment, link, blob, content)
                    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";
        db.prepare_cached(keep)?.execute(params![
            segment.tenant,
            plan.id,
            number(plan.last),
            record.kind,
            at,
            record.events,
            last_event.map(number),
            record.about,
            number(record.size),
            segment.id,
            number(position),
            record.commitment,
            link,
            blob,
            &*record.content
        ])?;
        let keep = "INSERT INTO salts VALUES (?1, ?2, ?3, ?4)";
        let id = db.last_insert_rowid();
        let salt = &record.salt;
        db.prepare_cached(keep)?.execute(params![id, segment.tenant, salt.epoch, &*salt.bytes])?;
        Ok(())
    }
}

/// What a batch names must be named once, and must be new where it is to be.
fn check_unique(batch: &SealedBatch) -> Result<(), StoreError> {
    fn twice<T: Ord>(names: impl Iterator<Item = T>) -> bool {
        let mut names: Vec<T> = names.collect();
        names.sort();
        names.windows(2).any(|pair| pair.first() == pair.last())
    }
    let problem = if twice(batch.appends.iter().map(|append| &append.log)) {
        "a batch names each log once"
    } else if twice(batch.once.iter().map(|(hash, _)| hash)) {
        "a batch has each of its names once"
    } else if twice(batch.asks.iter().map(|asked| &asked.id)) {
        "a batch asks each question once"
    } else if twice(batch.vault.iter().map(|node| &node.id)) {
        "a batch captures each turn once"
    } else {
        return Ok(());
    };
    Err(StoreError::invalid(problem))
}

/// The receipt of the batch that was written under the same names.
fn repeated(db: &Connection, tenant: i64, batch: &SealedBatch) -> Result<Option<Receipt>, Stop> {
    let mut receipts = Vec::with_capacity(batch.once.len());
    for (hash, name) in &batch.once {
        let known = "SELECT receipt FROM once WHERE tenant = ?1 AND name = ?2";
        let known = db.prepare_cached(known)?.query_row(params![tenant, hash], |row| row.get(0));
        let known: Option<String> = known.optional()?;
        receipts.push((known, name));
    }
    let Some((first, _)) = receipts.first() else { return Ok(None) };
    if receipts.iter().any(|(receipt, _)| receipt != first)
        && let Some((_, used)) = receipts.iter().find(|(receipt, _)| receipt.is_some())
    {
        return Err(StoreError::MixedOnce { name: Name::clone(used) }.into());
    }
    let receipt = first.as_deref().map(|receipt| Receipt { repeated: true, ..read(receipt) });
    Ok(receipt)
}

/// What becomes of the log, if the append may be.
fn plan(
    db: &Connection,
    tenant: i64,
    batch: &SealedBatch,
    append: &SealedAppend,
    now: i64,
) -> Result<Plan, Stop> {
    check_guard(db, tenant, append, now)?;
    let mut plan = match (&append.opening, find_log(db, tenant, &append.log)?) {
        (None, None) => {
            return Err(StoreError::NotFound { what: "log", name: append.log.0.clone() }.into());
        }
        (None, Some((_, Some(_)))) if append.guard != Guard::Operator => {
            let problem = format!("{} was forgotten, and takes nothing more", append.log);
            return Err(StoreError::invalid(problem).into());
        }
        (None, Some((plan, _))) => plan,
        (Some(_), Some((plan, _))) => {
            let log = append.log.clone();
            return Err(StoreError::Conflict { log, expected: 0, found: plan.last }.into());
        }
        (Some(opening), None) => {
            if let Some(of) = &opening.of {
                let opens = |other: &SealedAppend| other.log == *of && other.opening.is_some();
                if find_log(db, tenant, of)?.is_none() && !batch.appends.iter().any(opens) {
                    let name = of.0.clone();
                    return Err(StoreError::NotFound { what: "thread", name }.into());
                }
            }
            match &opening.fork {
                None => Plan {
                    id: 0,
                    parent: None,
                    first: 0,
                    last: 0,
                    events: 0,
                    rewinds: String::new(),
                },
                Some(fork) => match find_log(db, tenant, &fork.log)? {
                    None => {
                        let name = fork.log.0.clone();
                        return Err(StoreError::NotFound { what: "thread", name }.into());
                    }
                    Some((parent, _)) if fork.at > parent.last => {
                        let (log, last) = (&fork.log, parent.last);
                        let problem = format!("{log} ends at {last}: fork it there or before");
                        return Err(StoreError::invalid(problem).into());
                    }
                    Some((parent, _)) => Plan {
                        id: 0,
                        parent: Some(parent.id),
                        first: 0,
                        last: fork.at,
                        events: 0,
                        rewinds: rewinds_until(&parent.rewinds, fork.at),
                    },
                },
            }
        }
    };
    check_expected(append, plan.last)?;
    check_rewind(append, plan.last)?;
    plan.first = plan.last + 1;
    Ok(plan)
}

/// The log's row, and whether its content is gone.
fn find_log(
    db: &Connection,
    tenant: i64,
    log: &LogId,
) -> Result<Option<(Plan, Option<i16>)>, rusqlite::Error> {
    let find = "SELECT id, last, events, coalesce(rewinds, ''), gone FROM logs
                WHERE tenant = ?1 AND name = ?2";
    let found = db.prepare_cached(find)?.query_row(params![tenant, log.0], |row| {
        let plan = Plan {
            id: row.get(0)?,
            parent: None,
            first: 0,
            last: unsigned(row.get(1)?),
            events: unsigned(row.get(2)?),
            rewinds: row.get(3)?,
        };
        Ok((plan, row.get(4)?))
    });
    found.optional()
}

/// The rewinds that a fork shares with its parent.
fn rewinds_until(rewinds: &str, at: u64) -> String {
    let holds = |rewind: &&str| {
        let place = rewind.split(':').next().and_then(|place| place.parse::<u64>().ok());
        place.is_some_and(|place| place <= at)
    };
    rewinds.split(' ').filter(holds).collect::<Vec<_>>().join(" ")
}

fn check_expected(append: &SealedAppend, found: u64) -> Result<(), StoreError> {
    match append.expect {
        Some(expected) if expected != found => {
            Err(StoreError::Conflict { log: append.log.clone(), expected, found })
        }
        Some(_) | None => Ok(()),
    }
}

fn check_rewind(append: &SealedAppend, last: u64) -> Result<(), StoreError> {
    match append.rewind_to {
        Some(to) if to > last => {
            let problem = format!("{} ends at {last}: rewind it to there or before", append.log);
            Err(StoreError::invalid(problem))
        }
        Some(_) | None => Ok(()),
    }
}

fn check_guard(db: &Connection, tenant: i64, append: &SealedAppend, now: i64) -> Result<(), Stop> {
    let lease = "SELECT owner, fence, until FROM leases WHERE tenant = ?1 AND log = ?2";
    let lease = |db: &Connection| {
        let row = params![tenant, append.log.0];
        let found = db.prepare_cached(lease)?.query_row(row, |row| {
            Ok((row.get::<_, Name>(0)?, unsigned(row.get(1)?), row.get::<_, i64>(2)?))
        });
        found.optional()
    };
    match append.guard {
        Guard::Operator => Ok(()),
        Guard::Free => match lease(db)? {
            Some((owner, _, until)) if until > now => {
                let (log, left_ms) = (append.log.clone(), unsigned(until - now));
                Err(StoreError::Held { log, owner, left_ms }.into())
            }
            Some(_) | None => Ok(()),
        },
        Guard::Behind(fence) => match lease(db)? {
            Some((_, held, until)) if held == fence.0.get() && until > now => Ok(()),
            Some(_) | None => Err(StoreError::Fenced { log: append.log.clone() }.into()),
        },
    }
}

/// Adds the log's row.
fn open_log(
    db: &Connection,
    tenant: i64,
    append: &SealedAppend,
    plan: &mut Plan,
    now: i64,
) -> Result<(), rusqlite::Error> {
    let Some(opening) = &append.opening else { return Ok(()) };
    // What is brought in from elsewhere began when its first record says.
    let began = append.records.first().and_then(|record| record.at).unwrap_or(now);
    let add = "INSERT INTO logs (tenant, name, kind, of, fork, fork_at, last, events, bytes, created,
               updated) VALUES (?1, ?2, ?3, (SELECT id FROM logs WHERE tenant = ?1 AND name = ?4), ?5,
               ?6, ?7, 0, 0, ?8, ?8)";
    db.prepare_cached(add)?.execute(params![
        tenant,
        append.log.0,
        kind_number(opening.kind),
        opening.of.as_ref().map(|of| &of.0),
        plan.parent,
        opening.fork.as_ref().map(|fork| number(fork.at)),
        number(plan.last),
        began
    ])?;
    plan.id = db.last_insert_rowid();
    Ok(())
}

fn check_open(db: &Connection, tenant: i64, id: &Name, now: i64) -> Result<(), Stop> {
    let find = "SELECT taken, expires FROM pending WHERE tenant = ?1 AND id = ?2";
    let found = db.prepare_cached(find)?.query_row(params![tenant, id], |row| {
        Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?))
    });
    let status = match found.optional()? {
        None => {
            return Err(StoreError::NotFound { what: "pending entry", name: id.clone() }.into());
        }
        Some((Some(_), _)) => PendingStatus::Taken,
        Some((None, Some(expires))) if expires <= now => PendingStatus::Expired,
        Some((None, _)) => return Ok(()),
    };
    Err(StoreError::Taken { id: id.clone(), status }.into())
}

/// Which of the batch's appends writes to the log.
fn position_of(batch: &SealedBatch, log: &LogId) -> Result<usize, StoreError> {
    let place = batch.appends.iter().position(|append| append.log == *log);
    place.ok_or_else(|| StoreError::invalid(format!("the batch adds nothing to {log}")))
}

fn capture(
    db: &Connection,
    tenant: i64,
    node: &SealedNode,
    plan: &Plan,
) -> Result<(), rusqlite::Error> {
    let add = "INSERT INTO turns (tenant, name, parent, log, first, last, prefix)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    db.prepare_cached(add)?.execute(params![
        tenant,
        node.id.0,
        node.parent.as_ref().map(|parent| &parent.0),
        plan.id,
        number(plan.first),
        number(plan.last),
        node.prefix
    ])?;
    let turn = db.last_insert_rowid();
    for key in &node.keys {
        let add = "INSERT OR IGNORE INTO turn_keys VALUES (?1, ?2, ?3, ?4)";
        db.prepare_cached(add)?.execute(params![tenant, key.kind.number(), key.hash, turn])?;
    }
    Ok(())
}

/// A receipt as it is kept: a line per log.
fn print(receipt: &Receipt) -> String {
    let line = |Written { log, first, last, events }: &Written| {
        format!("{log}\t{first}\t{last}\t{events}\n")
    };
    receipt.written.iter().map(line).collect()
}

fn read(receipt: &str) -> Receipt {
    let line = |line: &str| {
        let mut words = line.split('\t');
        Some(Written {
            log: LogId::from(words.next()?),
            first: words.next()?.parse().ok()?,
            last: words.next()?.parse().ok()?,
            events: words.next()?.parse().ok()?,
        })
    };
    Receipt { written: receipt.lines().filter_map(line).collect(), repeated: false }
}

/// As the kind of a log is kept.
pub(super) fn kind_number(kind: LogKind) -> i16 {
    match kind {
        LogKind::Thread => 1,
        LogKind::Run => 2,
    }
}

/// As SQLite keeps numbers.
pub(super) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// As we keep numbers.
pub(super) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
