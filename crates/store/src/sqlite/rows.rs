//! Adds up the MACs of index rows: for verification, and once for a store without sums.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use throughline_core::{Name, StoreError, Tenant};

use crate::chain::GENESIS;
use crate::protection::Protection;
use crate::protection::SECRET;
use crate::protection::{MIGRATION_WRITER, report_migration};
use crate::row::ApiKeyRow;
use crate::row_mac::{
    Field, IndexTable, RowKey, RowMac, RowState, STORE_TABLES, SegmentRow, SegmentSums,
    TENANT_TABLES, Tally,
};
use crate::row_mac::{RowSnapshot, SegmentSnapshot};
use crate::sqlite::admin::{KEY, key_row};
use crate::sqlite::commit::CommitError;
use crate::sqlite::schema::{self, MIGRATIONS};
use crate::sqlite::tally;

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
pub(super) fn read(
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
    let find = "SELECT g.id, g.tenant, g.writer, g.position, g.link, g.changes, g.sums, g.mac
                FROM segments g WHERE ?1 IS NULL OR g.tenant = ?1 ORDER BY g.id";
    let mut find = snapshot.prepare_cached(find)?;
    let segments = find.query_map([of], |row| {
        let (writer, sums): (Name, String) = (row.get(2)?, row.get(6)?);
        let link = row.get(4)?;
        let mac = key.segment(&SegmentRow {
            id: row.get(0)?,
            tenant: row.get(1)?,
            writer: &writer,
            position: row.get(3)?,
            link: &link,
            changes: row.get(5)?,
            sums: &sums,
        });
        let holds = row.get::<_, Option<Vec<u8>>>(7)?.is_some_and(|stored| stored == mac);
        let sums = SegmentSums::parse(&sums).filter(|_| holds);
        Ok(SegmentSnapshot { tenant: row.get(1)?, writer, changes: row.get(5)?, sums })
    })?;
    rows.segments = segments.collect::<Result<_, _>>()?;
    if of.is_some() {
        return Ok(rows);
    }
    rows.tally = tally::stored(&snapshot)?.and_then(|stored| Tally::parse(key, &stored));
    Ok(rows)
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

/// Returns the current sums for a manifest.
pub(super) fn states(db: &Connection) -> Result<Vec<RowState>, rusqlite::Error> {
    let find = "SELECT t.name, g.writer, g.changes, g.sums FROM segments g
                JOIN tenants t ON t.id = g.tenant ORDER BY g.id";
    let mut find = db.prepare_cached(find)?;
    let states = find.query_map([], |row| {
        Ok(RowState::new(
            Some((Tenant(row.get(0)?), row.get(1)?)),
            row.get(2)?,
            row.get_ref(3)?.as_str()?,
        ))
    })?;
    let mut states: Vec<RowState> = states.collect::<Result<_, _>>()?;
    states.extend(tally::stored(db)?.and_then(|stored| RowState::of_store(&stored)));
    Ok(states)
}

/// Adds MACs and sums to a new store or a store of version 1.
pub(super) fn protect(db: &Connection, protection: &Protection) -> Result<(), CommitError> {
    let Protection { key, api_keys, is_marked, marked } = protection;
    let version = schema::version(db)?;
    let is_counted = version > 1 && tally::stored(db)?.is_some();
    match (version > 1, is_counted, marked) {
        (false, ..) if *is_marked => {
            let problem = "the MACs of the store's rows were removed: restore a backup";
            return Err(StoreError::Corrupt(problem.into()).into());
        }
        // Another process created the store after this one had read the secret.
        (true, true, Some(marked)) if !is_marked => {
            return Ok(tally::set_value(db, Some(key), SECRET, Some(marked))?);
        }
        // Missing sums are not recomputed; verification reports them.
        (true, true, _) | (true, false, None) => return Ok(()),
        (true, false, Some(_)) if *is_marked => return Ok(()),
        (true, false, Some(_)) | (false, _, _) => {}
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
    sign_keys(db, |row| api_keys.mac(row))?;
    let read = count(db, key, None)?;
    for (tenant, sums) in &read.tenants {
        let add = "INSERT INTO segments (tenant, writer, position, link, sums, mac)
                   VALUES (?1, ?2, 0, ?3, ?4, x'')";
        db.execute(add, params![tenant, MIGRATION_WRITER, GENESIS, sums.print()])?;
    }
    let none = "UPDATE segments SET sums = ?1 WHERE sums = ''";
    db.execute(none, [SegmentSums::default().print()])?;
    sign_segments(db, key)?;
    tally::write(db, key, &Tally { changes: 1, sums: read.store })?;
    if version < 2 {
        report_migration(db.path().unwrap_or("the store"), None);
    }
    Ok(())
}

fn sign_keys(
    db: &Connection,
    mac: impl Fn(&ApiKeyRow) -> throughline_core::Digest,
) -> Result<(), rusqlite::Error> {
    let mut find = db.prepare(KEY)?;
    let rows: Vec<ApiKeyRow> = find.query_map([], key_row)?.collect::<Result<_, _>>()?;
    for row in &rows {
        let set = "UPDATE api_keys SET mac = ?3 WHERE id = ?2
                   AND tenant = (SELECT id FROM tenants WHERE name = ?1)";
        db.prepare_cached(set)?.execute(params![row.tenant.0, row.id, mac(row)])?;
    }
    Ok(())
}

fn sign_segments(db: &Connection, key: &RowKey) -> Result<(), rusqlite::Error> {
    let find = "SELECT id, tenant, writer, position, link, changes, sums FROM segments";
    let mut find = db.prepare(find)?;
    let mut rows = find.query([])?;
    let mut macs = Vec::new();
    while let Some(row) = rows.next()? {
        let (writer, sums): (Name, String) = (row.get(2)?, row.get(6)?);
        let link = row.get(4)?;
        let segment = SegmentRow {
            id: row.get(0)?,
            tenant: row.get(1)?,
            writer: &writer,
            position: row.get(3)?,
            link: &link,
            changes: row.get(5)?,
            sums: &sums,
        };
        macs.push((segment.id, key.segment(&segment)));
    }
    for (id, mac) in macs {
        db.prepare_cached("UPDATE segments SET mac = ?2 WHERE id = ?1")?
            .execute(params![id, mac])?;
    }
    Ok(())
}
