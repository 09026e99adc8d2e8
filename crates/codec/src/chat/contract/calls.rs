//! Checks that tool calls and results are paired, adjacent, and have ids that the endpoint accepts.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use throughline_core::{CallId, CallIds};
use throughline_json::{self as json, Node};

use crate::audit::{Edit, Finding, Findings, Fix, Severity};
use crate::call_ids::CallIdAllocator;
use crate::chat::contract::rules::{CALL_ID_FORM, TOOL_CALL_UNANSWERED};
use crate::chat::contract::view::{ChatMessage, ChatRequest, ChatRole};
use crate::chat::{slot, wire};

pub(super) fn check(view: &ChatRequest<'_>, findings: &mut Findings<'_>) {
    // Ollama's native API has no ids; results are matched by tool name.
    if wire::uses_ollama_api(view.case.target()) {
        return;
    }
    let calls = PairedCalls::new(view);
    calls.check_unanswered(findings);
    calls.check_orphans(findings);
    calls.check_repeated(findings);
    calls.check_ids(findings);
}

/// The tool calls of a request, paired with the results that directly follow the calls.
struct PairedCalls<'v> {
    view: &'v ChatRequest<'v>,
    batches: Vec<CallBatch<'v>>,
    /// Maps each call id to the message indexes of its results that are outside any batch, in
    /// order.
    orphans: HashMap<Cow<'v, str>, Vec<usize>>,
    /// Message indexes of the results whose call already has a result, each with the index of the
    /// first result.
    repeated: BTreeMap<usize, usize>,
}

/// A message with tool calls, and the result messages that directly follow.
struct CallBatch<'v> {
    number: usize,
    msg: &'v ChatMessage<'v>,
    answers: &'v [ChatMessage<'v>],
}

impl<'v> PairedCalls<'v> {
    fn new(view: &'v ChatRequest<'v>) -> Self {
        let mut batches: Vec<CallBatch<'v>> = Vec::new();
        let mut orphans: HashMap<Cow<'v, str>, Vec<usize>> = HashMap::new();
        let mut repeated = BTreeMap::new();
        // The results of each open call. Several calls of a message can have the same id.
        let mut open: HashMap<Cow<'v, str>, (usize, Vec<usize>)> = HashMap::new();
        for (number, msg) in view.messages.iter().enumerate() {
            if msg.role != ChatRole::Tool {
                open.clear();
                if msg.role == ChatRole::Assistant && !msg.calls.is_empty() {
                    for id in msg.calls.iter().filter_map(|call| id_of(*call)) {
                        open.entry(id).or_default().0 += 1;
                    }
                    batches.push(CallBatch { number, msg, answers: &[] });
                }
                continue;
            }
            let Some(id) = msg.answers.and_then(Node::text) else { continue };
            match batches.last_mut().zip(open.get_mut(&id)) {
                Some((batch, (calls, results))) => {
                    if let Some(first) = results.first().filter(|_| results.len() >= *calls) {
                        repeated.insert(number, *first);
                    }
                    results.push(number);
                    let answers = view.messages.get(batch.number + 1..=number);
                    batch.answers = answers.unwrap_or_default();
                }
                None => orphans.entry(id).or_default().push(number),
            }
        }
        Self { view, batches, orphans, repeated }
    }

