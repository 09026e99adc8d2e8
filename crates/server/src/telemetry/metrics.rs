//! Collects metrics and renders them in the Prometheus text format.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use throughline_core::{Stage, Wire};
use throughline_json::Name;
use throughline_replay::{CallRecord, CaptureOutcome, FateCounts};

use crate::sync::lock;
use crate::telemetry::usage::UsageAmount;

/// Maximum number of models with their own label. Clients choose model names, so the number must be
/// bounded; all further models share [`OTHER`].
const MOST_MODELS: usize = 500;
/// The label shared by all models beyond the limit on model labels.
const OTHER: &str = "other";
/// The provider or model label of calls that reached no provider.
const NONE: &str = "none";

/// Upper bounds of the histogram buckets, in milliseconds.
const BUCKETS: [u32; 14] =
    [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 10_000, 60_000, 300_000];

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

/// The gateway's counters and histograms.
#[derive(Default)]
pub(crate) struct Metrics {
    counted: Mutex<MetricsState>,
    open_streams: AtomicU64,
}

#[derive(Default)]
struct MetricsState {
    /// Number of calls by dialect, provider, model and status.
    calls: BTreeMap<(Name, Name, Name, u16), u64>,
    /// Number of calls by provider, account and status, for providers with several accounts.
    account_calls: BTreeMap<(Name, Name, u16), u64>,
    /// Number of cooldowns by provider and account.
    cooldowns: BTreeMap<(Name, Name), u64>,
    /// Usage by provider and model.
    used: BTreeMap<(Name, Name), UsageAmount>,
    fates: FateCounts,
    /// Number of changes that providers reported, by type and reason.
    transformations: BTreeMap<(&'static str, &'static str), u64>,
    verdicts: BTreeMap<&'static str, u64>,
    captures: u64,
    lost_captures: u64,
    fallbacks: u64,
    took: Histograms,
    first_byte: Histograms,
}

/// Histograms by dialect and provider.
type Histograms = BTreeMap<(Name, Name), DurationHistogram>;

#[derive(Default)]
struct DurationHistogram {
    classes: [u64; BUCKETS.len()],
    count: u64,
    sum: Duration,
}

impl DurationHistogram {
    fn add(&mut self, time: Duration) {
        for (class, end) in self.classes.iter_mut().zip(BUCKETS) {
            *class += u64::from(time <= Duration::from_millis(end.into()));
        }
        self.count += 1;
        self.sum += time;
    }
}

impl Metrics {
    /// Counts a stream as open until [`Self::count`] counts its call.
    pub(crate) fn stream_opened(&self) {
        self.open_streams.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that was refused before it became a call.
    pub(crate) fn count_refusal(&self, dialect: &Wire, status: u16) {
        let none = Name::from(NONE);
        let label = (Name::from(dialect.as_str()), none.clone(), none, status);
        let mut counted = lock(&self.counted);
        *counted.calls.entry(label).or_default() += 1;
    }

    /// Counts that an account starts to cool down for a model.
    pub(crate) fn count_cooldown(&self, provider: &Name, account: &str) {
        let label = (Name::clone(provider), Name::from(account));
        *lock(&self.counted).cooldowns.entry(label).or_default() += 1;
    }

    /// Counts a call that has ended.
    pub(crate) fn count(&self, record: &CallRecord, used: &UsageAmount, took: Duration) {
        if record.is_stream {
            self.open_streams.fetch_sub(1, Ordering::Relaxed);
        }
        let none = || Name::from(NONE);
        let dialect = Name::from(record.dialect.as_str());
        let provider = record.provider.clone().unwrap_or_else(none);
        let mut counted = lock(&self.counted);
        let mut model = (provider.clone(), record.model.clone().unwrap_or_else(none));
        if !counted.used.contains_key(&model) && counted.used.len() >= MOST_MODELS {
            model.1 = Name::from(OTHER);
        }
        counted.used.entry(model.clone()).or_default().add(used);
        let status = record.status.unwrap_or_default();
        if let Some(account) = &record.account {
            let label = (provider.clone(), account.clone(), status);
            *counted.account_calls.entry(label).or_default() += 1;
        }
        let label = (dialect.clone(), model.0, model.1, status);
        *counted.calls.entry(label).or_default() += 1;
        if let Some(fates) = &record.fates {
            counted.fates.kept += fates.kept;
            counted.fates.restored += fates.restored;
            counted.fates.elided += fates.elided;
        }
        for entry in &record.transformations {
            let label = (
                known_label(&TRANSFORMATIONS, &entry.kind),
                known_label(&TRANSFORMATION_REASONS, &entry.reason),
            );
            *counted.transformations.entry(label).or_default() += 1;
        }
        if let Some(verdict) = record.sent_verdict() {
            *counted.verdicts.entry(verdict.as_str()).or_default() += 1;
        }
        match record.capture {
            CaptureOutcome::None => {}
            CaptureOutcome::Kept => counted.captures += 1,
            CaptureOutcome::Lost(_) => counted.lost_captures += 1,
        }
        counted.fallbacks += record.fallbacks;
        let labels = (dialect, provider);
        if let Some(first_byte) = record.time_to_first_byte() {
            counted.first_byte.entry(labels.clone()).or_default().add(first_byte);
        }
        counted.took.entry(labels).or_default().add(took);
    }

    /// Renders all metrics. `retries` is the number of retries that the upstream client counted,
    /// and `sockets` is the number of open WebSockets.
    pub(crate) fn render(&self, retries: u64, sockets: u64) -> String {
        let counted = lock(&self.counted);
        let mut page = PrometheusPage::default();
        page.head("calls_total", "counter", "Calls that have ended.");
        for ((dialect, provider, model, status), number) in &counted.calls {
            let status = status.to_string();
            let labels = [
                ("dialect", &**dialect),
                ("provider", &**provider),
                ("model", &**model),
                ("status", &*status),
            ];
            page.line("calls_total", &labels, number);
        }
        let help = "Calls that have ended, by the account of a pool.";
        page.head("account_calls_total", "counter", help);
        for ((provider, account, status), number) in &counted.account_calls {
            let status = status.to_string();
            let labels = [("provider", &**provider), ("account", account), ("status", &status)];
            page.line("account_calls_total", &labels, number);
        }
        let help = "Cooldowns of the accounts of a pool.";
        page.head("account_cooldowns_total", "counter", help);
        for ((provider, account), number) in &counted.cooldowns {
            let labels = [("provider", &**provider), ("account", account)];
            page.line("account_cooldowns_total", &labels, number);
        }
        page.used(&counted.used);
        page.head("fates_total", "counter", "Fates of Items and Seals.");
        let FateCounts { kept, restored, elided } = counted.fates;
        for (fate, number) in [("kept", kept), ("restored", restored), ("elided", elided)] {
            page.line("fates_total", &[("fate", fate)], number);
        }
        let help = "Changes to reasoning in requests that providers reported.";
        page.head("input_transformations_total", "counter", help);
        for ((kind, reason), number) in &counted.transformations {
            let labels = [("type", *kind), ("reason", *reason)];
            page.line("input_transformations_total", &labels, number);
        }
        let help = "Audit verdicts of requests in the form that was sent.";
        page.head("verdicts_total", "counter", help);
        for (verdict, number) in &counted.verdicts {
            page.line("verdicts_total", &[("verdict", verdict)], number);
        }
        page.total("captures_total", "Replies that were captured.", counted.captures);
        let lost = counted.lost_captures;
        page.total("capture_failures_total", "Replies that could not be captured.", lost);
        let help = "Targets of a route that failed before another was tried.";
        page.total("fallbacks_total", help, counted.fallbacks);
        page.total("retries_total", "Requests that were sent to a provider again.", retries);
        page.head("open_streams", "gauge", "Streams that are open.");
        page.line("open_streams", &[], self.open_streams.load(Ordering::Relaxed));
        page.head("open_websockets", "gauge", "WebSockets that are open.");
        page.line("open_websockets", &[], sockets);
        page.histogram("call_seconds", "Duration of calls up to the last byte.", &counted.took);
        let help = "Time until the first byte of the provider's response.";
        page.histogram("first_byte_seconds", help, &counted.first_byte);
        page.stages();
        page.text
    }
}

/// Builds a page in the Prometheus text format.
#[derive(Default)]
struct PrometheusPage {
    text: String,
}

impl PrometheusPage {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let lines = format!("# HELP throughline_{name} {help}\n# TYPE throughline_{name} {kind}\n");
        self.text.push_str(&lines);
    }

