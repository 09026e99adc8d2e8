//! Checks the key that started a run before every model call, and reserves the estimated usage of
//! the call from the limits of that key.
//!
//! | limit | the run ends when |
//! |---|---|
//! | `keyRevoked` | the key was revoked |
//! | `keyModels` | the key may not use the model |
//! | `keyBudget` | the budget does not cover the call, or is in dollars and the model has no price |
//! | `keyRate` | the call may use more tokens than the key may use in a minute |
//!
//! The run waits, and does not end, while the key's rate is reached or calls in progress have
//! reserved the rest of a limit.
//!
//! When the call ends, the actual usage replaces the reservation and is added to the usage ledger.
//! If a call is cancelled, its response breaks off, or no response arrives in time, its usage is
//! estimated as in the gateway: one token per four bytes sent and received.

use std::sync::Arc;
use std::time::Duration;

use throughline_agent::{CallDenial, CallGrant, CallPermit, PermitFuture, Purpose};
use throughline_codec::codec;
use throughline_core::{ACCOUNT_SEPARATOR, BudgetPeriod, Call, Origin, Reply, Tenant, Usage};
use throughline_json::{Name, Tree};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::access::{Admission, Keyring, Permission};
use crate::error::GatewayError;
use crate::routing::{ModelRouter, RouteTarget};
use crate::telemetry::{
    BYTES_OF_A_TOKEN, BudgetDenial, BudgetReservation, BudgetUnit, Telemetry, UsageAmount,
    UsageKey, estimate_usage,
};

/// Delay before the keys are read again after a store error.
const STORE_RETRY_DELAY: Duration = Duration::from_millis(500);

/// The keys, prices and usage that the gateway manages.
pub(crate) struct Accounts {
    pub(crate) operations: Arc<Telemetry>,
    pub(crate) keyring: Arc<dyn Keyring>,
    pub(crate) directory: Arc<dyn ModelRouter>,
}

/// Checks, reserves and charges each model call of a run.
pub(crate) struct RunPermit {
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) tenant: Tenant,
    /// The key that started the run; `None` if the gateway has no keys.
    pub(crate) key: Option<Name>,
    /// Delays the shutdown until this permit and its grants are dropped.
    pub(crate) shutdown_guard: watch::Receiver<()>,
}

impl CallPermit for RunPermit {
    fn permit<'a>(&'a self, model: &'a str, _: Purpose, call: &'a Call) -> PermitFuture<'a> {
        Box::pin(async move {
            let estimate = estimate_call(call);
            let reservation = match &self.key {
                Some(key) => self.reserve(key, model, call, estimate).await?,
                None => None,
            };
            let (tenant, key) = (self.tenant.clone(), self.key.clone());
            Ok(Box::new(RunCallGrant {
                _shutdown_guard: self.shutdown_guard.clone(),
                operations: Arc::clone(&self.accounts.operations),
                line: usage_key(tenant, key, &call.target.origin),
                input: estimate.input,
                received: 0,
                reservation,
                is_settled: false,
            }) as Box<dyn CallGrant>)
        })
    }
}

impl RunPermit {
    /// Waits until the limits of the key allow the call, and reserves the call's estimated usage.
    async fn reserve(
        &self,
        key: &Name,
        model: &str,
        call: &Call,
        estimate: Usage,
    ) -> Result<Option<BudgetReservation>, CallDenial> {
        let meter = &self.accounts.operations.meter;
        let mut is_counted = false;
        loop {
            let Ok(admission) = self.accounts.keyring.admit_id(&self.tenant, key).await else {
                // While the store fails, the run cannot commit, so the wait ends when its lease
                // expires.
                sleep(STORE_RETRY_DELAY).await;
                continue;
            };
            let reached = self.accounts.directory.reach(model).unwrap_or_default();
            self.check(&admission, key, model, &reached).await?;
            if !is_counted && let Err(problem) = meter.count_request(&admission) {
                sleep(problem.retry_after.unwrap_or(STORE_RETRY_DELAY)).await;
                continue;
            }
            is_counted = true;
            let need = self.need(call, &reached, estimate);
            let wait = match meter.reserve_amount(&admission, &need).await {
                Ok(Ok(reservation)) => return Ok(reservation),
                Ok(Err((denial, problem))) if problem.is_final => {
                    return Err(limit_denial(&denial, problem));
                }
                Ok(Err((_, problem))) => problem.retry_after,
                // The usage so far is unknown while the store fails.
                Err(_) => None,
            };
            sleep(wait.unwrap_or(STORE_RETRY_DELAY)).await;
        }
    }

