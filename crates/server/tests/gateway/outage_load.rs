//! Tests a store outage under load: many clients send requests that need the store and requests
//! that do not, before, during and after the outage.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::house::{RawResponse, until};
use crate::outage::OutageGateway;
use throughline_core::{Tenant, TurnId};
use throughline_replay::Claims;
use throughline_server::StorePolicy;
use tokio::task::JoinSet;

/// Number of clients that send requests of the same kind.
const CLIENTS: usize = 2;
/// Minimum number of requests of each kind that begin and end within a phase.
const REQUESTS: usize = 8;

/// The phases of the test, in their order.
const WORKING: usize = 0;
const FAILING: usize = 1;
const DOWN: usize = 2;
const RECOVERING: usize = 3;
const RECOVERED: usize = 4;
const OVER: usize = 5;

/// What a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoadKind {
    /// A first message.
    Question,
    /// A first message whose response is streamed.
    StreamedQuestion,
    /// A conversation from which the reasoning was removed.
    Conversation,
    /// A first message with a key that has a budget.
    BudgetKey,
    /// A first message with a key that was not used before.
    NewKey,
    /// A first message with a key that does not exist.
    InvalidKey,
    /// A conversation with a Claim of the gateway.
    Claim,
    /// A response id of the gateway.
    PreviousResponse,
    /// The record of a call.
    CallRecord,
}

impl LoadKind {
    const ALL: [Self; 9] = [
        Self::Question,
        Self::StreamedQuestion,
        Self::Conversation,
        Self::BudgetKey,
        Self::NewKey,
        Self::InvalidKey,
        Self::Claim,
        Self::PreviousResponse,
        Self::CallRecord,
    ];

    /// Returns whether the gateway cannot handle the request without the store.
    fn needs_store(self) -> bool {
        match self {
            Self::Question | Self::StreamedQuestion | Self::Conversation => false,
            Self::BudgetKey
            | Self::NewKey
            | Self::InvalidKey
            | Self::Claim
            | Self::PreviousResponse
            | Self::CallRecord => true,
        }
    }

    /// Returns whether the gateway returns this status while the store works. The ids of the test
    /// are well formed, but the store does not contain them.
    fn allows_status(self, status: u16) -> bool {
        match self {
            Self::Question
            | Self::StreamedQuestion
            | Self::Conversation
            | Self::BudgetKey
            | Self::NewKey => status == 200,
            Self::InvalidKey => status == 401,
            Self::PreviousResponse | Self::CallRecord => status == 404,
            // The audit of the request determines the status.
            Self::Claim => status != 503,
        }
    }

    /// Sends a request that contains this text.
    async fn send(self, fixture: &OutageGateway, text: &str) -> RawResponse {
        let messages = |stream: bool, before: &str| {
            format!(
                r#"{{"model":"claude-sonnet-4-5","max_tokens":100,"stream":{stream},"messages":[{before}{{"role":"user","content":"{text}"}}]}}"#
            )
        };
        let after_reply = |reply: &str| {
            format!(
                r#"{{"role":"user","content":"Hello"}},{{"role":"assistant","content":"{reply}"}},"#
            )
        };
        let (claims, tenant, turn) = handle_parts();
        let new_key = format!("tl_new_{text}");
        let (path, key, body) = match self {
            Self::Question => ("/v1/messages", "tl_one", messages(false, "")),
            Self::StreamedQuestion => ("/v1/messages", "tl_one", messages(true, "")),
            Self::Conversation => ("/v1/messages", "tl_one", messages(false, &after_reply("Hi"))),
            Self::BudgetKey => ("/v1/messages", "tl_budget", messages(false, "")),
            Self::NewKey => ("/v1/messages", &*new_key, messages(false, "")),
            Self::InvalidKey => ("/v1/messages", "tl_invalid", messages(false, "")),
            Self::Claim => {
                let claim = claims.claim(&tenant, &turn);
                ("/v1/messages", "tl_one", messages(false, &after_reply(&claim)))
            }
            Self::PreviousResponse => {
                let id = claims.response_id(&tenant, &turn);
                let body = format!(
                    r#"{{"model":"gpt-5","input":"{text}","previous_response_id":"{id}"}}"#
                );
                ("/v1/responses", "tl_one", body)
            }
            Self::CallRecord => ("/v1/throughline/calls/none", "tl_one", String::new()),
        };
        fixture.send_to(path, key, &body).await
    }
}

/// Returns the parts of an id that the gateway could have issued.
fn handle_parts() -> (Claims, Tenant, TurnId) {
    (Claims::new([7; 32]), Tenant::from("acme"), TurnId::from("node"))
}

/// A request and its response.
struct LoadedRequest {
    kind: LoadKind,
    /// A text that only this request contains.
    text: String,
    /// The phases in which the request began and ended.
    phases: (usize, usize),
    response: RawResponse,
}

/// The phase of the test, and how many requests of each kind began and ended in the phase.
#[derive(Default)]
struct LoadPhase {
    current: AtomicUsize,
    ended: [AtomicUsize; LoadKind::ALL.len()],
}

impl LoadPhase {
    fn current(&self) -> usize {
        self.current.load(Ordering::SeqCst)
    }

    fn begin(&self, phase: usize) {
        self.current.store(phase, Ordering::SeqCst);
        for ended in &self.ended {
            ended.store(0, Ordering::SeqCst);
        }
    }

    /// Waits until enough requests of each kind have ended in the phase.
    async fn wait(&self) {
        until(|| self.ended.iter().all(|ended| ended.load(Ordering::SeqCst) >= REQUESTS)).await;
    }
}

