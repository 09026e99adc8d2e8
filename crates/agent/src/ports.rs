//! The clock, id generator and secret that a runner needs in addition to its store and models.

use std::sync::Arc;

use jiff::Timestamp;
use throughline_core::{Clock, IdGenerator};
use throughline_json::Name;

/// Crockford's base-32 alphabet in sorted order. The alphabet omits letters that look like digits.
const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Clock, id generator and secret of a runner.
pub struct Ports {
    /// Clock for all timestamps of the runner.
    pub clock: Arc<dyn Clock>,
    /// Generator for the ids of runs and Threads.
    pub ids: Arc<dyn IdGenerator>,
    /// Secret that all Thread secrets are derived from. All processes that may resume the same runs
    /// need the same secret.
    pub secret: [u8; 32],
}

impl Ports {
    /// Creates ports with the system clock and random ids that sort by creation time.
    pub fn with_system_clock(secret: [u8; 32]) -> Self {
        Self { clock: Arc::new(SystemClock), ids: Arc::new(TimeOrderedIds), secret }
    }
}

struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the system clock")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// Generates ids that sort by creation time and cannot be guessed.
struct TimeOrderedIds;

impl IdGenerator for TimeOrderedIds {
    fn generate(&self, prefix: &str) -> Name {
        let at = SystemClock.now();
        let millis = u128::try_from(at.as_millisecond()).unwrap_or_default();
        let mut bytes = [0; 16];
        // Use the time as a fallback if the system provides no randomness.
        if getrandom::fill(&mut bytes).is_err() {
            bytes = at.as_nanosecond().to_le_bytes();
        }
        let random = u128::from_le_bytes(bytes);
        Name::from(format!("{prefix}_{}{}", encode_base32(millis, 9), encode_base32(random, 12)))
    }
}

/// Encodes the lowest `digits` base-32 digits of a number, most significant digit first.
fn encode_base32(number: u128, digits: u32) -> String {
    let digit = |index: u32| {
        let value = usize::try_from((number >> (5 * index)) & 31).unwrap_or_default();
        LETTERS.get(value).copied().map_or('0', char::from)
    };
    (0..digits).rev().map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_creation_time() {
        let first = TimeOrderedIds.generate("run");
        let second = TimeOrderedIds.generate("run");
        assert_ne!(first, second);
        assert_eq!(first.len(), "run_".len() + 21);
        assert!(encode_base32(1_763_000_000_000, 9) < encode_base32(1_763_000_000_001, 9));
    }
}
