//! What the gateway counts, tells and limits, whatever is asked of it.
//!
//! A [`Ticket`] goes with each call from its arrival to the last byte of its answer, and notes what becomes of it. When it ends,
//! it is counted in the [`Metrics`], written to the [`Log`] as one line, and what it used goes into the [`Meter`].
//!
//! | file | holds |
//! |---|---|
//! | `ticket.rs` | what becomes of one call |
//! | `usage.rs` | what was used, for whom, at which price; and how that is kept |
//! | `meter.rs` | the account book: in memory at once, in the store within about a second, over all nodes |
//! | `allowance.rs` | what a key may use, and what its holder hears when that is spent |
//! | `metrics.rs` | everything counted, for Prometheus |
//! | `log.rs` | one line for each call |
//! | `outage.rs` | what is done while the store fails, and the keys that are remembered for it |
//! | `trace.rs` | the place of a call in its caller's trace |
//! | `body.rs` | a caller's body, neither too large nor too slow |
//! | `shares.rs` | pools that tenants share fairly: answers under way, memory of requests, processor time |
//! | `room.rs` | the memory of one request: how much it is expected to take, and what it holds of the pool |
//! | `heavy.rs` | work on large bodies, kept off the threads that answer everybody else |

mod allowance;
mod body;
mod heavy;
mod log;
mod meter;
mod metrics;
mod outage;
mod room;
mod shares;
mod ticket;
mod trace;
mod usage;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use throughline_core::json::SizeLimits;
use throughline_core::{Name, Store, Wire, json};

pub use crate::operations::allowance::Allowance;
pub(crate) use crate::operations::body::whole_body;
pub(crate) use crate::operations::heavy::{Heavy, LARGE};
pub use crate::operations::log::{Level, Log, Silent};
pub(crate) use crate::operations::meter::Meter;
pub(crate) use crate::operations::metrics::Metrics;
pub use crate::operations::outage::{OnStoreFailure, StorePolicy};
pub(crate) use crate::operations::outage::{RETRY_STORE, too_slow};
pub(crate) use crate::operations::room::Room;
use crate::operations::shares::{OverShare, Shares};
pub(crate) use crate::operations::ticket::{Capture, Fates, Ticket};
pub use crate::operations::trace::Traces;
pub use crate::operations::usage::{Price, Prices, Unpriced, UsageRow, Used, UsedFor, usage_log};

use crate::exchange::{Caller, Problem};
use crate::operations::outage::StoreHealth;
use crate::replay::{Claims, NoRandomness};

/// How long a caller that found the gateway full is asked to wait.
const COME_BACK: Duration = Duration::from_secs(1);

/// How much the gateway does at once, and how long it waits for its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most answers that are under way at once.
    pub streams: usize,
    /// The most JSON values, messages and tools that one request may hold.
    pub sizes: SizeLimits,
    /// The memory in bytes that all requests together may be expected to take.
    pub memory: u64,
    /// How long a request waits for its share of a full gateway.
    pub queue: Duration,
    /// For the headers of a caller, and for its next request on the same connection.
    pub headers: Duration,
    /// For the body of a caller, beside the time that a slow line needs for it.
    pub body: Duration,
    /// For a caller that does not read its answer.
    pub slow_reader: Duration,
    /// For the store, before the last frame of an answer is let go.
    pub capture: Duration,
    /// For open answers, before it stops.
    pub shutdown: Duration,
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
        }
    }
}

/// What the gateway counts, tells and limits.
pub struct Operations {
    store: Arc<dyn Store>,
    pub(crate) meter: Meter,
    pub(crate) metrics: Metrics,
    log: Arc<dyn Log>,
    /// Who is told of each call as a span of a trace.
    traces: Option<Arc<dyn Traces>>,
    pub(crate) limits: Limits,
    /// One for each answer that may be under way.
    slots: Arc<Shares>,
    /// The memory of requests, in bytes.
    memory: Arc<Shares>,
    /// Runs work on large bodies.
    pub(crate) heavy: Heavy,
    /// What a page of our own shows with what it changes.
    token: Name,
    /// Whether what was used could not be kept the last time.
    is_behind: AtomicBool,
    /// What is done while the store fails.
    policy: StorePolicy,
    health: StoreHealth,
}

