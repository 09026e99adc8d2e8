//! Encodes one group of batches as parameters and decodes the results. The SQL function in
//! `functions_3.sql` decides which batches are written.

use std::collections::{BTreeSet, HashMap, HashSet};

use throughline_core::{LogId, PendingStatus, Receipt, StoreError, Tenant, WrittenRange};
use throughline_json::Name;

use crate::pack::packable;
use crate::postgres::values::{Parameter, damaged, signed};
use crate::rejection;
use crate::row::{ApiKeyRow, Salt, parse_written};
use crate::sealed_batch::{
    Erasure, Guard, KeyChange, SealedAppend, SealedBatch, SealedRecord, SealedTurn,
};
use crate::sql::{SqlValue, kind_number, values};
use crate::turn_keys;

/// Maximum number of individual locks per group. A group that needs more briefly locks the whole
/// store instead. With default settings, a server has room for about 6,400 locks across all
/// clients.
const MAX_LOCKS: usize = 1024;

/// Returns the SQL statement that calls the commit function.
pub(super) fn statement() -> String {
    let count = Columns::default().params([&0; 4]).len();
    let indexes: Vec<String> = (1..=count).map(|index| format!("${index}")).collect();
    format!("SELECT throughline_commit({})", indexes.join(", "))
}

/// A batch with its advisory locks, ready to be sent to the server.
pub(super) struct PreparedBatch {
    pub(super) batch: SealedBatch,
    /// The tenant's id in the database.
    tenant: i64,
    /// Ids of the advisory locks that the batch needs.
    locks: Vec<i64>,
    pub(super) bytes: usize,
}

impl PreparedBatch {
    pub(super) fn new(batch: SealedBatch, tenant: i64) -> Self {
        let mut locks = Vec::new();
        let mut lock = |kind, name: &[u8]| locks.push(lock(kind, tenant, name));
        let mut bytes = 0;
        for (hash, _) in &batch.once {
            lock(Lock::Once, hash);
        }
        for append in &batch.appends {
            lock(Lock::Log, append.log.0.as_bytes());
            // The logs that an append refers to only grow, so they need no lock.
            for record in &append.records {
                bytes += 256 + record.content.len();
                if let Some(blob) = &record.blob {
                    bytes += blob.content.len();
                    lock(Lock::Blob, &blob.id);
                }
            }
        }
        for id in batch.asks.iter().map(|request| &request.id).chain(&batch.takes) {
            lock(Lock::Pending, id.as_bytes());
        }
        for node in &batch.vault {
            lock(Lock::Turn, node.id.0.as_bytes());
        }
        for change in &batch.keys {
            let (KeyChange::Add(ApiKeyRow { id, .. }) | KeyChange::Revoke { id, .. }) = change;
            lock(Lock::Key, id.as_bytes());
        }
        Self { batch, tenant, locks, bytes }
    }
}

/// The kinds of locked names. Equal names of different kinds have different locks.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum Lock {
    Log = b'l',
    Once = b'o',
    Blob = b'b',
    Pending = b'p',
    Turn = b't',
    Key = b'k',
}

/// Returns the id of an advisory lock. Two names may share an id, which only makes batches wait
/// longer.
pub(super) fn lock(kind: Lock, tenant: i64, name: &[u8]) -> i64 {
    let mut hash = blake3::Hasher::new();
    hash.update(b"throughline lock")
        .update(&[kind as u8])
        .update(&tenant.to_be_bytes())
        .update(name);
    let hash = hash.finalize();
    i64::from_be_bytes(hash.as_bytes().first_chunk().copied().unwrap_or_default())
}

/// The 1-based index of each log or turn in the group's columns, by tenant and name.
type Positions<'g> = HashMap<(i64, &'g str), i32>;

/// Rows of one kind, stored as columns.
struct Table<const WIDTH: usize>([Vec<SqlValue>; WIDTH]);

impl<const WIDTH: usize> Default for Table<WIDTH> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Vec::new()))
    }
}

impl<const WIDTH: usize> Table<WIDTH> {
    fn push(&mut self, row: [SqlValue; WIDTH]) {
        self.0.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
    }

    /// Returns the number of rows, which is also the 1-based index of the last row.
    fn len(&self) -> i32 {
        self.0.first().map_or(0, |column| count(column))
    }
}

