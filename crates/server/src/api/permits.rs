//! Checks the key that started a run before every model call: budget, rate limit, allowed models
//! and revocation.
//!
//! | limit | the run ends when |
//! |---|---|
//! | `keyRevoked` | the key was revoked |
//! | `keyModels` | the key may not use the model |
//! | `keyBudget` | the budget is spent, or is in dollars and the model has no price |
//!
//! A model call that exceeds the key's rate limit waits until the limit allows the call; the run
//! does not end.

use std::sync::Arc;
use std::time::Duration;

use throughline_agent::{CallDenial, CallPermit, PermitFuture, Purpose};
use throughline_core::Tenant;
use throughline_json::Name;
use tokio::time::sleep;

use crate::access::{Admission, Keyring};
use crate::routing::ModelRouter;
use crate::telemetry::{BudgetDenial, BudgetUnit, Telemetry};

/// Delay before the keys are read again after a store error.
const STORE_RETRY_DELAY: Duration = Duration::from_millis(500);

/// The keys, prices and usage that the gateway manages.
pub(crate) struct Accounts {
    pub(crate) operations: Arc<Telemetry>,
    pub(crate) keyring: Arc<dyn Keyring>,
    pub(crate) directory: Arc<dyn ModelRouter>,
}

/// Checks each model call of a run against the key that started the run.
pub(crate) struct RunPermit {
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) tenant: Tenant,
    pub(crate) key: Name,
}

impl CallPermit for RunPermit {
    fn permit<'a>(&'a self, model: &'a str, _: Purpose) -> PermitFuture<'a> {
        Box::pin(async move {
            loop {
                let Ok(admission) = self.accounts.keyring.admit_id(&self.tenant, &self.key).await
                else {
                    // While the store fails, the run cannot commit, so the wait ends when its lease
                    // expires.
                    sleep(STORE_RETRY_DELAY).await;
                    continue;
                };
                self.check(&admission, model).await?;
                let Err(problem) = self.accounts.operations.meter.count_request(&admission) else {
                    return Ok(());
                };
                sleep(problem.retry_after.unwrap_or(STORE_RETRY_DELAY)).await;
            }
        })
    }
}

impl RunPermit {
    async fn check(&self, admission: &Admission, model: &str) -> Result<(), CallDenial> {
        let key = &self.key;
        let deny = |limit: &str, allowed, actual, message: String| CallDenial {
            limit: Name::from(limit),
            allowed,
            actual,
            message: Name::from(message),
        };
        if !admission.is_key() {
            if *admission == Admission::Open {
                return Ok(());
            }
            let message =
                format!("the key {key} was revoked; send the message again with a valid key");
            return Err(deny("keyRevoked", 0.0, 1.0, message));
        }
        if !admission.allows(model) {
            let message = format!(
                "the key {key} may not use the model {model}; choose an allowed model or use \
                 another key"
            );
            return Err(deny("keyModels", 0.0, 1.0, message));
        }
        let meter = &self.accounts.operations.meter;
        loop {
            match meter.used_up(admission).await {
                Ok(None) => break,
                Ok(Some((denial, problem))) => {
                    let (allowed, actual) = amounts(&denial);
                    return Err(deny("keyBudget", allowed, actual, problem.message));
                }
                // The usage so far is unknown while the store fails.
                Err(_) => sleep(STORE_RETRY_DELAY).await,
            }
        }
        let reached = self.accounts.directory.reach(model).unwrap_or_default();
        let priced = meter.check_prices(admission, &reached);
        priced.map_err(|problem| deny("keyBudget", 0.0, 1.0, problem.message))
    }
}

/// Returns the limit that refused a call and what was used of it, in dollars, tokens or requests.
fn amounts(denial: &BudgetDenial) -> (f64, f64) {
    let (limit, used) = match denial {
        BudgetDenial::Spent { limit, spent, .. } => (limit, *spent),
        BudgetDenial::Busy { limit } => (limit, limit.most),
    };
    match limit.unit {
        BudgetUnit::PicoUsd => (dollars(limit.most), dollars(used)),
        BudgetUnit::Tokens | BudgetUnit::Requests => (count(limit.most), count(used)),
    }
}

fn dollars(pico_usd: u64) -> f64 {
    count(pico_usd) / 1e12
}

#[expect(clippy::cast_precision_loss, reason = "the number is only displayed")]
fn count(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use throughline_core::BudgetPeriod;

    use super::*;
    use crate::telemetry::BudgetLimit;

    #[test]
    fn denial_reports_the_limit_that_refused_the_call() {
        let spent = |unit, most, spent| {
            let limit = BudgetLimit { unit, period: BudgetPeriod::Day, most };
            amounts(&BudgetDenial::Spent { limit, spent, need: 0 })
        };
        assert_eq!(spent(BudgetUnit::Tokens, 500, 520), (500.0, 520.0));
        let dollar = 1_000_000_000_000;
        assert_eq!(spent(BudgetUnit::PicoUsd, 2 * dollar, 3 * dollar), (2.0, 3.0));
    }
}
