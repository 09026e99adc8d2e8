//! Measures, logs and limits all requests to the gateway.
//!
//! A [`RequestScope`] records the facts of one call, from its arrival to the last byte of its
//! response. The task that ends the call counts the call in the [`Metrics`], writes one line to the
//! [`Log`], and adds the usage to the [`Meter`]. If that task is cancelled, for example because the
//! client disconnects, the scope's destructor sends the facts to the telemetry task instead.
//!
//! | file | contents |
//! |---|---|
//! | `scope.rs` | the facts of one call |
//! | `usage.rs` | usage and prices, and how usage is stored |
//! | `meter.rs` | the usage ledger: in memory at once, in the shared store after about 1 s |
//! | `allowance.rs` | the limits of a key, and the errors when they are reached |
//! | `budget.rs`, `budget/` | budgets and rates that hold over all nodes |
//! | `estimate.rs` | the estimated usage of a request |
//! | `rate_window.rs` | the requests of a key in the last minute, on this node |
//! | `metrics.rs` | all metrics, for Prometheus and in OpenTelemetry's conventions |
//! | `log.rs` | one line for each call |
//! | `outage.rs` | behaviour while the store fails, and the key cache for that time |
//! | `trace.rs` | the span of a call in its caller's trace |
//! | `body.rs` | receives request bodies within size and time limits |
//! | `fair_pool.rs` | pools that tenants share fairly: streams, request memory, processors |
//! | `memory.rs` | the estimated memory of one request, reserved from the pool |
//! | `sockets.rs` | limits of WebSockets, and their end on shutdown |
//! | `cpu_pool.rs` | runs work on large bodies without blocking other requests |

mod allowance;
mod body;
mod budget;
mod cpu_pool;
mod estimate;
mod fair_pool;
mod log;
mod memory;
mod meter;
mod metrics;
mod outage;
mod rate_window;
mod refusals;
mod request_parameters;
mod scope;
mod sockets;
mod trace;
mod usage;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use throughline_core::{Clock, KeyRole, Store, Tenant, Wire};
use throughline_json::{self as json, Name, SizeLimits};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::timeout;

pub(crate) use crate::telemetry::body::{MIN_BYTES_PER_SECOND, exceeds_limit, read_body};
pub use crate::telemetry::budget::{BudgetAlerts, budget_log, reset_budget};
pub(crate) use crate::telemetry::budget::{
    BudgetDenial, BudgetLimit, BudgetReservation, BudgetUnit,
};
pub(crate) use crate::telemetry::cpu_pool::{CpuPool, LARGE};
pub(crate) use crate::telemetry::estimate::{BYTES_OF_A_TOKEN, estimate_usage};
pub(crate) use crate::telemetry::fair_pool::PoolPermit;
use crate::telemetry::fair_pool::{FairPool, OverSharePolicy};
pub use crate::telemetry::log::{Level, Log, NullLog};
pub(crate) use crate::telemetry::memory::MemoryReservation;
pub(crate) use crate::telemetry::meter::Meter;
pub(crate) use crate::telemetry::metrics::{Metrics, MetricsFormat};
pub use crate::telemetry::metrics::{ReloadKind, RetentionResult};
pub(crate) use crate::telemetry::outage::store_timeout;
pub use crate::telemetry::outage::{OnStoreFailure, StorePolicy};
pub(crate) use crate::telemetry::scope::RequestScope;
pub use crate::telemetry::sockets::SocketLimits;
pub(crate) use crate::telemetry::sockets::{SocketPhase, SocketPool};
pub use crate::telemetry::trace::CallTraces;
pub use crate::telemetry::usage::{
    NoPrices, Price, PriceTier, Prices, TokenPrices, UsageAmount, UsageKey, UsageRow, usage_log,
};

use crate::access::Caller;
use crate::error::{GatewayError, GatewayResult};
use crate::telemetry::outage::StoreHealth;
use crate::telemetry::refusals::RecentRefusals;
use crate::telemetry::scope::CallReport;
use throughline_replay::{Claims, RandomnessError};

/// Retry delay sent to callers while the gateway is full.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Limits on concurrency, request sizes and waiting times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of concurrent responses.
    pub streams: usize,
    /// Maximum numbers of JSON values, messages and tools in one request.
    pub sizes: SizeLimits,
    /// Maximum estimated memory of all requests together, in bytes.
    pub memory: u64,
    /// How long a request may wait while the gateway is full.
    pub queue: Duration,
    /// Timeout for request headers, and for the next request on the same connection.
    pub headers: Duration,
    /// Timeout for a request body, in addition to the time that the body takes at the minimum
    /// transfer rate.
    pub body: Duration,
    /// How long a client may stop reading before its response is aborted.
    pub slow_reader: Duration,
    /// How long the last frame of a response waits for the store to capture the reply.
    pub capture: Duration,
    /// How long open responses may take during shutdown.
    pub shutdown: Duration,
    /// Time limits of WebSockets.
    pub sockets: SocketLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            streams: 4096,
            sizes: SizeLimits::DEFAULT,
            memory: 1 << 30,
            queue: Duration::from_secs(10),
            headers: Duration::from_secs(30),
            body: Duration::from_secs(30),
            slow_reader: Duration::from_mins(1),
            capture: Duration::from_secs(2),
            shutdown: Duration::from_secs(30),
            sockets: SocketLimits::default(),
        }
    }
}

