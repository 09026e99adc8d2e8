//! The story of one call: what came, what was sent, what became of it, and when.
//!
//! A call whose answer was captured keeps its story with that turn, in the same commit. A call that has no answer, because
//! it was refused, failed or was cut, keeps it in a log of its own: a run of the conversation that it went on from, or a thread
//! where there was none.
//!
//! | record | says |
//! |---|---|
//! | `turn`, or `story` where there is no answer | everything but what was said: who asked whom, how it ended, times, tokens |
//! | `copy` | the texts, as differences to those of the call before; see [`Texts`] |
//!
//! The texts repeat what Items say. So they are copies to the store, which destroys them with any Item of their thread.
//!
//! | file | holds |
//! |---|---|
//! | `texts.rs` | the texts of a call, and how they are kept |
//! | `account.rs` | what became of each Item, and what was found |
//! | `delta.rs` | a text as its difference to another |
//! | `left.rs` | calls whose callers went away |
//! | `stories.rs` | keeping stories and finding them again |
//! | `telling.rs` | a story as its tenant is told it |

mod account;
mod delta;
mod left;
mod stories;
mod telling;
mod texts;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use throughline_core::{
    Json, Name, NodeId, Origin, Outgoing, Reply, Request, Stop, Tenant, Usage, Wire, json,
};
use tokio::time::Instant;

use crate::replay::Parent;
pub(crate) use crate::story::account::{Looked, account};
pub(crate) use crate::story::stories::{GoesOn, Stories};
pub(crate) use crate::story::telling::tell;
pub(crate) use crate::story::texts::{Tail, Texts};

/// The kind of the record that tells a call.
pub(crate) const STORY: &str = "story";

/// Words in the names of headers whose values are nobody's to read.
const SECRET: [&str; 8] =
    ["auth", "cookie", "key", "password", "secret", "session", "signature", "token"];

/// The story of one call, as far as it has gone.
#[derive(Clone, Debug)]
pub struct Story {
    /// The name of the call.
    pub(crate) node: NodeId,
    /// What was said.
    pub(crate) texts: Texts,
    /// Whose it is.
    pub(crate) tenant: Tenant,
    /// The captured turn that it goes on from.
    pub(crate) parent: Option<Parent>,
    /// The texts of the call that gave that turn.
    pub(crate) base: Option<Arc<Tail>>,
    /// Whether the response is kept to be asked for.
    pub(crate) keeps_response: bool,
    /// What changed first of all that bound seals stand behind, where they had to be left out for it.
    pub(crate) prefix_changed: Option<String>,
    /// What it cost, where that is known.
    pub(crate) cost: Option<Json>,
    began: Instant,
    dialect: Wire,
    path: Name,
    headers: Vec<(Name, Name)>,
    model: Option<Name>,
    target: Option<Asked>,
    attempts: Vec<Attempt>,
    verdict: Option<&'static str>,
    sent: Option<Duration>,
    first_byte: Option<Duration>,
    end: Option<Duration>,
    status: Option<u16>,
    problem: Option<String>,
    outcome: Option<Outcome>,
}

/// Whom the call asked at last.
#[derive(Clone, Debug)]
struct Asked {
    endpoint: Name,
    origin: Arc<Origin>,
    path: Name,
    headers: Vec<(Name, Name)>,
}

/// One of those whom the call asked in turn, and what came of it.
#[derive(Clone, Debug)]
struct Attempt {
    endpoint: Name,
    said: String,
}

/// What was answered.
#[derive(Clone, Debug)]
struct Outcome {
    id: Option<Name>,
    answered: Name,
    stop: Stop,
    usage: Usage,
}

impl Story {
    /// A call begins.
    pub(crate) fn begin(node: NodeId, tenant: &Tenant, dialect: &Wire, request: &Request) -> Self {
        Self {
            node,
            texts: Texts::of(&request.body),
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

    /// The caller asks for that model.
    pub(crate) fn asks_for(&mut self, model: &Name) {
        self.model = Some(Name::clone(model));
    }

    /// This is sent, for an answer by that one.
    pub(crate) fn sends(&mut self, request: &Outgoing, origin: &Arc<Origin>) {
        self.sent = Some(self.began.elapsed());
        let came = &self.texts.came;
        let is_same = texts::is_same(&request.body, came);
        self.texts.sent = if is_same { came.clone() } else { lossy(&request.body) };
        self.target = Some(Asked {
            endpoint: request.endpoint.clone(),
            origin: Arc::clone(origin),
            path: request.path.clone(),
            headers: shown(&request.headers),
        });
    }

    /// What became of each Item, and what was found.
    pub(crate) fn accounts(&mut self, verdict: &'static str, account: &Json) {
        self.verdict = Some(verdict);
        self.texts.account = account.bytes().clone();
    }

    /// That endpoint could not answer, so that another is asked.
    pub(crate) fn goes_on_from(&mut self, endpoint: &Name, said: impl Into<String>) {
        let (endpoint, said) = (Name::clone(endpoint), said.into());
        self.attempts.push(Attempt { endpoint, said });
    }

    /// Whether nobody has looked at what came: whom it is for was not known, or may not be asked.
    pub(crate) fn is_unread(&self) -> bool {
        self.verdict.is_none() && self.sent.is_none()
    }

    /// The first byte of an answer came.
    pub(crate) fn hears(&mut self, status: u16) {
        self.first_byte = Some(self.began.elapsed());
        self.status = Some(status);
    }

    /// The answer is there.
    pub(crate) fn ends(&mut self, reply: &Reply) {
        self.end = Some(self.began.elapsed());
        self.outcome = Some(Outcome {
            id: reply.id.clone(),
            answered: reply.origin.answered.clone(),
            stop: reply.stop.clone(),
            usage: reply.usage,
        });
    }

    /// There is no answer, for that reason.
    pub(crate) fn fails(&mut self, status: u16, problem: impl Into<String>) {
        self.end = Some(self.began.elapsed());
        self.status = Some(status);
        self.problem = Some(problem.into());
    }

    /// Everything but what was said.
    pub(crate) fn account(&self) -> Json {
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

/// The headers that hold no credential.
fn shown(headers: &[(Name, Name)]) -> Vec<(Name, Name)> {
    headers.iter().filter(|(name, _)| !is_secret(name.as_bytes())).cloned().collect()
}

/// Whether one of the words stands in the name of a header, whatever its case.
fn is_secret(name: &[u8]) -> bool {
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

fn put_target(o: &mut json::Object<'_>, target: &Asked) {
    let origin = &target.origin;
    o.string("endpoint", &target.endpoint).string("provider", &origin.provider);
    o.string("account", &origin.account).string("wire", origin.wire.as_str());
    o.string("model", &origin.asked).string("path", &target.path);
    put_headers(o, &target.headers);
}

fn put_outcome(o: &mut json::Object<'_>, outcome: &Outcome) {
    let (stop, said) = match &outcome.stop {
        Stop::Done => ("done", None),
        Stop::Tools => ("tools", None),
        Stop::Length => ("length", None),
        Stop::Sequence(sequence) => ("sequence", sequence.as_deref()),
        Stop::Paused => ("paused", None),
        Stop::Refused(reason) => ("refused", Some(&**reason)),
        Stop::Cut => ("cut", None),
        Stop::Other(word) => ("other", Some(&**word)),
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

/// The bytes as a text; what is none is shown as far as it is.
fn lossy(bytes: &Bytes) -> Bytes {
    match std::str::from_utf8(bytes) {
        Ok(_) => bytes.clone(),
        Err(_) => Bytes::from(String::from_utf8_lossy(bytes).into_owned()),
    }
}
