//! The tally: the sums of the store-wide tables. Every transaction that changes such a table reads
//! and rewrites the tally, because other processes change these tables too. The cost is acceptable,
//! because such changes are rare.

use bytes::Bytes;
use rusqlite::{Connection, params};
use throughline_core::StoreError;

use crate::row_mac::{KEPT, RowKey, StoreSums, TALLY_NAME, Tally, fields};
use crate::sqlite::statements::query_first;
use crate::sqlite::values::own_error;

/// Returns an internal value, or `None` if it does not exist.
pub(super) fn value(db: &Connection, name: &str) -> rusqlite::Result<Option<Bytes>> {
    let find = "SELECT value FROM kept WHERE name = ?1";
    query_first(db, find, [name], |row| row.get::<_, Vec<u8>>(0).map(Bytes::from))
}

pub(super) fn stored(db: &Connection) -> rusqlite::Result<Option<Bytes>> {
    value(db, TALLY_NAME)
}

/// Changes the sums in the tally. If an attacker removed or modified the tally, leaves it as it is.
/// The store then keeps working, and verification reports the tampering.
pub(super) fn change(
    db: &Connection,
    key: &RowKey,
    change: impl FnOnce(&mut StoreSums),
) -> rusqlite::Result<()> {
    let Some(mut tally) = stored(db)?.and_then(|stored| Tally::parse(key, &stored)) else {
        return Ok(());
    };
    change(&mut tally.sums);
    tally.changes += 1;
    write(db, TALLY_NAME, tally.print(key).as_bytes())
}

fn write(db: &Connection, name: &str, value: &[u8]) -> rusqlite::Result<()> {
    let set = "INSERT INTO kept VALUES (?1, ?2)
               ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    db.prepare_cached(set)?.execute(params![name, value]).map(drop)
}

/// Sets or deletes an internal value and updates the sums. `key` is `None` only while a new store
/// is being opened. Values that are set during opening are added to the sums later.
pub(super) fn set_value(
    db: &Connection,
    key: Option<&RowKey>,
    name: &str,
    value: Option<&[u8]>,
) -> rusqlite::Result<()> {
    let before = self::value(db, name)?;
    match value {
        Some(value) => write(db, name, value)?,
        None => {
            db.prepare_cached("DELETE FROM kept WHERE name = ?1")?.execute([name])?;
        }
    }
    let Some(key) = key else {
        if stored(db)?.is_none() {
            return Ok(());
        }
        let problem = "another process created the store at the same time; open the store again";
        return Err(own_error(StoreError::invalid(problem)));
    };
    let mac = |value: &[u8]| key.row(&KEPT, &fields![name, value]);
    change(db, key, |sums| {
        if let Some(before) = &before {
            sums.remove(&KEPT, mac(before));
        }
        if let Some(value) = value {
            sums.add(&KEPT, mac(value));
        }
    })
}
