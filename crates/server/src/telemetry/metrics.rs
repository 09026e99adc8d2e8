//! Collects metrics. `metrics/page.rs` renders them for Prometheus.
//!
//! The metrics that start with `gen_ai_` follow OpenTelemetry's conventions for generative AI; see
//! [`gen_ai`](throughline_core::gen_ai) for the version.

mod call_series;
mod page;

#[cfg(test)]
#[path = "metrics/metrics_tests.rs"]
mod metrics_tests;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::metrics::counter::{Atomic, Counter};
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use throughline_core::{Stage, TraceParent, Usage, Wire};
use throughline_json::Name;
use throughline_replay::{CallRecord, CaptureOutcome};
use tokio::time::Instant;

use crate::telemetry::metrics::call_series::{CallLabels, CallSeries, ServedLabels};
pub(crate) use crate::telemetry::metrics::page::MetricsFormat;
use crate::telemetry::usage::UsageAmount;

/// Maximum number of models with their own label. Clients choose model names, so the number must be
/// bounded; all further models share [`OTHER`].
const MOST_MODELS: usize = 500;
/// The label shared by all models beyond the limit on model labels.
const OTHER: &str = "other";
/// The provider or model label of calls that reached no provider.
const NONE: &str = "none";

/// Upper bounds of the buckets of Throughline's own histograms, in seconds.
const BUCKETS: [f64; 14] =
    [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0];
/// Upper bounds of the buckets that the conventions require for durations, in seconds.
const GEN_AI_SECONDS: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
/// Upper bounds of the buckets that the conventions require for numbers of tokens.
const GEN_AI_TOKENS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// The types of changes that providers are known to report. Any other type counts as [`OTHER`],
/// because the number of labels must be bounded.
const TRANSFORMATIONS: [&str; 2] = ["thinking_dropped", "thinking_mismatch_allowed"];
/// The reasons that providers are known to report for these changes.
const TRANSFORMATION_REASONS: [&str; 4] = [
    "model_binding_mismatch",
    "prefix_binding_mismatch",
    "organization_binding_mismatch",
    "end_user_binding_mismatch",
];

/// A fixed number of labels.
type Labels<const N: usize> = [(&'static str, Name); N];
type CounterFamily<const N: usize> = Family<Labels<N>, Counter>;
/// Labels that depend on the call, because the conventions omit unknown attributes.
type Attributes = Vec<(&'static str, Name)>;
/// A histogram whose buckets name the span of a recent call.
type Histogram = HistogramWithExemplars<Labels<2>>;
type HistogramFamily<L> = Family<L, Histogram, fn() -> Histogram>;

/// The gateway's counters, gauges and histograms.
pub(crate) struct Metrics {
    registry: Registry,
    /// The provider and model pairs with their own labels.
    models: RwLock<HashSet<(Name, Name)>>,
    /// The series of the calls that have ended. Their number is bounded, because their labels are.
    call_series: RwLock<HashMap<CallLabels, Arc<CallSeries>>>,
    calls: CounterFamily<4>,
    account_calls: CounterFamily<3>,
    cooldowns: CounterFamily<2>,
    tokens: CounterFamily<3>,
    cost: Family<Labels<2>, Counter<f64, Dollars>>,
    fates: CounterFamily<1>,
    transformations: CounterFamily<2>,
    verdicts: CounterFamily<1>,
    captures: Counter,
    lost_captures: Counter,
    fallbacks: Counter,
    retries: Counter,
    reloads: CounterFamily<2>,
    last_reloads: Family<Labels<1>, Gauge>,
    retention_passes: CounterFamily<1>,
    deleted: CounterFamily<1>,
    deleted_bytes: CounterFamily<1>,
    open_streams: Gauge,
    open_sockets: Gauge,
    call_seconds: HistogramFamily<Labels<2>>,
    first_byte_seconds: HistogramFamily<Labels<2>>,
    stages: CounterFamily<1>,
    gen_ai: GenAiMetrics,
}

/// What a running gateway reloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReloadKind {
    /// The configuration file.
    Config,
    /// The certificate and key of the TLS listener.
    Certificate,
}

impl ReloadKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Certificate => "certificate",
        }
    }

    fn labels(self, result: &str) -> Labels<2> {
        [("kind", Name::from(self.as_str())), ("result", Name::from(result))]
    }
}

/// The result of a pass that deletes expired data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetentionResult {
    /// All expired data was deleted.
    Completed,
    /// Another node was deleting expired data.
    Skipped,
    /// The pass stopped early; the next pass continues.
    Failed,
}

