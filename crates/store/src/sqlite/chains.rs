//! The chains of this writer: each tenant's chain head, and the changes that the next manifest must
//! cover.

use std::collections::HashMap;

use rusqlite::{Connection, params};
use throughline_core::{Digest, Tenant};
use throughline_json::Name;

use crate::chain::{GENESIS, Head, Link};
use crate::manifest::Manifest;
use crate::row_mac::{MANIFESTS, RowKey, RowState, SegmentRow, SegmentSums, Sums, TENANTS, fields};
use crate::sqlite::commit::{number, unsigned};
use crate::sqlite::plan::LogCache;
use crate::sqlite::statements::{Statements, query_first};
use crate::sqlite::tally;
use crate::sqlite::turn_index::RecentTurn;

/// The chains of this writer, one per tenant.
pub(super) struct Chains {
    pub(super) writer: Name,
    /// The key for row MACs, set once the store's keys are loaded.
    pub(super) key: Option<RowKey>,
    /// The state of each tenant's segment after the current transaction.
    segments: HashMap<Tenant, ChainSegment>,
    /// Time of the last manifest, in milliseconds since 1970.
    signed: i64,
    /// Cached state of the logs that this writer writes to.
    pub(super) known: LogCache,
    /// The turns that the current transaction captured.
    pub(super) captured: Vec<RecentTurn>,
}

pub(super) struct ChainSegment {
    /// Row id of the tenant.
    pub(super) tenant: i64,
    /// Row id of the segment.
    pub(super) id: i64,
    state: SegmentState,
    /// The state before this transaction; `None` if this transaction created the segment.
    before: Option<SegmentState>,
    /// Whether commits have changed the segment since the last manifest.
    moved: bool,
}

/// The mutable columns of a segment's row.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SegmentState {
    position: u64,
    link: Link,
    changes: i64,
    sums: SegmentSums,
}

impl ChainSegment {
    /// Returns the chain position of the next record.
    pub(super) fn next(&self) -> u64 {
        self.state.position + 1
    }

    /// Adds the next record to the chain and returns the record's link. `link` computes it from the
    /// previous link.
    pub(super) fn extend(&mut self, link: impl FnOnce(&Link) -> Digest) -> Link {
        self.state.position += 1;
        self.state.link = link(&self.state.link);
        self.state.link
    }

    /// Returns the sums of the segment's index rows, so that the caller can change them.
    pub(super) fn sums(&mut self) -> &mut SegmentSums {
        &mut self.state.sums
    }

    fn is_touched(&self) -> bool {
        self.before != Some(self.state)
    }

    fn is_empty(&self) -> bool {
        self.state.position == 0 && self.state.sums.is_empty()
    }
}

impl Chains {
    pub(super) fn new(writer: Name) -> Self {
        let (segments, known) = (HashMap::new(), LogCache::default());
        Self { writer, key: None, segments, signed: 0, known, captured: Vec::new() }
    }

    /// Returns the tenant's row id, if the tenant exists.
    pub(super) fn tenant(&self, db: &Connection, tenant: &Tenant) -> rusqlite::Result<Option<i64>> {
        if let Some(segment) = self.segments.get(tenant) {
            return Ok(Some(segment.tenant));
        }
        find_tenant(db, tenant)
    }

    /// Returns the tenant's segment, and creates the tenant and the segment if they do not exist.
    pub(super) fn segment(
        &mut self,
        db: &Connection,
        key: &RowKey,
        tenant: &Tenant,
        now: i64,
    ) -> rusqlite::Result<&mut ChainSegment> {
        if !self.segments.contains_key(tenant) {
            let id = find_or_create_tenant(db, key, tenant, now)?;
            let segment = self.load(db, id)?;
            self.segments.insert(tenant.clone(), segment);
        }
        self.segments.get_mut(tenant).ok_or(rusqlite::Error::QueryReturnedNoRows)
    }

    fn load(&self, db: &Connection, tenant: i64) -> rusqlite::Result<ChainSegment> {
        let known = "SELECT id, position, link, changes, sums FROM segments
                     WHERE tenant = ?1 AND writer = ?2";
        let known = query_first(db, known, params![tenant, self.writer], |row| {
            // Unreadable sums are replaced with empty ones. Verification still reports the damage,
            // because the sums no longer match the rows.
            let sums = SegmentSums::parse(row.get_ref(4)?.as_str()?).unwrap_or_default();
            let (position, link, changes) = (unsigned(row.get(1)?), row.get(2)?, row.get(3)?);
            Ok((row.get(0)?, SegmentState { position, link, changes, sums }))
        });
        if let Some((id, state)) = known? {
            return Ok(ChainSegment { tenant, id, state, before: Some(state), moved: true });
        }
        // The MAC is written together with the sums, before the transaction ends.
        let add = "INSERT INTO segments (tenant, writer, position, link, mac)
                   VALUES (?1, ?2, 0, ?3, x'')";
        db.prepare_cached(add)?.execute(params![tenant, self.writer, GENESIS])?;
        let id = db.last_insert_rowid();
        let state = SegmentState { position: 0, link: GENESIS, changes: 0, sums: Sums::default() };
        Ok(ChainSegment { tenant, id, state, before: None, moved: false })
    }

