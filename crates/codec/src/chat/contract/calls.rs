//! Checks that tool calls and results are paired, adjacent, and have ids that the endpoint accepts.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use throughline_core::{CallId, CallIds};
use throughline_json::{self as json, Json, Node};

use crate::audit::{Edit, Finding, Fix, Severity};
use crate::call_ids::CallIdAllocator;
use crate::chat::contract::rules::{CALL_ID_FORM, TOOL_CALL_UNANSWERED};
use crate::chat::contract::view::{ChatFindings, ChatMessage, ChatRequest, ChatRole};
use crate::chat::{slot, wire};

pub(super) fn check(view: &ChatRequest<'_>, report: &mut ChatFindings<'_, '_>) {
    // Ollama's native API has no ids; results are matched by tool name.
    if wire::uses_ollama_api(view.case.target()) {
        return;
    }
    let groups = CallBatches::new(view);
    groups.check_unanswered(view, report);
    groups.check_orphans(view, report);
    check_ids(view, report, &groups);
}

/// Assigns the results to the calls that they directly follow.
struct CallBatches<'v> {
    /// For each message with calls: its index and the range of its results.
    batches: Vec<(usize, Range<usize>)>,
    /// Indexes of results outside any batch, in order, by call id.
    strays: HashMap<Cow<'v, str>, Vec<usize>>,
}

impl<'v> CallBatches<'v> {
    fn new(view: &ChatRequest<'v>) -> Self {
        let mut batches = Vec::new();
        let mut strays: HashMap<Cow<'v, str>, Vec<usize>> = HashMap::new();
        let mut open: HashSet<Cow<'v, str>> = HashSet::new();
        for (number, said) in view.messages.iter().enumerate() {
            if said.role != ChatRole::Tool {
                open.clear();
                if said.role == ChatRole::Assistant && !said.calls.is_empty() {
                    open = said.calls.iter().filter_map(|call| id_of(*call)).collect();
                    batches.push((number, number + 1..number + 1));
                }
                continue;
            }
            let Some(id) = said.answers.and_then(Node::text) else { continue };
            if open.contains(&id) {
                if let Some((_, answers)) = batches.last_mut() {
                    answers.end = number + 1;
                }
            } else {
                strays.entry(id).or_default().push(number);
            }
        }
        Self { batches, strays }
    }

    /// Returns the calls of a batch that have no result.
    fn open_calls<'s>(
        view: &'s ChatRequest<'v>,
        said: &'s ChatMessage<'v>,
        answers: &Range<usize>,
    ) -> Vec<(Node<'v>, Cow<'v, str>)> {
        let answers = view.messages.get(answers.clone()).unwrap_or_default();
        let answered: HashSet<Cow<'v, str>> =
            answers.iter().filter_map(|answer| answer.answers.and_then(Node::text)).collect();
        let calls = said.calls.iter().filter_map(|call| Some((*call, id_of(*call)?)));
        calls.filter(|(_, id)| !answered.contains(id)).collect()
    }

    fn check_unanswered(&self, view: &ChatRequest<'v>, report: &mut ChatFindings<'_, '_>) {
        for (number, answers) in &self.batches {
            let Some(said) = view.messages.get(*number) else { continue };
            let open = Self::open_calls(view, said, answers);
            let are_all = open.len() == said.calls.len();
            let error = unanswered_error(view, &open);
            for (call, id) in &open {
                let last = view.messages.get(answers.end.saturating_sub(1)).unwrap_or(said);
                let stray = self.strays.get(id).and_then(|strays| {
                    let behind = strays.partition_point(|stray| *stray <= *number);
                    view.messages.get(*strays.get(behind)?)
                });
                let (message, fix) = match stray {
                    Some(stray) => {
                        report.cover(&stray.node.range());
                        (
                            format!("the result of `{id}` is not directly after the call"),
                            Fix::new(
                                "moves the tool result directly after its call",
                                [
                                    Edit::Remove(stray.node.range()),
                                    Edit::InsertAfter(last.node.range(), vec![stray.node.json()]),
                                ],
                            ),
                        )
                    }
                    None => (
                        format!("no tool message has the result of `{id}`"),
                        without_call(said, *call, are_all),
                    ),
                };
                report.add(
                    Finding::at(&TOOL_CALL_UNANSWERED, *call, message)
                        .with_severity(pairing_severity(view))
                        .with_provider_error(error.clone())
                        .with_auto_fix(fix),
                );
            }
        }
    }

    fn check_orphans(&self, view: &ChatRequest<'v>, report: &mut ChatFindings<'_, '_>) {
        let mut numbers: Vec<usize> = self.strays.values().flatten().copied().collect();
        numbers.sort_unstable();
        for said in numbers.iter().filter_map(|number| view.messages.get(*number)) {
            if report.is_covered(&said.node.range()) {
                continue;
            }
            let id = said.answers.and_then(Node::text).unwrap_or_default();
            let message = format!("no earlier tool call has the id `{id}`");
            let fix = Fix::new(
                "removes the tool message without a call",
                [Edit::Remove(said.node.range())],
            );
            report.add(
                Finding::at(&TOOL_CALL_UNANSWERED, said.node, message)
                    .with_severity(pairing_severity(view))
                    .with_provider_error(orphan_error(view, &id))
                    .with_auto_fix(fix),
            );
        }
    }
}

