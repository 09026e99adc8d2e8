//! The chains of this writer: where each tenant's ends, and what a manifest is to sign.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, params};
use throughline_core::{Digest, Name, Tenant};

use crate::chain::{GENESIS, Head, Link};
use crate::manifest::Manifest;
use crate::row_mac::{
    Field, MANIFESTS, RowKey, RowState, SegmentRow, SegmentSums, Sums, TENANTS, Table,
};
use crate::sqlite::commit::{number, unsigned};
use crate::sqlite::hot::Hot;
use crate::sqlite::plan::Known;
use crate::sqlite::tally;

/// The chains of this writer, one for each tenant.
pub(super) struct Chains {
    pub(super) writer: Name,
    /// The key of row MACs, once the store's keys are open.
    pub(super) key: Option<RowKey>,
    /// As they will be when the transaction is committed.
    segments: HashMap<Tenant, Segment>,
    /// When the last manifest was signed.
    signed: i64,
    /// What the logs are that it writes to.
    pub(super) known: Known,
}

/// One tenant's chain.
pub(super) struct Segment {
    /// The tenant's row.
    pub(super) tenant: i64,
    /// Its own row.
    pub(super) id: i64,
    state: State,
    /// The state before this transaction; nothing where this transaction began it.
    before: Option<State>,
    /// Committed since the last manifest.
    moved: bool,
}

/// What the row of a segment says.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    position: u64,
    link: Link,
    changes: i64,
    sums: SegmentSums,
}

impl Segment {
    /// The position of the next record.
    pub(super) fn next(&self) -> u64 {
        self.state.position + 1
    }

    /// Takes the next record in.
    pub(super) fn extend(&mut self, link: impl FnOnce(&Link) -> Digest) -> Link {
        self.state.position += 1;
        self.state.link = link(&self.state.link);
        self.state.link
    }

