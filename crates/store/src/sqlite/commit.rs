//! Applies one batch: all checks come first, then all writes.

use rusqlite::{Connection, OptionalExtension, params};
use throughline_core::{LogId, LogKind, Receipt, StoreError, Tenant, WrittenRange};
use throughline_json::Name;

use crate::chain::Header;
use crate::hex::hex;
use crate::rejection;
use crate::row::ApiKeyRow;
use crate::row_mac::{API_KEYS, Field, LOGS, ONCE, PENDING, RECORDS, RowKey, TURN_KEYS, TURNS};
use crate::sealed_batch::{
    KeyChange, SealedAppend, SealedBatch, SealedKey, SealedRecord, SealedTurn,
};
use crate::sqlite::admin::{KEY, key_row};
use crate::sqlite::chains::{ChainSegment, Chains};
use crate::sqlite::erase::{check_family_size, destroy};
use crate::sqlite::plan::{LogPlan, check_not_asked, check_open, plan, position_of, repeated};
use crate::sqlite::statements::Statements;
use crate::sqlite::tally;

/// A row id that no tenant has.
const NO_TENANT: i64 = -1;

/// The reason why a batch was not written.
pub(super) enum CommitError {
    /// The batch is rejected; others in the transaction are unaffected.
    Rejected(StoreError),
    /// The database failed, and the transaction was rolled back.
    Failed(rusqlite::Error),
}

impl From<rusqlite::Error> for CommitError {
    fn from(error: rusqlite::Error) -> Self {
        CommitError::Failed(error)
    }
}

impl From<StoreError> for CommitError {
    fn from(error: StoreError) -> Self {
        CommitError::Rejected(error)
    }
}

