//! Finds the bytes that two texts have in common.

/// Numbers of bytes that are compared at once. Each size covers the rest of the size before it.
const BLOCKS: [usize; 4] = [4096, 256, 16, 1];

/// Returns the number of leading bytes that two texts have in common.
pub fn common_prefix(left: &[u8], right: &[u8]) -> usize {
    let mut length = 0;
    for block in BLOCKS {
        let rests = [left, right].map(|text| text.get(length..).unwrap_or_default().chunks(block));
        length += common(block, rests);
    }
    length
}

/// Returns the number of trailing bytes that two texts have in common.
pub fn common_suffix(left: &[u8], right: &[u8]) -> usize {
    let mut length = 0;
    for block in BLOCKS {
        let rests = [left, right]
            .map(|text| text.get(..text.len() - length).unwrap_or_default().rchunks(block));
        length += common(block, rests);
    }
    length
}

/// Returns the total length in bytes of the leading equal blocks.
fn common<'b>(block: usize, [left, right]: [impl Iterator<Item = &'b [u8]>; 2]) -> usize {
    let equal = left.zip(right).take_while(|(left, right)| left.len() == block && left == right);
    equal.count() * block
}