    /// Writes a counter without labels.
    fn total(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        self.line(name, &[], value);
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let labels = labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value)));
        let labels = labels.collect::<Vec<_>>().join(",");
        let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
        let line = format!("throughline_{name}{labels} {value}\n");
        self.text.push_str(&line);
    }

    /// Writes the time of each stage, if the program was built with the feature `profile`.
    fn stages(&mut self) {
        let times = Stage::ALL.map(|stage| Some((stage.as_str(), stage.microseconds()?)));
        for (index, (stage, time)) in times.into_iter().flatten().enumerate() {
            if index == 0 {
                let help = "Time spent in each stage of requests.";
                self.head("stage_microseconds_total", "counter", help);
            }
            self.line("stage_microseconds_total", &[("stage", stage)], time);
        }
    }

    fn used(&mut self, all: &BTreeMap<(Name, Name), UsageAmount>) {
        let help = "Tokens; input includes cached and written, output includes thought.";
        self.head("tokens_total", "counter", help);
        for ((provider, model), used) in all {
            let tokens = &used.tokens;
            for (kind, number) in [
                ("input", tokens.input),
                ("cached", tokens.cached),
                ("written", tokens.written),
                ("output", tokens.output),
                ("thought", tokens.thought),
            ] {
                let labels = [("provider", &**provider), ("model", &**model), ("kind", kind)];
                self.line("tokens_total", &labels, number);
            }
        }
        self.head("cost_usd_total", "counter", "Cost in US dollars at the prices of the table.");
        for ((provider, model), used) in all {
            let (dollars, micros) = (used.micro_usd() / 1_000_000, used.micro_usd() % 1_000_000);
            let labels = [("provider", &**provider), ("model", &**model)];
            self.line("cost_usd_total", &labels, format!("{dollars}.{micros:06}"));
        }
    }

    fn histogram(&mut self, name: &str, help: &str, all: &Histograms) {
        self.head(name, "histogram", help);
        for ((dialect, provider), times) in all {
            let series = [("dialect", &**dialect), ("provider", &**provider)];
            let with = |end: &str, page: &mut Self, number: u64| {
                let [dialect, provider] = series;
                page.line(&format!("{name}_bucket"), &[dialect, provider, ("le", end)], number);
            };
            for (class, number) in BUCKETS.iter().zip(times.classes) {
                with(&seconds(*class), self, number);
            }
            with("+Inf", self, times.count);
            self.line(&format!("{name}_sum"), &series, times.sum.as_secs_f64());
            self.line(&format!("{name}_count"), &series, times.count);
        }
    }
}

/// Returns the value if it is one of the known labels, otherwise [`OTHER`].
fn known_label(known: &[&'static str], value: &str) -> &'static str {
    known.iter().find(|known| **known == value).copied().unwrap_or(OTHER)
}

fn seconds(milliseconds: u32) -> String {
    (f64::from(milliseconds) / 1000.0).to_string()
}

/// Escapes a label value.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