/// The parts of all batches in a group, stored as columns. These are the parameters of
/// `throughline_commit`, in the same order. Parameter names have a prefix per field: `l_` for
/// `logs`, `b_` for `batches`, `o_` for `once`, `a_` for `appends`, `r_` for `records`, `z_` for
/// `rows`, `t_` for `takes`, `q_` for `asks`, `n_` for `turns`, `e_` for `erases`, `s_` for
/// `erased` and `y_` for `keys`.
#[derive(Default)]
pub(super) struct Columns {
    locks: Vec<i64>,
    /// Whether the group locks the whole store.
    alone: bool,
    /// Whether any record stores its content as a blob.
    has_blobs: bool,
    tenants: Table<2>,
    logs: Table<2>,
    batches: Table<9>,
    once: Table<1>,
    appends: Table<15>,
    records: Table<16>,
    /// The rows that store the records. A pack is one row.
    rows: Table<2>,
    takes: Table<1>,
    asks: Table<4>,
    turns: Table<7>,
    erases: Table<7>,
    erased: Table<2>,
    keys: Table<6>,
}

impl Columns {
    pub(super) fn from_group<'g>(group: impl IntoIterator<Item = &'g PreparedBatch>) -> Self {
        let mut columns = Self::default();
        let mut locks = BTreeSet::new();
        let (mut indexes, mut logs, mut turns) = (HashMap::new(), HashMap::new(), HashMap::new());
        for prepared in group {
            locks.extend(&prepared.locks);
            let next = columns.tenants.len().saturating_add(1);
            let index = *indexes.entry(prepared.tenant).or_insert(next);
            if index == next {
                columns.tenants.push(values![prepared.tenant, &prepared.batch.tenant]);
            }
            columns.add(prepared, index, &mut logs, &mut turns);
        }
        // A group that erases locks the whole store, so that no other node adds references to the
        // erased content.
        columns.alone = columns.erases.len() > 0 || locks.len() > MAX_LOCKS;
        columns.locks = locks.into_iter().collect();
        columns
    }

    /// Returns the parameters of [`statement`]. `writer` contains the first four: the writer, the
    /// group number, whether the commit is relaxed, and the row MAC key.
    pub(super) fn params<'p>(&'p self, writer: [Parameter<'p>; 4]) -> Vec<Parameter<'p>> {
        fn of<const WIDTH: usize>(table: &Table<WIDTH>) -> impl Iterator<Item = Parameter<'_>> {
            table.0.iter().map(|column| column as Parameter<'_>)
        }
        let group: [Parameter<'p>; 3] = [&self.locks, &self.alone, &self.has_blobs];
        let params = writer.into_iter().chain(group).chain(of(&self.tenants)).chain(of(&self.logs));
        let params = params.chain(of(&self.batches)).chain(of(&self.once));
        let params = params.chain(of(&self.appends)).chain(of(&self.records));
        let params = params.chain(of(&self.rows)).chain(of(&self.takes)).chain(of(&self.asks));
        let params = params.chain(of(&self.turns)).chain(of(&self.erases));
        params.chain(of(&self.erased)).chain(of(&self.keys)).collect()
    }

    fn add<'g>(
        &mut self,
        prepared: &'g PreparedBatch,
        index: i32,
        logs: &mut Positions<'g>,
        turns: &mut Positions<'g>,
    ) {
        let PreparedBatch { batch, tenant, .. } = prepared;
        let captured: HashSet<&LogId> = batch.vault.iter().map(|node| &node.log).collect();
        for (hash, _) in &batch.once {
            self.once.push(values![hash.as_slice()]);
        }
        let mut appends = HashMap::new();
        for append in &batch.appends {
            self.append(*tenant, append, captured.contains(&append.log), logs);
            appends.insert(&append.log, self.appends.len());
        }
        let append = |log: &LogId| appends.get(log).copied().unwrap_or_default();
        for id in &batch.takes {
            self.takes.push(values![id]);
        }
        for request in &batch.asks {
            let expires = request.expires_in.map(|time| i64::try_from(time.as_millis()));
            // A time too large for the database's calendar means no limit.
            let expires = expires.and_then(Result::ok).filter(|time| *time < i64::MAX / 2);
            self.asks.push(values![&request.id, &request.kind, append(&request.log), expires]);
        }
        for SealedTurn { id, parent, keys, log, prefix } in &batch.vault {
            let next = self.turns.len().saturating_add(1);
            let same = *turns.entry((*tenant, &*id.0)).or_insert(next);
            let (append, prefix, keys) = (append(log), prefix.as_ref(), turn_keys::encode(keys));
            let keys = SqlValue::Bytes(keys.into());
            self.turns.push(values![*tenant, id, same, parent.as_ref(), append, prefix, keys]);
        }
        for erase in &batch.erases {
            let log = self.log(*tenant, &erase.log, logs);
            let Erasure { seqs, checkpoints, reason, child_count, note, .. } = erase;
            let (reason, all) = (reason.number(), seqs.is_none());
            let (name, note) = note.as_ref().map(|(name, note)| (&**name, note)).unzip();
            self.erases.push(values![log, reason, all, *checkpoints, *child_count, name, note]);
            for seq in seqs.iter().flatten() {
                self.erased.push(values![self.erases.len(), *seq]);
            }
        }
        for change in &batch.keys {
            let (id, new, revoked, mac) = match change {
                KeyChange::Add(row) => (&row.id, Some(row), None, row.mac.as_ref()),
                KeyChange::Revoke { id, at, mac } => (id, None, Some(*at), Some(mac)),
            };
            let (label, limits) = (new.map(|row| &row.label), new.map(|row| &row.limits));
            let hash = new.map(|row| &row.hash);
            self.keys.push(values![id, label, limits, hash, revoked, mac]);
        }
        self.batches.push(values![
            index,
            is_plain(batch),
            self.once.len(),
            self.appends.len(),
            self.takes.len(),
            self.asks.len(),
            self.turns.len(),
            self.erases.len(),
            self.keys.len()
        ]);
    }

    /// Adds an append. The records of a captured turn are packed.
    fn append<'g>(
        &mut self,
        tenant: i64,
        append: &'g SealedAppend,
        is_turn: bool,
        logs: &mut Positions<'g>,
    ) {
        let SealedAppend { opening, expect, guard, records, rewind_to, status, .. } = append;
        let fork = opening.as_ref().and_then(|opening| opening.fork.as_ref());
        let of = opening.as_ref().and_then(|opening| opening.of.as_ref());
        let log = self.log(tenant, &append.log, logs);
        let parent = fork.map(|fork| self.log(tenant, &fork.log, logs));
        let of = of.map(|of| self.log(tenant, of, logs));
        let index = self.appends.len().saturating_add(1);
        let (mut number, mut last_event, mut bytes) = (0_i32, 0_u64, 0_u64);
        let mut rest = records.as_slice();
        while !rest.is_empty() {
            let packed = if is_turn { packable(rest).max(1) } else { 1 };
            let (of_row, later) = rest.split_at(packed);
            rest = later;
            let span = count(of_row).saturating_sub(1);
            let last = self.records.len().saturating_add(1).saturating_add(span);
            self.rows.push(values![last, span]);
            for (after, record) in (0..=span).rev().zip(of_row) {
                let SealedRecord { kind, at, events, about, size, commitment, .. } = record;
                let SealedRecord { content, salt: Salt { epoch, bytes: salt }, .. } = record;
                number = number.saturating_add(1);
                last_event += u64::from(*events);
                bytes += size;
                let (blob, row) = (record.blob.as_ref(), self.rows.len());
                self.has_blobs |= blob.is_some();
                let (blob, large) = blob.map(|blob| (&blob.id, &blob.content)).unzip();
                self.records.push(values![
                    index, number, last_event, kind, *at, *events, *about, *size, commitment,
                    content, *epoch, salt, blob, large, row, after
                ]);
            }
        }
        let kind = opening.as_ref().map(|opening| kind_number(opening.kind));
        let fork_at = fork.map(|fork| fork.at);
        let guard = match guard {
            Guard::Free => 0,
            Guard::Behind(fence) => signed(fence.0.get()),
            Guard::Operator => -1,
        };
        let (rewind, status) = (*rewind_to, status.as_ref());
        let at = records.iter().filter_map(|record| record.at).max();
        // The creation time of an imported log is the time of its first record.
        let began = records.first().and_then(|record| record.at);
        let now = records.is_empty() || records.iter().any(|record| record.at.is_none());
        let records = count(records);
        self.appends.push(values![
            log, kind, of, parent, fork_at, *expect, guard, rewind, status, records, last_event,
            bytes, at, now, began
        ]);
    }

    /// Returns the log's 1-based index in the columns, and adds the log if it is missing.
    fn log<'g>(&mut self, tenant: i64, log: &'g LogId, known: &mut Positions<'g>) -> i32 {
        let next = self.logs.len().saturating_add(1);
        let index = *known.entry((tenant, &log.0)).or_insert(next);
        if index == next {
            self.logs.push(values![tenant, log]);
        }
        index
    }
}

