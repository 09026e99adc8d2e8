//! Reads chains and manifests for verification, and adds up the MACs of index rows: for
//! verification, and once for a store without sums.

use std::sync::Arc;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use throughline_core::{LogId, StoreFuture, Tenant};

use crate::backend::ProofBackend;
use crate::chain::{GENESIS, Head};
use crate::manifest::{Manifest, Signer};
use crate::protection::{MIGRATION_WRITER, Protection, SECRET, Upgrade, report_migration};
use crate::row::{ApiKeyRow, ChainRow};
use crate::row_mac::{
    Field, IndexTable, RowKey, RowMac, RowSnapshot, RowState, STORE_TABLES, SegmentRow,
    SegmentSums, TENANT_TABLES, Tally,
};
use crate::sqlite::admin::{KEY, key_row};
use crate::sqlite::commit::{CommitError, unsigned};
use crate::sqlite::read::{ROW, row};
use crate::sqlite::schema::{self, MIGRATIONS};
use crate::sqlite::statements::query_all;
use crate::sqlite::{Sqlite, admin, last_change, tally};

impl ProofBackend for Sqlite {
    fn protect(&self, protection: Protection) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.writer()?.protect(protection).await })
    }

    fn sign_with(&self, signer: Arc<Signer>) {
        if let Some(writer) = &self.writer {
            writer.sign_with(signer);
        }
    }

    fn last_record(&self) -> StoreFuture<'_, i64> {
        self.readers.read(|db| {
            let find = "SELECT coalesce(max(id), 0) FROM records";
            db.prepare_cached(find)?.query_row([], |row| row.get(0))
        })
    }

    fn chain(
        &self,
        of: Option<&Tenant>,
        after: i64,
        up_to: i64,
        limit: u32,
    ) -> StoreFuture<'_, Vec<ChainRow>> {
        let of = of.map(|tenant| tenant.0.clone());
        self.readers.read(move |db| {
            // The plus prevents an index by tenant, which would sort all records of the tenant for
            // each page.
            let scope = match of {
                None => "?4 IS NULL",
                Some(_) => "+r.tenant = (SELECT id FROM tenants WHERE name = ?4)",
            };
            let find = format!(
                "{ROW}, r.id, t.name, l.name
                 FROM records r LEFT JOIN segments g ON g.id = r.segment AND g.tenant = r.tenant LEFT JOIN salts s ON s.record = r.id
                 AND s.tenant = r.tenant LEFT JOIN tenants t ON t.id = r.tenant LEFT JOIN logs l ON l.id = r.log
                 WHERE r.id > ?1 AND r.id <= ?2 AND {scope} ORDER BY r.id LIMIT ?3"
            );
            query_all(db, &find, params![after, up_to, limit, of], |sql| {
                let (tenant, log) = (Tenant(sql.get(17)?), LogId(sql.get(18)?));
                Ok(ChainRow { id: sql.get(16)?, tenant, log, row: row(sql)? })
            })
        })
    }

    fn heads(&self, of: Option<&Tenant>) -> StoreFuture<'_, Vec<Head>> {
        let of = of.map(|tenant| tenant.0.clone());
        self.readers.read(move |db| {
            let find = "SELECT t.name, g.writer, g.position, g.link
                        FROM segments g JOIN tenants t ON t.id = g.tenant
                        WHERE ?1 IS NULL OR t.name = ?1 ORDER BY g.id";
            query_all(db, find, [of], |row| {
                let (tenant, position) = (Tenant(row.get(0)?), unsigned(row.get(2)?));
                Ok(Head { tenant, writer: row.get(1)?, position, link: row.get(3)? })
            })
        })
    }

    fn manifests(&self, after: i64, limit: u32) -> StoreFuture<'_, Vec<(i64, Manifest)>> {
        self.readers.read(move |db| {
            let find =
                "SELECT id, body, signature FROM manifests WHERE id > ?1 ORDER BY id LIMIT ?2";
            query_all(db, find, params![after, limit], |row| {
                Ok((row.get(0)?, Manifest { body: row.get(1)?, signature: row.get(2)? }))
            })
        })
    }

    fn read_rows(&self, key: RowKey, of: Option<&Tenant>) -> StoreFuture<'_, RowSnapshot> {
        let of = of.cloned();
        self.readers.read(move |db| read(db, &key, of.as_ref()))
    }

    fn row_states(&self) -> StoreFuture<'_, Vec<RowState>> {
        self.readers.read(|db| {
            let find = "SELECT t.name, g.writer, g.changes, g.sums FROM segments g
                        JOIN tenants t ON t.id = g.tenant ORDER BY g.id";
            let mut states = query_all(db, find, [], |row| {
                let segment = Some((Tenant(row.get(0)?), row.get(1)?));
                Ok(RowState::new(segment, row.get(2)?, row.get_ref(3)?.as_str()?))
            })?;
            states.extend(tally::stored(db)?.and_then(|stored| RowState::of_store(&stored)));
            Ok(states)
        })
    }

    fn is_stable(&self) -> bool {
        let is_same = |changed| last_change(&self.path) == Some(changed);
        self.changed.is_none_or(|changed| is_same(changed) && !schema::has_wal(&self.path))
    }

    fn check(&self) -> StoreFuture<'_, Vec<String>> {
        self.readers.read(admin::check)
    }
}

