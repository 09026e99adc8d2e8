//! Pins the exact bytes that a link hashes.

use sha2::{Digest as _, Sha256};

use super::*;

/// Computes the link for fixed digests and a header that is given as text.
fn spelled(header: &str) -> Link {
    Sha256::new().chain_update([1; 32]).chain_update([2; 32]).chain_update(header).finalize().into()
}

#[test]
fn link_hashes_the_documented_lines() {
    let (tenant, log) = (Tenant::from("us"), LogId::from("thread"));
    let header = Header {
        tenant: &tenant,
        log: &log,
        nature: "thread\n\n\n",
        seq: 7,
        kind: "item",
        at: 1_700_000_000_000,
        events: 0,
        last_event: None,
        about: None,
        size: 10,
        writer: "w",
        position: 100,
    };
    let first = "throughline record 1\nus\nthread\nthread\n\n\n\n7\nitem\n";
    let plain = format!("{first}1700000000000\n0\n\n\n10\nw\n100");
    assert_eq!(header.link(&[1; 32], &[2; 32]), spelled(&plain));
    let header = Header {
        at: -5,
        events: u32::MAX,
        last_event: Some(u64::MAX),
        about: Some(i64::MIN),
        size: 0,
        ..header
    };
    let (most, least) = (u64::MAX, i64::MIN);
    let extreme = format!("{first}-5\n4294967295\n{most}\n{least}\n0\nw\n100");
    assert_eq!(header.link(&[1; 32], &[2; 32]), spelled(&extreme));
}