impl RetentionResult {
    const ALL: [Self; 3] = [Self::Completed, Self::Skipped, Self::Failed];

    /// Returns the value of the label `result`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
        }
    }
}

/// The metrics of OpenTelemetry's conventions.
struct GenAiMetrics {
    duration: HistogramFamily<Attributes>,
    first_chunk: HistogramFamily<Attributes>,
    tokens: HistogramFamily<Attributes>,
}

/// An amount of money that is counted exactly, in trillionths of a dollar, and exported in dollars.
#[derive(Debug, Default)]
struct Dollars(AtomicU64);

impl Dollars {
    fn add_pico_usd(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }
}

impl Atomic<f64> for Dollars {
    fn inc(&self) -> f64 {
        self.inc_by(1.0)
    }

    fn inc_by(&self, dollars: f64) -> f64 {
        let before = self.get();
        let micros = Duration::try_from_secs_f64(dollars).unwrap_or_default().as_micros();
        self.add_pico_usd(u64::try_from(micros).unwrap_or(u64::MAX).saturating_mul(1_000_000));
        before
    }

    fn get(&self) -> f64 {
        // A duration of as many microseconds as there are millionths of a dollar converts to a
        // float without a lossy cast.
        Duration::from_micros(self.0.load(Ordering::Relaxed) / 1_000_000).as_secs_f64()
    }
}

/// The facts about a call that its [`CallRecord`] does not contain.
pub(crate) struct CallFacts<'c> {
    pub(crate) used: &'c UsageAmount,
    /// Token usage as reported by the provider; `None` if usage was estimated.
    pub(crate) reported: Option<Usage>,
    pub(crate) took: Duration,
    pub(crate) end: Instant,
    /// The call's own span, if the call is part of a sampled trace.
    pub(crate) span: Option<TraceParent>,
}

fn new_histogram() -> Histogram {
    Histogram::new(BUCKETS.into_iter())
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let gen_ai = GenAiMetrics::register(&mut registry);
        let metrics = Self {
            models: RwLock::default(),
            call_series: RwLock::default(),
            calls: Family::default(),
            account_calls: Family::default(),
            cooldowns: Family::default(),
            tokens: Family::default(),
            cost: Family::default(),
            fates: Family::default(),
            transformations: Family::default(),
            verdicts: Family::default(),
            captures: Counter::default(),
            lost_captures: Counter::default(),
            fallbacks: Counter::default(),
            retries: Counter::default(),
            reloads: Family::default(),
            last_reloads: Family::default(),
            retention_passes: Family::default(),
            deleted: Family::default(),
            deleted_bytes: Family::default(),
            open_streams: Gauge::default(),
            open_sockets: Gauge::default(),
            call_seconds: Family::new_with_constructor(new_histogram),
            first_byte_seconds: Family::new_with_constructor(new_histogram),
            stages: Family::default(),
            gen_ai,
            registry,
        };
        // These series exist from the start, so that a rate over them starts at 0.
        for fate in ["kept", "restored", "elided"] {
            drop(metrics.fates.get_or_create(&[("fate", Name::from(fate))]));
        }
        for kind in [ReloadKind::Config, ReloadKind::Certificate] {
            for result in ["applied", "rejected"] {
                drop(metrics.reloads.get_or_create(&kind.labels(result)));
            }
        }
        for result in RetentionResult::ALL {
            let labels = [("result", Name::from(result.as_str()))];
            drop(metrics.retention_passes.get_or_create(&labels));
        }
        metrics.registered()
    }
}

