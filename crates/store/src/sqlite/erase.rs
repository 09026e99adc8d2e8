//! Destroys contents: salts, sealed bytes, and large contents without further references.

use rusqlite::{Connection, OptionalExtension, params};
use throughline_core::{StoreError, kind};

use crate::row_mac::{IndexTable, LOGS, RowKey, RowMac, SegmentSums, TENANTS};
use crate::sealed_batch::Erasure;
use crate::sqlite::chains::ChainSegment;
use crate::sqlite::commit::{CommitError, number, unsigned};
use crate::sqlite::{rows, tally};

/// A record that loses its content: its row id, its blob, and its content bytes.
type ErasedRow = (i64, Option<i64>, i64);

/// Checks that the log has the number of runs and forks that the caller expects.
pub(super) fn check_family_size(
    db: &Connection,
    tenant: i64,
    erase: &Erasure,
) -> Result<(), CommitError> {
    let Some(expected) = erase.kin else { return Ok(()) };
    let count = "SELECT (SELECT count(*) FROM logs WHERE tenant = ?1 AND of = l.id)
                 + (SELECT count(*) FROM logs WHERE tenant = ?1 AND fork = l.id)
                 FROM logs l WHERE l.tenant = ?1 AND l.name = ?2";
    let found = db.prepare_cached(count)?.query_row(params![tenant, erase.log.0], |row| row.get(0));
    let found = unsigned(found.optional()?.unwrap_or(0));
    if found == expected {
        return Ok(());
    }
    Err(StoreError::Conflict { log: erase.log.clone(), expected, found }.into())
}

/// Destroys contents. Erase records stay.
pub(super) fn destroy(
    db: &Connection,
    key: &RowKey,
    segment: &mut ChainSegment,
    erase: &Erasure,
) -> Result<(), rusqlite::Error> {
    let tenant = segment.tenant;
    let log = "SELECT id FROM logs WHERE tenant = ?1 AND name = ?2";
    let log = db.prepare_cached(log)?.query_row(params![tenant, erase.log.0], |row| row.get(0));
    let Some(log) = log.optional()? else { return Ok(()) };
    let log: i64 = log;
    let find = format!(
        "SELECT id, blob, size FROM records WHERE tenant = ?1 AND log = ?2 AND erased IS NULL
         AND kind NOT IN ('{}', '{}')",
        kind::FORGOTTEN,
        kind::EXPIRED
    );
    let doomed = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let mut rows: Vec<ErasedRow> = Vec::new();
    match &erase.seqs {
        None => {
            let mut find = db.prepare_cached(&find)?;
            for row in find.query_map(params![tenant, log], doomed)? {
                rows.push(row?);
            }
        }
        Some(seqs) => {
            let mut find = db.prepare_cached(&format!("{find} AND seq = ?3"))?;
            for seq in seqs {
                let row = find.query_row(params![tenant, log, number(*seq)], doomed);
                rows.extend(row.optional()?);
            }
        }
    }
    if erase.checkpoints {
        let mut find = db.prepare_cached(&format!("{find} AND kind = '{}'", kind::CHECKPOINT))?;
        for row in find.query_map(params![tenant, log], doomed)? {
            rows.push(row?);
        }
        rows.sort_unstable();
        rows.dedup();
    }
    for (id, ..) in &rows {
        db.prepare_cached("DELETE FROM salts WHERE record = ?1")?.execute([id])?;
        let empty = "UPDATE records SET content = NULL, blob = NULL, erased = ?2 WHERE id = ?1";
        db.prepare_cached(empty)?.execute(params![id, erase.why.number()])?;
    }
    for blob in rows.iter().filter_map(|(_, blob, _)| *blob) {
        let unused = "DELETE FROM blobs WHERE id = ?1 AND NOT EXISTS
                      (SELECT 1 FROM records WHERE blob = ?1)";
        db.prepare_cached(unused)?.execute([blob])?;
    }
    let bytes: i64 = rows.iter().map(|(_, _, size)| size).sum();
    let gone = erase.seqs.is_none().then(|| erase.why.number());
    update_log_sum(db, key, segment, log, SegmentSums::remove)?;
    let mark = "UPDATE logs SET bytes = bytes - ?2, gone = coalesce(?3, gone) WHERE id = ?1";
    db.prepare_cached(mark)?.execute(params![log, bytes, gone])?;
    update_log_sum(db, key, segment, log, SegmentSums::add)?;
    increment_erasure_epoch(db, key, tenant)
}

/// Adds the log's row to the sums, or removes it.
fn update_log_sum(
    db: &Connection,
    key: &RowKey,
    segment: &mut ChainSegment,
    log: i64,
    count: impl FnOnce(&mut SegmentSums, &'static IndexTable, RowMac),
) -> Result<(), rusqlite::Error> {
    let find = format!("SELECT {} FROM logs WHERE id = ?1", LOGS.columns);
    let mut find = db.prepare_cached(&find)?;
    let mac = find.query_row([log], |row| rows::mac(row, key, &LOGS))?;
    count(segment.sums(), &LOGS, mac);
    Ok(())
}

/// Increments the tenant's erasure epoch.
fn increment_erasure_epoch(
    db: &Connection,
    key: &RowKey,
    tenant: i64,
) -> Result<(), rusqlite::Error> {
    let find = format!("SELECT {} FROM tenants WHERE id = ?1", TENANTS.columns);
    let mac = || {
        let mut find = db.prepare_cached(&find)?;
        find.query_row([tenant], |row| rows::mac(row, key, &TENANTS))
    };
    let before = mac()?;
    db.prepare_cached("UPDATE tenants SET era = era + 1 WHERE id = ?1")?.execute([tenant])?;
    let after = mac()?;
    tally::change(db, key, |sums| {
        sums.remove(&TENANTS, before);
        sums.add(&TENANTS, after);
    })
}
