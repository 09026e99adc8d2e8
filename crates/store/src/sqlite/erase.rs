//! Destroys content: salts, sealed bytes, and blobs that no other record references.

use std::collections::HashSet;

use bytes::Bytes;
use rusqlite::{Connection, params};
use throughline_core::{StoreError, kind};

use crate::pack::{self, MAX_RECORDS, PackedRecord};
use crate::row::ErasureReason;
use crate::row_mac::{IndexTable, LOGS, RowKey, Sum, TENANTS};
use crate::sealed_batch::Erasure;
use crate::sqlite::chains::ChainSegment;
use crate::sqlite::commit::{CommitError, number, unsigned};
use crate::sqlite::statements::{query_all, query_first};
use crate::sqlite::tally;
use crate::sqlite::values::sql_row;

/// A row whose content is destroyed: one record, or a pack that contains records to destroy.
struct ErasedRow {
    id: i64,
    seq: u64,
    blob: Option<i64>,
    size: i64,
    /// Number of packed records before the last one; 0 for a record with its own row.
    span: u64,
}

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
    // A pack is found by any of its records. Its own records may be erased already.
    let find = |condition: &str, seq: i64| -> rusqlite::Result<Vec<ErasedRow>> {
        let find = format!(
            "SELECT id, seq, blob, size, coalesce(span, 0) FROM records
             WHERE tenant = ?1 AND log = ?2 AND (erased IS NULL OR span > 0)
             AND kind NOT IN ('{}', '{}') AND {condition}",
            kind::FORGOTTEN,
            kind::EXPIRED
        );
        query_all(db, &find, params![tenant, log, seq], |row| {
            let (id, seq, blob) = (row.get(0)?, unsigned(row.get(1)?), row.get(2)?);
            Ok(ErasedRow { id, seq, blob, size: row.get(3)?, span: unsigned(row.get(4)?) })
        })
    };
    let mut rows = Vec::new();
    match &erase.seqs {
        None => rows = find("seq >= ?3", i64::MIN)?,
        Some(seqs) => {
            for seq in seqs {
                let contains = "seq - coalesce(span, 0) <= ?3 AND seq = (SELECT min(seq)
                    FROM records WHERE tenant = ?1 AND log = ?2 AND seq >= ?3)";
                rows.extend(find(contains, number(*seq))?);
            }
        }
    }
    if erase.checkpoints {
        rows.extend(find("kind = 'checkpoint' AND seq >= ?3", i64::MIN)?);
    }
    rows.sort_unstable_by_key(|row| row.id);
    rows.dedup_by_key(|row| row.id);
    let seqs: Option<HashSet<u64>> = erase.seqs.as_ref().map(|seqs| seqs.iter().copied().collect());
    let mut bytes = 0;
    for row in &rows {
        bytes += if row.span > 0 {
            destroy_packed(db, row, seqs.as_ref(), erase.reason)?
        } else {
            destroy_salt(db, row.id)?;
            let empty = "UPDATE records SET content = NULL, blob = NULL, erased = ?2 WHERE id = ?1";
            db.prepare_cached(empty)?.execute(params![row.id, erase.reason.number()])?;
            row.size
        };
    }
    for blob in rows.iter().filter_map(|row| row.blob) {
        let unused = "DELETE FROM blobs WHERE id = ?1 AND NOT EXISTS
                      (SELECT 1 FROM records WHERE blob = ?1)";
        db.prepare_cached(unused)?.execute([blob])?;
    }
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

fn destroy_salt(db: &Connection, record: i64) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM salts WHERE record = ?1")?.execute([record]).map(drop)
}

/// Destroys the content of a pack's records with these numbers, or of all its records. Returns the
/// size of the destroyed content in bytes.
fn destroy_packed(
    db: &Connection,
    row: &ErasedRow,
    seqs: Option<&HashSet<u64>>,
    reason: ErasureReason,
) -> rusqlite::Result<i64> {
    let find = "SELECT content FROM records WHERE id = ?1";
    let content: Option<Vec<u8>> = query_first(db, find, [row.id], |row| row.get(0))?.flatten();
    let records = content.and_then(|content| pack::decode(content.into()));
    let is_whole =
        |records: &Vec<PackedRecord>| u64::try_from(records.len()).ok() == row.span.checked_add(1);
    let mut records = records.filter(is_whole);
    let mut bytes = 0;
    // A damaged span can be larger than any pack.
    let span = row.span.min(MAX_RECORDS as u64);
    for after in (0..=span).rev().filter(|after| *after < row.seq) {
        if seqs.is_some_and(|seqs| !seqs.contains(&(row.seq - after))) {
            continue;
        }
        destroy_salt(db, row.id - number(after))?;
        let index = usize::try_from(span - after).unwrap_or(usize::MAX);
        let record = records.as_mut().and_then(|records| records.get_mut(index));
        if let Some(record) = record.filter(|record| record.erased.is_none()) {
            record.erased = Some(reason);
            record.content = Bytes::new();
            bytes += i64::from(record.size);
        }
    }
    let (content, erased) = match &records {
        Some(records) => (pack::encode(records), pack::erasure_of(records)),
        // The pack is damaged. Without their salts, its records cannot be decrypted.
        None if seqs.is_none() => (Vec::new(), None),
        None => return Ok(0),
    };
    let rewrite = "UPDATE records SET content = ?2, erased = ?3 WHERE id = ?1";
    let erased = erased.map(ErasureReason::number);
    db.prepare_cached(rewrite)?.execute(params![row.id, content, erased])?;
    Ok(bytes)
}

/// Returns the current MAC of the row with this id.
fn row_mac(db: &Connection, key: &RowKey, table: &IndexTable, id: i64) -> rusqlite::Result<Sum> {
    let find = format!("SELECT {} FROM {} WHERE id = ?1", table.columns, table.name);
    db.prepare_cached(&find)?.query_row([id], sql_row).map(|row| row.mac(key, table))
}