    fn check_unanswered(&self, findings: &mut Findings<'_>) {
        for CallBatch { number, msg, answers } in &self.batches {
            let answered: HashSet<_> =
                answers.iter().filter_map(|answer| answer.answers?.text()).collect();
            let calls = msg.calls.iter().filter_map(|call| Some((*call, id_of(*call)?)));
            let open: Vec<_> = calls.filter(|(_, id)| !answered.contains(id)).collect();
            let are_all = open.len() == msg.calls.len();
            let error = unanswered_error(self.view, &open);
            for (call, id) in &open {
                let orphan = self.orphans.get(id).and_then(|orphans| {
                    let behind = orphans.partition_point(|orphan| *orphan <= *number);
                    self.view.messages.get(*orphans.get(behind)?)
                });
                let (message, fix) = if let Some(orphan) = orphan {
                    findings.cover(orphan.node.range());
                    let last = answers.last().unwrap_or(msg).node.range();
                    let edits = [
                        Edit::Remove(orphan.node.range()),
                        Edit::InsertAfter(last, vec![orphan.node.json()]),
                    ];
                    (
                        format!("the result of `{id}` is not directly after the call"),
                        Fix::new("moves the tool result directly after its call", edits),
                    )
                } else {
                    let message = format!("no tool message has the result of `{id}`");
                    (message, without_call(msg, *call, are_all))
                };
                findings.add(
                    Finding::at(&TOOL_CALL_UNANSWERED, *call, message)
                        .with_severity(pairing_severity(self.view))
                        .with_provider_error(error.clone())
                        .with_auto_fix(fix),
                );
            }
        }
    }

    fn check_orphans(&self, findings: &mut Findings<'_>) {
        let mut numbers: Vec<usize> = self.orphans.values().flatten().copied().collect();
        numbers.sort_unstable();
        for msg in numbers.iter().filter_map(|number| self.view.messages.get(*number)) {
            if findings.is_covered(&msg.node.range()) {
                continue;
            }
            let id = msg.answers.and_then(Node::text).unwrap_or_default();
            let message = format!("no earlier tool call has the id `{id}`");
            findings.add(
                Finding::at(&TOOL_CALL_UNANSWERED, msg.node, message)
                    .with_severity(pairing_severity(self.view))
                    .with_provider_error(orphan_error(self.view, &id))
                    .fixed_by_removing(
                        msg.node,
                        "removes the tool message, which has no matching call",
                    ),
            );
        }
    }

    fn check_repeated(&self, findings: &mut Findings<'_>) {
        for (number, first) in &self.repeated {
            let Some(msg) = self.view.messages.get(*number) else { continue };
            let id = msg.answers.and_then(Node::text).unwrap_or_default();
            let message = format!("messages[{first}] already has the result of `{id}`");
            findings.add(
                Finding::at(&TOOL_CALL_UNANSWERED, msg.node, message)
                    .with_severity(pairing_severity(self.view))
                    .with_provider_error(repeated_error(self.view, &id, *first, *number))
                    .fixed_by_removing(msg.node, "removes the repeated tool message"),
            );
        }
    }

    /// Reports call ids that the endpoint rejects. The fix gives a call and its results the same
    /// new id.
    fn check_ids(&self, findings: &mut Findings<'_>) {
        let target = self.view.case.target();
        if target.provider.dialect.call_ids != CallIds::Nine {
            return;
        }
        let mut ids = CallIdAllocator::for_target(target);
        for call in self.view.messages.iter().flat_map(|msg| &msg.calls) {
            if let Some(id) = id_of(*call).filter(|id| ids.accepts(id)) {
                ids.record_native(&CallId::from(&*id), &(&*id).into());
            }
        }
        for CallBatch { number, msg, answers } in &self.batches {
            let mut named: HashMap<Cow<'_, str>, Vec<Node<'_>>> = HashMap::new();
            // Repeated results are removed, so they get no new id.
            let kept = (number + 1..).zip(answers.iter());
            let kept = kept.filter(|(number, _)| !self.repeated.contains_key(number));
            for answer in kept.filter_map(|(_, answer)| answer.answers) {
                named.entry(answer.text().unwrap_or_default()).or_default().push(answer);
            }
            for (position, call) in msg.calls.iter().enumerate() {
                let Some(node) = call.get("id").filter(|id| id.is_string()) else { continue };
                let id = node.text().unwrap_or_default();
                if ids.accepts(&id) {
                    continue;
                }
                let new = ids.assign(&CallId::from(format!("{number}/{position}/{id}").as_str()));
                // If several calls share an id, the first call gets the results.
                let places = [node].into_iter().chain(named.remove(&id).unwrap_or_default());
                let edits: Vec<Edit> =
                    places.map(|place| Edit::Replace(place.range(), json::string(&new))).collect();
                let message = match id.chars().count() {
                    9 => "this id contains characters other than letters and digits".to_owned(),
                    length => format!("this id has {length} characters"),
                };
                let error =
                    format!("Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9.");
                let description = "gives the call and its result an id of nine letters and digits";
                let finding = Finding::at(&CALL_ID_FORM, node, message);
                findings.add(finding.with_provider_error(error).fixed_by(description, edits));
            }
        }
    }
}

