//! One group of batches: what is sent, and what the answers mean. The decisions are made in the database; see
//! `functions_1.sql`.

use std::collections::{BTreeSet, HashMap};

use throughline_core::{LogId, Name, PendingStatus, Receipt, StoreError, Tenant, Written};
use tokio_postgres::types::ToSql;

use crate::backend::{Guard, SealedBatch};
use crate::chain::Head;
use crate::manifest;
use crate::postgres::read::{damaged, kind_number, signed};
use crate::refusal;

/// How many names are locked one by one. Whoever needs more takes the whole store for a moment: a server with its default
/// settings has room for about 6,400 locks of everybody.
const MOST_LOCKS: usize = 1024;

/// Calls the function that decides and writes.
pub(super) const STATEMENT: &str = "SELECT throughline_commit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, \
    $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, \
    $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46, $47, $48, $49, $50, \
    $51, $52, $53, $54, $55, $56, $57)";

/// A batch that can be sent.
pub(super) struct Prepared {
    pub(super) batch: SealedBatch,
    /// The tenant's number.
    tenant: i64,
    /// What it must have for itself while it is decided.
    locks: Vec<i64>,
    /// About how many bytes it has.
    pub(super) bytes: usize,
}

impl Prepared {
    pub(super) fn new(batch: SealedBatch, tenant: i64) -> Self {
        let mut locks = Vec::new();
        let mut lock = |kind, name: &[u8]| locks.push(lock(kind, tenant, name));
        let mut bytes = 0;
        for (hash, _) in &batch.once {
            lock(Lock::Once, hash);
        }
        for append in &batch.appends {
            lock(Lock::Log, append.log.0.as_bytes());
            // The logs that it refers to only ever grow, so they need no lock.
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
        Self { batch, tenant, locks, bytes }
    }
}

/// What can be locked. Names of different kinds are different.
#[derive(Clone, Copy)]
pub(super) enum Lock {
    Log,
    Once,
    Blob,
    Pending,
    Turn,
}

/// The number of a lock. Two names may share one, which costs time and nothing else.
pub(super) fn lock(kind: Lock, tenant: i64, name: &[u8]) -> i64 {
    let kind = match kind {
        Lock::Log => b'l',
        Lock::Once => b'o',
        Lock::Blob => b'b',
        Lock::Pending => b'p',
        Lock::Turn => b't',
    };
    let mut hash = blake3::Hasher::new();
    hash.update(b"throughline lock").update(&[kind]).update(&tenant.to_be_bytes()).update(name);
    let hash = hash.finalize();
    i64::from_be_bytes(hash.as_bytes().first_chunk().copied().unwrap_or_default())
}

/// The parts of all batches of a group, in columns; see `throughline_commit`.
#[derive(Default)]
pub(super) struct Columns<'g> {
    locks: Vec<i64>,
    alone: bool,
    tenants: Vec<i64>,
    tenant_names: Vec<&'g str>,
    b_tenant: Vec<i32>,
    o_batch: Vec<i32>,
    o_hash: Vec<&'g [u8]>,
    a_batch: Vec<i32>,
    a_log: Vec<&'g str>,
    a_kind: Vec<Option<i16>>,
    a_of: Vec<Option<&'g str>>,
    a_fork: Vec<Option<&'g str>>,
    a_fork_at: Vec<Option<i64>>,
    a_expect: Vec<Option<i64>>,
    a_guard: Vec<i64>,
    a_rewind: Vec<Option<i64>>,
    a_status: Vec<Option<&'g str>>,
    r_append: Vec<i32>,
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
    t_batch: Vec<i32>,
    t_id: Vec<&'g str>,
    q_batch: Vec<i32>,
    q_id: Vec<&'g str>,
    q_kind: Vec<&'g str>,
    q_append: Vec<i32>,
    q_expires: Vec<Option<i64>>,
    n_batch: Vec<i32>,
    n_id: Vec<&'g str>,
    n_parent: Vec<Option<&'g str>>,
    n_append: Vec<i32>,
    n_prefix: Vec<Option<&'g [u8]>>,
    k_node: Vec<i32>,
    k_kind: Vec<i16>,
    k_hash: Vec<&'g [u8]>,
    e_batch: Vec<i32>,
    e_log: Vec<&'g str>,
    e_why: Vec<i16>,
    e_all: Vec<bool>,
    s_erase: Vec<i32>,
    s_seq: Vec<i64>,
    e_checkpoints: Vec<bool>,
    e_kin: Vec<Option<i64>>,
    e_note: Vec<Option<&'g str>>,
    e_note_value: Vec<Option<&'g [u8]>>,
}

