//! A trace as a JSON document, delivered whole or in batches.

use std::sync::Arc;

use jiff::Timestamp;
use throughline_core::{LogId, Tenant};
use throughline_json::{self as json, Json, Name, Number, words};

use crate::span::{Span, SpanKind, Value, derive_id, hex};

/// Ids and settings shared by all batches of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// Session id: `sess_RUN` for the tenant `default`, otherwise `TENANT.sess_RUN`. It contains
    /// only letters, digits, `_`, `-` and `.`.
    pub id: Name,
    /// Trace id, shared by all spans of the run.
    pub trace: [u8; 16],
    /// Span id of the run's own span.
    pub root: [u8; 8],
    /// Conversation id: the Thread id, or the id set in the options.
    pub thread: Name,
    /// Whether the trace contains the text of messages, Thoughts and tool calls.
    pub log_data: bool,
    /// Whether the trace is delivered once as a whole or in batches.
    pub mode: Mode,
    /// Names of the sinks that receive the trace, without URLs or secrets.
    pub sinks: Vec<Name>,
}

/// Part of a trace, or the whole trace.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceBatch {
    /// The trace that the batch belongs to.
    pub session: Arc<Session>,
    /// Whether this is the whole trace, or its first, middle or last batch.
    pub phase: BatchPhase,
    /// Number of spans in all earlier batches.
    pub before: u64,
    /// Spans that ended since the previous batch.
    pub spans: Vec<Span>,
    /// The run's own span. It is set only in the last batch, and in a batch that is the whole
    /// trace.
    pub agent: Option<Span>,
    /// Status of the run and of the deliveries so far.
    pub status: Status,
    /// Error messages of the failed sinks.
    pub errors: Vec<Name>,
    /// Whether this batch repeats an earlier batch with a new status.
    pub is_again: bool,
}

/// Tenant of a gateway without API keys. Session ids and file names omit it.
const DEFAULT_TENANT: &str = "default";

/// Returns the session id of a run, which is unique across tenants. The id contains only letters,
/// digits, `_`, `-` and `.`. A tenant or run id with other characters is replaced by its digest.
pub(crate) fn session_id(tenant: &Tenant, run: &LogId) -> Name {
    let run = plain_name(&run.0);
    Name::from(match &*tenant.0 {
        DEFAULT_TENANT => format!("sess_{run}"),
        other => format!("{}.sess_{run}", plain_name(other)),
    })
}

/// Returns the seed for the trace id and span ids of a run.
pub(crate) fn id_scope(tenant: &Tenant, run: &LogId) -> String {
    match &*tenant.0 {
        DEFAULT_TENANT => run.0.to_string(),
        other => format!("{other}\n{run}"),
    }
}

/// Returns `name` if it is safe in file names and has no dots, otherwise `x-` followed by the
/// digest of `name`.
fn plain_name(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let is_safe = (1..=100).contains(&name.len()) && name.bytes().all(is_plain);
    if is_safe && !name.starts_with(DIGEST) {
        return name.to_owned();
    }
    format!("{DIGEST}{}", hex(&derive_id::<16>(name)))
}

/// Prefix that marks a name as a digest of the original name.
const DIGEST: &str = "x-";

words! {
    /// Position of a batch within its trace. Each string is part of the batch's key.
    BatchPhase {
        /// The whole trace.
        Whole = "whole",
        /// The first of several batches.
        Start = "start",
        /// A batch between the first and the last batch.
        More = "events",
        /// The last batch.
        End = "end",
    }
}

impl TraceBatch {
    /// Iterates over all spans. The run's own span comes last.
    pub fn all(&self) -> impl Iterator<Item = &Span> {
        self.spans.iter().chain(&self.agent)
    }

    /// Returns the idempotency key that lets a receiver detect a repeated batch.
    pub fn key(&self) -> String {
        let again = if self.is_again { "-again" } else { "" };
        format!("{}-{}-{}{again}", self.session.id, self.phase.as_str(), self.before)
    }

    /// Builds the session document with the spans as its events.
    pub fn to_json(&self) -> Json {
        let Session { id, trace, root, thread, log_data, mode, sinks } = &*self.session;
        json::object(|o| {
            o.string("sessionId", id).string("traceId", &hex(trace));
            o.string("rootSpanId", &hex(root)).string("threadId", thread);
            o.string("phase", self.phase.as_str());
            if let Some(agent) = &self.agent {
                o.string("startedAt", &agent.start.to_string());
                o.string("endedAt", &agent.end.to_string());
                o.number("durationMs", milliseconds(agent.start, agent.end));
                o.object("agent", |o| {
                    o.string("name", agent.name.trim_start_matches("invoke_agent").trim());
                });
                o.object("summary", |o| put_attributes(o, agent));
            }
            o.object("config", |o| {
                o.bool("enabled", true).bool("logData", *log_data).string("mode", mode.as_str());
                o.array("sinks", |list| {
                    for sink in sinks {
                        list.string(sink);
                    }
                });
            });
            o.array("events", |list| {
                for (sequence, span) in (self.before + 1..).zip(&self.spans) {
                    list.object(|o| put_event(o, sequence, span));
                }
            });
            o.string("status", self.status.as_str());
            o.array("errors", |list| {
                for error in &self.errors {
                    list.object(|o| {
                        o.string("message", error);
                    });
                }
            });
        })
    }
}