/// The metrics, logs, limits and usage of a gateway.
pub struct Telemetry {
    store: Arc<dyn Store>,
    pub(crate) meter: Meter,
    pub(crate) metrics: Metrics,
    log: Arc<dyn Log>,
    /// Receives each call as a span of a trace.
    traces: Option<Arc<dyn CallTraces>>,
    pub(crate) limits: Limits,
    /// The queue to the telemetry task, which reports cancelled calls.
    reports: OnceLock<UnboundedSender<CallReport>>,
    /// Each run keeps receivers of this channel until its model calls are charged.
    uncharged_runs: watch::Sender<()>,
    /// Limits concurrent responses; each response takes one unit.
    slots: Arc<FairPool>,
    /// Limits the estimated memory of all requests; one unit is one byte.
    memory: Arc<FairPool>,
    pub(crate) heavy: CpuPool,
    pub(crate) sockets: SocketPool,
    /// The accounts that may not generate reasoning summaries.
    pub(crate) refused_summaries: RecentRefusals,
    /// The token that the console's pages must send to change data.
    token: Name,
    /// Whether the last attempt to store usage failed.
    is_behind: AtomicBool,
    /// How requests are handled while the store fails.
    policy: StorePolicy,
    health: StoreHealth,
}

impl Telemetry {
    /// Records usage in `store` at these prices, and writes one line per call to `log`. The periods
    /// of budgets follow `clock`.
    pub fn new(
        store: Arc<dyn Store>,
        prices: Arc<dyn Prices>,
        clock: Arc<dyn Clock>,
        log: Arc<dyn Log>,
        limits: Limits,
    ) -> Result<Self, RandomnessError> {
        Ok(Self {
            meter: Meter::new(
                Arc::clone(&store),
                prices,
                clock,
                Arc::clone(&log),
                Claims::new_turn_id()?.0,
            ),
            store,
            metrics: Metrics::default(),
            log,
            traces: None,
            limits,
            reports: OnceLock::new(),
            uncharged_runs: watch::Sender::new(()),
            slots: FairPool::new(limits.streams as u64, OverSharePolicy::Refuse),
            memory: FairPool::new(limits.memory, OverSharePolicy::Wait),
            heavy: CpuPool::new(limits.queue),
            sockets: SocketPool::new(&limits),
            refused_summaries: RecentRefusals::default(),
            token: Name::from([&*Claims::new_turn_id()?.0, &*Claims::new_turn_id()?.0].concat()),
            is_behind: AtomicBool::new(false),
            policy: StorePolicy::default(),
            health: StoreHealth::default(),
        })
    }

    /// Also reports each call as a span, in the caller's trace or in a new trace.
    #[must_use]
    pub fn with_traces(mut self, traces: Arc<dyn CallTraces>) -> Self {
        self.traces = Some(traces);
        self
    }

    /// Sends an alert when a key reaches the soft limit of a budget.
    #[must_use]
    pub fn with_budget_alerts(mut self, alerts: Arc<dyn BudgetAlerts>) -> Self {
        self.meter.budgets.set_alerts(alerts);
        self
    }

