//! Finds captured turns by their keys.
//!
//! Keys are hashes, so adding a turn's keys to the table `turn_keys` changes about one page per
//! key.
//! The writer therefore stores the keys in the turn's row, and later adds the keys of many turns to
//! the table in sorted order: see [`Options::index_batch`](crate::Options::index_batch). The
//! watermark is the id of the last turn whose keys are in the table.
//!
//! A lookup reads, in one snapshot, the watermark, the id of the newest turn and the table. The
//! keys of the turns between the two ids are in memory: the writer adds its own turns after each
//! commit, and a lookup reads the turns that other processes added. A match in memory is therefore
//! never taken as unique while another process has a second turn with the same key.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use rusqlite::{Connection, Row, params};
use throughline_core::{ErasureEpoch, Tenant, VaultLookup, VaultMatch, VaultTurn};

use crate::backend::decode::vault_turn;
use crate::row_mac::RowKey;
use crate::sealed_batch::{KeyKind, SealedKey};
use crate::sql::values;
use crate::sqlite::commit::unsigned;
use crate::sqlite::statements::{query_all, query_first};
use crate::sqlite::tally;
use crate::sqlite::values::{own_error, select};
use crate::sync::lock;
use crate::turn_keys::{self, WATERMARK};

/// A captured turn whose keys are not in the table yet.
pub(super) struct RecentTurn {
    pub(super) id: i64,
    /// Row id of the tenant.
    pub(super) tenant: i64,
    pub(super) keys: Vec<SealedKey>,
    /// The turn as a lookup returns it, and the erasure epoch in which it was written. `None` if
    /// another process wrote the turn.
    pub(super) written: Option<(VaultTurn, ErasureEpoch)>,
}

/// The turns whose keys are not in the table yet.
pub(super) struct RecentTurns {
    /// Number of turns after which their keys are added to the table.
    batch: i64,
    memory: Mutex<KeysInMemory>,
}

/// The keys of all turns after `low` and up to `high`.
#[derive(Default)]
struct KeysInMemory {
    low: i64,
    high: i64,
    /// The last turn that this process captured. It may be after `high`, if other processes
    /// captured turns in between.
    newest: i64,
    /// The turns in ascending order of their ids.
    turns: VecDeque<RecentTurn>,
    /// The ids of the turns with each key of a tenant, in ascending order.
    by_key: HashMap<(i64, SealedKey), Vec<i64>>,
}

impl RecentTurns {
    pub(super) fn new(batch: usize) -> Self {
        let batch = i64::try_from(batch).unwrap_or(i64::MAX).max(1);
        Self { batch, memory: Mutex::default() }
    }

    /// Adds turns that this process has just committed. If another process added turns in between,
    /// the next lookup reads all of them.
    pub(super) fn publish(&self, turns: impl IntoIterator<Item = RecentTurn>) {
        let mut memory = lock(&self.memory);
        for turn in turns {
            memory.newest = turn.id;
            if turn.id == memory.high + 1 {
                memory.add(turn);
            }
        }
    }

    /// Returns whether enough turns were captured to add their keys to the table.
    pub(super) fn is_full(&self) -> bool {
        let memory = lock(&self.memory);
        memory.newest.max(memory.high) - memory.low >= self.batch
    }

    /// Returns whether so many turns were captured that their keys are added even under load.
    pub(super) fn is_overdue(&self) -> bool {
        let memory = lock(&self.memory);
        (memory.newest.max(memory.high) - memory.low) / 2 >= self.batch
    }

    /// Removes the turns whose keys are in the table, after [`index_turns`] was committed.
    pub(super) fn remove_indexed(&self, watermark: i64) {
        lock(&self.memory).raise_low(watermark);
    }

