//! The record of one gateway call: the received and sent requests, the outcome, and the timestamps.
//!
//! The record of a captured call is stored in the same commit as the call's turn. A call without a
//! reply (refused, failed or truncated) has its own log. If such a call continues a conversation,
//! its log is a Run of the conversation; otherwise it is a Thread.
//!
//! | record | contents |
//! |---|---|
//! | `turn`, or `story` without a reply | caller, target, outcome, times and tokens |
//! | `copy` | the bodies, as differences to those of the previous call; see [`Bodies`] |
//!
//! The bodies repeat the content of Items. The store must erase them together with the Items, so
//! they are stored as `copy` records.
//!
//! | file | contents |
//! |---|---|
//! | `bodies.rs` | the bodies of a call and their delta encoding |
//! | `report.rs` | the report: Fates, findings and repairs |
//! | `transformations.rs` | the provider's own report on dropped reasoning |
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
mod transformations;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use throughline_codec::Verdict;
use throughline_core::{
    Disposition, Fate, Origin, Reply, Request, StopReason, Target, Tenant, TurnId, UpstreamRequest,
    Usage, Wire,
};
use throughline_json::{self as json, Json, Name, Tree};
use tokio::time::Instant;

pub use crate::call_record::bodies::{Bodies, DeltaBase};
pub(crate) use crate::call_record::call_log::BaseLocation;
pub use crate::call_record::call_log::CallLog;
pub use crate::call_record::call_view::call_json;
pub use crate::call_record::disconnect::DisconnectLimiter;
pub use crate::call_record::report::{appended_messages, report_json};
pub use crate::call_record::transformations::InputTransformation;
use crate::objects;
use crate::turn::ParentTurn;

/// The facts about one request, collected while the request is processed. They are the source of
/// the stored record, the metrics, the log line and the trace span.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent fact about the call")]
pub struct CallRecord {
    /// The id of the call; `None` if the request calls no model.
    pub node: Option<TurnId>,
    /// The tenant that made the call.
    pub tenant: Tenant,
    /// The id of the gateway key that the caller used, if any.
    pub key: Option<Name>,
    /// The wire that the caller used for the request.
    pub dialect: Wire,
    /// When the request arrived, before its body was received completely.
    pub arrived: Instant,
    /// The name of the provider account that is charged for the call.
    pub provider: Option<Name>,
    /// The name of the account, if the provider has a pool of accounts.
    pub account: Option<Name>,
    /// The provider's name for the model.
    pub model: Option<Name>,
    /// The number of targets that failed before the current target was tried.
    pub fallbacks: u64,
    /// The audit verdict on the request; `None` if it was not audited.
    pub verdict: Option<Verdict>,
    /// Counts of the Fates in the request that was sent; `None` if no request was sent.
    pub fates: Option<FateCounts>,
    /// The provider's own report on the reasoning that it dropped.
    pub transformations: Vec<InputTransformation>,
    /// The first part of the prefix that changed, if the change caused prefix-bound Seals to be
    /// removed.
    pub prefix_changed: Option<String>,
    /// The HTTP status of the response, from the provider or the gateway.
    pub status: Option<u16>,
    /// When the provider sent its first response byte.
    pub first_byte: Option<Instant>,
    /// Whether the response is a stream.
    pub is_stream: bool,
    /// The number of bytes of response text received. If the provider reports no usage, tokens are
    /// estimated from this number.
    pub received: u64,
    /// The token usage that the provider has reported so far.
    pub usage: Option<Usage>,
    /// Whether the reply is complete and `usage` is therefore final.
    pub is_whole: bool,
    /// Whether the provider may charge for the request although the call failed, because it
    /// answered with success or may have processed the request without an answer.
    pub may_be_charged: bool,
    /// The cost of the call; `None` if the model has no price.
    pub cost: Option<Json>,
    /// Whether the reply was captured in the Vault.
    pub capture: CaptureOutcome,
    /// An error message about a failure in the gateway or at the provider.
    pub problem: Option<String>,
    /// The request and response bodies.
    pub texts: Bodies,
    /// The captured turn that the call continues.
    pub parent: Option<ParentTurn>,
    /// The bodies of the call that produced `parent`. This call's bodies are encoded as differences
    /// from them.
    pub base: Option<Arc<DeltaBase>>,
    /// Whether the response is stored, so that the caller can retrieve it later by id.
    pub keeps_response: bool,
    /// Whether the request names one of Anthropic's message threads, or starts one.
    pub names_thread: bool,
    /// When the request was received completely.
    began: Instant,
    sent: Option<Instant>,
    end: Option<Instant>,
    path: Name,
    headers: Vec<(Name, Name)>,
    requested_model: Option<Name>,
    target: Option<SentTo>,
    attempts: Vec<FailedAttempt>,
    /// The error message that was sent to the caller.
    error: Option<String>,
    outcome: Option<ReplySummary>,
}