impl Chains {
    /// Writes the batch. On error, nothing was written.
    pub(super) fn apply(
        &mut self,
        hot: &mut Statements<'_>,
        batch: &SealedBatch,
        now: i64,
    ) -> Result<Receipt, CommitError> {
        let db = hot.db;
        let Some(key) = self.key.clone() else { return Err(rejection::no_keys().into()) };
        let known = self.tenant(db, &batch.tenant)?;
        // A tenant that does not exist yet has no rows.
        let tenant = known.unwrap_or(NO_TENANT);
        if let Some(receipt) = repeated(db, tenant, batch)? {
            return Ok(receipt);
        }
        let mut plans = Vec::with_capacity(batch.appends.len());
        for append in &batch.appends {
            plans.push(plan(hot, &mut self.known, tenant, batch, append, now)?);
        }
        for id in &batch.takes {
            check_open(db, tenant, id, now)?;
        }
        for asked in &batch.asks {
            check_not_asked(db, tenant, &asked.id)?;
            position_of(batch, &asked.log)?;
        }
        for node in &batch.vault {
            if hot.find_turn.exists(params![tenant, node.id.0])? {
                return Err(rejection::turn_exists(&node.id).into());
            }
            position_of(batch, &node.log)?;
        }
        for erase in &batch.erases {
            check_family_size(db, tenant, erase)?;
        }
        for change in &batch.keys {
            check_key(db, tenant, change)?;
        }
        // From here on, only a database error can stop the batch.
        let tenant = self.segment(db, &key, &batch.tenant, now)?.tenant;
        // The batch may open a run before its Thread, so Threads are opened first.
        for is_run in [false, true] {
            for (append, plan) in batch.appends.iter().zip(&mut plans) {
                match &append.opening {
                    Some(opening) if opening.of.is_some() == is_run => {
                        open_log(hot, tenant, append, plan, now)?;
                    }
                    Some(_) | None => {}
                }
            }
        }
        for (append, plan) in batch.appends.iter().zip(&mut plans) {
            self.append(hot, &key, &batch.tenant, append, plan, now)?;
            self.known.wrote(tenant, &append.log, plan);
        }
        let segment = self.segment(db, &key, &batch.tenant, now)?;
        for id in &batch.takes {
            resolve_pending(db, &key, segment, id, now)?;
        }
        for asked in &batch.asks {
            let Some(plan) = plans.get(position_of(batch, &asked.log)?) else { continue };
            let time =
                asked.expires_in.map(|time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
            let expires = time.map(|time| now.saturating_add(time));
            let ask = "INSERT INTO pending VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, NULL)";
            let last = number(plan.last);
            let row = params![tenant, asked.id, asked.kind, plan.id, last, now, expires];
            db.prepare_cached(ask)?.execute(row)?;
            let pending = PendingRow {
                id: &asked.id,
                kind: &asked.kind,
                log: plan.id,
                seq: last,
                opened: now,
                expires,
            };
            segment.add_row(&key, &PENDING, &pending.fields(tenant, None));
        }
        for node in &batch.vault {
            let Some(plan) = plans.get(position_of(batch, &node.log)?) else { continue };
            capture(hot, &key, segment, node, plan)?;
        }
        for change in &batch.keys {
            change_key(db, &key, segment, change, now)?;
        }
        for erase in &batch.erases {
            destroy(db, &key, segment, erase)?;
            if let Some((name, value)) = &erase.note {
                tally::set_value(db, Some(&key), name, Some(value))?;
            }
        }
        let written = batch.appends.iter().zip(&plans).map(|(append, plan)| WrittenRange {
            log: append.log.clone(),
            first: plan.first,
            last: plan.last,
            events: plan.events,
        });
        let receipt = Receipt { written: written.collect(), repeated: false };
        // The receipt begins with the first name, so that no two batches have the same receipt.
        let name = batch.once.first().map(|(hash, _)| hex(hash)).unwrap_or_default();
        for (hash, _) in &batch.once {
            let keep = "INSERT INTO once VALUES (?1, ?2, ?3)";
            let kept = format!("{name}\n{}", print(&receipt));
            db.prepare_cached(keep)?.execute(params![tenant, hash, kept])?;
            let row = [tenant.into(), hash.as_slice().into(), kept.as_str().into()];
            segment.add_row(&key, &ONCE, &row);
        }
        if !batch.erases.is_empty() {
            self.known.clear();
        }
        Ok(receipt)
    }

    fn append(
        &mut self,
        hot: &mut Statements<'_>,
        key: &RowKey,
        tenant: &Tenant,
        append: &SealedAppend,
        plan: &mut LogPlan,
        now: i64,
    ) -> Result<(), CommitError> {
        let writer = self.writer.clone();
        let segment = self.segment(hot.db, key, tenant, now)?;
        let mut bytes = 0;
        let mut latest = None;
        for record in &append.records {
            let at = record.at.unwrap_or(now);
            latest = latest.max(Some(at));
            plan.last += 1;
            let last_event = (record.events > 0).then(|| plan.events + u64::from(record.events));
            plan.events = last_event.unwrap_or(plan.events);
            bytes += record.size;
            let header = Header {
                tenant,
                log: &append.log,
                nature: &plan.nature,
                seq: plan.last,
                kind: &record.kind,
                at,
                events: record.events,
                last_event,
                about: record.about,
                size: record.size,
                writer: &writer,
                position: segment.next(),
            };
            add_record(hot, key, segment, plan.id, &header, record)?;
        }
        if let Some(to) = append.rewind_to {
            let space = if plan.rewinds.is_empty() { "" } else { " " };
            plan.rewinds = format!("{}{space}{}:{to}", plan.rewinds, plan.first);
        }
        hot.update_log.execute(params![
            plan.id,
            number(plan.last),
            number(plan.events),
            number(bytes),
            latest.unwrap_or(now),
            plan.rewinds,
            append.status,
            // The update time of a log that begins with old records is the time of those records.
            append.opening.as_ref().map(|_| number(plan.first.saturating_sub(1)))
        ])?;
        let is_new = append.opening.is_some();
        if is_new || append.status.is_some() {
            if !is_new {
                segment.remove_row(key, &LOGS, &plan.row(segment.tenant, &append.log));
            }
            plan.status = append.status.clone().or(plan.status.take());
            segment.add_row(key, &LOGS, &plan.row(segment.tenant, &append.log));
        }
        Ok(())
    }
}

/// Inserts the record's row and adds it to the chain.
fn add_record(
    hot: &mut Statements<'_>,
    key: &RowKey,
    segment: &mut ChainSegment,
    log: i64,
    header: &Header<'_>,
    record: &SealedRecord,
) -> Result<(), rusqlite::Error> {
    let db = hot.db;
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
    hot.add_record.execute(params![
        segment.tenant,
        log,
        number(header.seq),
        header.kind,
        header.at,
        header.events,
        header.last_event.map(number),
        header.about,
        number(header.size),
        segment.id,
        number(header.position),
        record.commitment,
        link,
        blob,
        &*record.content
    ])?;
    let (id, salt) = (db.last_insert_rowid(), &record.salt);
    hot.add_salt.execute(params![id, segment.tenant, salt.epoch, &*salt.bytes])?;
    let row = [id, segment.tenant, log, number(header.seq), segment.id, number(header.position)];
    segment.add_row(key, &RECORDS, &row.map(Field::Number));
    Ok(())
}

/// Resolves a pending request.
fn resolve_pending(
    db: &Connection,
    key: &RowKey,
    segment: &mut ChainSegment,
    id: &Name,
    now: i64,
) -> Result<(), rusqlite::Error> {
    let take = "UPDATE pending SET taken = ?3 WHERE tenant = ?1 AND id = ?2
                RETURNING kind, log, seq, opened, expires";
    let mut take = db.prepare_cached(take)?;
    let mut rows = take.query(params![segment.tenant, id, now])?;
    while let Some(row) = rows.next()? {
        let kind: Name = row.get(0)?;
        let (log, seq, opened) = (row.get(1)?, row.get(2)?, row.get(3)?);
        let pending = PendingRow { id, kind: &kind, log, seq, opened, expires: row.get(4)? };
        segment.remove_row(key, &PENDING, &pending.fields(segment.tenant, None));
        segment.add_row(key, &PENDING, &pending.fields(segment.tenant, Some(now)));
    }
    Ok(())
}

/// A pending request with the fields that its MAC covers.
struct PendingRow<'r> {
    id: &'r Name,
    kind: &'r Name,
    log: i64,
    seq: i64,
    opened: i64,
    expires: Option<i64>,
}

