//! A trace as one JSON document, and the parcels in which it travels.

use std::sync::Arc;

use jiff::Timestamp;
use throughline_core::{Json, LogId, Name, Number, Tenant, json};

use crate::deliver::Status;
use crate::span::{Span, SpanKind, Value, hex, id_of};
use crate::tracer::Mode;

/// What a trace is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// Its name: `sess_RUN`, and before it the tenant and a dot where the tenant is not `default`. It holds only letters,
    /// digits, `_`, `-` and `.`.
    pub id: Name,
    /// The trace's id.
    pub trace: [u8; 16],
    /// The id of the run's own span.
    pub root: [u8; 8],
    /// The conversation.
    pub thread: Name,
    /// Whether what was said is told.
    pub log_data: bool,
    /// How it travels.
    pub mode: Mode,
    /// Where it goes: the sinks by name, without their addresses and secrets.
    pub sinks: Vec<Name>,
}

/// A piece of a trace, or all of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Parcel {
    /// What it is a piece of.
    pub session: Arc<Session>,
    /// Which piece it is.
    pub phase: Phase,
    /// How many spans went before these.
    pub before: u64,
    /// The spans.
    pub spans: Vec<Span>,
    /// The run's own span, where the trace is at its end.
    pub agent: Option<Span>,
    /// How the trace stands.
    pub status: Status,
    /// What went wrong on the way.
    pub errors: Vec<Name>,
    /// Whether the same was told before, and only the status is another.
    pub is_again: bool,
}

/// The tenant of a gateway without keys. Its ids and file names do not name it.
const DEFAULT_TENANT: &str = "default";

/// The name of a run's session. Runs of two tenants never share one, and neither does it hold anything but letters, digits,
/// `_`, `-` and `.`: a name with other characters goes in as its digest.
pub(crate) fn session_id(tenant: &Tenant, run: &LogId) -> Name {
    let run = plain_name(&run.0);
    Name::from(match &*tenant.0 {
        DEFAULT_TENANT => format!("sess_{run}"),
        other => format!("{}.sess_{run}", plain_name(other)),
    })
}

/// The name from which the ids of a run's trace and spans follow.
pub(crate) fn id_scope(tenant: &Tenant, run: &LogId) -> String {
    match &*tenant.0 {
        DEFAULT_TENANT => run.0.to_string(),
        other => format!("{other}\n{run}"),
    }
}

/// A name that is safe in a file name and holds no dot: the name itself, or `x-` and its digest.
fn plain_name(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let is_safe = (1..=100).contains(&name.len()) && name.bytes().all(is_plain);
    if is_safe && !name.starts_with(DIGEST) {
        return name.to_owned();
    }
    format!("{DIGEST}{}", hex(&id_of::<16>(name)))
}

/// What stands before a digest.
const DIGEST: &str = "x-";

/// Which piece of a trace a parcel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// All of it.
    Whole,
    /// The first piece of several.
    Start,
    /// Another piece.
    More,
    /// The last piece.
    End,
}

impl Phase {
    fn as_str(self) -> &'static str {
        match self {
            Phase::Whole => "whole",
            Phase::Start => "start",
            Phase::More => "events",
            Phase::End => "end",
        }
    }
}

impl Parcel {
    /// All spans of it, the run's own last.
    pub fn all(&self) -> impl Iterator<Item = &Span> {
        self.spans.iter().chain(&self.agent)
    }

    /// A name by which it is known when it comes twice.
    pub fn key(&self) -> String {
        let again = if self.is_again { "-again" } else { "" };
        format!("{}-{}-{}{again}", self.session.id, self.phase.as_str(), self.before)
    }

    /// The document.
    pub fn json(&self) -> Json {
        let Session { id, trace, root, thread, log_data, mode, sinks } = &*self.session;
        json::object(|o| {
            o.string("sessionId", id)
                .string("traceId", &hex(trace))
                .string("rootSpanId", &hex(root));
            o.string("threadId", thread).string("phase", self.phase.as_str());
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
            Value::Decimal(number) => match Number::of(*number) {
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
        let mut seen = std::collections::HashSet::new();
        for tenant in tenants {
            for run in runs {
                let id = id(tenant, run);
                let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
                assert!(id.bytes().all(is_allowed) && !id.contains(".."), "{id}");
                assert!(seen.insert(id.clone()), "{id} names two runs");
            }
        }
    }

    #[test]
    fn ids_of_two_tenants_differ_and_those_of_the_default_tenant_stay() {
        let scope = |tenant: &str| id_scope(&Tenant::from(tenant), &LogId::from("run_1"));
        assert_eq!(scope("default"), "run_1");
        assert_ne!(scope("acme"), scope("globex"));
    }
}