    /// Reads the turns that other processes added, so that all keys between the watermark and the
    /// newest turn of the snapshot are in memory.
    fn refresh(
        &self,
        db: &Connection,
        watermark: i64,
        newest: i64,
    ) -> rusqlite::Result<MutexGuard<'_, KeysInMemory>> {
        let mut memory = lock(&self.memory);
        memory.raise_low(watermark);
        if memory.high < newest {
            for turn in turns_between(db, memory.high, newest)? {
                memory.add(turn);
            }
            memory.high = newest;
        }
        Ok(memory)
    }
}

impl KeysInMemory {
    fn add(&mut self, turn: RecentTurn) {
        for key in &turn.keys {
            let turns = self.by_key.entry((turn.tenant, *key)).or_default();
            if turns.last() != Some(&turn.id) {
                turns.push(turn.id);
            }
        }
        self.high = turn.id;
        self.turns.push_back(turn);
    }

    fn raise_low(&mut self, low: i64) {
        while let Some(turn) = self.turns.pop_front_if(|turn| turn.id <= low) {
            for key in turn.keys {
                let entry = (turn.tenant, key);
                let Some(turns) = self.by_key.get_mut(&entry) else { continue };
                turns.retain(|id| *id != turn.id);
                if turns.is_empty() {
                    self.by_key.remove(&entry);
                }
            }
        }
        self.low = self.low.max(low);
        self.high = self.high.max(low);
    }

    /// Returns the ids of the turns with this key, up to the newest turn of a snapshot.
    fn with_key(&self, tenant: i64, key: &SealedKey, newest: i64) -> &[i64] {
        let turns = self.by_key.get(&(tenant, *key)).map(Vec::as_slice).unwrap_or_default();
        turns.get(..turns.partition_point(|id| *id <= newest)).unwrap_or_default()
    }

    /// Returns a turn that this process wrote, unless content was erased since.
    fn written(&self, id: i64, era: ErasureEpoch) -> Option<VaultTurn> {
        let index = self.turns.binary_search_by_key(&id, |turn| turn.id).ok()?;
        let (turn, written_in) = self.turns.get(index)?.written.as_ref()?;
        (*written_in == era).then(|| turn.clone())
    }
}

/// Returns the keys of the turns after `low` and up to `high`. Turns of earlier versions have their
/// keys only in the table.
fn turns_between(db: &Connection, low: i64, high: i64) -> rusqlite::Result<Vec<RecentTurn>> {
    let find = "SELECT id, tenant, keys FROM turns WHERE id > ?1 AND id <= ?2 AND keys IS NOT NULL
                ORDER BY id";
    query_all(db, find, params![low, high], |row| {
        let (id, tenant) = (row.get(0)?, row.get(1)?);
        // Verification reports invalid keys. Other turns must still be found.
        let keys = turn_keys::decode(row.get_ref(2)?.as_blob()?).unwrap_or_default();
        Ok(RecentTurn { id, tenant, keys, written: None })
    })
}

/// Selects a tenant's row id and erasure epoch, the id of the newest turn, and the watermark.
const OWNER: &str = "SELECT t.id, t.era, (SELECT coalesce(max(id), 0) FROM turns),
                     coalesce((SELECT CAST(value AS INTEGER) FROM kept WHERE name = ?2), 0)
                     FROM tenants t WHERE t.name = ?1";

/// The turns of a snapshot whose keys are not in its table.
struct UnindexedTurns<'r> {
    /// Row id of the tenant.
    tenant: i64,
    newest: i64,
    memory: MutexGuard<'r, KeysInMemory>,
    /// Turns that are no longer in memory, because the writer added their keys to the table after
    /// the snapshot.
    removed: Vec<RecentTurn>,
}

impl<'r> UnindexedTurns<'r> {
    /// `owner` is the row that [`OWNER`] selects.
    fn read(db: &Connection, recent: &'r RecentTurns, owner: &Row<'_>) -> rusqlite::Result<Self> {
        let (newest, watermark): (i64, i64) = (owner.get(2)?, owner.get(3)?);
        let memory = recent.refresh(db, watermark, newest)?;
        let low = memory.low.min(newest);
        let removed = if low > watermark { turns_between(db, watermark, low)? } else { Vec::new() };
        Ok(Self { tenant: owner.get(0)?, newest, memory, removed })
    }

