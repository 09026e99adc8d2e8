//! Tests for a log's valid ranges after rewinds.

use jiff::Timestamp;

use crate::store::{LogHead, LogId, LogKind, Rewind};

fn head(rewinds: &[(u64, u64)]) -> LogHead {
    LogHead {
        log: LogId::from("thread"),
        kind: LogKind::Thread,
        of: None,
        fork: None,
        rewinds: rewinds.iter().map(|&(at, to)| Rewind { at, to }).collect(),
        status: None,
        last: 20,
        events: 0,
        bytes: 0,
        created: Timestamp::UNIX_EPOCH,
        updated: Timestamp::UNIX_EPOCH,
        gone: None,
    }
}

#[test]
fn log_without_rewinds_is_valid_completely() {
    assert_eq!(head(&[]).valid_ranges(20), [1..=20]);
    assert_eq!(head(&[]).valid_ranges(0), []);
}

#[test]
fn rewound_records_are_excluded() {
    assert_eq!(head(&[(10, 4)]).valid_ranges(20), [1..=4, 10..=20]);
    assert_eq!(head(&[(10, 4), (15, 12)]).valid_ranges(20), [1..=4, 10..=12, 15..=20]);
    // The second rewind goes back before the first.
    assert_eq!(head(&[(10, 4), (15, 2)]).valid_ranges(20), [1..=2, 15..=20]);
    // Rewinds to the beginning, and to a record that was itself rewound.
    assert_eq!(head(&[(10, 0)]).valid_ranges(20), [10..=20]);
    assert_eq!(head(&[(10, 4), (15, 7)]).valid_ranges(20), [1..=4, 15..=20]);
    // A rewind after the end of the range has no effect.
    assert_eq!(head(&[(10, 4)]).valid_ranges(9), [1..=9]);
}