fn id_of(call: Node<'_>) -> Option<Cow<'_, str>> {
    call.text_of("id").filter(|id| !id.is_empty())
}

/// Returns `Refuse` only for endpoints known to reject unpaired calls. Self-hosted servers accept
/// whatever their chat template accepts.
fn pairing_severity(view: &ChatRequest<'_>) -> Severity {
    if view.case.target().provider.dialect.pairs_calls { Severity::Refuse } else { Severity::Note }
}

/// Builds a fix that removes a call. The last call is removed together with its list, and with its
/// message if nothing else remains.
fn without_call(msg: &ChatMessage<'_>, call: Node<'_>, are_all: bool) -> Fix {
    let is_silent = msg.content.is_none_or(|content| matches!(content.raw(), b"\"\"" | b"[]"));
    match msg.node.get(slot::CALLS).filter(|_| are_all) {
        Some(_) if is_silent => {
            Fix::removal(msg.node, "removes the message whose tool calls have no results")
        }
        Some(list) => Fix::removal(list, "removes the tool calls without results"),
        None => Fix::removal(call, "removes the tool call without a result"),
    }
}

/// The maximum number of ids in an error. Each unanswered call gets an error that lists the ids of
/// all unanswered calls, so the total size would otherwise grow quadratically.
const LISTED_IDS: usize = 32;

/// Returns this endpoint's error for calls without results.
fn unanswered_error(view: &ChatRequest<'_>, open: &[(Node<'_>, Cow<'_, str>)]) -> String {
    let provider = &*view.case.target().provider;
    let lead = "An assistant message with 'tool_calls' must be followed by tool messages responding to each \
                'tool_call_id'.";
    match (provider.dialect.call_ids, &*provider.name) {
        (CallIds::Nine, _) => "Not the same number of function calls and responses".to_owned(),
        (_, "deepseek") => {
            format!("{lead} (insufficient tool messages following tool_calls message)")
        }
        (_, "minimax") => {
            "invalid params, tool call result does not follow tool call (2013)".to_owned()
        }
        (CallIds::Plain | CallIds::Forty, _) => {
            let ids: Vec<&str> = open.iter().take(LISTED_IDS).map(|(_, id)| &**id).collect();
            let more = if open.len() > LISTED_IDS { ", …" } else { "" };
            format!(
                "{lead} The following tool_call_ids did not have response messages: {}{more}",
                ids.join(", ")
            )
        }
    }
}

/// Returns this endpoint's error for a result without a call.
fn orphan_error(view: &ChatRequest<'_>, id: &str) -> Cow<'static, str> {
    let provider = &*view.case.target().provider;
    match (provider.dialect.call_ids, &*provider.name) {
        (CallIds::Nine, _) => "Not the same number of function calls and responses".into(),
        (_, "deepseek") => {
            "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'".into()
        }
        (_, "minimax") => {
            format!("invalid params, tool result's tool id({id}) not found (2013)").into()
        }
        (CallIds::Plain | CallIds::Forty, _) => {
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message \
             with 'tool_calls'."
                .into()
        }
    }
}

/// Returns this endpoint's error for a second result of a call.
fn repeated_error(
    view: &ChatRequest<'_>,
    id: &str,
    first: usize,
    second: usize,
) -> Cow<'static, str> {
    match view.case.target().provider.dialect.call_ids {
        CallIds::Nine => "Not the same number of function calls and responses".into(),
        CallIds::Plain | CallIds::Forty => format!(
            "Invalid parameter: Duplicate value for 'tool_call_id' of '{id}', in messages[{first}] \
             and messages[{second}]."
        )
        .into(),
    }
}
