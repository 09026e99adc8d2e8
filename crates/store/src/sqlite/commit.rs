//! Applies one batch. All checks run before the first write.

use rusqlite::{Connection, OptionalExtension as _, params};
use throughline_core::{
    ErasureEpoch, LogId, LogOpening, Receipt, StoreError, Tenant, VaultTurn, WrittenRange,
};
use throughline_json::Name;

use crate::chain::{Header, Link};
use crate::hex::hex;
use crate::pack::{self, PACK, PackedRecord, packable};
use crate::rejection;
use crate::row::{ApiKeyRow, Salt};
use crate::row_mac::{
    API_KEYS, Field, IndexTable, LOGS, ONCE, PENDING, RECORDS, RowKey, TURN_KEYS, TURNS, fields,
};
use crate::sealed_batch::{KeyChange, SealedAppend, SealedBatch, SealedRecord, SealedTurn};
use crate::sql::kind_number;
use crate::sqlite::chains::{ChainSegment, Chains};
use crate::sqlite::driver::expiry;
use crate::sqlite::erase::{check_family_size, destroy};
use crate::sqlite::plan::{LogPlan, check_new_request, check_open, plan, position_of, repeated};
use crate::sqlite::statements::{Statements, query_first};
use crate::sqlite::tally;
use crate::sqlite::turn_index::RecentTurn;
use crate::sqlite::values::sql_row;
use crate::turn_keys;

/// A row id that no tenant has.
const NO_TENANT: i64 = -1;

