//! Encodes one group of batches and decodes the results. The database makes the decisions: see
//! `functions_2.sql`.

use std::collections::{BTreeSet, HashMap};

use throughline_core::{LogId, PendingStatus, Receipt, StoreError, Tenant, WrittenRange};
use throughline_json::Name;
use tokio_postgres::types::ToSql;

use crate::postgres::read::{damaged, kind_number, signed};
use crate::rejection;
use crate::row::ApiKeyRow;
use crate::sealed_batch::{Guard, KeyChange, SealedAppend, SealedBatch};

/// Maximum number of individual locks. A group that needs more briefly locks the whole store. A
/// server with default settings has room for about 6,400 locks of all clients.
const MAX_LOCKS: usize = 1024;

/// Returns the statement that calls the commit function.
pub(super) fn statement() -> String {
    let places: Vec<String> = (1..=PARAMETERS).map(|place| format!("${place}")).collect();
    format!("SELECT throughline_commit({})", places.join(", "))
}

/// A batch that is ready to be sent.
pub(super) struct PreparedBatch {
    pub(super) batch: SealedBatch,
    /// The tenant's number.
    tenant: i64,
    /// The advisory locks that the batch needs.
    locks: Vec<i64>,
    /// The approximate size.
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
            // Referenced logs only grow, so they need no lock.
            for record in &append.records {
                bytes += 256 + record.content.len();
                if let Some(blob) = &record.blob {
                    bytes += blob.content.len();
                    lock(Lock::Blob, &blob.id);
                }
            }
        }
        for id in batch.asks.iter().map(|asked| &asked.id).chain(&batch.takes) {
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
pub(super) enum Lock {
    Log,
    Once,
    Blob,
    Pending,
    Turn,
    Key,
}

/// Returns the number of a lock. Two names may share a number, which only costs time.
pub(super) fn lock(kind: Lock, tenant: i64, name: &[u8]) -> i64 {
    let kind = match kind {
        Lock::Log => b'l',
        Lock::Once => b'o',
        Lock::Blob => b'b',
        Lock::Pending => b'p',
        Lock::Turn => b't',
        Lock::Key => b'k',
    };
    let mut hash = blake3::Hasher::new();
    hash.update(b"throughline lock").update(&[kind]).update(&tenant.to_be_bytes()).update(name);
    let hash = hash.finalize();
    i64::from_be_bytes(hash.as_bytes().first_chunk().copied().unwrap_or_default())
}

/// The index of each log in the group's columns, by tenant and name.
type LogPositions<'g> = HashMap<(i64, &'g str), i32>;

/// Declares the columns and lists them as parameters in the same order.
macro_rules! columns {
    ($($column:ident: $type:ty,)*) => {
        /// The parts of all batches of a group, in columns; see `throughline_commit`.
        #[derive(Default)]
        pub(super) struct Columns<'g> { $($column: $type,)* }

        /// The number of parameters: the columns, and four of the writer.
        const PARAMETERS: usize = 4 + [$(stringify!($column)),*].len();

        impl Columns<'_> {
            /// Returns the parameters of [`statement`].
            pub(super) fn params<'p>(&'p self, first: [&'p (dyn ToSql + Sync); 4]) -> Vec<&'p (dyn ToSql + Sync)> {
                let mut params = first.to_vec();
                params.extend([$(&self.$column as &(dyn ToSql + Sync)),*]);
                params
            }
        }
    };
}

