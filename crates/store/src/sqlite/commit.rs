//! One batch: everything that could stop it is looked at first, then all of it is written.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, params};
use throughline_core::{LogId, LogKind, Name, Receipt, StoreError, Tenant, Written, kind};

use crate::backend::{Erase, SealedAppend, SealedBatch, SealedNode, SealedRecord};
use crate::chain::{GENESIS, Head, Header, Link};
use crate::manifest::Manifest;
use crate::sqlite::plan::{Plan, check_names, check_open, plan, position_of, repeated};

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

/// The chains of this writer, one for each tenant.
pub(super) struct Chains {
    pub(super) writer: Name,
    /// As they will be when the transaction is committed.
    segments: HashMap<Tenant, Segment>,
    /// When the last manifest was signed.
    signed: i64,
}

struct Segment {
    tenant: i64,
    id: i64,
    position: u64,
    link: Link,
    /// Changed in this transaction.
    touched: bool,
    /// Committed since the last manifest.
    moved: bool,
}

impl Chains {
    pub(super) fn new(writer: Name) -> Self {
        Self { writer, segments: HashMap::new(), signed: 0 }
    }

    /// Writes the batch, or says why not and has written nothing.
    pub(super) fn apply(
        &mut self,
        db: &Connection,
        batch: &SealedBatch,
        now: i64,
    ) -> Result<Receipt, Stop> {
        check_names(batch)?;
        let tenant = self.segment(db, &batch.tenant, now)?.tenant;
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
        // A thread is opened before its runs, in whichever order the batch names them.
        for runs in [false, true] {
            for (append, plan) in batch.appends.iter().zip(&mut plans) {
                if append.opening.as_ref().is_some_and(|opening| opening.of.is_some() == runs) {
                    open_log(db, tenant, append, plan, now)?;
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
            self.record(db, tenant, &append.log, plan, record, (at, last_event))?;
        }
        if let Some(to) = append.rewind_to {
            let space = if plan.rewinds.is_empty() { "" } else { " " };
            plan.rewinds = format!("{}{space}{}:{to}", plan.rewinds, plan.first);
        }
        let update = "UPDATE logs SET last = ?2, events = ?3, bytes = bytes + ?4,
                      updated = max(iif(last = ?8, 0, updated), ?5), rewinds = ?6, status = coalesce(?7, status)
                      WHERE id = ?1";
        db.prepare_cached(update)?.execute(params![
            plan.id,
            number(plan.last),
            number(plan.events),
            number(bytes),
            latest.unwrap_or(now),
            plan.rewinds,
            append.status,
            // A log that begins with old records was last written to when they were.
            append.opening.as_ref().map(|_| number(plan.first.saturating_sub(1)))
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
        (at, last_event): (i64, Option<u64>),
    ) -> Result<(), Stop> {
        let writer = self.writer.clone();
        let Some(segment) = self.segments.get_mut(tenant) else {
            return Err(StoreError::Closed.into());
        };
        segment.position += 1;
        let header = Header {
            tenant,
            log,
            nature: &plan.nature,
            seq: plan.last,
            kind: &record.kind,
            at,
            events: record.events,
            last_event,
            about: record.about,
            size: record.size,
            writer: &writer,
            position: segment.position,
        };
        segment.link = header.link(&segment.link, &record.commitment);
        segment.touched = true;
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
            number(segment.position),
            record.commitment,
            segment.link,
            blob,
            &*record.content
        ])?;
        let keep = "INSERT INTO salts VALUES (?1, ?2, ?3, ?4)";
        let id = db.last_insert_rowid();
        let salt = &record.salt;
        db.prepare_cached(keep)?.execute(params![id, segment.tenant, salt.epoch, &*salt.bytes])?;
        Ok(())
    }

    /// The tenant's segment, made where there is none.
    fn segment(
        &mut self,
        db: &Connection,
        tenant: &Tenant,
        now: i64,
    ) -> Result<&Segment, rusqlite::Error> {
        if !self.segments.contains_key(tenant) {
            let known = "SELECT id FROM tenants WHERE name = ?1";
            let known = db.prepare_cached(known)?.query_row([&tenant.0], |row| row.get(0));
            let id = match known.optional()? {
                Some(id) => id,
                None => {
                    let add = "INSERT INTO tenants (name, created) VALUES (?1, ?2)";
                    db.prepare_cached(add)?.execute(params![tenant.0, now])?;
                    db.last_insert_rowid()
                }
            };
            let known = "SELECT id, position, link FROM segments WHERE tenant = ?1 AND writer = ?2";
            let known = db.prepare_cached(known)?.query_row(params![id, self.writer], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, Link>(2)?))
            });
            let (segment, position, link) = match known.optional()? {
                Some(known) => known,
                None => {
                    let add = "INSERT INTO segments (tenant, writer, position, link)
                               VALUES (?1, ?2, 0, ?3)";
                    db.prepare_cached(add)?.execute(params![id, self.writer, GENESIS])?;
                    (db.last_insert_rowid(), 0, GENESIS)
                }
            };
            let position = u64::try_from(position).unwrap_or(0);
            let (touched, moved) = (false, position > 0);
            let segment = Segment { tenant: id, id: segment, position, link, touched, moved };
            self.segments.insert(tenant.clone(), segment);
        }
        self.segments.get(tenant).ok_or(rusqlite::Error::QueryReturnedNoRows)
    }

    /// Writes where the chains end now.
    pub(super) fn write_heads(&self, db: &Connection) -> Result<(), rusqlite::Error> {
        for segment in self.segments.values().filter(|segment| segment.touched) {
            let update = "UPDATE segments SET position = ?2, link = ?3 WHERE id = ?1";
            let row = params![segment.id, number(segment.position), segment.link];
            db.prepare_cached(update)?.execute(row)?;
        }
        Ok(())
    }

    pub(super) fn committed(&mut self) {
        for segment in self.segments.values_mut().filter(|segment| segment.touched) {
            segment.touched = false;
            segment.moved = true;
        }
    }

    /// Nothing of the transaction holds: what is known is what the database says.
    pub(super) fn forget(&mut self) {
        self.segments.clear();
    }

    pub(super) fn have_moved(&self) -> bool {
        self.segments.values().any(|segment| segment.moved)
    }

    pub(super) fn is_manifest_due(&self, now: i64) -> bool {
        now.saturating_sub(self.signed) >= 1000
    }

    /// The heads that a manifest is to sign.
    pub(super) fn moved(&self) -> Vec<Head> {
        let moved = self.segments.iter().filter(|(_, segment)| segment.moved || segment.touched);
        let mut heads: Vec<Head> = moved
            .map(|(tenant, segment)| Head {
                tenant: tenant.clone(),
                writer: self.writer.clone(),
                position: segment.position,
                link: segment.link,
            })
            .collect();
        heads.sort_by(|one, other| one.tenant.cmp(&other.tenant));
        heads
    }

    pub(super) fn signed(&mut self, now: i64) {
        self.signed = now;
        for segment in self.segments.values_mut() {
            segment.moved = false;
        }
    }
}

