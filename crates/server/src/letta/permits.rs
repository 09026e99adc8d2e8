//! Runs obey the key that started them: its budget, rate, models and revocation are checked before every model call.
//!
//! | limit | the run ends when |
//! |---|---|
//! | `keyRevoked` | the key was revoked |
//! | `keyModels` | the key may not ask for the model |
//! | `keyBudget` | the key has used up its dollars or tokens, or a model has no price while the budget is in dollars |
//!
//! A call over the key's rate does not end the run: it waits until the rate allows it.

use std::sync::Arc;
use std::time::Duration;

use throughline_agent::{CallDenial, CallPermit, Permitting, Purpose};
use throughline_core::{Name, Tenant};
use tokio::time::sleep;

use crate::access::{Admission, Keyring};
use crate::gateway::Directory;
use crate::operations::{Allowance, Operations};

/// How long to wait before the keys are read again after the store failed.
const STORE_RETRY: Duration = Duration::from_millis(500);

/// What the gateway knows of keys, prices and usage.
pub(crate) struct Accounts {
    pub(crate) operations: Arc<Operations>,
    pub(crate) keyring: Arc<dyn Keyring>,
    pub(crate) directory: Arc<dyn Directory>,
}

/// Checks the key that started a run.
pub(crate) struct RunPermit {
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) tenant: Tenant,
    pub(crate) key: Name,
}

impl CallPermit for RunPermit {
    fn permit<'a>(&'a self, model: &'a str, _: Purpose) -> Permitting<'a> {
        Box::pin(async move {
            loop {
                let Ok(admission) = self.accounts.keyring.admit_id(&self.tenant, &self.key).await
                else {
                    // The run cannot be kept either while the store fails, so its lease ends this wait.
                    sleep(STORE_RETRY).await;
                    continue;
                };
                self.check(&admission, model).await?;
                let Err(problem) = self.accounts.operations.meter.count_request(&admission) else {
                    return Ok(());
                };
                sleep(problem.retry_after.unwrap_or(STORE_RETRY)).await;
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
        let Admission::Key { allowance, .. } = admission else {
            if *admission == Admission::Open {
                return Ok(());
            }
            let message =
                format!("the key {key} was revoked: send the message again with a valid key");
            return Err(deny("keyRevoked", 0.0, 1.0, message));
        };
        if !admission.allows(model) {
            let message = format!(
                "the key {key} may not ask for the model {model}: use a model that it allows, or another key"
            );
            return Err(deny("keyModels", 0.0, 1.0, message));
        }
        let meter = &self.accounts.operations.meter;
        loop {
            let reached = self.accounts.directory.reach(model).unwrap_or_default();
            match meter.allow(admission, &reached).await {
                Ok(()) => return Ok(()),
                // What was used is not known while the store fails.
                Err(problem) if problem.status == 503 => sleep(STORE_RETRY).await,
                Err(problem) => {
                    let used = meter.used(&self.tenant, key);
                    let (allowed, actual) = match allowance {
                        Allowance { micro_usd: Some(most), .. } => {
                            (dollars(*most), dollars(used.micro_usd()))
                        }
                        _ => {
                            let most = allowance.tokens.unwrap_or_default();
                            (count(most), count(used.tokens.total()))
                        }
                    };
                    return Err(deny("keyBudget", allowed, actual, problem.message));
                }
            }
        }
    }
}

fn dollars(micro_usd: u64) -> f64 {
    count(micro_usd) / 1_000_000.0
}

#[expect(clippy::cast_precision_loss, reason = "a number for people")]
fn count(number: u64) -> f64 {
    number as f64
}