columns! {
    locks: Vec<i64>,
    alone: bool,
    blobs: bool,
    tenants: Vec<i64>,
    tenant_names: Vec<&'g str>,
    l_tenant: Vec<i64>,
    l_name: Vec<&'g str>,
    b_tenant: Vec<i32>,
    b_plain: Vec<bool>,
    b_o: Vec<i32>,
    b_a: Vec<i32>,
    b_t: Vec<i32>,
    b_q: Vec<i32>,
    b_n: Vec<i32>,
    b_e: Vec<i32>,
    b_y: Vec<i32>,
    o_hash: Vec<&'g [u8]>,
    a_log: Vec<i32>,
    a_kind: Vec<Option<i16>>,
    a_of: Vec<Option<i32>>,
    a_fork: Vec<Option<i32>>,
    a_fork_at: Vec<Option<i64>>,
    a_expect: Vec<Option<i64>>,
    a_guard: Vec<i64>,
    a_rewind: Vec<Option<i64>>,
    a_status: Vec<Option<&'g str>>,
    a_records: Vec<i32>,
    a_events: Vec<i64>,
    a_bytes: Vec<i64>,
    a_at: Vec<Option<i64>>,
    a_now: Vec<bool>,
    a_began: Vec<Option<i64>>,
    r_append: Vec<i32>,
    r_place: Vec<i32>,
    r_event: Vec<i64>,
    r_kind: Vec<&'g str>,
    r_at: Vec<Option<i64>>,
    r_events: Vec<i32>,
    r_about: Vec<Option<i64>>,
    r_size: Vec<i64>,
    r_commitment: Vec<&'g [u8]>,
    r_content: Vec<&'g [u8]>,
    r_epoch: Vec<i32>,
    r_salt: Vec<&'g [u8]>,
    r_blob: Vec<Option<&'g [u8]>>,
    r_blob_content: Vec<Option<&'g [u8]>>,
    t_id: Vec<&'g str>,
    q_id: Vec<&'g str>,
    q_kind: Vec<&'g str>,
    q_append: Vec<i32>,
    q_expires: Vec<Option<i64>>,
    n_id: Vec<&'g str>,
    n_parent: Vec<Option<&'g str>>,
    n_append: Vec<i32>,
    n_prefix: Vec<Option<&'g [u8]>>,
    n_k: Vec<i32>,
    k_kind: Vec<i16>,
    k_hash: Vec<&'g [u8]>,
    e_log: Vec<i32>,
    e_why: Vec<i16>,
    e_all: Vec<bool>,
    e_checkpoints: Vec<bool>,
    e_kin: Vec<Option<i64>>,
    e_note: Vec<Option<&'g str>>,
    e_note_value: Vec<Option<&'g [u8]>>,
    s_erase: Vec<i32>,
    s_seq: Vec<i64>,
    y_id: Vec<&'g str>,
    y_label: Vec<Option<&'g str>>,
    y_limits: Vec<Option<&'g str>>,
    y_hash: Vec<Option<&'g [u8]>>,
    y_revoked: Vec<Option<i64>>,
    y_mac: Vec<Option<&'g [u8]>>,
}

impl<'g> Columns<'g> {
    pub(super) fn from_group(group: impl IntoIterator<Item = &'g PreparedBatch>) -> Self {
        let mut columns = Self::default();
        let mut locks = BTreeSet::new();
        let mut places = HashMap::new();
        let mut logs = HashMap::new();
        for prepared in group {
            locks.extend(&prepared.locks);
            let next = next(&columns.tenants);
            let place = *places.entry(prepared.tenant).or_insert(next);
            if place == next {
                columns.tenants.push(prepared.tenant);
                columns.tenant_names.push(&prepared.batch.tenant.0);
            }
            columns.b_tenant.push(place);
            columns.add(prepared, &mut logs);
        }
        // Destroyed contents must not be referenced in the meantime.
        columns.alone = !columns.e_log.is_empty() || locks.len() > MAX_LOCKS;
        columns.blobs = columns.r_blob.iter().any(Option::is_some);
        columns.locks = locks.into_iter().collect();
        columns
    }

