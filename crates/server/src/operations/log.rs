//! One line for each call: what was asked of whom, and what came of it. Never a body, a seal or a key.

use throughline_core::{Json, json};

use crate::operations::ticket::{Capture, Facts};

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something was lost.
    Error,
    /// A call failed on our side or at the provider.
    Warn,
    /// A call.
    Info,
    /// What else happens.
    Debug,
}

impl Level {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }
}

/// Where lines go.
pub trait Log: Send + Sync {
    /// Whether anybody reads lines of that level.
    fn wants(&self, level: Level) -> bool;

    /// Writes a line: an object, to which the time and the level may be added.
    fn write(&self, level: Level, line: &Json);
}

/// Nobody reads anything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Log for Silent {
    fn wants(&self, _: Level) -> bool {
        false
    }

    fn write(&self, _: Level, _: &Json) {}
}

/// How much a call matters.
pub(super) fn level(facts: &Facts) -> Level {
    match (&facts.capture, facts.status) {
        (Capture::Lost(_), _) => Level::Error,
        (_, 500..) => Level::Warn,
        _ if facts.problem.is_some() => Level::Warn,
        _ => Level::Info,
    }
}

/// The line of a call.
pub(super) fn line(facts: &Facts, milliseconds: u64, micro_usd: u64) -> Json {
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