/// The target that finally received the request.
#[derive(Clone, Debug)]
struct SentTo {
    endpoint: Name,
    origin: Arc<Origin>,
    path: Name,
    headers: Vec<(Name, Name)>,
}

/// The part of a call that a provider served.
#[derive(Clone, Copy, Debug)]
pub struct ProviderCall<'r> {
    /// The endpoint and model that received the request.
    pub origin: &'r Origin,
    /// When the request was sent.
    pub sent: Instant,
    /// The time from sending the request to the first byte of the response.
    pub first_byte: Option<Duration>,
    /// The model that the response names.
    pub answered: Option<&'r Name>,
    /// The id of the response.
    pub id: Option<&'r Name>,
    /// Why the model stopped, in the words of OpenTelemetry's conventions.
    pub finish_reason: Option<&'r str>,
}

/// A failed attempt at one endpoint.
#[derive(Clone, Debug)]
struct FailedAttempt {
    endpoint: Name,
    error: String,
}

#[derive(Clone, Debug)]
struct ReplySummary {
    id: Option<Name>,
    answered: Name,
    stop: StopReason,
}

/// Whether the reply was captured in the Vault.
#[derive(Clone, Debug, Default)]
pub enum CaptureOutcome {
    /// The call has no reply to capture.
    #[default]
    None,
    /// The reply was captured.
    Kept,
    /// The reply could not be captured. Contains the reason.
    Lost(String),
}

/// The number of Items and Seals with each Fate in one call.
#[derive(Clone, Copy, Debug, Default)]
pub struct FateCounts {
    /// Items and Seals that were sent unchanged.
    pub kept: u64,
    /// Items and Seals that were restored from captured turns.
    pub restored: u64,
    /// Items and Seals that were omitted.
    pub elided: u64,
    /// Items that were restored from captured turns, or whose Seals were.
    pub restored_items: u64,
}

impl FateCounts {
    /// Counts the Fates of all Items and Seals. Reshaped content is not counted.
    pub fn of(fates: &[Fate]) -> Self {
        let mut counted = Self::default();
        let is_restored = |one: &Disposition| matches!(one, Disposition::Restored(_));
        let restored = fates
            .iter()
            .filter(|fate| is_restored(&fate.visible) || fate.seals.iter().any(is_restored));
        counted.restored_items = restored.count() as u64;
        for disposition in fates.iter().flat_map(|fate| fate.seals.iter().chain([&fate.visible])) {
            match disposition {
                Disposition::Kept => counted.kept += 1,
                Disposition::Restored(_) => counted.restored += 1,
                Disposition::Elided(_) => counted.elided += 1,
                Disposition::Reshaped(_) => {}
            }
        }
        counted
    }
}

impl std::fmt::Display for FateCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kept, restored, elided, restored_items: _ } = self;
        write!(f, "kept={kept} restored={restored} elided={elided}")
    }
}

/// Returns whether a status states that a key may not send a request, or may not send it now.
fn is_refusal(status: u16) -> bool {
    matches!(status, 402 | 403 | 429)
}

