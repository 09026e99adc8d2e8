//! Enforces a key's budget and request rate.
//!
//! A budget is checked before each call. Calls in progress may finish, so the total usage can
//! exceed the budget. Each node counts the request rate separately.

use std::collections::VecDeque;
use std::time::Duration;

use throughline_core::Tenant;
use throughline_json::Name;
use tokio::time::Instant;

use crate::access::{Admission, Allowance};
use crate::error::{GatewayError, GatewayResult, RETRY_STORE};
use crate::routing::RouteTarget;
use crate::telemetry::meter::Meter;

const MINUTE: Duration = Duration::from_mins(1);

/// Times of a key's requests within the last minute.
#[derive(Default)]
pub(super) struct RateWindow(VecDeque<Instant>);

impl RateWindow {
    /// Counts a request, or returns how long to wait before the next request is allowed.
    pub(super) fn count(&mut self, most: u32, now: Instant) -> Result<(), Duration> {
        while self.0.front().is_some_and(|first| now.duration_since(*first) >= MINUTE) {
            self.0.pop_front();
        }
        if self.0.len() < most as usize {
            self.0.push_back(now);
            return Ok(());
        }
        let first = self.0.front().copied().unwrap_or(now);
        Err(MINUTE.saturating_sub(now.duration_since(first)))
    }

    /// Returns whether no requests were made in the minute before `now`.
    pub(super) fn is_empty_at(&self, now: Instant) -> bool {
        self.0.back().is_none_or(|last| now.duration_since(*last) >= MINUTE)
    }
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
                "the key {id} has reached its rate of {most} requests a minute: wait, or create a \
                 key with a higher rate with `throughline keys create --rate`"
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
        let Admission::Key { tenant, id, allowance, .. } = admission else { return Ok(()) };
        if !allowance.is_budget() {
            return Ok(());
        }
        self.read_once().await.map_err(|error| {
            let message = format!("cannot read the usage: {error}");
            GatewayError::new(503, message).after(RETRY_STORE)
        })?;
        self.check_budget(tenant, id, allowance)?;
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
            ))
        })
    }

    fn check_budget(&self, tenant: &Tenant, id: &Name, allowance: &Allowance) -> GatewayResult<()> {
        let used = self.used(tenant, id);
        let spent = |budget: String, option: &str| {
            let message = format!(
                "the key {id} has used up its budget of {budget}: create a new key with \
                 `throughline keys create {option}`, and revoke this one"
            );
            Err(GatewayError::new(429, message))
        };
        match allowance {
            Allowance { micro_usd: Some(most), .. } if used.micro_usd() >= *most => {
                let (dollars, cents) = (most / 1_000_000, most % 1_000_000 / 10_000);
                spent(format!("${dollars}.{cents:02}"), "--budget-usd")
            }
            Allowance { tokens: Some(most), .. } if used.tokens.total() >= *most => {
                spent(format!("{most} tokens"), "--budget-tokens")
            }
            Allowance { .. } => Ok(()),
        }
    }
}