    /// Returns the ids of the tenant's turns with this key.
    fn with_key(&self, key: &SealedKey) -> impl Iterator<Item = i64> {
        let removed = self.removed.iter().filter(|turn| turn.tenant == self.tenant);
        let removed = removed.filter(|turn| turn.keys.contains(key)).map(|turn| turn.id);
        removed.chain(self.memory.with_key(self.tenant, key, self.newest).iter().copied())
    }
}

/// Returns the newest turns with a key: see
/// [`Driver::find_newest`](crate::backend::Driver::find_newest).
pub(super) fn find_newest(
    db: &Connection,
    recent: &RecentTurns,
    tenant: &Tenant,
    key: &SealedKey,
    limit: u32,
) -> rusqlite::Result<Vec<VaultTurn>> {
    let mut owner = db.prepare_cached(OWNER)?;
    // While this row is open, all reads see one snapshot of the database.
    let mut owner = owner.query(params![tenant.0, WATERMARK])?;
    let Some(owner) = owner.next()? else { return Ok(Vec::new()) };
    let unindexed = UnindexedTurns::read(db, recent, owner)?;
    let (tenant, mut ids): (_, Vec<i64>) = (unindexed.tenant, unindexed.with_key(key).collect());
    drop(unindexed);
    let in_table = "SELECT turn FROM turn_keys WHERE tenant = ?1 AND kind = ?2 AND hash = ?3
                    ORDER BY turn DESC LIMIT ?4";
    let columns = params![tenant, key.kind.number(), key.hash, limit];
    ids.extend(query_all(db, in_table, columns, |row| row.get::<_, i64>(0))?);
    ids.sort_unstable_by_key(|id| Reverse(*id));
    ids.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    ids.into_iter().filter_map(|id| turn_at(db, tenant, id).transpose()).collect()
}

/// Looks up captured turns by key: see [`Driver::find`](crate::backend::Driver::find).
pub(super) fn find_turns(
    db: &Connection,
    recent: &RecentTurns,
    tenant: &Tenant,
    keys: &[SealedKey],
) -> rusqlite::Result<VaultLookup> {
    let mut owner = db.prepare_cached(OWNER)?;
    // While this row is open, all reads see one snapshot of the database.
    let mut owner = owner.query(params![tenant.0, WATERMARK])?;
    let Some(owner) = owner.next()? else {
        return Ok(VaultLookup { found: vec![None; keys.len()], era: ErasureEpoch::default() });
    };
    let unindexed = UnindexedTurns::read(db, recent, owner)?;
    let (tenant, era) = (unindexed.tenant, ErasureEpoch(unsigned(owner.get(1)?)));
    let memory = &unindexed.memory;
    let mut found: Vec<KeyMatch> = keys
        .iter()
        .map(|key| {
            let mut matched = KeyMatch::default();
            unindexed.with_key(key).for_each(|id| matched.add(id));
            matched.turn = matched.newest.and_then(|id| memory.written(id, era));
            matched
        })
        .collect();
    drop(unindexed);
    let in_table = "SELECT max(turn), count(*) FROM turn_keys
                    WHERE tenant = ?1 AND kind = ?2 AND hash = ?3";
    let mut in_table = db.prepare_cached(in_table)?;
    // Most keys of a request refer to the same turn.
    let mut turns: HashMap<i64, Option<VaultTurn>> = HashMap::new();
    let mut results = Vec::with_capacity(keys.len());
    for (key, matched) in keys.iter().zip(&mut found) {
        let columns = params![tenant, key.kind.number(), key.hash];
        let (last, count): (Option<i64>, u32) =
            in_table.query_row(columns, |row| Ok((row.get(0)?, row.get(1)?)))?;
        matched.count = matched.count.saturating_add(count);
        // The ids in memory are higher than those in the table, unless an import added a turn.
        if last > matched.newest {
            (matched.newest, matched.turn) = (last, None);
        }
        let is_ambiguous = matched.count > 1 && key.kind != KeyKind::Chain;
        // A claim or id that matches several turns matches none.
        let Some(id) = matched.newest.filter(|_| !is_ambiguous) else {
            results.push(None);
            continue;
        };
        let turn = match (matched.turn.take(), turns.get(&id)) {
            (Some(turn), _) => Some(turn),
            (None, Some(turn)) => turn.clone(),
            (None, None) => {
                let turn = turn_at(db, tenant, id)?;
                turns.insert(id, turn.clone());
                turn
            }
        };
        let siblings = matched.count.saturating_sub(1);
        results.push(turn.map(|turn| VaultMatch { turn, siblings }));
    }
    Ok(VaultLookup { found: results, era })
}

