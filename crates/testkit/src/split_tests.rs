//! Tests that splitting never loses, duplicates or reorders bytes.

use proptest::prelude::*;

use super::{chunks, split};
use crate::proptest_config;

#[test]
fn cuts_need_no_order_and_may_repeat() {
    let expected: [&[u8]; 4] = [b"thr", b"", b"ough", b"line"];
    assert_eq!(split(b"throughline", &[7, 3, 3]), expected);
}

#[test]
fn cut_beyond_the_end_counts_as_the_end() {
    let expected: [&[u8]; 2] = [b"line", b""];
    assert_eq!(split(b"line", &[99]), expected);
}

#[test]
fn without_cuts_there_is_one_chunk() {
    let expected: [&[u8]; 1] = [b"line"];
    assert_eq!(split(b"line", &[]), expected);
}

proptest! {
    #![proptest_config(proptest_config(64))]

    #[test]
    fn the_chunks_joined_are_the_bytes(
        (bytes, cuts) in any::<Vec<u8>>().prop_flat_map(|bytes| {
            let cuts = chunks(bytes.len());
            (Just(bytes), cuts)
        })
    ) {
        let parts = split(&bytes, &cuts);
        prop_assert_eq!(parts.len(), cuts.len() + 1);
        prop_assert_eq!(parts.concat(), bytes);
    }
}