/// Returns the MAC of a row whose first columns are those of the table.
pub(super) fn mac(
    row: &Row<'_>,
    key: &RowKey,
    table: &IndexTable,
) -> Result<RowMac, rusqlite::Error> {
    let mut fields = Vec::with_capacity(9);
    for place in 0..table.columns.split(',').count() {
        fields.push(match row.get_ref(place)? {
            ValueRef::Null => Field::Null,
            ValueRef::Integer(number) => Field::Number(number),
            // No table of the store contains this type.
            ValueRef::Real(number) => Field::Number(i64::from_be_bytes(number.to_be_bytes())),
            ValueRef::Text(text) => Field::Text(text),
            ValueRef::Blob(bytes) => Field::Bytes(bytes),
        });
    }
    Ok(key.row(table, &fields))
}

/// Reads the index rows and the stored sums of one tenant or all tenants, in one snapshot.
fn read(
    db: &Connection,
    key: &RowKey,
    of: Option<&Tenant>,
) -> Result<RowSnapshot, rusqlite::Error> {
    let snapshot = db.unchecked_transaction()?;
    let find = "SELECT id FROM tenants WHERE name = ?1";
    let number = |name: &Tenant| snapshot.query_row(find, [&name.0], |row| row.get(0)).optional();
    let of = match of.map(number).transpose()? {
        Some(None) => return Ok(RowSnapshot::default()),
        of => of.flatten(),
    };
    let mut rows = count(&snapshot, key, of)?;
    let find = format!("{SEGMENTS} WHERE ?1 IS NULL OR tenant = ?1 ORDER BY id");
    rows.segments = query_all(&snapshot, &find, [of], |row| {
        let mac = row.get::<_, Option<Vec<u8>>>(7)?;
        Ok(segment(row)?.into_snapshot(key, mac.as_deref()))
    })?;
    if of.is_none() {
        rows.tally = tally::stored(&snapshot)?.and_then(|stored| Tally::parse(key, &stored));
    }
    Ok(rows)
}

const SEGMENTS: &str =
    "SELECT id, tenant, writer, position, link, changes, sums, mac FROM segments";

fn segment(row: &Row<'_>) -> Result<SegmentRow, rusqlite::Error> {
    Ok(SegmentRow {
        id: row.get(0)?,
        tenant: row.get(1)?,
        writer: row.get(2)?,
        position: row.get(3)?,
        link: row.get(4)?,
        changes: row.get(5)?,
        sums: row.get(6)?,
    })
}