/// The turns that have a key.
#[derive(Default)]
struct KeyMatch {
    newest: Option<i64>,
    count: u32,
    /// The newest turn, if it is in memory and valid.
    turn: Option<VaultTurn>,
}

impl KeyMatch {
    fn add(&mut self, id: i64) {
        self.newest = self.newest.max(Some(id));
        self.count = self.count.saturating_add(1);
    }
}

fn turn_at(db: &Connection, tenant: i64, id: i64) -> rusqlite::Result<Option<VaultTurn>> {
    let find = "SELECT u.name, u.parent, l.name, u.first, u.last, u.prefix,
                (SELECT min(r.erased) FROM records r WHERE r.tenant = $1 AND r.log = u.log
                 AND r.seq BETWEEN u.first AND u.last AND r.erased IS NOT NULL AND r.kind <> 'copy')
                FROM turns u JOIN logs l ON l.id = u.log WHERE u.id = $2";
    let turn = select(db, find, &values![tenant, id])?;
    turn.first().map(|row| vault_turn(row, 0)).transpose().map_err(own_error)
}

/// Sets the watermark of a store that has none: the keys of its turns are in the table.
pub(super) fn ensure_watermark(db: &Connection, key: &RowKey) -> rusqlite::Result<()> {
    if tally::value(db, WATERMARK)?.is_some() {
        return Ok(());
    }
    let newest = query_first(db, "SELECT coalesce(max(id), 0) FROM turns", [], |row| row.get(0))?;
    set_watermark(db, key, newest.unwrap_or(0))
}

fn set_watermark(db: &Connection, key: &RowKey, watermark: i64) -> rusqlite::Result<()> {
    tally::set_value(db, Some(key), WATERMARK, Some(watermark.to_string().as_bytes()))
}

/// Adds the keys of all turns after the watermark to the table, in sorted order. Returns the new
/// watermark. The MACs do not change, because those of the turns' rows cover the keys.
pub(super) fn index_turns(db: &Connection, key: &RowKey) -> rusqlite::Result<i64> {
    let find = "SELECT CAST(value AS INTEGER) FROM kept WHERE name = ?1";
    let watermark: Option<i64> = query_first(db, find, [WATERMARK], |row| row.get(0))?;
    let watermark = watermark.unwrap_or(0);
    let turns = turns_between(db, watermark, i64::MAX)?;
    let Some(newest) = turns.last().map(|turn| turn.id) else { return Ok(watermark) };
    let mut rows: Vec<_> = turns
        .iter()
        .flat_map(|turn| {
            turn.keys.iter().map(|key| (turn.tenant, key.kind.number(), key.hash, turn.id))
        })
        .collect();
    rows.sort_unstable();
    let mut add = db.prepare_cached("INSERT OR IGNORE INTO turn_keys VALUES (?1, ?2, ?3, ?4)")?;
    for (tenant, kind, hash, turn) in rows {
        add.execute(params![tenant, kind, hash, turn])?;
    }
    set_watermark(db, key, newest)?;
    Ok(newest)
}