impl CallRecord {
    /// Creates the record for a request that has just arrived.
    pub fn new(tenant: Tenant, key: Option<Name>, dialect: Wire) -> Self {
        let now = Instant::now();
        Self {
            node: None,
            tenant,
            key,
            dialect,
            arrived: now,
            provider: None,
            account: None,
            model: None,
            fallbacks: 0,
            verdict: None,
            fates: None,
            transformations: Vec::new(),
            prefix_changed: None,
            status: None,
            first_byte: None,
            is_stream: false,
            received: 0,
            usage: None,
            is_whole: false,
            may_be_charged: false,
            cost: None,
            capture: CaptureOutcome::None,
            problem: None,
            texts: Bodies::default(),
            parent: None,
            base: None,
            keeps_response: false,
            names_thread: false,
            began: now,
            sent: None,
            end: None,
            path: Name::default(),
            headers: Vec::new(),
            requested_model: None,
            target: None,
            attempts: Vec::new(),
            error: None,
            outcome: None,
        }
    }

    /// Records that the request calls a model, with the call id `node`. `parsed` is the parsed body
    /// of the request, if the body is JSON.
    pub fn begin_call(&mut self, node: TurnId, request: &Request, parsed: Option<&Tree>) {
        let (parsed, body) = (parsed.filter(|tree| tree.indexes(&request.body)), &request.body);
        self.node = Some(node);
        self.texts = parsed.map_or_else(|| Bodies::of(body), |_| Bodies::of_text(body.clone()));
        self.names_thread = parsed.is_some_and(objects::names_thread);
        self.began = Instant::now();
        self.path = request.path.clone();
        self.headers = public_headers(&request.headers);
    }

    /// Records the name of the model that the caller requested.
    pub fn set_requested_model(&mut self, model: &Name) {
        self.requested_model = Some(Name::clone(model));
    }

    /// Records the request that is sent to the provider, its target, and the current time.
    pub fn set_sent(&mut self, request: &UpstreamRequest, origin: &Arc<Origin>) {
        self.sent = Some(Instant::now());
        let received = &self.texts.received;
        let is_same = bodies::is_same(&request.body, received);
        self.texts.sent = if is_same { received.clone() } else { lossy(&request.body) };
        self.target = Some(SentTo {
            endpoint: request.endpoint.clone(),
            origin: Arc::clone(origin),
            path: request.path.clone(),
            headers: public_headers(&request.headers),
        });
    }

    /// Records that an endpoint failed, before the next endpoint is tried.
    pub fn add_failed_attempt(&mut self, endpoint: &Name, error: impl Into<String>) {
        let (endpoint, error) = (Name::clone(endpoint), error.into());
        self.attempts.push(FailedAttempt { endpoint, error });
    }

    /// Records the provider's status and the time of its first response byte.
    pub fn set_first_byte(&mut self, status: u16) {
        self.first_byte = Some(Instant::now());
        self.status = Some(status);
        self.may_be_charged = (200..300).contains(&status);
    }

    /// Records the provider's reply, its usage, and the current time as the end of the call.
    pub fn set_reply(&mut self, reply: &Reply) {
        self.end = Some(Instant::now());
        self.usage = Some(reply.usage);
        self.is_whole = reply.stop != StopReason::Cut;
        self.outcome = Some(ReplySummary {
            id: reply.id.clone(),
            answered: reply.origin.answered.clone(),
            stop: reply.stop.clone(),
        });
    }

    /// Records the provider's own report on the reasoning that it dropped, and sets the Fates of
    /// the dropped content.
    pub fn set_transformations(&mut self, reply: &Reply, target: &Target) {
        self.transformations = InputTransformation::read_all(reply);
        let Some(sent) = self.target.as_ref().filter(|_| !self.transformations.is_empty()) else {
            return;
        };
        let Ok(account) = Tree::parse(self.texts.account.clone()) else { return };
        let (path, body) = (sent.path.clone(), self.texts.sent.clone());
        let request = Request { path, headers: Vec::new(), body };
        let seals = transformations::seal_positions(&request, target);
        let amended = report::amend_report(account.root(), &seals, &self.transformations);
        self.texts.account = amended.json.bytes().clone();
        if let Some(fates) = &mut self.fates {
            fates.kept = fates.kept.saturating_sub(amended.kept);
            fates.restored = fates.restored.saturating_sub(amended.restored);
            fates.elided += amended.kept + amended.restored;
            fates.restored_items = fates.restored_items.min(fates.restored);
        }
    }

