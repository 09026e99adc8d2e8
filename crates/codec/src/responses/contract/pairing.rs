//! Checks id pairs: an endpoint that stores its responses pairs reasoning with the item that
//! follows it.

use std::collections::HashSet;

use throughline_json::{Json, Node};

use crate::responses::contract::replay_history::{PriorOutput, ResponsesReplayHistory};
use crate::responses::contract::rules::{
    ITEM_DUPLICATED, ITEM_WITHOUT_ITS_REASONING, REASONING_WITHOUT_FOLLOWING_ITEM,
};
use crate::responses::contract::view::{ResponsesElement, ResponsesRequest};
use crate::responses::wire::{IdPolicy, ResponsesElementKind};
use crate::{Edit, Finding, Findings, Fix};

/// Checks every pair.
pub(super) fn check(
    view: &ResponsesRequest<'_>,
    past: Option<&ResponsesReplayHistory<'_>>,
    findings: &mut Findings<'_>,
) {
    if !view.is_paired {
        return;
    }
    for reasoning in view
        .elements_of_kind(ResponsesElementKind::Reasoning)
        .filter(|element| element.id.is_some())
    {
        check_following_item(view, past, reasoning, findings);
    }
    if let Some(past) = past.filter(|_| !view.is_resumed) {
        check_required_reasoning(view, past, findings);
    }
    check_duplicate_ids(view, findings);
}

/// Checks that the item it led to follows the reasoning item.
fn check_following_item(
    view: &ResponsesRequest<'_>,
    past: Option<&ResponsesReplayHistory<'_>>,
    reasoning: &ResponsesElement<'_>,
    findings: &mut Findings<'_>,
) {
    let next = reasoning.next.and_then(|next| view.elements.get(next));
    let said = past.and_then(|past| Some((past, past.for_element(reasoning)?)));
    let wanted = said.and_then(|(past, said)| past.following(said));
    if let Some((_, said)) = said
        && (!said.is_kept || wanted.is_none())
    {
        // An id that was not stored pairs nothing, and reasoning at the end of a response has no
        // following item.
        return;
    }
    let wanted_id = wanted.and_then(|wanted| wanted.id);
    let problem = match (next, wanted_id) {
        (None, _) => "nothing follows it".to_owned(),
        (Some(next), _) if !next.is_models => {
            format!("the next item, `{}`, is not from the model", next.name())
        }
        (Some(next), Some(wanted)) if next.id.is_none_or(|id| !id.is(wanted)) => {
            format!("the next item is not `{wanted}`, which it led to")
        }
        (Some(next), None) if next.id.is_none() => {
            format!("the next item, `{}`, has no id", next.name())
        }
        (Some(_), _) => return,
    };
    let id = reasoning.id_text();
    let message = format!("this reasoning item is sent without the item it led to: {problem}");
    findings.add(
        Finding::at(&REASONING_WITHOUT_FOLLOWING_ITEM, reasoning.node, message)
            .with_path(reasoning.path())
            .with_provider_error(format!(
                "Item '{id}' of type 'reasoning' was provided without its required following item."
            ))
            .with_auto_fix(rejoin(view, reasoning, next, wanted)),
    );
}

/// Builds a fix that joins a pair if both items are present, and removes the reasoning otherwise.
fn rejoin(
    view: &ResponsesRequest<'_>,
    reasoning: &ResponsesElement<'_>,
    next: Option<&ResponsesElement<'_>>,
    wanted: Option<&PriorOutput<'_>>,
) -> Fix {
    if let (Some(next), Some(wanted)) = (next, wanted)
        && next.id.is_none()
        && has_same_content(next.node, wanted)
    {
        let edit = Edit::Replace(next.node.range(), wanted.said(IdPolicy::Kept));
        return Fix::new("restores the id of the item after the reasoning", [edit]);
    }
    let elsewhere =
        wanted.and_then(|wanted| view.elements.iter().find(|element| wanted.is_named_by(element)));
    match elsewhere {
        Some(led) => move_before(reasoning, led),
        None => Fix::new(
            "removes the reasoning item whose pair is missing",
            [Edit::Remove(reasoning.node.range())],
        ),
    }
}

/// Builds a fix that moves reasoning directly before the item it led to.
pub(super) fn move_before(reasoning: &ResponsesElement<'_>, led: &ResponsesElement<'_>) -> Fix {
    let place = Edit::InsertBefore(led.node.range(), vec![reasoning.node.json()]);
    Fix::new(
        "moves the reasoning item directly before the item it led to",
        [Edit::Remove(reasoning.node.range()), place],
    )
}

