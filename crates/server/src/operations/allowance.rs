//! What a key may use, and what its holder hears when that is spent.
//!
//! A budget is checked before each call: calls that are under way end, so what is used may go beyond it by what they take. The
//! rate is counted by each node for itself.

use std::collections::VecDeque;
use std::time::Duration;

use throughline_core::{Name, Tenant};
use tokio::time::Instant;

use crate::access::Admission;
use crate::exchange::Problem;
use crate::gateway::Reached;
use crate::operations::RETRY_STORE;
use crate::operations::meter::Meter;

const MINUTE: Duration = Duration::from_mins(1);

/// What a key may use. What is not limited is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Money, in millionths of a dollar.
    pub micro_usd: Option<u64>,
    /// Tokens, those asked and those answered together.
    pub tokens: Option<u64>,
    /// Requests in a minute.
    pub per_minute: Option<u32>,
}

impl Allowance {
    /// Whether it ends at some sum.
    pub(crate) fn is_budget(&self) -> bool {
        self.micro_usd.is_some() || self.tokens.is_some()
    }
}

/// The requests of a key in the last minute.
#[derive(Default)]
pub(super) struct Minute(VecDeque<Instant>);

impl Minute {
    /// Counts a request, or says how long to wait for the next.
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

    /// Whether nothing is left of it.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.0.back().is_none_or(|last| now.duration_since(*last) >= MINUTE)
    }
}

impl Meter {
    /// Counts a request against the rate of its key.
    pub(crate) fn count_request(&self, admission: &Admission) -> Result<(), Problem> {
        let Admission::Key { id, allowance: Allowance { per_minute: Some(most), .. }, .. } =
            admission
        else {
            return Ok(());
        };
        self.count_in_minute(id, *most).map_err(|wait| {
            let message = format!(
                "the key {id} may ask {most} times in a minute, and has: wait, or make a key with \
                 a higher rate with `throughline keys create --rate`"
            );
            Problem::new(429, message).after(wait)
        })
    }

    /// Whether a key has something left for these models.
    pub(crate) async fn allow(
        &self,
        admission: &Admission,
        reached: &[Reached],
    ) -> Result<(), Problem> {
        let Admission::Key { tenant, id, allowance, .. } = admission else { return Ok(()) };
        if !allowance.is_budget() {
            return Ok(());
        }
        self.read_once().await.map_err(|error| {
            let message = format!("what was used is not known: {error}");
            Problem::new(503, message).after(RETRY_STORE)
        })?;
        self.has_left(tenant, id, allowance)?;
        let free = reached
            .iter()
            .find(|one| self.price(&one.account, &one.model).is_none())
            .filter(|_| allowance.micro_usd.is_some());
        free.map_or(Ok(()), |one| {
            Err(Problem::new(
                403,
                format!(
                    "the key {id} has a budget in dollars, and nobody knows what {}/{} costs: \
                     write its price into throughline.toml, as [prices.\"{}\"]",
                    one.account, one.model, one.model
                ),
            ))
        })
    }

    fn has_left(&self, tenant: &Tenant, id: &Name, allowance: &Allowance) -> Result<(), Problem> {
        let used = self.used(tenant, id);
        let spent = |budget: String, option: &str| {
            let message = format!(
                "the key {id} has used up its budget of {budget}: make a key with more with \
                 `throughline keys create {option}`, and revoke this one"
            );
            Err(Problem::new(429, message))
        };
        match allowance {
            Allowance { micro_usd: Some(most), .. } if used.micro_usd() >= *most => {
                let (whole, rest) = (most / 1_000_000, most % 1_000_000 / 10_000);
                spent(format!("${whole}.{rest:02}"), "--budget-usd")
            }
            Allowance { tokens: Some(most), .. } if used.tokens.total() >= *most => {
                spent(format!("{most} tokens"), "--budget-tokens")
            }
            Allowance { .. } => Ok(()),
        }
    }
}
