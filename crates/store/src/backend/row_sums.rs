//! Adds up the MACs of index rows, for verification and for stores that have no sums yet.

use bytes::Bytes;
use throughline_core::Tenant;

use crate::backend::decode::{API_KEY_COLUMNS, api_key, segment};
use crate::chain::GENESIS;
use crate::protection::{MIGRATION_WRITER, Protection, SECRET};
use crate::rejection::{Result, corrupt};
use crate::row_mac::{
    RowKey, RowSnapshot, STORE_TABLES, SegmentSums, TALLY_NAME, TENANT_TABLES, TURN_KEYS, Tally,
};
use crate::sql::{SqlRow, SqlValue, Transaction, values};
use crate::turn_keys::{self, WATERMARK};

const SEGMENTS: &str =
    "SELECT id, tenant, writer, position, link, changes, sums, mac FROM segments";

/// Computes the sums of the index rows and reads the stored sums, both for one tenant or for all
/// tenants.
pub(crate) fn read(db: &dyn Transaction, key: &RowKey, of: Option<&Tenant>) -> Result<RowSnapshot> {
    let mut rows = count(db, key, of)?;
    for row in db.query(&format!("{SEGMENTS} {} ORDER BY id", scope(of)), &tenant(of))? {
        let mac: Option<Bytes> = row.get(7)?;
        rows.segments.push(segment(&row)?.into_snapshot(key, mac.as_deref()));
    }
    if of.is_none() {
        rows.tally = stored_tally(db)?.and_then(|stored| Tally::parse(key, &stored));
    }
    Ok(rows)
}

pub(crate) fn stored_tally(db: &dyn Transaction) -> Result<Option<Bytes>> {
    let tally = db.query("SELECT value FROM kept WHERE name = $1", &values![TALLY_NAME])?;
    tally.first().map(|row| row.get(0)).transpose()
}

fn scope(of: Option<&Tenant>) -> &'static str {
    of.map_or("", |_| "WHERE tenant = (SELECT id FROM tenants WHERE name = $1)")
}

fn tenant(of: Option<&Tenant>) -> Vec<SqlValue> {
    of.map(SqlValue::from).into_iter().collect()
}

/// Adds up the MACs of all index rows, or of one tenant's rows.
fn count(db: &dyn Transaction, key: &RowKey, of: Option<&Tenant>) -> Result<RowSnapshot> {
    let mut read = RowSnapshot::default();
    let of_store = STORE_TABLES.iter().filter(|_| of.is_none());
    for table in TENANT_TABLES.iter().chain(of_store) {
        let scope = if table.name == "kept" { "WHERE name <> 'tally'" } else { scope(of) };
        let sql = format!("SELECT {} FROM {} {scope}", table.columns, table.name);
        db.visit(&sql, &tenant(of), &mut |row: SqlRow| {
            let tenant = table.tenant.map(|column| row.get(column)).transpose()?;
            read.count(table, tenant, row.mac(key, table));
            Ok(())
        })?;
    }
    count_keys_of_turns(db, key, of, &mut read)?;
    let scope = of.map_or("", |_| "WHERE name = $1");
    for row in db.query(&format!("SELECT id, name FROM tenants {scope}"), &tenant(of))? {
        read.names.insert(row.get(0)?, row.get(1)?);
    }
    Ok(read)
}

/// Adds the MACs of the keys in turns' rows to the sum of `turn_keys`. The keys of turns up to the
/// watermark are also rows of `turn_keys`, which the sum must not contain. Removing the MACs of
/// these keys cancels them out, unless a row is missing or was changed. PostgreSQL adds all keys to
/// `turn_keys` at once, so it has no watermark.
fn count_keys_of_turns(
    db: &dyn Transaction,
    key: &RowKey,
    of: Option<&Tenant>,
    read: &mut RowSnapshot,
) -> Result<()> {
    if db.added_columns("turns").is_empty() {
        return Ok(());
    }
    let watermark = db.query("SELECT value FROM kept WHERE name = $1", &values![WATERMARK])?;
    let watermark = match watermark.first() {
        None => i64::MAX,
        Some(row) => {
            let text: Bytes = row.get(0)?;
            let number = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
            number.ok_or_else(|| corrupt!("the value {WATERMARK:?} is not a number"))?
        }
    };
    let scope = of.map_or("", |_| "AND tenant = (SELECT id FROM tenants WHERE name = $1)");
    let sql = format!("SELECT id, tenant, keys FROM turns WHERE keys IS NOT NULL {scope}");
    db.visit(&sql, &tenant(of), &mut |row: SqlRow| {
        let (turn, tenant, keys): (i64, i64, Bytes) = (row.get(0)?, row.get(1)?, row.get(2)?);
        read.count(&TURN_KEYS, Some(tenant), turn_keys::mac(key, tenant, turn, &keys));
        if turn <= watermark {
            let entries = turn_keys::decode(&keys);
            let entries = entries.ok_or_else(|| corrupt!("the keys of turn {turn} are invalid"))?;
            for entry in entries {
                let mac = turn_keys::row_mac(key, tenant, turn, &entry);
                read.uncount(&TURN_KEYS, tenant, mac);
            }
        }
        Ok(())
    })
}

/// Adds MACs and sums to the rows of a new store, or of a store with schema version 1.
pub(crate) fn add_sums(db: &dyn Transaction, protection: &Protection) -> Result<()> {
    let Protection { key, api_keys, marked, .. } = protection;
    if let Some(marked) = marked {
        let sql = "UPDATE kept SET value = $2 WHERE name = $1";
        db.query(sql, &values![SECRET, &**marked])?;
    }
    let sql = format!(
        "SELECT {API_KEY_COLUMNS}, k.tenant FROM api_keys k JOIN tenants t ON t.id = k.tenant"
    );
    for row in db.query(&sql, &[])? {
        let (key, tenant): (_, i64) = (api_key(&row)?, row.get(8)?);
        let sql = "UPDATE api_keys SET mac = $3 WHERE tenant = $1 AND id = $2";
        db.query(sql, &values![tenant, &*key.id, &api_keys.mac(&key)])?;
    }
    let read = count(db, key, None)?;
    for (tenant, sums) in &read.tenants {
        let sql = "INSERT INTO segments (tenant, writer, position, link, sums, mac) \
                   VALUES ($1, $2, 0, $3, $4, $5)";
        let (link, sums, no_mac) = (&GENESIS, sums.print(), [].as_slice());
        db.query(sql, &values![*tenant, MIGRATION_WRITER, link, &*sums, no_mac])?;
    }
    let none = SegmentSums::default().print();
    db.query("UPDATE segments SET sums = $1 WHERE sums = ''", &values![&*none])?;
    for row in db.query(SEGMENTS, &[])? {
        let segment = segment(&row)?;
        let sql = "UPDATE segments SET mac = $2 WHERE id = $1";
        db.query(sql, &values![segment.id, &key.segment(&segment)])?;
    }
    let tally = Tally { changes: 1, sums: read.store }.print(key);
    let sql = "INSERT INTO kept (name, value) VALUES ($1, $2)";
    db.query(sql, &values![TALLY_NAME, tally.as_bytes()])?;
    Ok(())
}
