//! Tool calls and their answers: each has the other, side by side, under an id that the endpoint takes.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use throughline_core::{CallId, CallIds, Json, Node, json};

use crate::audit::{Edit, Finding, Mend, Severity};
use crate::calls::OutgoingIds;
use crate::chat::contract::rules::{CALL_ID_FORM, TOOL_CALL_UNANSWERED};
use crate::chat::contract::view::{Report, Role, Said, View};
use crate::chat::{slot, wire};

pub(super) fn check(view: &View<'_>, report: &mut Report<'_, '_>) {
    // Ollama's native API has no ids: answers go by the tool's name.
    if wire::speaks_native(view.case.target()) {
        return;
    }
    let groups = Groups::of(view);
    groups.unanswered(view, report);
    groups.orphans(view, report);
    ids(view, report, &groups);
}

/// Which answers stand right behind which calls.
struct Groups<'v> {
    /// For each message with calls: its number, and the number behind its answers.
    batches: Vec<(usize, Range<usize>)>,
    /// The answers that belong to no batch, in order, by the call that they name.
    strays: HashMap<Cow<'v, str>, Vec<usize>>,
}

impl<'v> Groups<'v> {
    fn of(view: &View<'v>) -> Self {
        let mut batches = Vec::new();
        let mut strays: HashMap<Cow<'v, str>, Vec<usize>> = HashMap::new();
        let mut open: HashSet<Cow<'v, str>> = HashSet::new();
        for (number, said) in view.messages.iter().enumerate() {
            if said.role != Role::Tool {
                open.clear();
                if said.role == Role::Assistant && !said.calls.is_empty() {
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

    /// The calls of a batch that none of its answers names.
    fn open_calls<'s>(
        view: &'s View<'v>,
        said: &'s Said<'v>,
        answers: &Range<usize>,
    ) -> Vec<(Node<'v>, Cow<'v, str>)> {
        let answers = view.messages.get(answers.clone()).unwrap_or_default();
        let answered: HashSet<Cow<'v, str>> =
            answers.iter().filter_map(|answer| answer.answers.and_then(Node::text)).collect();
        let calls = said.calls.iter().filter_map(|call| Some((*call, id_of(*call)?)));
        calls.filter(|(_, id)| !answered.contains(id)).collect()
    }

    fn unanswered(&self, view: &View<'v>, report: &mut Report<'_, '_>) {
        for (number, answers) in &self.batches {
            let Some(said) = view.messages.get(*number) else { continue };
            let open = Self::open_calls(view, said, answers);
            let are_all = open.len() == said.calls.len();
            let error = unanswered_text(view, &open);
            for (call, id) in &open {
                let last = view.messages.get(answers.end.saturating_sub(1)).unwrap_or(said);
                let stray = self.strays.get(id).and_then(|strays| {
                    let behind = strays.partition_point(|stray| *stray <= *number);
                    view.messages.get(*strays.get(behind)?)
                });
                let (message, mend) = match stray {
                    Some(stray) => {
                        report.cover(&stray.node.range());
                        (
                            format!("the answer to `{id}` does not stand right behind it"),
                            Mend::new(
                                "moves the tool's answer right behind its call",
                                [
                                    Edit::Remove(stray.node.range()),
                                    Edit::InsertAfter(last.node.range(), vec![stray.node.json()]),
                                ],
                            ),
                        )
                    }
                    None => (
                        format!("no tool message answers `{id}`"),
                        without_call(said, *call, are_all),
                    ),
                };
                report.add(
                    Finding::at(&TOOL_CALL_UNANSWERED, *call, message)
                        .as_grave_as(gravity(view))
                        .answered(error.clone())
                        .mended(Some(mend)),
                );
            }
        }
    }

    fn orphans(&self, view: &View<'v>, report: &mut Report<'_, '_>) {
        let mut numbers: Vec<usize> = self.strays.values().flatten().copied().collect();
        numbers.sort_unstable();
        for said in numbers.iter().filter_map(|number| view.messages.get(*number)) {
            if report.is_covered(&said.node.range()) {
                continue;
            }
            let id = said.answers.and_then(Node::text).unwrap_or_default();
            let message =
                format!("no tool call before this message has the id `{id}` that it answers");
            let mend = Mend::new(
                "removes the tool message that answers no call",
                [Edit::Remove(said.node.range())],
            );
            report.add(
                Finding::at(&TOOL_CALL_UNANSWERED, said.node, message)
                    .as_grave_as(gravity(view))
                    .answered(orphan_text(view, &id))
                    .mended(Some(mend)),
            );
        }
    }
}

fn id_of(call: Node<'_>) -> Option<Cow<'_, str>> {
    call.text_of("id").filter(|id| !id.is_empty())
}

/// Servers of one's own take what their template takes; only who was seen to refuse is taken to.
fn gravity(view: &View<'_>) -> Severity {
    if view.case.target().provider.dialect.pairs_calls { Severity::Refuse } else { Severity::Note }
}

/// Takes a call away; with the last of them the list, and with nothing else said the message.
fn without_call(said: &Said<'_>, call: Node<'_>, are_all: bool) -> Mend {
    let is_silent = said.content.is_none_or(|content| matches!(content.raw(), b"\"\"" | b"[]"));
    let list = said.node.get(slot::CALLS).map(Node::range);
    match (are_all, is_silent, list) {
        (true, true, _) => Mend::new(
            "removes the message whose tool calls nobody answered",
            [Edit::Remove(said.node.range())],
        ),
        (true, false, Some(list)) => {
            Mend::new("removes the tool calls that nobody answered", [Edit::Remove(list)])
        }
        (true | false, _, _) => {
            Mend::new("removes the tool call that nobody answered", [Edit::Remove(call.range())])
        }
    }
}

/// The most ids that one error lists. Each open call has an error of its own that lists all of them.
const LISTED_IDS: usize = 32;

/// What this endpoint says when calls have no answers.
fn unanswered_text(view: &View<'_>, open: &[(Node<'_>, Cow<'_, str>)]) -> String {
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

/// What this endpoint says when an answer has no call.
fn orphan_text(view: &View<'_>, id: &str) -> String {
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

/// Ids of another form than the endpoint's own. A call and its answers get one new id together.
fn ids(view: &View<'_>, report: &mut Report<'_, '_>, groups: &Groups<'_>) {
    let target = view.case.target();
    if target.provider.dialect.call_ids != CallIds::Nine {
        return;
    }
    let mut outgoing = OutgoingIds::for_target(target);
    for call in view.messages.iter().flat_map(|said| &said.calls) {
        if let Some(id) = id_of(*call).filter(|id| outgoing.takes(id)) {
            outgoing.native(&CallId::from(&*id), &(&*id).into());
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
            if outgoing.takes(&id) {
                continue;
            }
            let new = outgoing.call(&CallId::from(format!("{number}/{position}/{id}").as_str()));
            let new: Json = json::string(&new);
            // Calls that share an id: the first of them takes the answers.
            let answers = named.remove(&id).unwrap_or_default();
            let edits: Vec<Edit> = std::iter::once(node)
                .chain(answers)
                .map(|place| Edit::Replace(place.range(), new.clone()))
                .collect();
            let message = match id.chars().count() {
                9 => "this id has other characters than letters and digits".to_owned(),
                length => format!("this id has {length} characters"),
            };
            let answer =
                format!("Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9.");
            let mend =
                Mend::new("gives the call and its answer an id of nine letters and digits", edits);
            report
                .add(Finding::at(&CALL_ID_FORM, node, message).answered(answer).mended(Some(mend)));
        }
    }
}