impl PendingRow<'_> {
    fn fields(&self, tenant: i64, taken: Option<i64>) -> [Field<'_>; 8] {
        [
            tenant.into(),
            (&**self.id).into(),
            (&**self.kind).into(),
            self.log.into(),
            self.seq.into(),
            self.opened.into(),
            self.expires.into(),
            taken.into(),
        ]
    }
}

/// Checks that an API key can be added or revoked.
fn check_key(db: &Connection, tenant: i64, change: &KeyChange) -> Result<(), CommitError> {
    let find = "SELECT revoked IS NULL FROM api_keys WHERE tenant = ?1 AND id = ?2";
    let find = |id: &Name| {
        let found = db.prepare_cached(find)?.query_row(params![tenant, id], |row| row.get(0));
        found.optional()
    };
    match change {
        KeyChange::Add(row) if find(&row.id)?.is_none() => Ok(()),
        KeyChange::Add(row) => Err(rejection::key_exists(&row.id).into()),
        KeyChange::Revoke { id, .. } if find(id)? == Some(true) => Ok(()),
        KeyChange::Revoke { id, .. } => Err(rejection::no_key(id).into()),
    }
}

/// Adds or revokes an API key.
fn change_key(
    db: &Connection,
    key: &RowKey,
    segment: &mut ChainSegment,
    change: &KeyChange,
    now: i64,
) -> Result<(), rusqlite::Error> {
    let tenant = segment.tenant;
    match change {
        KeyChange::Add(row) => {
            let add =
                "INSERT INTO api_keys (tenant, id, label, limits, hash, created, revoked, mac)
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
            db.prepare_cached(add)?.execute(params![
                tenant,
                row.id,
                row.label,
                row.limits,
                row.hash,
                now,
                row.revoked,
                row.mac
            ])?;
            segment.add_row(key, &API_KEYS, &row.fields(tenant));
        }
        KeyChange::Revoke { id, at, mac } => {
            let find = format!("{KEY} WHERE k.tenant = ?1 AND k.id = ?2");
            let row = db.prepare_cached(&find)?.query_row(params![tenant, id], key_row)?;
            let revoke = "UPDATE api_keys SET revoked = ?3, mac = ?4 WHERE tenant = ?1 AND id = ?2";
            db.prepare_cached(revoke)?.execute(params![tenant, id, at, mac])?;
            segment.remove_row(key, &API_KEYS, &row.fields(tenant));
            let row = ApiKeyRow { revoked: Some(*at), mac: Some(*mac), ..row };
            segment.add_row(key, &API_KEYS, &row.fields(tenant));
        }
    }
    Ok(())
}

