//! Everything counted, in the text format of Prometheus.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use throughline_core::{Name, Wire};

use crate::operations::ticket::{Capture, Facts, Fates};
use crate::operations::usage::Used;

/// How many models are told apart. Callers choose their names, so the rest is counted together.
const MOST_MODELS: usize = 500;
/// What the rest is called.
const OTHER: &str = "other";
/// What stands where nobody was asked.
const NONE: &str = "none";

/// The upper ends of the classes in which times are counted, in milliseconds.
const CLASSES: [u32; 14] =
    [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 10_000, 60_000, 300_000];

/// Everything that is counted.
#[derive(Default)]
pub(crate) struct Metrics {
    counted: Mutex<Counted>,
    open_streams: AtomicU64,
}

#[derive(Default)]
struct Counted {
    /// By dialect, provider, model and status.
    calls: BTreeMap<(Name, Name, Name, u16), u64>,
    /// By provider and model.
    used: BTreeMap<(Name, Name), Used>,
    fates: Fates,
    verdicts: BTreeMap<&'static str, u64>,
    captures: u64,
    lost_captures: u64,
    fallbacks: u64,
    /// By dialect and provider.
    took: BTreeMap<(Name, Name), Times>,
    first_byte: BTreeMap<(Name, Name), Times>,
}

/// Times, by class.
#[derive(Default)]
struct Times {
    classes: [u64; CLASSES.len()],
    count: u64,
    sum: Duration,
}

impl Times {
    fn add(&mut self, time: Duration) {
        for (class, end) in self.classes.iter_mut().zip(CLASSES) {
            *class += u64::from(time <= Duration::from_millis(end.into()));
        }
        self.count += 1;
        self.sum += time;
    }
}

impl Metrics {
    /// A stream is open, until its call is counted.
    pub(crate) fn stream_opened(&self) {
        self.open_streams.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that was not let in.
    pub(crate) fn count_refusal(&self, dialect: &Wire, status: u16) {
        let none = Name::from(NONE);
        let label = (Name::from(dialect.as_str()), none.clone(), none, status);
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        *counted.calls.entry(label).or_default() += 1;
    }

    /// Counts a call that has ended.
    pub(crate) fn count(&self, facts: &Facts, used: &Used, took: Duration) {
        if facts.is_stream {
            self.open_streams.fetch_sub(1, Ordering::Relaxed);
        }
        let none = || Name::from(NONE);
        let dialect = Name::from(facts.dialect.as_str());
        let provider = facts.provider.clone().unwrap_or_else(none);
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let mut model = (provider.clone(), facts.model.clone().unwrap_or_else(none));
        if !counted.used.contains_key(&model) && counted.used.len() >= MOST_MODELS {
            model.1 = Name::from(OTHER);
        }
        counted.used.entry(model.clone()).or_default().add(used);
        let label = (dialect.clone(), model.0, model.1, facts.status);
        *counted.calls.entry(label).or_default() += 1;
        if let Some(fates) = &facts.fates {
            counted.fates.kept += fates.kept;
            counted.fates.restored += fates.restored;
            counted.fates.elided += fates.elided;
        }
        if let Some(verdict) = facts.verdict {
            *counted.verdicts.entry(verdict.as_str()).or_default() += 1;
        }
        match facts.capture {
            Capture::None => {}
            Capture::Kept => counted.captures += 1,
            Capture::Lost(_) => counted.lost_captures += 1,
        }
        counted.fallbacks += facts.fallbacks;
        let place = (dialect, provider);
        if let Some(first_byte) = facts.first_byte {
            counted.first_byte.entry(place.clone()).or_default().add(first_byte);
        }
        counted.took.entry(place).or_default().add(took);
    }

    /// All of it. The provider's client counts for itself how often it asked again.
    pub(crate) fn text(&self, retries: u64) -> String {
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let mut page = Page::default();
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
        page.used(&counted.used);
        page.head("fates_total", "counter", "What was done with Items and Seals.");
        let Fates { kept, restored, elided } = counted.fates;
        for (fate, number) in [("kept", kept), ("restored", restored), ("elided", elided)] {
            page.line("fates_total", &[("fate", fate)], number);
        }
        page.head(
            "verdicts_total",
            "counter",
            "What the audit said of requests as they were sent.",
        );
        for (verdict, number) in &counted.verdicts {
            page.line("verdicts_total", &[("verdict", verdict)], number);
        }
        for (name, kind, help, number) in [
            ("captures_total", "counter", "Answers that were kept.", counted.captures),
            (
                "capture_failures_total",
                "counter",
                "Answers that could not be kept.",
                counted.lost_captures,
            ),
            (
                "fallbacks_total",
                "counter",
                "Targets of a route that failed before another was asked.",
                counted.fallbacks,
            ),
            ("retries_total", "counter", "Requests that were sent to a provider again.", retries),
            (
                "open_streams",
                "gauge",
                "Streams that are open.",
                self.open_streams.load(Ordering::Relaxed),
            ),
        ] {
            page.head(name, kind, help);
            page.line(name, &[], number);
        }
        page.times("call_seconds", "How long calls took, to the last byte.", &counted.took);
        let help = "How long providers took to begin their answers.";
        page.times("first_byte_seconds", help, &counted.first_byte);
        page.text
    }
}

/// A page in Prometheus' format.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let lines = format!("# HELP throughline_{name} {help}\n# TYPE throughline_{name} {kind}\n");
        self.text.push_str(&lines);
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let labels = labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value)));
        let labels = labels.collect::<Vec<_>>().join(",");
        let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
        let line = format!("throughline_{name}{labels} {value}\n");
        self.text.push_str(&line);
    }

    fn used(&mut self, all: &BTreeMap<(Name, Name), Used>) {
        self.head(
            "tokens_total",
            "counter",
            "Tokens: input has cached and written, output has thought.",
        );
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
        self.head("cost_usd_total", "counter", "Dollars, at the prices of the table.");
        for ((provider, model), used) in all {
            let (whole, rest) = (used.micro_usd() / 1_000_000, used.micro_usd() % 1_000_000);
            let labels = [("provider", &**provider), ("model", &**model)];
            self.line("cost_usd_total", &labels, format!("{whole}.{rest:06}"));
        }
    }

    fn times(&mut self, name: &str, help: &str, all: &BTreeMap<(Name, Name), Times>) {
        self.head(name, "histogram", help);
        for ((dialect, provider), times) in all {
            let place = [("dialect", &**dialect), ("provider", &**provider)];
            let with = |end: &str, page: &mut Self, number: u64| {
                let [dialect, provider] = place;
                page.line(&format!("{name}_bucket"), &[dialect, provider, ("le", end)], number);
            };
            for (class, number) in CLASSES.iter().zip(times.classes) {
                with(&seconds(*class), self, number);
            }
            with("+Inf", self, times.count);
            self.line(&format!("{name}_sum"), &place, times.sum.as_secs_f64());
            self.line(&format!("{name}_count"), &place, times.count);
        }
    }
}

fn seconds(milliseconds: u32) -> String {
    (f64::from(milliseconds) / 1000.0).to_string()
}

/// A label's value as the format wants it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
