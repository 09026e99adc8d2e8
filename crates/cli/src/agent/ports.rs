//! The time, ids and costs of runs, as this program has them.

use jiff::Timestamp;
use throughline_core::{Clock, CostEstimator, Ids, Name, Usage};
use throughline_server::{Directory as _, Prices as _};

use crate::prices::PriceTable;
use crate::serve::directory::Phonebook;

/// The letters of ids, in the order of the alphabet: none that is easily taken for another.
const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// What time it is.
#[expect(clippy::disallowed_methods, reason = "the cli is who reads the clock")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// The time of day.
pub(crate) struct Now;

impl Clock for Now {
    fn now(&self) -> Timestamp {
        now()
    }
}

/// Ids that stand in the order of their making, and that nobody guesses.
pub(super) struct Timely;

impl Ids for Timely {
    fn fresh(&self, prefix: &str) -> Name {
        let at = now();
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

/// What answers cost, by the table of prices.
pub(super) struct Costs {
    pub(super) table: PriceTable,
    pub(super) book: Phonebook,
}

impl CostEstimator for Costs {
    fn cost(&self, model: &str, usage: &Usage) -> Option<f64> {
        let reached = self.book.reach(model).ok()?.into_iter().next()?;
        let price = self.table.price(&reached.account, &reached.model)?;
        // It is counted in millionths of a millionth of a dollar.
        #[expect(clippy::cast_precision_loss, reason = "a sum of dollars needs fewer digits")]
        let cost = price.of(usage) as f64;
        Some(cost / 1e12)
    }
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