    /// Writes the chain heads and row sums of all segments that the transaction changed.
    pub(super) fn write_heads(&mut self, hot: &mut Statements<'_>) -> rusqlite::Result<()> {
        // Without the key, every batch was rejected.
        let Some(key) = &self.key else { return Ok(()) };
        let mut unused = Vec::new();
        for (tenant, segment) in &mut self.segments {
            if !segment.is_touched() {
                continue;
            }
            // The batch was rejected after it created this segment.
            if segment.before.is_none() && segment.is_empty() {
                hot.db.execute("DELETE FROM segments WHERE id = ?1", [segment.id])?;
                unused.push(tenant.clone());
                continue;
            }
            segment.state.changes = segment.before.map_or(0, |before| before.changes) + 1;
            let SegmentState { position, link, changes, sums } = segment.state;
            let (id, tenant, writer) = (segment.id, segment.tenant, self.writer.clone());
            let (position, sums) = (number(position), sums.print());
            let row = SegmentRow { id, tenant, writer, position, link, changes, sums };
            let mac = key.segment(&row);
            hot.move_head.execute(params![id, position, link, changes, row.sums, mac])?;
        }
        for tenant in unused {
            self.segments.remove(&tenant);
        }
        Ok(())
    }

    pub(super) fn committed(&mut self) {
        for segment in self.segments.values_mut() {
            segment.moved |= segment.is_touched();
            segment.before = Some(segment.state);
        }
    }

    /// Restores the state before the current transaction.
    pub(super) fn roll_back(&mut self) {
        self.known.clear();
        self.captured.clear();
        self.segments
            .retain(|_, segment| segment.before.map(|before| segment.state = before).is_some());
    }

    pub(super) fn have_moved(&self) -> bool {
        self.segments.values().any(|segment| segment.moved)
    }

    pub(super) fn is_manifest_due(&self, now: i64) -> bool {
        now.saturating_sub(self.signed) >= 1000
    }

    /// Returns the heads and row sums that the next manifest must contain.
    pub(super) fn moved(&self) -> (Vec<Head>, Vec<RowState>) {
        let mut moved: Vec<_> = self
            .segments
            .iter()
            .filter(|(_, segment)| segment.moved || segment.is_touched())
            .collect();
        moved.sort_by_key(|(tenant, _)| *tenant);
        let heads = moved.iter().filter(|(_, segment)| segment.state.position > 0);
        let heads = heads.map(|(tenant, segment)| Head {
            tenant: Tenant::clone(tenant),
            writer: self.writer.clone(),
            position: segment.state.position,
            link: segment.state.link,
        });
        let rows = moved.iter().map(|(tenant, segment)| RowState {
            segment: Some((Tenant::clone(tenant), self.writer.clone())),
            changes: segment.state.changes,
            digest: segment.state.sums.digest(),
        });
        (heads.collect(), rows.collect())
    }

    pub(super) fn signed(&mut self, now: i64) {
        self.signed = now;
        for segment in self.segments.values_mut() {
            segment.moved = false;
        }
    }
}

fn find_tenant(db: &Connection, tenant: &Tenant) -> rusqlite::Result<Option<i64>> {
    query_first(db, "SELECT id FROM tenants WHERE name = ?1", [&tenant.0], |row| row.get(0))
}

/// Returns the tenant's row id, and creates the tenant if it does not exist.
pub(super) fn find_or_create_tenant(
    db: &Connection,
    key: &RowKey,
    tenant: &Tenant,
    now: i64,
) -> rusqlite::Result<i64> {
    if let Some(id) = find_tenant(db, tenant)? {
        return Ok(id);
    }
    let add = "INSERT INTO tenants (name, created) VALUES (?1, ?2)";
    db.prepare_cached(add)?.execute(params![tenant.0, now])?;
    let id = db.last_insert_rowid();
    tally::change(db, key, |sums| {
        sums.add(&TENANTS, key.row(&TENANTS, &fields![id, &*tenant.0, 0_i64]));
    })?;
    Ok(id)
}

pub(super) fn write_manifest(
    db: &Connection,
    key: &RowKey,
    manifest: &Manifest,
) -> rusqlite::Result<()> {
    let keep = "INSERT INTO manifests (body, signature) VALUES (?1, ?2)";
    db.prepare_cached(keep)?.execute(params![manifest.body, manifest.signature])?;
    let id = db.last_insert_rowid();
    tally::change(db, key, |sums| {
        let row = fields![id, &*manifest.body, manifest.signature.as_slice()];
        sums.add(&MANIFESTS, key.row(&MANIFESTS, &row));
    })
}
