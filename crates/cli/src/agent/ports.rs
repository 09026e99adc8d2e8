//! Clock and cost estimator for runs.

use throughline_core::{CostEstimator, Usage};
use throughline_server::{ModelRouter as _, Prices as _};

use crate::config::prices::PriceTable;
use crate::router::ConfigRouter;

/// Estimates costs with the price table.
pub(super) struct PriceEstimator {
    pub(super) table: PriceTable,
    pub(super) book: ConfigRouter,
}

impl CostEstimator for PriceEstimator {
    fn cost(&self, model: &str, usage: &Usage) -> Option<f64> {
        let reached = self.book.reach(model).ok()?.into_iter().next()?;
        let price = self.table.price(&reached.account, &reached.model)?;
        // Prices are counted in millionths of a micro-dollar.
        #[expect(clippy::cast_precision_loss, reason = "a sum of dollars needs fewer digits")]
        let cost = price.of(usage) as f64;
        Some(cost / 1e12)
    }
}