impl Metrics {
    /// Registers all metrics with their names and help texts. The names are stable.
    fn registered(mut self) -> Self {
        let own = self.registry.sub_registry_with_prefix("throughline");
        own.register("calls", "Calls that have ended", self.calls.clone());
        let help = "Calls that have ended, by the account of a pool";
        own.register("account_calls", help, self.account_calls.clone());
        let help = "Cooldowns of the accounts of a pool";
        own.register("account_cooldowns", help, self.cooldowns.clone());
        let help = "Tokens; input includes cached and written, output includes thought";
        own.register("tokens", help, self.tokens.clone());
        let help = "Cost in US dollars at the prices of the table";
        own.register("cost_usd", help, self.cost.clone());
        own.register("fates", "Fates of Items and Seals", self.fates.clone());
        let help = "Changes to reasoning in requests that providers reported";
        own.register("input_transformations", help, self.transformations.clone());
        let help = "Audit verdicts of requests in the form that was sent";
        own.register("verdicts", help, self.verdicts.clone());
        own.register("captures", "Replies that were captured", self.captures.clone());
        let help = "Replies that could not be captured";
        own.register("capture_failures", help, self.lost_captures.clone());
        let help = "Targets of a route that failed before another was tried";
        own.register("fallbacks", help, self.fallbacks.clone());
        let help = "Requests that were sent to a provider again";
        own.register("retries", help, self.retries.clone());
        let help = "Reloads of the configuration and of the certificate, by result";
        own.register("reloads", help, self.reloads.clone());
        let help = "Time of the last successful reload, in seconds since the epoch";
        own.register("last_reload_timestamp_seconds", help, self.last_reloads.clone());
        let help = "Passes that delete expired data, by result";
        own.register("retention_runs", help, self.retention_passes.clone());
        let help = "Expired Threads, runs and traces that were deleted";
        own.register("retention_deleted", help, self.deleted.clone());
        let help = "Size of the expired data that was deleted, in bytes";
        own.register("retention_deleted_bytes", help, self.deleted_bytes.clone());
        own.register("open_streams", "Streams that are open", self.open_streams.clone());
        own.register("open_websockets", "WebSockets that are open", self.open_sockets.clone());
        let help = "Duration of calls up to the last byte";
        own.register_with_unit("call", help, Unit::Seconds, self.call_seconds.clone());
        let help = "Time until the first byte of the provider's response";
        own.register_with_unit("first_byte", help, Unit::Seconds, self.first_byte_seconds.clone());
        // Only builds with the feature `profile` measure stages.
        if Stage::ALL.iter().any(|stage| stage.microseconds().is_some()) {
            let help = "Time spent in each stage of requests";
            own.register("stage_microseconds", help, self.stages.clone());
        }
        self
    }

    /// Counts a stream as open until [`Self::count`] counts its call.
    pub(crate) fn stream_opened(&self) {
        self.open_streams.inc();
    }

    /// Counts a request that was refused before it became a call.
    pub(crate) fn count_refusal(&self, dialect: &Wire, status: u16) {
        let none = Name::from(NONE);
        self.count_call(dialect, none.clone(), none, status);
    }

    fn count_call(&self, dialect: &Wire, provider: Name, model: Name, status: u16) {
        let labels = [
            ("dialect", Name::from(dialect.as_str())),
            ("provider", provider),
            ("model", model),
            ("status", Name::from(status.to_string())),
        ];
        self.calls.get_or_create(&labels).inc();
    }

    /// Counts that an account starts to cool down for a model.
    pub(crate) fn count_cooldown(&self, provider: &Name, account: &str) {
        let labels = [("provider", Name::clone(provider)), ("account", Name::from(account))];
        self.cooldowns.get_or_create(&labels).inc();
    }

    /// Counts a reload. `applied` is the time at which the new version took effect; `None` if it
    /// was rejected.
    pub(super) fn count_reload(&self, kind: ReloadKind, applied: Option<Timestamp>) {
        let result = if applied.is_some() { "applied" } else { "rejected" };
        self.reloads.get_or_create(&kind.labels(result)).inc();
        if let Some(time) = applied {
            let labels = [("kind", Name::from(kind.as_str()))];
            self.last_reloads.get_or_create(&labels).set(time.as_second());
        }
    }

    /// Counts a pass that deletes expired data.
    pub(super) fn count_retention(&self, result: RetentionResult) {
        let labels = [("result", Name::from(result.as_str()))];
        self.retention_passes.get_or_create(&labels).inc();
    }

    /// Counts deleted data of a class of `[retention]`.
    pub(super) fn count_deleted(&self, class: &'static str, number: u64, bytes: u64) {
        let labels = [("class", Name::from(class))];
        self.deleted.get_or_create(&labels).inc_by(number);
        self.deleted_bytes.get_or_create(&labels).inc_by(bytes);
    }

    /// Counts a call that has ended.
    pub(crate) fn count(&self, record: &CallRecord, facts: &CallFacts<'_>) {
        if record.is_stream {
            self.open_streams.dec();
        }
        let none = || Name::from(NONE);
        let provider = record.provider.clone().unwrap_or_else(none);
        let model = self.model_label(&provider, record.model.clone().unwrap_or_else(none));
        let served = record.provider_call().map(|call| {
            let answered =
                call.answered.map(|answered| self.model_label(&provider, answered.clone()));
            ServedLabels::new(&call, answered)
        });
        let labels = CallLabels {
            dialect: record.dialect.clone(),
            provider,
            model,
            account: record.account.clone(),
            status: record.status.unwrap_or_default(),
            error: record.error_type(),
            served,
        };
        self.series_of(&labels).count(self, &labels, record, facts);
        self.count_reasoning(record);
        match record.capture {
            CaptureOutcome::None => {}
            CaptureOutcome::Kept => drop(self.captures.inc()),
            CaptureOutcome::Lost(_) => drop(self.lost_captures.inc()),
        }
        self.fallbacks.inc_by(record.fallbacks);
    }

