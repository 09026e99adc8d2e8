//! Enforces a key's budgets and rates.
//!
//! Before a call is sent, it reserves its estimated cost and tokens from all limits of its key. The
//! limits hold over all nodes: see `budget.rs`. Each node also counts the requests of a key in the
//! last 60 seconds, so that a rate holds at the start of a new minute.
//!
//! | limit that is reached | status | repeated by clients |
//! |---|---|---|
//! | total budget | 402 | no |
//! | budget of a day, week or month | 429 with the time until the next period | no |
//! | rate, or a budget that calls in progress have reserved | 429 with the time to wait | yes |
//! | rate that is smaller than the call | 403 | no |

use std::time::Duration;

use throughline_core::{BudgetPeriod, Tenant, Usage};
use throughline_json::Name;

use crate::access::{Admission, Allowance};
use crate::error::{GatewayError, GatewayResult, RETRY_STORE};
use crate::records::StoreResult;
use crate::routing::RouteTarget;
use crate::telemetry::budget::{BudgetDenial, BudgetLimit, BudgetReservation, BudgetUnit};
use crate::telemetry::meter::Meter;
use crate::telemetry::usage::UsageAmount;

/// Retry delay while calls in progress have reserved the rest of a budget.
const RETRY_BUSY: Duration = Duration::from_secs(2);

/// Returns the limits of a key that hold over all nodes.
pub(crate) fn limits_of(allowance: &Allowance) -> Vec<BudgetLimit> {
    let period = allowance.period.unwrap_or(BudgetPeriod::Total);
    let limits = [
        (
            BudgetUnit::PicoUsd,
            period,
            allowance.micro_usd.map(|most| most.saturating_mul(1_000_000)),
        ),
        (BudgetUnit::Tokens, period, allowance.tokens),
        (BudgetUnit::Tokens, BudgetPeriod::Minute, allowance.tokens_per_minute),
        (BudgetUnit::Requests, BudgetPeriod::Minute, allowance.per_minute.map(u64::from)),
    ];
    let limit =
        |(unit, period, most): (_, _, Option<u64>)| Some(BudgetLimit { unit, period, most: most? });
    limits.into_iter().filter_map(limit).collect()
}

impl Meter {
    /// Counts a request against its key's rate limit. Returns 429 if the limit is reached.
    pub(crate) fn count_request(&self, admission: &Admission) -> GatewayResult<()> {
        let Admission::Key { id, allowance: Allowance { per_minute: Some(most), .. }, .. } =
            admission
        else {
            return Ok(());
        };
        self.count_in_window(id, *most).map_err(|wait| {
            let message = format!(
                "the key {id} has reached its rate of {most} requests a minute: wait, or raise it \
                 with `throughline keys update {id} --rate`"
            );
            GatewayError::new(429, message).after(wait)
        })
    }

    /// Checks that a key has budget left for these models.
    pub(crate) async fn check_allowance(
        &self,
        admission: &Admission,
        reached: &[RouteTarget],
    ) -> GatewayResult<()> {
        match self.used_up(admission).await? {
            Some((_, problem)) => Err(problem),
            None => self.check_prices(admission, reached),
        }
    }

    /// Returns a budget of a key that is used up, with the error for the caller.
    pub(crate) async fn used_up(
        &self,
        admission: &Admission,
    ) -> GatewayResult<Option<(BudgetDenial, GatewayError)>> {
        let Admission::Key { tenant, id, allowance, .. } = admission else { return Ok(None) };
        if !allowance.is_budget() {
            return Ok(None);
        }
        let before = self.used_before(tenant, id).await.map_err(|error| unread(&error))?;
        let limits = limits_of(allowance);
        self.budgets.set_soft_percent(tenant, id, allowance.soft_percent);
        let checked = self.budgets.check((tenant, id), &limits, &before).await;
        let denial = checked.map_err(|error| unread(&error))?.err();
        Ok(denial.map(|denial| (denial, self.refusal(id, denial))))
    }

    /// Checks that these models have a price if the key has a budget in dollars.
    pub(crate) fn check_prices(
        &self,
        admission: &Admission,
        reached: &[RouteTarget],
    ) -> GatewayResult<()> {
        let Admission::Key { id, allowance, .. } = admission else { return Ok(()) };
        let free = reached
            .iter()
            .find(|one| self.price(&one.charged_provider(), &one.model).is_none())
            .filter(|_| allowance.micro_usd.is_some());
        free.map_or(Ok(()), |one| {
            Err(GatewayError::new(
                403,
                format!(
                    "the key {id} has a budget in dollars, but {}/{} has no price; add its price \
                     to throughline.toml as [prices.\"{}\"]",
                    one.charged_provider(),
                    one.model,
                    one.model
                ),
            )
            .without_retry())
        })
    }

    /// Reserves the estimated usage of a call. A repeated call to another target does not count as
    /// another request. Returns `None` for keys without limits, and for keys without a budget while
    /// the store fails.
    pub(crate) async fn reserve(
        &self,
        admission: &Admission,
        reached: &RouteTarget,
        estimate: impl FnOnce() -> Usage,
        is_repeated: bool,
    ) -> GatewayResult<Option<BudgetReservation>> {
        // Most keys have no limits and need no estimate.
        let Admission::Key { allowance, .. } = admission else { return Ok(None) };
        if limits_of(allowance).is_empty() {
            return Ok(None);
        }
        let price = self.price(&reached.charged_provider(), &reached.model);
        let mut need = UsageAmount::for_one_call(estimate(), price);
        need.calls = u64::from(!is_repeated);
        let reserved = self.reserve_amount(admission, &need).await?;
        reserved.map_err(|(_, problem)| problem)
    }