    /// Returns the largest estimated usage of the call at the targets of its model name, because
    /// the target that answers is not known yet.
    fn need(&self, call: &Call, reached: &[RouteTarget], estimate: Usage) -> UsageAmount {
        let (meter, origin) = (&self.accounts.operations.meter, &call.target.origin);
        let prices = reached.iter().map(|one| meter.price(&one.charged_provider(), &one.model));
        let own = meter.price(charged_provider(origin), &origin.asked);
        let needs = prices.chain([own]).map(|price| UsageAmount::for_one_call(estimate, price));
        needs.max_by_key(|need| need.pico_usd).unwrap_or_default()
    }

    async fn check(
        &self,
        admission: &Admission,
        key: &Name,
        model: &str,
        reached: &[RouteTarget],
    ) -> Result<(), CallDenial> {
        if !admission.is_key() {
            if *admission == Admission::Open {
                return Ok(());
            }
            let message =
                format!("the key {key} was revoked; send the message again with a valid key");
            return Err(deny("keyRevoked", (0.0, 1.0), message));
        }
        if !admission.has(Permission::Use) {
            let message = format!("the role of the key {key} may not call models; use another key");
            return Err(deny("keyRole", (0.0, 1.0), message));
        }
        if !admission.allows(model) {
            let message = format!(
                "the key {key} may not use the model {model}; choose an allowed model or use \
                 another key"
            );
            return Err(deny("keyModels", (0.0, 1.0), message));
        }
        let meter = &self.accounts.operations.meter;
        loop {
            match meter.used_up(admission).await {
                Ok(None) => break,
                Ok(Some((denial, problem))) => return Err(limit_denial(&denial, problem)),
                // The usage so far is unknown while the store fails.
                Err(_) => sleep(STORE_RETRY_DELAY).await,
            }
        }
        let priced = meter.check_prices(admission, reached);
        priced.map_err(|problem| deny("keyBudget", (0.0, 1.0), problem.message))
    }
}

/// A model call of a run, with what it has reserved.
struct RunCallGrant {
    operations: Arc<Telemetry>,
    /// The ledger entry of the first target, for a call without a reply.
    line: UsageKey,
    /// The estimated number of input tokens.
    input: u64,
    /// Number of bytes of the answer so far.
    received: u64,
    reservation: Option<BudgetReservation>,
    is_settled: bool,
    /// Delays the shutdown until this grant is dropped.
    _shutdown_guard: watch::Receiver<()>,
}

impl RunCallGrant {
    /// Estimates the usage from the request and the bytes of the answer so far.
    fn estimate(&self) -> Usage {
        let output = self.received / BYTES_OF_A_TOKEN;
        Usage { input: self.input, output, ..Usage::default() }
    }

    /// Adds the usage to the ledger and replaces the reservation with it.
    fn charge(&mut self, line: UsageKey, usage: Usage) {
        let meter = &self.operations.meter;
        let used = UsageAmount::for_one_call(usage, meter.price(&line.provider, &line.model));
        meter.charge(line, &used);
        if let Some(reservation) = self.reservation.take() {
            reservation.settle(&used);
        }
    }
}

impl CallGrant for RunCallGrant {
    fn add_received(&mut self, bytes: usize) {
        self.received = self.received.saturating_add(bytes as u64);
    }

    fn settle(mut self: Box<Self>, reply: Option<&Reply>) {
        self.is_settled = true;
        if let Some(reply) = reply {
            let (tenant, key) = (self.line.tenant.clone(), self.line.key.clone());
            // Some endpoints return no usage.
            let usage = if reply.usage.total() > 0 { reply.usage } else { self.estimate() };
            self.charge(usage_key(tenant, key, &reply.origin), usage);
        }
    }
}

impl Drop for RunCallGrant {
    fn drop(&mut self) {
        if !self.is_settled {
            self.charge(self.line.clone(), self.estimate());
        }
    }
}

