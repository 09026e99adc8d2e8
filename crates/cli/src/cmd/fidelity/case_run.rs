//! Runs one case: the conversation of the client, and the requests that reach the simulators.

use serde_json::{Value, json};
use throughline_codec::Catalog;
use throughline_core::UpstreamError;
use throughline_sim::{LedgerEntry, Simulator};

use super::assembly::parse_response;
use super::client::{FidelityClient, GatewayResponse};
use super::dialect::{Dialect, RequestParts, RequestedCall};
use super::scenario::Scenario;
use super::score::{CaseScore, ScoredRequest};
use super::setup::WireTarget;
use crate::print::failure::{Failure, Result};
use crate::print::text::one_line;

/// Maximum number of requests in one turn. The simulated models need at most three.
const MAX_STEPS: usize = 8;

/// Maximum length of a note, in characters.
const NOTE_LENGTH: usize = 300;

const SYSTEM: &str = "You are an operations assistant. Use the tools before you answer.";
const CHANGED_SYSTEM: &str =
    "You are an operations assistant. Use the tools before you answer. Today is Wednesday.";

/// Anthropic's beta for compactions.
const COMPACTION_BETA: (&str, &str) = ("anthropic-beta", "compact-2026-09-04");

/// Whether a case can continue after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progression {
    Continues,
    Ended,
}

/// The parts of the benchmark that all cases share.
pub(super) struct Bench<'b> {
    pub(super) client: &'b FidelityClient,
    pub(super) simulator: &'b Simulator,
}

/// A running case.
pub(super) struct CaseRun<'b> {
    bench: &'b Bench<'b>,
    target: &'b WireTarget,
    scenario: Scenario,
    is_streamed: bool,
    model: &'b str,
    system: &'static str,
    /// The history that the client sends.
    history: Vec<Value>,
    /// The history with everything that the gateway returned. Differs from `history` only for a
    /// lossy client.
    complete: Vec<Value>,
    score: CaseScore,
}

/// What makes a request different from an ordinary request of the conversation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestKind {
    Turn,
    Compaction,
}

impl<'b> CaseRun<'b> {
    pub(super) fn new(
        bench: &'b Bench<'b>,
        target: &'b WireTarget,
        scenario: Scenario,
        is_streamed: bool,
    ) -> Self {
        Self {
            bench,
            target,
            scenario,
            is_streamed,
            model: &target.model,
            system: SYSTEM,
            history: Vec::new(),
            complete: Vec::new(),
            score: CaseScore::default(),
        }
    }

    pub(super) fn into_score(self) -> CaseScore {
        self.score
    }

