//! What a runner cannot do without, besides a store and models; and what most programs take for it.

use std::sync::Arc;

use jiff::Timestamp;
use throughline_core::{Clock, Ids, Name};

/// The letters of ids, in the order of the alphabet: none that is easily taken for another.
const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// What a runner cannot do without, besides a store and models.
pub struct Ports {
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Ids that nobody else makes up.
    pub ids: Arc<dyn Ids>,
    /// From which the Threads' own secrets are made. Whoever goes on with a run must have the same.
    pub secret: [u8; 32],
}

impl Ports {
    /// The time of day, and ids by chance.
    pub fn usual(secret: [u8; 32]) -> Self {
        Self { clock: Arc::new(Now), ids: Arc::new(Timely), secret }
    }
}

/// The time of day.
struct Now;

impl Clock for Now {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that others take")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// Ids that stand in the order of their making, and that nobody guesses.
struct Timely;

impl Ids for Timely {
    fn fresh(&self, prefix: &str) -> Name {
        let at = Now.now();
        let millis = u128::try_from(at.as_millisecond()).unwrap_or_default();
        let mut bytes = [0; 16];
        // Where there is no randomness, the time is the next best.
        if getrandom::fill(&mut bytes).is_err() {
            bytes = at.as_nanosecond().to_le_bytes();
        }
        let random = u128::from_le_bytes(bytes);
        Name::from(format!("{prefix}_{}{}", letters(millis, 9), letters(random, 12)))
    }
}

/// The lowest digits of a number, the highest first.
fn letters(number: u128, digits: u32) -> String {
    let digit = |place: u32| {
        let value = usize::try_from((number >> (5 * place)) & 31).unwrap_or_default();
        LETTERS.get(value).copied().map_or('0', char::from)
    };
    (0..digits).rev().map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_stand_in_the_order_of_their_making() {
        let first = Timely.fresh("run");
        let second = Timely.fresh("run");
        assert_ne!(first, second);
        assert_eq!(first.len(), "run_".len() + 21);
        assert!(letters(1_763_000_000_000, 9) < letters(1_763_000_000_001, 9));
    }
}
