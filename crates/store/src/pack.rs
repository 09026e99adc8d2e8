//! Several records of a captured turn in one row.
//!
//! A captured turn has a header, one record per Item and the bodies of the call. As separate rows,
//! they cost most of the time of a commit. Consecutive records of a turn are therefore stored as
//! one row, a pack. Each packed record keeps its own number, position, link, commitment and salt,
//! so that it is read, verified and forgotten like a record with its own row.
//!
//! The row's columns describe the last record of the pack: its id, number, position, time, size,
//! commitment and link. `span` is the number of records before the last one. Their ids, numbers and
//! positions are consecutive. `content` is the encoded pack. The columns repeat values of the pack,
//! and decoding fails if they differ, so that a change to any column is detected.
//!
//! | bytes | per record |
//! |---|---|
//! | 1 | length of the kind, followed by the kind |
//! | 8 | time in milliseconds since 1970 |
//! | 4 | size of the plain content |
//! | 32, 32 | commitment and link |
//! | 1 | 0, or the number of the [`ErasureReason`] |
//! | 4 | length of the sealed content, followed by the sealed content |
//!
//! On PostgreSQL, `postgres/functions_3.sql` encodes packs and erases records in them, because
//! links and times are known only there.

use bytes::{Buf as _, BufMut as _, Bytes};
use throughline_core::{Digest, kind};
use throughline_json::Name;

use crate::chain::Link;
use crate::row::{ErasureReason, Row, Salt};
use crate::sealed_batch::SealedRecord;

/// The `kind` column of a pack.
pub(crate) const PACK: &str = "pack";

/// Maximum number of records in a pack.
pub(crate) const MAX_RECORDS: usize = 256;

/// Maximum size of the sealed content in a pack, in bytes. Forgetting one record rewrites the pack.
const MAX_BYTES: usize = 64 << 10;

/// Kinds of records that queries select by their kind, so they have their own rows.
const SPECIAL: [&str; 4] = [kind::CHECKPOINT, kind::REWIND, kind::FORGOTTEN, kind::EXPIRED];

/// One record of a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PackedRecord {
    pub(crate) kind: Name,
    pub(crate) at: i64,
    /// Length of the plain content in bytes.
    pub(crate) size: u32,
    pub(crate) commitment: Digest,
    pub(crate) link: Link,
    pub(crate) erased: Option<ErasureReason>,
    /// The sealed content; empty if the record is erased.
    pub(crate) content: Bytes,
}

/// Returns how many of the first records can be stored as one pack. Blobs, records with events and
/// records of a [`SPECIAL`] kind have their own rows. `about` is a column of the row, so only the
/// last record of a pack can have one.
pub(crate) fn packable(records: &[SealedRecord]) -> usize {
    let (mut count, mut bytes) = (0, 0);
    for record in records.iter().take(MAX_RECORDS) {
        let is_short = u8::try_from(record.kind.len()).is_ok() && fits(record);
        let is_special = SPECIAL.contains(&&*record.kind);
        if record.blob.is_some() || record.events > 0 || is_special || !is_short {
            break;
        }
        bytes += record.content.len();
        if count > 0 && bytes > MAX_BYTES {
            break;
        }
        count += 1;
        if record.about.is_some() {
            break;
        }
    }
    count
}

fn fits(record: &SealedRecord) -> bool {
    u32::try_from(record.size).is_ok() && u32::try_from(record.content.len()).is_ok()
}

pub(crate) fn encode(records: &[PackedRecord]) -> Vec<u8> {
    let length = |record: &PackedRecord| record.kind.len() + record.content.len() + 82;
    let mut out = Vec::with_capacity(records.iter().map(length).sum());
    for record in records {
        // `packable` checked that both lengths fit.
        out.put_u8(u8::try_from(record.kind.len()).unwrap_or(u8::MAX));
        out.put_slice(record.kind.as_bytes());
        out.put_i64(record.at);
        out.put_u32(record.size);
        out.put_slice(&record.commitment);
        out.put_slice(&record.link);
        out.put_u8(record.erased.map_or(0, ErasureReason::byte));
        out.put_u32(u32::try_from(record.content.len()).unwrap_or(u32::MAX));
        out.put_slice(&record.content);
    }
    out
}

