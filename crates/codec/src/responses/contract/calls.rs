//! Checks that every call has an output and every output a call, and that some endpoints get them
//! side by side.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use throughline_json::{Json, Node};

use crate::responses::contract::replay_history::ResponsesReplayHistory;
use crate::responses::contract::rules::{CALLS_INTERRUPTED, TOOL_CALL_UNANSWERED};
use crate::responses::contract::view::{ResponsesElement, ResponsesRequest};
use crate::responses::wire::{IdPolicy, ResponsesElementKind};
use crate::{AuditContext, Edit, Finding, Findings, Fix};

/// Checks every call and every output.
pub(super) fn check(
    case: &AuditContext<'_>,
    view: &ResponsesRequest<'_>,
    past: Option<&ResponsesReplayHistory<'_>>,
    findings: &mut Findings<'_>,
) {
    let (mut calls, mut outputs) = (HashSet::new(), HashSet::new());
    let mut may_call_elsewhere = view.is_resumed;
    for element in &view.elements {
        let id = element.call_id.and_then(Node::text);
        if element.is_output() {
            outputs.extend(id);
        } else if element.is_models {
            // Hosted steps that a client answers use `call_id` too, and a reference may point to a
            // call.
            calls.extend(id);
            may_call_elsewhere |= element.node.get("type").is_some_and(|t| t.is("item_reference"));
        }
    }
    let together = case.target().provider.dialect.calls_together;
    let word = if together { "tool call" } else { "function call" };
    for element in &view.elements {
        let Some(id) = element.call_id.and_then(Node::text) else { continue };
        if element.is_call() && !outputs.contains(&id) {
            let message = format!("the call `{id}` has no output in this request");
            findings.add(
                Finding::at(&TOOL_CALL_UNANSWERED, element.node, message)
                    .with_path(element.path())
                    .with_provider_error(format!("No tool output found for {word} {id}."))
                    .with_auto_fix(remove_call(view, element)),
            );
        } else if element.is_output() && !calls.contains(&id) && !may_call_elsewhere {
            let message =
                format!("this is the output of the call `{id}`, which is not in the request");
            findings.add(
                Finding::at(&TOOL_CALL_UNANSWERED, element.node, message)
                    .with_path(element.path())
                    .with_provider_error(format!(
                        "No tool call found for function call output with call_id {id}."
                    ))
                    .with_fix("Send the call back before its output, or omit the output too.")
                    .with_auto_fix(restore_call(view, past, element, &id)),
            );
        }
    }
    if together {
        check_messages_between(view, &outputs, findings);
    }
}

/// Builds a fix that removes a call, and the reasoning that led only to it.
fn remove_call(view: &ResponsesRequest<'_>, call: &ResponsesElement<'_>) -> Fix {
    let mut edits = vec![Edit::Remove(call.node.range())];
    let leads_on = view
        .elements
        .get(call.index + 1)
        .is_some_and(|next| next.is_models && next.kind != ResponsesElementKind::Reasoning);
    let before = view.elements.get(..call.index).unwrap_or_default();
    if !leads_on {
        let led = before
            .iter()
            .rev()
            .take_while(|element| element.kind == ResponsesElementKind::Reasoning);
        edits.extend(led.map(|element| Edit::Remove(element.node.range())));
    }
    let what = match edits.len() {
        1 => "removes the call without an output",
        _ => "removes the call without an output, and the reasoning that led to it",
    };
    Fix::new(what, edits)
}

/// Builds a fix that restores the call of an output with its reasoning, or removes the output.
fn restore_call(
    view: &ResponsesRequest<'_>,
    past: Option<&ResponsesReplayHistory<'_>>,
    output: &ResponsesElement<'_>,
    id: &str,
) -> Fix {
    let said = past.and_then(|past| Some((past, past.call(id).filter(|said| said.is_own)?)));
    let Some((past, call)) = said else {
        let edit = Edit::Remove(output.node.range());
        return Fix::new("removes the output without a call", [edit]);
    };
    let ids = if view.is_paired && call.is_kept { IdPolicy::Kept } else { IdPolicy::Dropped };
    let here = view.ids();
    let leads_here = |led: Option<&str>| led == call.id;
    let run = past.reasoning_before(call).iter().filter(|reasoning| {
        leads_here(past.following(reasoning).and_then(|led| led.id))
            && reasoning.id.is_none_or(|id| !here.contains(id))
    });
    let back: Vec<Json> = run.chain([call]).map(|said| said.said(ids)).collect();
    Fix::new("restores the call before its output", [Edit::InsertBefore(output.node.range(), back)])
}

/// Reports messages between parallel calls and their outputs.
fn check_messages_between(
    view: &ResponsesRequest<'_>,
    outputs: &HashSet<Cow<'_, str>>,
    findings: &mut Findings<'_>,
) {
    // The open calls in order, with the first call of their batch.
    let mut open: HashMap<Cow<'_, str>, usize> = HashMap::new();
    let mut in_order: BTreeMap<usize, Cow<'_, str>> = BTreeMap::new();
    let mut first: Option<&ResponsesElement<'_>> = None;
    for element in &view.elements {
        let id = element.call_id.and_then(Node::text);
        if element.is_call() {
            first = first.or(Some(element));
            if let Some(id) = id.filter(|id| outputs.contains(id)) {
                in_order.insert(element.index, id.clone());
                open.insert(id, element.index).map(|known| in_order.remove(&known));
            }
        } else if element.is_output() {
            if let Some(index) = id.and_then(|id| open.remove(&id)) {
                in_order.remove(&index);
            }
        } else if element.kind == ResponsesElementKind::Message
            && let Some(batch) = first
            && let Some(id) = in_order.values().next()
        {
            let message = format!("this message is between the call `{id}` and its output");
            let edits = [
                Edit::Remove(element.node.range()),
                Edit::InsertBefore(batch.node.range(), vec![element.node.json()]),
            ];
            findings.add(
                Finding::at(&CALLS_INTERRUPTED, element.node, message)
                    .with_path(element.path())
                    .with_provider_error(format!("No tool output found for tool call {id}."))
                    .with_auto_fix(Fix::new("moves the message to before the calls", edits)),
            );
        }
        if open.is_empty() && !element.is_call() {
            first = None;
        }
    }
}