/// Sends requests of one kind until the test is over.
async fn send_load(
    fixture: Arc<OutageGateway>,
    phase: Arc<LoadPhase>,
    kind: LoadKind,
    client: usize,
) -> Vec<LoadedRequest> {
    let mut sent = Vec::new();
    while phase.current() != OVER {
        let text = format!("={kind:?}-{client}-{}.", sent.len());
        let began = phase.current();
        let response = kind.send(&fixture, &text).await;
        let phases = (began, phase.current());
        if phases.0 == phases.1 {
            phase.ended[kind as usize].fetch_add(1, Ordering::SeqCst);
        }
        sent.push(LoadedRequest { kind, text, phases, response });
    }
    sent
}

/// With the policy `pass`, an outage fails no request that needs no stored state, if the caller's
/// key is cached and has no budget. Every other request is refused and not forwarded. The gateway
/// counts and logs each response that it could not capture.
#[tokio::test(flavor = "multi_thread")]
async fn store_outage_under_load_refuses_only_requests_that_need_the_store() {
    let fixture = Arc::new(OutageGateway::open(StorePolicy::default(), false).await);
    let phase = Arc::new(LoadPhase::default());
    let mut clients = JoinSet::new();
    for kind in LoadKind::ALL {
        for client in 0..CLIENTS {
            clients.spawn(send_load(Arc::clone(&fixture), Arc::clone(&phase), kind, client));
        }
    }
    phase.wait().await;
    phase.begin(FAILING);
    fixture.outage.set(true, true);
    phase.begin(DOWN);
    phase.wait().await;
    phase.begin(RECOVERING);
    fixture.outage.set(false, false);
    fixture.recovers().await;
    phase.begin(RECOVERED);
    phase.wait().await;
    phase.begin(OVER);
    let sent: Vec<LoadedRequest> = clients.join_all().await.into_iter().flatten().collect();
    fixture.recovers().await;
    for kind in LoadKind::ALL {
        let response = kind.send(&fixture, "After the outage").await;
        assert!(kind.allows_status(response.status), "{kind:?}: {response:?}");
    }

    let forwarded = forwarded_texts(&fixture);
    for request in &sent {
        check_response(request, forwarded.get(&request.text).copied().unwrap_or(0));
    }
    let calls = sent.iter().filter(|request| forwarded.contains_key(&request.text));
    check_captures(&fixture, &calls.collect::<Vec<_>>()).await;
    Arc::into_inner(fixture).unwrap().gateway.close().await;
}

/// Returns the texts of the requests that the provider received, and how often it received each.
fn forwarded_texts(fixture: &OutageGateway) -> HashMap<String, usize> {
    let mut texts = HashMap::new();
    for request in fixture.requests() {
        // The text is a JSON string that starts with `=`.
        let rest = request.split_once("\"=").map(|(_, rest)| rest);
        if let Some(text) = rest.and_then(|rest| rest.split('"').next()) {
            *texts.entry(format!("={text}")).or_default() += 1;
        }
    }
    texts
}

/// Checks the status of a response, and that a refused request was not forwarded. `forwarded` is
/// how often the provider received the request.
fn check_response(request: &LoadedRequest, forwarded: usize) {
    let LoadedRequest { kind, text, phases, response } = request;
    let (status, head) = (response.status, &response.head);
    if !kind.needs_store() {
        assert_eq!((status, forwarded), (200, 1), "{text} in {phases:?}: {response:?}");
        assert!(response.is_complete, "{text} in {phases:?}: {response:?}");
        return;
    }
    if status == 503 {
        assert!(head.contains("retry-after: 5"), "{text} in {phases:?}: {head}");
    }
    if status != 200 {
        assert_eq!(forwarded, 0, "{text} in {phases:?} was refused and forwarded");
    }
    if *phases == (DOWN, DOWN) {
        assert_eq!(status, 503, "{text}: {response:?}");
    }
    if *phases == (WORKING, WORKING) {
        assert!(kind.allows_status(status), "{text}: {response:?}");
    }
}

/// Checks that each forwarded call is either stored, or counted and logged as lost.
async fn check_captures(fixture: &OutageGateway, calls: &[&LoadedRequest]) {
    let logged = || -> HashMap<String, String> {
        let lines = fixture.gateway.lines.calls().into_iter();
        lines.filter_map(|line| Some((call_of(&line)?, line))).collect()
    };
    until(|| {
        let logged = logged();
        calls.iter().all(|request| logged.contains_key(&request.response.call))
    })
    .await;
    let (logged, mut lost) = (logged(), 0);
    for LoadedRequest { text, phases, response, .. } in calls {
        let line = &logged[&response.call];
        let is_lost = line.contains(r#""capture":"lost""#);
        assert!(is_lost || line.contains(r#""capture":"kept""#), "{text}: {line}");
        assert!(is_lost || *phases != (DOWN, DOWN), "{text}: {line}");
        assert!(!is_lost || *phases != (WORKING, WORKING), "{text}: {line}");
        let record = format!("/v1/throughline/calls/{}", response.call);
        let status = fixture.send_to(&record, "tl_one", "").await.status;
        assert_eq!(status, if is_lost { 404 } else { 200 }, "{text}: {line}");
        lost += usize::from(is_lost);
    }
    let down = calls.iter().filter(|request| request.phases == (DOWN, DOWN)).count();
    assert!(lost >= down && down >= REQUESTS, "{lost} of {down}");
    let metrics = fixture.send_to("/metrics", "tl_one", "").await.body;
    let counted = format!("throughline_capture_failures_total {lost}");
    assert!(metrics.lines().any(|line| line == counted), "{lost} lost: {metrics}");
}

/// Returns the call id in a log line.
fn call_of(line: &str) -> Option<String> {
    let (_, rest) = line.split_once(r#""call":""#)?;
    Some(rest.split('"').next()?.to_owned())
}
