//! Checks settings that the model does not support, and mutually exclusive ways to continue.

use throughline_core::Profile;
use throughline_json::{self as json, Json, Node};

use crate::effort;
use crate::responses::contract;
use crate::responses::contract::replay_history::{ResponsesReplayHistory, was_stored};
use crate::responses::contract::rules::{
    EFFORT_NOT_SUPPORTED, PREVIOUS_RESPONSE_AND_CONVERSATION, PREVIOUS_RESPONSE_NOT_FOUND,
    REASONING_RESENT, SAMPLING_FIXED,
};
use crate::responses::contract::view::ResponsesRequest;
use crate::responses::wire::{IdPolicy, ResponsesElementKind};
use crate::{AuditContext, Edit, Exchange, Finding, Findings, Fix, Severity};

/// Checks the settings.
pub(super) fn check(
    case: &AuditContext<'_>,
    view: &ResponsesRequest<'_>,
    past: Option<&ResponsesReplayHistory<'_>>,
    findings: &mut Findings<'_>,
) {
    let profile = case.profile();
    let effort = view.root.at("/reasoning/effort").filter(|effort| effort.is_string());
    if let Some(effort) = effort {
        check_effort(case, effort, findings);
    }
    let word = effort.and_then(Node::text);
    if contract::rejects_sampling(profile, word.as_deref()) {
        for key in ["temperature", "top_p"] {
            if let Some(value) = view.root.present(key) {
                check_sampling(profile, key, value, findings);
            }
        }
    }
    check_continuation(case, view, past, findings);
}

fn check_effort(case: &AuditContext<'_>, effort: Node<'_>, findings: &mut Findings<'_>) {
    let profile = case.profile();
    let word = effort.text().unwrap_or_default();
    // Only models with efforts, or known to have none, are checked.
    let is_known = profile.name != "unknown"
        && (!profile.efforts.is_empty() || profile.always_thinks || !profile.can_think());
    if !is_known || profile.efforts.iter().any(|taken| **taken == *word) {
        return;
    }
    let model = case.target().model();
    let (message, answer) = if profile.efforts.is_empty() {
        (
            format!("`{model}` has no effort setting"),
            "Unsupported parameter: 'reasoning.effort' is not supported with this model."
                .to_owned(),
        )
    } else {
        (
            format!(
                "`{model}` does not support the effort `{word}`; it supports {}",
                effort::quoted_series(&profile.efforts, '`')
            ),
            format!(
                "Unsupported value: '{word}' is not supported with the '{model}' model. Supported values are: {}.",
                effort::quoted_series(&profile.efforts, '\'')
            ),
        )
    };
    let fix = match effort::closest(&word, &profile.efforts) {
        Some(nearest) => Fix::new(
            format!("uses the effort `{nearest}` instead"),
            [Edit::Replace(effort.range(), json::string(nearest))],
        ),
        None => Fix::new("omits the effort", [Edit::Remove(effort.range())]),
    };
    findings.add(
        Finding::at(&EFFORT_NOT_SUPPORTED, effort, message)
            .with_provider_error(answer)
            .with_auto_fix(fix),
    );
}

fn check_sampling(
    profile: &Profile,
    key: &'static str,
    value: Node<'_>,
    findings: &mut Findings<'_>,
) {
    let is_default = value.number().and_then(|number| number.parse::<f64>().ok()) == Some(1.0);
    let message = if is_default {
        format!("`{key}` has no effect on {}", profile.name)
    } else {
        format!("{} does not support another `{key}`", profile.name)
    };
    let severity = if is_default { Severity::Note } else { Severity::Refuse };
    let edit = Edit::Remove(value.range());
    findings.add(
        Finding::at(&SAMPLING_FIXED, value, message)
            .with_severity(severity)
            .with_provider_error(format!(
                "Unsupported parameter: '{key}' is not supported with this model."
            ))
            .with_auto_fix(Fix::new(format!("omits `{key}`"), [edit])),
    );
}

/// Checks the response or conversation that the request continues.
fn check_continuation(
    case: &AuditContext<'_>,
    view: &ResponsesRequest<'_>,
    past: Option<&ResponsesReplayHistory<'_>>,
    findings: &mut Findings<'_>,
) {
    let Some(previous) = view.root.present("previous_response_id") else { return };
    if let Some(conversation) = view.root.present("conversation") {
        let message = "the request continues both a response and a conversation";
        let edit = Edit::Remove(previous.range());
        let what = "continues the conversation, not the response";
        findings.add(
            Finding::at(&PREVIOUS_RESPONSE_AND_CONVERSATION, conversation, message)
                .with_auto_fix(Fix::new(what, [edit])),
        );
        return;
    }
    let is_it = |exchange: &&Exchange| {
        let id = exchange.reply.as_ref().and_then(|reply| reply.id.as_deref());
        id.is_some_and(|id| previous.is(id))
    };
    let exchanges = case.prior().exchanges();
    let asked = exchanges.iter().position(|exchange| is_it(&exchange));
    let lost = asked.and_then(|at| Some((at, exchanges.get(at).filter(|e| !was_stored(e))?)));
    if let Some((number, exchange)) = lost {
        let id = previous.text().unwrap_or_default();
        let message = format!(
            "the response `{id}` was created with `store` set to false, so it was not stored"
        );
        findings.add(
            Finding::at(&PREVIOUS_RESPONSE_NOT_FOUND, previous, message)
                .with_provider_error(format!("Previous response with id '{id}' not found."))
                .with_auto_fix(
                    past.and_then(|past| resend_items(view, past, number, exchange, previous)),
                ),
        );
        return;
    }
    if let Some(reasoning) = view.elements_of_kind(ResponsesElementKind::Reasoning).next() {
        let message =
            "this reasoning item is sent again, although the continued response already has it";
        findings.add(
            Finding::at(&REASONING_RESENT, reasoning.node, message).with_path(reasoning.path()),
        );
    }
}

/// Builds a fix that sends the items of the lost response instead of its id.
fn resend_items(
    view: &ResponsesRequest<'_>,
    past: &ResponsesReplayHistory<'_>,
    number: usize,
    exchange: &Exchange,
    previous: Node<'_>,
) -> Option<Fix> {
    let source = exchange.call.as_ref()?.source_on(&throughline_core::Wire::OPENAI_RESPONSES)?;
    let before = throughline_json::Tree::parse(source.request.body.clone()).ok()?;
    if before.root().present("previous_response_id").is_some() {
        // That response would have to be resolved too.
        return None;
    }
    let as_element = |input: Node<'_>| -> Vec<Json> {
        let bare = |input: Node<'_>| {
            json::object(|o| {
                o.string("role", "user").node("content", input);
            })
        };
        if input.is_string() {
            return vec![bare(input)];
        }
        input.elements().map(Node::json).collect()
    };
    let mut elements = before.root().present("input").map(as_element).unwrap_or_default();
    let outputs = past.outputs().iter().filter(|output| output.exchange == number);
    elements.extend(outputs.map(|output| output.said(IdPolicy::Dropped)));
    let input = view.root.present("input");
    let edit = match (view.elements.first(), input) {
        (Some(first), _) => Edit::InsertBefore(first.node.range(), elements),
        (None, Some(input)) => {
            elements.extend(as_element(input));
            Edit::Replace(input.range(), json::array_of(&elements))
        }
        (None, None) => return None,
    };
    let edits = [Edit::Remove(previous.range()), edit];
    Some(Fix::new("sends the earlier items instead of the id of the missing response", edits))
}
