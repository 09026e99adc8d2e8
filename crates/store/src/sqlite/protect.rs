//! Adds MACs and sums to a new store, or to a store with schema version 1.

use rusqlite::Connection;

use crate::backend::row_sums::add_sums;
use crate::protection::{Protection, SECRET, Upgrade, report_migration};
use crate::sqlite::commit::CommitError;
use crate::sqlite::schema::{self, MIGRATIONS};
use crate::sqlite::tally;
use crate::sqlite::turn_index::ensure_watermark;

/// Adds MACs, sums and the watermark of indexed turns, unless the store already has them.
pub(super) fn protect(db: &Connection, protection: &Protection) -> Result<(), CommitError> {
    add_macs(db, protection)?;
    Ok(ensure_watermark(db, &protection.key)?)
}

fn add_macs(db: &Connection, protection: &Protection) -> Result<(), CommitError> {
    let version = schema::version(db)?;
    let is_counted = version > 1 && tally::stored(db)?.is_some();
    match protection.upgrade(version > 1, is_counted)? {
        Upgrade::None => return Ok(()),
        Upgrade::Mark(secret) => {
            return Ok(tally::set_value(db, Some(&protection.key), SECRET, Some(secret))?);
        }
        Upgrade::AddSums => {}
    }
    if version > 1 {
        return Ok(add_sums(db, protection)?);
    }
    let store = db.path().unwrap_or("the store");
    let records = db.query_row("SELECT count(*) FROM records", [], |row| row.get(0))?;
    report_migration(store, Some(records));
    for migration in MIGRATIONS.iter().skip(1) {
        db.execute_batch(migration)?;
    }
    db.pragma_update(None, "user_version", schema::KNOWN)?;
    add_sums(db, protection)?;
    report_migration(store, None);
    Ok(())
}