impl<'g> Columns<'g> {
    pub(super) fn of(group: impl IntoIterator<Item = &'g Prepared>) -> Self {
        let mut columns = Self::default();
        let mut locks = BTreeSet::new();
        let mut places = HashMap::new();
        for prepared in group {
            locks.extend(&prepared.locks);
            let next = next(&columns.tenants);
            let place = *places.entry(prepared.tenant).or_insert(next);
            if place == next {
                columns.tenants.push(prepared.tenant);
                columns.tenant_names.push(&prepared.batch.tenant.0);
            }
            columns.b_tenant.push(place);
            columns.add(&prepared.batch);
        }
        // What is destroyed must not be referred to meanwhile.
        columns.alone = !columns.e_batch.is_empty() || locks.len() > MOST_LOCKS;
        columns.locks = locks.into_iter().collect();
        columns
    }

    fn add(&mut self, batch: &'g SealedBatch) {
        let number = count(&self.b_tenant);
        for (hash, _) in &batch.once {
            self.o_batch.push(number);
            self.o_hash.push(hash);
        }
        let mut appends = HashMap::new();
        for append in &batch.appends {
            let opening = append.opening.as_ref();
            let fork = opening.and_then(|opening| opening.fork.as_ref());
            self.a_batch.push(number);
            appends.insert(&append.log, count(&self.a_batch));
            self.a_log.push(&append.log.0);
            self.a_kind.push(opening.map(|opening| kind_number(opening.kind)));
            self.a_of.push(opening.and_then(|opening| opening.of.as_ref()).map(|of| &*of.0));
            self.a_fork.push(fork.map(|fork| &*fork.log.0));
            self.a_fork_at.push(fork.map(|fork| signed(fork.at)));
            self.a_expect.push(append.expect.map(signed));
            self.a_guard.push(match append.guard {
                Guard::Free => 0,
                Guard::Behind(fence) => signed(fence.0.get()),
                Guard::Operator => -1,
            });
            self.a_rewind.push(append.rewind_to.map(signed));
            self.a_status.push(append.status.as_deref());
            for record in &append.records {
                self.r_append.push(count(&self.a_batch));
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
        }
        let append = |log: &LogId| appends.get(log).copied().unwrap_or_default();
        for id in &batch.takes {
            self.t_batch.push(number);
            self.t_id.push(id);
        }
        for ask in &batch.asks {
            self.q_batch.push(number);
            self.q_id.push(&ask.id);
            self.q_kind.push(&ask.kind);
            self.q_append.push(append(&ask.log));
            let expires = ask.expires_in.map(|time| i64::try_from(time.as_millis()));
            // A time that no calendar reaches is no limit.
            self.q_expires.push(expires.and_then(Result::ok).filter(|time| *time < i64::MAX / 2));
        }
        for node in &batch.vault {
            self.n_batch.push(number);
            self.n_id.push(&node.id.0);
            self.n_parent.push(node.parent.as_ref().map(|parent| &*parent.0));
            self.n_append.push(append(&node.log));
            self.n_prefix.push(node.prefix.as_ref().map(<[u8; 32]>::as_slice));
            for key in &node.keys {
                self.k_node.push(count(&self.n_batch));
                self.k_kind.push(key.kind.number());
                self.k_hash.push(&key.hash);
            }
        }
        for erase in &batch.erases {
            self.e_batch.push(number);
            self.e_log.push(&erase.log.0);
            self.e_why.push(erase.why.number());
            self.e_all.push(erase.seqs.is_none());
            self.e_checkpoints.push(erase.checkpoints);
            self.e_kin.push(erase.kin.map(signed));
            self.e_note.push(erase.note.as_ref().map(|(name, _)| name.as_str()));
            self.e_note_value.push(erase.note.as_ref().map(|(_, value)| &**value));
            for seq in erase.seqs.iter().flatten() {
                self.s_erase.push(count(&self.e_batch));
                self.s_seq.push(signed(*seq));
            }
        }
    }

    /// The parameters of [`STATEMENT`].
    #[rustfmt::skip]
    pub(super) fn params<'p>(&'p self, first: [&'p (dyn ToSql + Sync); 3]) -> Vec<&'p (dyn ToSql + Sync)> {
        let mut params = first.to_vec();
        params.extend([
            &self.locks as &(dyn ToSql + Sync), &self.alone, &self.tenants, &self.tenant_names, &self.b_tenant,
            &self.o_batch, &self.o_hash,
            &self.a_batch, &self.a_log, &self.a_kind, &self.a_of, &self.a_fork, &self.a_fork_at,
            &self.a_expect, &self.a_guard, &self.a_rewind, &self.a_status,
            &self.r_append, &self.r_kind, &self.r_at, &self.r_events, &self.r_about, &self.r_size,
            &self.r_commitment, &self.r_content, &self.r_epoch, &self.r_salt, &self.r_blob, &self.r_blob_content,
            &self.t_batch, &self.t_id,
            &self.q_batch, &self.q_id, &self.q_kind, &self.q_append, &self.q_expires,
            &self.n_batch, &self.n_id, &self.n_parent, &self.n_append, &self.n_prefix,
            &self.k_node, &self.k_kind, &self.k_hash,
            &self.e_batch, &self.e_log, &self.e_why, &self.e_all, &self.s_erase, &self.s_seq,
            &self.e_checkpoints, &self.e_kin, &self.e_note, &self.e_note_value,
        ]);
        params
    }
}

/// What the database did with a batch.
pub(super) struct Done {
    pub(super) receipt: Receipt,
    /// The numbers of the logs that were written to, in the order of the receipt.
    pub(super) logs: Vec<i64>,
}

/// What became of a batch.
pub(super) fn verdict(batch: &SealedBatch, answer: &str) -> Result<Done, StoreError> {
    if let Some(receipt) = answer.strip_prefix("again") {
        // Its first line is its name.
        let written = receipt.lines().skip(1).map(once_written).collect::<Option<_>>();
        let written = written.ok_or_else(|| damaged("a receipt"))?;
        return Ok(Done { receipt: Receipt { written, repeated: true }, logs: Vec::new() });
    }
    if let Some(lines) = answer.strip_prefix("ok") {
        let mut done =
            Done { receipt: Receipt { written: Vec::new(), repeated: false }, logs: Vec::new() };
        for (append, line) in batch.appends.iter().zip(lines.lines().skip(1)) {
            let mut numbers = line.split(' ').map(|number| number.parse::<u64>().ok());
            let mut next = || numbers.next().flatten().ok_or_else(|| damaged("an answer"));
            let log = append.log.clone();
            done.receipt.written.push(Written {
                log,
                first: next()?,
                last: next()?,
                events: next()?,
            });
            done.logs.push(signed(next()?));
        }
        return Ok(done);
    }
    Err(refusal(batch, answer).unwrap_or_else(|| damaged("an answer")))
}

/// What stands in the receipt of a batch that happens once: `log first last events`, with tabs between.
fn once_written(line: &str) -> Option<Written> {
    let mut words = line.rsplitn(4, '\t');
    let mut number = || words.next()?.parse().ok();
    let (events, last, first) = (number()?, number()?, number()?);
    Some(Written { log: LogId::from(words.next()?), first, last, events })
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
        "nolog" => refusal::no_log(&log?),
        "nofork" => refusal::no_thread(&append?.opening.as_ref()?.fork.as_ref()?.log),
        "noof" => refusal::no_thread(append?.opening.as_ref()?.of.as_ref()?),
        "beyond" => {
            let fork = append?.opening.as_ref()?.fork.as_ref()?;
            refusal::fork_beyond(&fork.log, number()?)
        }
        "fenced" => StoreError::Fenced { log: log? },
        "held" => {
            let left_ms = number()?;
            StoreError::Held { log: log?, owner: Name::from(words.next()?), left_ms }
        }
        "gone" => refusal::gone(&log?),
        "nopending" => refusal::not_pending(batch.takes.get(place)?),
        "taken" => {
            let status = if number()? == 1 { PendingStatus::Taken } else { PendingStatus::Expired };
            StoreError::Taken { id: batch.takes.get(place)?.clone(), status }
        }
        "asked" => refusal::asked_before(&batch.asks.get(place)?.id),
        "rewind" => refusal::rewind_beyond(&log?, number()?),
        "turn" => refusal::captured_before(&batch.vault.get(place)?.id),
        "gonefork" => refusal::begins_on_gone(&append?.opening.as_ref()?.fork.as_ref()?.log),
        "goneof" => refusal::begins_on_gone(append?.opening.as_ref()?.of.as_ref()?),
        "kin" => {
            let log = batch.erases.get(place)?.log.clone();
            StoreError::Conflict { log, expected: number()?, found: number()? }
        }
        "noerase" => refusal::no_log(&batch.erases.get(place)?.log),
        _ => return None,
    })
}

/// The database's time, and the heads that the group moved.
pub(super) fn moved(
    tenants: &[Tenant],
    writer: &Name,
    answers: &[String],
) -> Option<(i64, Vec<Head>)> {
    let (mut now, mut heads) = (None, Vec::new());
    for answer in answers {
        if let Some(time) = answer.strip_prefix("now ") {
            now = time.parse().ok();
        } else if let Some(head) = answer.strip_prefix("head ") {
            let mut words = head.split(' ');
            let place = words.next()?.parse::<usize>().ok()?.checked_sub(1)?;
            heads.push(Head {
                tenant: tenants.get(place)?.clone(),
                writer: writer.clone(),
                position: words.next()?.parse().ok()?,
                link: manifest::digest(words.next()?)?,
            });
        }
    }
    Some((now?, heads))
}

fn count<T>(column: &[T]) -> i32 {
    i32::try_from(column.len()).unwrap_or(i32::MAX)
}

fn next<T>(column: &[T]) -> i32 {
    count(column).saturating_add(1)
}
