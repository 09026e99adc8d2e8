//! The record of one call: its request, the request sent, the outcome, and the times.
//!
//! The record of a captured call is stored with its turn, in the same commit. A call without a
//! reply (refused, failed or truncated) has its own log: a run of the conversation that it
//! continued, or a thread if there is none.
//!
//! | record | contents |
//! |---|---|
//! | `turn`, or `story` without a reply | caller, target, outcome, times and tokens |
//! | `copy` | the bodies, as differences to those of the previous call; see [`Bodies`] |
//!
//! The bodies repeat the content of Items. They are therefore marked as copies, which the store
//! destroys together with any Item of their thread.
//!
//! | file | contents |
//! |---|---|
//! | `bodies.rs` | the bodies of a call and their delta encoding |
//! | `report.rs` | the report: Fates, findings and repairs |
//! | `delta.rs` | the difference between two texts |
//! | `disconnect.rs` | rate limiting after client disconnects |
//! | `call_log.rs` | storing and finding call records |
//! | `call_view.rs` | a call record as JSON for its tenant |

mod bodies;
mod call_log;
mod call_view;
mod delta;
mod disconnect;
mod report;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use throughline_core::{
    Json, Name, Origin, Reply, Request, StopReason, Tenant, TurnId, UpstreamRequest, Usage, Wire,
    json,
};
use tokio::time::Instant;

pub use crate::call_record::bodies::{Bodies, DeltaBase};
pub(crate) use crate::call_record::call_log::BaseLocation;
pub use crate::call_record::call_log::CallLog;
pub use crate::call_record::call_view::call_json;
pub use crate::call_record::disconnect::DisconnectLimiter;
pub use crate::call_record::report::report_json;
use crate::turn::ParentTurn;

/// Header names that contain one of these words are not stored.
const SECRET: [&str; 8] =
    ["auth", "cookie", "key", "password", "secret", "session", "signature", "token"];

/// The record of one call, filled in as the call progresses.
#[derive(Clone, Debug)]
pub struct CallRecord {
    /// The id of the call.
    pub node: TurnId,
    /// The request and response bodies.
    pub texts: Bodies,
    /// The tenant that made the call.
    pub tenant: Tenant,
    /// The captured turn that the call continues.
    pub parent: Option<ParentTurn>,
    /// The bodies of the call that produced that turn.
    pub base: Option<Arc<DeltaBase>>,
    /// Whether the response is stored for later retrieval.
    pub keeps_response: bool,
    /// The first change before prefix-bound Seals, if these had to be removed because of it.
    pub prefix_changed: Option<String>,
    /// The cost, if known.
    pub cost: Option<Json>,
    began: Instant,
    dialect: Wire,
    path: Name,
    headers: Vec<(Name, Name)>,
    model: Option<Name>,
    target: Option<SentTo>,
    attempts: Vec<FailedAttempt>,
    verdict: Option<&'static str>,
    sent: Option<Duration>,
    first_byte: Option<Duration>,
    end: Option<Duration>,
    status: Option<u16>,
    problem: Option<String>,
    outcome: Option<ReplySummary>,
}

/// The final target of the call.
#[derive(Clone, Debug)]
struct SentTo {
    endpoint: Name,
    origin: Arc<Origin>,
    path: Name,
    headers: Vec<(Name, Name)>,
}

/// A failed attempt at one endpoint.
#[derive(Clone, Debug)]
struct FailedAttempt {
    endpoint: Name,
    said: String,
}

/// The reply in summary.
#[derive(Clone, Debug)]
struct ReplySummary {
    id: Option<Name>,
    answered: Name,
    stop: StopReason,
    usage: Usage,
}

impl CallRecord {
    /// Starts the record of a call.
    pub fn begin(node: TurnId, tenant: &Tenant, dialect: &Wire, request: &Request) -> Self {
        Self {
            node,
            texts: Bodies::of(&request.body),
            tenant: tenant.clone(),
            parent: None,
            base: None,
            keeps_response: false,
            prefix_changed: None,
            cost: None,
            began: Instant::now(),
            dialect: dialect.clone(),
            path: request.path.clone(),
            headers: shown(&request.headers),
            model: None,
            target: None,
            attempts: Vec::new(),
            verdict: None,
            sent: None,
            first_byte: None,
            end: None,
            status: None,
            problem: None,
            outcome: None,
        }
    }

    /// Records the requested model.
    pub fn set_model(&mut self, model: &Name) {
        self.model = Some(Name::clone(model));
    }

    /// Records the request sent and its target.
    pub fn sends(&mut self, request: &UpstreamRequest, origin: &Arc<Origin>) {
        self.sent = Some(self.began.elapsed());
        let came = &self.texts.came;
        let is_same = texts::is_same(&request.body, came);
        self.texts.sent = if is_same { came.clone() } else { lossy(&request.body) };
        self.target = Some(SentTo {
            endpoint: request.endpoint.clone(),
            origin: Arc::clone(origin),
            path: request.path.clone(),
            headers: shown(&request.headers),
        });
    }

    /// Records the audit verdict and the report.
    pub fn accounts(&mut self, verdict: &'static str, account: &Json) {
        self.verdict = Some(verdict);
        self.texts.account = account.bytes().clone();
    }