/// Returns whether the batch only adds records to existing logs.
fn is_plain(batch: &SealedBatch) -> bool {
    let SealedBatch { tenant: _, once, appends, vault, asks, takes, erases, keys } = batch;
    let has_only_records =
        once.is_empty() && vault.is_empty() && asks.is_empty() && takes.is_empty();
    has_only_records
        && erases.is_empty()
        && keys.is_empty()
        && appends.iter().all(|append| append.opening.is_none())
}

pub(super) struct CommitResult {
    pub(super) receipt: Receipt,
    /// Ids of the written logs, in the same order as in the receipt.
    pub(super) logs: Vec<i64>,
}

/// Parses the commit function's result for one batch.
pub(super) fn verdict(batch: &SealedBatch, answer: &str) -> Result<CommitResult, StoreError> {
    if let Some(receipt) = answer.strip_prefix("again") {
        // The first line is the batch's idempotency name.
        let written = receipt.lines().skip(1).map(parse_written).collect::<Option<_>>();
        let written = written.ok_or_else(|| damaged("a receipt"))?;
        return Ok(CommitResult { receipt: Receipt { written, repeated: true }, logs: Vec::new() });
    }
    if let Some(lines) = answer.strip_prefix("ok") {
        let (mut written, mut logs) = (Vec::new(), Vec::new());
        for (append, line) in batch.appends.iter().zip(lines.lines().skip(1)) {
            let mut numbers = line.split(' ').map(|number| number.parse::<u64>().ok());
            let mut next = || numbers.next().flatten().ok_or_else(|| damaged("an answer"));
            let (log, first, last, events) = (append.log.clone(), next()?, next()?, next()?);
            written.push(WrittenRange { log, first, last, events });
            logs.push(signed(next()?));
        }
        return Ok(CommitResult { receipt: Receipt { written, repeated: false }, logs });
    }
    Err(refusal(batch, answer).unwrap_or_else(|| damaged("an answer")))
}

