//! Checks that calls and outputs are paired. If the endpoint requires it, also checks that no
//! message separates calls from their outputs.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use throughline_json::Json;

use crate::responses::contract::rules::{CALLS_INTERRUPTED, TOOL_CALL_UNANSWERED};
use crate::responses::contract::view::{ResponsesElement, ResponsesRequest};
use crate::responses::wire::{IdPolicy, ResponsesElementKind};
use crate::{Edit, Finding, Findings, Fix};

impl ResponsesRequest<'_> {
    /// Reports calls without an output, outputs without a call, and interrupted calls.
    pub(super) fn check_calls(&self, findings: &mut Findings<'_>) {
        let (mut calls, mut outputs) = (HashSet::new(), HashSet::new());
        let mut may_call_elsewhere = self.is_resumed;
        for element in &self.elements {
            if element.is_output() {
                outputs.extend(element.call_id());
            } else if element.is_models {
                // Hosted steps that a client answers have a `call_id` too, and a reference may
                // point to a call.
                calls.extend(element.call_id());
                may_call_elsewhere |= element.is_reference();
            }
        }
        let together = self.case.target().provider.dialect.calls_together;
        let noun = if together { "tool call" } else { "function call" };
        for element in &self.elements {
            let Some(id) = element.call_id() else { continue };
            let at = |message| Finding::at(&TOOL_CALL_UNANSWERED, element.node, message);
            if element.is_call() && !outputs.contains(&id) {
                let finding = at(format!("the call `{id}` has no output in this request"))
                    .with_provider_error(format!("No tool output found for {noun} {id}."));
                findings.add(finding.with_auto_fix(self.remove_call(element)));
            } else if element.is_output() && !calls.contains(&id) && !may_call_elsewhere {
                let error =
                    format!("No tool call found for function call output with call_id {id}.");
                let finding = at(format!(
                    "this is the output of the call `{id}`, which is not in the request"
                ))
                .with_provider_error(error)
                .with_fix("Send the call back before its output, or omit the output too.");
                findings.add(finding.with_auto_fix(self.restore_call(element, &id)));
            }
        }
        if together {
            self.check_messages_between(&outputs, findings);
        }
    }

    /// Builds a fix that removes a call. If the preceding reasoning led only to this call, the
    /// reasoning is removed too.
    fn remove_call(&self, call: &ResponsesElement<'_>) -> Fix {
        let mut edits = vec![Edit::Remove(call.node.range())];
        let next = self.elements.get(call.index + 1);
        if !next.is_some_and(|next| next.is_models && !next.is_reasoning()) {
            let before = self.elements.get(..call.index).unwrap_or_default().iter().rev();
            let led = before.take_while(|element| element.is_reasoning());
            edits.extend(led.map(|element| Edit::Remove(element.node.range())));
        }
        let description = match edits.len() {
            1 => "removes the call without an output",
            _ => "removes the call without an output, and the reasoning that led to it",
        };
        Fix::new(description, edits)
    }

    /// Builds a fix that restores the call of an output together with its reasoning, or else
    /// removes the output.
    fn restore_call(&self, output: &ResponsesElement<'_>, id: &str) -> Fix {
        let Some(call) = self.past.call(id).filter(|call| call.is_own) else {
            return Fix::removal(output.node, "removes the output, which has no matching call");
        };
        let ids = if self.is_paired && call.is_kept { IdPolicy::Kept } else { IdPolicy::Dropped };
        let here = self.ids();
        let run = self.past.reasoning_before(call).iter().filter(|reasoning| {
            self.past.following(reasoning).and_then(|led| led.id) == call.id
                && reasoning.id.is_none_or(|id| !here.contains(id))
        });
        let restored: Vec<Json> = run.chain([call]).map(|prior| prior.to_request(ids)).collect();
        let edit = Edit::InsertBefore(output.node.range(), restored);
        Fix::new("restores the call before its output", [edit])
    }

    /// Reports messages between parallel calls and their outputs.
    fn check_messages_between(&self, outputs: &HashSet<Cow<'_, str>>, findings: &mut Findings<'_>) {
        // The open calls by id and in request order. `first` is the first call of their batch.
        let mut open: HashMap<Cow<'_, str>, usize> = HashMap::new();
        let mut in_order: BTreeMap<usize, Cow<'_, str>> = BTreeMap::new();
        let mut first: Option<&ResponsesElement<'_>> = None;
        for element in &self.elements {
            if element.is_call() {
                first = first.or(Some(element));
                if let Some(id) = element.call_id().filter(|id| outputs.contains(id)) {
                    in_order.insert(element.index, id.clone());
                    open.insert(id, element.index).map(|known| in_order.remove(&known));
                }
            } else if element.is_output() {
                if let Some(index) = element.call_id().and_then(|id| open.remove(&id)) {
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
                let finding = Finding::at(&CALLS_INTERRUPTED, element.node, message)
                    .with_provider_error(format!("No tool output found for tool call {id}."));
                findings.add(finding.fixed_by("moves the message to before the calls", edits));
            }
            if open.is_empty() && !element.is_call() {
                first = None;
            }
        }
    }
}