/// Adds up the MACs of all index rows, or of one tenant's rows.
fn count(db: &Connection, key: &RowKey, of: Option<i64>) -> Result<RowSnapshot, rusqlite::Error> {
    let mut read = RowSnapshot::default();
    let of_store = STORE_TABLES.iter().filter(|_| of.is_none());
    for table in TENANT_TABLES.iter().chain(of_store) {
        let (name, columns) = (table.name, table.columns);
        let scope = match of {
            None if name == "kept" => "?1 IS NULL AND name <> 'tally'",
            None => "?1 IS NULL",
            Some(_) => "tenant = ?1",
        };
        let mut find = db.prepare(&format!("SELECT {columns} FROM {name} WHERE {scope}"))?;
        let mut rows = find.query([of])?;
        while let Some(row) = rows.next()? {
            let tenant = table.tenant.map(|place| row.get(place)).transpose()?;
            read.count(table, tenant, mac(row, key, table)?);
        }
    }
    let mut find = db.prepare("SELECT id, name FROM tenants WHERE ?1 IS NULL OR id = ?1")?;
    let mut rows = find.query([of])?;
    while let Some(row) = rows.next()? {
        read.names.insert(row.get(0)?, Tenant(row.get(1)?));
    }
    Ok(read)
}

/// Adds MACs and sums to a new store or a store of version 1.
pub(super) fn protect(db: &Connection, protection: &Protection) -> Result<(), CommitError> {
    let Protection { key, api_keys, marked, .. } = protection;
    let version = schema::version(db)?;
    let is_counted = version > 1 && tally::stored(db)?.is_some();
    match protection.upgrade(version > 1, is_counted)? {
        Upgrade::None => return Ok(()),
        Upgrade::Mark(secret) => {
            return Ok(tally::set_value(db, Some(key), SECRET, Some(secret))?);
        }
        Upgrade::AddSums => {}
    }
    if version < 2 {
        let records = db.query_row("SELECT count(*) FROM records", [], |row| row.get(0))?;
        report_migration(db.path().unwrap_or("the store"), Some(records));
        for migration in MIGRATIONS.iter().skip(1) {
            db.execute_batch(migration)?;
        }
        db.pragma_update(None, "user_version", schema::KNOWN)?;
    }
    if let Some(marked) = marked {
        let set = "UPDATE kept SET value = ?2 WHERE name = ?1";
        db.execute(set, params![SECRET, &**marked])?;
    }
    let rows: Vec<ApiKeyRow> = query_all(db, KEY, [], key_row)?;
    for row in &rows {
        let set = "UPDATE api_keys SET mac = ?3 WHERE id = ?2
                   AND tenant = (SELECT id FROM tenants WHERE name = ?1)";
        let values = params![row.tenant.0, row.id, api_keys.mac(row)];
        db.prepare_cached(set)?.execute(values)?;
    }
    let read = count(db, key, None)?;
    for (tenant, sums) in &read.tenants {
        let add = "INSERT INTO segments (tenant, writer, position, link, sums, mac)
                   VALUES (?1, ?2, 0, ?3, ?4, x'')";
        db.execute(add, params![tenant, MIGRATION_WRITER, GENESIS, sums.print()])?;
    }
    let none = "UPDATE segments SET sums = ?1 WHERE sums = ''";
    db.execute(none, [SegmentSums::default().print()])?;
    for segment in query_all(db, SEGMENTS, [], segment)? {
        let set = "UPDATE segments SET mac = ?2 WHERE id = ?1";
        db.prepare_cached(set)?.execute(params![segment.id, key.segment(&segment)])?;
    }
    tally::write(db, key, &Tally { changes: 1, sums: read.store })?;
    if version < 2 {
        report_migration(db.path().unwrap_or("the store"), None);
    }
    Ok(())
}
