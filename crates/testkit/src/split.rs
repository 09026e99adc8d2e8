//! Cutting bytes into chunks, as a network does: anywhere, also inside a character, and sometimes
//! with nothing in a chunk at all.

use proptest::collection::vec;
use proptest::strategy::Strategy;

/// Most failures of a stream need one or two cuts; more only make them harder to read.
const MOST_CUTS: usize = 12;

/// Cuts `bytes` at the given places, which need no order. A place named twice gives an empty
/// chunk, and a place beyond the end counts as the end. The chunks joined are always `bytes`.
pub fn split<'bytes>(bytes: &'bytes [u8], cuts: &[usize]) -> Vec<&'bytes [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|&cut| cut.min(bytes.len())).collect();
    cuts.sort_unstable();
    let mut rest = bytes;
    let mut taken = 0;
    let mut chunks = Vec::with_capacity(cuts.len() + 1);
    for cut in cuts {
        let (chunk, after) = rest.split_at(cut - taken);
        chunks.push(chunk);
        rest = after;
        taken = cut;
    }
    chunks.push(rest);
    chunks
}

/// Places at which to [`split`] bytes of this length, none at all included.
pub fn chunks(length: usize) -> impl Strategy<Value = Vec<usize>> {
    vec(0..=length, 0..=MOST_CUTS)
}

#[cfg(test)]
#[path = "split_tests.rs"]
mod tests;