/// Decodes a pack; `None` if the bytes are not a pack.
pub(crate) fn decode(mut bytes: Bytes) -> Option<Vec<PackedRecord>> {
    let mut records = Vec::new();
    while bytes.has_remaining() {
        let length = usize::from(bytes.try_get_u8().ok()?);
        let kind = take(&mut bytes, length)?;
        let kind = Name::from(std::str::from_utf8(&kind).ok()?);
        let (at, size) = (bytes.try_get_i64().ok()?, bytes.try_get_u32().ok()?);
        let (mut commitment, mut link) = ([0; 32], [0; 32]);
        bytes.try_copy_to_slice(&mut commitment).ok()?;
        bytes.try_copy_to_slice(&mut link).ok()?;
        let erased = match bytes.try_get_u8().ok()? {
            0 => None,
            number => Some(ErasureReason::from_number(number.into())?),
        };
        let length = usize::try_from(bytes.try_get_u32().ok()?).ok()?;
        let content = take(&mut bytes, length)?;
        if erased.is_some() && !content.is_empty() {
            return None;
        }
        records.push(PackedRecord { kind, at, size, commitment, link, erased, content });
    }
    Some(records)
}

fn take(bytes: &mut Bytes, length: usize) -> Option<Bytes> {
    (length <= bytes.len()).then(|| bytes.split_to(length))
}

/// Returns the `erased` column of a pack: the reason why an Item or the header of the turn was
/// erased. Copies are erased more often, and a turn without its copies is still usable.
pub(crate) fn erasure_of(records: &[PackedRecord]) -> Option<ErasureReason> {
    let records = records.iter().filter(|record| *record.kind != *kind::COPY);
    records.filter_map(|record| record.erased).min_by_key(|reason| reason.number())
}

/// Returns the records of a row. `span` is the row's column, and `salts` are the salts of the
/// pack's records, each with the number of records after it. A row with a span of 0 is one record.
pub(crate) fn unpack(row: Row, span: u64, salts: Vec<(u64, Salt)>) -> Vec<Row> {
    if span == 0 {
        return vec![row];
    }
    let Some(records) = readable(&row, span) else { return unreadable(&row, span) };
    let (first_seq, first_position) = (row.seq - span, row.position - span);
    let mut by_record: Vec<Option<Salt>> = vec![None; records.len()];
    for (after, salt) in salts {
        let index = span.checked_sub(after).and_then(|index| usize::try_from(index).ok());
        if let Some(slot) = index.and_then(|index| by_record.get_mut(index)) {
            *slot = Some(salt);
        }
    }
    let numbered = (0_u64..).zip(records.into_iter().zip(by_record));
    numbered
        .map(|(index, (record, salt))| Row {
            seq: first_seq + index,
            kind: record.kind,
            at: record.at,
            events: 0,
            last_event: None,
            about: row.about.filter(|_| index == span),
            size: record.size.into(),
            commitment: record.commitment,
            link: record.link,
            writer: row.writer.clone(),
            position: first_position + index,
            blob: None,
            content: Some(record.content).filter(|_| record.erased.is_none()),
            salt,
            erased: record.erased,
        })
        .collect()
}

/// Decodes a pack; `None` if the pack is damaged or differs from the row's columns.
fn readable(row: &Row, span: u64) -> Option<Vec<PackedRecord>> {
    let records = row.content.clone().and_then(decode)?;
    let last = records.last()?;
    let is_same = row.at == last.at
        && row.size == u64::from(last.size)
        && row.commitment == last.commitment
        && row.link == last.link
        && row.erased == erasure_of(&records);
    let is_pack = *row.kind == *PACK
        && row.blob.is_none()
        && (row.events, row.last_event) == (0, None)
        && u64::try_from(records.len()).ok() == span.checked_add(1)
        && span < row.seq
        && span < row.position;
    (is_same && is_pack).then_some(records)
}

/// Returns the records of a damaged pack, without content and with invalid links. Readers and
/// verification report each of them, and the rest of the log stays readable.
fn unreadable(row: &Row, span: u64) -> Vec<Row> {
    let most = (MAX_RECORDS as u64).min(row.seq).min(row.position).saturating_sub(1);
    let span = span.min(most);
    let record = |index: u64| Row {
        seq: row.seq - span + index,
        position: row.position - span + index,
        kind: kind::ITEM.into(),
        about: None,
        link: [0; 32],
        blob: None,
        content: None,
        salt: None,
        erased: None,
        ..row.clone()
    };
    (0..=span).map(record).collect()
}

#[cfg(test)]
#[path = "pack_tests.rs"]
mod pack_tests;
