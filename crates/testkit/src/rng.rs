//! Repeatable pseudo-random choices.

/// A seeded pseudo-random number generator.
pub struct TestRng(u64);

impl TestRng {
    /// Creates a generator. Equal seeds give equal sequences.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    /// Returns a number from 0 up to, but not including, `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % (limit.max(1) as u64)).unwrap_or_default()
    }

    /// Returns a random element, or `None` if the slice is empty.
    pub fn pick<'t, T>(&mut self, list: &'t [T]) -> Option<&'t T> {
        let at = self.below(list.len());
        list.get(at)
    }
}
