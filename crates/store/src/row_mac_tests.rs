//! Tests that MAC sums detect every change to a set of rows.

use super::*;

fn key(byte: u8) -> RowKey {
    RowKey::new(Secret::new([byte; 32]))
}

#[test]
fn fields_cannot_be_shifted_between_columns() {
    let key = key(1);
    let mac = |fields: &[Field<'_>]| key.row(&ONCE, fields);
    let rows = [
        mac(&[Field::Null, Field::from("")]),
        mac(&[Field::from(""), Field::Null]),
        mac(&[Field::from(b"".as_slice()), Field::from("")]),
        mac(&[Field::from(""), Field::from(b"".as_slice())]),
        mac(&[Field::from("a\n1:b"), Field::from("c")]),
        mac(&[Field::from("a"), Field::from("b\n1:c")]),
        mac(&[Field::from("12"), Field::Number(1)]),
        mac(&[Field::Number(12), Field::from("1")]),
    ];
    for (index, row) in rows.iter().enumerate() {
        assert!(!rows.iter().skip(index + 1).any(|other| other == row), "row {index}");
    }
    assert_ne!(key.row(&TURNS, &[Field::Null]), key.row(&ONCE, &[Field::Null]));
    assert_ne!(self::key(2).row(&ONCE, &[Field::Null]), key.row(&ONCE, &[Field::Null]));
}

#[test]
fn sums_round_trip_through_text() {
    let key = key(3);
    let mut sums = SegmentSums::default();
    assert!(sums.is_empty());
    sums.add(&TURNS, key.row(&TURNS, &[Field::Number(1)]));
    sums.add(&LOGS, key.row(&LOGS, &[Field::Number(2)]));
    assert_eq!(SegmentSums::parse(&sums.print()), Some(sums));
    assert_eq!(SegmentSums::parse(&format!("{} 1", sums.print())), None);
    sums.remove(&LOGS, key.row(&LOGS, &[Field::Number(2)]));
    sums.remove(&TURNS, key.row(&TURNS, &[Field::Number(1)]));
    assert!(sums.is_empty());
    let mut tally = Tally::default();
    tally.sums.add(&KEPT, key.row(&KEPT, &[Field::from("name")]));
    let stored = tally.print(&key);
    assert_eq!(Tally::parse(&key, stored.as_bytes()), Some(tally));
    assert_eq!(Tally::parse(&self::key(4), stored.as_bytes()), None);
    assert_eq!(Tally::parse(&key, stored.replacen('0', "1", 1).as_bytes()), None);
}