fn put_event(o: &mut json::Object<'_>, sequence: u64, span: &Span) {
    let id = hex(&span.id);
    let end = id.get(..4).unwrap_or_default();
    o.string("id", &format!("evt_{sequence:04}_{end}")).number("sequence", sequence);
    o.string("type", span.kind.as_str()).string("label", &label(span, sequence));
    o.string("spanId", &id);
    o.maybe_string("parentSpanId", span.parent.as_ref().map(|parent| hex(parent)).as_deref());
    o.string("timestamp", &span.start.to_string());
    o.number("durationMs", milliseconds(span.start, span.end));
    o.string("status", if span.problem.is_some() { "error" } else { "success" });
    if let Some(problem) = &span.problem {
        o.object("error", |o| {
            o.string("message", problem);
        });
    }
    o.object("attributes", |o| put_attributes(o, span));
}

fn label(span: &Span, sequence: u64) -> String {
    match span.kind {
        SpanKind::Agent | SpanKind::Call => span.name.clone(),
        SpanKind::Inference | SpanKind::Tool | SpanKind::Plan | SpanKind::Wait | SpanKind::Note => {
            format!("{} #{sequence}", span.name)
        }
    }
}

fn put_attributes(o: &mut json::Object<'_>, span: &Span) {
    for (key, value) in &span.attributes {
        match value {
            Value::Text(text) => o.string(key, text),
            Value::Whole(number) => o.number(key, *number),
            Value::Flag(flag) => o.bool(key, *flag),
            Value::Decimal(number) => match Number::from_f64(*number) {
                Some(number) => o.raw(key, &number.json()),
                None => o.null(key),
            },
            Value::Texts(texts) => o.array(key, |list| {
                for text in texts {
                    list.string(text);
                }
            }),
        };
    }
}

fn milliseconds(start: Timestamp, end: Timestamp) -> u64 {
    u64::try_from(end.as_millisecond() - start.as_millisecond()).unwrap_or(0)
}

words! {
    /// Status of a run and of the delivery of its trace.
    #[derive(Default)]
    Status {
        /// The run has not ended.
        #[default]
        Running = "running",
        /// The run succeeded, and all sinks received the trace.
        Success = "success",
        /// The run failed or was cancelled.
        Error = "error",
        /// The run succeeded, but some sinks did not receive the whole trace.
        Partial = "partial",
    }
}

impl Status {
    /// Returns the status to report after a delivery fails.
    pub(crate) fn degraded(self) -> Self {
        match self {
            Status::Success => Status::Partial,
            Status::Running | Status::Error | Status::Partial => self,
        }
    }
}

words! {
    /// When a trace is delivered.
    #[derive(Default)]
    Mode {
        /// Once, as a whole, when the run ends.
        #[default]
        Batched = "batched",
        /// In batches, while the run is in progress.
        Streaming = "streaming",
    }
}

impl Mode {
    /// All modes, each with its name in the configuration.
    pub const ALL: &'static [(&'static str, Self)] =
        &[("batched", Self::Batched), ("streaming", Self::Streaming)];
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(tenant: &str, run: &str) -> Name {
        session_id(&Tenant::from(tenant), &LogId::from(run))
    }

    #[test]
    fn session_names_are_safe_and_separate_tenants() {
        assert_eq!(&*id("default", "run_1"), "sess_run_1");
        assert_eq!(&*id("acme", "run_1"), "acme.sess_run_1");
        let tenants =
            ["default", "acme", "acme.sess_x", "../acme", "Acme", "ácme", "x-1", "", "a/b"];
        let runs =
            ["run_1", "../../etc/passwd", "/etc/passwd", "acme.sess_run_1", "run_é", "..", ""];
        let mut unique = std::collections::HashSet::new();
        for tenant in tenants {
            for run in runs {
                let id = id(tenant, run);
                let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
                assert!(id.bytes().all(is_allowed) && !id.contains(".."), "{id}");
                assert!(unique.insert(id.clone()), "{id} names two runs");
            }
        }
    }

    #[test]
    fn tenant_ids_differ_and_default_tenant_ids_are_stable() {
        let scope = |tenant: &str| id_scope(&Tenant::from(tenant), &LogId::from("run_1"));
        assert_eq!(scope("default"), "run_1");
        assert_ne!(scope("acme"), scope("globex"));
    }
}