/// The reason why a batch was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommitError {
    /// The batch was rejected; other batches in the transaction are unaffected.
    #[error(transparent)]
    Rejected(#[from] StoreError),
    /// The database failed, and the transaction was rolled back.
    #[error(transparent)]
    Failed(#[from] rusqlite::Error),
}

impl Chains {
    /// Checks and writes the batch. If the batch is rejected, nothing is written.
    pub(super) fn apply(
        &mut self,
        hot: &mut Statements<'_>,
        batch: &SealedBatch,
        now: i64,
    ) -> Result<Receipt, CommitError> {
        let db = hot.db;
        let Some(key) = self.key.clone() else { return Err(rejection::no_keys().into()) };
        let known = self.tenant(db, &batch.tenant)?;
        // A tenant that does not exist yet has no rows, so any unused id works.
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
        for request in &batch.asks {
            check_new_request(db, tenant, &request.id)?;
            position_of(batch, &request.log)?;
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
        let writer = self.writer.clone();
        let tenant = self.segment(db, &key, &batch.tenant, now)?.tenant;
        let era = match (batch.vault.is_empty(), batch.erases.is_empty()) {
            (false, true) => Some(self.known.era(hot, tenant)?),
            (_, _) => None,
        };
        let mut captured = std::mem::take(&mut self.captured);
        let mut last_record = self.known.last_record.take();
        let segment = self.segment(db, &key, &batch.tenant, now)?;
        let batch_writer = BatchWriter {
            hot,
            key,
            writer,
            segment,
            now,
            era,
            captured: &mut captured,
            last_record: &mut last_record,
        };
        let receipt = batch_writer.write(batch, &mut plans);
        self.captured = captured;
        self.known.last_record = last_record;
        let receipt = receipt?;
        if batch.erases.is_empty() {
            for (append, plan) in batch.appends.iter().zip(&plans) {
                self.known.wrote(tenant, &append.log, plan);
            }
        } else {
            self.known.clear();
        }
        Ok(receipt)
    }
}

/// Writes the rows of a batch that passed all checks.
struct BatchWriter<'b, 'db> {
    hot: &'b mut Statements<'db>,
    key: RowKey,
    writer: Name,
    segment: &'b mut ChainSegment,
    now: i64,
    /// The tenant's erasure epoch, if the batch captures turns.
    era: Option<ErasureEpoch>,
    captured: &'b mut Vec<RecentTurn>,
    /// The id of the last row in `records`; `None` if it must be read.
    last_record: &'b mut Option<i64>,
}

impl BatchWriter<'_, '_> {
    fn write(mut self, batch: &SealedBatch, plans: &mut [LogPlan]) -> Result<Receipt, CommitError> {
        let (db, tenant) = (self.hot.db, self.segment.tenant);
        // The batch may list a run before its Thread, so open Threads first.
        for is_run in [false, true] {
            for (append, plan) in batch.appends.iter().zip(&mut *plans) {
                match &append.opening {
                    Some(opening) if opening.of.is_some() == is_run => {
                        self.open_log(append, opening, plan)?;
                    }
                    Some(_) | None => {}
                }
            }
        }
        for (append, plan) in batch.appends.iter().zip(&mut *plans) {
            let is_turn = batch.vault.iter().any(|node| node.log == append.log);
            self.append(&batch.tenant, append, plan, is_turn)?;
        }
        for id in &batch.takes {
            self.resolve_pending(id)?;
        }
        for request in &batch.asks {
            let Some(plan) = plans.get(position_of(batch, &request.log)?) else { continue };
            let (id, kind, last) = (&*request.id, &*request.kind, number(plan.last));
            let (log, now, taken) = (plan.id, self.now, None::<i64>);
            let expires = request.expires_in.map(|time| expiry(now, time));
            let ask = "INSERT INTO pending VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
            let row = params![tenant, id, kind, log, last, now, expires, taken];
            db.prepare_cached(ask)?.execute(row)?;
            self.add_row(&PENDING, &fields![tenant, id, kind, log, last, now, expires, taken]);
        }
        for node in &batch.vault {
            let Some(plan) = plans.get(position_of(batch, &node.log)?) else { continue };
            self.capture(node, plan)?;
        }
        for change in &batch.keys {
            self.change_key(change)?;
        }
        for erase in &batch.erases {
            destroy(db, &self.key, self.segment, erase)?;
            if let Some((name, value)) = &erase.note {
                tally::set_value(db, Some(&self.key), name, Some(value))?;
            }
        }
        let written = batch.appends.iter().zip(plans).map(|(append, plan)| {
            let LogPlan { first, last, events, .. } = *plan;
            WrittenRange { log: append.log.clone(), first, last, events }
        });
        let receipt = Receipt { written: written.collect(), repeated: false };
        // The receipt begins with the batch's first idempotency name, so that no two batches have
        // equal receipts.
        let name = batch.once.first().map(|(hash, _)| hex(hash)).unwrap_or_default();
        for (hash, _) in &batch.once {
            let keep = "INSERT INTO once VALUES (?1, ?2, ?3)";
            let kept = format!("{name}\n{}", print(&receipt));
            db.prepare_cached(keep)?.execute(params![tenant, hash, kept])?;
            self.add_row(&ONCE, &fields![tenant, hash.as_slice(), &*kept]);
        }
        Ok(receipt)
    }

    /// Adds a new index row's MAC to the sums.
    fn add_row(&mut self, table: &IndexTable, fields: &[Field<'_>]) {
        self.segment.sums().add(table, self.key.row(table, fields));
    }

    /// Inserts the row of a new log, with the values that it has after the append.
    fn open_log(
        &mut self,
        append: &SealedAppend,
        opening: &LogOpening,
        plan: &mut LogPlan,
    ) -> rusqlite::Result<()> {
        let (tenant, log, kind) = (self.segment.tenant, &append.log.0, kind_number(opening.kind));
        let find = |of: &LogId| {
            let found = self.hot.find_log_id.query_row(params![tenant, of.0], |row| row.get(0));
            found.optional()
        };
        plan.of = opening.of.as_ref().map(find).transpose()?.flatten();
        let fork_at = plan.fork_at.map(number);
        // The creation time of an imported log is the time of its first record.
        let created = append.records.first().and_then(|record| record.at).unwrap_or(self.now);
        let times = append.records.iter().map(|record| record.at.unwrap_or(self.now));
        let updated = times.max().unwrap_or(self.now);
        let last = number(plan.last.saturating_add(append.records.len() as u64));
        let events: u64 = append.records.iter().map(|record| u64::from(record.events)).sum();
        let events = number(plan.events.saturating_add(events));
        let bytes = number(append.records.iter().map(|record| record.size).sum());
        let (rewinds, status) = (rewinds_after(append, plan), &append.status);
        let row = params![
            tenant,
            log,
            kind,
            plan.of,
            plan.parent,
            fork_at,
            last,
            events,
            bytes,
            created,
            updated,
            rewinds,
            status
        ];
        self.hot.add_log.execute(row)?;
        plan.id = self.hot.db.last_insert_rowid();
        Ok(())
    }

    /// Writes the records of an append. The records of a captured turn are packed.
    fn append(
        &mut self,
        tenant: &Tenant,
        append: &SealedAppend,
        plan: &mut LogPlan,
        is_turn: bool,
    ) -> rusqlite::Result<()> {
        let (mut bytes, mut latest) = (0, None);
        let mut records = append.records.as_slice();
        while let Some(first) = records.first() {
            let count = if is_turn { packable(records) } else { 0 };
            let (written, rest) = records.split_at(count.max(1));
            records = rest;
            bytes += written.iter().map(|record| record.size).sum::<u64>();
            latest = latest.max(written.iter().map(|record| record.at.unwrap_or(self.now)).max());
            if count > 1 {
                self.add_pack(tenant, append, plan, written)?;
            } else {
                self.add_record(tenant, append, plan, first)?;
            }
        }
        plan.rewinds = rewinds_after(append, plan);
        let (tenant, is_new) = (self.segment.tenant, append.opening.is_some());
        // The row of a new log already has these values.
        if !is_new {
            let LogPlan { id, rewinds, .. } = &*plan;
            let [last, events, bytes] = [plan.last, plan.events, bytes].map(number);
            let (updated, status) = (latest.unwrap_or(self.now), &append.status);
            if status.is_none() && append.rewind_to.is_none() {
                // Without these columns, no partial index has to be checked.
                self.hot.extend_log.execute(params![id, last, events, bytes, updated])?;
            } else {
                let row = params![id, last, events, bytes, updated, rewinds, status];
                self.hot.update_log.execute(row)?;
            }
        }
        if is_new || append.status.is_some() {
            if !is_new {
                let row = self.key.row(&LOGS, &plan.row(tenant, &append.log));
                self.segment.sums().remove(&LOGS, row);
            }
            plan.status = append.status.clone().or(plan.status.take());
            self.add_row(&LOGS, &plan.row(tenant, &append.log));
        }
        Ok(())
    }

    /// Adds a record to the chain and returns the header and the link of the record.
    fn extend<'h>(
        &mut self,
        tenant: &'h Tenant,
        append: &'h SealedAppend,
        plan: &'h mut LogPlan,
        record: &'h SealedRecord,
    ) -> (Header<'h>, Link) {
        plan.last += 1;
        let last_event = (record.events > 0).then(|| plan.events + u64::from(record.events));
        plan.events = last_event.unwrap_or(plan.events);
        let position = self.segment.next();
        let header = Header {
            tenant,
            log: &append.log,
            nature: &plan.nature,
            seq: plan.last,
            kind: &record.kind,
            at: record.at.unwrap_or(self.now),
            events: record.events,
            last_event,
            about: record.about,
            size: record.size,
            writer: "",
            position,
        };
        let writer = &*self.writer;
        let link = self
            .segment
            .extend(|before| Header { writer, ..header }.link(before, &record.commitment));
        (header, link)
    }

    /// Inserts a record as a row of its own.
    fn add_record(
        &mut self,
        tenant: &Tenant,
        append: &SealedAppend,
        plan: &mut LogPlan,
        record: &SealedRecord,
    ) -> rusqlite::Result<()> {
        let log = plan.id;
        let (header, link) = self.extend(tenant, append, plan, record);
        let (db, tenant, segment) = (self.hot.db, self.segment.tenant, self.segment.id);
        let blob = match &record.blob {
            None => None,
            Some(blob) => {
                let keep = "INSERT INTO blobs (tenant, hash, content) VALUES (?1, ?2, ?3)
                            ON CONFLICT DO NOTHING";
                db.prepare_cached(keep)?.execute(params![tenant, blob.id, &*blob.content])?;
                let find = "SELECT id FROM blobs WHERE tenant = ?1 AND hash = ?2";
                query_first(db, find, params![tenant, blob.id], |row| row.get::<_, i64>(0))?
            }
        };
        let Header { kind, at, events, about, .. } = header;
        let [seq, size, position] = [header.seq, header.size, header.position].map(number);
        let (last_event, content) = (header.last_event.map(number), &*record.content);
        let (id, span) = (None::<i64>, 0);
        self.hot.add_record.execute(params![
            id,
            tenant,
            log,
            seq,
            kind,
            at,
            events,
            last_event,
            about,
            size,
            segment,
            position,
            record.commitment,
            link,
            blob,
            content,
            span
        ])?;
        let id = db.last_insert_rowid();
        *self.last_record = Some(id);
        self.add_salt(id, &record.salt)?;
        self.add_row(&RECORDS, &fields![id, tenant, log, seq, segment, position]);
        Ok(())
    }

    /// Inserts several records as one row: see `pack.rs`.
    fn add_pack(
        &mut self,
        tenant: &Tenant,
        append: &SealedAppend,
        plan: &mut LogPlan,
        records: &[SealedRecord],
    ) -> rusqlite::Result<()> {
        let before = match *self.last_record {
            Some(id) => id,
            None => self.hot.last_record.query_row([], |row| row.get(0))?,
        };
        let mut packed = Vec::with_capacity(records.len());
        let (mut id, mut position) = (before, 0);
        for record in records {
            let (header, link) = self.extend(tenant, append, plan, record);
            (id, position) = (id + 1, number(header.position));
            packed.push(PackedRecord {
                kind: record.kind.clone(),
                at: header.at,
                // `packable` checked that the size fits.
                size: u32::try_from(record.size).unwrap_or(u32::MAX),
                commitment: record.commitment,
                link,
                erased: None,
                content: record.content.clone(),
            });
            self.add_salt(id, &record.salt)?;
        }
        let Some(last) = packed.last() else { return Ok(()) };
        let (tenant, log, segment) = (self.segment.tenant, plan.id, self.segment.id);
        let (seq, about) = (number(plan.last), records.last().and_then(|record| record.about));
        let (events, last_event, blob) = (0, None::<i64>, None::<i64>);
        let (content, span) = (pack::encode(&packed), id - before - 1);
        self.hot.add_record.execute(params![
            id,
            tenant,
            log,
            seq,
            PACK,
            last.at,
            events,
            last_event,
            about,
            last.size,
            segment,
            position,
            last.commitment,
            last.link,
            blob,
            content,
            span
        ])?;
        *self.last_record = Some(id);
        self.add_row(&RECORDS, &fields![id, tenant, log, seq, segment, position]);
        Ok(())
    }

    fn add_salt(&mut self, record: i64, salt: &Salt) -> rusqlite::Result<()> {
        let Salt { epoch, bytes } = salt;
        let tenant = self.segment.tenant;
        self.hot.add_salt.execute(params![record, tenant, epoch, &**bytes]).map(drop)
    }

    fn resolve_pending(&mut self, id: &Name) -> rusqlite::Result<()> {
        let take = "UPDATE pending SET taken = ?3 WHERE tenant = ?1 AND id = ?2";
        let (tenant, now) = (self.segment.tenant, self.now);
        let row = params![tenant, id, now];
        self.change_row(&PENDING, id, |db| db.prepare_cached(take)?.execute(row))
    }

    fn change_key(&mut self, change: &KeyChange) -> rusqlite::Result<()> {
        let (db, tenant, created) = (self.hot.db, self.segment.tenant, self.now);
        match change {
            KeyChange::Add(row) => {
                let ApiKeyRow { id, label, limits, hash, revoked, mac, .. } = row;
                let add =
                    "INSERT INTO api_keys (tenant, id, label, limits, hash, created, revoked, mac)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
                let values = params![tenant, id, label, limits, hash, created, revoked, mac];
                db.prepare_cached(add)?.execute(values)?;
                self.add_row(&API_KEYS, &row.fields(tenant));
                Ok(())
            }
            KeyChange::Revoke { id, at, mac } => {
                let revoke =
                    "UPDATE api_keys SET revoked = ?3, mac = ?4 WHERE tenant = ?1 AND id = ?2";
                let row = params![tenant, id, at, mac];
                self.change_row(&API_KEYS, id, |db| db.prepare_cached(revoke)?.execute(row))
            }
        }
    }

    /// Runs `change`, which updates the row with this id, and replaces the row's MAC in the sums.
    fn change_row(
        &mut self,
        table: &IndexTable,
        id: &Name,
        change: impl FnOnce(&Connection) -> rusqlite::Result<usize>,
    ) -> rusqlite::Result<()> {
        let (db, tenant) = (self.hot.db, self.segment.tenant);
        let IndexTable { name, columns, .. } = table;
        let find = format!("SELECT {columns} FROM {name} WHERE tenant = ?1 AND id = ?2");
        let row = || db.prepare_cached(&find)?.query_row(params![tenant, id], sql_row);
        self.segment.sums().remove(table, row()?.mac(&self.key, table));
        change(db)?;
        self.segment.sums().add(table, row()?.mac(&self.key, table));
        Ok(())
    }

    /// Adds a captured turn. Its keys are added to the table `turn_keys` later: see
    /// `turn_index.rs`.
    fn capture(&mut self, node: &SealedTurn, plan: &LogPlan) -> rusqlite::Result<()> {
        let (tenant, log) = (self.segment.tenant, plan.id);
        let (name, parent) = (&*node.id.0, node.parent.as_ref().map(|parent| &*parent.0));
        let (first, last, prefix) = (number(plan.first), number(plan.last), node.prefix.as_ref());
        let keys = turn_keys::encode(&node.keys);
        self.hot.add_turn.execute(params![tenant, name, parent, log, first, last, prefix, keys])?;
        let turn = self.hot.db.last_insert_rowid();
        self.add_row(&TURNS, &fields![turn, tenant, name, parent, log, first, last, prefix]);
        self.segment.sums().add(&TURN_KEYS, turn_keys::mac(&self.key, tenant, turn, &keys));
        let written = self.era.map(|era| {
            let found = VaultTurn {
                id: node.id.clone(),
                parent: node.parent.clone(),
                log: node.log.clone(),
                first: plan.first,
                last: plan.last,
                prefix: node.prefix,
                gone: None,
            };
            (found, era)
        });
        self.captured.push(RecentTurn { id: turn, tenant, keys: node.keys.clone(), written });
        Ok(())
    }
}

/// Returns the log's rewinds after an append.
fn rewinds_after(append: &SealedAppend, plan: &LogPlan) -> String {
    let Some(to) = append.rewind_to else { return plan.rewinds.clone() };
    let space = if plan.rewinds.is_empty() { "" } else { " " };
    format!("{}{space}{}:{to}", plan.rewinds, plan.first)
}

/// Checks that the API key to add does not exist, or that the key to revoke is active.
fn check_key(db: &Connection, tenant: i64, change: &KeyChange) -> Result<(), CommitError> {
    let find = "SELECT revoked IS NULL FROM api_keys WHERE tenant = ?1 AND id = ?2";
    let find = |id: &Name| query_first(db, find, params![tenant, id], |row| row.get(0));
    match change {
        KeyChange::Add(row) if find(&row.id)?.is_none() => Ok(()),
        KeyChange::Add(row) => Err(rejection::key_exists(&row.id).into()),
        KeyChange::Revoke { id, .. } if find(id)? == Some(true) => Ok(()),
        KeyChange::Revoke { id, .. } => Err(rejection::no_key(id).into()),
    }
}

/// Formats a receipt for storage, one line per log. The idempotency name, the first line of the
/// stored receipt, is not included.
fn print(receipt: &Receipt) -> String {
    let line = |WrittenRange { log, first, last, events }: &WrittenRange| {
        format!("{log}\t{first}\t{last}\t{events}\n")
    };
    receipt.written.iter().map(line).collect()
}

/// Converts to SQLite's integer type. Numbers that are too large become the type's maximum.
pub(super) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Converts from SQLite's integer type. Negative numbers become 0.
pub(super) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