    /// Runs the conversation until its end, or until the gateway or the provider refuses a request.
    pub(super) async fn run(&mut self, tag: &str) -> Result<()> {
        for (number, text) in self.scenario.messages(tag).iter().enumerate() {
            match (self.scenario, number) {
                (Scenario::ModelSwitch, 1) => self.model = &self.target.other_model,
                (Scenario::ModelSwitch, 2) => self.model = &self.target.model,
                (Scenario::PrefixChange, 1) => self.change_system_prompt(),
                (Scenario::Compaction, 1) => {
                    if self.compact().await? == Progression::Ended {
                        return Ok(());
                    }
                }
                (_, _) => {}
            }
            if self.turn(text).await? == Progression::Ended {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Changes the system prompt, as a client does that inserts the date.
    fn change_system_prompt(&mut self) {
        self.system = CHANGED_SYSTEM;
        self.score.change_prefix();
    }

    /// Sends a user message, and answers tool calls until the model calls no more tools.
    async fn turn(&mut self, text: &str) -> Result<Progression> {
        let is_first = self.history.is_empty();
        self.add_items(&[self.dialect().user_message(text)]);
        for step in 0..MAX_STEPS {
            let Some(calls) = self.step().await? else { return Ok(Progression::Ended) };
            if calls.is_empty() {
                // The simulated models call every tool that they are offered.
                if is_first && step == 0 {
                    let note = "the model called no tools, because the gateway dropped them";
                    self.score.add_error(note.to_owned());
                    return Ok(Progression::Ended);
                }
                return Ok(Progression::Continues);
            }
            self.add_items(&self.dialect().results(&calls));
        }
        self.score.add_error(format!("the model still called tools after {MAX_STEPS} requests"));
        Ok(Progression::Ended)
    }

    /// Compacts the conversation: through the provider's own compaction if the dialect has one,
    /// otherwise by replacing the history with a summary.
    async fn compact(&mut self) -> Result<Progression> {
        let dialect = self.dialect();
        let items = match dialect {
            Dialect::Messages | Dialect::Responses => {
                match self.send(RequestKind::Compaction).await? {
                    Some(items) => items,
                    None => return Ok(Progression::Ended),
                }
            }
            Dialect::Chat | Dialect::Gemini | Dialect::Converse => {
                let summary = "Summary of the conversation so far: the checkout in Zürich is fast.";
                let answer = match dialect {
                    Dialect::Gemini => {
                        json!({"role": "model", "parts": [{"text": "Understood."}]})
                    }
                    Dialect::Converse => {
                        json!({"role": "assistant", "content": [{"text": "Understood."}]})
                    }
                    Dialect::Chat | Dialect::Messages | Dialect::Responses => {
                        json!({"role": "assistant", "content": "Understood."})
                    }
                };
                vec![dialect.user_message(summary), answer]
            }
        };
        self.history.clear();
        self.complete.clear();
        self.add_items(&items);
        self.score.compact();
        Ok(Progression::Continues)
    }

    fn dialect(&self) -> Dialect {
        self.target.wire.dialect
    }

    fn add_items(&mut self, items: &[Value]) {
        self.history.extend_from_slice(items);
        self.complete.extend_from_slice(items);
    }

    /// Sends the next request and adds the response to the history. Returns the calls in the
    /// response; `None` if the case ended.
    async fn step(&mut self) -> Result<Option<Vec<RequestedCall>>> {
        let Some(items) = self.send(RequestKind::Turn).await? else { return Ok(None) };
        let dialect = self.dialect();
        let calls = dialect.calls(&items);
        if self.scenario.is_lossy() {
            self.history.extend(dialect.without_reasoning(&items));
        } else {
            self.history.extend_from_slice(&items);
        }
        self.complete.extend(items);
        Ok(Some(calls))
    }

    /// Sends a request and scores it. Returns the history items of the response; `None` if the case
    /// ended.
    async fn send(&mut self, kind: RequestKind) -> Result<Option<Vec<Value>>> {
        let (body, complete) = (self.body(&self.history, kind), self.body(&self.complete, kind));
        let known = self.bench.simulator.ledger().entries.len();
        let is_compaction = kind == RequestKind::Compaction;
        let is_streamed = self.is_streamed && !is_compaction;
        let is_messages = self.dialect() == Dialect::Messages;
        let beta = (is_compaction && is_messages).then_some(COMPACTION_BETA);
        let beta: Vec<(&str, &str)> = beta.into_iter().collect();
        let client = self.bench.client;
        let response =
            client.post(self.target, self.model, &beta, is_streamed, body.to_string()).await;
        let mut entries = self.bench.simulator.ledger().entries;
        let new = entries.split_off(known.min(entries.len()));
        let response = match response {
            Ok(response) => response,
            Err(error) => return self.transport_error(&new, &error),
        };
        self.score_entries(&new, &complete);
        self.read_response(&new, &response)
    }

    fn body(&self, history: &[Value], kind: RequestKind) -> Value {
        let dialect = self.dialect();
        let is_compaction = kind == RequestKind::Compaction;
        let is_streamed = self.is_streamed && !is_compaction;
        let mut history = history.to_vec();
        if is_compaction && dialect == Dialect::Responses {
            history.push(json!({"type": "compaction_trigger"}));
        }
        let parts =
            RequestParts { model: self.model, system: self.system, history: &history, is_streamed };
        let mut body = dialect.request(&parts);
        if let Some(members) = body.as_object_mut()
            && is_compaction
            && dialect == Dialect::Messages
        {
            members.insert("compaction".to_owned(), json!({"type": "summarize"}));
        }
        body
    }

    /// Scores the requests that reached the simulators. `complete` is the request that a client
    /// without losses would have sent.
    fn score_entries(&mut self, entries: &[LedgerEntry], complete: &Value) {
        self.score.add_request(&ScoredRequest {
            entries,
            received: entries.last().and_then(|last| {
                let body = self.bench.simulator.request_body(last.request)?;
                serde_json::from_slice(&body).ok()
            }),
            complete: (!self.target.wire.is_translated).then_some(complete),
            catalog: Catalog::builtin(),
        });
    }

    /// Handles a request for which no complete response arrived.
    fn transport_error(
        &mut self,
        entries: &[LedgerEntry],
        error: &UpstreamError,
    ) -> Result<Option<Vec<Value>>> {
        let is_first = self.score.requests == 0;
        if is_first && entries.is_empty() {
            let url = self.bench.client.url();
            let message = format!("the gateway at {url} did not respond: {error}");
            return Err(Failure::Usage(message));
        }
        self.score.ledger.extend_from_slice(entries);
        self.score.add_error(format!("the gateway's response broke off: {error}"));
        Ok(None)
    }

    fn read_response(
        &mut self,
        entries: &[LedgerEntry],
        response: &GatewayResponse,
    ) -> Result<Option<Vec<Value>>> {
        let status = response.status;
        if status < 300 && entries.is_empty() {
            return Err(not_connected(self.bench, None));
        }
        let is_refused = entries.iter().any(|entry| entry.status >= 400);
        if !(200..300).contains(&status) {
            let message = one_line(&String::from_utf8_lossy(&response.body), NOTE_LENGTH);
            let is_missing = entries.is_empty() && [404, 405, 501].contains(&status);
            if is_missing && self.score.requests == 1 {
                self.score.unsupported = Some(format!("the gateway returned {status}"));
            } else if !is_refused {
                self.score.add_error(format!("the gateway returned {status}: {message}"));
            }
            return Ok(None);
        }
        let parsed = parse_response(self.dialect(), &response.content_type, &response.body);
        let items = parsed.and_then(|response| {
            let items = self.dialect().history_items(&response);
            items.ok_or_else(|| format!("the response has no content: {response}"))
        });
        match items {
            Ok(items) => {
                let has_called =
                    entries.last().is_some_and(|last| last.stop.as_deref() == Some("tools"));
                if has_called && self.dialect().calls(&items).is_empty() {
                    let note = "the gateway's response lacks the model's tool calls";
                    self.score.add_error(note.to_owned());
                    return Ok(None);
                }
                Ok(Some(items))
            }
            Err(error) => {
                if !is_refused {
                    self.score.add_error(one_line(&error, NOTE_LENGTH));
                }
                Ok(None)
            }
        }
    }
}

/// The failure of a gateway that answers requests without calling the simulators. `answer` is an
/// error that the gateway returned.
pub(super) fn not_connected(bench: &Bench<'_>, answer: Option<&str>) -> Failure {
    let answer = answer.map(|answer| format!(" ({answer})")).unwrap_or_default();
    Failure::Usage(format!(
        "the gateway at {} answered{answer}, but no request reached the simulators at {}: \
         configure the simulators as the base URL of its providers, as docs/fidelity.md shows; if \
         the gateway has API keys, name the variable with a key in --key-env",
        bench.client.url(),
        bench.simulator.url()
    ))
}