/// Estimates the usage of a call from the request that the codec of its wire encodes.
fn estimate_call(call: &Call) -> Usage {
    let codec = codec(&call.target.origin.wire);
    let encoded = codec.and_then(|codec| codec.encode(call).ok());
    let body = encoded.map(|encoded| encoded.request.body).unwrap_or_default();
    estimate_usage(body.len(), Tree::parse(body).ok().as_ref())
}

fn usage_key(tenant: Tenant, key: Option<Name>, origin: &Origin) -> UsageKey {
    let provider = Name::from(charged_provider(origin));
    UsageKey { tenant, key, provider, model: origin.asked.clone() }
}

/// Returns the provider that is charged for a call; see [`RouteTarget::charged_provider`].
fn charged_provider(origin: &Origin) -> &str {
    origin.account.split(ACCOUNT_SEPARATOR).next().unwrap_or(&origin.account)
}

fn deny(limit: &str, (allowed, actual): (f64, f64), message: String) -> CallDenial {
    CallDenial { limit: Name::from(limit), allowed, actual, message: Name::from(message) }
}

/// Returns the denial for a limit that does not cover the call.
fn limit_denial(denial: &BudgetDenial, problem: GatewayError) -> CallDenial {
    let (BudgetDenial::Spent { limit, .. } | BudgetDenial::Busy { limit }) = denial;
    let name = if limit.period == BudgetPeriod::Minute { "keyRate" } else { "keyBudget" };
    deny(name, amounts(denial), problem.message)
}

/// Returns the limit that refused a call, and what was used of it plus what the call may use, in
/// dollars, tokens or requests.
fn amounts(denial: &BudgetDenial) -> (f64, f64) {
    let (limit, used) = match denial {
        BudgetDenial::Spent { limit, spent, need } => (limit, spent.saturating_add(*need)),
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
    use throughline_agent::Ports;
    use throughline_testkit::Folder;

    use super::*;
    use crate::telemetry::{BudgetLimit, Limits, NoPrices, NullLog};

    #[tokio::test]
    async fn stopping_process_saves_the_usage_of_cancelled_calls() {
        let folder = Folder::new("cancelled-calls");
        let url = format!("sqlite://{}", folder.join("store.db").display());
        let journal = throughline_store::open(&url, &throughline_store::Options::default()).await;
        let store = Arc::new(journal.unwrap());
        let open = || {
            let clock = Ports::with_system_clock([0; 32]).clock;
            let (prices, log) = (Arc::new(NoPrices), Arc::new(NullLog));
            let store = Arc::clone(&store);
            Arc::new(Telemetry::new(store, prices, clock, log, Limits::default()).unwrap())
        };
        let operations = open();
        let line = UsageKey {
            tenant: Tenant::from("us"),
            key: None,
            provider: Name::from("anthropic"),
            model: Name::from("claude"),
        };
        let grant = RunCallGrant {
            _shutdown_guard: operations.shutdown_guard(),
            operations: Arc::clone(&operations),
            line: line.clone(),
            input: 12,
            received: 0,
            reservation: None,
            is_settled: false,
        };
        tokio::time::pause();
        let cancel = async {
            sleep(Duration::from_secs(1)).await;
            drop(grant);
        };
        tokio::join!(operations.finish(), cancel);
        tokio::time::resume();

        let other_process = open();
        other_process.save_usage().await;
        let saved = other_process.meter.rows(&line.tenant, None);
        let usage = Usage { input: 12, ..Usage::default() };
        assert_eq!(saved, [(line, UsageAmount::for_one_call(usage, None))]);
    }

    #[test]
    fn denial_reports_the_limit_that_refused_the_call() {
        let spent = |unit, most, spent, need| {
            let limit = BudgetLimit { unit, period: BudgetPeriod::Day, most };
            amounts(&BudgetDenial::Spent { limit, spent, need })
        };
        assert_eq!(spent(BudgetUnit::Tokens, 500, 520, 0), (500.0, 520.0));
        assert_eq!(spent(BudgetUnit::Tokens, 500, 420, 90), (500.0, 510.0));
        let dollar = 1_000_000_000_000;
        assert_eq!(spent(BudgetUnit::PicoUsd, 2 * dollar, 3 * dollar, 0), (2.0, 3.0));
    }
}