    /// Reserves an amount from all limits of a key, or returns the limit that is reached, with the
    /// error for the caller. Fails if the key has a budget and the store fails.
    pub(crate) async fn reserve_amount(
        &self,
        admission: &Admission,
        need: &UsageAmount,
    ) -> GatewayResult<Result<Option<BudgetReservation>, (BudgetDenial, GatewayError)>> {
        let Admission::Key { tenant, id, allowance, .. } = admission else { return Ok(Ok(None)) };
        let limits = limits_of(allowance);
        if limits.is_empty() {
            return Ok(Ok(None));
        }
        self.budgets.set_soft_percent(tenant, id, allowance.soft_percent);
        let reserved = async {
            let before = self.used_before(tenant, id).await?;
            self.budgets.reserve((tenant, id), &limits, need, &before).await
        };
        match reserved.await {
            Ok(reserved) => {
                Ok(reserved.map(Some).map_err(|denial| (denial, self.refusal(id, denial))))
            }
            Err(error) if allowance.is_budget() => Err(unread(&error)),
            // Each node still counts the requests of the last minute.
            Err(_) => Ok(Ok(None)),
        }
    }

    /// Returns the usage and the reserved amount of each limit of a key.
    pub(crate) async fn budget_status(
        &self,
        tenant: &Tenant,
        key: &Name,
        allowance: &Allowance,
    ) -> StoreResult<Vec<(BudgetLimit, (u64, u64))>> {
        let before = self.used_before(tenant, key).await?;
        self.budgets.status((tenant, key), &limits_of(allowance), &before).await
    }

    /// Returns the usage of a key that the ledger contains.
    async fn used_before(&self, tenant: &Tenant, key: &Name) -> StoreResult<UsageAmount> {
        self.read_once().await?;
        Ok(self.used(tenant, key))
    }

    /// Returns the error for a refused reservation.
    fn refusal(&self, id: &Name, denial: BudgetDenial) -> GatewayError {
        let (limit, spent, need) = match denial {
            BudgetDenial::Spent { limit, spent, need } => (limit, spent, need),
            BudgetDenial::Busy { limit } => {
                let message = format!(
                    "calls in progress have reserved the rest of the {} of the key {id}: retry in \
                     a moment",
                    described(&limit)
                );
                return GatewayError::new(429, message).after(RETRY_BUSY);
            }
        };
        let now = self.budgets.now();
        let end = limit.period.window(now).end;
        let wait = end.map(|end| {
            let now = u64::try_from(now.as_second()).unwrap_or_default();
            Duration::from_secs(end.saturating_sub(now).max(1))
        });
        let named = described(&limit);
        if limit.period == BudgetPeriod::Minute {
            if need > limit.most {
                let message = format!(
                    "this call may use {}, which exceeds the {named} of the key {id}: lower the \
                     maximum number of output tokens",
                    amount(limit.unit, need)
                );
                return GatewayError::new(403, message).without_retry();
            }
            let message = format!("the key {id} has reached its {named}: wait for the next minute");
            return GatewayError::new(429, message).after(wait.unwrap_or(RETRY_BUSY));
        }
        let (left, option) = (limit.most.saturating_sub(spent), option(limit.unit));
        let problem = if left == 0 {
            format!("the key {id} has used up its {named}")
        } else {
            format!(
                "the {named} of the key {id} has {} left, but this call may use {}",
                amount(limit.unit, left),
                amount(limit.unit, need)
            )
        };
        let advice = format!("raise it with `throughline keys update {id} {option}`");
        match wait {
            Some(wait) => {
                let message = format!("{problem}: wait for the next {}, or {advice}", limit.period);
                GatewayError::new(429, message).after(wait).without_retry()
            }
            None => GatewayError::new(402, format!("{problem}: {advice}")).without_retry(),
        }
    }
}

fn unread(error: &throughline_core::StoreError) -> GatewayError {
    GatewayError::new(503, format!("cannot read the usage: {error}")).after(RETRY_STORE)
}

/// Describes a limit, such as `budget of 500 tokens per day`.
fn described(limit: &BudgetLimit) -> String {
    let amount = amount(limit.unit, limit.most);
    match limit.period {
        BudgetPeriod::Total => format!("budget of {amount}"),
        BudgetPeriod::Minute => format!("rate of {amount} per minute"),
        BudgetPeriod::Day | BudgetPeriod::Week | BudgetPeriod::Month => {
            format!("budget of {amount} per {}", limit.period)
        }
    }
}

fn amount(unit: BudgetUnit, number: u64) -> String {
    match unit {
        BudgetUnit::PicoUsd => {
            // Amounts below a cent are shown in full.
            let micro = number.div_ceil(1_000_000);
            match micro % 10_000 {
                0 => format!("${}.{:02}", micro / 1_000_000, micro % 1_000_000 / 10_000),
                _ => format!("${}.{:06}", micro / 1_000_000, micro % 1_000_000),
            }
        }
        BudgetUnit::Tokens => format!("{number} tokens"),
        BudgetUnit::Requests => format!("{number} requests"),
    }
}

fn option(unit: BudgetUnit) -> &'static str {
    match unit {
        BudgetUnit::PicoUsd => "--budget-usd",
        BudgetUnit::Tokens | BudgetUnit::Requests => "--budget-tokens",
    }
}
