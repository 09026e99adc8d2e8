//! Calls and their outputs: each needs the other, and some endpoints want them side by side.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use throughline_core::{Json, Node};

use crate::responses::contract::past::Past;
use crate::responses::contract::rules::{CALLS_INTERRUPTED, TOOL_CALL_UNANSWERED};
use crate::responses::contract::view::{Element, View};
use crate::responses::wire::{Ids, Kind};
use crate::{Case, Edit, Finding, Findings, Mend};

/// Looks at every call and every output.
pub(super) fn look(
    case: &Case<'_>,
    view: &View<'_>,
    past: Option<&Past<'_>>,
    findings: &mut Findings<'_>,
) {
    let (mut calls, mut outputs) = (HashSet::new(), HashSet::new());
    let mut may_call_elsewhere = view.is_resumed;
    for element in &view.elements {
        let id = element.call_id.and_then(Node::text);
        if element.is_output() {
            outputs.extend(id);
        } else if element.is_models {
            // Hosted steps that a client answers name their calls alike, and a reference may stand for a call.
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
                    .under(element.path())
                    .answered(format!("No tool output found for {word} {id}."))
                    .mended(Some(without_call(view, element))),
            );
        } else if element.is_output() && !calls.contains(&id) && !may_call_elsewhere {
            let message =
                format!("this output answers the call `{id}`, which is not in the request");
            findings.add(
                Finding::at(&TOOL_CALL_UNANSWERED, element.node, message)
                    .under(element.path())
                    .answered(format!(
                        "No tool call found for function call output with call_id {id}."
                    ))
                    .advised("Send the call back before its output, or leave the output out too.")
                    .mended(Some(with_call(view, past, element, &id))),
            );
        }
    }
    if together {
        look_between(view, &outputs, findings);
    }
}

/// Takes a call away, with the reasoning that led to nothing else.
fn without_call(view: &View<'_>, call: &Element<'_>) -> Mend {
    let mut edits = vec![Edit::Remove(call.node.range())];
    let leads_on = view
        .elements
        .get(call.index + 1)
        .is_some_and(|next| next.is_models && next.kind != Kind::Reasoning);
    let before = view.elements.get(..call.index).unwrap_or_default();
    if !leads_on {
        let led = before.iter().rev().take_while(|element| element.kind == Kind::Reasoning);
        edits.extend(led.map(|element| Edit::Remove(element.node.range())));
    }
    let what = match edits.len() {
        1 => "removes the call that was never answered",
        _ => "removes the call that was never answered, and the reasoning that led to it",
    };
    Mend::new(what, edits)
}

/// Puts the call back that an output answers, with its reasoning, or takes the output away.
fn with_call(view: &View<'_>, past: Option<&Past<'_>>, output: &Element<'_>, id: &str) -> Mend {
    let said = past.and_then(|past| Some((past, past.call(id).filter(|said| said.is_own)?)));
    let Some((past, call)) = said else {
        let edit = Edit::Remove(output.node.range());
        return Mend::new("removes the output whose call is gone", [edit]);
    };
    let ids = if view.is_paired && call.is_kept { Ids::Kept } else { Ids::Dropped };
    let here = view.ids();
    let leads_here = |led: Option<&str>| led == call.id;
    let run = past.reasoning_before(call).iter().filter(|reasoning| {
        leads_here(past.following(reasoning).and_then(|led| led.id))
            && reasoning.id.is_none_or(|id| !here.contains(id))
    });
    let back: Vec<Json> = run.chain([call]).map(|said| said.said(ids)).collect();
    Mend::new(
        "puts the call back before its output",
        [Edit::InsertBefore(output.node.range(), back)],
    )
}

/// Whether a message stands between calls that were made at once and their outputs.
fn look_between(view: &View<'_>, outputs: &HashSet<Cow<'_, str>>, findings: &mut Findings<'_>) {
    // The open calls, in order, with the first of their batch.
    let mut open: HashMap<Cow<'_, str>, usize> = HashMap::new();
    let mut in_order: BTreeMap<usize, Cow<'_, str>> = BTreeMap::new();
    let mut first: Option<&Element<'_>> = None;
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
        } else if element.kind == Kind::Message
            && let Some(batch) = first
            && let Some(id) = in_order.values().next()
        {
            let message = format!("this message stands between the call `{id}` and its output");
            let edits = [
                Edit::Remove(element.node.range()),
                Edit::InsertBefore(batch.node.range(), vec![element.node.json()]),
            ];
            findings.add(
                Finding::at(&CALLS_INTERRUPTED, element.node, message)
                    .under(element.path())
                    .answered(format!("No tool output found for tool call {id}."))
                    .mended(Some(Mend::new("moves the message to before the calls", edits))),
            );
        }
        if open.is_empty() && !element.is_call() {
            first = None;
        }
    }
}