fn id_of(call: Node<'_>) -> Option<Cow<'_, str>> {
    call.text_of("id").filter(|id| !id.is_empty())
}

/// Self-hosted servers accept what their template accepts; only endpoints known to reject unpaired
/// calls get `Refuse`.
fn pairing_severity(view: &ChatRequest<'_>) -> Severity {
    if view.case.target().provider.dialect.pairs_calls { Severity::Refuse } else { Severity::Note }
}

/// Removes a call; removes the list with its last call, and the message if nothing else is left.
fn without_call(said: &ChatMessage<'_>, call: Node<'_>, are_all: bool) -> Fix {
    let is_silent = said.content.is_none_or(|content| matches!(content.raw(), b"\"\"" | b"[]"));
    let list = said.node.get(slot::CALLS).map(Node::range);
    match (are_all, is_silent, list) {
        (true, true, _) => Fix::new(
            "removes the message whose tool calls have no results",
            [Edit::Remove(said.node.range())],
        ),
        (true, false, Some(list)) => {
            Fix::new("removes the tool calls without results", [Edit::Remove(list)])
        }
        (true | false, _, _) => {
            Fix::new("removes the tool call without a result", [Edit::Remove(call.range())])
        }
    }
}

/// The most ids that one error lists. Each open call gets its own error that lists all of them.
const LISTED_IDS: usize = 32;

/// Returns this endpoint's error for calls without results.
fn unanswered_error(view: &ChatRequest<'_>, open: &[(Node<'_>, Cow<'_, str>)]) -> String {
    let provider = &*view.case.target().provider;
    let lead = "An assistant message with 'tool_calls' must be followed by tool messages responding to each \
                'tool_call_id'.";
    match provider.dialect.call_ids {
        CallIds::Nine => "Not the same number of function calls and responses".to_owned(),
        CallIds::Plain | CallIds::Forty => match &*provider.name {
            "deepseek" => {
                format!("{lead} (insufficient tool messages following tool_calls message)")
            }
            "minimax" => {
                "invalid params, tool call result does not follow tool call (2013)".to_owned()
            }
            _ => {
                let ids: Vec<&str> = open.iter().take(LISTED_IDS).map(|(_, id)| &**id).collect();
                let more = if open.len() > LISTED_IDS { ", …" } else { "" };
                format!(
                    "{lead} The following tool_call_ids did not have response messages: {}{more}",
                    ids.join(", ")
                )
            }
        },
    }
}

/// Returns this endpoint's error for a result without a call.
fn orphan_error(view: &ChatRequest<'_>, id: &str) -> String {
    let provider = &*view.case.target().provider;
    match provider.dialect.call_ids {
        CallIds::Nine => "Not the same number of function calls and responses".to_owned(),
        CallIds::Plain | CallIds::Forty => match &*provider.name {
            "deepseek" => {
                "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
                    .to_owned()
            }
            "minimax" => format!("invalid params, tool result's tool id({id}) not found (2013)"),
            _ => "Invalid parameter: messages with role 'tool' must be a response to a preceeding message \
                  with 'tool_calls'."
                .to_owned(),
        },
    }
}

/// Reports ids that the endpoint rejects. A call and its results get the same new id.
fn check_ids(view: &ChatRequest<'_>, report: &mut ChatFindings<'_, '_>, groups: &CallBatches<'_>) {
    let target = view.case.target();
    if target.provider.dialect.call_ids != CallIds::Nine {
        return;
    }
    let mut outgoing = CallIdAllocator::for_target(target);
    for call in view.messages.iter().flat_map(|said| &said.calls) {
        if let Some(id) = id_of(*call).filter(|id| outgoing.accepts(id)) {
            outgoing.record_native(&CallId::from(&*id), &(&*id).into());
        }
    }
    for (number, answers) in &groups.batches {
        let Some(said) = view.messages.get(*number) else { continue };
        let answers = view.messages.get(answers.clone()).unwrap_or_default();
        let mut named: HashMap<Cow<'_, str>, Vec<Node<'_>>> = HashMap::new();
        for answer in answers.iter().filter_map(|answer| answer.answers) {
            named.entry(answer.text().unwrap_or_default()).or_default().push(answer);
        }
        for (position, call) in said.calls.iter().enumerate() {
            let Some(node) = call.get("id").filter(|id| id.is_string()) else { continue };
            let id = node.text().unwrap_or_default();
            if outgoing.accepts(&id) {
                continue;
            }
            let new = outgoing.assign(&CallId::from(format!("{number}/{position}/{id}").as_str()));
            let new: Json = json::string(&new);
            // If calls share an id, the first one gets the results.
            let answers = named.remove(&id).unwrap_or_default();
            let edits: Vec<Edit> = std::iter::once(node)
                .chain(answers)
                .map(|place| Edit::Replace(place.range(), new.clone()))
                .collect();
            let message = match id.chars().count() {
                9 => "this id contains characters other than letters and digits".to_owned(),
                length => format!("this id has {length} characters"),
            };
            let answer =
                format!("Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9.");
            let fix =
                Fix::new("gives the call and its result an id of nine letters and digits", edits);
            report.add(
                Finding::at(&CALL_ID_FORM, node, message)
                    .with_provider_error(answer)
                    .with_auto_fix(fix),
            );
        }
    }
}
