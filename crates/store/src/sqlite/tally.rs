//! The sums of the store-wide tables. They are read and written in the transaction that changes a
//! row, because such changes are rare and other processes make them too.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, params};
use throughline_core::StoreError;

use crate::row_mac::{Field, KEPT, RowKey, RowMac, StoreSums, TALLY_NAME, Tally};

/// Returns the stored tally.
pub(super) fn stored(db: &Connection) -> Result<Option<Vec<u8>>, rusqlite::Error> {
    let find = "SELECT value FROM kept WHERE name = ?1";
    db.prepare_cached(find)?.query_row([TALLY_NAME], |row| row.get(0)).optional()
}

/// Changes the sums. A tally that was removed or modified stays as it is, so that verification
/// reports it; the store keeps working.
pub(super) fn change(
    db: &Connection,
    key: &RowKey,
    change: impl FnOnce(&mut StoreSums),
) -> Result<(), rusqlite::Error> {
    let Some(mut tally) = stored(db)?.and_then(|stored| Tally::parse(key, &stored)) else {
        return Ok(());
    };
    change(&mut tally.sums);
    tally.changes += 1;
    write(db, key, &tally)
}

/// Writes the tally.
pub(super) fn write(db: &Connection, key: &RowKey, tally: &Tally) -> Result<(), rusqlite::Error> {
    let set = "INSERT INTO kept VALUES (?1, ?2)
               ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    db.prepare_cached(set)?.execute(params![TALLY_NAME, tally.print(key).as_bytes()])?;
    Ok(())
}

/// Sets or deletes a small internal value and updates the sums. Without a key, the store is being
/// opened for the first time and sums its values later.
pub(super) fn set_value(
    db: &Connection,
    key: Option<&RowKey>,
    name: &str,
    value: Option<&[u8]>,
) -> Result<(), rusqlite::Error> {
    let find = "SELECT value FROM kept WHERE name = ?1";
    let before = db.prepare_cached(find)?.query_row([name], |row| row.get::<_, Vec<u8>>(0));
    let before = before.optional()?;
    match value {
        Some(value) => {
            let set = "INSERT INTO kept VALUES (?1, ?2)
                       ON CONFLICT (name) DO UPDATE SET value = excluded.value";
            db.prepare_cached(set)?.execute(params![name, value])?;
        }
        None => {
            db.prepare_cached("DELETE FROM kept WHERE name = ?1")?.execute([name])?;
        }
    }
    let Some(key) = key else {
        return match stored(db)? {
            None => Ok(()),
            Some(_) => {
                let problem = "another process created the store at the same time: open it again";
                let problem = Box::new(StoreError::invalid(problem));
                Err(rusqlite::Error::ToSqlConversionFailure(problem))
            }
        };
    };
    let mac = |value: &[u8]| -> RowMac { key.row(&KEPT, &[name.into(), Field::from(value)]) };
    change(db, key, |sums| {
        if let Some(before) = &before {
            sums.remove(&KEPT, mac(before));
        }
        if let Some(value) = value {
            sums.add(&KEPT, mac(value));
        }
    })
}

/// Returns a small internal value.
pub(super) fn value(db: &Connection, name: &str) -> Result<Option<Bytes>, rusqlite::Error> {
    let find = "SELECT value FROM kept WHERE name = ?1";
    let found = db.prepare_cached(find)?.query_row([name], |row| row.get::<_, Vec<u8>>(0));
    Ok(found.optional()?.map(Bytes::from))
}
