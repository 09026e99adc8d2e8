//! Destroying contents: salts, sealed bytes, and large contents that nothing else refers to.

use rusqlite::{Connection, OptionalExtension, params};
use throughline_core::{StoreError, kind};

use crate::backend::Erase;
use crate::row_mac::{LOGS, RowKey, RowMac, SegmentSums, TENANTS, Table};
use crate::sqlite::chains::Segment;
use crate::sqlite::commit::{Stop, number, unsigned};
use crate::sqlite::{rows, tally};

/// A record that loses its content: its row, its blob, and how many bytes it had.
type Doomed = (i64, Option<i64>, i64);

/// Whether the log has as many runs and forks as whoever looked has seen.
pub(super) fn check_kin(db: &Connection, tenant: i64, erase: &Erase) -> Result<(), Stop> {
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

/// Destroys contents. What says that they were destroyed stays.
pub(super) fn destroy(
    db: &Connection,
    key: &RowKey,
    segment: &mut Segment,
    erase: &Erase,
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
    let mut rows: Vec<Doomed> = Vec::new();
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
    count_log(db, key, segment, log, SegmentSums::remove)?;
    let mark = "UPDATE logs SET bytes = bytes - ?2, gone = coalesce(?3, gone) WHERE id = ?1";
    db.prepare_cached(mark)?.execute(params![log, bytes, gone])?;
    count_log(db, key, segment, log, SegmentSums::add)?;
    count_era(db, key, tenant)
}

/// Counts the log's row in or out.
fn count_log(
    db: &Connection,
    key: &RowKey,
    segment: &mut Segment,
    log: i64,
    count: impl FnOnce(&mut SegmentSums, &'static Table, RowMac),
) -> Result<(), rusqlite::Error> {
    let find = format!("SELECT {} FROM logs WHERE id = ?1", LOGS.columns);
    let mut find = db.prepare_cached(&find)?;
    let mac = find.query_row([log], |row| rows::mac(row, key, &LOGS))?;
    count(segment.sums(), &LOGS, mac);
    Ok(())
}

/// Something of the tenant was destroyed once more.
fn count_era(db: &Connection, key: &RowKey, tenant: i64) -> Result<(), rusqlite::Error> {
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