pub(super) fn write_manifest(db: &Connection, manifest: &Manifest) -> Result<(), rusqlite::Error> {
    let keep = "INSERT INTO manifests (body, signature) VALUES (?1, ?2)";
    db.prepare_cached(keep)?.execute(params![manifest.body, manifest.signature])?;
    Ok(())
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
        now
    ])?;
    plan.id = db.last_insert_rowid();
    Ok(())
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

/// Destroys contents: salts, sealed bytes, and blobs that nothing else refers to. What says that they were destroyed
/// stays.
fn destroy(db: &Connection, tenant: i64, erase: &Erase) -> Result<(), rusqlite::Error> {
    let log = "SELECT id FROM logs WHERE tenant = ?1 AND name = ?2";
    let log = db.prepare_cached(log)?.query_row(params![tenant, erase.log.0], |row| row.get(0));
    let Some(log) = log.optional()? else { return Ok(()) };
    let log: i64 = log;
    let find = format!(
        "SELECT id, blob FROM records WHERE tenant = ?1 AND log = ?2 AND erased IS NULL
         AND kind NOT IN ('{}', '{}') AND (?3 IS NULL OR seq = ?3)",
        kind::FORGOTTEN,
        kind::EXPIRED
    );
    let seqs: Vec<Option<i64>> = match &erase.seqs {
        None => vec![None],
        Some(seqs) => seqs.iter().map(|seq| Some(number(*seq))).collect(),
    };
    let mut rows: Vec<(i64, Option<i64>)> = Vec::new();
    for seq in seqs {
        let mut find = db.prepare_cached(&find)?;
        let found =
            find.query_map(params![tenant, log, seq], |row| Ok((row.get(0)?, row.get(1)?)))?;
        for row in found {
            rows.push(row?);
        }
    }
    for (id, _) in &rows {
        db.prepare_cached("DELETE FROM salts WHERE record = ?1")?.execute([id])?;
        let empty = "UPDATE records SET content = NULL, blob = NULL, erased = ?2 WHERE id = ?1";
        db.prepare_cached(empty)?.execute(params![id, erase.why.number()])?;
    }
    for blob in rows.iter().filter_map(|(_, blob)| *blob) {
        let unused = "DELETE FROM blobs WHERE id = ?1 AND NOT EXISTS
                      (SELECT 1 FROM records WHERE blob = ?1 AND erased IS NULL)";
        db.prepare_cached(unused)?.execute([blob])?;
    }
    if erase.seqs.is_none() {
        let mark = "UPDATE logs SET gone = ?2 WHERE id = ?1";
        db.prepare_cached(mark)?.execute(params![log, erase.why.number()])?;
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

pub(super) fn read(receipt: &str) -> Receipt {
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

/// The kind of a log that is kept as that.
pub(super) fn kind_of(number: i16) -> Result<LogKind, rusqlite::Error> {
    match number {
        1 => Ok(LogKind::Thread),
        2 => Ok(LogKind::Run),
        other => Err(rusqlite::Error::IntegralValueOutOfRange(1, other.into())),
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