/// Inserts the log's row.
fn open_log(
    hot: &mut Statements<'_>,
    tenant: i64,
    append: &SealedAppend,
    plan: &mut LogPlan,
    now: i64,
) -> Result<(), rusqlite::Error> {
    let Some(opening) = &append.opening else { return Ok(()) };
    // An imported log began at the time of its first record.
    let began = append.records.first().and_then(|record| record.at).unwrap_or(now);
    let row = params![
        tenant,
        append.log.0,
        kind_number(opening.kind),
        opening.of.as_ref().map(|of| &of.0),
        plan.parent,
        opening.fork.as_ref().map(|fork| number(fork.at)),
        number(plan.last),
        began
    ];
    (plan.id, plan.of) = hot.add_log.query_row(row, |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(())
}

fn capture(
    hot: &mut Statements<'_>,
    key: &RowKey,
    segment: &mut ChainSegment,
    node: &SealedTurn,
    plan: &LogPlan,
) -> Result<(), rusqlite::Error> {
    let tenant = segment.tenant;
    hot.add_turn.execute(params![
        tenant,
        node.id.0,
        node.parent.as_ref().map(|parent| &parent.0),
        plan.id,
        number(plan.first),
        number(plan.last),
        node.prefix
    ])?;
    let turn = hot.db.last_insert_rowid();
    let row = [
        turn.into(),
        tenant.into(),
        (&*node.id.0).into(),
        node.parent.as_ref().map(|parent| &*parent.0).into(),
        plan.id.into(),
        number(plan.first).into(),
        number(plan.last).into(),
        node.prefix.as_ref().map(<[u8; 32]>::as_slice).into(),
    ];
    segment.add_row(key, &TURNS, &row);
    for SealedKey { kind, hash } in &node.keys {
        // A turn may have the same key twice.
        if hot.add_key.execute(params![tenant, kind.number(), hash, turn])? > 0 {
            let kind = i64::from(kind.number());
            let row = [tenant.into(), kind.into(), hash.as_slice().into(), turn.into()];
            segment.add_row(key, &TURN_KEYS, &row);
        }
    }
    Ok(())
}

/// Returns the stored form of a receipt, without its name: one line per log.
fn print(receipt: &Receipt) -> String {
    let line = |WrittenRange { log, first, last, events }: &WrittenRange| {
        format!("{log}\t{first}\t{last}\t{events}\n")
    };
    receipt.written.iter().map(line).collect()
}

pub(super) fn read(receipt: &str) -> Receipt {
    let line = |line: &str| {
        let mut words = line.split('\t');
        Some(WrittenRange {
            log: LogId::from(words.next()?),
            first: words.next()?.parse().ok()?,
            last: words.next()?.parse().ok()?,
            events: words.next()?.parse().ok()?,
        })
    };
    Receipt { written: receipt.lines().filter_map(line).collect(), repeated: false }
}

/// Returns the stored number of a log kind.
pub(super) fn kind_number(kind: LogKind) -> i16 {
    match kind {
        LogKind::Thread => 1,
        LogKind::Run => 2,
    }
}

/// Parses the stored number of a log kind.
pub(super) fn kind_of(number: i16) -> Result<LogKind, rusqlite::Error> {
    match number {
        1 => Ok(LogKind::Thread),
        2 => Ok(LogKind::Run),
        other => Err(rusqlite::Error::IntegralValueOutOfRange(1, other.into())),
    }
}

/// Converts a number to SQLite's integer type.
pub(super) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Converts a number from SQLite's integer type.
pub(super) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