    /// Sets how requests are handled while the store fails.
    #[must_use]
    pub fn with_store_policy(mut self, policy: StorePolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Admits a call, unless the caller's key exceeds its rate limit or the gateway is full. When
    /// all slots are taken, a tenant below its fair share waits for the next free slot.
    pub(crate) async fn begin_request(
        self: &Arc<Self>,
        caller: &Caller,
        dialect: &Wire,
    ) -> GatewayResult<Arc<RequestScope>> {
        self.check_budget(&caller.admission)?;
        self.meter.count_request(&caller.admission)?;
        let is_shared = caller.admission.is_key();
        let slot = self.slots.acquire(&caller.tenant, is_shared, 1, self.limits.queue);
        let slot = slot.await.map_err(|_| {
            let most = self.limits.streams;
            let message = format!(
                "the gateway has no free stream for this caller (max_streams is {most}, and \
                 tenants have equal shares of it): retry in a moment"
            );
            GatewayError::new(503, message).after(RETRY_DELAY)
        })?;
        self.write_log(Level::Debug, |o| {
            o.string("event", "asked").string("dialect", dialect.as_str());
            o.number("slots", self.slots.free());
        });
        let reports = self.reports.get_or_init(start_reporting).clone();
        Ok(RequestScope::new(Arc::clone(self), reports, caller, dialect, slot))
    }

    /// Counts a reload. `applied` is the time at which the new version took effect; `None` if it
    /// was rejected.
    pub fn record_reload(&self, kind: ReloadKind, applied: Option<Timestamp>) {
        self.metrics.count_reload(kind, applied);
    }

    /// Counts a pass that deletes expired data.
    pub fn record_retention(&self, result: RetentionResult) {
        self.metrics.count_retention(result);
    }

    /// Counts deleted data of a class of `[retention]`: the number of Threads, runs or traces, and
    /// their size in bytes.
    pub fn record_deleted(&self, class: &'static str, number: u64, bytes: u64) {
        self.metrics.count_deleted(class, number, bytes);
    }

    /// Creates the memory reservation for a request from this caller.
    pub(crate) fn new_reservation(&self, caller: &Caller) -> MemoryReservation {
        MemoryReservation::new(&self.memory, caller, self.limits.queue)
    }

    /// Counts and logs a request that was not admitted. The log line contains the reason for
    /// server errors and for denied access.
    pub(crate) fn record_rejection(
        &self,
        dialect: &Wire,
        key: Option<&Name>,
        problem: &GatewayError,
    ) {
        self.metrics.count_refusal(dialect, problem.status);
        let is_failure = problem.status >= 500;
        self.write_log(if is_failure { Level::Warn } else { Level::Info }, |o| {
            o.string("event", "refused").maybe_string("key", key.map(|key| &**key));
            o.string("dialect", dialect.as_str()).number("status", problem.status.into());
            // Other messages may repeat a part of the request.
            let is_logged = is_failure || matches!(problem.status, 401 | 403 | 429);
            o.maybe_string("problem", is_logged.then_some(&*problem.message));
        });
    }

    /// Counts and logs that an account of a pool starts to cool down for a model.
    pub fn record_cooldown(&self, provider: &Name, account: &str, model: &str) {
        self.metrics.count_cooldown(provider, account);
        self.write_log(Level::Warn, |o| {
            o.string("event", "cooldown").string("provider", provider);
            o.string("account", account).string("model", model);
        });
    }

    fn write_log(&self, level: Level, fill: impl FnOnce(&mut json::Object<'_>)) {
        if self.log.wants(level) {
            self.log.write(level, &json::object(fill));
        }
    }

    /// Returns the token that the console's pages must send to change data. Pages of other sites
    /// cannot read the token.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// Logs that a person signed in, so that the person's id in later lines can be resolved.
    pub(crate) fn record_sign_in(
        &self,
        user: &str,
        email: Option<&str>,
        role: KeyRole,
        tenant: &Tenant,
    ) {
        self.write_log(Level::Info, |o| {
            o.string("event", "signed_in").string("user", user).maybe_string("email", email);
            o.string("role", role.as_str()).string("tenant", &tenant.0);
        });
    }

    /// Logs that a sign-in failed.
    pub(crate) fn record_failed_sign_in(&self, status: u16, problem: &str) {
        self.write_log(Level::Warn, |o| {
            o.string("event", "sign_in_failed").number("status", status.into());
            o.string("problem", problem);
        });
    }

    /// Returns a guard that delays [`finish`](Self::finish). A run keeps the guard, or clones of
    /// it, until its model calls are charged.
    pub(crate) fn shutdown_guard(&self) -> watch::Receiver<()> {
        self.uncharged_runs.subscribe()
    }

    /// Waits until no response is in progress, every call is reported and the model calls of runs
    /// are charged, then saves the usage.
    pub(crate) async fn finish(&self) {
        drop(timeout(self.limits.capture, self.slots.all_free()).await);
        // A stopped run drops its model calls in other tasks.
        drop(timeout(self.limits.capture, self.uncharged_runs.closed()).await);
        self.save_usage().await;
        // Leases that are not returned expire.
        self.meter.budgets.report(true).await.ok();
    }

    /// Saves the usage. Of several consecutive failures, only the first is logged. Unsaved usage
    /// stays in memory until a later call succeeds.
    pub(crate) async fn save_usage(&self) {
        // Check whether writes succeed again, even without a request to `/readyz`.
        self.test_writes().await.ok();
        let settled = match self.meter.settle().await {
            Ok(wrote) => self.meter.budgets.report(false).await.map(|()| wrote),
            Err(error) => Err(error),
        };
        match &settled {
            Err(error) => self.record_write(Some(error)),
            Ok(wrote) if *wrote => self.record_write(None),
            Ok(_) => {}
        }
        let was_behind = self.is_behind.swap(settled.is_err(), Ordering::Relaxed);
        if let Err(error) = settled
            && !was_behind
        {
            self.write_log(Level::Error, |o| {
                o.string("event", "usage").string("problem", &error.to_string());
            });
        }
    }
}

/// Starts the telemetry task. The task ends when the last [`Telemetry`] and the last call are
/// dropped.
fn start_reporting() -> UnboundedSender<CallReport> {
    let (reports, mut queue) = unbounded_channel::<CallReport>();
    tokio::spawn(async move {
        while let Some(report) = queue.recv().await {
            report.write();
        }
    });
    reports
}
