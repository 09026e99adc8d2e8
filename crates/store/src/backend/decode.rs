//! Decodes the rows that both databases return. The column constants list columns in decoding
//! order.

use throughline_core::{LogHead, VaultTurn};
use throughline_json::Name;

use crate::hex::unhex;
use crate::pack::unpack;
use crate::rejection::{Result, corrupt};
use crate::row::{ApiKeyRow, Row, Salt, fork_of};
use crate::row_mac::SegmentRow;
use crate::sql::{SqlRow, decode};

/// Columns of a log `l`, with the names of its Thread `o` and its parent `f`.
pub(super) const LOG_COLUMNS: &str = "l.name, l.kind, o.name, l.rewinds, l.status, l.last, \
    l.events, l.bytes, l.created, l.updated, l.gone, f.name, l.fork_at";

/// Columns of a record `r`, its segment `g` and its salt `s`. The `pack_columns` of the
/// [`Dialect`](crate::backend::Dialect) follow them.
pub(super) const RECORD_COLUMNS: &str = "r.seq, r.kind, r.at, r.events, r.last_event, r.about, \
    r.size, r.commitment, r.link, g.writer, r.position, r.blob, r.content, r.erased, s.epoch, \
    s.salt";

/// Columns of an API key `k` and its tenant `t`.
pub(super) const API_KEY_COLUMNS: &str =
    "t.name, k.id, k.label, k.limits, k.hash, k.created, k.revoked, k.mac";

pub(super) fn log_head(row: &SqlRow) -> Result<LogHead> {
    let fork = fork_of(row.get(11)?, row.get(12)?);
    Ok(decode!(row, 0, LogHead {
        log, kind, of, rewinds, status, last, events, bytes, created, updated, gone
    } { fork }))
}

/// Index of the first column after the columns of a record.
pub(super) const AFTER_RECORD: usize = 18;

/// Decodes the records of a row: all records of a pack, or one record.
pub(super) fn records(row: &SqlRow) -> Result<Vec<Row>> {
    let (epoch, bytes): (Option<u32>, _) = (row.get(14)?, row.get::<Option<_>>(15)?);
    let salt = epoch.zip(bytes).map(|(epoch, bytes)| Salt { epoch, bytes });
    let record = decode!(row, 0, Row {
        seq, kind, at, events, last_event, about, size, commitment, link, writer, position, blob,
        content, erased
    } { salt });
    let salts: Option<Name> = row.get(17)?;
    let salts = salts.as_deref().unwrap_or_default().split(',').filter(|salt| !salt.is_empty());
    let salts = salts.map(|salt| {
        packed_salt(salt).ok_or_else(|| corrupt!("a salt of record {} is invalid", record.seq))
    });
    let salts = salts.collect::<Result<_>>()?;
    Ok(unpack(record, row.get(16)?, salts))
}

/// Parses a salt of a pack: the number of records after its record, its epoch, and its bytes in
/// hexadecimal, separated by spaces.
fn packed_salt(text: &str) -> Option<(u64, Salt)> {
    let mut parts = text.split(' ');
    let (after, epoch) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let bytes = unhex(parts.next()?)?;
    Some((after, Salt { epoch, bytes }))
}

pub(super) fn api_key(row: &SqlRow) -> Result<ApiKeyRow> {
    Ok(decode!(row, 0, ApiKeyRow { tenant, id, label, limits, hash, created, revoked, mac }))
}

/// Decodes a captured turn from the columns that start at `first`.
pub(crate) fn vault_turn(row: &SqlRow, first: usize) -> Result<VaultTurn> {
    Ok(decode!(row, first, VaultTurn { id, parent, log, first, last, prefix, gone }))
}

/// Decodes a row of the table `segments`; see [`TABLES`](crate::sql::TABLES).
pub(super) fn segment(row: &SqlRow) -> Result<SegmentRow> {
    Ok(decode!(row, 0, SegmentRow { id, tenant, writer, position, link, changes, sums }))
}
