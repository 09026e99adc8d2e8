//! The chains of this writer: where each tenant's ends, and what a manifest is to sign.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, params};
use throughline_core::{Digest, Name, Tenant};

use crate::chain::{GENESIS, Head, Link};
use crate::manifest::Manifest;
use crate::sqlite::commit::{number, unsigned};
use crate::sqlite::hot::Hot;
use crate::sqlite::plan::Known;

/// The chains of this writer, one for each tenant.
pub(super) struct Chains {
    pub(super) writer: Name,
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
    position: u64,
    link: Link,
    /// Where it ended before this transaction; nothing where this transaction began it.
    before: Option<(u64, Link)>,
    /// Committed since the last manifest.
    moved: bool,
}

impl Segment {
    /// The position of the next record.
    pub(super) fn next(&self) -> u64 {
        self.position + 1
    }

    /// Takes the next record in.
    pub(super) fn extend(&mut self, link: impl FnOnce(&Link) -> Digest) -> Link {
        self.position += 1;
        self.link = link(&self.link);
        self.link
    }

    fn is_touched(&self) -> bool {
        self.before != Some((self.position, self.link))
    }
}

impl Chains {
    pub(super) fn new(writer: Name) -> Self {
        Self { writer, segments: HashMap::new(), signed: 0, known: Known::default() }
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
        let known = "SELECT id FROM tenants WHERE name = ?1";
        db.prepare_cached(known)?.query_row([&tenant.0], |row| row.get(0)).optional()
    }

    /// The tenant's segment, made where there is none.
    pub(super) fn segment(
        &mut self,
        db: &Connection,
        tenant: &Tenant,
        now: i64,
    ) -> Result<&mut Segment, rusqlite::Error> {
        if !self.segments.contains_key(tenant) {
            let id = match self.tenant(db, tenant)? {
                Some(id) => id,
                None => {
                    let add = "INSERT INTO tenants (name, created) VALUES (?1, ?2)";
                    db.prepare_cached(add)?.execute(params![tenant.0, now])?;
                    db.last_insert_rowid()
                }
            };
            let segment = self.load(db, id)?;
            self.segments.insert(tenant.clone(), segment);
        }
        self.segments.get_mut(tenant).ok_or(rusqlite::Error::QueryReturnedNoRows)
    }

    fn load(&self, db: &Connection, tenant: i64) -> Result<Segment, rusqlite::Error> {
        let known = "SELECT id, position, link FROM segments WHERE tenant = ?1 AND writer = ?2";
        let known = db.prepare_cached(known)?.query_row(params![tenant, self.writer], |row| {
            Ok((row.get::<_, i64>(0)?, unsigned(row.get(1)?), row.get::<_, Link>(2)?))
        });
        if let Some((id, position, link)) = known.optional()? {
            let (before, moved) = (Some((position, link)), position > 0);
            return Ok(Segment { tenant, id, position, link, before, moved });
        }
        let add = "INSERT INTO segments (tenant, writer, position, link) VALUES (?1, ?2, 0, ?3)";
        db.prepare_cached(add)?.execute(params![tenant, self.writer, GENESIS])?;
        let id = db.last_insert_rowid();
        Ok(Segment { tenant, id, position: 0, link: GENESIS, before: None, moved: false })
    }

    /// Writes where the chains end now.
    pub(super) fn write_heads(&self, hot: &mut Hot<'_>) -> Result<(), rusqlite::Error> {
        for segment in self.segments.values().filter(|segment| segment.is_touched()) {
            let row = params![segment.id, number(segment.position), segment.link];
            hot.move_head.execute(row)?;
        }
        Ok(())
    }

    pub(super) fn committed(&mut self) {
        for segment in self.segments.values_mut() {
            segment.moved |= segment.is_touched() && segment.position > 0;
            segment.before = Some((segment.position, segment.link));
        }
    }

    /// Nothing of the transaction holds: the chains end where they ended before it.
    pub(super) fn roll_back(&mut self) {
        self.known.clear();
        self.segments.retain(|_, segment| match segment.before {
            None => false,
            Some((position, link)) => {
                (segment.position, segment.link) = (position, link);
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

    /// The heads that a manifest is to sign.
    pub(super) fn moved(&self) -> Vec<Head> {
        let moved = self
            .segments
            .iter()
            .filter(|(_, segment)| segment.position > 0 && (segment.moved || segment.is_touched()));
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
