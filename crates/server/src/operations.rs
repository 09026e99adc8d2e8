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
//! | `trace.rs` | the place of a call in its caller's trace |
//! | `body.rs` | a caller's body, neither too large nor too slow |

mod allowance;
mod body;
mod log;
mod meter;
mod metrics;
mod ticket;
mod trace;
mod usage;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use throughline_core::{Name, Store, StoreError, Wire, json};
use tokio::sync::Semaphore;

pub use crate::operations::allowance::Allowance;
pub(crate) use crate::operations::body::whole_body;
pub use crate::operations::log::{Level, Log, Silent};
pub(crate) use crate::operations::meter::Meter;
pub(crate) use crate::operations::metrics::Metrics;
pub(crate) use crate::operations::ticket::{Capture, Fates, Ticket};
pub use crate::operations::trace::Traces;
pub use crate::operations::usage::{Price, Prices, Unpriced, UsageRow, Used, UsedFor, usage_log};

use crate::exchange::{Caller, Problem};
use crate::replay::{Claims, NoRandomness};

/// How long a caller that found the gateway full is asked to wait.
const COME_BACK: Duration = Duration::from_secs(1);

/// How much the gateway does at once, and how long it waits for its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most answers that are under way at once.
    pub streams: usize,
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
    slots: Arc<Semaphore>,
    /// What a page of our own shows with what it changes.
    token: Name,
    /// Whether what was used could not be kept the last time.
    is_behind: AtomicBool,
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
            slots: Arc::new(Semaphore::new(limits.streams)),
            token: Name::from([&*Claims::fresh_node()?.0, &*Claims::fresh_node()?.0].concat()),
            is_behind: AtomicBool::new(false),
        })
    }

    /// The same, and tells of each call as a span of its caller's trace, or of one of its own.
    #[must_use]
    pub fn traced(mut self, traces: Arc<dyn Traces>) -> Self {
        self.traces = Some(traces);
        self
    }

    /// Lets a call in, unless its key asks too often or too much is under way.
    pub(crate) fn enter(
        self: &Arc<Self>,
        caller: &Caller,
        dialect: &Wire,
    ) -> Result<Arc<Ticket>, Problem> {
        self.meter.count_request(&caller.admission)?;
        let slot = Arc::clone(&self.slots).try_acquire_owned().map_err(|_| {
            let most = self.limits.streams;
            let message = format!(
                "{most} answers are under way, and that is the most: ask again in a moment"
            );
            Problem::new(503, message).after(COME_BACK)
        })?;
        self.tell(Level::Debug, |o| {
            o.string("event", "asked").string("dialect", dialect.as_str());
            o.number("slots", self.slots.available_permits() as u64);
        });
        Ok(Ticket::new(Arc::clone(self), caller, dialect, slot))
    }

    /// Counts and tells of a request that was not let in.
    pub(crate) fn turn_away(&self, dialect: &Wire, status: u16) {
        self.metrics.count_refusal(dialect, status);
        self.tell(Level::Info, |o| {
            o.string("event", "refused").string("dialect", dialect.as_str());
            o.number("status", status.into());
        });
    }

    fn tell(&self, level: Level, fill: impl FnOnce(&mut json::Object<'_>)) {
        if self.log.wants(level) {
            self.log.write(level, &json::object(fill));
        }
    }

    /// Whether the store answers.
    pub(crate) async fn is_ready(&self) -> Result<(), StoreError> {
        let (tenant, log) = usage_log();
        self.store.log(&tenant, &log).await.map(drop)
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
        let all = u32::try_from(self.limits.streams).unwrap_or(u32::MAX);
        drop(tokio::time::timeout(self.limits.capture, self.slots.acquire_many(all)).await);
        self.settle().await;
    }

    /// Keeps what was used. What cannot be kept is told once, and tried again.
    pub(crate) async fn settle(&self) {
        let settled = self.meter.settle().await;
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
