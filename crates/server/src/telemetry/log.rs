//! Logs one line per call with its target and outcome, but never a body, a Seal or a key.

use std::time::Duration;

use throughline_codec::Verdict;
use throughline_json::{self as json, Json};
use throughline_replay::{CallRecord, CaptureOutcome};

/// The severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// A reply or usage could not be stored.
    Error,
    /// The gateway or the provider failed to serve a call.
    Warn,
    /// A call that did not fail with a server error.
    Info,
    /// Any other event.
    Debug,
}

impl Level {
    /// Returns the name of the level in log lines.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }
}

/// A destination for log lines.
pub trait Log: Send + Sync {
    /// Returns whether lines of this level are written.
    fn wants(&self, level: Level) -> bool;

    /// Writes a log line, given as a JSON object. Implementations may add the time and the level.
    fn write(&self, level: Level, line: &Json);
}

/// A log that discards all lines.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullLog;

impl Log for NullLog {
    fn wants(&self, _: Level) -> bool {
        false
    }

    fn write(&self, _: Level, _: &Json) {}
}

/// Chooses the level by the call's capture outcome and status.
pub(super) fn call_level(record: &CallRecord) -> Level {
    match (&record.capture, record.status) {
        (CaptureOutcome::Lost(_), _) => Level::Error,
        (_, Some(500..)) => Level::Warn,
        _ if record.problem.is_some() => Level::Warn,
        _ => Level::Info,
    }
}

/// Builds the log line of a call.
pub(super) fn line(record: &CallRecord, took: Duration, micro_usd: u64) -> Json {
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    json::object(|o| {
        o.string("event", "call");
        o.maybe_string("call", record.node.as_ref().map(|node| &*node.0));
        o.maybe_string("key", record.key.as_deref()).string("dialect", record.dialect.as_str());
        o.maybe_string("provider", record.provider.as_deref());
        o.maybe_string("account", record.account.as_deref());
        o.maybe_string("model", record.model.as_deref());
        o.number("status", record.status.unwrap_or_default().into());
        o.bool("stream", record.is_stream).number("milliseconds", milliseconds(took));
        if let Some(first) = record.time_to_first_byte() {
            o.number("first_byte", milliseconds(first));
        }
        if let Some(usage) = &record.usage {
            o.object("tokens", |o| {
                o.number("input", usage.input).number("cached", usage.cached);
                o.number("written", usage.written).number("output", usage.output);
                o.number("thought", usage.thought);
            });
            o.number("micro_usd", micro_usd);
        }
        if let Some(fates) = &record.fates {
            o.object("fates", |o| {
                o.number("kept", fates.kept).number("restored", fates.restored);
                o.number("elided", fates.elided);
            });
        }
        o.maybe_string("verdict", record.sent_verdict().map(Verdict::as_str));
        if record.fallbacks > 0 {
            o.number("fallbacks", record.fallbacks);
        }
        match &record.capture {
            CaptureOutcome::None => o.string("capture", "none"),
            CaptureOutcome::Kept => o.string("capture", "kept"),
            CaptureOutcome::Lost(why) => o.string("capture", "lost").string("lost", why),
        };
        o.maybe_string("problem", record.problem.as_deref().or(record.refusal()));
    })
}