    /// Counts an index row in.
    pub(super) fn add_row(&mut self, key: &RowKey, table: &Table, fields: &[Field<'_>]) {
        self.state.sums.add(table, key.row(table, fields));
    }

    /// Counts an index row out.
    pub(super) fn remove_row(&mut self, key: &RowKey, table: &Table, fields: &[Field<'_>]) {
        self.state.sums.remove(table, key.row(table, fields));
    }

    /// The sums of its index rows.
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
        let (segments, known) = (HashMap::new(), Known::default());
        Self { writer, key: None, segments, signed: 0, known }
    }

    /// The tenant's row, if it has one.
    pub(super) fn tenant(
        &self,
        db: &Connection,
        tenant: &Tenant,
    ) -> Result<Option<i64>, rusqlite::Error> {
        if let Some(segment) = self.segments.get(tenant) {
            return Ok(Some(segment.tenant));
        }
        find_tenant(db, tenant)
    }

    /// The tenant's segment, made where there is none.
    pub(super) fn segment(
        &mut self,
        db: &Connection,
        key: &RowKey,
        tenant: &Tenant,
        now: i64,
    ) -> Result<&mut Segment, rusqlite::Error> {
        if !self.segments.contains_key(tenant) {
            let id = tenant_made(db, key, tenant, now)?;
            let segment = self.load(db, id)?;
            self.segments.insert(tenant.clone(), segment);
        }
        self.segments.get_mut(tenant).ok_or(rusqlite::Error::QueryReturnedNoRows)
    }

    fn load(&self, db: &Connection, tenant: i64) -> Result<Segment, rusqlite::Error> {
        let known = "SELECT id, position, link, changes, sums FROM segments
                     WHERE tenant = ?1 AND writer = ?2";
        let known = db.prepare_cached(known)?.query_row(params![tenant, self.writer], |row| {
            let sums = row.get_ref(4)?.as_str()?;
            let state = State {
                position: unsigned(row.get(1)?),
                link: row.get(2)?,
                changes: row.get(3)?,
                // Unreadable sums stay wrong: the MAC of the row does not match.
                sums: SegmentSums::parse(sums).unwrap_or_default(),
            };
            Ok((row.get::<_, i64>(0)?, state))
        });
        if let Some((id, state)) = known.optional()? {
            return Ok(Segment { tenant, id, state, before: Some(state), moved: true });
        }
        // Its MAC is written with its sums, before the transaction ends.
        let add = "INSERT INTO segments (tenant, writer, position, link, mac)
                   VALUES (?1, ?2, 0, ?3, x'')";
        db.prepare_cached(add)?.execute(params![tenant, self.writer, GENESIS])?;
        let id = db.last_insert_rowid();
        let state = State { position: 0, link: GENESIS, changes: 0, sums: Sums::default() };
        Ok(Segment { tenant, id, state, before: None, moved: false })
    }

    /// Writes where the chains end now, and the sums of their index rows.
    pub(super) fn write_heads(
        &mut self,
        hot: &mut Hot<'_>,
        key: &RowKey,
    ) -> Result<(), rusqlite::Error> {
        let mut unused = Vec::new();
        for (tenant, segment) in &mut self.segments {
            if !segment.is_touched() {
                continue;
            }
            // A batch was refused after its segment was made.
            if segment.before.is_none() && segment.is_empty() {
                hot.db.execute("DELETE FROM segments WHERE id = ?1", [segment.id])?;
                unused.push(tenant.clone());
                continue;
            }
            segment.state.changes = segment.before.map_or(0, |before| before.changes) + 1;
            let State { position, link, changes, sums } = segment.state;
            let (position, sums) = (number(position), sums.print());
            let mac = key.segment(&SegmentRow {
                id: segment.id,
                tenant: segment.tenant,
                writer: &self.writer,
                position,
                link: &link,
                changes,
                sums: &sums,
            });
            hot.move_head.execute(params![segment.id, position, link, changes, sums, mac])?;
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

    /// Nothing of the transaction holds: the chains end where they ended before it.
    pub(super) fn roll_back(&mut self) {
        self.known.clear();
        self.segments.retain(|_, segment| match segment.before {
            None => false,
            Some(before) => {
                segment.state = before;
                true
            }
        });
    }

    pub(super) fn have_moved(&self) -> bool {
        self.segments.values().any(|segment| segment.moved)
    }

    pub(super) fn is_manifest_due(&self, now: i64) -> bool {
        now.saturating_sub(self.signed) >= 1000
    }

    /// The heads and the row sums that a manifest is to sign.
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

fn find_tenant(db: &Connection, tenant: &Tenant) -> Result<Option<i64>, rusqlite::Error> {
    let known = "SELECT id FROM tenants WHERE name = ?1";
    db.prepare_cached(known)?.query_row([&tenant.0], |row| row.get(0)).optional()
}

/// The tenant's row, made where there is none.
pub(super) fn tenant_made(
    db: &Connection,
    key: &RowKey,
    tenant: &Tenant,
    now: i64,
) -> Result<i64, rusqlite::Error> {
    if let Some(id) = find_tenant(db, tenant)? {
        return Ok(id);
    }
    let add = "INSERT INTO tenants (name, created) VALUES (?1, ?2)";
    db.prepare_cached(add)?.execute(params![tenant.0, now])?;
    let id = db.last_insert_rowid();
    tally::change(db, key, |sums| {
        sums.add(&TENANTS, key.row(&TENANTS, &[id.into(), (&*tenant.0).into(), 0.into()]));
    })?;
    Ok(id)
}

pub(super) fn write_manifest(
    db: &Connection,
    key: &RowKey,
    manifest: &Manifest,
) -> Result<(), rusqlite::Error> {
    let keep = "INSERT INTO manifests (body, signature) VALUES (?1, ?2)";
    db.prepare_cached(keep)?.execute(params![manifest.body, manifest.signature])?;
    let id = db.last_insert_rowid();
    tally::change(db, key, |sums| {
        let row = [id.into(), manifest.body.as_str().into(), manifest.signature.as_slice().into()];
        sums.add(&MANIFESTS, key.row(&MANIFESTS, &row));
    })
}