fn refusal(batch: &SealedBatch, answer: &str) -> Option<StoreError> {
    let mut fields = answer.splitn(4, ' ');
    let (code, index) = (fields.next()?, fields.next()?.parse::<usize>().ok()?);
    let mut number = || fields.next()?.parse::<u64>().ok();
    let append = batch.appends.get(index);
    let log = append.map(|append| append.log.clone());
    Some(match code {
        "mixed" => StoreError::MixedOnce { name: batch.once.get(index)?.1.clone() },
        "conflict" => StoreError::Conflict { log: log?, expected: number()?, found: number()? },
        "nolog" => rejection::no_log(&log?),
        "nofork" => rejection::no_thread(&append?.opening.as_ref()?.fork.as_ref()?.log),
        "noof" => rejection::no_thread(append?.opening.as_ref()?.of.as_ref()?),
        "beyond" => {
            let fork = append?.opening.as_ref()?.fork.as_ref()?;
            rejection::fork_beyond(&fork.log, number()?)
        }
        "fenced" => StoreError::Fenced { log: log? },
        "held" => {
            let left_ms = number()?;
            StoreError::Held { log: log?, owner: Name::from(fields.next()?), left_ms }
        }
        "gone" => rejection::log_erased(&log?),
        "nopending" => rejection::not_pending(batch.takes.get(index)?),
        "taken" => {
            let status = if number()? == 1 { PendingStatus::Taken } else { PendingStatus::Expired };
            StoreError::Taken { id: batch.takes.get(index)?.clone(), status }
        }
        "asked" => rejection::pending_exists(&batch.asks.get(index)?.id),
        "rewind" => rejection::rewind_beyond(&log?, number()?),
        "turn" => rejection::turn_exists(&batch.vault.get(index)?.id),
        "gonefork" => rejection::parent_erased(&append?.opening.as_ref()?.fork.as_ref()?.log),
        "goneof" => rejection::parent_erased(append?.opening.as_ref()?.of.as_ref()?),
        "kin" => {
            let log = batch.erases.get(index)?.log.clone();
            StoreError::Conflict { log, expected: number()?, found: number()? }
        }
        "haskey" | "nokey" => {
            let (KeyChange::Add(ApiKeyRow { id, .. }) | KeyChange::Revoke { id, .. }) =
                batch.keys.get(index)?;
            if code == "haskey" { rejection::key_exists(id) } else { rejection::no_key(id) }
        }
        "noerase" => rejection::no_log(&batch.erases.get(index)?.log),
        _ => return None,
    })
}

/// Returns the tenants whose chain heads the group changed.
pub(super) fn moved(tenants: &[Tenant], answers: &[String]) -> Vec<Tenant> {
    let index =
        |answer: &String| answer.strip_prefix("head ")?.parse::<usize>().ok()?.checked_sub(1);
    let indexes = answers.iter().filter_map(index);
    indexes.filter_map(|index| tenants.get(index).cloned()).collect()
}

fn count<T>(column: &[T]) -> i32 {
    i32::try_from(column.len()).unwrap_or(i32::MAX)
}
