//! Splits bytes into chunks like a network: anywhere, also inside a character, and sometimes with
//! an empty chunk.

use proptest::collection::vec;
use proptest::strategy::Strategy;

/// Most stream failures need one or two cuts; more cuts are harder to read.
const MAX_CUTS: usize = 12;

/// Splits `bytes` at the given positions, in any order. A repeated position gives an empty chunk,
/// and a position beyond the end counts as the end. The joined chunks always equal `bytes`.
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

/// Generates positions at which to [`split`] bytes of this length, possibly none.
pub fn chunks(length: usize) -> impl Strategy<Value = Vec<usize>> {
    vec(0..=length, 0..=MAX_CUTS)
}

#[cfg(test)]
#[path = "split_tests.rs"]
mod tests;