    /// Records that the call failed. Drops the bodies if the request was neither audited nor sent.
    pub fn set_failure(&mut self, status: u16, error: impl Into<String>) {
        self.end = Some(Instant::now());
        self.status = Some(status);
        self.error = Some(error.into());
        if self.verdict.is_none() && self.sent.is_none() {
            self.texts = Bodies::default();
        }
    }

    /// Sets the status of a failed request, and the error of a request that the gateway refused
    /// because of the permissions or limits of its key.
    pub fn set_refusal(&mut self, status: u16, error: &str) {
        self.status = Some(status);
        if is_refusal(status) && self.sent.is_none() && self.error.is_none() {
            self.error = Some(error.to_owned());
        }
    }

    /// Returns the error with which the gateway refused a request because of the permissions or
    /// limits of its key; `None` for any other request.
    pub fn refusal(&self) -> Option<&str> {
        let is_refused = self.status.is_some_and(is_refusal) && self.sent.is_none();
        self.error.as_deref().filter(|_| is_refused)
    }

    /// Returns the time from the arrival of the request to the provider's first byte.
    pub fn time_to_first_byte(&self) -> Option<Duration> {
        self.first_byte.map(|at| at.duration_since(self.arrived))
    }

    /// Returns the class of the error for OpenTelemetry's `error.type`; `None` if the call
    /// succeeded. The class is the HTTP status, `cancelled` if the client disconnected before the
    /// response, or `incomplete` if the response ended early.
    pub fn error_type(&self) -> Option<Name> {
        let is_cut = self.outcome.as_ref().is_some_and(|outcome| outcome.stop == StopReason::Cut);
        match self.status {
            None | Some(0) => Some(Name::from("cancelled")),
            Some(status) if status >= 400 => Some(Name::from(status.to_string())),
            Some(_) => is_cut.then(|| Name::from("incomplete")),
        }
    }

    /// Returns the provider call of this request, for traces and metrics; `None` if no request was
    /// sent to a model.
    pub fn provider_call(&self) -> Option<ProviderCall<'_>> {
        let (target, sent, _) = (self.target.as_ref()?, self.sent?, self.node.as_ref()?);
        let outcome = self.outcome.as_ref();
        Some(ProviderCall {
            origin: &target.origin,
            sent,
            first_byte: self.first_byte.map(|at| at.duration_since(sent)),
            answered: outcome.map(|outcome| &outcome.answered),
            id: outcome.and_then(|outcome| outcome.id.as_ref()),
            finish_reason: outcome.map(|outcome| finish_reason(&outcome.stop)),
        })
    }

    /// Returns the audit verdict on the request that was sent; `None` if no request was sent.
    pub fn sent_verdict(&self) -> Option<Verdict> {
        self.verdict.filter(|_| self.fates.is_some())
    }

    /// Returns the record as JSON, without the bodies.
    pub fn account(&self) -> Json {
        json::object(|o| {
            o.number("v", 1).string("dialect", self.dialect.as_str()).string("path", &self.path);
            put_headers(o, &self.headers);
            o.maybe_string("model", self.requested_model.as_deref());
            if let Some(target) = &self.target {
                o.object("target", |o| put_target(o, target));
            }
            if !self.attempts.is_empty() {
                o.objects("attempts", &self.attempts, |o, attempt| {
                    o.string("endpoint", &attempt.endpoint).string("error", &attempt.error);
                });
            }
            o.maybe("status", self.status.map(u64::from));
            o.maybe_string("error", self.error.as_deref());
            o.maybe_string("audit", self.verdict.map(Verdict::as_str));
            o.maybe_string("prefix_changed", self.prefix_changed.as_deref());
            if let Some(fates) = &self.fates {
                o.object("fate_counts", |o| {
                    o.number("kept", fates.kept).number("restored", fates.restored);
                    o.number("elided", fates.elided);
                    o.number("restored_items", fates.restored_items);
                });
            }
            let micros = |time: Instant| {
                let micros = time.duration_since(self.began).as_micros();
                u64::try_from(micros).unwrap_or(u64::MAX)
            };
            o.object("microseconds", |o| {
                o.maybe("sent", self.sent.map(micros));
                o.maybe("first_byte", self.first_byte.map(micros));
                o.maybe("end", self.end.map(micros));
            });
            if let Some(outcome) = &self.outcome {
                put_outcome(o, outcome, &self.usage.unwrap_or_default());
            }
            o.maybe("cost", self.cost.as_ref());
        })
    }
}

