//! Destroys content: salts, sealed bytes, and blobs that no other record references.

use rusqlite::{Connection, params};
use throughline_core::{StoreError, kind};

use crate::row_mac::{IndexTable, LOGS, RowKey, Sum, TENANTS};
use crate::sealed_batch::Erasure;
use crate::sqlite::chains::ChainSegment;
use crate::sqlite::commit::{CommitError, number, unsigned};
use crate::sqlite::statements::{query_all, query_first};
use crate::sqlite::tally;
use crate::sqlite::values::sql_row;

/// A record whose content is destroyed: its row id, its blob's id, and its content size in bytes.
type ErasedRow = (i64, Option<i64>, i64);

/// Checks that the log has as many runs and forks as the caller expects. Does nothing if the caller
/// expects no number.
pub(super) fn check_family_size(
    db: &Connection,
    tenant: i64,
    erase: &Erasure,
) -> Result<(), CommitError> {
    let Some(expected) = erase.child_count else { return Ok(()) };
    let count = "SELECT (SELECT count(*) FROM logs WHERE tenant = ?1 AND of = l.id)
                 + (SELECT count(*) FROM logs WHERE tenant = ?1 AND fork = l.id)
                 FROM logs l WHERE l.tenant = ?1 AND l.name = ?2";
    let found = query_first(db, count, params![tenant, erase.log.0], |row| row.get(0))?;
    let found = unsigned(found.unwrap_or(0));
    if found == expected {
        return Ok(());
    }
    Err(StoreError::Conflict { log: erase.log.clone(), expected, found }.into())
}

/// Destroys content and increments the tenant's erasure epoch. Erasure records keep their content.
pub(super) fn destroy(
    db: &Connection,
    key: &RowKey,
    segment: &mut ChainSegment,
    erase: &Erasure,
) -> rusqlite::Result<()> {
    let tenant = segment.tenant;
    let log = "SELECT id FROM logs WHERE tenant = ?1 AND name = ?2";
    let log = query_first(db, log, params![tenant, erase.log.0], |row| row.get::<_, i64>(0))?;
    let Some(log) = log else { return Ok(()) };
    let find = |condition: &str, seq: i64| -> rusqlite::Result<Vec<ErasedRow>> {
        let find = format!(
            "SELECT id, blob, size FROM records WHERE tenant = ?1 AND log = ?2 AND erased IS NULL
             AND kind NOT IN ('{}', '{}') AND {condition}",
            kind::FORGOTTEN,
            kind::EXPIRED
        );
        let erased = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        query_all(db, &find, params![tenant, log, seq], erased)
    };
    let mut rows = Vec::new();
    match &erase.seqs {
        None => rows = find("seq >= ?3", i64::MIN)?,
        Some(seqs) => {
            for seq in seqs {
                rows.extend(find("seq = ?3", number(*seq))?);
            }
        }
    }
    if erase.checkpoints {
        rows.extend(find("kind = 'checkpoint' AND seq >= ?3", i64::MIN)?);
        rows.sort_unstable();
        rows.dedup();
    }
    for (id, ..) in &rows {
        db.prepare_cached("DELETE FROM salts WHERE record = ?1")?.execute([id])?;
        let empty = "UPDATE records SET content = NULL, blob = NULL, erased = ?2 WHERE id = ?1";
        db.prepare_cached(empty)?.execute(params![id, erase.reason.number()])?;
    }
    for blob in rows.iter().filter_map(|(_, blob, _)| *blob) {
        let unused = "DELETE FROM blobs WHERE id = ?1 AND NOT EXISTS
                      (SELECT 1 FROM records WHERE blob = ?1)";
        db.prepare_cached(unused)?.execute([blob])?;
    }
    let bytes: i64 = rows.iter().map(|(_, _, size)| size).sum();
    let gone = erase.seqs.is_none().then(|| erase.reason.number());
    let log_mac = || row_mac(db, key, &LOGS, log);
    segment.sums().remove(&LOGS, log_mac()?);
    let mark = "UPDATE logs SET bytes = bytes - ?2, gone = coalesce(?3, gone) WHERE id = ?1";
    db.prepare_cached(mark)?.execute(params![log, bytes, gone])?;
    segment.sums().add(&LOGS, log_mac()?);
    let before = row_mac(db, key, &TENANTS, tenant)?;
    db.prepare_cached("UPDATE tenants SET era = era + 1 WHERE id = ?1")?.execute([tenant])?;
    let after = row_mac(db, key, &TENANTS, tenant)?;
    tally::change(db, key, |sums| {
        sums.remove(&TENANTS, before);
        sums.add(&TENANTS, after);
    })
}

/// Returns the current MAC of the row with this id.
fn row_mac(db: &Connection, key: &RowKey, table: &IndexTable, id: i64) -> rusqlite::Result<Sum> {
    let find = format!("SELECT {} FROM {} WHERE id = ?1", table.columns, table.name);
    db.prepare_cached(&find)?.query_row([id], sql_row).map(|row| row.mac(key, table))
}
