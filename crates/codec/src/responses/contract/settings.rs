//! Settings that a model does not take, and ways to go on that exclude each other.

use throughline_core::{Json, Node, Profile, json};

use crate::effort;
use crate::responses::contract;
use crate::responses::contract::past::{Past, was_kept};
use crate::responses::contract::rules::{
    EFFORT_NOT_SUPPORTED, PREVIOUS_RESPONSE_AND_CONVERSATION, PREVIOUS_RESPONSE_NOT_FOUND,
    REASONING_RESENT, SAMPLING_FIXED,
};
use crate::responses::contract::view::View;
use crate::responses::wire::{Ids, Kind};
use crate::{Case, Edit, Exchange, Finding, Findings, Mend, Severity};

/// Looks at the settings.
pub(super) fn look(
    case: &Case<'_>,
    view: &View<'_>,
    past: Option<&Past<'_>>,
    findings: &mut Findings<'_>,
) {
    let profile = case.profile();
    let effort = view.root.at("/reasoning/effort").filter(|effort| effort.is_string());
    if let Some(effort) = effort {
        look_at_effort(case, effort, findings);
    }
    let word = effort.and_then(Node::text);
    if contract::refuses_sampling(profile, word.as_deref()) {
        for key in ["temperature", "top_p"] {
            if let Some(value) = view.root.present(key) {
                look_at_sampling(profile, key, value, findings);
            }
        }
    }
    look_at_resuming(case, view, past, findings);
}

fn look_at_effort(case: &Case<'_>, effort: Node<'_>, findings: &mut Findings<'_>) {
    let profile = case.profile();
    let word = effort.text().unwrap_or_default();
    // A model that has the knob, or is known to have none.
    let is_known = profile.name != "unknown"
        && (!profile.efforts.is_empty() || profile.always_thinks || !profile.can_think());
    if !is_known || profile.efforts.iter().any(|taken| **taken == *word) {
        return;
    }
    let model = case.target().model();
    let (message, answer) = if profile.efforts.is_empty() {
        (
            format!("`{model}` has no effort to set"),
            "Unsupported parameter: 'reasoning.effort' is not supported with this model."
                .to_owned(),
        )
    } else {
        (
            format!(
                "`{model}` does not take the effort `{word}`; it takes {}",
                listed(&profile.efforts, '`')
            ),
            format!(
                "Unsupported value: '{word}' is not supported with the '{model}' model. Supported values are: {}.",
                listed(&profile.efforts, '\'')
            ),
        )
    };
    let mend = match effort::closest(&word, &profile.efforts) {
        Some(nearest) => Mend::new(
            format!("asks for the effort `{nearest}` instead"),
            [Edit::Replace(effort.range(), json::string(nearest))],
        ),
        None => Mend::new("leaves the effort out", [Edit::Remove(effort.range())]),
    };
    findings.add(
        Finding::at(&EFFORT_NOT_SUPPORTED, effort, message).answered(answer).mended(Some(mend)),
    );
}

/// Words in the way that the provider lists them: `'low', 'medium', and 'high'`.
fn listed(words: &[String], quote: char) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("{quote}{word}{quote}")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, [one])) => format!("{one} and {last}"),
        Some((last, others)) => format!("{}, and {last}", others.join(", ")),
        None => String::new(),
    }
}

fn look_at_sampling(
    profile: &Profile,
    key: &'static str,
    value: Node<'_>,
    findings: &mut Findings<'_>,
) {
    let is_default = value.number().and_then(|number| number.parse::<f64>().ok()) == Some(1.0);
    let message = if is_default {
        format!("`{key}` is said although {} sets it itself", profile.name)
    } else {
        format!("{} sets `{key}` itself, and refuses another one", profile.name)
    };
    let severity = if is_default { Severity::Note } else { Severity::Refuse };
    let edit = Edit::Remove(value.range());
    findings.add(
        Finding::at(&SAMPLING_FIXED, value, message)
            .as_grave_as(severity)
            .answered(format!("Unsupported parameter: '{key}' is not supported with this model."))
            .mended(Some(Mend::new(format!("leaves `{key}` out"), [edit]))),
    );
}

/// Looks at what the request goes on from.
fn look_at_resuming(
    case: &Case<'_>,
    view: &View<'_>,
    past: Option<&Past<'_>>,
    findings: &mut Findings<'_>,
) {
    let Some(previous) = view.root.present("previous_response_id") else { return };
    if let Some(conversation) = view.root.present("conversation") {
        let message = "the request goes on from an answer and from a conversation at once";
        let edit = Edit::Remove(previous.range());
        let what = "goes on from the conversation, and not from the answer";
        findings.add(
            Finding::at(&PREVIOUS_RESPONSE_AND_CONVERSATION, conversation, message)
                .mended(Some(Mend::new(what, [edit]))),
        );
        return;
    }
    let is_it = |exchange: &&Exchange| {
        let id = exchange.reply.as_ref().and_then(|reply| reply.id.as_deref());
        id.is_some_and(|id| previous.is(id))
    };
    let exchanges = case.prior().exchanges();
    let asked = exchanges.iter().position(|exchange| is_it(&exchange));
    let lost = asked.and_then(|at| Some((at, exchanges.get(at).filter(|e| !was_kept(e))?)));
    if let Some((number, exchange)) = lost {
        let id = previous.text().unwrap_or_default();
        let message =
            format!("the answer `{id}` was made with `store` set to false, so nobody kept it");
        findings.add(
            Finding::at(&PREVIOUS_RESPONSE_NOT_FOUND, previous, message)
                .answered(format!("Previous response with id '{id}' not found."))
                .mended(past.and_then(|past| said_again(view, past, number, exchange, previous))),
        );
        return;
    }
    if let Some(reasoning) = view.of_kind(Kind::Reasoning).next() {
        let message =
            "this reasoning item is sent although the answer that is gone on from has its own";
        findings
            .add(Finding::at(&REASONING_RESENT, reasoning.node, message).under(reasoning.path()));
    }
}

/// Says what the lost answer stood for, instead of naming it.
fn said_again(
    view: &View<'_>,
    past: &Past<'_>,
    number: usize,
    exchange: &Exchange,
    previous: Node<'_>,
) -> Option<Mend> {
    let source = exchange.call.as_ref()?.source_on(&throughline_core::Wire::OPENAI_RESPONSES)?;
    let before = throughline_core::Tree::parse(source.request.body.clone()).ok()?;
    if before.root().present("previous_response_id").is_some() {
        // That would have to be found again as well.
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
    elements.extend(outputs.map(|output| output.said(Ids::Dropped)));
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
    Some(Mend::new("sends what was said before instead of naming the lost answer", edits))
}
