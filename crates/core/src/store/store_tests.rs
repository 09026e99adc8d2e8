//! Tests of what holds for every store.

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
fn a_log_that_was_never_rewound_holds_whole() {
    assert_eq!(head(&[]).spans(20), [1..=20]);
    assert_eq!(head(&[]).spans(0), []);
}

#[test]
fn what_was_rewound_does_not_hold() {
    assert_eq!(head(&[(10, 4)]).spans(20), [1..=4, 10..=20]);
    assert_eq!(head(&[(10, 4), (15, 12)]).spans(20), [1..=4, 10..=12, 15..=20]);
    // The second goes back behind the first.
    assert_eq!(head(&[(10, 4), (15, 2)]).spans(20), [1..=2, 15..=20]);
    // To the beginning, and to a record that had been rewound itself.
    assert_eq!(head(&[(10, 0)]).spans(20), [10..=20]);
    assert_eq!(head(&[(10, 4), (15, 7)]).spans(20), [1..=4, 15..=20]);
    // A rewind that lies ahead of where the log is read does not count yet.
    assert_eq!(head(&[(10, 4)]).spans(9), [1..=9]);
}
