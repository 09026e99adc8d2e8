//! Splits bytes into chunks as a network might: anywhere, even inside a character, and sometimes
//! with an empty chunk.

use proptest::collection::vec;
use proptest::strategy::Strategy;

/// Maximum number of cuts. Most stream failures need one or two cuts, and failures with many cuts
/// are hard to read.
const MAX_CUTS: usize = 12;

/// Splits `bytes` at the given offsets, which need not be sorted. A repeated offset gives an empty
/// chunk, and an offset beyond the end counts as the end. The joined chunks always equal `bytes`.
pub fn split<'bytes>(bytes: &'bytes [u8], cuts: &[usize]) -> Vec<&'bytes [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|&cut| cut.min(bytes.len())).collect();
    cuts.sort_unstable();
    let mut rest = bytes;
    let mut start = 0;
    let mut chunks = Vec::with_capacity(cuts.len() + 1);
    for cut in cuts {
        let (chunk, after) = rest.split_at(cut - start);
        chunks.push(chunk);
        rest = after;
        start = cut;
    }
    chunks.push(rest);
    chunks
}

/// Generates offsets at which to [`split`] bytes of this length, possibly none.
pub fn chunks(length: usize) -> impl Strategy<Value = Vec<usize>> {
    vec(0..=length, 0..=MAX_CUTS)
}

#[cfg(test)]
#[path = "split_tests.rs"]
mod tests;
