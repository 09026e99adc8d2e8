//! Logs one line for each call: its target and its outcome, but never a body, a Seal or a key.

use throughline_core::{Json, json};

use crate::telemetry::scope::{Capture, RequestFacts};

/// The severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Data was lost.
    Error,
    /// A call failed in the gateway or at the provider.
    Warn,
    /// A call.
    Info,
    /// Any other event.
    Debug,
}

impl Level {
    /// The name of the level in log lines.
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
    /// Whether lines of that level are written.
    fn wants(&self, level: Level) -> bool;

    /// Writes a line. It is a JSON object, to which the time and the level may be added.
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

/// The severity of a call.
pub(super) fn call_level(facts: &RequestFacts) -> Level {
    match (&facts.capture, facts.status) {
        (Capture::Lost(_), _) => Level::Error,
        (_, 500..) => Level::Warn,
        _ if facts.problem.is_some() => Level::Warn,
        _ => Level::Info,
    }
}

/// The log line of a call.
pub(super) fn line(facts: &RequestFacts, milliseconds: u64, micro_usd: u64) -> Json {
    json::object(|o| {
        o.string("event", "call").maybe_string("call", facts.call.as_deref());
        o.maybe_string("key", facts.key.as_deref()).string("dialect", facts.dialect.as_str());
        o.maybe_string("provider", facts.provider.as_deref());
        o.maybe_string("model", facts.model.as_deref());
        o.number("status", facts.status.into()).bool("stream", facts.is_stream);
        o.number("milliseconds", milliseconds);
        if let Some(first) = facts.first_byte {
            o.number("first_byte", u64::try_from(first.as_millis()).unwrap_or(u64::MAX));
        }
        if let Some(usage) = &facts.usage {
            o.object("tokens", |o| {
                o.number("input", usage.input).number("cached", usage.cached);
                o.number("written", usage.written).number("output", usage.output);
                o.number("thought", usage.thought);
            });
            o.number("micro_usd", micro_usd);
        }
        if let Some(fates) = &facts.fates {
            o.object("fates", |o| {
                o.number("kept", fates.kept).number("restored", fates.restored);
                o.number("elided", fates.elided);
            });
        }
        o.maybe_string("verdict", facts.verdict.map(throughline_codec::Verdict::as_str));
        if facts.fallbacks > 0 {
            o.number("fallbacks", facts.fallbacks);
        }
        match &facts.capture {
            Capture::None => o.string("capture", "none"),
            Capture::Kept => o.string("capture", "kept"),
            Capture::Lost(why) => o.string("capture", "lost").string("lost", why),
        };
        o.maybe_string("problem", facts.problem.as_deref());
    })
}