/// Returns whether a request element has the same content as an earlier output, ignoring ids.
pub(super) fn has_same_content(element: Node<'_>, said: &PriorOutput<'_>) -> bool {
    let tree = said.json.tree();
    let was = tree.root();
    if ResponsesElementKind::from_element(element) != said.kind {
        return false;
    }
    match said.kind {
        ResponsesElementKind::Call | ResponsesElementKind::CustomCall => {
            let call = element.text_of("call_id");
            call.is_some() && call == was.text_of("call_id")
        }
        ResponsesElementKind::Message => text_of(element) == text_of(was),
        ResponsesElementKind::Reasoning
        | ResponsesElementKind::Result
        | ResponsesElementKind::CustomResult
        | ResponsesElementKind::HostedCall
        | ResponsesElementKind::HostedResult
        | ResponsesElementKind::Compaction
        | ResponsesElementKind::Unknown => false,
    }
}

/// Returns the text of a message in any of its forms.
pub(super) fn text_of(message: Node<'_>) -> String {
    let Some(content) = message.get("content") else { return String::new() };
    if let Some(text) = content.text() {
        return text.into_owned();
    }
    let texts = content.elements().filter_map(|part| part.text_of("text"));
    texts.fold(String::new(), |all, text| all + &text)
}

/// Checks that each item with a stored id has the reasoning that led to it.
fn check_required_reasoning(
    view: &ResponsesRequest<'_>,
    past: &ResponsesReplayHistory<'_>,
    findings: &mut Findings<'_>,
) {
    let ids = view.ids();
    let seals: HashSet<Vec<u8>> = view
        .elements_of_kind(ResponsesElementKind::Reasoning)
        .filter_map(|element| Some(element.seal?.text_bytes()?.to_vec()))
        .collect();
    let is_here = |output: &PriorOutput<'_>| {
        output.id.is_some_and(|id| ids.contains(id))
            || seals.iter().any(|seal| output.has_seal(seal))
    };
    let mut missed = HashSet::new();
    for element in view.elements.iter().filter(|element| element.is_models) {
        if element.kind == ResponsesElementKind::Reasoning {
            continue;
        }
        let Some(said) = past.for_element(element).filter(|said| said.is_kept) else { continue };
        let run = past.reasoning_before(said);
        let Some(needed) = run.last().filter(|needed| !is_here(needed)) else { continue };
        if !missed.insert(needed.number) {
            continue;
        }
        let (id, name) = (element.id_text(), element.name());
        let needed_id = needed.id.unwrap_or("…");
        let leads_here = past.following(needed).is_some_and(|led| led.number == said.number);
        let fix = if leads_here {
            let gone: Vec<Json> = run
                .iter()
                .filter(|o| !is_here(o))
                .map(|output| output.said(IdPolicy::Kept))
                .collect();
            let what = format!("restores the reasoning item `{needed_id}` before it");
            Fix::new(what, [Edit::InsertBefore(element.node.range(), gone)])
        } else {
            Fix::new("removes the id whose pair is missing", id_removal_edits(element))
        };
        let message = format!(
            "this `{name}` is sent by its stored id, but the reasoning item that led to it, `{needed_id}`, is not in the request"
        );
        findings.add(
            Finding::at(&ITEM_WITHOUT_ITS_REASONING, element.node, message)
                .with_path(element.path())
                .with_provider_error(format!(
                    "Item '{id}' of type '{name}' was provided without its required 'reasoning' item: '{needed_id}'."
                ))
                .with_auto_fix(fix),
        );
    }
}

/// Returns the edits that remove an element's id, and the status that is only valid with an id.
pub(super) fn id_removal_edits(element: &ResponsesElement<'_>) -> Vec<Edit> {
    let status =
        element.node.get("status").filter(|_| element.kind == ResponsesElementKind::Message);
    element.id.into_iter().chain(status).map(|member| Edit::Remove(member.range())).collect()
}

/// Reports repeated ids.
fn check_duplicate_ids(view: &ResponsesRequest<'_>, findings: &mut Findings<'_>) {
    let mut seen = HashSet::new();
    for element in &view.elements {
        let Some(id) = element.id.and_then(Node::text) else { continue };
        if seen.insert(id.clone()) {
            continue;
        }
        let message = format!("the item `{id}` is repeated in the request");
        findings.add(
            Finding::at(&ITEM_DUPLICATED, element.node, message)
                .with_path(element.path())
                .with_provider_error(format!("Duplicate item found with id {id}."))
                .with_auto_fix(Fix::new(
                    "removes the second copy of the item",
                    [Edit::Remove(element.node.range())],
                )),
        );
    }
}