    /// Records that an endpoint failed and that the next one is tried.
    pub fn add_failed_attempt(&mut self, endpoint: &Name, said: impl Into<String>) {
        let (endpoint, said) = (Name::clone(endpoint), said.into());
        self.attempts.push(FailedAttempt { endpoint, said });
    }

    /// Whether the request was rejected before it was audited or sent.
    pub fn is_unprocessed(&self) -> bool {
        self.verdict.is_none() && self.sent.is_none()
    }

    /// Records the arrival of the first response byte.
    pub fn set_first_byte(&mut self, status: u16) {
        self.first_byte = Some(self.began.elapsed());
        self.status = Some(status);
    }

    /// Records the reply.
    pub fn ends(&mut self, reply: &Reply) {
        self.end = Some(self.began.elapsed());
        self.outcome = Some(ReplySummary {
            id: reply.id.clone(),
            answered: reply.origin.answered.clone(),
            stop: reply.stop.clone(),
            usage: reply.usage,
        });
    }

    /// Records that the call failed.
    pub fn fails(&mut self, status: u16, problem: impl Into<String>) {
        self.end = Some(self.began.elapsed());
        self.status = Some(status);
        self.problem = Some(problem.into());
    }

    /// The record without the bodies.
    pub fn account(&self) -> Json {
        json::object(|o| {
            o.number("v", 1).string("dialect", self.dialect.as_str()).string("path", &self.path);
            put_headers(o, &self.headers);
            o.maybe_string("model", self.model.as_deref());
            if let Some(target) = &self.target {
                o.object("target", |o| put_target(o, target));
            }
            if !self.attempts.is_empty() {
                o.array("attempts", |a| {
                    for attempt in &self.attempts {
                        a.object(|o| {
                            o.string("endpoint", &attempt.endpoint).string("said", &attempt.said);
                        });
                    }
                });
            }
            if let Some(status) = self.status {
                o.number("status", status.into());
            }
            o.maybe_string("error", self.problem.as_deref()).maybe_string("audit", self.verdict);
            o.maybe_string("prefix_changed", self.prefix_changed.as_deref());
            o.object("microseconds", |o| {
                let times =
                    [("sent", self.sent), ("first_byte", self.first_byte), ("end", self.end)];
                for (name, time) in times.into_iter().filter_map(|(name, time)| Some((name, time?)))
                {
                    o.number(name, u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
                }
            });
            if let Some(outcome) = &self.outcome {
                put_outcome(o, outcome);
            }
            if let Some(cost) = &self.cost {
                o.raw("cost", cost);
            }
        })
    }
}

/// The headers without credentials.
fn shown(headers: &[(Name, Name)]) -> Vec<(Name, Name)> {
    headers.iter().filter(|(name, _)| !is_secret_header(name.as_bytes())).cloned().collect()
}

/// Whether a header name contains one of the words, ignoring case.
fn is_secret_header(name: &[u8]) -> bool {
    (0..name.len()).any(|at| {
        let rest = name.get(at..).unwrap_or_default();
        let first = rest.first().map(u8::to_ascii_lowercase);
        SECRET.iter().map(|word| word.as_bytes()).any(|word| {
            word.first().copied() == first
                && rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
        })
    })
}

fn put_headers(o: &mut json::Object<'_>, headers: &[(Name, Name)]) {
    o.array("headers", |a| {
        for (name, value) in headers {
            a.array(|pair| {
                pair.string(name).string(value);
            });
        }
    });
}

fn put_target(o: &mut json::Object<'_>, target: &SentTo) {
    let origin = &target.origin;
    o.string("endpoint", &target.endpoint).string("provider", &origin.provider);
    o.string("account", &origin.account).string("wire", origin.wire.as_str());
    o.string("model", &origin.asked).string("path", &target.path);
    put_headers(o, &target.headers);
}

fn put_outcome(o: &mut json::Object<'_>, outcome: &ReplySummary) {
    let (stop, said) = match &outcome.stop {
        StopReason::Done => ("done", None),
        StopReason::Tools => ("tools", None),
        StopReason::Length => ("length", None),
        StopReason::Sequence(sequence) => ("sequence", sequence.as_deref()),
        StopReason::Paused => ("paused", None),
        StopReason::Refused(reason) => ("refused", Some(&**reason)),
        StopReason::Cut => ("cut", None),
        StopReason::Other(word) => ("other", Some(&**word)),
    };
    let usage = &outcome.usage;
    o.object("answer", |o| {
        o.maybe_string("id", outcome.id.as_deref()).string("model", &outcome.answered);
        o.string("stop", stop).maybe_string("stop_said", said);
    });
    o.object("usage", |o| {
        o.number("input", usage.input).number("cached", usage.cached);
        o.number("written", usage.written).number("output", usage.output);
        o.number("thought", usage.thought);
    });
}

/// The bytes as UTF-8; invalid sequences are replaced.
fn lossy(bytes: &Bytes) -> Bytes {
    match std::str::from_utf8(bytes) {
        Ok(_) => bytes.clone(),
        Err(_) => Bytes::from(String::from_utf8_lossy(bytes).into_owned()),
    }
}