impl Operations {
    /// Counts what is used in that store, at these prices, and tells of each call in that log.
    pub fn new(
        store: Arc<dyn Store>,
        prices: Arc<dyn Prices>,
        log: Arc<dyn Log>,
        limits: Limits,
    ) -> Result<Self, NoRandomness> {
        Ok(Self {
            meter: Meter::new(Arc::clone(&store), prices, Claims::fresh_node()?.0),
            store,
            metrics: Metrics::default(),
            log,
            traces: None,
            limits,
            slots: Shares::new(limits.streams as u64, OverShare::Refuse),
            memory: Shares::new(limits.memory, OverShare::Wait),
            heavy: Heavy::new(limits.queue),
            token: Name::from([&*Claims::fresh_node()?.0, &*Claims::fresh_node()?.0].concat()),
            is_behind: AtomicBool::new(false),
            policy: StorePolicy::default(),
            health: StoreHealth::default(),
        })
    }

    /// The same, and tells of each call as a span of its caller's trace, or of one of its own.
    #[must_use]
    pub fn traced(mut self, traces: Arc<dyn Traces>) -> Self {
        self.traces = Some(traces);
        self
    }

    /// The same, and does that while the store fails.
    #[must_use]
    pub fn with_store_policy(mut self, policy: StorePolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Lets a call in, unless its key asks too often or too much is under way. When all slots are taken, a tenant that
    /// has less than its share of them waits for the next.
    pub(crate) async fn enter(
        self: &Arc<Self>,
        caller: &Caller,
        dialect: &Wire,
    ) -> Result<Arc<Ticket>, Problem> {
        self.check_budget(&caller.admission)?;
        self.meter.count_request(&caller.admission)?;
        let is_shared = caller.admission.key_id().is_some();
        let slot = self.slots.acquire(&caller.tenant, is_shared, 1, self.limits.queue);
        let slot = slot.await.map_err(|_| {
            let most = self.limits.streams;
            let message = format!(
                "the gateway has no answer free for this caller (max_streams is {most}, and \
                 tenants have equal shares of it): ask again in a moment"
            );
            Problem::new(503, message).after(COME_BACK)
        })?;
        self.tell(Level::Debug, |o| {
            o.string("event", "asked").string("dialect", dialect.as_str());
            o.number("slots", self.slots.free());
        });
        Ok(Ticket::new(Arc::clone(self), caller, dialect, slot))
    }

    /// The memory of a request of this caller.
    pub(crate) fn room(&self, caller: &Caller) -> Room {
        let (tenant, is_shared) = (caller.tenant.clone(), caller.admission.key_id().is_some());
        Room::new(Arc::clone(&self.memory), tenant, is_shared, self.limits.queue)
    }

    /// Counts and logs a request that was not let in, with the reason if that is a failure of ours.
    pub(crate) fn turn_away(&self, dialect: &Wire, problem: &Problem) {
        self.metrics.count_refusal(dialect, problem.status);
        let is_failure = problem.status >= 500;
        self.tell(if is_failure { Level::Warn } else { Level::Info }, |o| {
            o.string("event", "refused").string("dialect", dialect.as_str());
            o.number("status", problem.status.into());
            o.maybe_string("problem", is_failure.then_some(&*problem.message));
        });
    }

    fn tell(&self, level: Level, fill: impl FnOnce(&mut json::Object<'_>)) {
        if self.log.wants(level) {
            self.log.write(level, &json::object(fill));
        }
    }

    /// What a page of our own shows with what it changes: no other site's page can read it.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// Whether that is the token. The time that it takes tells nothing of where they differ.
    pub(crate) fn is_token(&self, text: &str) -> bool {
        blake3::hash(self.token.as_bytes()) == blake3::hash(text.as_bytes())
    }

    /// Waits until no answer is under way, and keeps what was used.
    pub(crate) async fn finish(&self) {
        drop(tokio::time::timeout(self.limits.capture, self.slots.all_free()).await);
        self.settle().await;
    }

    /// Keeps what was used. What cannot be kept is told once, and tried again.
    pub(crate) async fn settle(&self) {
        // Checks whether writes succeed again, also without a request to `/readyz`.
        self.probe().await.ok();
        let settled = self.meter.settle().await;
        match &settled {
            Err(error) => self.note_write(Some(error)),
            Ok(wrote) if *wrote => self.note_write(None),
            Ok(_) => {}
        }
        let was_behind = self.is_behind.swap(settled.is_err(), Ordering::Relaxed);
        if let Err(error) = settled
            && !was_behind
        {
            self.tell(Level::Error, |o| {
                o.string("event", "usage").string("problem", &error.to_string());
            });
        }
    }
}
