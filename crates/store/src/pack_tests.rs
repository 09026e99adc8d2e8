//! Tests of packs: encoding, strict decoding, and the columns that repeat values of a pack.

use super::*;

fn record(kind: &str, content: &'static str) -> PackedRecord {
    PackedRecord {
        kind: kind.into(),
        at: 1_700_000_000_000,
        size: u32::try_from(content.len()).unwrap(),
        commitment: [u8::try_from(content.len()).unwrap(); 32],
        link: [7; 32],
        erased: None,
        content: Bytes::from_static(content.as_bytes()),
    }
}

fn pack() -> Vec<PackedRecord> {
    vec![record("turn", "{}"), record("item", "a thought"), record("copy", "bodies")]
}

/// Returns the row of a pack, as the database returns it.
fn row(records: &[PackedRecord]) -> Row {
    let last = records.last().unwrap();
    Row {
        seq: 9,
        kind: PACK.into(),
        at: last.at,
        events: 0,
        last_event: None,
        about: Some(5),
        size: last.size.into(),
        commitment: last.commitment,
        link: last.link,
        writer: "writer".into(),
        position: 29,
        blob: None,
        content: Some(encode(records).into()),
        salt: None,
        erased: erasure_of(records),
    }
}

/// A column, and a change to it.
type ColumnChange = (&'static str, fn(&mut Row));

fn salt(byte: u8) -> Salt {
    Salt { epoch: 0, bytes: Bytes::from(vec![byte; 16]) }
}

#[test]
fn pack_returns_its_records_with_consecutive_numbers_and_their_salts() {
    let rows = unpack(row(&pack()), 2, vec![(2, salt(1)), (0, salt(3))]);
    let numbers: Vec<_> = rows.iter().map(|row| (row.seq, row.position, row.about)).collect();
    assert_eq!(numbers, [(7, 27, None), (8, 28, None), (9, 29, Some(5))]);
    let kinds: Vec<_> = rows.iter().map(|row| &*row.kind).collect();
    assert_eq!(kinds, ["turn", "item", "copy"]);
    let salts: Vec<_> = rows.iter().map(|row| row.salt.clone()).collect();
    assert_eq!(salts, [Some(salt(1)), None, Some(salt(3))]);
    assert_eq!(rows[1].content.as_deref(), Some(b"a thought".as_slice()));
}

#[test]
fn every_changed_column_of_a_pack_is_found() {
    let changes: [ColumnChange; 9] = [
        ("kind", |row| row.kind = "item".into()),
        ("at", |row| row.at += 1),
        ("events", |row| row.events = 1),
        ("last_event", |row| row.last_event = Some(1)),
        ("size", |row| row.size += 1),
        ("commitment", |row| row.commitment[0] ^= 1),
        ("link", |row| row.link[31] ^= 1),
        ("erased", |row| row.erased = Some(ErasureReason::Expired)),
        ("blob", |row| row.blob = Some(1)),
    ];
    for (column, change) in changes {
        let mut row = row(&pack());
        change(&mut row);
        assert_unreadable(&unpack(row, 2, Vec::new()), 7, column);
    }
    for (span, first) in [(1, 8), (3, 6), (10, 1), (u64::MAX, 1)] {
        assert_unreadable(&unpack(row(&pack()), span, Vec::new()), first, "span");
    }
}

/// Asserts that the records of a damaged pack have their numbers, but no content and invalid links.
fn assert_unreadable(rows: &[Row], first: u64, column: &str) {
    let numbers: Vec<u64> = rows.iter().map(|row| row.seq).collect();
    assert_eq!(numbers, (first..=9).collect::<Vec<_>>(), "{column}");
    assert!(rows.iter().all(|row| row.content.is_none() && row.link == [0; 32]), "{column}");
}

#[test]
fn truncated_and_extended_packs_are_rejected() {
    let bytes = encode(&pack());
    assert_eq!(decode(bytes.clone().into()), Some(pack()));
    for end in 1..bytes.len() {
        let decoded = decode(Bytes::copy_from_slice(&bytes[..end]));
        assert_ne!(decoded, Some(pack()), "the first {end} bytes");
    }
    let extended = [bytes.as_slice(), &[0]].concat();
    assert_eq!(decode(extended.into()), None);
}

#[test]
fn only_erased_records_other_than_copies_mark_the_row() {
    let mut records = pack();
    let erase = |record: &mut PackedRecord, reason| {
        record.erased = Some(reason);
        record.content = Bytes::new();
    };
    erase(&mut records[2], ErasureReason::Forgotten);
    assert_eq!(erasure_of(&records), None);
    erase(&mut records[1], ErasureReason::Expired);
    assert_eq!(erasure_of(&records), Some(ErasureReason::Expired));
    erase(&mut records[0], ErasureReason::Forgotten);
    assert_eq!(erasure_of(&records), Some(ErasureReason::Forgotten));
    assert_eq!(decode(encode(&records).into()), Some(records.clone()));
    records[0].content = Bytes::from_static(b"left over");
    assert_eq!(decode(encode(&records).into()), None);
}