    /// Returns the series of calls with these labels.
    fn series_of(&self, labels: &CallLabels) -> Arc<CallSeries> {
        let known = self.call_series.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(series) = known.get(labels) {
            return Arc::clone(series);
        }
        drop(known);
        let series = Arc::new(CallSeries::new(self, labels));
        let mut known = self.call_series.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(known.entry(labels.clone()).or_insert(series))
    }

    /// Returns the label of a model: its name, or [`OTHER`] beyond the maximum number of models.
    fn model_label(&self, provider: &Name, model: Name) -> Name {
        let pair = (Name::clone(provider), model);
        let is_known = self.models.read().unwrap_or_else(PoisonError::into_inner).contains(&pair);
        if is_known {
            return pair.1;
        }
        let mut models = self.models.write().unwrap_or_else(PoisonError::into_inner);
        if models.contains(&pair) || models.len() < MOST_MODELS {
            models.insert(pair.clone());
            return pair.1;
        }
        Name::from(OTHER)
    }

    /// Counts the Fates, the provider's changes and the audit verdict of a call.
    fn count_reasoning(&self, record: &CallRecord) {
        if let Some(fates) = &record.fates {
            let counts =
                [("kept", fates.kept), ("restored", fates.restored), ("elided", fates.elided)];
            for (fate, number) in counts {
                self.fates.get_or_create(&[("fate", Name::from(fate))]).inc_by(number);
            }
        }
        for entry in &record.transformations {
            let labels = [
                ("type", known_label(&TRANSFORMATIONS, &entry.kind)),
                ("reason", known_label(&TRANSFORMATION_REASONS, &entry.reason)),
            ];
            self.transformations.get_or_create(&labels).inc();
        }
        if let Some(verdict) = record.sent_verdict() {
            let labels = [("verdict", Name::from(verdict.as_str()))];
            self.verdicts.get_or_create(&labels).inc();
        }
    }

    /// Renders all metrics. `retries` is the number of retries that the upstream client counted,
    /// and `sockets` is the number of open WebSockets.
    pub(crate) fn render(&self, format: MetricsFormat, retries: u64, sockets: u64) -> String {
        self.retries.inner().store(retries, Ordering::Relaxed);
        self.open_sockets.set(i64::try_from(sockets).unwrap_or(i64::MAX));
        for stage in Stage::ALL {
            if let Some(time) = stage.microseconds() {
                let labels = [("stage", Name::from(stage.as_str()))];
                self.stages.get_or_create(&labels).inner().store(time, Ordering::Relaxed);
            }
        }
        page::render(&self.registry, format)
    }
}

impl GenAiMetrics {
    fn register(registry: &mut Registry) -> Self {
        fn seconds() -> Histogram {
            Histogram::new(GEN_AI_SECONDS.into_iter())
        }
        let duration: HistogramFamily<Attributes> = Family::new_with_constructor(seconds);
        let first_chunk: HistogramFamily<Attributes> = Family::new_with_constructor(seconds);
        let tokens: HistogramFamily<Attributes> =
            Family::new_with_constructor(|| Histogram::new(GEN_AI_TOKENS.into_iter()));
        let name = "gen_ai_client_operation_duration";
        let help = "GenAI operation duration";
        registry.register_with_unit(name, help, Unit::Seconds, duration.clone());
        let name = "gen_ai_client_operation_time_to_first_chunk";
        let help = "Time to receive the first chunk of a stream, from sending the request";
        registry.register_with_unit(name, help, Unit::Seconds, first_chunk.clone());
        let help = "Number of input and output tokens used";
        registry.register("gen_ai_client_token_usage", help, tokens.clone());
        Self { duration, first_chunk, tokens }
    }
}

/// Adds a value to a histogram. The call's span becomes the exemplar of the value's bucket.
fn observe(histogram: &Histogram, value: f64, facts: &CallFacts<'_>) {
    let exemplar = facts.span.map(|span| {
        [("trace_id", Name::from(span.trace_hex())), ("span_id", Name::from(span.span_hex()))]
    });
    histogram.observe(value, exemplar, None);
}

/// Returns the value if it is one of the known labels, otherwise [`OTHER`].
fn known_label(known: &[&'static str], value: &str) -> Name {
    Name::from(known.iter().find(|known| **known == value).copied().unwrap_or(OTHER))
}