/// Returns a stop reason with its name in OpenTelemetry's conventions, or the provider's own name.
fn finish_reason(stop: &StopReason) -> &str {
    match stop {
        StopReason::Done | StopReason::Sequence(_) => "stop",
        StopReason::Tools => "tool_call",
        StopReason::Length => "length",
        StopReason::Paused => "pause",
        StopReason::Refused(_) => "content_filter",
        StopReason::Cut => "error",
        StopReason::Other(word) => word,
    }
}

/// Returns the headers whose names do not suggest a credential.
fn public_headers(headers: &[(Name, Name)]) -> Vec<(Name, Name)> {
    headers.iter().filter(|(name, _)| !is_secret_header(name.as_bytes())).cloned().collect()
}

/// Whether a header name contains a word that suggests a credential, ignoring case.
fn is_secret_header(name: &[u8]) -> bool {
    name.iter().enumerate().any(|(at, first)| {
        secret_words(*first).iter().any(|word| {
            let start = name.get(at..at + word.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()))
        })
    })
}

/// Returns the words with this first letter that suggest a credential. Most letters start none of
/// them, so most positions of a name need no comparison.
fn secret_words(first: u8) -> &'static [&'static str] {
    match first.to_ascii_lowercase() {
        b'a' => &["auth"],
        b'c' => &["cookie"],
        b'k' => &["key"],
        b'p' => &["password"],
        b's' => &["secret", "session", "signature"],
        b't' => &["token"],
        _ => &[],
    }
}

fn put_headers(o: &mut json::Object<'_>, headers: &[(Name, Name)]) {
    o.array("headers", |a| {
        for (name, value) in headers {
            a.array(|pair| pair.extend([name, value]));
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

fn put_outcome(o: &mut json::Object<'_>, outcome: &ReplySummary, usage: &Usage) {
    let (stop, detail) = match &outcome.stop {
        StopReason::Done => ("done", None),
        StopReason::Tools => ("tools", None),
        StopReason::Length => ("length", None),
        StopReason::Sequence(sequence) => ("sequence", sequence.as_deref()),
        StopReason::Paused => ("paused", None),
        StopReason::Refused(reason) => ("refused", Some(&**reason)),
        StopReason::Cut => ("cut", None),
        StopReason::Other(word) => ("other", Some(&**word)),
    };
    o.object("answer", |o| {
        o.maybe_string("id", outcome.id.as_deref()).string("model", &outcome.answered);
        o.string("stop", stop).maybe_string("stop_said", detail);
    });
    o.object("usage", |o| {
        o.number("input", usage.input).number("cached", usage.cached);
        o.number("written", usage.written).number("output", usage.output);
        o.number("thought", usage.thought);
    });
}

/// Returns the bytes as UTF-8; invalid sequences are replaced.
fn lossy(bytes: &Bytes) -> Bytes {
    match simdutf8::basic::from_utf8(bytes) {
        Ok(_) => bytes.clone(),
        Err(_) => Bytes::from(String::from_utf8_lossy(bytes).into_owned()),
    }
}