    fn add(&mut self, prepared: &'g PreparedBatch, logs: &mut LogPositions<'g>) {
        let PreparedBatch { batch, tenant, .. } = prepared;
        self.o_hash.extend(batch.once.iter().map(|(hash, _)| hash.as_slice()));
        let mut appends = HashMap::new();
        for append in &batch.appends {
            self.append(*tenant, append, logs);
            appends.insert(&append.log, count(&self.a_log));
        }
        let append = |log: &LogId| appends.get(log).copied().unwrap_or_default();
        self.t_id.extend(batch.takes.iter().map(|id| &**id));
        for ask in &batch.asks {
            self.q_id.push(&ask.id);
            self.q_kind.push(&ask.kind);
            self.q_append.push(append(&ask.log));
            let expires = ask.expires_in.map(|time| i64::try_from(time.as_millis()));
            // A time beyond the calendar means no limit.
            self.q_expires.push(expires.and_then(Result::ok).filter(|time| *time < i64::MAX / 2));
        }
        for node in &batch.vault {
            self.n_id.push(&node.id.0);
            self.n_parent.push(node.parent.as_ref().map(|parent| &*parent.0));
            self.n_append.push(append(&node.log));
            self.n_prefix.push(node.prefix.as_ref().map(<[u8; 32]>::as_slice));
            for key in &node.keys {
                self.k_kind.push(key.kind.number());
                self.k_hash.push(&key.hash);
            }
            self.n_k.push(count(&self.k_kind));
        }
        for erase in &batch.erases {
            let log = self.log(*tenant, &erase.log, logs);
            self.e_log.push(log);
            self.e_why.push(erase.why.number());
            self.e_all.push(erase.seqs.is_none());
            self.e_checkpoints.push(erase.checkpoints);
            self.e_kin.push(erase.kin.map(signed));
            self.e_note.push(erase.note.as_ref().map(|(name, _)| name.as_str()));
            self.e_note_value.push(erase.note.as_ref().map(|(_, value)| &**value));
            for seq in erase.seqs.iter().flatten() {
                self.s_erase.push(count(&self.e_log));
                self.s_seq.push(signed(*seq));
            }
        }
        for change in &batch.keys {
            let (id, new, revoked, mac) = match change {
                KeyChange::Add(row) => (&row.id, Some(row), None, row.mac.as_ref()),
                KeyChange::Revoke { id, at, mac } => (id, None, Some(*at), Some(mac)),
            };
            self.y_id.push(id);
            self.y_label.push(new.map(|row| &*row.label));
            self.y_limits.push(new.map(|row| &*row.limits));
            self.y_hash.push(new.map(|row| row.hash.as_slice()));
            self.y_revoked.push(revoked);
            self.y_mac.push(mac.map(<[u8; 32]>::as_slice));
        }
        self.b_plain.push(is_plain(batch));
        self.b_o.push(count(&self.o_hash));
        self.b_a.push(count(&self.a_log));
        self.b_t.push(count(&self.t_id));
        self.b_q.push(count(&self.q_id));
        self.b_n.push(count(&self.n_id));
        self.b_e.push(count(&self.e_log));
        self.b_y.push(count(&self.y_id));
    }

    fn append(&mut self, tenant: i64, append: &'g SealedAppend, logs: &mut LogPositions<'g>) {
        let opening = append.opening.as_ref();
        let fork = opening.and_then(|opening| opening.fork.as_ref());
        let of = opening.and_then(|opening| opening.of.as_ref());
        let log = self.log(tenant, &append.log, logs);
        let parent = fork.map(|fork| self.log(tenant, &fork.log, logs));
        let of = of.map(|of| self.log(tenant, of, logs));
        self.a_log.push(log);
        self.a_kind.push(opening.map(|opening| kind_number(opening.kind)));
        self.a_of.push(of);
        self.a_fork.push(parent);
        self.a_fork_at.push(fork.map(|fork| signed(fork.at)));
        self.a_expect.push(append.expect.map(signed));
        self.a_guard.push(match append.guard {
            Guard::Free => 0,
            Guard::Behind(fence) => signed(fence.0.get()),
            Guard::Operator => -1,
        });
        self.a_rewind.push(append.rewind_to.map(signed));
        self.a_status.push(append.status.as_deref());
        let records = &append.records;
        let (mut events, mut bytes) = (0, 0);
        for (place, record) in (1..).zip(records) {
            events += i64::from(record.events);
            bytes += signed(record.size);
            self.r_append.push(count(&self.a_log));
            self.r_place.push(place);
            self.r_event.push(events);
            self.r_kind.push(&record.kind);
            self.r_at.push(record.at);
            self.r_events.push(i32::try_from(record.events).unwrap_or(i32::MAX));
            self.r_about.push(record.about);
            self.r_size.push(signed(record.size));
            self.r_commitment.push(&record.commitment);
            self.r_content.push(&record.content);
            self.r_epoch.push(i32::try_from(record.salt.epoch).unwrap_or(i32::MAX));
            self.r_salt.push(&record.salt.bytes);
            self.r_blob.push(record.blob.as_ref().map(|blob| blob.id.as_slice()));
            self.r_blob_content.push(record.blob.as_ref().map(|blob| &*blob.content));
        }
        self.a_records.push(count(records));
        self.a_events.push(events);
        self.a_bytes.push(bytes);
        self.a_at.push(records.iter().filter_map(|record| record.at).max());
        // An imported log began at the time of its first record.
        self.a_began.push(records.first().and_then(|record| record.at));
        self.a_now.push(records.is_empty() || records.iter().any(|record| record.at.is_none()));
    }

