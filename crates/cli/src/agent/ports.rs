//! The time and the costs of runs, as this program has them.

use jiff::Timestamp;
use throughline_core::{Clock, CostEstimator, Usage};
use throughline_server::{Directory as _, Prices as _};

use crate::prices::PriceTable;
use crate::serve::directory::Phonebook;

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