    /// Returns the log's index in the columns.
    fn log(&mut self, tenant: i64, log: &'g LogId, known: &mut LogPositions<'g>) -> i32 {
        let next = next(&self.l_name);
        let place = *known.entry((tenant, &log.0)).or_insert(next);
        if place == next {
            self.l_tenant.push(tenant);
            self.l_name.push(&log.0);
        }
        place
    }
}

/// Returns whether the batch only adds records to existing logs.
fn is_plain(batch: &SealedBatch) -> bool {
    let SealedBatch { tenant: _, once, appends, vault, asks, takes, erases, keys } = batch;
    let others = once.is_empty() && vault.is_empty() && asks.is_empty() && takes.is_empty();
    others
        && erases.is_empty()
        && keys.is_empty()
        && appends.iter().all(|append| append.opening.is_none())
}

/// The result of a committed batch.
pub(super) struct CommitResult {
    pub(super) receipt: Receipt,
    /// The numbers of the written logs, in the order of the receipt.
    pub(super) logs: Vec<i64>,
}

/// Parses the result of a batch.
pub(super) fn verdict(batch: &SealedBatch, answer: &str) -> Result<CommitResult, StoreError> {
    if let Some(receipt) = answer.strip_prefix("again") {
        // The first line is the name.
        let written = receipt.lines().skip(1).map(once_written).collect::<Option<_>>();
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

/// Parses a line of a stored receipt: `log first last events`, separated by tabs.
fn once_written(line: &str) -> Option<WrittenRange> {
    let mut words = line.rsplitn(4, '\t');
    let mut number = || words.next()?.parse().ok();
    let (events, last, first) = (number()?, number()?, number()?);
    Some(WrittenRange { log: LogId::from(words.next()?), first, last, events })
}

fn refusal(batch: &SealedBatch, answer: &str) -> Option<StoreError> {
    let mut words = answer.splitn(4, ' ');
    let (word, place) = (words.next()?, words.next()?.parse::<usize>().ok()?);
    let mut number = || words.next()?.parse::<u64>().ok();
    let append = batch.appends.get(place);
    let log = append.map(|append| append.log.clone());
    Some(match word {
        "mixed" => StoreError::MixedOnce { name: batch.once.get(place)?.1.clone() },
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
            StoreError::Held { log: log?, owner: Name::from(words.next()?), left_ms }
        }
        "gone" => rejection::log_erased(&log?),
        "nopending" => rejection::not_pending(batch.takes.get(place)?),
        "taken" => {
            let status = if number()? == 1 { PendingStatus::Taken } else { PendingStatus::Expired };
            StoreError::Taken { id: batch.takes.get(place)?.clone(), status }
        }
        "asked" => rejection::pending_exists(&batch.asks.get(place)?.id),
        "rewind" => rejection::rewind_beyond(&log?, number()?),
        "turn" => rejection::turn_exists(&batch.vault.get(place)?.id),
        "gonefork" => rejection::parent_erased(&append?.opening.as_ref()?.fork.as_ref()?.log),
        "goneof" => rejection::parent_erased(append?.opening.as_ref()?.of.as_ref()?),
        "kin" => {
            let log = batch.erases.get(place)?.log.clone();
            StoreError::Conflict { log, expected: number()?, found: number()? }
        }
        "haskey" | "nokey" => {
            let (KeyChange::Add(ApiKeyRow { id, .. }) | KeyChange::Revoke { id, .. }) =
                batch.keys.get(place)?;
            if word == "haskey" { rejection::key_exists(id) } else { rejection::no_key(id) }
        }
        "noerase" => rejection::no_log(&batch.erases.get(place)?.log),
        _ => return None,
    })
}

/// Returns the tenants whose heads the group moved.
pub(super) fn moved(tenants: &[Tenant], answers: &[String]) -> Vec<Tenant> {
    let place =
        |answer: &String| answer.strip_prefix("head ")?.parse::<usize>().ok()?.checked_sub(1);
    let places = answers.iter().filter_map(place);
    places.filter_map(|place| tenants.get(place).cloned()).collect()
}

fn count<T>(column: &[T]) -> i32 {
    i32::try_from(column.len()).unwrap_or(i32::MAX)
}

fn next<T>(column: &[T]) -> i32 {
    count(column).saturating_add(1)
}
